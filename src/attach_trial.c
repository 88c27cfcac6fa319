/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How this kernel treats a link made for one process. Linux 6.6 to 6.9 took it for one thread,
 * until that was mended in stable releases, too: so it is tried out, on a function of our own.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "attach_private.h"
#include "nccl_bpftrace_record.h"
#include "util.h"

__attribute__((noinline, noclone)) static void probed_function(void)
{
	__asm__ volatile("" ::: "memory");
}

static void *call_it(void *unused)
{
	probed_function();
	return unused;
}

/* Where the function lies in the file that holds it; 0: not found. */
static uint64_t function_offset(void)
{
	_cleanup_fclose_ FILE *maps = fopen("/proc/self/maps", "re");
	uint64_t start, end, offset, address = (uintptr_t)probed_function;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64, &start, &end, &offset) ==
			    3 &&
		    address >= start && address < end)
			return address - start + offset;
	return 0;
}

static int trial_link(int program_fd, uint64_t offset, uint32_t number)
{
	struct sites sites = {
		.path = "/proc/self/exe",
		.n = 1,
		.pid = getpid(),
		.offsets = {offset},
		.cookies = {NB_COOKIE(0, NB_LIBRARY_TRIAL, number)},
	};

	return link_multi(program_fd, &sites);
}

int attach__trial_work(void *arg, int reply_fd)
{
	const struct attach_trial_request *request = arg;
	_cleanup_close_ int first = -1, second = -1;
	uint64_t offset = function_offset();
	pthread_t thread;
	int err;

	(void)reply_fd;
	if (!offset)
		return -ENOENT;
	first = trial_link(request->program_fd, offset, 1);
	if (first < 0)
		return first;
	second = trial_link(request->program_fd, offset, 2);
	if (second < 0)
		return second;
	err = pthread_create(&thread, NULL, call_it, NULL);
	if (err)
		return -err;
	pthread_join(thread, NULL);
	return (*request->trial & 0xffff) == 0x0201 ? 0 : -EOPNOTSUPP;
}
