/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who has not called what its peers have called. All ranks of a communicator call the same
 * collectives in the same order: whoever has called fewest is who the others wait for. Hosts run
 * ahead of their GPUs, so being behind is no fault while a rank still calls: it is missing when it
 * makes no call on the communicator for longer than the job's ranks are late by habit.
 */
#include "verdict_private.h"

uint64_t verdict_comm__threshold(const struct verdict_comm *comm, const struct habit *habit,
				 uint64_t least_ns, uint64_t now_ns)
{
	uint64_t usual_ns = habit ? 2 * habit__nth(habit, 3, now_ns) : 0;

	/* while little is known, once may be a habit */
	if (habit && !usual_ns && comm->n_compared < 10)
		usual_ns = habit__nth(habit, 1, now_ns) * 5 / 4;
	return later(usual_ns, least_ns);
}

enum verdict_state verdict_comm__waits_or_stuck(const struct verdict_comm *comm, uint64_t since_ns,
						uint64_t now_ns)
{
	return since(now_ns, since_ns) >= comm->owner->options.stuck_after_ns ? VERDICT_STUCK
									      : VERDICT_WAITING;
}

struct range verdict_comm__range(const struct verdict_comm *comm, enum nccl_operation operation)
{
	struct range range = {.least = VERDICT_NO_SEQUENCE};

	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint64_t number = comm->members[i].reached[operation];

		if (comm->members[i].has_left || number == VERDICT_NO_SEQUENCE)
			continue;
		range.n_known++;
		range.most = later(range.most, number);
		if (number < range.least)
			range.least = number;
	}
	return range;
}

/* By the first call of that number; else since it was first seen to be behind. */
uint64_t verdict_comm__wanted_since(struct verdict_comm *comm, uint32_t index,
				    enum nccl_operation operation)
{
	struct member *m = &comm->members[index];
	uint64_t number = m->reached[operation] + 1;
	const struct entry *entry = verdict_comm__entry(comm, operation, number);
	struct range range = verdict_comm__range(comm, operation);

	if (!range.n_known || number > range.most)
		return ~0ULL;
	if (entry)
		return entry->first_ns;
	if (m->behind[operation] != number) {
		m->behind[operation] = number;
		m->behind_ns[operation] = comm->owner->now_ns;
	}
	return m->behind_ns[operation];
}

/* The numbers of all operations, and how far behind ranks are. */
struct numbers {
	struct range ranges[N_COLLECTIVES];
	bool is_known[N_COLLECTIVES];  /* of all living ranks */
	bool is_uneven[N_COLLECTIVES]; /* and not the same */
	bool any_uneven;
	bool has_replays; /* what CUDA graphs have run can be compared, too */
};

/* After a loss the numbers of a rare operation may be those of long ago. */
bool verdict_comm__is_sure(const struct verdict_comm *comm, enum nccl_operation operation)
{
	return comm->lost_ns || !(comm->unsure >> operation & 1);
}

/*
 * A GPU is done with a number that its ranks can be done with only together: who seems not to have
 * called it was in it without our seeing it (by a CUDA graph captured before we came).
 */
static bool verdict_comm__is_past(const struct verdict_comm *comm, enum nccl_operation operation,
				  uint64_t number)
{
	if (operation != NCCL_OP_AllReduce && operation != NCCL_OP_AllGather &&
	    operation != NCCL_OP_ReduceScatter)
		return false;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (comm->members[i].done[operation] >= number)
			return true;
	}
	return false;
}

static struct numbers verdict_comm__numbers(const struct verdict_comm *comm)
{
	struct numbers n = {.has_replays = verdict_comm__replays_compare(comm)};

	for (int op = 0; op < N_COLLECTIVES; op++) {
		struct range range = verdict_comm__range(comm, op);

		n.ranges[op] = range;
		if (!verdict_comm__is_sure(comm, op) ||
		    verdict_comm__is_past(comm, op, range.least + 1))
			continue;
		n.is_known[op] = range.n_known == comm->n_living;
		n.is_uneven[op] = range.n_known > 1 && range.least < range.most;
		n.any_uneven |= n.is_uneven[op];
	}
	return n;
}

static bool member__is_behind(const struct member *m, const struct numbers *n, int op)
{
	return n->is_uneven[op] && m->reached[op] != VERDICT_NO_SEQUENCE &&
	       m->reached[op] < n->ranges[op].most;
}

/*
 * Calls ahead of the least, of those operations of which all ranks' numbers are known, and replays:
 * who waits in a graph for the hindmost has not made the next call either, and is not to blame.
 */
static uint64_t member__position(const struct member *m, const struct numbers *n)
{
	uint64_t position = n->has_replays ? m->replays.n : 0;

	for (int op = 0; op < N_COLLECTIVES; op++) {
		if (n->is_known[op])
			position += m->reached[op] - n->ranges[op].least;
	}
	return position;
}

/* Who is farthest behind, and who is ahead of them. False: nobody is behind anybody. */
static bool verdict_comm__sort(const struct verdict_comm *comm, const struct numbers *n,
			       struct finding *f)
{
	uint64_t least = ~0ULL;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];
		bool is_behind = false;
		uint64_t position;

		for (int op = 0; op < N_COLLECTIVES && !m->has_left; op++)
			is_behind |= member__is_behind(m, n, op);
		if (m->has_left)
			continue;
		position = is_behind ? member__position(m, n) : ~0ULL;
		if (is_behind && position < least) {
			least = position;
			for (uint32_t k = 0; k < i; k++) {
				if (rank_set__has(&f->culprits, k))
					rank_set__add(&f->waiting, k);
			}
			f->culprits = (struct rank_set){};
		}
		rank_set__add(is_behind && position == least ? &f->culprits : &f->waiting, i);
	}
	return least != ~0ULL;
}

uint64_t member__still_since(const struct member *m)
{
	uint64_t still_ns = m->active_ns;

	for (int op = 0; op < N_COLLECTIVES; op++) {
		if (m->reached[op] != VERDICT_NO_SEQUENCE)
			still_ns = later(still_ns, m->reached_ns[op]);
	}
	return still_ns;
}

/*
 * It is behind, but its pace is slow, and its next call not overdue: hosts that run ahead of their
 * GPUs are apart for no fault. After eight seconds that is no excuse.
 */
bool member__has_time(const struct member *m, uint64_t wanted_ns, uint64_t now_ns)
{
	uint64_t most_ns = 0, usual_ns = 0;

	for (uint32_t i = 0; i < ARRAY_SIZE(m->gaps_ns); i++) {
		if (m->gaps_ns[i] > most_ns) {
			usual_ns = most_ns;
			most_ns = m->gaps_ns[i];
		} else {
			usual_ns = later(usual_ns, m->gaps_ns[i]);
		}
	}
	return since(now_ns, m->active_ns) < usual_ns + usual_ns / 4 &&
	       since(now_ns, wanted_ns) < 8 * NSEC_PER_SEC;
}

/* Which of the calls that a culprit owes was wanted first. */
static void verdict_comm__first_wanted(struct verdict_comm *comm, const struct numbers *n,
				       uint32_t index, struct finding *f)
{
	const struct member *m = &comm->members[index];

	for (int op = 0; op < N_COLLECTIVES; op++) {
		uint64_t wanted_ns;

		if (!member__is_behind(m, n, op))
			continue;
		wanted_ns = verdict_comm__wanted_since(comm, index, op);
		if (wanted_ns >= f->since_ns)
			continue;
		f->since_ns = wanted_ns;
		f->operation = op;
		f->sequence = m->reached[op] + 1;
	}
}

/*
 * A rank that has called less of one operation than the hindmost, but more of another one: both
 * stand still, and each wants what the other does not call.
 */
static bool verdict_comm__crosses(struct verdict_comm *comm, const struct numbers *n,
				  uint32_t culprit, uint64_t still_ns, uint64_t now_ns)
{
	const struct member *m = &comm->members[culprit];

	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *peer = &comm->members[i];

		if (peer->has_left || since(now_ns, member__still_since(peer)) < still_ns)
			continue;
		for (int op = 0; op < N_COLLECTIVES; op++) {
			if (!n->is_known[op] || peer->reached[op] >= m->reached[op])
				continue;
			verdict_comm__note_crossing(comm, culprit, i, now_ns);
			return true;
		}
	}
	return false;
}

static bool verdict_comm__find_uncalled(struct verdict_comm *comm, uint64_t now_ns,
					struct finding *f)
{
	struct numbers n = verdict_comm__numbers(comm);
	const struct track *track;
	uint64_t threshold_ns;

	*f = (struct finding){.cause = VERDICT_MISSING_CALL, .since_ns = ~0ULL};
	if (!n.any_uneven || !verdict_comm__sort(comm, &n, f))
		return false;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (rank_set__has(&f->culprits, i))
			verdict_comm__first_wanted(comm, &n, i, f);
	}
	if (f->since_ns == ~0ULL)
		return false;
	track = comm->tracks[f->operation];
	threshold_ns = verdict_comm__threshold(comm, track ? &track->lateness : NULL,
					       MIN_THRESHOLD_NS, now_ns);
	if (since(now_ns, f->since_ns) < threshold_ns)
		return false;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!rank_set__has(&f->culprits, i))
			continue;
		if (since(now_ns, member__still_since(&comm->members[i])) < threshold_ns ||
		    member__has_time(&comm->members[i], f->since_ns, now_ns) ||
		    verdict_comm__crosses(comm, &n, i, threshold_ns, now_ns))
			return false;
	}
	return true;
}

/* Who waits for a message is no culprit of a collective, and the other way round. */
static void finding__join(struct finding *f, const struct finding *unsent)
{
	struct rank_set collective = f->culprits, messages = unsent->culprits;

	rank_set__subtract(&collective, &unsent->waiting);
	rank_set__subtract(&messages, &f->waiting);
	if (!rank_set__count(&collective)) {
		f->since_ns = unsent->since_ns;
		f->operation = unsent->operation;
		f->sequence = unsent->sequence;
	}
	rank_set__unite(&collective, &messages);
	rank_set__unite(&f->culprits, &unsent->culprits);
	rank_set__unite(&f->waiting, &unsent->waiting);
	if (rank_set__count(&collective)) {
		rank_set__unite(&f->waiting, &f->culprits);
		f->culprits = collective;
	}
	rank_set__subtract(&f->waiting, &f->culprits);
}

bool verdict_comm__find_missing(struct verdict_comm *comm, uint64_t now_ns, struct finding *ret)
{
	struct finding unsent;
	bool is_uncalled = verdict_comm__find_uncalled(comm, now_ns, ret);
	bool is_unsent = verdict_comm__find_unsent(comm, now_ns, &unsent);

	if (!is_uncalled && !is_unsent && !verdict_comm__find_unlaunched(comm, now_ns, &unsent))
		return false;
	if (!is_uncalled)
		*ret = unsent;
	else if (is_unsent)
		finding__join(ret, &unsent);
	ret->state = verdict_comm__waits_or_stuck(comm, ret->since_ns, now_ns);
	return true;
}
