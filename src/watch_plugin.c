/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What plugins tell: GPU times, what is in flight; and where probes leave a process alone, its
 * calls. NCCL tells of a call first, without its number, and of the operation that comes of it when
 * it is launched, with its number: until then the call is held.
 */
#include "watch_private.h"

#include <stdlib.h>
#include <string.h>

#define HELD_NS                                                                                    \
	(500 * NSEC_PER_MSEC) /* one that does not come to its launch is told all the same */
#define OLD_NS	   (10 * NSEC_PER_SEC) /* no record tells of what was before that */
#define FIRST_ROOM 16

/* ---- calls that are held ---- */

void watch__drop_held(struct watch *w, struct watch_member *m)
{
	w->n_held -= m->held_room;
	free(m->held);
	m->held = NULL;
	m->n_held = m->held_room = 0;
}

static bool watch__hold_room(struct watch *w, struct watch_member *m)
{
	uint32_t room = m->held_room ? m->held_room * 2 : FIRST_ROOM;
	struct held_call *held;

	if (m->n_held < m->held_room)
		return true;
	if (room > WATCH_MAX_HELD || w->n_held + room - m->held_room > WATCH_MAX_ALL_HELD)
		return false;
	held = realloc(m->held, room * sizeof(*held));
	if (!held)
		return false;
	w->n_held += room - m->held_room;
	m->held = held;
	m->held_room = room;
	return true;
}

static void watch__tell(struct watch *w, struct watch_member *m, const struct held_call *held,
			uint64_t sequence, bool captured)
{
	const struct verdict_call call = {
		.member = m->name,
		.operation = held->operation,
		.sequence = sequence,
		.time_ns = held->time_ns,
		.count = held->count,
		.datatype = held->datatype,
		.redop = ~0U, /* the interface does not say it */
		.root = held->root,
		.captured = captured,
	};

	verdicts__call(w->verdicts, &call);
}

/* The number that follows from the calls before it. */
static void watch__tell_next(struct watch *w, struct watch_member *m, const struct held_call *held)
{
	watch__tell(w, m, held, watch_number__next(&m->numbers[held->operation], m->whole), false);
}

static void member__forget_held(struct watch_member *m, uint32_t i)
{
	memmove(&m->held[i], &m->held[i + 1], (--m->n_held - i) * sizeof(*m->held));
}

void watch__release_held(struct watch *w, uint64_t now_ns)
{
	for (struct watch_member *m = w->members; m; m = m->hh.next) {
		while (m->n_held && m->held[0].time_ns + HELD_NS < now_ns) {
			watch__tell_next(w, m, &m->held[0]);
			member__forget_held(m, 0);
		}
		if (!m->n_held && m->held)
			watch__drop_held(w, m);
	}
}

static uint64_t clamp_time(uint64_t time_ns, uint64_t now)
{
	return time_ns > now ? now : time_ns + OLD_NS < now ? now - OLD_NS : time_ns;
}

static void on_unprobed_call(void *ctx, uint32_t tgid, const struct nbp_record *r)
{
	const struct nbp_api *api = &r->api;
	bool rooted = api->function == NBP_BROADCAST || api->function == NBP_REDUCE;
	struct held_call held = {
		.time_ns = clamp_time(r->time_ns, now_ns()),
		.count = api->count,
		.datatype = api->datatype == NBP_UNKNOWN_U8 ? 1 /* ncclUint8 has no name there */
							    : api->datatype,
		.root = rooted ? api->root : -1,
	};
	struct watch *w = ctx;
	struct watch_member *m = watch__find(w, r->comm_hash, tgid, r->rank);

	if (!m || m->left || !nbp_function__operation(api->function, &held.operation))
		return;
	m->heard_ns = held.time_ns;
	if (api->capture == NBP_CAPTURED_YES) {
		watch__tell(w, m, &held, VERDICT_NO_SEQUENCE, true);
	} else if (watch__hold_room(w, m)) {
		m->held[m->n_held++] = held;
	} else {
		while (m->n_held) { /* in their order */
			watch__tell_next(w, m, &m->held[0]);
			member__forget_held(m, 0);
		}
		watch__tell_next(w, m, &held);
	}
}

/* Index of the call that it came of, or of the oldest one that may be it; -1: none. */
static int member__find_held(const struct watch_member *m, const struct timing_operation *o)
{
	for (uint32_t i = 0; i < m->n_held; i++)
		if (m->held[i].operation == o->operation &&
		    (!o->call_ns || m->held[i].time_ns == o->call_ns))
			return i;
	return -1;
}

static void on_operation(void *ctx, const struct timing_comm *comm,
			 const struct timing_operation *o)
{
	struct watch *w = ctx;
	struct watch_member *m;
	int i;

	if (o->sequence >= NBP_NO_NUMBER - 1 || o->algorithm == NBP_COPY_ENGINE || !comm->hash)
		return;
	m = watch__find(w, comm->hash, comm->key.tgid, comm->rank);
	if (!m || m->left)
		return;
	i = member__find_held(m, o);
	if (i < 0)
		return;
	watch_number__told(&m->numbers[o->operation], o->sequence + 1);
	watch__tell(w, m, &m->held[i], o->sequence + 1, false);
	member__forget_held(m, i);
}

static void on_lost(void *ctx, uint32_t tgid)
{
	struct watch *w = ctx;

	verdicts__lost(w->verdicts, tgid, now_ns());
	for (struct watch_member *m = w->members; m; m = m->hh.next)
		for (int i = 0; m->key.tgid == tgid && i < NCCL_OP_MAX; i++)
			watch_number__doubt(&m->numbers[i]);
}

/* ---- GPUs ---- */

static void on_launch(void *ctx, const struct timing_launch *launch)
{
	const struct timing_comm *comm = launch->comm;
	const struct timing_operation *o = launch->operations;
	struct watch *w = ctx;
	struct watch_member *m;

	if (!launch->complete || launch->n_operations != 1 || launch->n_described != 1 ||
	    !launch->number || !launch->duration_ns || launch->capture != NBP_CAPTURED_NO ||
	    o->sequence >= NBP_NO_NUMBER - 1 || o->algorithm == NBP_COPY_ENGINE)
		return;
	m = watch__find(w, comm->hash, comm->key.tgid, comm->rank);
	if (!m || m->left)
		return;
	verdicts__timed(w->verdicts, &(struct verdict_timed){
					     .member = m->name,
					     .operation = o->operation,
					     .sequence = o->sequence + 1,
					     .gpu_start_ns = launch->gpu_start_ns,
					     .duration_ns = launch->duration_ns,
					     .bytes = launch->has_bytes ? launch->bytes : 0,
				     });
}

void watch__take_gpu(struct watch *w, const struct watch_member *m, uint64_t now_ns)
{
	const struct timing_comm *comm =
		timings__find(tracer__timings(w->tracer), m->key.tgid, m->key.hash, m->key.rank);
	struct verdict_gpu gpu = {.operation = NCCL_OP_MAX, .sequence = VERDICT_NO_SEQUENCE};
	struct timing_oldest oldest;

	/* of others nothing is known to be under way */
	if (!comm || comm->ended_ns || !comm->n_timed)
		return;
	if (timing_comm__oldest(comm, &oldest)) {
		gpu.n_in_flight = oldest.n_in_flight;
		gpu.operation = oldest.operation;
		if (oldest.sequence != NBP_NO_NUMBER)
			gpu.sequence = oldest.sequence + 1;
		gpu.launch_ns = oldest.launch_ns;
		gpu.started = oldest.started;
		gpu.start_known = oldest.start_known;
	}
	verdicts__gpu(w->verdicts, &m->name, &gpu, now_ns);
}

int watch__listen_to_plugins(struct watch *w)
{
	tracer__on_plugin(w->tracer, &(struct tracer_plugin_listener){
					     .call = on_unprobed_call,
					     .lost = on_lost,
					     .operation = on_operation,
					     .ctx = w,
				     });
	return tracer__on_launch(w->tracer, on_launch, w);
}
