/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads communicators out of a running process: NCCL's own list, or given addresses. */
#ifndef COMMSCAN_H
#define COMMSCAN_H

#include <stdint.h>

#include "nccl_elf.h"
#include "nccl_layout.h"

#define COMMSCAN_MAX_LISTED    4096 /* entries of NCCL's list looked at */
#define COMMSCAN_MAX_ADDRESSES 256
#define COMMSCAN_PER_MESSAGE   64

struct commscan_request {
	uint32_t pid;
	uint32_t n_addresses, n_pointers;
	uint64_t list;	    /* run-time address of ncclComms, 0: unknown */
	uint64_t n_list;    /* of nNcclComms */
	uint64_t semaphore; /* of the cooperating plugin; 0: none, or not asked */
	struct nccl_layout layout;
	uint64_t addresses[COMMSCAN_MAX_ADDRESSES]; /* communicators to look at besides */
	uint64_t pointers[COMMSCAN_MAX_ADDRESSES];  /* ncclComm_t variables that hold one */
};

/* POD: crosses the helper's socket. */
struct commscan_entry {
	uint64_t address;
	uint64_t pointer; /* the variable it was found in, 0: none */
	int32_t err;	  /* 0: identity holds; -EAGAIN: being made; else not a communicator */
	int32_t listed;	  /* found in NCCL's own list */
	struct nccl_identity identity;
};

struct commscan_reply {
	uint32_t n;
	uint32_t semaphore; /* its value: not 0 while a tracer is attached to the plugin */
	struct commscan_entry entries[COMMSCAN_PER_MESSAGE];
};

/* A helper_work_fn: arg is a struct commscan_request, replies are struct commscan_reply. */
int commscan__work(void *arg, int reply_fd);

/* Run-time address of a link-time one, in the process that maps file_offset at start. */
uint64_t commscan__address(const struct nccl_image *image, uint64_t start, uint64_t file_offset,
			   uint64_t vaddr);

#endif
