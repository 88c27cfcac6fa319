/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Plugin records: whatever a process sends, what is handed out is consistent, its sums are finite,
 * and all is freed.
 */
#include <math.h>

#include "../../src/nccl_api.c"
#include "../../src/timing_stats.c"

#include "../unit/timing_feed.h"

#define N_PROCESSES 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

struct fuzz {
	struct timings *timings;
	struct timing_stats *stats;
};

static void on_launch(void *ctx, const struct timing_launch *launch)
{
	struct fuzz *fuzz = ctx;
	struct timing_job *job = timing_stats__job(fuzz->stats, launch->comm->name,
						   launch->comm->uuid, "", launch->comm->key.tgid);
	uint64_t start_ns = 0;

	require(launch->comm && launch->operations);
	require(launch->n_described <= TIMING_MAX_OPERATIONS);
	require(!launch->duration_ns || launch->timing == NBP_TIMED);
	require(!launch->complete || launch->n_described == launch->n_operations);
	require(launch->gpu_end_ns >= launch->gpu_start_ns);
	if (launch->complete)
		require(launch->operation < NCCL_OP_MAX && launch->bus_bytes >= 0);
	for (uint32_t i = 0; i < launch->n_described; i++)
		require(launch->operations[i].operation < NCCL_OP_MAX);
	require(!timing_comm__in_flight(launch->comm, &start_ns) || start_ns);
	timings__find(fuzz->timings, launch->comm->key.tgid, launch->comm->hash,
		      launch->comm->rank);
	timing_stats__add(fuzz->stats, job, launch, launch->comm->n_nodes);
}

/* Numbers that lie near one another, so that records find each other; now and then far away. */
static uint64_t narrow(uint64_t value)
{
	return value & 1 ? value : value >> 1 & 0x3f;
}

static void record__narrow(struct nbp_record *r)
{
	r->size = r->size & 0x1f ? sizeof(*r) : r->size;
	r->kind %= NBP_KIND_MAX + 1;
	r->comm_id %= 4;
	r->tid %= 2;
	switch (r->kind) {
	case NBP_KIND_API:
		r->api.api_number = narrow(r->api.api_number);
		r->api.group %= 4;
		r->api.function %= NBP_FUNCTION_MAX + 1;
		break;
	case NBP_KIND_OPERATION:
		r->operation.launch = narrow(r->operation.launch);
		r->operation.operation = narrow(r->operation.operation);
		r->operation.group %= 4;
		r->operation.function %= NBP_FUNCTION_MAX + 1;
		break;
	case NBP_KIND_LAUNCH:
		r->launch.launch = narrow(r->launch.launch);
		r->launch.done = narrow(r->launch.done);
		r->launch.phase %= 6;
		r->launch.timing %= NBP_TIMING_MAX + 1;
		r->launch.source %= 4;
		break;
	case NBP_KIND_TIMER:
		r->timer.operation = narrow(r->timer.operation);
		break;
	case NBP_KIND_LOSS:
		r->loss.reason %= NBP_LOSS_MAX + 1;
		break;
	}
}

static bool all_live(void *ctx, uint32_t tgid)
{
	(void)ctx;
	return tgid != 1;
}

static void stats__check(struct timing_stats *stats)
{
	timing_stats__sweep(stats, all_live, NULL);
	for (struct timing_job *job = timing_stats__first(stats); job; job = job->hh.next)
		for (uint32_t i = 0; i < job->n_series; i++)
			for (unsigned int k = 0; k < job->series[i]->n_rates; k++)
				require(isfinite(job->series[i]->rates[k].bus_bytes) &&
					job->series[i]->rates[k].operations);
}

static void step(struct timings *timings, uint8_t what, struct nbp_record *r, uint64_t *now_ns)
{
	uint32_t tgid = 1 + (what >> 4) % N_PROCESSES;

	*now_ns += (uint64_t)(what & 0xf) << 26;
	if (what == 0xff)
		timings__process_gone(timings, tgid, *now_ns);
	else if (what == 0xfe)
		timings__expire(timings, *now_ns);
	else if (what == 0xfd)
		timings__settle(timings, *now_ns);
	else
		timings__record(timings, tgid, r, *now_ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t now_ns = 1000 * SECOND;
	struct fuzz fuzz = {};
	struct nbp_record r;

	timing_stats__new(&fuzz.stats);
	timings__new(&fuzz.timings, on_launch, &fuzz);
	for (; size > sizeof(r); data += sizeof(r) + 1, size -= sizeof(r) + 1) {
		memcpy(&r, data + 1, sizeof(r));
		if (data[0] & 7)
			record__narrow(&r);
		step(fuzz.timings, data[0], &r, &now_ns);
	}
	for (uint32_t tgid = 1; tgid <= N_PROCESSES; tgid++)
		timings__process_gone(fuzz.timings, tgid, now_ns);
	require(!fuzz.timings->usage.opens && !fuzz.timings->usage.operations &&
		!fuzz.timings->usage.calls);
	stats__check(fuzz.stats);
	timings__free(fuzz.timings);
	timing_stats__free(fuzz.stats);
	return 0;
}
