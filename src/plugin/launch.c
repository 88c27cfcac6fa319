/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What goes onto a stream at one time: a kernel with all operations of a plan, or a collective that
 * copy engines do.
 */
#include "launch.h"

static void launch__drop(struct caller *caller)
{
	timing__drop(&caller->launch.timing);
	caller->launch.handle = NULL;
}

static uint8_t launch__capture(const struct caller *caller)
{
	if (caller->launch.timing.timing == NBP_TIMED)
		return NBP_CAPTURED_NO;
	if (caller->launch.timing.timing == NBP_NOT_TIMED_CAPTURING)
		return NBP_CAPTURED_YES;
	if (!caller->api.called)
		return NBP_CAPTURED_UNKNOWN;
	return caller->api.captured ? NBP_CAPTURED_YES : NBP_CAPTURED_NO;
}

static void launch__tell(struct caller *caller, struct comm *comm)
{
	const struct launch_timing *timing = &caller->launch.timing;

	if (!launch__note(comm, caller, timing, caller->launch.capture) &&
	    timing->timing == NBP_TIMED)
		timing__give_back(timing->pair);
	if (caller->launch.copies) {
		caller->launch.operation.launch = caller->launch.number;
		caller->launch.operation.time_ns = caller->launch.time_ns;
		comm__note(comm, &caller->launch.operation);
		return;
	}
	caller->launched.context = caller->launch.context;
	caller->launched.number = caller->launch.number;
}

/* Only the end of what is timed need be told of. */
void *launch__start(struct caller *caller, struct comm *comm, void *context, uint64_t stream,
		    struct choice choice, const struct note *copies)
{
	bool captured = caller->api.called && caller->api.captured;

	if (caller->launch.handle) { /* never stopped */
		comm__lost(comm, NBP_LOSS_BAD_CALLBACK);
		launch__drop(caller);
	}
	caller->launch.stream = stream;
	caller->launch.context = context;
	caller->launch.copies = copies;
	if (copies)
		caller->launch.operation = *copies;
	caller->launch.number = comm__next_number(&comm->launch_number);
	caller->launch.time_ns = ticks__now_ns();
	timing__begin(comm, stream, captured, choice, caller->launch.time_ns,
		      &caller->launch.timing);
	caller->launch.capture = launch__capture(caller);
	if (caller->launch.timing.timing == NBP_TIMED)
		return token__new(caller, TOKEN_LAUNCH);
	launch__tell(caller, comm);
	return NULL;
}

void launch__stop(struct caller *caller)
{
	struct comm *comm = comm__get(caller->launch.context);

	if (!comm) { /* finalised between start and stop */
		control__lost(NBP_LOSS_STALE);
		launch__drop(caller);
		return;
	}
	timing__end(comm, caller->launch.stream, &caller->launch.timing);
	launch__tell(caller, comm);
	caller->launch.handle = NULL;
}

/* Lost, and counted, where another thread has finalised its communicator meanwhile. */
void launch__pay(struct caller *caller)
{
	static const struct launch_timing not_chosen = {.timing = NBP_NOT_TIMED_BUDGET};
	struct comm *comm = comm__get(caller->launch.context);

	caller->owes = false;
	if (comm)
		launch__note(comm, caller, &not_chosen, NBP_CAPTURED_NO);
	else
		control__lost(NBP_LOSS_STALE);
}

/* But for one of before the tracer came: its operation may have come when there was none. */
void launch__pay_late(struct caller *caller)
{
	struct comm *comm = comm__get(caller->launch.context);

	if (comm &&
	    caller->launch.time_ns >= atomic_load_explicit(&process.awake_ns, memory_order_relaxed))
		atomic_store_explicit(&comm->apart, true, memory_order_relaxed);
	launch__pay(caller);
}
