/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose GPU does not start, or does not get done, what all have called. Only where a plugin tells.
 * The oldest launch in flight counts: as long as another one takes its place, GPUs get on.
 */
#include "verdict_private.h"

static bool gpu__is_same(const struct verdict_gpu *a, const struct verdict_gpu *b)
{
	return a->n_in_flight && b->n_in_flight && a->launch_ns == b->launch_ns &&
	       a->operation == b->operation && a->sequence == b->sequence;
}

static void verdict_comm__flown(struct verdict_comm *comm, const struct member *m, uint64_t now_ns)
{
	if (m->gpu_since_ns && since(now_ns, m->gpu_since_ns) > NSEC_PER_SEC)
		habit__add(&comm->flights, now_ns - m->gpu_since_ns, now_ns);
	if (m->gpu_started_ns && since(now_ns, m->gpu_started_ns) > NSEC_PER_SEC)
		habit__add(&comm->runs, now_ns - m->gpu_started_ns, now_ns);
}

void verdicts__gpu(struct verdicts *verdicts, const struct verdict_member *member,
		   const struct verdict_gpu *gpu, uint64_t now_ns)
{
	uint32_t i;
	struct verdict_comm *comm = verdicts__member(verdicts, member, &i);
	struct member *m;

	if (!comm)
		return;
	m = &comm->members[i];
	if (!gpu__is_same(gpu, &comm->ranks[i].gpu)) {
		verdict_comm__flown(comm, m, now_ns);
		m->gpu_since_ns = gpu->n_in_flight ? now_ns : 0;
		m->gpu_started_ns = 0;
	}
	if (gpu->n_in_flight && gpu->started && !m->gpu_started_ns)
		m->gpu_started_ns = now_ns;
	/* what is launched was called, told of or not */
	if (gpu->n_in_flight && gpu->operation < N_COLLECTIVES &&
	    gpu->sequence != VERDICT_NO_SEQUENCE)
		member__reach(m, gpu->operation, gpu->sequence, gpu->launch_ns);
	comm->ranks[i].gpu = *gpu;
	comm->ranks[i].gpu_told_ns = now_ns;
}

/* What the GPUs of the living ranks do. */
struct flights {
	struct rank_set started, not_started, unknown, done;
	uint32_t n_started, n_not_started, n_unknown, n_done, n_silent;
	uint64_t since_ns;   /* since when all that fly stand */
	uint64_t started_ns; /* since when those that have started run */
	enum nccl_operation operation;
	uint64_t sequence;
};

/* It is at a later number than the hindmost. */
static bool gpu__is_past(const struct verdict_gpu *gpu, const struct flights *f)
{
	return gpu->operation == f->operation && gpu->sequence != VERDICT_NO_SEQUENCE &&
	       f->sequence != VERDICT_NO_SEQUENCE && gpu->sequence > f->sequence;
}

/* The operation of the first rank that has a launch in flight, and its least number. */
static void flights__find_hindmost(struct flights *f, const struct verdict_rank *rank)
{
	const struct verdict_gpu *gpu = &rank->gpu;

	if (!rank->gpu_told_ns || !gpu->n_in_flight)
		return;
	if (f->operation == NCCL_OP_MAX)
		f->operation = gpu->operation;
	if (gpu->operation == f->operation && gpu->sequence < f->sequence)
		f->sequence = gpu->sequence;
}

static void flights__add(struct flights *f, const struct verdict_rank *rank, const struct member *m,
			 uint32_t i)
{
	const struct verdict_gpu *gpu = &rank->gpu;

	if (!rank->gpu_told_ns) {
		f->n_silent++;
		return;
	}
	if (!gpu->n_in_flight || gpu__is_past(gpu, f)) {
		f->n_done++;
		rank_set__add(&f->done, i);
		return;
	}
	f->since_ns = later(f->since_ns, m->gpu_since_ns);
	if (gpu->started) {
		f->n_started++;
		rank_set__add(&f->started, i);
		f->started_ns = later(f->started_ns, m->gpu_started_ns);
	} else if (gpu->start_known) {
		f->n_not_started++;
		rank_set__add(&f->not_started, i);
	} else {
		f->n_unknown++;
		rank_set__add(&f->unknown, i);
	}
}

static struct flights verdict_comm__flights(const struct verdict_comm *comm)
{
	struct flights f = {.operation = NCCL_OP_MAX, .sequence = VERDICT_NO_SEQUENCE};

	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!comm->members[i].has_left)
			flights__find_hindmost(&f, &comm->ranks[i]);
	}
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!comm->members[i].has_left)
			flights__add(&f, &comm->ranks[i], &comm->members[i], i);
	}
	return f;
}

bool verdict_comm__is_flying(const struct verdict_comm *comm, uint64_t now_ns)
{
	struct flights f = verdict_comm__flights(comm);

	return f.since_ns && since(now_ns, f.since_ns) >= MIN_THRESHOLD_NS;
}

/* Some run, or are done, and wait for those that have not started. */
static bool flights__some_late(const struct flights *f, struct finding *ret)
{
	if (!f->n_not_started || !(f->n_started + f->n_done))
		return false;
	ret->cause = VERDICT_GPU_NOT_STARTED;
	ret->culprits = f->not_started;
	ret->waiting = f->started;
	return true;
}

/* All run and none gets done, or only some do. */
static bool flights__none_done(const struct flights *f, const struct verdict_comm *comm,
			       struct finding *ret)
{
	if (!f->n_started || f->n_not_started || f->n_unknown || f->n_silent)
		return false;
	ret->cause = f->n_done || comm->n_members >= (uint32_t)comm->n_ranks ? VERDICT_GPU_NOT_DONE
									     : VERDICT_ELSEWHERE;
	if (f->n_done)
		ret->culprits = f->started;
	else
		ret->waiting = f->started;
	return true;
}

/*
 * Nobody has started, or it is not known: the GPUs may just be computing, and nobody waits. Only
 * when that lasts as long as what is stuck is it a fault.
 */
static void flights__in_queue(const struct flights *f, struct finding *ret)
{
	ret->in_queue = true;
	if (f->n_not_started && !f->n_unknown) {
		ret->cause = VERDICT_GPU_NOT_STARTED;
		ret->culprits = f->not_started;
		return;
	}
	ret->cause = VERDICT_GPU_NOT_DONE;
	ret->waiting = f->unknown;
}

/* Who has not called it is missing; that its GPU has not started is no wonder. */
static bool verdict_comm__all_called(const struct verdict_comm *comm, enum nccl_operation operation,
				     uint64_t sequence)
{
	struct range range;

	if (operation >= N_COLLECTIVES || sequence == VERDICT_NO_SEQUENCE)
		return true;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (member__died_before(&comm->members[i], operation, sequence))
			return false; /* nor will it: see verdict_end.c */
	}
	range = verdict_comm__range(comm, operation);
	return !range.n_known || range.least >= sequence;
}

bool verdict_comm__find_on_gpu(const struct verdict_comm *comm, uint64_t now_ns,
			       struct finding *ret)
{
	struct flights f = verdict_comm__flights(comm);
	const struct habit *habit = &comm->runs;
	uint64_t least_ns = MIN_THRESHOLD_NS;

	*ret = (struct finding){.operation = f.operation, .sequence = f.sequence};
	if (!f.since_ns || !verdict_comm__all_called(comm, f.operation, f.sequence))
		return false;
	ret->since_ns = later(f.since_ns, f.started_ns);
	if (!flights__some_late(&f, ret) && !flights__none_done(&f, comm, ret)) {
		flights__in_queue(&f, ret);
		habit = &comm->flights;
		least_ns = later(MIN_FLIGHT_NS, comm->owner->options.stuck_after_ns);
	}
	if (since(now_ns, ret->since_ns) < verdict_comm__threshold(comm, habit, least_ns, now_ns))
		return false;
	ret->state = verdict_comm__waits_or_stuck(comm, ret->since_ns, now_ns);
	return true;
}
