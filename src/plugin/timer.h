/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NCCL's own GPU timer, with NBP_WANT_KERNEL_TIMER: each channel of an operation tells its start
 * and stop, by the GPU's clock, through NCCL's proxy thread, at any time after the operation's own
 * callbacks and mixed with those of others. Operations under way stand in a table of fixed size;
 * NCCL holds places in it by number and stamp, so one that comes late finds nothing to break.
 */
#ifndef NCCL_BPFTRACE_PLUGIN_TIMER_H
#define NCCL_BPFTRACE_PLUGIN_TIMER_H

#include "plugin.h"

/* A communicator made since it was switched on may not fit: then it is off, until the thread says.
 */
static inline bool timer__is_on(void)
{
	return atomic_load_explicit(&process.timer_for, memory_order_relaxed) ==
	       atomic_load_explicit(&process.n_inits, memory_order_relaxed) + 1;
}

/* NCCL's threads. The operation's note, already told; NULL when the table is full. */
void *timer__open(struct comm *comm, void *context, const struct note *operation);
void *timer__start(struct comm *comm, const void *descriptor); /* of a channel */
bool timer__record(const struct abi_version *v, void *handle, int state, const void *arguments);
bool timer__stop(void *handle); /* of a channel or an operation; false: nothing that is under way */

/* The plugin's thread: gives up on what no longer comes; switches it on or off (grant.c). */
void timer__look(uint64_t now);
void timer__serve(uint64_t now);

#endif
