/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "job_timing.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_JOB_PLACES 16384

/* Where a communicator's launches belong; asked for anew after each publication. */
struct job_place {
	struct job_place_key {
		uint64_t id; /* the plugin's; with a rank: the communicator's hash */
		uint64_t tgid;
		int64_t rank; /* -1: none */
	} key;
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
static const char *comm_uuid(struct tracer *tracer, const char *told, const struct comm *comm)
{
	const struct gpu *gpu = tracer__gpu_by_uuid(tracer, told);

	if (!gpu && comm)
		gpu = tracer__gpu_of(tracer, comm);
	return gpu ? gpu->uuid : "";
}

/* uuid: as the process says, or "". False: whose process it is, is not known (yet). */
static bool find_place(struct job_timing *timing, const struct job_place_key *key,
		       const struct comm *comm, const char *uuid, struct job_place *ret)
{
	struct tracer *tracer = timing->tracer;
	const struct process *process = processes__find(tracer__processes(tracer), key->tgid);
	const struct job_identity *job;

	if (!process || !process->has_info)
		return false;
	job = &process->info.job;
	*ret = (struct job_place){
		.key = *key,
		.job = timing_stats__job(timing->stats, job->job_id, comm_uuid(tracer, uuid, comm),
					 job->cluster, key->tgid),
		.n_nodes = comm && comm->n_nodes > 0 ? comm->n_nodes : 0,
	};
	return true;
}

static struct job_place *known_place(const struct job_timing *timing,
				     const struct job_place_key *key)
{
	struct job_place *place;

	HASH_FIND(hh, timing->places, key, sizeof(*key), place);
	return place;
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
	const struct timing_comm *from = launch->comm;
	const struct job_place_key key = {from->key.id, from->key.tgid, -1};
	struct job_place *place = known_place(timing, &key), found;
	const struct comm *comm;

	if (!place) {
		comm = comms__named(tracer__comms(timing->tracer), from->key.tgid, from->hash,
				    from->rank);
		if (!find_place(timing, &key, comm, from->uuid, &found))
			return;
		if (from->n_nodes)
			found.n_nodes = from->n_nodes;
		place = &found;
		if (from->uuid[0]) /* it is told soon */
			remember_place(timing, &found);
	}
	timing_stats__add(timing->stats, place->job, launch, place->n_nodes);
}

static void on_lateness(void *ctx, const struct verdict_member *member,
			enum nccl_operation operation, uint64_t lateness_ns)
{
	const struct job_place_key key = {member->hash, member->tgid, member->rank};
	struct job_timing *timing = ctx;
	struct job_place *place = known_place(timing, &key), found;
	const struct comm *comm;

	(void)operation;
	if (!place) {
		comm = comms__named(tracer__comms(timing->tracer), member->tgid, member->hash,
				    member->rank);
		if (!find_place(timing, &key, comm, "", &found))
			return;
		place = &found;
		if (comm && comm->learnt) /* its GPU is known by then */
			remember_place(timing, &found);
	}
	timing_stats__add_lateness(timing->stats, place->job, lateness_ns);
}

void job_timing__watch(struct job_timing *timing, struct verdicts *verdicts)
{
	if (timing)
		verdicts__on_lateness(verdicts, on_lateness, timing);
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
