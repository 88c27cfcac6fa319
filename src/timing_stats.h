/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Launches summed up for the metrics: by job and GPU, operation, size and scope. Pure: no I/O, no
 * clock. Sums belong to the pair (job, GPU) and not to a process or communicator, so that they do
 * not fall while the job lives; they go when no process of the job is left.
 */
#ifndef TIMING_STATS_H
#define TIMING_STATS_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "job.h"
#include "timing.h"

#define TIMING_N_BOUNDS	  8
#define TIMING_N_SIZES	  5	      /* and TIMING_N_SIZES itself: not known */
#define TIMING_GROUP	  NCCL_OP_MAX /* launches of operations of different kinds */
#define TIMING_N_KINDS	  (NCCL_OP_MAX + 1)
#define TIMING_MAX_RATES  8   /* algorithms and protocols of one series; the rest is in one more */
#define TIMING_MAX_SERIES 128 /* of one job on one GPU */
#define TIMING_MAX_JOBS	  1024
#define TIMING_MAX_TOTAL  8192 /* series in all */
#define TIMING_MAX_PIDS	  64   /* processes of one job on one GPU, by which it is known to live */

enum timing_scope {
	TIMING_SCOPE_UNKNOWN,
	TIMING_SCOPE_NODE,
	TIMING_SCOPE_NETWORK,
	TIMING_N_SCOPES,
};

/* Upper bounds in seconds; a last bucket without a bound follows. */
extern const double timing_bounds[TIMING_N_BOUNDS];

struct timing_histogram {
	uint64_t buckets[TIMING_N_BOUNDS + 1]; /* not cumulative */
	uint64_t sum_ns;
};

static inline uint64_t histogram__count(const struct timing_histogram *histogram)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i <= TIMING_N_BOUNDS; i++)
		n += histogram->buckets[i];
	return n;
}

/* By algorithm and protocol. */
struct timing_rate {
	uint8_t algorithm, protocol; /* NBP_UNKNOWN_U8: not known, or several */
	uint64_t operations, ns;
	double bus_bytes;
};

struct timing_series {
	uint8_t kind; /* enum nccl_operation, TIMING_GROUP */
	uint8_t size; /* index of a class, TIMING_N_SIZES: not known */
	uint8_t scope;
	uint8_t n_rates;
	struct timing_histogram duration; /* one for each launch */
	struct timing_rate rates[TIMING_MAX_RATES + 1];
};

/* A job on a GPU. */
struct timing_job {
	struct timing_job_key {
		char job_id[JOB_ID_SIZE];
		char uuid[48];
	} key;
	char cluster[64];
	struct timing_histogram queue, lateness;
	uint64_t n_launches, n_timed; /* that ran; captured ones do not */
	uint64_t n_launches_before, n_timed_before, n_launches_now, n_timed_now;
	uint32_t n_series;
	struct timing_series *series[TIMING_MAX_SERIES];
	uint8_t index[TIMING_N_KINDS][TIMING_N_SIZES + 1][TIMING_N_SCOPES]; /* + 1 */
	uint32_t pids[TIMING_MAX_PIDS];
	unsigned int n_pids;
	bool is_over; /* shown once more */
	UT_hash_handle hh;
};

struct timing_stats;

/* 0 or -ENOMEM. */
int timing_stats__new(struct timing_stats **ret);
void timing_stats__free(struct timing_stats *stats); /* NULL is fine */

/*
 * The entry of a job and GPU ("" each when not known), of which that process is one; it is valid
 * until the next timing_stats__sweep(). NULL: no room, which is counted with each launch.
 */
struct timing_job *timing_stats__job(struct timing_stats *stats, const char *job_id,
				     const char *uuid, const char *cluster, uint32_t tgid);

/* How late one rank came to one operation; job NULL as above. */
void timing_stats__add_lateness(struct timing_stats *stats, struct timing_job *job,
				uint64_t lateness_ns);

/* One launch, as timing_launch_fn hands it out; n_nodes of its communicator, 0: not known. */
void timing_stats__add(struct timing_stats *stats, struct timing_job *job,
		       const struct timing_launch *launch, uint32_t n_nodes);

/*
 * Once before each publication: closes the interval, and drops what was over at the last one.
 * is_alive tells whether a process of that number still lives.
 */
void timing_stats__sweep(struct timing_stats *stats, bool (*is_alive)(void *ctx, uint32_t tgid),
			 void *ctx);

struct timing_job *timing_stats__first(struct timing_stats *stats); /* next: ->hh.next */

/* Share of the launches of the last closed interval that were timed; false: there were none. */
bool timing_job__sample_ratio(const struct timing_job *job, double *ret);

/* Launches that found no room in all of this. */
uint64_t timing_stats__overflow(const struct timing_stats *stats);

const char *timing_kind__name(unsigned int kind); /* "Group" for TIMING_GROUP */
const char *timing_size__name(unsigned int size); /* "" when not known */
const char *timing_scope__name(enum timing_scope scope);

#endif
