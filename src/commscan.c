/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "commscan.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "helper.h"
#include "util.h"

struct scan {
	const struct commscan_request *request;
	int mem_fd, reply_fd, err;
	int unreadable; /* why something that the list names could not be looked at */
	struct commscan_reply reply;
};

/* /proc/PID/mem: unlike process_vm_readv it fails, not waits, on a userfaultfd region. */
static int read_memory(void *ctx, uint64_t addr, void *buf, size_t len)
{
	struct scan *scan = ctx;
	ssize_t n;

	if (addr > INT64_MAX)
		return -EFAULT;
	n = pread(scan->mem_fd, buf, len, addr);
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EFAULT;
}

static void scan__flush(struct scan *scan)
{
	size_t len = offsetof(struct commscan_reply, entries[scan->reply.n]);

	if ((scan->reply.n || scan->reply.semaphore) && !scan->err)
		scan->err = helper__reply(scan->reply_fd, &scan->reply, len, NULL, 0);
	scan->reply.n = scan->reply.semaphore = 0;
}

static void scan__look(struct scan *scan, uint64_t address, uint64_t pointer, bool listed)
{
	struct commscan_entry *e;

	if (!address)
		return;
	e = &scan->reply.entries[scan->reply.n++];
	memset(e, 0, sizeof(*e));
	e->address = address;
	e->pointer = pointer;
	e->listed = listed;
	e->err = nccl_layout__identify(&scan->request->layout, read_memory, scan, address,
				       &e->identity);
	if (scan->reply.n == COMMSCAN_PER_MESSAGE)
		scan__flush(scan);
}

static void scan__list(struct scan *scan)
{
	uint64_t array, address;
	int32_t n;

	if (!scan->request->list)
		return;
	scan->unreadable = read_memory(scan, scan->request->n_list, &n, sizeof(n))
				   ?: read_memory(scan, scan->request->list, &array, sizeof(array));
	for (int32_t i = 0; !scan->unreadable && i < n && i < COMMSCAN_MAX_LISTED; i++) {
		scan->unreadable = read_memory(scan, array + 8ULL * i, &address, sizeof(address));
		if (!scan->unreadable)
			scan__look(scan, address, 0, true);
	}
}

static void scan__semaphore(struct scan *scan)
{
	uint64_t at = scan->request->semaphore;
	uint16_t value;

	if (at && !read_memory(scan, at, &value, sizeof(value)))
		scan->reply.semaphore = value;
}

int commscan__work(void *arg, int reply_fd)
{
	struct scan scan = {.request = arg, .reply_fd = reply_fd};
	_cleanup_close_ int fd = -1;
	uint64_t address;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%u/mem", scan.request->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	scan.mem_fd = fd;
	scan__semaphore(&scan);
	scan__list(&scan);
	for (uint32_t i = 0; i < scan.request->n_addresses; i++)
		scan__look(&scan, scan.request->addresses[i], 0, false);
	for (uint32_t i = 0; i < scan.request->n_pointers; i++)
		if (!read_memory(&scan, scan.request->pointers[i], &address, sizeof(address)))
			scan__look(&scan, address, scan.request->pointers[i], false);
	scan__flush(&scan);
	return scan.err ?: scan.unreadable;
}

uint64_t commscan__address(const struct nccl_image *image, uint64_t start, uint64_t file_offset,
			   uint64_t vaddr)
{
	return vaddr ? start - file_offset - image->exec_delta + vaddr : 0;
}
