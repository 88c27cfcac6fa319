/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One note for two: of an untimed launch and of the operation that the same thread starts right
 * after it, as most are. It is the operation's but for the lower halves of both numbers in place of
 * one, and the stream in place of the launch.
 */
#ifndef NCCL_BPFTRACE_PLUGIN_JOINED_H
#define NCCL_BPFTRACE_PLUGIN_JOINED_H

#include <string.h>

#include "nccl_bpftrace_plugin.h"
#include "ring.h"

#define NOTE_JOINED 0xff /* a kind of the ring's own */

/* operation: of a launch on that stream */
static inline void note__join(struct note *operation, uint64_t stream)
{
	operation->kind = NOTE_JOINED;
	operation->number = operation->launch << 32 | (uint32_t)operation->number;
	operation->launch = stream;
}

/* A number whose lower half is known, near to another. */
static inline uint64_t number__widen(uint64_t near, uint32_t low)
{
	return near + (int32_t)(low - (uint32_t)near);
}

/* near_launch, near_operation: the last ones. The note becomes the operation's. */
static inline void note__split(struct note *joined, uint64_t near_launch, uint64_t near_operation,
			       struct note *ret_launch)
{
	memset(ret_launch, 0, sizeof(*ret_launch));
	ret_launch->kind = NBP_KIND_LAUNCH;
	ret_launch->tid = joined->tid;
	ret_launch->time_ns = joined->time_ns;
	ret_launch->generation = joined->generation;
	ret_launch->number = number__widen(near_launch, joined->number >> 32);
	ret_launch->stream = joined->launch;
	ret_launch->function = NBP_NOT_TIMED_BUDGET;
	ret_launch->datatype = NBP_CAPTURED_NO;
	joined->kind = NBP_KIND_OPERATION;
	joined->number = number__widen(near_operation, joined->number);
	joined->launch = ret_launch->number;
}

#endif
