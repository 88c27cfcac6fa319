/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who has not called what its peers have called. */
#include "verdict_private.h"

/* How long a rank may be behind before it is said to be missing. */
static uint64_t track__threshold(const struct track *track, uint64_t now_ns)
{
	uint64_t habit = track ? 2 * habit__nth(&track->lateness, 3, now_ns) : 0;

	return habit > MIN_THRESHOLD_NS ? habit : MIN_THRESHOLD_NS;
}

/* The numbers of one operation: the least and the greatest of living ranks. */
struct range {
	uint64_t least, most;
	uint32_t n_known;
};

static struct range verdict_comm__range(const struct verdict_comm *comm, int op)
{
	struct range range = {.least = VERDICT_NO_SEQUENCE};

	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint64_t number = comm->members[i].reached[op];

		if (comm->members[i].has_left || number == VERDICT_NO_SEQUENCE)
			continue;
		range.n_known++;
		if (number < range.least)
			range.least = number;
		if (number > range.most)
			range.most = number;
	}
	return range;
}

/* When the first peer called what the rank has not called. */
static uint64_t verdict_comm__wanted_since(const struct verdict_comm *comm, int op, uint64_t number)
{
	struct entry *entry = comm->tracks[op] ? track__entry(comm->tracks[op], number) : NULL;
	uint64_t first_ns = ~0ULL;

	if (entry)
		return entry->first_ns;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];

		if (!m->has_left && m->reached[op] != VERDICT_NO_SEQUENCE &&
		    m->reached[op] >= number && m->reached_ns[op] < first_ns)
			first_ns = m->reached_ns[op];
	}
	return first_ns;
}

static bool verdict_comm__missing_at(struct verdict_comm *comm, int op, uint64_t now_ns)
{
	struct range range = verdict_comm__range(comm, op);
	uint64_t threshold = track__threshold(comm->tracks[op], now_ns), wanted_ns;
	struct finding f = {.cause = VERDICT_MISSING_CALL, .operation = op};

	if (range.n_known < 2 || range.least == range.most)
		return false;
	wanted_ns = verdict_comm__wanted_since(comm, op, range.least + 1);
	f.sequence = range.least + 1;
	f.since_ns = wanted_ns;
	if (since(now_ns, wanted_ns) < threshold)
		return false;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];
		uint64_t still_ns =
			m->active_ns > m->reached_ns[op] ? m->active_ns : m->reached_ns[op];

		if (m->has_left || m->reached[op] == VERDICT_NO_SEQUENCE)
			continue;
		if (m->reached[op] > range.least) {
			rank_set__add(&f.waiting, i);
			continue;
		}
		if (since(now_ns, still_ns) < threshold)
			return false;
		rank_set__add(&f.culprits, i);
	}
	f.state = since(now_ns, f.since_ns) >= comm->owner->options.stuck_after_ns
			  ? VERDICT_STUCK
			  : VERDICT_WAITING;
	comm->finding = f;
	return true;
}

bool verdict_comm__find_missing(struct verdict_comm *comm, uint64_t now_ns)
{
	for (int op = 0; op < NCCL_OP_Send; op++) {
		if (verdict_comm__missing_at(comm, op, now_ns))
			return true;
	}
	return false;
}
