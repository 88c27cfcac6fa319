/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What plugins tell: in flight by communicator, GPU times by job and GPU. */
#include "textfile_private.h"

#define MAX_LABELS 7 /* of nccl_timed_... */

/* ---- communicators ---- */

const char *row__timing_name(const struct textfile_comm *row)
{
	const struct timing_comm *timing = row->timing;

	if (!timing || (!timing->n_timed && !timing->n_timers))
		return "none";
	return timing->n_timers ? "kernel_timer" : "cuda_event";
}

/* Those of which a launch was ever timed: of others nothing is known to be under way. */
bool row__in_flight(const struct textfile_comm *row, uint32_t *ret_n, uint64_t *ret_start_ns)
{
	if (!row->timing || !row->timing->n_timed)
		return false;
	*ret_n = timing_comm__in_flight(row->timing, ret_start_ns);
	return true;
}

void fill_in_flight(struct prom *prom, const struct textfile_source *src,
		    const struct textfile_comm *row)
{
	struct series s;
	uint64_t start_ns;
	uint32_t n;

	if (!row__in_flight(row, &n, &start_ns))
		return;
	series__of_comm(&s, prom, src, row);
	prom__sample_u64(prom, s.labels, n);
}

void fill_oldest_in_flight(struct prom *prom, const struct textfile_source *src,
			   const struct textfile_comm *row)
{
	uint64_t start_ns;
	uint32_t n;

	if (row__in_flight(row, &n, &start_ns) && n)
		fill_timestamp(prom, src, row, start_ns);
}

/* ---- jobs ---- */

/* Of a job that has launched nothing in the interval there is nothing to tell but its sums. */
static size_t job__n_series(const struct timing_job *job)
{
	double ratio;

	return timing_job__sample_ratio(job, &ratio) +
	       (!!histogram__count(&job->queue) + !!histogram__count(&job->lateness)) *
		       PROM_HISTOGRAM_SERIES(TIMING_N_BOUNDS);
}

static size_t series__n_series(const struct timing_series *series)
{
	size_t n = PROM_HISTOGRAM_SERIES(TIMING_N_BOUNDS);

	for (unsigned int i = 0; i < series->n_rates; i++)
		n += 2 + (series->rates[i].bus_bytes > 0);
	return n;
}

void source__admit_timed(struct textfile_source *src, struct prom *prom)
{
	for (size_t i = 0; i < src->n_timed; i++) {
		struct textfile_timed *row = &src->timed[i];
		size_t n = row->series ? series__n_series(row->series) : job__n_series(row->job);

		row->is_left_out = !prom__admit(prom, n);
	}
}

typedef void fill_timed_fn(struct prom *prom, const struct textfile_timed *row,
			   const char *labels[MAX_LABELS]);

static void fill_ratio(struct prom *prom, const struct textfile_timed *row,
		       const char *labels[MAX_LABELS])
{
	double ratio;

	if (!row->series && timing_job__sample_ratio(row->job, &ratio))
		prom__sample(prom, labels, ratio);
}

static void fill_histogram(struct prom *prom, const struct timing_histogram *histogram,
			   const char *labels[MAX_LABELS])
{
	if (histogram__count(histogram))
		prom__histogram(prom, labels, timing_bounds, TIMING_N_BOUNDS, histogram->buckets,
				histogram->sum_ns / 1e9);
}

static void fill_queue(struct prom *prom, const struct textfile_timed *row,
		       const char *labels[MAX_LABELS])
{
	if (!row->series)
		fill_histogram(prom, &row->job->queue, labels);
}

static void fill_lateness(struct prom *prom, const struct textfile_timed *row,
			  const char *labels[MAX_LABELS])
{
	if (!row->series)
		fill_histogram(prom, &row->job->lateness, labels);
}

static void fill_duration(struct prom *prom, const struct textfile_timed *row,
			  const char *labels[MAX_LABELS])
{
	if (row->series)
		fill_histogram(prom, &row->series->duration, labels);
}

typedef void fill_rate_fn(struct prom *prom, const struct timing_rate *rate,
			  const char *labels[MAX_LABELS]);

static void fill_rates(struct prom *prom, const struct textfile_timed *row,
		       const char *labels[MAX_LABELS], fill_rate_fn *fill)
{
	if (!row->series)
		return;
	for (unsigned int i = 0; i < row->series->n_rates; i++) {
		const struct timing_rate *rate = &row->series->rates[i];

		labels[5] = nbp_algorithm__name(rate->algorithm);
		labels[6] = nbp_protocol__name(rate->protocol);
		fill(prom, rate, labels);
	}
}

static void fill_rate_operations(struct prom *prom, const struct timing_rate *rate,
				 const char *labels[MAX_LABELS])
{
	prom__sample_u64(prom, labels, rate->operations);
}

static void fill_rate_seconds(struct prom *prom, const struct timing_rate *rate,
			      const char *labels[MAX_LABELS])
{
	prom__sample(prom, labels, rate->ns / 1e9);
}

static void fill_rate_bus_bytes(struct prom *prom, const struct timing_rate *rate,
				const char *labels[MAX_LABELS])
{
	if (rate->bus_bytes > 0)
		prom__sample(prom, labels, rate->bus_bytes);
}

static void fill_timed_operations(struct prom *prom, const struct textfile_timed *row,
				  const char *labels[MAX_LABELS])
{
	fill_rates(prom, row, labels, fill_rate_operations);
}

static void fill_timed_seconds(struct prom *prom, const struct textfile_timed *row,
			       const char *labels[MAX_LABELS])
{
	fill_rates(prom, row, labels, fill_rate_seconds);
}

static void fill_timed_bus_bytes(struct prom *prom, const struct textfile_timed *row,
				 const char *labels[MAX_LABELS])
{
	fill_rates(prom, row, labels, fill_rate_bus_bytes);
}

static void fill_family(struct prom *prom, const struct textfile_source *src, enum metric_id metric,
			fill_timed_fn *fill)
{
	prom__begin(prom, metric);
	for (size_t i = 0; i < src->n_timed; i++) {
		const struct textfile_timed *row = &src->timed[i];
		const struct timing_job *job = row->job;
		const char *labels[MAX_LABELS] = {job->key.job_id, job->key.uuid};

		if (row->is_left_out)
			continue;
		prom__set_cluster(prom,
				  src->cluster && src->cluster[0] ? src->cluster : job->cluster);
		if (row->series) {
			labels[2] = timing_kind__name(row->series->kind);
			labels[3] = timing_size__name(row->series->size);
			labels[4] = timing_scope__name(row->series->scope);
		}
		fill(prom, row, labels);
	}
}

void fill_timed(struct prom *prom, const struct textfile_source *src)
{
	fill_family(prom, src, METRIC_SAMPLE_RATIO, fill_ratio);
	fill_family(prom, src, METRIC_DURATION, fill_duration);
	fill_family(prom, src, METRIC_TIMED_OPERATIONS, fill_timed_operations);
	fill_family(prom, src, METRIC_TIMED_SECONDS, fill_timed_seconds);
	fill_family(prom, src, METRIC_TIMED_BUS_BYTES, fill_timed_bus_bytes);
	fill_family(prom, src, METRIC_QUEUE, fill_queue);
	fill_family(prom, src, METRIC_LATENESS, fill_lateness);
}
