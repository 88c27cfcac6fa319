/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who is gone while others wait; aborts and errors. */
#include "verdict_private.h"

/* Letters and digits are enough for NCCL's names; anything else is of no use to a reader. */
void verdicts__error(struct verdicts *verdicts, const struct verdict_member *member,
		     const char *result, uint64_t now_ns)
{
	uint32_t i;
	struct verdict_comm *comm = verdicts__member(verdicts, member, &i);
	struct member *m;
	size_t n = 0;

	if (!comm)
		return;
	m = &comm->members[i];
	if (!m->error[0])
		m->error_ns = now_ns;
	for (; n < sizeof(m->error) - 1 && result[n]; n++) {
		char c = result[n] | 0x20;

		m->error[n] = (c >= 'a' && c <= 'z') || (result[n] >= '0' && result[n] <= '9')
				      ? result[n]
				      : '_';
	}
	m->error[n] = 0;
}

bool verdict_comm__find_error(const struct verdict_comm *comm, struct finding *ret)
{
	*ret = (struct finding){
		.state = VERDICT_ERROR,
		.since_ns = ~0ULL,
		.operation = NCCL_OP_MAX,
		.sequence = VERDICT_NO_SEQUENCE,
	};
	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];

		if (!m->error[0] || m->has_left)
			continue;
		rank_set__add(&ret->culprits, i);
		if (m->error_ns < ret->since_ns)
			ret->since_ns = m->error_ns;
	}
	return rank_set__count(&ret->culprits);
}

/* Living ranks have called, and still want, what the one that left has not called. */
static bool verdict_comm__wants(struct verdict_comm *comm, uint32_t index, uint64_t now_ns,
				struct finding *ret)
{
	const struct member *m = &comm->members[index];
	uint64_t first_ns = ~0ULL;

	for (int op = 0; op < N_COLLECTIVES; op++) {
		uint64_t wanted_ns;

		if (m->reached[op] == VERDICT_NO_SEQUENCE || !verdict_comm__is_sure(comm, op) ||
		    m->numbered_ns[op] <= comm->loss_ns)
			continue;
		wanted_ns = verdict_comm__wanted_since(comm, index, op);
		if (wanted_ns >= first_ns ||
		    since(now_ns, later(wanted_ns, m->left_ns)) < MIN_THRESHOLD_NS)
			continue;
		first_ns = wanted_ns;
		ret->operation = op;
		ret->sequence = m->reached[op] + 1;
	}
	return first_ns != ~0ULL || verdict_comm__owes(comm, index, now_ns);
}

/*
 * A process that ends without having ended its communicator is nothing by itself: most jobs end
 * like that. It is a fault when others are seen to wait for it.
 */
static bool verdict_comm__is_missed(struct verdict_comm *comm, uint32_t index, uint64_t now_ns,
				    struct finding *ret)
{
	if (!comm->n_living || comm->lost_ns)
		return false;
	if (verdict_comm__wants(comm, index, now_ns, ret))
		return true;
	return comm->members[index].how == VERDICT_END_DIED &&
	       since(now_ns, comm->members[index].left_ns) >= MIN_THRESHOLD_NS &&
	       verdict_comm__is_flying(comm, now_ns);
}

bool member__died_before(const struct member *m, enum nccl_operation operation, uint64_t sequence)
{
	return m->has_left && m->how == VERDICT_END_DIED &&
	       m->reached[operation] != VERDICT_NO_SEQUENCE && m->reached[operation] < sequence;
}

static bool verdict_comm__is_even(const struct verdict_comm *comm)
{
	for (int op = 0; op < N_COLLECTIVES; op++) {
		for (uint32_t i = 1; i < comm->n_members; i++) {
			if (comm->members[i].reached[op] != comm->members[0].reached[op])
				return false;
		}
	}
	return true;
}

/*
 * Aborted by all ranks of this node within moments, at one number, and nothing was wrong: that is
 * how a job ends that takes ncclCommAbort for it, as PyTorch's destroy_process_group did for long.
 * Until the moments have passed nothing is said.
 */
static bool verdict_comm__ends_in_step(const struct verdict_comm *comm, uint64_t now_ns)
{
	enum verdict_state state = comm->now.state;

	if (verdict_state__exit_status(state) == 4 || state == VERDICT_WAITING)
		return false;
	for (uint32_t i = 0; i < comm->n_members && comm->n_living; i++) {
		if (comm->members[i].has_left &&
		    since(now_ns, comm->members[i].left_ns) >= MIN_THRESHOLD_NS)
			return false;
	}
	return comm->n_living || comm->lost_ns || verdict_comm__is_even(comm);
}

static void verdict_comm__take_ended(struct verdict_comm *comm, uint32_t i, uint64_t now_ns,
				     struct finding *ret)
{
	const struct member *m = &comm->members[i];
	bool is_missed = verdict_comm__is_missed(comm, i, now_ns, ret);

	if (!is_missed && !m->is_blamed &&
	    (m->how != VERDICT_END_ABORTED || verdict_comm__ends_in_step(comm, now_ns)))
		return;
	rank_set__add(&ret->culprits, i);
	if (m->left_ns < ret->since_ns)
		ret->since_ns = m->left_ns;
	if (is_missed)
		ret->cause = VERDICT_ENDED;
	if (m->how != VERDICT_END_DESTROYED)
		ret->state = VERDICT_ABORTED;
}

bool verdict_comm__find_end(struct verdict_comm *comm, uint64_t now_ns, struct finding *ret)
{
	*ret = (struct finding){
		.since_ns = ~0ULL,
		.operation = NCCL_OP_MAX,
		.sequence = VERDICT_NO_SEQUENCE,
	};
	if (comm->n_living == comm->n_members)
		return false;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (comm->members[i].has_left)
			verdict_comm__take_ended(comm, i, now_ns, ret);
	}
	if (!rank_set__count(&ret->culprits))
		return false;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!comm->members[i].has_left)
			rank_set__add(&ret->waiting, i);
	}
	/* one that has destroyed its communicator is missed like one that does not call */
	if (ret->state != VERDICT_ABORTED)
		ret->state = verdict_comm__waits_or_stuck(comm, ret->since_ns, now_ns);
	return true;
}
