/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "prom.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fd__write(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Creates it and never opens one that is there: that could be a link, or open elsewhere. */
static int temp__open(int dirfd, const char *temp)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dirfd, temp, flags, 0600);

	/* in a container every agent may have the same pid, so that a dead one's file is met */
	if (fd < 0 && errno == EEXIST && !unlinkat(dirfd, temp, 0))
		fd = openat(dirfd, temp, flags, 0600);
	return fd < 0 ? -errno : fd;
}

/*
 * No fsync: after a crash of the machine the file's content is worthless anyway, and an fsync
 * can block for seconds on a busy disk. What a reader sees is decided by the rename alone.
 */
static int temp__fill(int dirfd, const char *temp, const char *text, size_t len)
{
	int fd = temp__open(dirfd, temp);
	int err;

	if (fd < 0)
		return fd;
	err = fd__write(fd, text, len);
	if (!err && fchmod(fd, 0644))
		err = -errno;
	/* a network file system reports here that the server's disk is full */
	if (close(fd) && !err)
		err = -errno;
	if (err)
		unlinkat(dirfd, temp, 0);
	return err;
}

int prom__publish(const struct prom *p, int dirfd, const char *name)
{
	char temp[NAME_MAX + 1];
	const char *text;
	size_t len;
	int n, err;

	err = prom__text(p, &text, &len);
	if (err)
		return err;
	n = snprintf(temp, sizeof(temp), ".%s.%d.tmp", name, (int)getpid());
	if (n < 0 || (size_t)n >= sizeof(temp))
		return -ENAMETOOLONG;
	err = temp__fill(dirfd, temp, text, len);
	if (err)
		return err;
	if (renameat(dirfd, temp, dirfd, name)) {
		err = -errno;
		unlinkat(dirfd, temp, 0);
	}
	return err;
}

/* Whether prom__publish() made the name for PROM_FILE_NAME in a process that is gone, or in this.
 */
static bool temp__is_left_over(const char *name)
{
	static const char prefix[] = "." PROM_FILE_NAME ".";
	char again[NAME_MAX + 1];
	long pid;

	if (strncmp(name, prefix, sizeof(prefix) - 1))
		return false;
	errno = 0;
	pid = strtol(name + sizeof(prefix) - 1, NULL, 10);
	if (errno || pid <= 0 || pid > INT_MAX)
		return false;
	snprintf(again, sizeof(again), "%s%ld.tmp", prefix, pid);
	if (strcmp(name, again))
		return false;
	/* EPERM means that there is such a process */
	return pid == getpid() || (kill((pid_t)pid, 0) && errno == ESRCH);
}

static bool temp__remove(int dirfd, const char *name)
{
	struct stat st;

	return !fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
	       !unlinkat(dirfd, name, 0);
}

int prom__sweep(int dirfd)
{
	/* a descriptor of its own: fdopendir() takes it over, and the position is not shared */
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *entry;
	int n_removed = 0;
	DIR *dir;

	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir) {
		int err = -errno;

		close(fd);
		return err;
	}
	while ((entry = readdir(dir)) != NULL)
		if (temp__is_left_over(entry->d_name))
			n_removed += temp__remove(dirfd, entry->d_name);
	closedir(dir);
	return n_removed;
}

int prom__unlink(int dirfd, const char *name)
{
	return unlinkat(dirfd, name, 0) && errno != ENOENT ? -errno : 0;
}
