/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What ranks call: the numbers they have reached, when they came, how late. */
#include <stdlib.h>
#include <string.h>

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

/* ---- arrivals ---- */

void verdict_comm__free_tracks(struct verdict_comm *comm)
{
	for (int op = 0; op < NCCL_OP_MAX; op++) {
		if (!comm->tracks[op])
			continue;
		comm->owner->n_cells -= comm->tracks[op]->n_columns * RING_ENTRIES;
		free(comm->tracks[op]->arrivals);
		free(comm->tracks[op]);
		comm->tracks[op] = NULL;
	}
}

void verdict_comm__move_column(struct verdict_comm *comm, uint32_t from, uint32_t to)
{
	for (int op = 0; op < NCCL_OP_MAX; op++) {
		struct track *track = comm->tracks[op];

		for (uint32_t i = 0; track && i < RING_ENTRIES; i++) {
			uint64_t *row = track->arrivals + i * track->n_columns;

			if (to < track->n_columns)
				row[to] = from < track->n_columns ? row[from] : 0;
			if (from < track->n_columns)
				row[from] = 0;
		}
	}
}

/* A column for every member, and some for those that may come. */
static bool verdict_comm__widen(struct verdict_comm *comm, struct track *track)
{
	uint32_t n_columns = comm->room, more = (n_columns - track->n_columns) * RING_ENTRIES;
	uint64_t *arrivals;

	if (comm->owner->n_cells + more > MAX_CELLS)
		return false;
	arrivals = calloc((size_t)n_columns * RING_ENTRIES, sizeof(*arrivals));
	if (!arrivals)
		return false;
	for (uint32_t i = 0; i < RING_ENTRIES && track->n_columns; i++)
		memcpy(arrivals + i * n_columns, track->arrivals + i * track->n_columns,
		       track->n_columns * sizeof(*arrivals));
	free(track->arrivals);
	track->arrivals = arrivals;
	track->n_columns = n_columns;
	comm->owner->n_cells += more;
	return true;
}

/* NULL: no room. */
static struct track *verdict_comm__track(struct verdict_comm *comm, enum nccl_operation op)
{
	struct track *track = comm->tracks[op];

	if (!track)
		track = comm->tracks[op] = calloc(1, sizeof(*track));
	if (!track)
		return NULL;
	if (track->n_columns < comm->n_columns && !verdict_comm__widen(comm, track)) {
		comm->owner->refused++;
		return NULL;
	}
	return track;
}

struct entry *track__entry(struct track *track, uint64_t sequence)
{
	struct entry *entry = &track->entries[sequence % RING_ENTRIES];

	return entry->sequence == sequence ? entry : NULL;
}

/* NULL: a number of long ago. */
static struct entry *track__open(struct track *track, const struct verdict_call *call)
{
	struct entry *entry = &track->entries[call->sequence % RING_ENTRIES];

	if (entry->sequence == call->sequence)
		return entry;
	if (entry->sequence > call->sequence)
		return NULL;
	*entry = (struct entry){
		.sequence = call->sequence,
		.first_ns = call->time_ns,
		.last_ns = call->time_ns,
		.count = call->count,
		.datatype = call->datatype,
		.redop = call->redop,
		.root = call->root,
	};
	memset(track__arrival(track, entry, 0), 0, track->n_columns * sizeof(uint64_t));
	return entry;
}

/* All living ranks whose numbers are known came. */
static bool verdict_comm__all_came(const struct verdict_comm *comm, enum nccl_operation op,
				   const struct entry *entry)
{
	uint32_t n = 0;

	if (entry->n_came < comm->n_living)
		return false;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];

		n += !m->has_left && *track__arrival(comm->tracks[op], entry, m->column);
	}
	return n == comm->n_living;
}

static void verdict_comm__complete(struct verdict_comm *comm, enum nccl_operation op,
				   struct entry *entry)
{
	uint64_t most = entry->last_ns - entry->first_ns;

	entry->is_complete = true;
	comm->n_compared++;
	if (most >= NSEC_PER_SEC)
		habit__add(&comm->tracks[op]->lateness, most, entry->last_ns);
	for (uint32_t i = 0; i < comm->n_members; i++) {
		struct verdict_rank *rank = &comm->ranks[i];
		uint64_t time, lateness;

		if (comm->members[i].has_left)
			continue;
		time = *track__arrival(comm->tracks[op], entry, comm->members[i].column);
		lateness = time - entry->first_ns;
		rank->lateness_total_ns[op] += lateness;
		if (lateness > LATE_NS && time == entry->last_ns)
			rank->last_arrivals[op]++;
		if (comm->owner->lateness_fn)
			comm->owner->lateness_fn(comm->owner->ctx, &rank->member, op, lateness);
	}
	if (comm->lost_ns && entry->first_ns > comm->lost_ns)
		comm->lost_ns = 0;
}

static void verdict_comm__arrive(struct verdict_comm *comm, uint32_t i,
				 const struct verdict_call *call)
{
	struct track *track = verdict_comm__track(comm, call->operation);
	struct entry *entry = track ? track__open(track, call) : NULL;
	uint64_t *arrival;

	if (!entry)
		return;
	arrival = track__arrival(track, entry, comm->members[i].column);
	if (*arrival)
		return;
	*arrival = call->time_ns;
	entry->n_came++;
	if (call->time_ns < entry->first_ns)
		entry->first_ns = call->time_ns;
	if (call->time_ns > entry->last_ns)
		entry->last_ns = call->time_ns;
	entry__compare(comm, entry, call, i);
	if (comm->n_living > 1 && verdict_comm__all_came(comm, call->operation, entry))
		verdict_comm__complete(comm, call->operation, entry);
}

static void verdict_comm__active(struct verdict_comm *comm, struct member *member, uint64_t time_ns)
{
	if (comm->active_ns && time_ns > comm->active_ns + NSEC_PER_SEC)
		habit__add(&comm->pauses, time_ns - comm->active_ns, time_ns);
	if (time_ns > comm->active_ns)
		comm->active_ns = time_ns;
	if (time_ns > member->active_ns)
		member->active_ns = time_ns;
}

static void member__reach(struct member *member, enum nccl_operation op, uint64_t sequence,
			  uint64_t time_ns)
{
	if (member->reached[op] != VERDICT_NO_SEQUENCE && member->reached[op] >= sequence)
		return;
	member->reached[op] = sequence;
	member->reached_ns[op] = time_ns;
}

void verdicts__call(struct verdicts *verdicts, const struct verdict_call *call)
{
	const struct verdict_member *member = &call->member;
	struct verdict_comm *comm = verdicts__comm(verdicts, member->hash, member->n_ranks);
	int32_t i = comm ? verdict_comm__index(comm, member) : -1;

	if (i < 0 || comm->members[i].has_left || (unsigned int)call->operation >= NCCL_OP_MAX)
		return;
	verdict_comm__active(comm, &comm->members[i], call->time_ns);
	comm->ranks[i].last_operation = call->operation;
	comm->ranks[i].last_sequence = call->captured ? VERDICT_NO_SEQUENCE : call->sequence;
	comm->ranks[i].last_ns = call->time_ns;
	if (call->captured || call->sequence == VERDICT_NO_SEQUENCE || !call->sequence)
		return;
	if (call->operation >= NCCL_OP_Send)
		return;
	member__reach(&comm->members[i], call->operation, call->sequence, call->time_ns);
	verdict_comm__arrive(comm, i, call);
}

void verdicts__reached(struct verdicts *verdicts, const struct verdict_member *member,
		       enum nccl_operation operation, uint64_t sequence, uint64_t now_ns)
{
	struct verdict_comm *comm = verdicts__comm(verdicts, member->hash, member->n_ranks);
	int32_t i = comm ? verdict_comm__index(comm, member) : -1;
	uint64_t before;

	if (i < 0 || comm->members[i].has_left || (unsigned int)operation >= NCCL_OP_Send ||
	    sequence == VERDICT_NO_SEQUENCE)
		return;
	before = comm->members[i].reached[operation];
	member__reach(&comm->members[i], operation, sequence, now_ns);
	if (before != VERDICT_NO_SEQUENCE && sequence > before)
		verdict_comm__active(comm, &comm->members[i], now_ns);
}

void verdicts__moved(struct verdicts *verdicts, const struct verdict_member *member,
		     uint64_t time_ns)
{
	struct verdict_comm *comm = verdicts__comm(verdicts, member->hash, member->n_ranks);
	int32_t i = comm ? verdict_comm__index(comm, member) : -1;

	if (i >= 0)
		verdict_comm__active(comm, &comm->members[i], time_ns);
}
