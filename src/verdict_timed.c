/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What GPU times tell of one number on all ranks of this node. Whose GPU starts last while the
 * others' already run: they wait in their kernels, so theirs take longer by just that. And the
 * transfer itself: the shortest of the ranks' times, in which nobody was waited for.
 */
#include <stdlib.h>
#include <string.h>

#include "verdict_private.h"

static uint32_t timed__cells(uint32_t n_columns)
{
	return sizeof(struct timed) / 8 + n_columns * TIMED_ENTRIES * 2;
}

void verdict_comm__free_timed(struct verdict_comm *comm)
{
	if (!comm->timed)
		return;
	verdict_comm__discharge(comm, timed__cells(comm->timed->n_columns));
	free(comm->timed->ranks);
	free(comm->timed);
	comm->timed = NULL;
}

static struct timed *verdict_comm__timed(struct verdict_comm *comm)
{
	uint32_t n = comm->room;
	struct timed *timed;

	if (comm->timed || !verdict_comm__charge(comm, timed__cells(n)))
		return comm->timed;
	timed = calloc(1, sizeof(*timed));
	if (timed)
		timed->ranks = calloc((size_t)n * TIMED_ENTRIES, sizeof(*timed->ranks));
	if (!timed || !timed->ranks) {
		free(timed);
		verdict_comm__discharge(comm, timed__cells(n));
		return NULL;
	}
	timed->n_columns = n;
	return comm->timed = timed;
}

static struct timed_rank *timed__rank(const struct timed *timed, const struct timed_entry *entry,
				      uint32_t column)
{
	return &timed->ranks[(entry - timed->entries) * (size_t)timed->n_columns + column];
}

/* ---- the transfer ---- */

/* That of the class; one not used for longest makes room. */
static struct transfer *timed__transfer(struct timed *timed, enum nccl_operation operation,
					uint64_t bytes, uint64_t now_ns)
{
	uint32_t size = 63 - __builtin_clzll(bytes);
	struct transfer *t, *oldest = &timed->transfers[0];

	for (uint32_t i = 0; i < SLOW_CLASSES; i++) {
		t = &timed->transfers[i];
		if (t->used_ns && t->operation == operation && t->size == size)
			return t;
		if (t->used_ns < oldest->used_ns)
			oldest = t;
	}
	*oldest = (struct transfer){.operation = operation, .size = size, .started_ns = now_ns};
	return oldest;
}

#define BUCKET_NS    (700 * NSEC_PER_MSEC)
#define USUAL_MIN    16	 /* buckets before there is a usual time */
#define USUAL_WEIGHT 128 /* of so many buckets, once there are */
#define SLOW_FACTOR  1.5

static uint32_t transfer__count_slow(const struct transfer *t, double factor)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < SLOW_BUCKETS; i++)
		n += t->bucket_ns[i] >= factor * t->usual_ns;
	return n;
}

static uint64_t transfer__first_slow(const struct transfer *t)
{
	uint64_t first_ns = ~0ULL;

	for (uint32_t i = 0; i < SLOW_BUCKETS; i++) {
		if (t->bucket_ns[i] >= SLOW_FACTOR * t->usual_ns && t->bucket_end_ns[i] < first_ns)
			first_ns = t->bucket_end_ns[i];
	}
	return first_ns;
}

/* What is not recent any more is the past; what was slow is not how it should be. */
static void transfer__learn(struct transfer *t, double ns)
{
	uint64_t weight = t->n_usual < USUAL_WEIGHT ? ++t->n_usual : USUAL_WEIGHT;

	if (t->is_slow)
		weight *= 8;
	t->usual_ns += (ns - t->usual_ns) / weight;
}

static void transfer__add(struct transfer *t, uint64_t duration_ns, uint64_t now_ns)
{
	double *bucket = &t->bucket_ns[t->n_buckets % SLOW_BUCKETS];

	t->used_ns = now_ns;
	t->sum_ns += duration_ns;
	t->n_sum++;
	if (since(now_ns, t->started_ns) < BUCKET_NS)
		return;
	if (t->n_buckets >= SLOW_BUCKETS)
		transfer__learn(t, *bucket);
	*bucket = t->sum_ns / t->n_sum;
	t->bucket_end_ns[t->n_buckets % SLOW_BUCKETS] = now_ns;
	t->n_buckets++;
	t->sum_ns = t->n_sum = 0;
	t->started_ns = now_ns;
	if (t->n_usual < USUAL_MIN)
		return;
	if (!t->is_slow && transfer__count_slow(t, SLOW_FACTOR) >= SLOW_BUCKETS * 3 / 4) {
		t->is_slow = true;
		t->first_ns = transfer__first_slow(t);
	} else if (t->is_slow && transfer__count_slow(t, 1.3) < SLOW_BUCKETS / 2) {
		t->is_slow = false;
	}
}

/* ---- lateness ---- */

/*
 * Where others wait, their kernels take longer than that of the last to start by most of its
 * lateness. When not every number is timed, one stands for all since the one before it.
 */
static void verdict_comm__meet_on_gpu(struct verdict_comm *comm, const struct timed_entry *entry)
{
	uint64_t *last_sequence = &comm->timed->last_sequence[entry->operation];
	struct meeting meeting = {.first_ns = ~0ULL, .weight = 1};
	double durations[MAX_MEMBERS];
	uint64_t last_duration_ns = 0;
	uint32_t n = 0, last = 0;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct timed_rank *rank =
			timed__rank(comm->timed, entry, comm->members[i].column);

		if (comm->members[i].has_left)
			continue;
		if (!rank->start_ns)
			return;
		meeting.times_ns[i] = rank->start_ns;
		durations[n++] = rank->duration_ns;
		if (rank->start_ns < meeting.first_ns)
			meeting.first_ns = rank->start_ns;
		if (rank->start_ns <= meeting.last_ns)
			continue;
		meeting.last_ns = rank->start_ns;
		last_duration_ns = rank->duration_ns;
		last = i;
	}
	if (n < 2)
		return;
	comm->members[last].late[LATE_ON_GPU].operation = entry->operation;
	comm->members[last].late[LATE_ON_GPU].sequence = entry->sequence;
	meeting.is_waited = since(doubles__nth(durations, n, n / 2), last_duration_ns) >=
			    (meeting.last_ns - meeting.first_ns) / 2;
	if (*last_sequence && entry->sequence > *last_sequence)
		meeting.weight = entry->sequence - *last_sequence < 64
					 ? entry->sequence - *last_sequence
					 : 64;
	*last_sequence = entry->sequence;
	verdict_comm__gather_lateness(comm, LATE_ON_GPU, &meeting);
}

static void verdict_comm__timed_all(struct verdict_comm *comm, const struct timed_entry *entry)
{
	struct timed *timed = comm->timed;
	uint64_t shortest_ns = ~0ULL, now_ns = later(comm->owner->now_ns, comm->active_ns);

	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct timed_rank *rank = timed__rank(timed, entry, comm->members[i].column);

		if (comm->members[i].has_left)
			continue;
		if (rank->duration_ns < shortest_ns)
			shortest_ns = rank->duration_ns;
	}
	if (entry->bytes)
		transfer__add(timed__transfer(timed, entry->operation, entry->bytes, now_ns),
			      shortest_ns, now_ns);
	verdict_comm__meet_on_gpu(comm, entry);
}

void verdicts__timed(struct verdicts *verdicts, const struct verdict_timed *told)
{
	uint32_t i;
	struct verdict_comm *comm = verdicts__member(verdicts, &told->member, &i);
	struct timed *timed = comm ? verdict_comm__timed(comm) : NULL;
	struct timed_entry *entry;
	struct timed_rank *rank;

	if (!timed || (unsigned int)told->operation >= N_COLLECTIVES || !told->sequence ||
	    told->sequence == VERDICT_NO_SEQUENCE || !told->duration_ns)
		return;
	comm->members[i].done[told->operation] =
		later(comm->members[i].done[told->operation], told->sequence);
	entry = &timed->entries[(told->sequence + 5 * told->operation) % TIMED_ENTRIES];
	if (entry->operation != told->operation || entry->sequence != told->sequence) {
		*entry = (struct timed_entry){
			.operation = told->operation,
			.sequence = told->sequence,
			.bytes = told->bytes,
		};
		memset(timed__rank(timed, entry, 0), 0, timed->n_columns * sizeof(*rank));
	}
	rank = timed__rank(timed, entry, comm->members[i].column);
	if (rank->duration_ns)
		return;
	rank->start_ns = told->gpu_start_ns;
	rank->duration_ns = told->duration_ns;
	if (++entry->n_came == comm->n_living)
		verdict_comm__timed_all(comm, entry);
}

bool verdict_comm__find_slow(struct verdict_comm *comm, uint64_t now_ns, struct finding *ret)
{
	const struct transfer *slow = NULL;

	for (uint32_t i = 0; comm->timed && i < SLOW_CLASSES; i++) {
		const struct transfer *t = &comm->timed->transfers[i];

		if (t->is_slow && since(now_ns, t->used_ns) < MIN_IDLE_NS &&
		    (!slow || t->first_ns < slow->first_ns))
			slow = t;
	}
	if (!slow)
		return false;
	*ret = (struct finding){
		.state = VERDICT_SLOW,
		.cause = VERDICT_SLOW_TRANSFER,
		.since_ns = slow->first_ns,
		.operation = slow->operation,
		.sequence = VERDICT_NO_SEQUENCE,
	};
	return true;
}
