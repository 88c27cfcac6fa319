/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which executable files are mapped where: one scan of what runs, then word from the kernel of
 * every new mapping. No polling of /proc, and no tenant's memory or file is touched.
 */
#ifndef DISCOVER_H
#define DISCOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "helper.h"
#include "loop.h"
#include "nccl_bpftrace_record.h"
#include "probe.h"

struct discover;

enum discover_interest {
	DISCOVER_NONE,
	DISCOVER_UNKNOWN, /* nobody could look at the file yet */
	DISCOVER_WANTED,
};

struct discover_listener {
	/*
	 * An executable file mapping; the same one can be told more than once. since_ns: it was
	 * not there before (CLOCK_MONOTONIC, by the kernel's word); 0: nobody knows since when.
	 */
	void (*mapping)(void *ctx, const struct nb_mapping *mapping, uint64_t since_ns);
	/* A further process maps this file (only its inode is given): is that of interest? */
	enum discover_interest (*interest)(void *ctx, const struct nb_mapping *file);
	/*
	 * Is a process to be looked at, that maps a file which is of interest or not known yet?
	 * Where it is not, others that map it are not kept waiting for what a look at it would
	 * tell.
	 */
	bool (*wants)(void *ctx, uint32_t pid);
	/* The process runs another program since then. Is it one that is to be looked at again? */
	bool (*executed)(void *ctx, uint32_t pid, uint64_t at_ns);
	/* A scan has ended. */
	void (*scanned)(void *ctx);
	void *ctx;
};

/* 0 or -errno. The listener is copied. */
int discover__new(struct discover **ret, struct probe *probe, struct loop *loop,
		  struct helpers *helpers, const struct discover_listener *listener);
void discover__free(struct discover *discover);

/*
 * Has a helper tell of all mappings of one process, or of all processes (pid 0): they come later,
 * through the listener. urgent: before what else helpers are to do. 0, or -errno when it cannot
 * be begun.
 */
int discover__scan(struct discover *discover, uint32_t pid, bool urgent);

/* Starts listening for new mappings. 0 or -errno. */
int discover__watch(struct discover *discover);

/*
 * Why the last look was not made (-errno: no memory for a helper, say, or no process to be had), 0
 * when it was: another look at all processes comes by itself. Processes in which the kernel waits
 * are no such failure.
 */
int discover__failed(const struct discover *discover);
/* Is that look about to come, so that who waits for the first one had better wait on? */
bool discover__retries_soon(const struct discover *discover);

/* Scans begun so far: what holds within one may not in the next. */
uint64_t discover__scans(const struct discover *d);

#endif
