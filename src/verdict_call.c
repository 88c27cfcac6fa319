/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What ranks call, and the numbers they reach. */
#include "verdict_private.h"

void habit__add(struct habit *habit, uint64_t value_ns, uint64_t time_ns)
{
	uint32_t i = habit->n++ % HABIT_EVENTS;

	habit->value_ns[i] = value_ns;
	habit->time_ns[i] = time_ns;
}

uint64_t habit__nth(const struct habit *habit, uint32_t n, uint64_t now_ns)
{
	uint64_t largest[4] = {};

	for (uint32_t i = 0; i < HABIT_EVENTS && i < habit->n; i++) {
		uint64_t value = habit->value_ns[i];

		if (since(now_ns, habit->time_ns[i]) > HABIT_NS)
			continue;
		for (uint32_t k = 0; k < n; k++) {
			uint64_t smaller = largest[k];

			if (value <= smaller)
				continue;
			largest[k] = value;
			value = smaller;
		}
	}
	return largest[n - 1];
}

void verdict_comm__active(struct verdict_comm *comm, struct member *member, uint64_t time_ns)
{
	if (comm->active_ns && time_ns > comm->active_ns + NSEC_PER_SEC)
		habit__add(&comm->pauses, time_ns - comm->active_ns, time_ns);
	comm->active_ns = later(comm->active_ns, time_ns);
	if (member->active_ns && time_ns > member->active_ns + NSEC_PER_SEC)
		member->gaps_ns[member->n_gaps++ % ARRAY_SIZE(member->gaps_ns)] =
			time_ns - member->active_ns;
	member->active_ns = later(member->active_ns, time_ns);
	member->told_ns = later(member->told_ns, time_ns);
}

void member__reach(struct member *member, enum nccl_operation op, uint64_t sequence,
		   uint64_t time_ns)
{
	member->numbered_ns[op] = later(member->numbered_ns[op], time_ns);
	if (member->reached[op] != VERDICT_NO_SEQUENCE && member->reached[op] >= sequence)
		return;
	member->reached[op] = sequence;
	member->reached_ns[op] = time_ns;
}

/* A numbered call of a collective, or a Send or Recv. */
static void verdict_comm__number(struct verdict_comm *comm, uint32_t i,
				 const struct verdict_call *call)
{
	struct member *m = &comm->members[i];
	uint64_t *called = &m->called[call->operation];
	bool follows = *called != VERDICT_NO_SEQUENCE && call->sequence == *called + 1;

	m->is_gap |= !follows;
	if (*called == VERDICT_NO_SEQUENCE || call->sequence > *called)
		*called = call->sequence;
	if (call->operation < N_COLLECTIVES) {
		member__log(comm, i, call);
		verdict_comm__arrive(comm, i, call);
	} else if (call->operation <= NCCL_OP_Recv) {
		verdict_comm__peer_call(comm, i, call, follows);
	}
	member__reach(m, call->operation, call->sequence, call->time_ns);
}

/* Records of a process that has ended may come after the news of its end. */
static bool member__may_call(const struct member *m, uint64_t time_ns)
{
	return !m->has_left || time_ns <= m->left_ns;
}

void verdicts__call(struct verdicts *verdicts, const struct verdict_call *call)
{
	const struct verdict_member *member = &call->member;
	struct verdict_comm *comm = verdicts__comm(verdicts, member->hash, member->n_ranks);
	int32_t i = comm ? verdict_comm__index(comm, member) : -1;
	struct verdict_rank *rank;

	if (i < 0 || (unsigned int)call->operation >= NCCL_OP_MAX ||
	    !member__may_call(&comm->members[i], call->time_ns))
		return;
	verdict_comm__active(comm, &comm->members[i], call->time_ns);
	rank = &comm->ranks[i];
	rank->last_operation = call->operation;
	rank->last_sequence = call->captured ? VERDICT_NO_SEQUENCE : call->sequence;
	rank->last_ns = later(rank->last_ns, call->time_ns);
	if (!call->captured && call->sequence && call->sequence != VERDICT_NO_SEQUENCE)
		verdict_comm__number(comm, i, call);
	else if (call->operation < N_COLLECTIVES)
		comm->members[i].is_gap = true;
}

void verdicts__reached(struct verdicts *verdicts, const struct verdict_member *member,
		       enum nccl_operation operation, uint64_t sequence, uint64_t now_ns)
{
	uint32_t i;
	struct verdict_comm *comm = verdicts__member(verdicts, member, &i);
	struct member *m;
	uint64_t before;

	if (!comm || (unsigned int)operation >= NCCL_OP_MAX || sequence == VERDICT_NO_SEQUENCE)
		return;
	m = &comm->members[i];
	m->told_ns = later(m->told_ns, now_ns);
	before = m->reached[operation];
	if (before != VERDICT_NO_SEQUENCE && sequence > before)
		verdict_comm__active(comm, m, now_ns);
	member__reach(m, operation, sequence, now_ns);
}

void verdicts__moved(struct verdicts *verdicts, const struct verdict_member *member,
		     uint64_t time_ns)
{
	uint32_t i;
	struct verdict_comm *comm = verdicts__member(verdicts, member, &i);

	if (comm)
		verdict_comm__active(comm, &comm->members[i], time_ns);
}
