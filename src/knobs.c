/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "knobs.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "helper.h"
#include "nccl_bpftrace_plugin.h"
#include "util.h"

#define HEAD_BYTES (offsetof(struct nbp_control, wants) + sizeof(uint32_t))

/* Whole aligned words: the job's threads read them at any time. */
static int write_word(int fd, uint64_t address, uint32_t was, uint32_t value, uint32_t *written)
{
	ssize_t n;

	if (was == value)
		return 0;
	n = pwrite(fd, &value, sizeof(value), address);
	if (n < 0)
		return -errno;
	*written += 1;
	return n == sizeof(value) ? 0 : -EFAULT;
}

/*
 * Whatever lies at that address is the process's own, so a wrong address can harm nobody else; the
 * magic number keeps an honest one whole. /proc/PID/mem fails, not waits, on a userfaultfd region.
 */
int knobs__write(const struct knobs_request *request, uint32_t *ret_written)
{
	const uint64_t at = request->control;
	struct nbp_control control = {0};
	_cleanup_close_ int fd = -1;
	uint32_t written = 0;
	char path[32];
	ssize_t n;
	int err;

	if (!at || at % 8 || at > INT64_MAX - sizeof(control))
		return -EPROTO;
	snprintf(path, sizeof(path), "/proc/%u/mem", request->pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = pread(fd, &control, HEAD_BYTES, at);
	if (n < 0)
		return -errno;
	if (n != HEAD_BYTES || control.magic != NBP_CONTROL_MAGIC || control.size < HEAD_BYTES)
		return -EPROTO;
	err = write_word(fd, at + offsetof(struct nbp_control, budget_ppm), control.budget_ppm,
			 request->knobs.budget_ppm, &written)
		      ?: write_word(fd, at + offsetof(struct nbp_control, wants), control.wants,
				    request->knobs.wants, &written);
	*ret_written = written;
	return err;
}

int knobs__work(void *arg, int reply_fd)
{
	struct knobs_reply reply = {0};

	reply.err = knobs__write(arg, &reply.written);
	return helper__reply(reply_fd, &reply, sizeof(reply), NULL, 0);
}
