/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who calls in another order. Two ranks that call the same number of the same operation must call
 * the same one next. Calls of one rank may be told of out of order (some by probes, some by a
 * plugin), so they are put in order and looked at half a second later; what is not known to follow
 * directly (after a loss, a captured or an unnumbered call) is not compared.
 */
#include "verdict_private.h"

static struct step *member__step(struct member *m, uint64_t n)
{
	return &m->log[n % LOG_CALLS];
}

static void verdict_comm__link_next(struct verdict_comm *comm, struct member *m);

void member__log(struct verdict_comm *comm, uint32_t index, const struct verdict_call *call)
{
	struct member *m = &comm->members[index];
	struct step step = {
		.sequence = call->sequence,
		.time_ns = call->time_ns,
		.operation = call->operation,
		.is_first = m->is_gap,
	};
	uint64_t n = m->n_logged++, oldest = n >= LOG_CALLS ? n - LOG_CALLS + 1 : 0;

	m->is_gap = false;
	/*
	 * Calls follow so fast that the log would lose some: those of a rank that has told of so
	 * many in their order need no delay.
	 */
	while (n - m->n_linked >= LOG_CALLS - 2 && n >= 8 * LOG_CALLS && !m->is_disordered)
		verdict_comm__link_next(comm, m);
	if (oldest < m->n_linked)
		oldest = m->n_linked;
	for (; n > oldest && member__step(m, n - 1)->time_ns > step.time_ns; n--)
		*member__step(m, n) = *member__step(m, n - 1);
	m->is_disordered |= n != m->n_logged - 1;
	/* told of too late: its neighbours were taken for neighbours of one another */
	if (n == m->n_linked && n && member__step(m, n - 1)->time_ns > step.time_ns)
		m->is_gap = step.is_first = true;
	*member__step(m, n) = step;
}

/* Where the next call of somebody who called that is remembered. */
static void verdict_comm__successor(struct verdict_comm *comm, const struct step *before,
				    enum nccl_operation **ret_operation, uint64_t **ret_sequence)
{
	struct entry *entry;

	*ret_sequence = NULL;
	if (!before) {
		*ret_operation = &comm->first_operation;
		*ret_sequence = &comm->first_sequence;
		return;
	}
	entry = verdict_comm__entry(comm, before->operation, before->sequence);
	if (!entry)
		return;
	*ret_operation = &entry->next_operation;
	*ret_sequence = &entry->next_sequence;
}

static bool step__is(const struct step *step, enum nccl_operation operation, uint64_t sequence)
{
	return step->operation == operation && step->sequence == sequence;
}

/* Does the member's next call in the log follow directly? */
static bool member__goes_on(struct member *m, uint64_t n)
{
	return member__step(m, n)->time_ns > m->lost_ns && !member__step(m, n + 1)->is_first;
}

/* What the member called after that; NULL: not known. */
static const struct step *member__after(struct member *m, const struct step *before)
{
	uint64_t n = m->n_logged > LOG_CALLS ? m->n_logged - LOG_CALLS : 0;

	if (!before)
		return !n && m->n_logged && !m->log[0].is_first ? &m->log[0] : NULL;
	for (; n + 1 < m->n_logged; n++) {
		if (step__is(member__step(m, n), before->operation, before->sequence))
			return member__goes_on(m, n) ? member__step(m, n + 1) : NULL;
	}
	return NULL;
}

/* Where an operation too many shifts the numbers, arguments differ too: as a consequence. */
static bool disagreement__is_cause(const struct disagreement *d, uint64_t time_ns)
{
	return d->is_there && !d->is_crossing &&
	       (d->kind == VERDICT_MISMATCH_OPERATION || time_ns > d->since_ns + NSEC_PER_SEC);
}

/* One more goes on from where others went apart: it takes a side. */
static void disagreement__take(struct disagreement *d, const struct member *m,
			       const struct step *before, const struct step *step)
{
	if (!d->is_there || d->kind != VERDICT_MISMATCH_OPERATION || !before ||
	    !step__is(before, d->after, d->after_sequence))
		return;
	rank_set__drop(&d->with, m->column);
	rank_set__drop(&d->against, m->column);
	rank_set__add(step__is(step, d->operation, d->sequence) ? &d->with : &d->against,
		      m->column);
}

static void verdict_comm__note_order(struct verdict_comm *comm, const struct step *before,
				     const struct step *one, const struct step *other)
{
	comm->mismatch = (struct disagreement){
		.is_there = true,
		.kind = VERDICT_MISMATCH_OPERATION,
		.operation = one->operation,
		.sequence = one->sequence,
		.other_operation = other->operation,
		.other_sequence = other->sequence,
		.after = before ? before->operation : NCCL_OP_MAX,
		.after_sequence = before ? before->sequence : 0,
		.since_ns = other->time_ns,
		.last_ns = other->time_ns,
		.n = 1,
	};
}

/* Its log is past that call: it was compared with the first to go on from there, and agreed. */
static bool verdict_comm__has_agreed(const struct verdict_comm *comm, struct member *m,
				     const struct step *before)
{
	const struct entry *entry =
		before ? verdict_comm__entry(comm, before->operation, before->sequence) : NULL;
	uint64_t arrival =
		entry ? track__arrived(comm->tracks[before->operation], entry, m->column) : 0;

	return arrival && m->n_linked &&
	       member__step(m, m->n_linked - 1)->time_ns > ARRIVAL_TIME(arrival);
}

/* Who called the one, and who the other; the majority's call is the one that is named. */
static void verdict_comm__take_sides(struct verdict_comm *comm, const struct step *before)
{
	struct disagreement *d = &comm->mismatch;
	struct rank_set set;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		struct member *m = &comm->members[i];
		const struct step *next = member__after(m, before);

		if (next ? step__is(next, d->operation, d->sequence)
			 : !m->has_left && verdict_comm__has_agreed(comm, m, before))
			rank_set__add(&d->with, m->column);
		else if (next)
			rank_set__add(&d->against, m->column);
		if (next && next->time_ns < d->since_ns)
			d->since_ns = next->time_ns;
	}
	if (rank_set__count(&d->with) < rank_set__count(&d->against)) {
		struct disagreement old = *d;

		d->operation = old.other_operation;
		d->sequence = old.other_sequence;
		d->other_operation = old.operation;
		d->other_sequence = old.sequence;
		set = d->with;
		d->with = d->against;
		d->against = set;
	}
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (rank_set__has(&d->against, comm->members[i].column))
			comm->ranks[i].mismatches[VERDICT_MISMATCH_OPERATION]++;
	}
}

static void verdict_comm__link_step(struct verdict_comm *comm, const struct member *m,
				    const struct step *before, const struct step *step)
{
	enum nccl_operation *operation;
	uint64_t *sequence;
	struct step one;

	disagreement__take(&comm->mismatch, m, before, step);
	verdict_comm__successor(comm, before, &operation, &sequence);
	if (!sequence)
		return;
	if (!*sequence) {
		*operation = step->operation;
		*sequence = step->sequence;
		return;
	}
	if (step__is(step, *operation, *sequence))
		return;
	if (disagreement__is_cause(&comm->mismatch, step->time_ns)) {
		comm->mismatch.last_ns = later(comm->mismatch.last_ns, step->time_ns);
		comm->mismatch.n++;
		return;
	}
	one = (struct step){.operation = *operation, .sequence = *sequence};
	verdict_comm__note_order(comm, before, &one, step);
	verdict_comm__take_sides(comm, before);
}

/* The oldest call not looked at, and the one before it where that is still known. */
static void verdict_comm__link_next(struct verdict_comm *comm, struct member *m)
{
	uint64_t n = m->n_linked++, oldest = m->n_logged > LOG_CALLS ? m->n_logged - LOG_CALLS : 0;
	const struct step *step = member__step(m, n);

	if (n > oldest && member__goes_on(m, n - 1))
		verdict_comm__link_step(comm, m, member__step(m, n - 1), step);
	else if (!n && !step->is_first)
		verdict_comm__link_step(comm, m, NULL, step);
}

static void verdict_comm__link_member(struct verdict_comm *comm, struct member *m, uint64_t now_ns)
{
	uint64_t oldest = m->n_logged > LOG_CALLS ? m->n_logged - LOG_CALLS : 0;

	if (m->n_linked < oldest)
		m->n_linked = oldest;
	while (m->n_linked < m->n_logged &&
	       member__step(m, m->n_linked)->time_ns + ORDER_DELAY_NS <= now_ns)
		verdict_comm__link_next(comm, m);
}

void verdict_comm__link(struct verdict_comm *comm, uint64_t now_ns)
{
	if (comm->n_living < 2 || comm->is_contested)
		return;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!comm->members[i].has_left)
			verdict_comm__link_member(comm, &comm->members[i], now_ns);
	}
}

static bool verdict_rank__stands_at(const struct verdict_rank *rank,
				    const struct verdict_rank *other)
{
	return rank->last_operation == other->last_operation &&
	       rank->last_sequence == other->last_sequence;
}

/* The last call told of is its last one: after a loss it need not be. */
static bool verdict_comm__knows_last(const struct verdict_comm *comm, uint32_t i)
{
	const struct verdict_rank *rank = &comm->ranks[i];

	if (rank->last_operation >= N_COLLECTIVES)
		return false;
	if (rank->last_sequence == VERDICT_NO_SEQUENCE)
		return rank->last_ns > comm->loss_ns;
	return rank->last_sequence == comm->members[i].reached[rank->last_operation];
}

void verdict_comm__note_crossing(struct verdict_comm *comm, uint32_t a, uint32_t b, uint64_t now_ns)
{
	const struct verdict_rank *one = &comm->ranks[a], *other = &comm->ranks[b];
	struct disagreement *d = &comm->mismatch;

	if (d->is_there || comm->lost_ns || !verdict_comm__knows_last(comm, a) ||
	    !verdict_comm__knows_last(comm, b) || verdict_rank__stands_at(one, other))
		return;
	*d = (struct disagreement){
		.is_there = true,
		.is_crossing = true,
		.kind = VERDICT_MISMATCH_OPERATION,
		.operation = one->last_operation,
		.sequence = one->last_sequence,
		.other_operation = other->last_operation,
		.other_sequence = other->last_sequence,
		.after = NCCL_OP_MAX,
		.since_ns = later(one->last_ns, other->last_ns),
		.last_ns = now_ns,
		.n = 1,
	};
	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct verdict_rank *rank = &comm->ranks[i];

		if (comm->members[i].has_left)
			continue;
		if (verdict_rank__stands_at(rank, one))
			rank_set__add(&d->with, comm->members[i].column);
		else if (verdict_rank__stands_at(rank, other))
			rank_set__add(&d->against, comm->members[i].column);
	}
}
