/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads the executable file mappings of processes from the BPF iterator. In a helper: the kernel
 * takes a lock of each process for it, which a tenant can hold for ever (a mapping of a file on a
 * mount that does not answer).
 */
#ifndef MAPSCAN_H
#define MAPSCAN_H

#include <stdint.h>

#include "helper.h"
#include "nccl_bpftrace_record.h"

#define MAPSCAN_PER_MESSAGE (HELPER_MAX_MESSAGE / sizeof(struct nb_mapping))

struct mapscan_request {
	int program_fd; /* of the iterator */
	uint32_t pid;	/* 0: all processes */
};

/* A helper_work_fn: arg is a struct mapscan_request, replies are arrays of struct nb_mapping. */
int mapscan__work(void *arg, int reply_fd);

/* An iterator, read by nobody yet: an fd, or -errno when there can be none. Touches no process. */
int mapscan__open(const struct mapscan_request *request);

#endif
