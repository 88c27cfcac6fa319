/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What of the tracer's picture the sinks show, the same in all of them. */
#ifndef SHOWN_H
#define SHOWN_H

#include "tracer.h"

/* A fork shows its parent's communicators as its own, until it calls NCCL itself. NULL: unknown. */
static inline bool process__is_shown(const struct process *process)
{
	return !process || !process->is_fork_copy || process->has_called;
}

/* Records lost since the start, for whatever reason. */
static inline uint64_t tracer__all_lost(struct tracer *tracer)
{
	uint64_t lost = 0;

	for (int i = 0; i < TRACER_LOST_MAX; i++)
		lost += tracer__lost(tracer, i);
	return lost;
}

#endif
