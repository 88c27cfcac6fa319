/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "timing_stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

/* A clock that is known no better than this share of a delay says nothing of it. */
#define QUEUE_ERROR_SHARE 4
#define QUEUE_ERROR_NS	  2500 /* nor need it be known better: the lowest bound is 10 us */

const double timing_bounds[TIMING_N_BOUNDS] = {1e-5, 5e-5, 2e-4, 1e-3, 5e-3, 2e-2, 1e-1, 1};

struct timing_stats {
	struct timing_job *jobs;
	uint32_t n_series;
	uint64_t n_overflow;
};

int timing_stats__new(struct timing_stats **ret)
{
	struct timing_stats *stats = calloc(1, sizeof(*stats));

	if (!stats)
		return -ENOMEM;
	*ret = stats;
	return 0;
}

static void stats__drop(struct timing_stats *stats, struct timing_job *job)
{
	stats->n_series -= job->n_series;
	for (uint32_t i = 0; i < job->n_series; i++)
		free(job->series[i]);
	HASH_DEL(stats->jobs, job);
	free(job);
}

void timing_stats__free(struct timing_stats *stats)
{
	if (!stats)
		return;
	while (stats->jobs)
		stats__drop(stats, stats->jobs);
	free(stats);
}

/* ---- jobs ---- */

static void job__add_pid(struct timing_job *job, uint32_t tgid)
{
	for (unsigned int i = 0; i < job->n_pids; i++)
		if (job->pids[i] == tgid)
			return;
	if (job->n_pids < TIMING_MAX_PIDS)
		job->pids[job->n_pids++] = tgid;
}

struct timing_job *timing_stats__job(struct timing_stats *stats, const char *job_id,
				     const char *uuid, const char *cluster, uint32_t tgid)
{
	struct timing_job_key key = {};
	struct timing_job *job;

	strncpy(key.job_id, job_id, sizeof(key.job_id) - 1);
	strncpy(key.uuid, uuid, sizeof(key.uuid) - 1);
	HASH_FIND(hh, stats->jobs, &key, sizeof(key), job);
	if (!job && HASH_COUNT(stats->jobs) < TIMING_MAX_JOBS) {
		job = calloc(1, sizeof(*job));
		if (!job)
			return NULL;
		job->key = key;
		HASH_ADD(hh, stats->jobs, key, sizeof(job->key), job);
	}
	if (!job)
		return NULL;
	strncpy(job->cluster, cluster, sizeof(job->cluster) - 1);
	job__add_pid(job, tgid);
	job->is_over = false;
	return job;
}

static bool job__is_over(struct timing_job *job, bool (*is_alive)(void *ctx, uint32_t tgid),
			 void *ctx)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < job->n_pids; i++)
		if (is_alive(ctx, job->pids[i]))
			job->pids[n++] = job->pids[i];
	job->n_pids = n;
	return !n;
}

static void job__close_interval(struct timing_job *job)
{
	job->n_launches_now = job->n_launches - job->n_launches_before;
	job->n_timed_now = job->n_timed - job->n_timed_before;
	job->n_launches_before = job->n_launches;
	job->n_timed_before = job->n_timed;
}

void timing_stats__sweep(struct timing_stats *stats, bool (*is_alive)(void *ctx, uint32_t tgid),
			 void *ctx)
{
	struct timing_job *job, *next;

	HASH_ITER(hh, stats->jobs, job, next)
	{
		bool was_over = job->is_over;

		job->is_over = job__is_over(job, is_alive, ctx);
		if (was_over && job->is_over)
			stats__drop(stats, job);
		else
			job__close_interval(job);
	}
}

struct timing_job *timing_stats__first(struct timing_stats *stats)
{
	return stats->jobs;
}

bool timing_job__sample_ratio(const struct timing_job *job, double *ret)
{
	if (!job->n_launches_now)
		return false;
	*ret = (double)job->n_timed_now / (double)job->n_launches_now;
	return true;
}

uint64_t timing_stats__overflow(const struct timing_stats *stats)
{
	return stats->n_overflow;
}

/* ---- sums ---- */

static void histogram__add(struct timing_histogram *histogram, uint64_t ns)
{
	unsigned int i = 0;

	while (i < TIMING_N_BOUNDS && ns / 1e9 > timing_bounds[i])
		i++;
	histogram->buckets[i]++;
	histogram->sum_ns += ns;
}

/* NULL: no room. */
static struct timing_series *job__series(struct timing_stats *stats, struct timing_job *job,
					 const struct timing_series *like)
{
	uint8_t *index = &job->index[like->kind][like->size][like->scope];
	struct timing_series *series;

	if (*index)
		return job->series[*index - 1];
	if (job->n_series == TIMING_MAX_SERIES || stats->n_series == TIMING_MAX_TOTAL)
		return NULL;
	series = malloc(sizeof(*series));
	if (!series)
		return NULL;
	*series = *like;
	job->series[job->n_series++] = series;
	stats->n_series++;
	*index = job->n_series;
	return series;
}

/* The last place is for all that found none of their own. */
static struct timing_rate *series__rate(struct timing_series *series, uint8_t algorithm,
					uint8_t protocol)
{
	for (unsigned int i = 0; i < series->n_rates; i++)
		if (series->rates[i].algorithm == algorithm &&
		    series->rates[i].protocol == protocol)
			return &series->rates[i];
	if (series->n_rates >= TIMING_MAX_RATES)
		algorithm = protocol = NBP_UNKNOWN_U8;
	if (series->n_rates > TIMING_MAX_RATES)
		return &series->rates[TIMING_MAX_RATES];
	series->rates[series->n_rates] = (struct timing_rate){
		.algorithm = algorithm,
		.protocol = protocol,
	};
	return &series->rates[series->n_rates++];
}

static uint8_t size__class(uint64_t bytes)
{
	static const uint64_t ends[TIMING_N_SIZES - 1] = {64 << 10, 1 << 20, 16 << 20, 256 << 20};
	uint8_t i = 0;

	while (i < TIMING_N_SIZES - 1 && bytes >= ends[i])
		i++;
	return i;
}

/* What one launch adds to one series. */
struct share {
	unsigned int kind;
	bool has_bytes;
	uint64_t bytes;
	double bus_bytes;
	uint64_t n_operations;
	uint8_t algorithm, protocol;
};

static void stats__add_share(struct timing_stats *stats, struct timing_job *job,
			     const struct timing_launch *launch, enum timing_scope scope,
			     const struct share *share)
{
	const struct timing_series like = {
		.kind = share->kind,
		.size = share->has_bytes ? size__class(share->bytes) : TIMING_N_SIZES,
		.scope = scope,
	};
	struct timing_series *series = job__series(stats, job, &like);
	struct timing_rate *rate;

	if (!series) {
		stats->n_overflow++;
		return;
	}
	histogram__add(&series->duration, launch->duration_ns);
	rate = series__rate(series, share->algorithm, share->protocol);
	rate->operations += share->n_operations;
	rate->ns += launch->duration_ns;
	rate->bus_bytes += share->bus_bytes;
}

/* Several algorithms in one launch are none. */
static struct share launch__share(const struct timing_launch *launch)
{
	const struct timing_operation *first = &launch->operations[0];
	struct share share = {
		.kind = launch->operation,
		.has_bytes = launch->has_bytes,
		.bytes = launch->bytes,
		.bus_bytes = launch->bus_bytes,
		.n_operations = launch->n_operations,
		.algorithm = first->algorithm,
		.protocol = first->protocol,
	};

	for (uint32_t i = 1; i < launch->n_described; i++)
		if (launch->operations[i].algorithm != first->algorithm ||
		    launch->operations[i].protocol != first->protocol)
			share.algorithm = share.protocol = NBP_UNKNOWN_U8;
	if (launch->operation == NCCL_OP_AlltoAll && first->operation != NCCL_OP_AlltoAll)
		share.n_operations = 1;
	if (launch->form == TIMING_MIXED) {
		share.kind = TIMING_GROUP;
		share.algorithm = share.protocol = NBP_UNKNOWN_U8;
	}
	return share;
}

/* One of a pair: it took as long as both, for they run side by side. */
static struct share operation__share(const struct timing_operation *operation, int32_t n_ranks)
{
	return (struct share){
		.kind = operation->operation,
		.has_bytes = operation->type_bytes != 0,
		.bytes = timing_operation__bytes(operation, n_ranks),
		.bus_bytes = timing_operation__bus_bytes(operation, n_ranks),
		.n_operations = 1,
		.algorithm = operation->algorithm,
		.protocol = operation->protocol,
	};
}

static void stats__add_duration(struct timing_stats *stats, struct timing_job *job,
				const struct timing_launch *launch, enum timing_scope scope)
{
	struct share share;

	if (launch->form != TIMING_PAIR) {
		share = launch__share(launch);
		stats__add_share(stats, job, launch, scope, &share);
		return;
	}
	for (uint32_t i = 0; i < launch->n_described; i++) {
		share = operation__share(&launch->operations[i], launch->comm->n_ranks);
		stats__add_share(stats, job, launch, scope, &share);
	}
}

/* From the first of its calls, where all are known: one that is not may have been the first. */
static void job__add_queue(struct timing_job *job, const struct timing_launch *launch)
{
	uint64_t call_ns = UINT64_MAX, queue_ns;

	if (!launch->gpu_start_ns || launch->clock_error_ns == NBP_UNKNOWN)
		return;
	for (uint32_t i = 0; i < launch->n_described; i++)
		if (launch->operations[i].call_ns < call_ns)
			call_ns = launch->operations[i].call_ns;
	if (!call_ns || call_ns >= launch->gpu_start_ns)
		return;
	queue_ns = launch->gpu_start_ns - call_ns;
	if (launch->clock_error_ns > QUEUE_ERROR_NS &&
	    launch->clock_error_ns > queue_ns / QUEUE_ERROR_SHARE)
		return;
	histogram__add(&job->queue, queue_ns);
}

void timing_stats__add(struct timing_stats *stats, struct timing_job *job,
		       const struct timing_launch *launch, uint32_t n_nodes)
{
	enum timing_scope scope = !n_nodes	 ? TIMING_SCOPE_UNKNOWN
				  : n_nodes == 1 ? TIMING_SCOPE_NODE
						 : TIMING_SCOPE_NETWORK;

	if (launch->capture == NBP_CAPTURED_YES)
		return;
	if (!job) {
		stats->n_overflow++;
		return;
	}
	/* What no launch was told of, a graph's replay, counts with its time or not at all. */
	job->n_launches += launch->number || launch->duration_ns;
	if (!launch->duration_ns || !launch->complete)
		return;
	if (launch->after_pause) /* where ranks wait for one another: more often than by chance */
		return;
	job->n_timed++;
	stats__add_duration(stats, job, launch, scope);
	job__add_queue(job, launch);
}

void timing_stats__add_lateness(struct timing_stats *stats, struct timing_job *job,
				uint64_t lateness_ns)
{
	if (job)
		histogram__add(&job->lateness, lateness_ns);
	else
		stats->n_overflow++;
}

/* ---- names ---- */

const char *timing_kind__name(unsigned int kind)
{
	return kind == TIMING_GROUP ? "Group" : nccl_operation__name(kind);
}

const char *timing_size__name(unsigned int size)
{
	static const char *const names[TIMING_N_SIZES + 1] = {
		"lt64KiB", "lt1MiB", "lt16MiB", "lt256MiB", "ge256MiB", "",
	};

	return names[size <= TIMING_N_SIZES ? size : TIMING_N_SIZES];
}

const char *timing_scope__name(enum timing_scope scope)
{
	static const char *const names[TIMING_N_SCOPES] = {"", "node", "network"};

	return scope < TIMING_N_SCOPES ? names[scope] : "";
}
