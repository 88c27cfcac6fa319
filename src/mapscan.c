/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "mapscan.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

int mapscan__open(const struct mapscan_request *request)
{
	union bpf_iter_link_info info = {.task.pid = request->pid};
	DECLARE_LIBBPF_OPTS(bpf_link_create_opts, opts);
	int fd, link;

	if (request->pid) {
		opts.iter_info = &info;
		opts.iter_info_len = sizeof(info);
	}
	link = bpf_link_create(request->program_fd, 0, BPF_TRACE_ITER, &opts);
	if (link == -EINVAL && request->pid) /* before Linux 6.1 it knows no pid: tell of all */
		link = bpf_link_create(request->program_fd, 0, BPF_TRACE_ITER, NULL);
	if (link < 0)
		return link;
	fd = bpf_iter_create(link);
	close(link);
	return fd;
}

/* Sends the whole ones of `have` bytes and moves the rest to the front; what is left, or -errno. */
static ssize_t send_whole(int reply_fd, struct nb_mapping *mappings, size_t have)
{
	size_t whole = have / sizeof(*mappings), left = have % sizeof(*mappings);
	int err = whole ? helper__reply(reply_fd, mappings, whole * sizeof(*mappings), NULL, 0) : 0;

	if (err)
		return err;
	memmove(mappings, &mappings[whole], left);
	return left;
}

int mapscan__work(void *arg, int reply_fd)
{
	struct nb_mapping mappings[MAPSCAN_PER_MESSAGE];
	_cleanup_close_ int fd = mapscan__open(arg);
	ssize_t n, have = 0;

	if (fd < 0)
		return fd == -ESRCH ? 0 : fd;
	while ((n = read(fd, (char *)mappings + have, sizeof(mappings) - have)) != 0) {
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n < 0)
			return errno == ESRCH ? 0 : -errno;
		have = send_whole(reply_fd, mappings, have + n);
		if (have < 0)
			return have;
	}
	return 0;
}
