/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Late is only who is waited for. Where ranks wait for one another, the peers' next call follows
 * the late rank's arrival: the later that, the longer their interval (slope 1), and its lateness
 * begins anew at every number. Where they do not (hosts that run ahead, or jobs that never wait),
 * the peers' interval knows nothing of the lateness (slope 0), which wanders instead.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verdict_private.h"

#define MIN_BURSTS 10

/* Mean and variance of a few values. */
struct moments {
	double mean, variance;
};

static struct moments moments__of(const double *values, uint32_t n)
{
	struct moments m = {};

	for (uint32_t i = 0; i < n; i++)
		m.mean += values[i] / n;
	for (uint32_t i = 0; i < n; i++)
		m.variance += (values[i] - m.mean) * (values[i] - m.mean) / (n - 1);
	return m;
}

bool doubles__beyond_chance(const double *values, uint32_t n, double *ret_mean)
{
	static const struct {
		uint32_t n;
		double t;
	} levels[] = {{10, 10}, {16, 7}, {32, 5.5}};

	for (uint32_t i = 0; i < ARRAY_SIZE(levels) && levels[i].n <= n; i++) {
		struct moments m = moments__of(values, levels[i].n);
		double t = levels[i].t;

		*ret_mean = m.mean;
		if (m.mean > 0 && m.mean * m.mean * levels[i].n > t * t * m.variance)
			return true;
	}
	return false;
}

/* Of the bursts, newest first: lateness of the rank, and the mean arrival of the others. */
struct bursts {
	double lateness[LATE_BURSTS], others[LATE_BURSTS];
	uint32_t n;
};

static bool late__burst(const struct verdict_comm *comm, const uint64_t *row, uint32_t column,
			double *ret_others, double *ret_lateness)
{
	const uint64_t base = comm->late->start_ns;
	double sum = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];

		if (m->has_left)
			continue;
		if (!row[m->column])
			return false;
		if (m->column == column || rank_set__has(&comm->late->culprits, m->column))
			continue;
		sum += (double)(int64_t)(row[m->column] - base);
		n++;
	}
	if (!n)
		return false;
	*ret_others = sum / n;
	*ret_lateness = (double)(int64_t)(row[column] - base) - *ret_others;
	return true;
}

static struct bursts late__bursts(const struct verdict_comm *comm, uint32_t column)
{
	const struct late *late = comm->late;
	struct bursts b = {};
	uint64_t n = late->n_bursts < LATE_BURSTS ? late->n_bursts : LATE_BURSTS - 1;

	for (uint64_t k = 1; k <= n; k++) {
		const uint64_t *row =
			late->arrivals + (late->n_bursts - k) % LATE_BURSTS * late->n_columns;

		if (!late__burst(comm, row, column, &b.others[b.n], &b.lateness[b.n]))
			break;
		b.n++;
	}
	return b;
}

static int double__compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double doubles__median(const double *values, uint32_t n)
{
	double sorted[LATE_BURSTS];

	memcpy(sorted, values, n * sizeof(*values));
	qsort(sorted, n, sizeof(*sorted), double__compare);
	return sorted[n / 2];
}

/* A pause of the whole job, or one hiccup, must not weigh more than all the rest. */
static void doubles__clamp(double *values, uint32_t n)
{
	double distances[LATE_BURSTS], median = doubles__median(values, n), limit;

	for (uint32_t i = 0; i < n; i++)
		distances[i] = fabs(values[i] - median);
	limit = 6 * doubles__median(distances, n);
	if (limit <= 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		values[i] = fmin(fmax(values[i], median - limit), median + limit);
}

/* Does the others' interval grow with the lateness? */
static enum waited bursts__slope(const double *lateness, const double *intervals, uint32_t n)
{
	struct moments l = moments__of(lateness, n), d = moments__of(intervals, n);
	double covariance = 0, slope, rest, error;

	if (n < MIN_BURSTS || l.variance <= 0)
		return WAITED_OPEN;
	for (uint32_t i = 0; i < n; i++)
		covariance += (lateness[i] - l.mean) * (intervals[i] - d.mean) / (n - 1);
	slope = covariance / l.variance;
	rest = fmax(d.variance - slope * covariance, 0);
	error = sqrt(rest / (l.variance * (n - 2)));
	if (error > 0.12)
		return WAITED_OPEN;
	return slope >= 0.75 ? WAITED_YES : slope <= 0.6 ? WAITED_NO : WAITED_OPEN;
}

/*
 * Von Neumann's ratio: mean square of successive differences by variance; 2 for values that know
 * nothing of one another, near 0 for a random walk.
 */
static double doubles__von_neumann(const double *values, uint32_t n)
{
	struct moments m = moments__of(values, n);
	double sum = 0;

	for (uint32_t i = 0; i + 1 < n; i++)
		sum += (values[i + 1] - values[i]) * (values[i + 1] - values[i]) / (n - 1);
	return m.variance > 0 ? sum / m.variance : 2;
}

enum waited verdict_comm__is_waited_for(const struct verdict_comm *comm, uint32_t column)
{
	struct bursts b = late__bursts(comm, column);
	double intervals[LATE_BURSTS];
	enum waited waited;

	if (b.n < MIN_BURSTS)
		return WAITED_OPEN;
	/* newest first: the interval after a burst ends with the one before it in the array */
	for (uint32_t i = 1; i < b.n; i++)
		intervals[i - 1] = b.others[i - 1] - b.others[i];
	doubles__clamp(b.lateness, b.n);
	doubles__clamp(intervals, b.n - 1);
	waited = bursts__slope(b.lateness + 1, intervals, b.n - 1);
	if (waited != WAITED_OPEN || b.n < 16)
		return waited;
	return doubles__von_neumann(b.lateness, b.n) >= 1.2 ? WAITED_YES : WAITED_OPEN;
}
