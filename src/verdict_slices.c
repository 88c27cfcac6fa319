/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the slices say of a rank: in how many it is late, how much, and whether by chance. */
#include <math.h>

#include "verdict_private.h"

const struct slice *late__last_slice(const struct late *late)
{
	return &late->slices[(late->n_slices - 1) % LATE_SLICES];
}

struct window window__of(const struct verdict_comm *comm, const struct late *late, uint32_t scale)
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

uint64_t window__start_ns(const struct window *w, uint32_t k)
{
	return w->late->slices[window__first(w, k) % LATE_SLICES].start_ns;
}

uint64_t window__duration_ns(const struct window *w, uint32_t k)
{
	uint64_t last = window__first(w, k) + w->scale - 1;

	return since(w->late->slices[last % LATE_SLICES].end_ns, window__start_ns(w, k));
}

uint64_t window__waste_ns(const struct window *w, uint32_t k, uint32_t column)
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
uint64_t window__limit_ns(const struct window *w, uint32_t k)
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
uint32_t window__count(const struct window *w, uint32_t column, uint32_t n, uint32_t per)
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

double window__share(const struct window *w, uint32_t column, uint32_t n)
{
	double series[MAX_SLICES], sum = 0;

	window__series(w, column, n, series);
	for (uint32_t k = 0; k < n; k++)
		sum += series[k];
	return sum / n;
}

bool window__is_significant(const struct window *w, uint32_t column, double *ret_waste)
{
	double series[MAX_SLICES];

	window__series(w, column, w->n, series);
	return doubles__beyond_chance(series, w->n, ret_waste);
}

/* Of the time that others lose to it, in the n newest. */
static double window__mean(const struct window *w, uint32_t column, uint32_t n)
{
	double waste_ns = 0, duration_ns = 1;

	for (uint32_t k = 0; k < n && k < w->n; k++) {
		waste_ns += window__waste_ns(w, k, column);
		duration_ns += window__duration_ns(w, k);
	}
	return waste_ns / duration_ns;
}

/* Of how many slices, up to the newest, is it late in four of five, and never twice not,
 * and nearly as late as it is now? */
uint32_t window__streak(const struct window *w, uint32_t column)
{
	double least = 0.3 * window__mean(w, column, 5);
	uint32_t n_late = 0, streak = 0;

	for (uint32_t k = 0; k < w->n && k < streak + 2; k++) {
		uint64_t waste_ns = window__waste_ns(w, k, column);
		bool is_late = waste_ns >= window__limit_ns(w, k) &&
			       waste_ns >= least * window__duration_ns(w, k);

		n_late += is_late;
		if (is_late && n_late * 5 >= (k + 1) * 4)
			streak = k + 1;
	}
	return streak;
}

/* By how much it was later than the others in the mean, slice by slice. */
void window__lateness(const struct window *w, uint32_t column, uint32_t n, double *ret_us)
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
