/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Late is only who is waited for. Where ranks wait for one another, the others come to the next
 * step the later, the later the late rank came to this one: over a step, their interval grows with
 * its lateness (slope 1). Where they do not (hosts that run ahead of their GPUs, or ranks that
 * drift), their interval knows nothing of its lateness (slope 0; 1/2 where each is only imprecise
 * about its own pace). Where noise leaves that open, how the lateness varies from slice to slice
 * may tell: begun anew at every step, it has von Neumann's ratio near 2; where it wanders, near 0.
 */
#include <math.h>
#include <string.h>

#include "verdict_private.h"

#define MIN_STEPS 20 /* fewer, and a random walk looks as if it began anew */
#define MAX_LAG	  24

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
		m.variance += (values[i] - m.mean) * (values[i] - m.mean) / (n > 1 ? n - 1 : 1);
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

double doubles__von_neumann(const double *values, uint32_t n)
{
	struct moments m = moments__of(values, n);
	double sum = 0;

	for (uint32_t i = 0; i + 1 < n; i++)
		sum += (values[i + 1] - values[i]) * (values[i + 1] - values[i]) / (n - 1);
	return m.variance > 0 ? sum / m.variance : 2;
}

double doubles__nth(double *values, uint32_t n, uint32_t k)
{
	int low = 0, high = n - 1, place = k;

	while (low < high) {
		double pivot = values[place], value;
		int i = low, j = high;

		do {
			while (values[i] < pivot)
				i++;
			while (pivot < values[j])
				j--;
			if (i > j)
				break;
			value = values[i];
			values[i++] = values[j];
			values[j--] = value;
		} while (i <= j);
		if (j < place)
			low = i;
		if (place < i)
			high = j;
	}
	return values[place];
}

/* The others' intervals from each point to the one `lag` later; points are newest first. */
static uint32_t points__intervals(const struct points *p, uint32_t lag, double *ret)
{
	for (uint32_t i = lag; i < p->n; i++)
		ret[i - lag] = p->others[i - lag] - p->others[i];
	return p->n - lag;
}

/*
 * Only where it is late is it waited for: at the other numbers of a step, others may be the last.
 * Choosing by lateness does not bend the slope over lateness.
 */
static struct points points__late(const struct points *p)
{
	double sorted[MAX_POINTS], least;
	struct points late = {};

	if (!p->n)
		return late;
	memcpy(sorted, p->lateness, p->n * sizeof(*sorted));
	least = fmax(0.3 * doubles__nth(sorted, p->n, p->n - 1 - p->n / 20), LATE_NS);
	for (uint32_t i = 0; i < p->n; i++) {
		if (p->lateness[i] < least)
			continue;
		late.lateness[late.n] = p->lateness[i];
		late.others[late.n++] = p->others[i];
	}
	return late;
}

/* But for the greatest and the least fortieth: pauses are few, the ends of steps are not. */
static struct moments moments__of_most(double *values, uint32_t n)
{
	double low = doubles__nth(values, n, n / 40),
	       high = doubles__nth(values, n, n - 1 - n / 40);

	for (uint32_t i = 0; i < n; i++)
		values[i] = fmin(fmax(values[i], low), high);
	return moments__of(values, n);
}

/* The changes of lateness over so many points. */
static uint32_t points__changes(const struct points *p, uint32_t lag, double *ret)
{
	for (uint32_t i = lag; i < p->n; i++)
		ret[i - lag] = p->lateness[i - lag] - p->lateness[i];
	return p->n - lag;
}

/* How many points make a step: the lag at which intervals and lateness vary least. */
static uint32_t points__lag(const struct points *p, double *ret_step_ns)
{
	double values[MAX_POINTS], best = 0;
	uint32_t best_lag = 1;

	*ret_step_ns = 0;
	for (uint32_t lag = 1; lag <= MAX_LAG && lag * 8 <= p->n; lag++) {
		uint32_t n = points__intervals(p, lag, values);
		struct moments m = moments__of_most(values, n);
		double variance = m.variance;

		points__changes(p, lag, values);
		variance += moments__of_most(values, n).variance;
		if (lag > 1 && variance >= best * 0.5)
			continue;
		best = variance;
		best_lag = lag;
		*ret_step_ns = m.mean;
	}
	return best_lag;
}

double points__step_ns(const struct points *p)
{
	struct points late = points__late(p);
	double step_ns;

	points__lag(&late, &step_ns);
	return step_ns;
}

/* Those at one place in the step; the median is returned. */
static double doubles__place(const double *values, uint32_t n, uint32_t place, uint32_t lag,
			     double *ret, uint32_t *ret_n)
{
	*ret_n = 0;
	for (uint32_t i = place; i < n; i += lag)
		ret[(*ret_n)++] = values[i];
	return doubles__nth(ret, *ret_n, *ret_n / 2);
}

/*
 * Points at one place in the step are compared with one another: each has the usual taken off. A
 * pause of the whole job, or one hiccup, must not weigh more than all the rest.
 */
static void doubles__level(double *values, uint32_t n, uint32_t lag)
{
	for (uint32_t place = 0; place < lag; place++) {
		double at_place[MAX_POINTS], usual, limit;
		uint32_t n_place;

		usual = doubles__place(values, n, place, lag, at_place, &n_place);
		for (uint32_t i = 0; i < n_place; i++)
			at_place[i] = fabs(at_place[i] - usual);
		limit = 6 * doubles__nth(at_place, n_place, n_place / 2);
		for (uint32_t i = place; i < n; i += lag)
			values[i] = fmin(fmax(values[i] - usual, -limit), limit);
	}
}

/* Likewise, and nothing is left of the places at which the rank is not late. */
static void doubles__silence(double *lateness, uint32_t n, uint32_t lag)
{
	double at_place[MAX_POINTS], usual[MAX_LAG], most = 0;
	uint32_t n_place;

	for (uint32_t place = 0; place < lag; place++) {
		usual[place] = doubles__place(lateness, n, place, lag, at_place, &n_place);
		most = fmax(most, usual[place]);
	}
	doubles__level(lateness, n, lag);
	for (uint32_t i = 0; i < n; i++) {
		if (usual[i % lag] < 0.3 * most)
			lateness[i] = 0;
	}
}

/*
 * Standard error of the slope by Newey and West: lateness and what is left may vary differently
 * from place to place, and intervals of a step overlap within it.
 */
static double slope__error(const double *lateness, const double *rest, uint32_t n, uint32_t lag,
			   double sum_squares)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t j = i; j < n && j < i + lag; j++)
			sum += (i == j ? 1 : 2.0 * (lag - (j - i)) / lag) * lateness[i] * rest[i] *
			       lateness[j] * rest[j];
	}
	return sqrt(fmax(sum, 0)) / sum_squares * (1 + 3.0 * lag / n);
}

/* How the others' interval over a step grows with the lateness. */
struct slope {
	double value, error;
	bool is_known;
};

static struct slope points__slope(const struct points *p)
{
	double lateness[MAX_POINTS], intervals[MAX_POINTS], ll = 0, ld = 0, step_ns;
	uint32_t lag = points__lag(p, &step_ns), n = points__intervals(p, lag, intervals);
	struct slope slope = {};

	if (p->n < lag || n < MIN_STEPS * lag)
		return slope;
	memcpy(lateness, p->lateness + lag, n * sizeof(*lateness));
	doubles__silence(lateness, n, lag);
	doubles__level(intervals, n, lag);
	for (uint32_t i = 0; i < n; i++) {
		ll += lateness[i] * lateness[i];
		ld += lateness[i] * intervals[i];
	}
	if (ll <= 0)
		return slope;
	slope.is_known = true;
	slope.value = ld / ll;
	for (uint32_t i = 0; i < n; i++)
		intervals[i] -= slope.value * lateness[i];
	slope.error = slope__error(lateness, intervals, n, lag, ll);
	return slope;
}

static enum waited slope__judge(const struct slope *slope)
{
	double low = slope->value - 2 * slope->error, high = slope->value + 2 * slope->error;

	if (!slope->is_known)
		return WAITED_UNKNOWN;
	if (low >= 0.6 && slope->value >= 0.75 && low <= 1.3 && slope->error <= 0.35)
		return WAITED_YES;
	if (high <= 0.9)
		return WAITED_NO;
	return slope->value >= 0.5 && slope->error < 1 ? WAITED_MAYBE : WAITED_UNKNOWN;
}

/* By all numbers, and by the late ones alone, which does not mind gaps: the surer counts. */
enum waited points__waited(const struct points *p)
{
	struct points late = points__late(p);
	struct slope by_all = points__slope(p), by_late = points__slope(&late);
	bool is_all = by_all.is_known && (!by_late.is_known || by_all.error < by_late.error);

	return slope__judge(is_all ? &by_all : &by_late);
}

/*
 * Where a rank's lateness hardly varies, the slope tells how exactly the others come and not
 * whether they wait. But who waits nearly all of the time comes to the next number just after the
 * late rank came to this one, and not before it.
 */
bool points__fill_time(const struct points *p)
{
	struct points late = points__late(p);
	uint32_t n_full = 0;

	for (uint32_t i = 1; i < late.n; i++) {
		double interval = late.others[i - 1] - late.others[i];

		n_full += late.lateness[i] >= 0.8 * interval && late.lateness[i] < interval;
	}
	return late.n > MIN_STEPS && n_full >= 0.9 * (late.n - 1);
}

bool points__add(struct points *p, const struct verdict_comm *comm, const uint64_t *row,
		 const struct rank_set *blamed, uint64_t since_ns)
{
	uint64_t base = 0, last_ns = 0;
	double sum = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];
		uint64_t time_ns = row[m->column];

		if (m->has_left)
			continue;
		if (!time_ns)
			return false;
		base = base ? base : time_ns;
		if (rank_set__has(blamed, m->column)) {
			last_ns = later(last_ns, time_ns);
			continue;
		}
		sum += (double)(int64_t)(time_ns - base);
		n++;
	}
	if (!n || p->n == MAX_POINTS || last_ns < since_ns)
		return false;
	/* doubles are exact to the nanosecond for a hundred days */
	p->others[p->n] = (double)base + sum / n;
	p->lateness[p->n] = (double)(int64_t)(last_ns - base) - sum / n;
	p->n++;
	return true;
}
