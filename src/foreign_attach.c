/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "foreign_attach.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
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
 * What was made before an error is closed by the child's end. NB_FOREIGN_START comes last: no start
 * is seen without the call that tells of its end.
 */
static int attach_sites(const struct foreign_request *request, const struct foreign_sites *sites,
			int *fds)
{
	char path[96];

	snprintf(path, sizeof(path), "/proc/%u/map_files/%" PRIx64 "-%" PRIx64, request->pid,
		 request->map_start, request->map_end);
	for (int i = FOREIGN_N_SITES - 1; i >= 0; i--) {
		fds[i] = attach__in_process(request->program_fd, request->pid, path,
					    sites->offset[i], i);
		if (fds[i] < 0)
			return fds[i];
	}
	return 0;
}

int foreign_attach__work(void *arg, int reply_fd)
{
	const struct foreign_request *request = arg;
	struct foreign_reply reply = {.verdict = FOREIGN_UNREADABLE};
	uint64_t table[FOREIGN_TABLE_BYTES / 8];
	int fds[FOREIGN_N_SITES], n_fds = 0;

	reply.err = read_table(request, table);
	if (!reply.err)
		reply.verdict = foreign_table__check(table, &request->code, &reply.sites);
	if (reply.verdict == FOREIGN_FOUND && request->program_fd >= 0) {
		reply.err = attach_sites(request, &reply.sites, fds);
		n_fds = reply.err ? 0 : FOREIGN_N_SITES;
		reply.verdict = reply.err ? FOREIGN_REFUSED : FOREIGN_FOUND;
	}
	return helper__reply(reply_fd, &reply, sizeof(reply), fds, n_fds);
}
