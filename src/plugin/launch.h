/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Kernel launches, and collectives by copy engines. */
#ifndef NCCL_BPFTRACE_PLUGIN_LAUNCH_H
#define NCCL_BPFTRACE_PLUGIN_LAUNCH_H

#include "budget.h"
#include "caller.h"
#include "comm.h"

/*
 * A kernel launch begins, or a collective by copy engines with its operation. A handle for NCCL, or
 * NULL where its end is of no interest.
 */
void *launch__start(struct caller *caller, struct comm *comm, void *context, uint64_t stream,
		    struct choice choice, const struct note *copies);
void launch__stop(struct caller *caller);

/* False: there is no place for it. */
static inline bool launch__note(struct comm *comm, const struct caller *caller,
				const struct launch_timing *timing, enum nbp_capture capture)
{
	struct note *note = comm__place(comm);

	if (!note)
		return false;
	note->kind = NBP_KIND_LAUNCH;
	note->tid = caller->tid;
	note->time_ns = caller->launch.time_ns;
	note->number = caller->launch.number;
	note->stream = caller->launch.stream;
	note->count = 0;
	note->launch = 0;
	note->group = 0;
	note->root = 0;
	note->function = timing->timing;
	note->datatype = capture;
	note->detail = timing->after_pause;
	note->extra = timing->pair;
	comm__tell(comm, note);
	return true;
}

/*
 * Most launches: not chosen to be timed, as is known without looking at the clock. They are made
 * when they were called, as well as that is known: up to the thread's last round. False: it must be
 * looked at.
 */
static inline bool launch__is_untimed(const struct caller *caller, const struct comm *comm,
				      bool chosen)
{
	uint64_t called_ns = caller->api.time_ns;
	const struct claim claim = {
		.pause_ns = passed_ns(
			atomic_load_explicit(&comm->launched_ns, memory_order_relaxed), called_ns),
	};

	return !chosen && caller->api.called && !caller->api.captured && !caller->launch.handle &&
	       !claim__is_first(&claim) &&
	       called_ns >= atomic_load_explicit(&process.round_ns, memory_order_relaxed);
}

COLD void launch__pay(struct caller *caller); /* the note that is owed, by itself */
COLD void launch__pay_late(struct caller *caller);

/* If one is owed, no operation of that launch came next. */
static inline void launch__settle(struct caller *caller)
{
	if (caller->owes)
		launch__pay_late(caller);
}

/*
 * Its note goes with its operation's: a launch that waits long in the driver is told of when that
 * has taken it. At once where that is known not to come next, or where nobody would see the thread
 * end.
 */
static inline void launch__pass(struct caller *caller, struct comm *comm, void *context,
				uint64_t stream)
{
	caller->launch.time_ns = caller->api.time_ns;
	caller->launch.number = comm__next_number(&comm->launch_number);
	caller->launch.stream = stream;
	caller->launch.context = context;
	atomic_store_explicit(&comm->launched_ns, caller->launch.time_ns, memory_order_relaxed);
	caller->owes = true;
	if (atomic_load_explicit(&comm->apart, memory_order_relaxed) ||
	    !caller__is_in_table(caller))
		launch__pay(caller);
	caller->launched.context = context;
	caller->launched.number = caller->launch.number;
}

#endif
