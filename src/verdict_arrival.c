/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who came when to each number. */
#include <stdlib.h>
#include <string.h>

#include "verdict_private.h"

#define CELLS_OF(type) ((sizeof(type) + 7) / 8)

bool verdict_comm__charge(struct verdict_comm *comm, uint32_t n_cells)
{
	struct verdicts *owner = comm->owner;

	if (owner->n_cells + n_cells > MAX_CELLS) {
		owner->refused += !comm->is_refused;
		comm->is_refused = true;
		return false;
	}
	owner->n_cells += n_cells;
	return true;
}

void verdict_comm__discharge(struct verdict_comm *comm, uint32_t n_cells)
{
	comm->owner->n_cells -= n_cells;
}

void verdict_comm__free_tracks(struct verdict_comm *comm)
{
	for (int op = 0; op < N_COLLECTIVES; op++) {
		struct track *track = comm->tracks[op];

		if (!track)
			continue;
		verdict_comm__discharge(comm, CELLS_OF(*track) + track->n_columns * RING_ENTRIES);
		free(track->arrivals);
		free(track);
		comm->tracks[op] = NULL;
	}
}

static void rank_set__move(struct rank_set *set, uint32_t from, uint32_t to)
{
	bool is_in = from != to && rank_set__has(set, from);

	rank_set__drop(set, from);
	rank_set__drop(set, to);
	if (is_in)
		rank_set__add(set, to);
}

/* What is gathered over time begins anew. */
void verdict_comm__move_column(struct verdict_comm *comm, uint32_t from, uint32_t to)
{
	for (int op = 0; op < N_COLLECTIVES; op++) {
		struct track *track = comm->tracks[op];

		for (uint32_t i = 0; track && i < RING_ENTRIES; i++) {
			uint64_t *row = track->arrivals + (size_t)i * track->n_columns;

			if (to < track->n_columns)
				row[to] = from < track->n_columns ? row[from] : 0;
			if (from < track->n_columns)
				row[from] = 0;
		}
	}
	rank_set__move(&comm->mismatch.with, from, to);
	rank_set__move(&comm->mismatch.against, from, to);
	verdict_comm__free_late(comm, LATE_ON_HOST);
	verdict_comm__free_late(comm, LATE_ON_GPU);
	verdict_comm__free_timed(comm);
}

/* A column for every member, and some for those that may come. */
static bool verdict_comm__widen(struct verdict_comm *comm, struct track *track)
{
	uint32_t n_columns = comm->room;
	uint64_t *arrivals;

	if (!verdict_comm__charge(comm, (n_columns - track->n_columns) * RING_ENTRIES))
		return false;
	arrivals = calloc((size_t)n_columns * RING_ENTRIES, sizeof(*arrivals));
	if (!arrivals) {
		verdict_comm__discharge(comm, (n_columns - track->n_columns) * RING_ENTRIES);
		return false;
	}
	for (size_t i = 0; i < RING_ENTRIES && track->n_columns; i++)
		memcpy(arrivals + i * n_columns, track->arrivals + i * track->n_columns,
		       track->n_columns * sizeof(*arrivals));
	free(track->arrivals);
	track->arrivals = arrivals;
	track->n_columns = n_columns;
	return true;
}

/* NULL: no room. */
static struct track *verdict_comm__track(struct verdict_comm *comm, enum nccl_operation op)
{
	struct track *track = comm->tracks[op];

	if (!track) {
		if (!verdict_comm__charge(comm, CELLS_OF(*track)))
			return NULL;
		track = calloc(1, sizeof(*track));
		if (!track) {
			verdict_comm__discharge(comm, CELLS_OF(*track));
			return NULL;
		}
		comm->tracks[op] = track;
	}
	if (track->n_columns < comm->n_columns && !verdict_comm__widen(comm, track))
		return NULL;
	return track;
}

struct entry *verdict_comm__entry(const struct verdict_comm *comm, enum nccl_operation operation,
				  uint64_t sequence)
{
	struct track *track = operation < N_COLLECTIVES ? comm->tracks[operation] : NULL;
	struct entry *entry = track ? &track->entries[sequence % RING_ENTRIES] : NULL;

	return entry && entry->sequence == sequence && sequence ? entry : NULL;
}

/* NULL: a number of long ago. */
static struct entry *verdict_comm__open(struct verdict_comm *comm, struct track *track,
					const struct verdict_call *call)
{
	struct entry *entry = &track->entries[call->sequence % RING_ENTRIES];

	if (entry->sequence == call->sequence)
		return entry;
	if (entry->sequence > call->sequence)
		return NULL;
	if (entry->n_against)
		entry__count_mismatch(comm, call->operation, entry);
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

static bool verdict_comm__all_came(const struct verdict_comm *comm, const struct track *track,
				   const struct entry *entry)
{
	uint32_t n = 0;

	if (entry->n_came < comm->n_living)
		return false;
	for (uint32_t i = 0; i < comm->n_members; i++)
		n += !comm->members[i].has_left &&
		     track__arrived(track, entry, comm->members[i].column);
	return n == comm->n_living;
}

#define LATENESS_NUMBERS 128

static void member__note_lateness(struct member *m, const struct entry *entry,
				  enum nccl_operation op, uint64_t lateness_ns, bool is_last)
{
	struct lateness *l = &m->lateness;

	if (l->n[0] == LATENESS_NUMBERS) {
		l->sum_ns[1] = l->sum_ns[0];
		l->most_ns[1] = l->most_ns[0];
		l->n[1] = l->n[0];
		l->n_last[1] = l->n_last[0];
		l->sum_ns[0] = l->most_ns[0] = l->n[0] = l->n_last[0] = 0;
	}
	l->sum_ns[0] += lateness_ns;
	l->most_ns[0] = later(l->most_ns[0], lateness_ns);
	l->n[0]++;
	l->n_last[0] += is_last;
	if (is_last) {
		m->late[LATE_ON_HOST].operation = op;
		m->late[LATE_ON_HOST].sequence = entry->sequence;
	}
}

static void verdict_comm__complete(struct verdict_comm *comm, enum nccl_operation op,
				   struct entry *entry)
{
	struct track *track = comm->tracks[op];
	uint64_t most_ns = entry->last_ns - entry->first_ns;
	struct meeting meeting;

	comm->n_compared++;
	if (most_ns >= NSEC_PER_SEC)
		habit__add(&track->lateness, most_ns, entry->last_ns);
	meeting.first_ns = entry->first_ns;
	meeting.last_ns = entry->last_ns;
	meeting.weight = meeting.is_waited = 1;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		struct verdict_rank *rank = &comm->ranks[i];
		uint64_t lateness_ns;
		bool is_last;

		meeting.times_ns[i] = 0;
		if (comm->members[i].has_left)
			continue;
		meeting.times_ns[i] =
			ARRIVAL_TIME(track__arrived(track, entry, comm->members[i].column));
		lateness_ns = meeting.times_ns[i] - entry->first_ns;
		is_last = lateness_ns > LATE_NS && lateness_ns == most_ns;
		rank->lateness_total_ns[op] += lateness_ns;
		rank->last_arrivals[op] += is_last;
		member__note_lateness(&comm->members[i], entry, op, lateness_ns, is_last);
		if (comm->owner->lateness_fn)
			comm->owner->lateness_fn(comm->owner->ctx, &rank->member, op, lateness_ns);
	}
	verdict_comm__gather_lateness(comm, LATE_ON_HOST, &meeting);
	if (entry->n_against)
		entry__count_mismatch(comm, op, entry);
	if (entry->first_ns > comm->lost_ns)
		comm->lost_ns = 0;
}

void verdict_comm__arrive(struct verdict_comm *comm, uint32_t index,
			  const struct verdict_call *call)
{
	struct track *track = verdict_comm__track(comm, call->operation);
	struct entry *entry = track ? verdict_comm__open(comm, track, call) : NULL;
	uint64_t *arrival;

	if (!entry)
		return;
	arrival = track__arrival(track, entry, comm->members[index].column);
	if (*arrival)
		return;
	*arrival = ARRIVAL_TIME(call->time_ns);
	entry->n_came++;
	if (call->time_ns < entry->first_ns)
		entry->first_ns = call->time_ns;
	entry->last_ns = later(entry->last_ns, call->time_ns);
	if (entry__compare(comm, entry, call, index))
		*arrival |= ARRIVAL_AGAINST;
	if (comm->n_living > 1 && verdict_comm__all_came(comm, track, entry))
		verdict_comm__complete(comm, call->operation, entry);
}
