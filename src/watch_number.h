/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The absolute number of each call of one operation on one communicator's rank, as NCCL will count
 * it: its number at the call's entry and the calls that wait for a launch of theirs. The kernel
 * counts these, so that lost records shift nothing. Where NCCL keeps no number (before 2.26; Send,
 * Recv, AlltoAll, Gather, Scatter), all calls since the communicator was made, if all were seen.
 * No number is given where one cannot be right. Pure.
 *
 * NCCL raises its number at launch (ncclProfilerStartTaskEvents), and only for collectives that run
 * as ordinary kernels: not for those captured into CUDA graphs, nor for symmetric kernels and copy
 * engines. A communicator that mixes such with others shows it by numbers that do not rise.
 */
#ifndef WATCH_NUMBER_H
#define WATCH_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "nccl_bpftrace_record.h"

#define WATCH_FUNCTIONS 2 /* ncclAllReduce and ncclAllReduceConfig are one operation */

struct watch_number {
	uint64_t last;	 /* the highest that is known; 0: none */
	uint64_t called; /* the last that a call was given */
	struct {
		uint64_t entry, pending; /* of its last call */
		uint16_t function;
	} of[WATCH_FUNCTIONS];
	uint64_t entry;	 /* of the last call */
	uint8_t n_of;	 /* functions seen */
	bool seen;	 /* `entry` is known */
	bool proven;	 /* that number rose since: no call before the first one seen is pending */
	bool unprobed;	 /* calls came that no probe saw: not all are in the kernel's counter */
	bool doubtful;	 /* such calls were lost */
	uint8_t suspect; /* so many calls must be in order before one is numbered again */
};

/*
 * A call that a probe saw. whole: all calls since the communicator was made are told of.
 * VERDICT_NO_SEQUENCE (verdict.h): it has none, or it is not known.
 */
uint64_t watch_number__call(struct watch_number *number, const struct nb_record *call, bool whole);

/* A call that no probe saw: the next one, so far as is known. As above. */
uint64_t watch_number__next(struct watch_number *number, bool whole);
/* One whose number the plugin has told. */
void watch_number__told(struct watch_number *number, uint64_t sequence);

/* Calls that no probe saw were lost: which is the next one, only the plugin's next number tells. */
void watch_number__doubt(struct watch_number *number);

/*
 * The last call has that number, by the kernel's counters or NCCL's own memory. False: it says
 * nothing, as a later call was told of.
 */
bool watch_number__reached(struct watch_number *number, uint64_t sequence);

/*
 * What is called so far, when it has turned out that all calls were seen: 0 or a number of its own,
 * VERDICT_NO_SEQUENCE where NCCL keeps one.
 */
uint64_t watch_number__own(const struct watch_number *number);

/* Are the kernel's counters right about the last call's number? */
bool watch_number__is_exact(const struct watch_number *number, bool whole);

#endif
