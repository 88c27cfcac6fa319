/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "record.h"

#include <string.h>

void batch__flush(struct batch *batch)
{
	if (batch->n && batch->wanted)
		hook__fire(batch->records, batch->n);
	batch->n = 0;
}

static struct nbp_record *batch__add(struct batch *batch, const struct comm *comm,
				     enum nbp_kind kind)
{
	struct nbp_record *r;

	if (batch->n == NBP_MAX_BATCH)
		batch__flush(batch);
	r = &batch->records[batch->n++];
	memset(r, 0, sizeof(*r));
	r->kind = kind;
	r->size = sizeof(*r);
	r->rank = NBP_NO_RANK;
	if (comm) {
		r->comm_id = comm->id;
		r->comm_hash = atomic_load_explicit(&comm->hash, memory_order_acquire);
		r->rank = atomic_load_explicit(&comm->rank, memory_order_relaxed);
		r->n_ranks = comm->n_ranks;
	}
	return r;
}

void batch__comm(struct batch *batch, const struct comm *comm, int32_t device, const uint8_t *uuid)
{
	struct nbp_record *r = batch__add(batch, comm, NBP_KIND_COMM);

	r->time_ns = now_ns();
	r->comm.n_nodes = comm->n_nodes;
	r->comm.cuda_device = device;
	if (uuid)
		memcpy(r->comm.gpu_uuid, uuid, sizeof(r->comm.gpu_uuid));
	r->comm.abi = comm->abi->version;
	r->comm.mask = comm__mask(comm);
	r->comm.api_number = comm->told.api;
	r->comm.launch = comm->told.launch;
	r->comm.operation = comm->told.operation;
	r->comm.control = (uintptr_t)&nccl_bpftrace_control;
	memcpy(r->comm.name, comm->name, sizeof(r->comm.name));
}

static void api__fill(struct nbp_api *api, const struct note *note)
{
	api->api_number = note->number;
	api->count = note->count;
	api->stream = note->stream;
	api->group = note->group;
	api->root = note->root;
	api->group_depth = note->extra;
	api->function = note->function;
	api->datatype = note->datatype;
	api->redop = NBP_UNKNOWN_U8;
	api->capture = note->detail;
}

static void operation__fill(struct nbp_operation *o, const struct note *note)
{
	o->sequence = note->sequence;
	o->count = note->count;
	o->launch = note->launch;
	o->operation = note->number;
	o->group = note->group;
	o->root = note->root;
	o->n_channels = note->extra == UINT16_MAX ? NBP_UNKNOWN : note->extra;
	o->function = note->function;
	o->datatype = note->datatype;
	o->redop = NBP_UNKNOWN_U8;
	o->algorithm = note->detail >> 4 == 0xf ? NBP_UNKNOWN_U8 : note->detail >> 4;
	o->protocol = (note->detail & 0xf) == 0xf ? NBP_UNKNOWN_U8 : note->detail & 0xf;
}

static void launch__fill(struct nbp_launch *launch, const struct note *note, enum nbp_phase phase)
{
	launch->launch = note->number;
	launch->stream = note->stream;
	launch->clock_error_ns = NBP_UNKNOWN;
	launch->n_operations = NBP_UNKNOWN;
	launch->phase = phase;
	launch->timing = note->function;
	launch->capture = note->datatype;
	launch->after_pause = note->function == NBP_TIMED && note->detail;
}

static void timer__fill(struct nbp_timer *timer, const struct note *note)
{
	uint8_t n_expected = note->extra;

	timer->operation = note->number;
	timer->sequence = note->sequence;
	timer->gpu_first_ns = note->count;
	timer->gpu_last_ns = note->launch;
	timer->seen_ns = note->time_ns;
	timer->n_channels = note->extra >> 8;
	timer->n_expected = n_expected == NBP_UNKNOWN_U8 ? NBP_UNKNOWN : n_expected;
	timer->function = note->function;
}

void batch__note(struct batch *batch, const struct comm *comm, const struct note *note)
{
	struct nbp_record *r = batch__add(batch, comm, note->kind);

	r->tid = note->tid;
	r->time_ns = note->time_ns;
	if (note->kind == NBP_KIND_API)
		api__fill(&r->api, note);
	else if (note->kind == NBP_KIND_OPERATION)
		operation__fill(&r->operation, note);
	else if (note->kind == NBP_KIND_TIMER)
		timer__fill(&r->timer, note);
	else
		launch__fill(&r->launch, note, NBP_LAUNCHED);
}

void batch__counts(struct batch *batch, const struct comm *comm, uint64_t read_ns)
{
	struct nbp_record *r = batch__add(batch, comm, NBP_KIND_COUNTS);

	r->time_ns = read_ns;
	counts__fill(&comm->counts, &comm->unseen, &r->counts);
}

void batch__finished(struct batch *batch, const struct comm *comm, const struct note *note,
		     const struct timing_times *times, uint32_t n_operations)
{
	struct nbp_record *r = batch__add(batch, comm, NBP_KIND_LAUNCH);

	r->tid = note->tid;
	r->time_ns = note->time_ns;
	launch__fill(&r->launch, note, NBP_FINISHED);
	if (n_operations) /* none: they were started from another thread */
		r->launch.n_operations = n_operations;
	if (!times) {
		r->launch.timing = NBP_ABANDONED;
		return;
	}
	r->launch.source = NBP_SOURCE_CUDA_EVENT;
	r->launch.duration_ns = times->duration_ns;
	r->launch.gpu_start_ns = times->start_ns;
	r->launch.gpu_end_ns = times->end_ns;
	r->launch.clock_error_ns = times->clock_error_ns;
}

void batch__under_way(struct batch *batch, const struct comm *comm, const struct note *note,
		      const struct under_way *under_way)
{
	struct nbp_record *r = batch__add(batch, comm, NBP_KIND_LAUNCH);

	r->tid = note->tid;
	r->time_ns = note->time_ns;
	launch__fill(&r->launch, note, under_way->started ? NBP_STARTED : NBP_QUEUED);
	r->launch.gpu_start_ns = under_way->times.start_ns;
	r->launch.clock_error_ns = under_way->times.clock_error_ns;
	r->launch.function = under_way->function;
	r->launch.sequence = under_way->sequence;
	r->launch.done = under_way->done;
}

void batch__end(struct batch *batch, const struct comm *comm, uint64_t time_ns)
{
	batch__add(batch, comm, NBP_KIND_END)->time_ns = time_ns;
}

void batch__loss(struct batch *batch, const struct comm *comm, enum nbp_loss reason, uint64_t count,
		 uint64_t total)
{
	struct nbp_record *r = batch__add(batch, comm, NBP_KIND_LOSS);

	r->time_ns = now_ns();
	r->loss.reason = reason;
	if (reason == NBP_LOSS_TIMER_REFUSED)
		r->loss.detail = __atomic_load_n(&nccl_bpftrace_control.timer, __ATOMIC_RELAXED);
	r->loss.count = count;
	r->loss.total = total;
}
