/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Processes and their communicators, and which part of this module a record is for. */
#include "timing_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "util.h"

int timings__new(struct timings **ret, timing_launch_fn *fn, void *ctx)
{
	struct timings *timings = calloc(1, sizeof(*timings));

	if (!timings)
		return -ENOMEM;
	timings->fn = fn;
	timings->ctx = ctx;
	*ret = timings;
	return 0;
}

void timings__on_operation(struct timings *timings, timing_operation_fn *fn, void *ctx)
{
	timings->on_operation = fn;
	timings->operation_ctx = ctx;
}

/* ---- communicators ---- */

static void tracked__unindex(struct timings *timings, struct tracked *tracked)
{
	if (tracked->is_indexed)
		HASH_DELETE(by_hash, timings->index, tracked);
	tracked->is_indexed = false;
}

/* The newest takes the place of one before it. */
static void tracked__index(struct timings *timings, struct tracked *tracked)
{
	const struct timing_comm *comm = &tracked->comm;
	struct tracked *other;

	tracked__unindex(timings, tracked);
	memset(&tracked->index, 0, sizeof(tracked->index));
	tracked->index.hash = comm->hash;
	tracked->index.tgid = comm->key.tgid;
	tracked->index.rank = comm->rank;
	HASH_FIND(by_hash, timings->index, &tracked->index, sizeof(tracked->index), other);
	if (other)
		tracked__unindex(timings, other);
	HASH_ADD(by_hash, timings->index, index, sizeof(tracked->index), tracked);
	tracked->is_indexed = true;
}

static void tracked__set_busy(struct timings *timings, struct tracked *tracked, bool is_busy)
{
	if (tracked->is_busy == is_busy)
		return;
	tracked->is_busy = is_busy;
	if (is_busy)
		DL_APPEND2(timings->busy, tracked, busy_prev, busy_next);
	else
		DL_DELETE2(timings->busy, tracked, busy_prev, busy_next);
}

/* It stays to be asked about until it expires. */
static void tracked__end(struct timings *timings, struct tracked *tracked, uint64_t now_ns)
{
	if (tracked->comm.ended_ns)
		return;
	tracked__close(timings, tracked);
	tracked__set_busy(timings, tracked, false);
	tracked->comm.ended_ns = now_ns;
}

static void tracked__drop(struct timings *timings, struct tracked *tracked)
{
	struct timing_comm *comm = &tracked->comm;

	tracked__end(timings, tracked, 1);
	tracked__unindex(timings, tracked);
	if (tracked->process) {
		DL_DELETE(tracked->process->comms, tracked);
		tracked->process->n_comms--;
	}
	HASH_DEL(timings->comms, comm);
	free(tracked);
}

static void hand_to_nobody(void *ctx, const struct timing_launch *launch)
{
	(void)ctx;
	(void)launch;
}

void timings__free(struct timings *timings)
{
	struct tracked_process *process, *next;

	if (!timings)
		return;
	timings->fn = hand_to_nobody;
	while (timings->comms)
		tracked__drop(timings, (struct tracked *)timings->comms);
	HASH_ITER(hh, timings->processes, process, next)
	{
		HASH_DEL(timings->processes, process);
		free(process);
	}
	free(timings);
}

/* ---- processes ---- */

static struct tracked_process *timings__process(struct timings *timings, uint32_t tgid)
{
	struct tracked_process *process;

	HASH_FIND(hh, timings->processes, &tgid, sizeof(tgid), process);
	if (process || HASH_COUNT(timings->processes) >= TIMING_MAX_PROCESSES)
		return process;
	process = calloc(1, sizeof(*process));
	if (!process)
		return NULL;
	process->tgid = tgid;
	HASH_ADD(hh, timings->processes, tgid, sizeof(tgid), process);
	return process;
}

/* A process that makes and ends communicators all the time keeps its newest. */
static bool process__has_room(struct timings *timings, struct tracked_process *process)
{
	struct tracked *tracked;

	if (process->n_comms < TIMING_MAX_COMMS_PER_PROCESS)
		return HASH_COUNT(timings->comms) < TIMING_MAX_COMMS;
	DL_FOREACH(process->comms, tracked)
	{
		if (tracked->comm.ended_ns) {
			tracked__drop(timings, tracked);
			return true;
		}
	}
	return false;
}

static struct tracked *process__add(struct timings *timings, struct tracked_process *process,
				    const struct timing_comm_key *key)
{
	struct tracked *tracked = NULL;
	struct timing_comm *comm;

	if (process && process__has_room(timings, process))
		tracked = calloc(1, sizeof(*tracked));
	if (!tracked) {
		timings->lost[TIMING_LOST_NO_ROOM]++;
		return NULL;
	}
	comm = &tracked->comm;
	comm->key = *key;
	comm->rank = -1;
	tracked->process = process;
	DL_APPEND(process->comms, tracked);
	process->n_comms++;
	HASH_ADD(hh, timings->comms, key, sizeof(comm->key), comm);
	return tracked;
}

static struct tracked *timings__comm(struct timings *timings, uint32_t tgid, uint64_t id)
{
	const struct timing_comm_key key = {.id = id, .tgid = tgid};
	struct timing_comm *comm;

	HASH_FIND(hh, timings->comms, &key, sizeof(key), comm);
	if (comm && !((struct tracked *)comm)->process) {
		/* a process that is gone had this number before */
		tracked__drop(timings, (struct tracked *)comm);
		comm = NULL;
	}
	if (comm)
		return (struct tracked *)comm;
	return process__add(timings, timings__process(timings, tgid), &key);
}

/* ---- records ---- */

/* What every record says of its communicator; v1 to v3 learn it late. Once known it stays. */
static void tracked__identify(struct timings *timings, struct tracked *tracked,
			      const struct nbp_record *record)
{
	struct timing_comm *comm = &tracked->comm;

	if (record->n_ranks > 0 && !comm->n_ranks)
		comm->n_ranks = record->n_ranks;
	if (!record->comm_hash || comm->hash)
		return;
	comm->hash = record->comm_hash;
	if (record->rank >= 0 && (!comm->n_ranks || record->rank < comm->n_ranks))
		comm->rank = record->rank;
	tracked__index(timings, tracked);
}

static void comm__set_uuid(struct timing_comm *comm, const uint8_t u[16])
{
	snprintf(comm->uuid, sizeof(comm->uuid),
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
		 u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
		 u[14], u[15]);
}

static void tracked__announce(struct tracked *tracked, const struct nbp_comm *from)
{
	struct timing_comm *comm = &tracked->comm;

	comm->n_nodes = from->n_nodes == NBP_UNKNOWN ? 0 : from->n_nodes;
	comm->abi = from->abi;
	comm->control = from->control;
	memcpy(comm->name, from->name, sizeof(from->name)); /* shorter, and the rest is 0 */
	if (from->cuda_device >= 0)
		comm__set_uuid(comm, from->gpu_uuid);
	numbers__told(&tracked->api, from->api_number);
	numbers__told(&tracked->launch, from->launch);
	numbers__told(&tracked->operation, from->operation);
}

static void tracked__record(struct timings *timings, struct tracked *tracked,
			    const struct nbp_record *record, uint64_t now_ns)
{
	tracked__identify(timings, tracked, record);
	if (record->kind == NBP_KIND_END) {
		tracked__end(timings, tracked, now_ns);
		return;
	}
	tracked__set_busy(timings, tracked, true);
	switch (record->kind) {
	case NBP_KIND_COMM:
		tracked__announce(tracked, &record->comm);
		tracked__beat(tracked, record);
		if (record->comm.mask & NBP_MASK_KERNEL_CH)
			tracked__expect_timers(timings, tracked, now_ns);
		break;
	case NBP_KIND_API:
		tracked__call(timings, tracked, record, now_ns);
		break;
	case NBP_KIND_OPERATION:
		tracked__operation(timings, tracked, record, now_ns);
		break;
	case NBP_KIND_LAUNCH:
		tracked__launch(timings, tracked, record, now_ns);
		break;
	case NBP_KIND_TIMER:
		tracked__timer(timings, tracked, record, now_ns);
		break;
	case NBP_KIND_LOSS:
		tracked__loss(timings, tracked, &record->loss);
		break;
	}
}

void timings__record(struct timings *timings, uint32_t tgid, const struct nbp_record *record,
		     uint64_t now_ns)
{
	struct tracked_process *process;
	struct tracked *tracked;

	if (now_ns > timings->now_ns)
		timings->now_ns = now_ns;
	if (record->size != sizeof(*record) || !record->kind || record->kind >= NBP_KIND_MAX ||
	    (!record->comm_id && record->kind != NBP_KIND_LOSS)) {
		timings->lost[TIMING_LOST_BAD_RECORD]++;
		return;
	}
	if (!record->comm_id) {
		process = timings__process(timings, tgid);
		if (process)
			timings__loss(timings, &process->losses, &record->loss);
		else
			timings->lost[TIMING_LOST_NO_ROOM]++;
		return;
	}
	tracked = timings__comm(timings, tgid, record->comm_id);
	if (tracked && tracked->comm.ended_ns)
		timings->lost[TIMING_LOST_BAD_RECORD]++; /* after its last one */
	else if (tracked)
		tracked__record(timings, tracked, record, now_ns);
}

/* ---- time ---- */

void timings__settle(struct timings *timings, uint64_t now_ns)
{
	struct tracked *tracked, *next;

	/* what came since the caller looked at the clock is not old for that */
	if (now_ns < timings->now_ns)
		now_ns = timings->now_ns;
	DL_FOREACH_SAFE2(timings->busy, tracked, next, busy_next)
	{
		if (tracked__settle(timings, tracked, now_ns))
			tracked__set_busy(timings, tracked, false);
	}
}

void timings__process_gone(struct timings *timings, uint32_t tgid, uint64_t now_ns)
{
	struct tracked_process *process;
	struct tracked *tracked, *next;

	HASH_FIND(hh, timings->processes, &tgid, sizeof(tgid), process);
	if (!process)
		return;
	DL_FOREACH_SAFE(process->comms, tracked, next)
	{
		tracked__end(timings, tracked, now_ns);
		DL_DELETE(process->comms, tracked);
		tracked->process = NULL;
	}
	HASH_DEL(timings->processes, process);
	free(process);
}

void timings__expire(struct timings *timings, uint64_t before_ns)
{
	struct timing_comm *comm, *next;

	HASH_ITER(hh, timings->comms, comm, next)
	{
		if (comm->ended_ns && comm->ended_ns < before_ns)
			tracked__drop(timings, (struct tracked *)comm);
	}
}

/* ---- asking ---- */

struct timing_comm *timings__first(struct timings *timings)
{
	return timings->comms;
}

const struct timing_comm *timings__find(const struct timings *timings, uint32_t tgid, uint64_t hash,
					int32_t rank)
{
	const struct index_key key = {.hash = hash, .tgid = tgid, .rank = rank};
	struct tracked *tracked;

	HASH_FIND(by_hash, timings->index, &key, sizeof(key), tracked);
	return tracked ? &tracked->comm : NULL;
}
