/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "foreign_attach.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "attach.h"
#include "helper.h"
#include "util.h"

/* /proc/PID/mem: unlike process_vm_readv it fails, not waits, on a userfaultfd region. */
static int read_table(const struct foreign_request *request, uint64_t *table)
{
	_cleanup_close_ int fd = -1;
	char path[32];
	ssize_t n;

	if (request->table > INT64_MAX)
		return -EFAULT;
	snprintf(path, sizeof(path), "/proc/%u/mem", request->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = pread(fd, table, FOREIGN_TABLE_BYTES, request->table);
	if (n < 0)
		return -errno;
	return n == FOREIGN_TABLE_BYTES ? 0 : -EFAULT;
}

/*
 * Behind an endbr64, where the compiler puts one: the kernel would have to single-step it, which
 * can cost more than all else, while the push that mostly follows is emulated. Arguments lie as
 * before.
 */
static uint64_t skip_landing_pad(int fd, uint64_t offset)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	uint8_t code[sizeof(endbr64)];

	if (pread(fd, code, sizeof(code), offset) == sizeof(code) &&
	    !memcmp(code, endbr64, sizeof(code)))
		return offset + sizeof(code);
	return offset;
}

/*
 * Number of links, or -errno; what was made before an error is closed by the child's end.
 * NB_FOREIGN_START comes last: no channel is seen whose end would not be.
 */
static int attach_sites(const struct foreign_request *request, const struct foreign_sites *sites,
			int *fds)
{
	_cleanup_close_ int fd = -1;
	char path[96];
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%u/map_files/%" PRIx64 "-%" PRIx64, request->pid,
		 request->map_start, request->map_end);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	for (int i = FOREIGN_N_SITES - 1; i >= 0; i--) {
		if (!sites->offset[i])
			continue;
		fds[n] = attach__in_process(request->program_fd, request->pid, path,
					    skip_landing_pad(fd, sites->offset[i]), i);
		if (fds[n] < 0)
			return fds[n];
		n++;
	}
	return n;
}

int foreign_attach__work(void *arg, int reply_fd)
{
	const struct foreign_request *request = arg;
	struct foreign_reply reply = {.verdict = FOREIGN_UNREADABLE};
	uint64_t table[FOREIGN_TABLE_BYTES / 8];
	int fds[FOREIGN_N_SITES], n_fds = 0;

	reply.err = read_table(request, table);
	if (!reply.err)
		reply.verdict =
			foreign_table__check(request->version, table, &request->code, &reply.sites);
	if (reply.verdict == FOREIGN_FOUND && request->program_fd >= 0) {
		n_fds = attach_sites(request, &reply.sites, fds);
		reply.err = n_fds < 0 ? n_fds : 0;
		reply.verdict = reply.err ? FOREIGN_REFUSED : FOREIGN_FOUND;
	}
	return helper__reply(reply_fd, &reply, sizeof(reply), fds, reply.err ? 0 : n_fds);
}
