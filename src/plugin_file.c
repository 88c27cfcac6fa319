/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "plugin_conf.h"
#include "util.h"

int plugin_conf__read(const char *path, char **ret, size_t *ret_len)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int err = fd < 0 ? -errno : 0;
	struct stat st = {};
	size_t len = 0;
	ssize_t n = 0;
	char *text;

	if (!err && fstat(fd, &st))
		err = -errno;
	if (!err && !S_ISREG(st.st_mode))
		err = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	if (!err && st.st_size > PLUGIN_CONF_MAX)
		err = -EFBIG;
	if (err && err != -ENOENT)
		return err;
	text = malloc(st.st_size + 1);
	if (!text)
		return -ENOMEM;
	while (!err && len < (size_t)st.st_size && (n = read(fd, text + len, st.st_size - len)) > 0)
		len += n;
	if (n < 0)
		err = -errno;
	text[len] = 0;
	*ret = text;
	*ret_len = len;
	return err;
}

int plugin_conf__status(const char *path, struct plugin_conf *ret)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int err = plugin_conf__read(path, &text, &len);

	if (err && err != -ENOENT)
		return err;
	*ret = plugin_conf__parse(text, len);
	return 0;
}

/* What a system has set on the old file goes to the new one; where that cannot be, nothing is lost
 * but that. */
static void copy_attributes(int from, int to)
{
	char names[4096], value[4096];
	ssize_t len = flistxattr(from, names, sizeof(names));

	for (const char *name = names; len > 0 && name < names + len; name += strlen(name) + 1) {
		ssize_t n = fgetxattr(from, name, value, sizeof(value));

		if (n >= 0)
			(void)!fsetxattr(to, name, value, n, 0);
	}
}

static int fill(int fd, int old, const char *text, size_t len)
{
	struct stat st;

	for (size_t done = 0; done < len;) {
		ssize_t n = write(fd, text + done, len - done);

		if (n <= 0)
			return n ? -errno : -EIO;
		done += n;
	}
	if (old < 0)
		return fchmod(fd, 0644) ? -errno : 0;
	if (fstat(old, &st) || fchown(fd, st.st_uid, st.st_gid) || fchmod(fd, st.st_mode & 07777))
		return -errno;
	copy_attributes(old, fd);
	return 0;
}

/* Every job of the node reads it: it must be there whole after a crash, too. */
static int replace(const char *path, int old, const char *text, size_t len)
{
	char temp[PATH_MAX];
	_cleanup_close_ int fd = -1;
	int err;

	if ((size_t)snprintf(temp, sizeof(temp), "%s.XXXXXX", path) >= sizeof(temp))
		return -ENAMETOOLONG;
	fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = fill(fd, old, text, len);
	if (!err && (fsync(fd) || rename(temp, path)))
		err = -errno;
	if (err)
		unlink(temp);
	return err;
}

int plugin_conf__write(const char *path, const char *text, size_t len)
{
	_cleanup_free_ char *real = realpath(path, NULL);
	_cleanup_close_ int old = -1;

	if (!real && errno != ENOENT)
		return -errno;
	if (!real)
		return len ? replace(path, -1, text, len) : 0;
	if (!len)
		return unlink(real) ? -errno : 0;
	old = open(real, O_RDONLY | O_CLOEXEC);
	return old < 0 ? -errno : replace(real, old, text, len);
}

int plugin_conf__find_plugin(char *ret, size_t size)
{
	static const char *const places[] = {"", "../lib/nccl-bpftrace/"};
	char self[PATH_MAX], path[2 * PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		return -errno;
	self[n] = 0;
	dirname(self);
	for (unsigned int i = 0; i < ARRAY_SIZE(places); i++) {
		_cleanup_free_ char *real = NULL;

		snprintf(path, sizeof(path), "%s/%s" PLUGIN_FILE_NAME, self, places[i]);
		real = realpath(path, NULL);
		if ((size_t)snprintf(ret, size, "%s", real ?: path) >= size)
			return -ENAMETOOLONG;
		if (real)
			return 0;
	}
	return -ENOENT;
}

static bool others_may_change(const struct stat *st)
{
	bool many = st->st_mode & S_IWOTH || (st->st_mode & S_IWGRP && st->st_gid);

	return (st->st_uid && st->st_uid != geteuid()) || (many && !(st->st_mode & S_ISVTX));
}

const char *plugin_conf__unsafe(const char *path)
{
	char at[PATH_MAX];
	struct stat st;

	if ((size_t)snprintf(at, sizeof(at), "%s", path) >= sizeof(at) || stat(path, &st))
		return "it cannot be looked at";
	if (!S_ISREG(st.st_mode))
		return "it is no file";
	if (others_may_change(&st))
		return "others than root may write to it";
	do {
		dirname(at);
		if (stat(at, &st) || others_may_change(&st))
			return "others than root may replace it: a directory above is theirs";
	} while (strcmp(at, "/"));
	return NULL;
}
