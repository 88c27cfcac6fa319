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

	if (comm->timed && comm->timed->n_columns < comm->n_columns)
		verdict_comm__free_timed(comm);
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

static void timed__sample(struct timed *timed, const struct verdict_comm *comm,
			  const struct timed_entry *entry, uint64_t now_ns)
{
	struct gpu_sample *sample = &timed->samples[timed->n_samples % GPU_SAMPLES];
	uint64_t starts[MAX_MEMBERS], durations[MAX_MEMBERS], first_ns, lateness_ns;
	const struct timed_rank *last = NULL;
	uint32_t n = 0, column = 0;
	int op = entry->operation;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct timed_rank *rank = timed__rank(timed, entry, comm->members[i].column);

		if (comm->members[i].has_left)
			continue;
		if (!rank->start_ns)
			return;
		starts[n] = rank->start_ns;
		durations[n++] = rank->duration_ns;
		if (last && rank->start_ns <= last->start_ns)
			continue;
		last = rank;
		column = comm->members[i].column;
	}
	if (n < 2)
		return;
	first_ns = select__nth(starts, n, 0);
	lateness_ns = last->start_ns - select__nth(starts, n, (n - 1) / 2);
	/* the median rank must have been in its kernel for most of that longer than the last */
	if (lateness_ns < LATE_NS ||
	    since(select__nth(durations, n, n / 2), last->duration_ns) < lateness_ns / 2)
		lateness_ns = 0;
	*sample = (struct gpu_sample){
		.time_ns = now_ns,
		.operation = entry->operation,
		.sequence = entry->sequence,
		.lateness_ns = lateness_ns,
		.column = column,
	};
	if (timed->last_sequence[op] && entry->sequence > timed->last_sequence[op])
		sample->interval_ns = since(first_ns, timed->last_start_ns[op]) /
				      (entry->sequence - timed->last_sequence[op]);
	timed->last_sequence[op] = entry->sequence;
	timed->last_start_ns[op] = first_ns;
	timed->n_samples += sample->interval_ns > 0;
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
	timed__sample(timed, comm, entry, now_ns);
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

/* ---- what follows ---- */

#define SAMPLES_NS (30 * NSEC_PER_SEC)
#define SPAN_NS	   (4500 * NSEC_PER_MSEC)

/* The recent samples at which somebody was waited for, newest first. */
struct samples {
	const struct gpu_sample *late[GPU_SAMPLES];
	uint32_t n, n_late;
	double interval_ns; /* mean of all */
};

static struct samples timed__samples(const struct timed *timed, uint64_t now_ns)
{
	struct samples s = {};

	for (uint64_t k = 1; k <= timed->n_samples && k < GPU_SAMPLES; k++) {
		const struct gpu_sample *sample =
			&timed->samples[(timed->n_samples - k) % GPU_SAMPLES];

		if (since(now_ns, sample->time_ns) > (s.n < 16 ? HABIT_NS : SAMPLES_NS))
			break;
		s.n++;
		s.interval_ns += sample->interval_ns;
		if (sample->lateness_ns)
			s.late[s.n_late++] = sample;
	}
	s.interval_ns /= s.n ? s.n : 1;
	return s;
}

static bool samples__blame(const struct samples *s, uint32_t column)
{
	double series[GPU_SAMPLES], mean = 0, waste = 0;
	uint32_t n_own = 0;

	for (uint32_t i = 0; i < s->n_late; i++) {
		bool is_own = s->late[i]->column == column;

		series[i] =
			is_own ? (double)s->late[i]->lateness_ns : -(double)s->late[i]->lateness_ns;
		n_own += is_own;
		waste += is_own ? series[i] : 0;
	}
	waste /= s->n * s->interval_ns;
	if (n_own * 10 < s->n_late * 8 || !doubles__beyond_chance(series, s->n_late, &mean))
		return false;
	return waste >= 0.05 || (mean >= 10 * NSEC_PER_MSEC && waste >= 0.02);
}

bool verdict_comm__find_late_on_gpu(const struct verdict_comm *comm, uint64_t now_ns,
				    struct finding *ret, bool *ret_known)
{
	struct samples s;
	uint32_t column;

	*ret_known = false;
	if (!comm->timed)
		return false;
	s = timed__samples(comm->timed, now_ns);
	*ret_known = s.n >= GPU_SAMPLES / 2;
	if (s.n_late < 10 || since(s.late[0]->time_ns, s.late[s.n_late - 1]->time_ns) < SPAN_NS ||
	    since(now_ns, s.late[0]->time_ns) >
		    SPAN_NS + 3 * (s.late[0]->time_ns - s.late[9]->time_ns) / 9)
		return false;
	column = s.late[0]->column;
	if (!samples__blame(&s, column)) {
		column = s.late[1]->column;
		if (!samples__blame(&s, column))
			return false;
	}
	*ret = (struct finding){
		.state = VERDICT_STRAGGLER,
		.cause = VERDICT_LATE_ON_GPU,
		.since_ns = s.late[s.n_late - 1]->time_ns,
		.operation = s.late[0]->operation,
		.sequence = s.late[0]->sequence,
	};
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!comm->members[i].has_left)
			rank_set__add(comm->members[i].column == column ? &ret->culprits
									: &ret->waiting,
				      i);
	}
	return true;
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
