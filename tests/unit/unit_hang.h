/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A communicator that hangs because one rank does not call: for those who show what the judge says.
 */
#ifndef NCCL_BPFTRACE_TESTS_UNIT_HANG_H
#define NCCL_BPFTRACE_TESTS_UNIT_HANG_H

#include "verdict_sources.h"

#define HANG_STEP_NS (250 * NSEC_PER_MSEC)

/*
 * Ranks 0.. of n call once a step, as processes 100 + rank; from number `end` on `missing` does not
 * call (-1: nobody is missing). Goes on up to `last`, and returns the time then.
 */
static inline uint64_t hang__feed(struct verdicts *verdicts, uint64_t hash, int32_t n,
				  int32_t missing, uint64_t first, uint64_t end, uint64_t last,
				  uint64_t now)
{
	for (uint64_t number = first; number <= last; number++, now += HANG_STEP_NS) {
		for (int32_t rank = 0; rank < n; rank++) {
			struct verdict_call call = {
				.member = {hash, rank, n, 100 + rank},
				.operation = NCCL_OP_AllReduce,
				.sequence = number,
				.time_ns = now,
				.count = 1024,
				.root = -1,
			};

			if (number == 1)
				verdicts__join(verdicts, &call.member, true, 1, now);
			if (number < end || (number == end && rank != missing))
				verdicts__call(verdicts, &call);
		}
		verdicts__settle(verdicts, now + NSEC_PER_MSEC);
	}
	return now;
}

#endif
