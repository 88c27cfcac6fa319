/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "job_timing.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_JOB_PLACES 16384

/* Where a communicator's launches belong; asked for anew after each publication. */
struct job_place {
	struct timing_comm_key key;
	struct timing_job *job; /* NULL: no room */
	uint32_t n_nodes;	/* 0: not known */
	UT_hash_handle hh;
};

struct job_timing {
	struct tracer *tracer;
	struct timing_stats *stats;
	struct job_place *places;
};

static void forget_places(struct job_timing *timing)
{
	struct job_place *place, *next;

	HASH_ITER(hh, timing->places, place, next)
	{
		HASH_DEL(timing->places, place);
		free(place);
	}
}

/*
 * The process's word on its GPU is good when the node has that GPU (a MIG instance has a UUID of
 * its own, and is not listed); else what NCCL itself holds.
 */
static const char *launch_uuid(struct tracer *tracer, const struct timing_comm *from,
			       const struct comm *comm)
{
	const struct gpu *gpu = tracer__gpu_by_uuid(tracer, from->uuid);

	if (!gpu && comm)
		gpu = tracer__gpu_of(tracer, comm);
	return gpu ? gpu->uuid : "";
}

/* False: whose process it is, is not known (yet). */
static bool find_place(struct job_timing *timing, const struct timing_comm *from,
		       struct job_place *ret)
{
	struct tracer *tracer = timing->tracer;
	const uint32_t tgid = from->key.tgid;
	const struct process *process = processes__find(tracer__processes(tracer), tgid);
	const struct comm *comm = comms__named(tracer__comms(tracer), tgid, from->hash, from->rank);
	const struct job_identity *job;

	if (!process || !process->has_info)
		return false;
	job = &process->info.job;
	*ret = (struct job_place){
		.key = from->key,
		.job = timing_stats__job(timing->stats, job->job_id,
					 launch_uuid(tracer, from, comm), job->cluster, tgid),
		.n_nodes = from->n_nodes,
	};
	if (!ret->n_nodes && comm && comm->n_nodes > 0)
		ret->n_nodes = comm->n_nodes;
	return true;
}

static void remember_place(struct job_timing *timing, const struct job_place *found)
{
	struct job_place *place;

	if (HASH_COUNT(timing->places) >= MAX_JOB_PLACES)
		return;
	place = malloc(sizeof(*place));
	if (!place)
		return;
	*place = *found;
	HASH_ADD(hh, timing->places, key, sizeof(place->key), place);
}

static void on_launch(void *ctx, const struct timing_launch *launch)
{
	struct job_timing *timing = ctx;
	const struct timing_comm *comm = launch->comm;
	struct job_place *place, found;

	HASH_FIND(hh, timing->places, &comm->key, sizeof(comm->key), place);
	if (!place) {
		if (!find_place(timing, comm, &found))
			return;
		place = &found;
		if (comm->uuid[0]) /* it is told soon */
			remember_place(timing, &found);
	}
	timing_stats__add(timing->stats, place->job, launch, place->n_nodes);
}

int job_timing__new(struct job_timing **ret, struct tracer *tracer)
{
	struct job_timing *timing = calloc(1, sizeof(*timing));
	int err;

	if (!timing)
		return -ENOMEM;
	timing->tracer = tracer;
	err = timing_stats__new(&timing->stats) ?: tracer__on_launch(tracer, on_launch, timing);
	if (err) {
		job_timing__free(timing);
		return err;
	}
	*ret = timing;
	return 0;
}

void job_timing__free(struct job_timing *timing)
{
	if (!timing)
		return;
	forget_places(timing);
	timing_stats__free(timing->stats);
	free(timing);
}

static bool process__is_alive(void *ctx, uint32_t tgid)
{
	const struct process *process = processes__find(ctx, tgid);

	return process && !process->gone_ns;
}

void job_timing__sweep(struct job_timing *timing)
{
	forget_places(timing);
	timing_stats__sweep(timing->stats, process__is_alive, tracer__processes(timing->tracer));
}

struct timing_stats *job_timing__stats(struct job_timing *timing)
{
	return timing->stats;
}
