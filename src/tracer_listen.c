/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who is told of what the tracer takes in. */
#include <errno.h>

#include "tracer_private.h"

void tracer__on_tick(struct tracer *tracer, loop_fn *fn, void *ctx)
{
	tracer->on_tick = fn;
	tracer->tick_ctx = ctx;
}

int tracer__on_call(struct tracer *tracer, tracer_call_fn *fn, void *ctx)
{
	if (tracer->n_call_listeners == TRACER_MAX_LISTENERS)
		return -ENOSPC;
	tracer->call_listeners[tracer->n_call_listeners++] = (struct call_listener){fn, ctx};
	return 0;
}

int tracer__on_launch(struct tracer *tracer, timing_launch_fn *fn, void *ctx)
{
	if (tracer->n_listeners == TRACER_MAX_LISTENERS)
		return -ENOSPC;
	tracer->listeners[tracer->n_listeners++] = (struct launch_listener){fn, ctx};
	return 0;
}

void tracer__on_plugin(struct tracer *tracer, const struct tracer_plugin_listener *l)
{
	handovers__listen(tracer->handovers, l->call, l->lost, l->ctx);
	timings__on_operation(tracer->timings, l->operation, l->ctx);
}
