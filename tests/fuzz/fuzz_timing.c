/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Plugin records: whatever a process sends, what is handed out is consistent and all is freed. */
#include "../../src/nccl_api.c"

#include "../unit/timing_feed.h"

#define N_PROCESSES 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void on_launch(void *ctx, const struct timing_launch *launch)
{
	struct timings **timings = ctx;
	uint64_t start_ns;

	require(launch->comm && launch->operations);
	require(launch->n_described <= TIMING_MAX_OPERATIONS);
	require(!launch->duration_ns || launch->timing == NBP_TIMED);
	require(!launch->complete || launch->n_described == launch->n_operations);
	require(launch->gpu_end_ns >= launch->gpu_start_ns);
	if (launch->complete)
		require(launch->operation < NCCL_OP_MAX && launch->bus_bytes >= 0);
	for (uint32_t i = 0; i < launch->n_described; i++)
		require(launch->operations[i].operation < NCCL_OP_MAX);
	timing_comm__in_flight(launch->comm, &start_ns);
	timings__find(*timings, launch->comm->key.tgid, launch->comm->hash, launch->comm->rank);
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
		r->launch.phase %= 4;
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
	struct timings *timings = NULL;
	struct nbp_record r;

	timings__new(&timings, on_launch, &timings);
	for (; size > sizeof(r); data += sizeof(r) + 1, size -= sizeof(r) + 1) {
		memcpy(&r, data + 1, sizeof(r));
		if (data[0] & 7)
			record__narrow(&r);
		step(timings, data[0], &r, &now_ns);
	}
	for (uint32_t tgid = 1; tgid <= N_PROCESSES; tgid++)
		timings__process_gone(timings, tgid, now_ns);
	require(!timings->usage.opens && !timings->usage.operations && !timings->usage.calls);
	timings__free(timings);
	return 0;
}
