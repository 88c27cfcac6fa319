/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From what one look finds to the state that holds: confirmed, remembered, let go. */
#include "verdict_private.h"

/* ---- whether it moves ---- */

/* How long nobody may call before it is said to be idle. */
static uint64_t verdict_comm__idle_after(const struct verdict_comm *comm, uint64_t now_ns)
{
	if (!comm->active_ns)
		return MIN_KNOWN_NS;
	return later(MIN_IDLE_NS, 3 * habit__nth(&comm->pauses, 2, now_ns));
}

/* Ranks that cannot be compared: does each of them go on when the others do? */
static bool verdict_comm__all_go_on(const struct verdict_comm *comm, uint64_t now_ns)
{
	uint64_t most_ns = later(MIN_THRESHOLD_NS, 2 * habit__nth(&comm->pauses, 2, now_ns));

	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];

		if (!m->has_left && since(comm->active_ns, m->active_ns) > most_ns)
			return false;
	}
	return true;
}

static enum verdict_state verdict_comm__activity(const struct verdict_comm *comm, uint64_t now_ns)
{
	uint64_t quiet_ns = since(now_ns, later(comm->active_ns, comm->known_ns));
	bool is_new = since(now_ns, comm->known_ns) < MIN_KNOWN_NS;

	if (!comm->n_living)
		return VERDICT_IDLE;
	if (comm->is_contested)
		return VERDICT_UNKNOWN;
	if (quiet_ns >= verdict_comm__idle_after(comm, now_ns)) {
		if (verdict_comm__is_flying(comm, now_ns))
			return VERDICT_HEALTHY;
		/* its peers may wait for a rank that ended before we came */
		return verdict_comm__unseen(comm, NULL) ? VERDICT_UNKNOWN : VERDICT_IDLE;
	}
	if (!comm->active_ns)
		return VERDICT_UNKNOWN;
	if (comm->n_living == 1 || comm->n_compared >= MIN_COMPARED)
		return VERDICT_HEALTHY;
	return is_new || !verdict_comm__all_go_on(comm, now_ns) ? VERDICT_UNKNOWN : VERDICT_HEALTHY;
}

/* ---- sight ---- */

/* One that died seems to have called less; but its last records may be among those lost. */
static bool verdict_comm__misses_dead(const struct verdict_comm *comm, int op, uint64_t most)
{
	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];

		if (member__died_before(m, op, most) && m->numbered_ns[op] <= comm->lost_ns)
			return true;
	}
	return false;
}

/* Every living rank was told of since the loss, and all stand at the same numbers. */
static bool verdict_comm__sees_again(const struct verdict_comm *comm)
{
	uint32_t n_known = 0;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!comm->members[i].has_left && comm->members[i].told_ns <= comm->lost_ns)
			return false;
	}
	for (int op = 0; op < N_COLLECTIVES; op++) {
		struct range range = verdict_comm__range(comm, op);

		if ((range.n_known && range.least != range.most) ||
		    verdict_comm__misses_dead(comm, op, range.most))
			return false;
		n_known += range.n_known == comm->n_living && range.most;
	}
	return n_known || comm->n_living == 1;
}

/* Operations of which every living rank was told since the loss. */
static void verdict_comm__make_sure(struct verdict_comm *comm)
{
	for (int op = 0; op < N_COLLECTIVES; op++) {
		bool is_sure = true;

		for (uint32_t i = 0; i < comm->n_members && is_sure; i++) {
			const struct member *m = &comm->members[i];

			is_sure = m->has_left || m->reached[op] == VERDICT_NO_SEQUENCE ||
				  m->numbered_ns[op] > comm->loss_ns;
		}
		if (is_sure)
			comm->unsure &= ~(1U << op);
	}
}

/*
 * An accusation that held before the loss holds on where the exact counters, told again since, show
 * that the culprits have not called.
 */
static bool verdict_comm__holds_on(const struct verdict_comm *comm, const struct finding *f)
{
	if (comm->now.cause != VERDICT_MISSING_CALL || comm->now.confirmed_ns > comm->lost_ns ||
	    f->cause != VERDICT_MISSING_CALL)
		return false;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (rank_set__has(&f->culprits, i) && comm->members[i].told_ns <= comm->lost_ns)
			return false;
	}
	return true;
}

/* ---- one look ---- */

/* All of them have launches that do not get done. */
static bool verdict_comm__all_fly(const struct verdict_comm *comm, const struct rank_set *set)
{
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (rank_set__has(set, i) && !comm->members[i].gpu_since_ns)
			return false;
	}
	return true;
}

static bool verdict_comm__find_wait(struct verdict_comm *comm, uint64_t now_ns, struct finding *ret)
{
	struct finding gpu;
	bool is_missing = verdict_comm__find_missing(comm, now_ns, ret);
	bool is_on_gpu = !comm->lost_ns && verdict_comm__find_on_gpu(comm, now_ns, &gpu);

	/* a host that waits for its GPU does not call either */
	if (is_missing && is_on_gpu && verdict_comm__all_fly(comm, &ret->culprits))
		is_missing = false;
	if (is_missing)
		return !comm->lost_ns || verdict_comm__holds_on(comm, ret);
	*ret = gpu;
	return is_on_gpu;
}

/* GPUs tell that they do not start last, whenever their hosts call. */
static bool verdict_comm__is_refuted(const struct verdict_comm *comm,
				     const struct rank_set *culprits, uint64_t now_ns)
{
	const struct late *late = comm->late[LATE_ON_GPU];

	if (!late__is_recent(late, now_ns))
		return false;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (rank_set__has(culprits, i) &&
		    rank_set__has(&late->unpunctual, comm->members[i].column))
			return false;
	}
	return true;
}

static bool verdict_comm__find_slowness(struct verdict_comm *comm, uint64_t now_ns,
					struct finding *ret)
{
	if (verdict_comm__find_straggler(comm, LATE_ON_GPU, now_ns, ret))
		return true;
	if (verdict_comm__find_straggler(comm, LATE_ON_HOST, now_ns, ret) &&
	    !verdict_comm__is_refuted(comm, &ret->culprits, now_ns))
		return true;
	return verdict_comm__find_slow(comm, now_ns, ret);
}

/* The worst of what is found, in the order of severity. */
static bool verdict_comm__find_fault(struct verdict_comm *comm, uint64_t now_ns,
				     struct finding *ret)
{
	struct finding other;

	if (verdict_comm__find_error(comm, ret))
		return true;
	if (comm->is_contested)
		return false;
	/* missing first: it notes mismatches of order, which count for more */
	if (verdict_comm__find_end(comm, now_ns, ret)) {
		if (ret->state == VERDICT_ABORTED ||
		    !verdict_comm__find_mismatch(comm, now_ns, &other))
			return true;
		*ret = other;
		return true;
	}
	if (!verdict_comm__find_wait(comm, now_ns, ret))
		*ret = (struct finding){};
	if (verdict_comm__find_mismatch(comm, now_ns, &other))
		*ret = other;
	return ret->state || verdict_comm__find_slowness(comm, now_ns, ret);
}

/* Ranks seem to be apart at an operation of which not all were told of since a loss. */
static bool verdict_comm__is_unclear(const struct verdict_comm *comm, uint64_t now_ns)
{
	if (since(now_ns, comm->active_ns) < MIN_THRESHOLD_NS)
		return false;
	for (int op = 0; op < N_COLLECTIVES && comm->unsure; op++) {
		struct range range = verdict_comm__range(comm, op);

		if (comm->unsure >> op & 1 && range.n_known > 1 && range.least < range.most)
			return true;
	}
	return false;
}

/* A job's plugin that tells of the future does not look alive for longer by that. */
static void verdict_comm__clamp(struct verdict_comm *comm, uint64_t now_ns)
{
	if (comm->active_ns > now_ns)
		comm->active_ns = now_ns;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		struct member *m = &comm->members[i];

		if (m->active_ns > now_ns)
			m->active_ns = now_ns;
		for (int op = 0; op < NCCL_OP_MAX && m->active_ns == now_ns; op++) {
			if (m->reached_ns[op] > now_ns)
				m->reached_ns[op] = now_ns;
		}
	}
}

static void verdict_comm__judge(struct verdict_comm *comm, uint64_t now_ns)
{
	struct finding f;

	verdict_comm__clamp(comm, now_ns);
	verdict_comm__link(comm, now_ns);
	if (comm->lost_ns && verdict_comm__sees_again(comm))
		comm->lost_ns = 0;
	if (comm->unsure)
		verdict_comm__make_sure(comm);
	comm->chain = (struct chain){};
	comm->activity = verdict_comm__activity(comm, now_ns);
	comm->finding = (struct finding){
		.state = comm->activity,
		.since_ns = later(comm->active_ns, comm->known_ns),
		.operation = NCCL_OP_MAX,
		.sequence = VERDICT_NO_SEQUENCE,
	};
	if (verdict_comm__find_fault(comm, now_ns, &f)) {
		comm->finding = f;
	} else if (comm->n_living && !comm->is_contested &&
		   (comm->lost_ns || verdict_comm__is_unclear(comm, now_ns))) {
		comm->finding.state = VERDICT_DEGRADED_SIGHT;
		comm->finding.since_ns = comm->loss_ns;
	}
}

/* ---- what holds ---- */

static void verdict_comm__name(const struct verdict_comm *comm, const struct rank_set *set,
			       struct verdict_named *ret)
{
	ret->n = 0;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!rank_set__has(set, i))
			continue;
		if (ret->n < VERDICT_MAX_NAMED)
			ret->ranks[ret->n] = comm->ranks[i].member.rank;
		ret->n++;
	}
}

static void verdict_comm__take(struct verdict_comm *comm, uint64_t now_ns)
{
	const struct finding *f = &comm->finding;
	struct verdict *v = &comm->now;

	v->cause = f->cause;
	v->mismatch = f->mismatch;
	v->since_ns = f->since_ns;
	v->operation = f->operation;
	v->sequence = f->sequence;
	verdict_comm__name(comm, &f->culprits, &v->culprits);
	verdict_comm__name(comm, &f->waiting, &v->waiting);
	verdict_comm__explain(comm, v, now_ns);
	if (comm->worst.state == VERDICT_UNKNOWN ||
	    verdict_state__severity(v->state) >= verdict_state__severity(comm->worst.state))
		comm->worst = *v;
}

static void verdict_comm__enter(struct verdict_comm *comm, uint64_t now_ns)
{
	comm->now.state = comm->finding.state;
	comm->now.confirmed_ns = now_ns;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (comm->finding.state == VERDICT_ABORTED)
			comm->members[i].is_blamed |= rank_set__has(&comm->finding.culprits, i);
	}
	verdict_comm__take(comm, now_ns);
	comm->events[comm->n_events++ % VERDICT_MAX_EVENTS] = (struct verdict_event){
		.time_ns = now_ns,
		.state = comm->now.state,
		.culprit = comm->now.culprits.n ? comm->now.culprits.ranks[0] : -1,
	};
}

static uint32_t verdict_comm__needed(const struct verdict_comm *comm)
{
	enum verdict_state state = comm->finding.state;

	/* facts need no second look, and stuck is waiting grown old */
	if (state == VERDICT_MISMATCH || state == VERDICT_ERROR ||
	    (state == VERDICT_STUCK && comm->now.state == VERDICT_WAITING))
		return 1;
	return CONFIRMATIONS;
}

static void verdict_comm__confirm(struct verdict_comm *comm, uint64_t now_ns)
{
	const struct finding *f = &comm->finding;
	bool is_same = f->state == comm->candidate && f->cause == comm->candidate_cause;

	comm->n_candidate = is_same ? comm->n_candidate + 1 : 1;
	comm->candidate = f->state;
	comm->candidate_cause = f->cause;
	if (f->state == comm->now.state && f->cause == comm->now.cause)
		verdict_comm__take(comm, now_ns);
	else if (comm->n_candidate >= verdict_comm__needed(comm))
		verdict_comm__enter(comm, now_ns);
}

static void verdict_comm__show_lateness(struct verdict_comm *comm)
{
	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct lateness *l = &comm->members[i].lateness;
		struct verdict_rank *rank = &comm->ranks[i];

		rank->n_compared = l->n[0] + l->n[1];
		rank->n_last = l->n_last[0] + l->n_last[1];
		rank->lateness_max_ns = later(l->most_ns[0], l->most_ns[1]);
		rank->lateness_ns =
			rank->n_compared ? (l->sum_ns[0] + l->sum_ns[1]) / rank->n_compared : 0;
	}
}

void verdicts__settle(struct verdicts *verdicts, uint64_t now_ns)
{
	struct verdict_comm *comm;

	verdicts->now_ns = now_ns;
	for (comm = verdicts->first; comm; comm = comm->next)
		verdict_comm__judge(comm, now_ns);
	verdicts__chain(verdicts);
	verdicts__acquit(verdicts);
	for (comm = verdicts->first; comm; comm = comm->next) {
		verdict_comm__show_lateness(comm);
		verdict_comm__confirm(comm, now_ns);
	}
}
