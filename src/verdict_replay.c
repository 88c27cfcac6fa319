/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who has not launched its CUDA graphs as often as its peers. A launch makes no NCCL call, and NCCL
 * does not number what it runs; but ranks that captured the same run the same, so that from their
 * captures on they can be compared by how much they have replayed. Nothing is said where that was
 * not seen in full of every rank, or where they did not capture equally much.
 */
#include "verdict_private.h"

bool verdict_comm__replays_compare(const struct verdict_comm *comm)
{
	const struct verdict_replays *first = NULL;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct verdict_replays *r = &comm->members[i].replays;

		if (comm->members[i].has_left)
			continue;
		first = first ?: r;
		if (!r->is_known || !r->n_captured || r->n_captured != first->n_captured)
			return false;
	}
	return first;
}

static uint64_t verdict_comm__most_replays(const struct verdict_comm *comm)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!comm->members[i].has_left)
			most = later(most, comm->members[i].replays.n);
	}
	return most;
}

/* Since when it stands where it stands and others have gone on, as far as that was looked at. */
static void member__note_behind(struct member *m, uint64_t most, uint64_t now_ns)
{
	if (m->replays.n == most)
		m->left_behind_ns = 0;
	else if (!m->left_behind_ns || m->left_behind_at != m->replays.n)
		m->left_behind_ns = now_ns;
	m->left_behind_at = m->replays.n;
}

/* The hindmost; and since when all of them are behind. False: nobody is. */
static bool verdict_comm__sort_replays(struct verdict_comm *comm, uint64_t now_ns,
				       struct finding *f)
{
	uint64_t most = verdict_comm__most_replays(comm), least = most;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		struct member *m = &comm->members[i];

		if (m->has_left)
			continue;
		member__note_behind(m, most, now_ns);
		if (m->replays.n < least)
			least = m->replays.n;
	}
	if (least == most)
		return false;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];

		if (m->has_left)
			continue;
		rank_set__add(m->replays.n == least ? &f->culprits : &f->waiting, i);
		if (m->replays.n == least)
			f->since_ns = later(f->since_ns, m->left_behind_ns);
	}
	return true;
}

bool verdict_comm__find_unlaunched(struct verdict_comm *comm, uint64_t now_ns, struct finding *f)
{
	uint64_t threshold_ns, then_ns;

	*f = (struct finding){
		.cause = VERDICT_MISSING_LAUNCH,
		.operation = NCCL_OP_MAX,
		.sequence = VERDICT_NO_SEQUENCE,
	};
	if (!verdict_comm__replays_compare(comm) || !verdict_comm__sort_replays(comm, now_ns, f))
		return false;
	threshold_ns = verdict_comm__threshold(comm, &comm->pauses, MIN_THRESHOLD_NS, now_ns);
	/* counters that were read long ago do not tell that it stands still now */
	then_ns = comm->owner->replays_ns ?: now_ns;
	if (since(then_ns, f->since_ns) < threshold_ns)
		return false;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];

		if (!rank_set__has(&f->culprits, i))
			continue;
		if (since(then_ns, member__still_since(m)) < threshold_ns ||
		    member__has_time(m, f->since_ns, now_ns))
			return false;
		f->operation = m->replays.operation;
	}
	return true;
}

void verdicts__replayed(struct verdicts *verdicts, const struct verdict_member *member,
			const struct verdict_replays *replays)
{
	uint32_t i;
	struct verdict_comm *comm = verdicts__member(verdicts, member, &i);

	if (comm)
		comm->members[i].replays = *replays;
}

void verdicts__replays_as_of(struct verdicts *verdicts, uint64_t time_ns)
{
	verdicts->replays_ns = time_ns;
}
