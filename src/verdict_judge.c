/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From what one look finds to the state that holds. */
#include "verdict_private.h"

static void verdict_comm__find_activity(struct verdict_comm *comm, uint64_t now_ns)
{
	uint64_t idle_ns = 3 * habit__nth(&comm->pauses, 2, now_ns);
	struct finding *f = &comm->finding;

	if (idle_ns < MIN_IDLE_NS)
		idle_ns = MIN_IDLE_NS;
	f->since_ns = comm->active_ns ? comm->active_ns : comm->known_ns;
	if (!comm->n_living) {
		f->state = VERDICT_IDLE;
	} else if (comm->is_contested) {
		f->state = VERDICT_UNKNOWN;
	} else if (!comm->active_ns) {
		f->state = since(now_ns, comm->known_ns) < MIN_IDLE_NS / 2 ? VERDICT_UNKNOWN
									   : VERDICT_IDLE;
	} else if (since(now_ns, comm->active_ns) >= idle_ns) {
		f->state = VERDICT_IDLE;
	} else {
		f->state = VERDICT_HEALTHY;
	}
}

static bool verdict_comm__find_end(struct verdict_comm *comm)
{
	struct finding f = {
		.operation = NCCL_OP_MAX,
		.sequence = VERDICT_NO_SEQUENCE,
		.since_ns = ~0ULL,
	};

	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];
		bool is_error = m->error[0] && !m->has_left;

		if (is_error && f.state != VERDICT_ERROR)
			f = (struct finding){
				.state = VERDICT_ERROR,
				.operation = NCCL_OP_MAX,
				.sequence = VERDICT_NO_SEQUENCE,
				.since_ns = m->error_ns,
			};
		if (!is_error &&
		    (f.state == VERDICT_ERROR || !m->has_left || m->how != VERDICT_END_ABORTED))
			continue;
		if (!is_error)
			f.state = VERDICT_ABORTED;
		if (!is_error && m->left_ns < f.since_ns)
			f.since_ns = m->left_ns;
		rank_set__add(&f.culprits, i);
	}
	if (!f.state)
		return false;
	comm->finding = f;
	return true;
}

void verdict_comm__judge(struct verdict_comm *comm, uint64_t now_ns)
{
	comm->finding = (struct finding){
		.operation = NCCL_OP_MAX,
		.sequence = VERDICT_NO_SEQUENCE,
	};
	if (verdict_comm__find_end(comm))
		return;
	verdict_comm__find_mismatch(comm, now_ns);
	if (comm->finding.state)
		return;
	verdict_comm__find_activity(comm, now_ns);
	if (comm->is_contested)
		return;
	if (comm->lost_ns) {
		comm->finding.state = VERDICT_DEGRADED_SIGHT;
		comm->finding.since_ns = comm->lost_ns;
		return;
	}
	if (!verdict_comm__find_missing(comm, now_ns))
		verdict_comm__find_on_gpu(comm, now_ns);
}

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
	if (verdict_state__severity(v->state) >= verdict_state__severity(comm->worst.state) ||
	    comm->worst.state == VERDICT_UNKNOWN)
		comm->worst = *v;
}

static void verdict_comm__enter(struct verdict_comm *comm, uint64_t now_ns)
{
	comm->now.state = comm->finding.state;
	comm->now.confirmed_ns = now_ns;
	verdict_comm__take(comm, now_ns);
	comm->events[comm->n_events++ % VERDICT_MAX_EVENTS] = (struct verdict_event){
		.time_ns = now_ns,
		.state = comm->now.state,
		.culprit = comm->now.culprits.n ? comm->now.culprits.ranks[0] : -1,
	};
}

void verdict_comm__confirm(struct verdict_comm *comm, uint64_t now_ns)
{
	const struct finding *f = &comm->finding;
	bool is_same = f->state == comm->candidate && f->cause == comm->candidate_cause;
	uint32_t needed = f->state == VERDICT_MISMATCH ? 1 : CONFIRMATIONS;

	comm->n_candidate = is_same ? comm->n_candidate + 1 : 1;
	comm->candidate = f->state;
	comm->candidate_cause = f->cause;
	if (comm->now.state == VERDICT_WAITING && f->state == VERDICT_STUCK)
		needed = 1;
	if (f->state == comm->now.state && f->cause == comm->now.cause)
		verdict_comm__take(comm, now_ns);
	else if (comm->n_candidate >= needed)
		verdict_comm__enter(comm, now_ns);
}

void verdicts__settle(struct verdicts *verdicts, uint64_t now_ns)
{
	verdicts->now_ns = now_ns;
	for (struct verdict_comm *comm = verdicts->first; comm; comm = comm->next)
		verdict_comm__judge(comm, now_ns);
	for (struct verdict_comm *comm = verdicts->first; comm; comm = comm->next)
		verdict_comm__confirm(comm, now_ns);
}
