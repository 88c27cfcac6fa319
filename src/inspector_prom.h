/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The text of nccl_inspector_metrics_<uuid>.prom: what NVIDIA's NCCL Inspector of NCCL 2.30 writes
 * in its Prometheus mode (plugins/profiler/inspector/inspector_prom.cc), line for line. Pure; the
 * files are in inspector_file.c.
 *
 * A window goes from one inspector_gpu__text() to the next. Deliberate differences: `gpu` is the
 * node's index, so that processes that each see one GPU do not collide (of a GPU that the node does
 * not list, a MIG instance: its UUID); values are escaped and valid UTF-8; a label `cluster` at the
 * end when there is one; times and bandwidths come from nanoseconds, Inspector cuts to
 * microseconds.
 */
#ifndef INSPECTOR_PROM_H
#define INSPECTOR_PROM_H

#include "gpu.h"
#include "inspector.h"
#include "prom.h"

#define INSPECTOR_MAX_GPUS	64  /* with a file */
#define INSPECTOR_MAX_BUCKETS	256 /* of one GPU and window; each is two series */
#define INSPECTOR_MAX_PROCESSES 64  /* of one GPU that keep its file there */

/* Inspector's profiler interface and the minor version of its text, as NCCL 2.30 has them. */
#define INSPECTOR_PROM_VERSION "v5.1"

#define INSPECTOR_FILE_PREFIX "nccl_inspector_metrics_"

/* What a process adds to its operations' labels; "" or NULL: not known. */
struct inspector_owner {
	uint32_t tgid;
	const char *job_id, *cluster; /* Slurm's, as the label is slurm_job_id */
};

struct inspector_bucket;

struct inspector_gpu {
	char uuid[40];	/* as it stands in the file's name: without "GPU-" */
	char label[48]; /* value of `gpu` */
	struct inspector_bucket *buckets;
	uint32_t tgids[INSPECTOR_MAX_PROCESSES];
	unsigned int n_tgids;
	bool is_published; /* the file's part: there is a file of ours */
	bool is_left;	   /* likewise: its file is Inspector's own */
};

struct inspector_gpus {
	const char *node, *cluster; /* borrowed; cluster NULL: each job's own */
	struct inspector_gpu *gpus[INSPECTOR_MAX_GPUS];
	unsigned int n;
};

void inspector_gpus__free(struct inspector_gpus *gpus); /* what is in it */

/*
 * By the UUID "GPU-" or "MIG-" and 8-4-4-4-12 hex digits, in either case; made when it is new, and
 * gpu (NULL: the node does not list it) gives its label. NULL: no such UUID, no more room or
 * memory.
 */
struct inspector_gpu *inspector_gpus__get(struct inspector_gpus *gpus, const char *uuid,
					  const struct gpu *gpu);
struct inspector_gpu *inspector_gpus__find(struct inspector_gpus *gpus, const char *uuid);
void inspector_gpus__remove(struct inspector_gpus *gpus, struct inspector_gpu *gpu);

/* Takes an operation into its bucket; false: there is none for it and no room for one more. */
bool inspector_gpu__add(struct inspector_gpu *gpu, const struct inspector_operation *operation,
			const struct inspector_owner *owner);

/* The window's lines are put to prom, which was reset; the buckets are empty then. 0 or -ENOMEM. */
int inspector_gpu__text(const struct inspector_gpus *gpus, struct inspector_gpu *gpu,
			struct prom *prom);
void inspector_gpu__drop(struct inspector_gpu *gpu);	      /* the window's */
bool inspector_gpu__is_idle(const struct inspector_gpu *gpu); /* nothing in this window */

/* The length of a file's name at the beginning of text, or 0. */
size_t inspector__file_name_length(const char *text);

#endif
