/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "util.h"

#define BUFFER_BYTES (256 * 1024)
#define POLL_MS	     200

struct record_file {
	char *path; /* NULL: standard output */
	int fd, err;
	bool is_stream;	  /* pipe, terminal, ...: cannot be cut, and can make us wait */
	uint64_t written; /* whole lines, bytes */
	size_t len;
	char buffer[BUFFER_BYTES];
};

int record_file__new(struct record_file **ret, const char *path)
{
	bool is_stdout = !strcmp(path, "-");
	struct record_file *file = calloc(1, sizeof(*file));
	struct stat st;
	int err = 0;

	if (!file)
		return -ENOMEM;
	file->fd = is_stdout
			   ? STDOUT_FILENO
			   : open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (file->fd < 0)
		err = -errno;
	else if (fstat(file->fd, &st))
		err = -errno;
	if (!err && !is_stdout && !(file->path = strdup(path)))
		err = -ENOMEM;
	if (err) {
		free(file);
		return err;
	}
	/* Standard output may be the tail of a file that has more in it: it is never cut. */
	file->is_stream = is_stdout;
	*ret = file;
	return 0;
}

static bool is_asked_to_end(void)
{
	sigset_t pending;

	return !sigpending(&pending) &&
	       (sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM) ||
		sigismember(&pending, SIGHUP));
}

/* A pipe that is said to have room takes so much without waiting. */
static int stream__wait(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};

	while (poll(&poll_fd, 1, POLL_MS) <= 0)
		if (is_asked_to_end())
			return -EINTR;
	return 0;
}

/* Tells how much was written, on failure too. */
static int write_all(const struct record_file *file, const char *data, size_t len, size_t *ret_done)
{
	*ret_done = 0;
	while (len) {
		size_t part = file->is_stream && len > PIPE_BUF ? PIPE_BUF : len;
		int err = file->is_stream ? stream__wait(file->fd) : 0;
		ssize_t n = err ? -1 : write(file->fd, data, part);

		if (n < 0 && !err && errno == EINTR)
			continue;
		if (n <= 0)
			return err ?: n ? -errno : -EIO;
		data += n;
		len -= n;
		*ret_done += n;
	}
	return 0;
}

/* Who waits for the next operation of a job must not wait for ever for a reader that is gone. */
static bool stream__is_abandoned(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};

	return poll(&poll_fd, 1, 0) > 0 && poll_fd.revents & POLLERR;
}

int record_file__flush(struct record_file *file)
{
	const char *newline;
	size_t done;

	if (!file->err && file->is_stream && stream__is_abandoned(file->fd))
		file->err = -EPIPE;
	if (file->err || !file->len)
		return file->err;
	file->err = write_all(file, file->buffer, file->len, &done);
	if (file->err) {
		newline = done ? memrchr(file->buffer, '\n', done) : NULL;
		done = newline ? newline - file->buffer + 1 : 0;
	}
	file->written += done;
	file->len = 0;
	if (file->err && !file->is_stream)
		(void)!ftruncate(file->fd, file->written);
	return file->err;
}

int record_file__write(struct record_file *file, const char *lines, size_t len)
{
	size_t done;

	if (file->len + len > sizeof(file->buffer))
		record_file__flush(file);
	if (file->err)
		return file->err;
	if (len <= sizeof(file->buffer)) {
		memcpy(file->buffer + file->len, lines, len);
		file->len += len;
		return 0;
	}
	/* Longer than the buffer, which is empty: a launch of a thousand operations. */
	file->err = write_all(file, lines, len, &done);
	if (!file->err)
		file->written += len;
	else if (!file->is_stream)
		(void)!ftruncate(file->fd, file->written);
	return file->err;
}

uint64_t record_file__bytes(const struct record_file *file)
{
	return file->written + file->len;
}

int record_file__close(struct record_file *file, bool keep)
{
	int err;

	if (!file)
		return 0;
	err = keep ? record_file__flush(file) : 0;
	if (file->path && (!file->written || !keep))
		unlink(file->path);
	/* A network file system tells here that the server's disk is full. */
	if (file->path && close(file->fd) && !err)
		err = -errno;
	free(file->path);
	free(file);
	return err;
}
