/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "procinfo.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "helper.h"
#include "inspector.h"
#include "job_names.h"
#include "proc_file.h"
#include "util.h"

#define MAX_CGROUP  (20 * PATH_MAX) /* hierarchies, each with a path that a tenant made long */
#define MAX_ENVIRON (256 * 1024)

static int32_t read_ppid(uint32_t pid)
{
	char stat[512], *end;
	int ppid;

	if (proc_file__read(pid, "stat", stat, sizeof(stat)) < 0)
		return 0;
	end = strrchr(stat, ')'); /* the name before it may hold anything */
	return end && sscanf(end + 1, " %*c %d", &ppid) == 1 ? ppid : 0;
}

/* What the process says of itself; from_cgroup: what root says of it, as far as is known. */
static void read_job(uint32_t pid, struct procinfo *info, struct job_identity *from_cgroup)
{
	struct job_identity from_environ;
	_cleanup_free_ char *buf = malloc(MAX_ENVIRON);
	bool cgroup, environment, is_hidden;
	ssize_t n;

	if (!buf)
		return;
	n = proc_file__read(pid, "cgroup", buf, MAX_CGROUP);
	cgroup = n > 0 && !job__from_cgroup(buf, n, from_cgroup);
	/* Below directories of its own, too deep for the kernel to tell (until 6.7), it may lie. */
	is_hidden = n == -ENAMETOOLONG;
	n = proc_file__read(pid, "environ", buf, MAX_ENVIRON);
	environment = !is_hidden && n > 0 && !job__from_environ(buf, n, &from_environ);
	info->inspector_files = n > 0 && inspector__writes_files(buf, n);
	job__merge(cgroup ? from_cgroup : NULL, environment ? &from_environ : NULL, &info->job);
}

static int reply(int reply_fd, const struct procinfo *info)
{
	return helper__reply(reply_fd, info, sizeof(*info), NULL, 0);
}

static int reply_with_names(int reply_fd, const char *host_root, struct procinfo *info,
			    struct job_identity *from_cgroup)
{
	const struct job_identity known = info->job;
	struct job_names names;

	if ((!from_cgroup->pod_uid[0] && !from_cgroup->container_id[0]) ||
	    job_names__find(host_root, from_cgroup, &names))
		return 0;
	job__name(from_cgroup, &names);
	job__merge(from_cgroup, &known, &info->job);
	return reply(reply_fd, info);
}

int procinfo__work(void *arg, int reply_fd)
{
	const struct procinfo_question *question = arg;
	struct job_identity from_cgroup = {};
	struct procinfo info = {};
	ssize_t n = proc_file__read(question->pid, "comm", info.command, sizeof(info.command));

	if (n < 0)
		return n;
	info.command[strcspn(info.command, "\n")] = 0;
	info.ppid = read_ppid(question->pid);
	read_job(question->pid, &info, &from_cgroup);
	return reply(reply_fd, &info)
		       ?: reply_with_names(reply_fd, question->host_root, &info, &from_cgroup);
}

bool procinfo__valid(const struct procinfo *info)
{
	return memchr(info->command, 0, sizeof(info->command)) && info->inspector_files <= 1 &&
	       job__valid(&info->job);
}

bool procinfo__in_cgroup(uint32_t pid, const char *path)
{
	char text[MAX_CGROUP], *line, *rest = text;
	size_t len = strlen(path);

	if (proc_file__read(pid, "cgroup", text, sizeof(text)) < 0)
		return false;
	while ((line = strsep(&rest, "\n"))) {
		char *controllers = strchr(line, ':');
		char *at = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!at)
			continue;
		at++;
		if (!strncmp(at, path, len) && (at[len] == 0 || at[len] == '/'))
			return true;
	}
	return false;
}
