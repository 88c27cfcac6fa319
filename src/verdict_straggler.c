/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who comes last again and again, judged by host calls: whoever keeps its peers waiting for a share
 * of the time that matters, in nearly all of the recent slices, by more than chance does.
 */
#include <math.h>

#include "verdict_private.h"

#define MIN_SLICES    10
#define MAX_SLICES    32
#define MIN_STREAK_NS (4500 * NSEC_PER_MSEC)
#define LONG_NS	      (120 * NSEC_PER_SEC)

/* The newest closed slices, `scale` of them taken together: so that each has a whole step. */
struct window {
	const struct verdict_comm *comm;
	const struct late *late;
	uint32_t scale, n;
};

static struct window window__of(const struct verdict_comm *comm, const struct late *late,
				uint32_t scale)
{
	uint64_t n = late->n_slices < LATE_SLICES ? late->n_slices : LATE_SLICES - 1;

	n /= scale;
	return (struct window){comm, late, scale, n < MAX_SLICES ? n : MAX_SLICES};
}

/* The first of those that make up the k-th newest (0: the newest). */
static uint64_t window__first(const struct window *w, uint32_t k)
{
	return w->late->n_slices - (uint64_t)(k + 1) * w->scale;
}

static uint64_t window__start_ns(const struct window *w, uint32_t k)
{
	return w->late->slices[window__first(w, k) % LATE_SLICES].start_ns;
}

static uint64_t window__duration_ns(const struct window *w, uint32_t k)
{
	uint64_t last = window__first(w, k) + w->scale - 1;

	return since(w->late->slices[last % LATE_SLICES].end_ns, window__start_ns(w, k));
}

static uint64_t window__waste_ns(const struct window *w, uint32_t k, uint32_t column)
{
	uint64_t first = window__first(w, k), sum_us = 0;

	for (uint32_t i = 0; i < w->scale; i++)
		sum_us +=
			w->late->waste_us[(first + i) % LATE_SLICES * w->late->n_columns + column];
	return sum_us * 1000;
}

/*
 * What a rank must exceed to be late in that slice: a twentieth of the time, or ten milliseconds
 * and a fiftieth; and four times what all but a quarter of the ranks are late by.
 */
static uint64_t window__limit_ns(const struct window *w, uint32_t k)
{
	uint64_t duration_ns = window__duration_ns(w, k), limit_ns = duration_ns / 50, others_ns;
	double wastes[MAX_MEMBERS];
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->comm->n_members; i++) {
		if (!w->comm->members[i].has_left)
			wastes[n++] = window__waste_ns(w, k, w->comm->members[i].column);
	}
	if (limit_ns < 10 * NSEC_PER_MSEC)
		limit_ns = 10 * NSEC_PER_MSEC;
	if (limit_ns > duration_ns / 20)
		limit_ns = duration_ns / 20;
	others_ns = n > 1 ? 4 * doubles__nth(wastes, n, n - 1 - (n < 8 ? 1 : n / 4)) : ~0ULL;
	return later(limit_ns, others_ns);
}

/* Of the n newest slices, in how many is it late? With `per` a hundred the limit is the usual one.
 */
static uint32_t window__count(const struct window *w, uint32_t column, uint32_t n, uint32_t per)
{
	uint32_t n_late = 0;

	for (uint32_t k = 0; k < n; k++)
		n_late += window__waste_ns(w, k, column) * 100 >= window__limit_ns(w, k) * per;
	return n_late;
}

/* Share of the time that others lose by this rank more than by the others, slice by slice. */
static void window__series(const struct window *w, uint32_t column, uint32_t n, double *ret)
{
	for (uint32_t k = 0; k < n; k++) {
		double own = window__waste_ns(w, k, column), others = 0;
		uint32_t n_others = 0;

		for (uint32_t i = 0; i < w->comm->n_members; i++) {
			const struct member *m = &w->comm->members[i];

			if (m->has_left || m->column == column)
				continue;
			others += window__waste_ns(w, k, m->column);
			n_others++;
		}
		ret[k] = (own - others / (n_others ? n_others : 1)) /
			 later(window__duration_ns(w, k), 1);
	}
}

static bool window__is_significant(const struct window *w, uint32_t column, double *ret_waste)
{
	double series[MAX_SLICES];

	window__series(w, column, w->n, series);
	return doubles__beyond_chance(series, w->n, ret_waste);
}

/* ---- the verdict ---- */

static const struct slice *late__last_slice(const struct late *late)
{
	return &late->slices[(late->n_slices - 1) % LATE_SLICES];
}

/* The numbers since then, newest first. */
static struct points window__points(const struct window *w, uint32_t column, uint64_t since_ns)
{
	const struct late *late = w->late;
	struct points p = {};

	for (uint64_t k = 1; k <= late->n_numbers && k <= LATE_NUMBERS; k++) {
		const uint64_t *row = late->numbers + (late->n_numbers - k) % LATE_NUMBERS *
							      (size_t)late->n_columns;

		if (row[column] < since_ns ||
		    !points__add(&p, w->comm, row, column, &late->culprits))
			break;
	}
	return p;
}

/* Of how many slices, up to the newest, is it late in four of five, and never twice not? */
static uint32_t window__streak(const struct window *w, uint32_t column)
{
	uint32_t n_late = 0, streak = 0;

	for (uint32_t k = 0; k < w->n && k < streak + 2; k++) {
		bool is_late = window__waste_ns(w, k, column) >= window__limit_ns(w, k);

		n_late += is_late;
		if (is_late && n_late * 5 >= (k + 1) * 4)
			streak = k + 1;
	}
	return streak;
}

/* By how much it was later than the others in the mean, slice by slice. */
static void window__lateness(const struct window *w, uint32_t column, uint32_t n, double *ret_us)
{
	for (uint32_t k = 0; k < n; k++) {
		double own = 0, others = 0, n_numbers = 0;

		for (uint32_t s = 0; s < w->scale; s++) {
			uint64_t slice = (window__first(w, k) + s) % LATE_SLICES;
			const uint64_t *row = w->late->late_us + slice * w->late->n_columns;

			n_numbers += w->late->slices[slice].n_numbers;
			own += row[column];
			for (uint32_t c = 0; c < w->comm->n_columns; c++)
				others += c == column ? 0 : row[c];
		}
		ret_us[k] = (own - others / (w->comm->n_living - 1)) / fmax(n_numbers, 1);
	}
}

/*
 * Noise may hide whether others wait; then how the lateness varies from slice to slice tells. Of a
 * random walk that is buried in noise only time tells: it does not keep to one side.
 */
static enum waited window__is_waited_for(const struct window *w, uint32_t column, uint32_t streak)
{
	struct points p = window__points(w, column, window__start_ns(w, streak - 1));
	enum waited waited = points__waited(&p);
	double lateness_us[MAX_SLICES], ratio;

	if (waited == WAITED_YES || waited == WAITED_NO || streak < 20)
		return waited;
	window__lateness(w, column, streak, lateness_us);
	ratio = doubles__von_neumann(lateness_us, streak);
	if (ratio < 0.5)
		return WAITED_NO;
	if (waited == WAITED_MAYBE)
		return ratio >= (streak < 28 ? 1.4 : 1.2) ? WAITED_YES : WAITED_UNKNOWN;
	return streak == MAX_SLICES && ratio >= 1.4 ? WAITED_YES : WAITED_UNKNOWN;
}

/* It was late just now, and not only some time ago. */
static bool late__is_late_now(const struct late *late, const struct verdict_comm *comm,
			      uint32_t column, uint32_t n)
{
	struct window w = window__of(comm, late, 1);

	return window__count(&w, column, n < w.n ? n : w.n, 50) > 0;
}

static bool window__is_straggler(const struct window *w, uint32_t column, double *ret_waste)
{
	uint32_t streak;

	if (rank_set__has(&w->late->culprits, column)) {
		if (w->scale != w->late->scale)
			return false;
		window__is_significant(w, column, ret_waste);
		return late__is_late_now(w->late, w->comm, column, MIN_SLICES) &&
		       window__count(w, column, MIN_SLICES, 50) >= MIN_SLICES / 2;
	}
	streak = window__streak(w, column);
	if (streak < MIN_SLICES * 8 / 10 ||
	    window__count(w, column, MIN_SLICES, 100) < MIN_SLICES * 8 / 10 ||
	    !late__is_late_now(w->late, w->comm, column, w->scale + 1) ||
	    !window__is_significant(w, column, ret_waste))
		return false;
	switch (window__is_waited_for(w, column, streak)) {
	case WAITED_YES:
		return true;
	case WAITED_UNKNOWN:
	case WAITED_MAYBE:
		return streak == MAX_SLICES &&
		       since(late__last_slice(w->late)->end_ns, window__start_ns(w, streak - 1)) >=
			       LONG_NS &&
		       window__count(w, column, streak, 100) * 20 >= streak * 19;
	default:
		return false;
	}
}

/* A slice is to hold a step. Only where somebody is late is it worth looking. */
static void late__fit_slices(struct late *late, const struct verdict_comm *comm)
{
	struct window w = window__of(comm, late, 1);
	uint64_t limit_ns = window__duration_ns(&w, 0) / 50;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint32_t column = comm->members[i].column;
		struct points p;
		double step_ns;

		if (comm->members[i].has_left || window__waste_ns(&w, 0, column) < limit_ns)
			continue;
		p = window__points(&w, column, 0);
		step_ns = points__step_ns(&p) * 0.9;
		late->slice_ns = step_ns > MIN_SLICE_NS && step_ns < 60.0 * NSEC_PER_SEC
					 ? step_ns
					 : MIN_SLICE_NS;
		return;
	}
}

/* Who is late in many of the last slices, or in some, be it for what it may. */
static void late__suspect(struct late *late, const struct verdict_comm *comm)
{
	struct window w = window__of(comm, late, 1);
	uint32_t n = w.n < MIN_SLICES ? w.n : MIN_SLICES;
	uint64_t waste_ns[MAX_MEMBERS] = {};
	uint8_t n_late[MAX_MEMBERS] = {};

	for (uint32_t k = 0; k < n; k++) {
		uint64_t limit_ns = window__limit_ns(&w, k) / 2;

		for (uint32_t c = 0; c < comm->n_columns; c++) {
			n_late[c] += window__waste_ns(&w, k, c) >= limit_ns;
			waste_ns[c] += window__waste_ns(&w, k, c);
		}
	}
	late->suspects = late->unpunctual = (struct rank_set){};
	for (uint32_t c = 0; c < comm->n_columns; c++) {
		if (n_late[c] * 10 >= n * 4)
			rank_set__add(&late->suspects, c);
		if (n_late[c] * 10 >= n * 2)
			rank_set__add(&late->unpunctual, c);
		late->shares[c] = (float)waste_ns[c] / later(since(late__last_slice(late)->end_ns,
								   window__start_ns(&w, n - 1)),
							     1);
	}
}

static void late__evaluate(struct late *late, const struct verdict_comm *comm)
{
	struct rank_set culprits = {};
	uint64_t since_ns = ~0ULL;

	late__fit_slices(late, comm);
	late__suspect(late, comm);
	for (uint32_t scale = 1; scale <= LATE_SLICES / MIN_SLICES; scale *= 2) {
		struct window w = window__of(comm, late, scale);

		if (w.n < MIN_SLICES)
			break;
		if (since(late->slices[(late->n_slices - 1) % LATE_SLICES].end_ns,
			  window__start_ns(&w, MIN_SLICES - 1)) < MIN_STREAK_NS)
			continue;
		for (uint32_t i = 0; i < comm->n_members; i++) {
			uint32_t column = comm->members[i].column;
			uint64_t start_ns;

			if (comm->members[i].has_left || rank_set__has(&culprits, column) ||
			    !window__is_straggler(&w, column, &late->waste))
				continue;
			if (!rank_set__count(&late->culprits))
				late->scale = scale;
			rank_set__add(&culprits, column);
			start_ns = window__start_ns(&w, later(window__streak(&w, column), 1) - 1);
			since_ns = start_ns < since_ns ? start_ns : since_ns;
			late->share = (double)window__count(&w, column, w.n, 100) / w.n;
		}
	}
	if (!rank_set__count(&late->culprits))
		late->since_ns = since_ns;
	late->culprits = culprits;
}

bool late__is_recent(const struct late *late, uint64_t now_ns)
{
	const struct slice *last;

	if (!late || late->n_slices < 3)
		return false;
	last = late__last_slice(late);
	return since(now_ns, last->end_ns) <= 3 * (last->end_ns - last->start_ns) + MIN_IDLE_NS;
}

bool verdict_comm__find_straggler(struct verdict_comm *comm, enum late_sight sight, uint64_t now_ns,
				  struct finding *ret)
{
	struct late *late = comm->late[sight];

	if (comm->n_living < 2 || !late__is_recent(late, now_ns))
		return false;
	if (late->n_evaluated != late->n_slices)
		late__evaluate(late, comm);
	late->n_evaluated = late->n_slices;
	*ret = (struct finding){
		.state = VERDICT_STRAGGLER,
		.cause = sight == LATE_ON_GPU ? VERDICT_LATE_ON_GPU : VERDICT_LATE,
		.since_ns = late->since_ns,
		.operation = NCCL_OP_MAX,
		.sequence = VERDICT_NO_SEQUENCE,
	};
	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];

		if (m->has_left)
			continue;
		if (!rank_set__has(&late->culprits, m->column)) {
			rank_set__add(&ret->waiting, i);
			continue;
		}
		rank_set__add(&ret->culprits, i);
		if (ret->operation == NCCL_OP_MAX) {
			ret->operation = m->late[sight].operation;
			ret->sequence = m->late[sight].sequence;
		}
	}
	return rank_set__count(&ret->culprits);
}
