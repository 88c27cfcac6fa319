/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fuse_mirror DIR MOUNTPOINT: shows the files of DIR. While DIR/.hang-open exists no open is
 * answered, while DIR/.hang-read exists no read and no write. Runs until it is unmounted or killed.
 */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int root;

static void hang_while(const char *flag)
{
	while (!faccessat(root, flag, F_OK, 0))
		usleep(20 * 1000);
}

static int mirror_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	(void)fi;
	return fstatat(root, path[1] ? path + 1 : ".", st, 0) ? -errno : 0;
}

static int mirror_open(const char *path, struct fuse_file_info *fi)
{
	int fd;

	hang_while(".hang-open");
	fd = openat(root, path + 1, (fi->flags & O_ACCMODE) | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	fi->direct_io = !!(fi->flags & O_DIRECT);
	return 0;
}

static int mirror_read(const char *path, char *buf, size_t size, off_t at, struct fuse_file_info *fi)
{
	ssize_t n;

	(void)path;
	hang_while(".hang-read");
	n = pread((int)fi->fh, buf, size, at);
	return n < 0 ? -errno : (int)n;
}

static int mirror_write(const char *path, const char *buf, size_t size, off_t at,
			struct fuse_file_info *fi)
{
	ssize_t n;

	(void)path;
	hang_while(".hang-read");
	n = pwrite((int)fi->fh, buf, size, at);
	return n < 0 ? -errno : (int)n;
}

static int mirror_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	close((int)fi->fh);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct fuse_operations operations = {
		.getattr = mirror_getattr,
		.open = mirror_open,
		.read = mirror_read,
		.write = mirror_write,
		.release = mirror_release,
	};
	char *args[] = {argv[0], "-f", "-o", "dev,suid,allow_other", argv[argc - 1], NULL};

	if (argc != 3 || (root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
		fputs("usage: fuse_mirror DIR MOUNTPOINT\n", stderr);
		return 2;
	}
	return fuse_main(5, args, &operations, NULL);
}
