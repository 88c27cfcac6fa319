/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proc_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "util.h"

ssize_t proc_file__read(uint32_t pid, const char *name, char *buf, size_t size)
{
	_cleanup_close_ int fd = -1;
	size_t len = 0;
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%u/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) != 0) {
		if (n < 0)
			return -errno;
		len += n;
	}
	buf[len] = 0;
	return len;
}
