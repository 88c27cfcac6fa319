/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "job_names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "util.h"

#define LOGS_OF_PODS "var/log/pods"

/* An absolute link (/var/log on a disk of its own) is meant for the host's root, not for ours. */
static int open_below(int root, const char *path, int flags)
{
	const struct open_how how = {
		.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

static int open_root(const char *path)
{
	const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
	int fd = open(path ?: JOB_NAMES_ROOT, flags);

	if (fd < 0 && !path)
		fd = open("/", flags);
	return fd < 0 ? -errno : fd;
}

int job_names__look_for_pods(const char *path)
{
	_cleanup_close_ int root = open_root(path);
	_cleanup_close_ int pods = root < 0 ? root : open_below(root, LOGS_OF_PODS, O_DIRECTORY);

	return pods < 0 ? pods : 0;
}

typedef bool name_fn(const char *name, const struct job_identity *job, struct job_names *ret);

/* The first entry of a directory that names the job. */
static bool search(int root, const char *path, name_fn *fn, const struct job_identity *job,
		   struct job_names *ret)
{
	int fd = open_below(root, path, O_DIRECTORY);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	unsigned int n = 0;
	struct dirent *entry;
	bool found = false;

	if (!directory) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!found && n++ < JOB_NAMES_MAX_ENTRIES && (entry = readdir(directory)))
		found = fn(entry->d_name, job, ret);
	closedir(directory);
	return found;
}

/* Whole, or -errno; *ret is to be freed. */
static ssize_t read_below(int root, const char *path, char **ret)
{
	_cleanup_close_ int fd = open_below(root, path, 0);
	_cleanup_free_ char *text = NULL;
	struct stat st;
	size_t len = 0;
	ssize_t n;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > JOB_NAMES_MAX_FILE)
		return -EFBIG;
	text = malloc(st.st_size + 1);
	if (!text)
		return -ENOMEM;
	while (len < (size_t)st.st_size && (n = read(fd, text + len, st.st_size - len)) != 0) {
		if (n < 0)
			return -errno;
		len += n;
	}
	*ret = text;
	text = NULL;
	return len;
}

static bool search_places(int root, const struct job_identity *job, struct job_names *ret)
{
	for (const struct job_names_place *p = job_names_places; p->path; p++) {
		_cleanup_free_ char *text = NULL;
		char path[PATH_MAX];
		ssize_t len;

		snprintf(path, sizeof(path), p->path, job->container_id);
		len = read_below(root, path, &text);
		if (len >= 0 && job_names__from_file(text, len, p, job, ret))
			return true;
	}
	return false;
}

/* The kubelet's word goes first; what it does not say, the runtime may. */
int job_names__find(const char *root, const struct job_identity *job, struct job_names *ret)
{
	_cleanup_close_ int fd = open_root(root);
	struct job_names log = {}, file = {};

	*ret = (struct job_names){};
	if (fd < 0)
		return fd;
	if (job->pod_uid[0]) {
		search(fd, LOGS_OF_PODS, job_names__from_folder, job, ret);
		search(fd, "var/log/containers", job_names__from_log, job, &log);
	}
	if (ret->pod[0] && !strcmp(ret->pod, log.pod) && !strcmp(ret->namespace, log.namespace))
		memcpy(ret->container, log.container, sizeof(ret->container));
	if ((ret->container[0] && ret->pod[0]) || !job->container_id[0] ||
	    !search_places(fd, job, &file))
		return 0;
	if (!ret->pod[0])
		*ret = file;
	memcpy(ret->container, file.container, sizeof(ret->container));
	return 0;
}
