/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The sink for node_exporter's textfile collector: what the tracer knows, as the families of
 * metrics.h, in one file PROM_FILE_NAME.
 */
#ifndef TEXTFILE_H
#define TEXTFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "job_timing.h"
#include "prom.h"
#include "tracer.h"
#include "watch.h"

struct textfile;

/*
 * Opens dir and removes what agents that are gone left there. max_series is prom__new()'s. cluster
 * goes on every series; NULL or "": each job's own SLURM_CLUSTER_NAME, on the job's series.
 * 0, or -errno: -EBUSY (another agent writes there), -ENOENT, -ENOTDIR, -EACCES and -EROFS (cannot
 * be written to), -ENOMEM.
 */
int textfile__new(struct textfile **ret, const char *dir, size_t max_series, const char *cluster);

/*
 * From now on the GPU times that plugins tell the tracer of are in the file, too. The tracer must
 * end before the textfile. 0, -ENOMEM or -ENOSPC.
 */
int textfile__listen(struct textfile *textfile, struct tracer *tracer);

/* From now on what the judge finds is in it, too; as above for the watch. After that. */
void textfile__watch(struct textfile *textfile, struct watch *watch);

/* Leaves the file where it is; takes NULL. */
void textfile__free(struct textfile *textfile);

/*
 * What is unsafe about the directory, for people; NULL: nothing. Not an error: a Kubernetes
 * emptyDir is like this, and no harm can come to this program from it.
 */
const char *textfile__warning(const struct textfile *textfile);

/*
 * Puts the tracer's picture, as of its last refresh, into the file. 0 or -errno; then the old file
 * stays, and its heartbeat tells how old it is.
 */
int textfile__write(struct textfile *textfile, struct tracer *tracer);

/* Counts by reason that another sink keeps: what is in no file of Inspector's form. Borrowed. */
struct textfile_count {
	const char *reason;
	uint64_t count;
};
void textfile__set_omitted(struct textfile *textfile, const struct textfile_count *counts,
			   size_t n_counts);

/* The pure part, for textfile__write() and its test. */

/* A communicator and what stands around it. */
struct textfile_comm {
	struct comm *comm;
	const struct process *process; /* NULL: never seen */
	const struct gpu *gpu;	       /* NULL: not known */
	const struct timing_comm
		*timing; /* the same one as its plugin tells of; NULL: it does not */
	const struct verdict_rank *judged; /* NULL: it is not; the next two are as well then */
	enum verdict_state state;
	const uint64_t *errors; /* WATCH_N_ERRORS of them, or NULL */
	bool is_left_out;
};

/* What was timed of a job on a GPU. */
struct textfile_timed {
	const struct timing_job *job;
	const struct timing_series *series; /* NULL: what the job has of its own */
	bool is_left_out;
};

/* A process, once for each GPU that it uses. */
struct textfile_process {
	const struct process *process;
	const struct gpu *gpu; /* NULL: none known */
	bool is_left_out;
};

struct textfile_source {
	struct textfile_comm *comms; /* the oldest first: it keeps its series when room ends */
	struct textfile_process *processes;
	struct textfile_timed *timed; /* likewise */
	size_t n_comms, n_processes, n_timed;
	struct tracer_census census;
	uint64_t graphs_unresolved;		  /* launches of CUDA graphs */
	uint64_t received, lost[TRACER_LOST_MAX]; /* records */
	uint64_t plugin_lost[TIMING_LOST_MAX], invalid[TIMING_INVALID_MAX];
	const struct textfile_count *omitted;
	size_t n_omitted;
	uint64_t n_unjudged; /* ranks and calls for which the judge has no room */
	uint64_t resident_bytes;
	double cpu_seconds;
	uint64_t wall_ms;	/* Unix time */
	int64_t wall_offset_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC */
	const char *cluster, *libbpf, *kernel, *host;
	uint64_t n_collisions; /* in and out, summed up: series whose labels another one has */
};

/* Writes all families; prom was reset. Sets is_left_out. 0 or -ENOMEM. */
int textfile__fill(struct prom *prom, struct textfile_source *source);

#endif
