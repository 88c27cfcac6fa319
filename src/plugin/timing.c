/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * GPU time of sampled launches: one CUDA event before the kernel and one behind it, recorded by
 * NCCL's own thread, looked at by the plugin's. Both events come from a pool per GPU context that
 * the plugin's thread fills. A stream under capture is never touched: an event would end up in the
 * job's graph or break its capture. The first error of a context is its last: nothing more is
 * timed.
 */
#include "timing.h"

#include "budget.h"

#include <stdlib.h>
#include <string.h>

#define N_GPUS	       16
#define N_PAIRS	       64		    /* timed launches under way in one context */
#define LOST_AFTER_NS  (60 * NS_PER_SECOND) /* a launch whose stop never came */
#define TIME_ABSURD_NS (3600 * NS_PER_SECOND)

enum pair_state {
	PAIR_FREE,
	PAIR_TAKEN,   /* by the thread that launches */
	PAIR_PENDING, /* by the plugin's thread */
};

struct pair {
	_Atomic uint32_t state; /* stamp << 2 | enum pair_state */
	CUevent start, end;
	_Atomic uint64_t taken_ns;
};

struct gpu {
	_Atomic(CUcontext) context;
	_Atomic uint32_t state; /* enum gpu_state */
	struct budget budget;
	_Atomic uint32_t hint;
	struct pair pairs[N_PAIRS];

	/* the plugin's thread's own */
	struct clock clock;
	bool identified;
	int32_t device;
	uint8_t uuid[16];
};

static struct gpu gpus[N_GPUS];

/* ---- NCCL's threads ---- */

static struct gpu *gpu__find(CUcontext context)
{
	for (int i = 0; i < N_GPUS; i++) {
		CUcontext here = atomic_load_explicit(&gpus[i].context, memory_order_acquire);

		if (!here && atomic_compare_exchange_strong(&gpus[i].context, &here, context))
			here = context;
		if (here == context)
			return &gpus[i];
	}
	return NULL;
}

static void gpu__fail(struct gpu *gpu)
{
	atomic_store(&gpu->state, GPU_BROKEN);
	control__lost(NBP_LOSS_TIMING_ERROR);
}

static struct pair *pair__take(struct gpu *gpu, uint64_t now, uint32_t *ret_stamp)
{
	uint32_t from = atomic_fetch_add_explicit(&gpu->hint, 1, memory_order_relaxed);

	for (int i = 0; i < N_PAIRS; i++) {
		struct pair *pair = &gpu->pairs[(from + i) % N_PAIRS];
		uint32_t state = atomic_load_explicit(&pair->state, memory_order_relaxed);
		uint32_t taken = ((state >> 2) + 1) << 2 | PAIR_TAKEN;

		if ((state & 3) != PAIR_FREE)
			continue;
		if (!atomic_compare_exchange_strong(&pair->state, &state, taken))
			continue;
		atomic_store_explicit(&pair->taken_ns, now, memory_order_relaxed);
		*ret_stamp = taken >> 2;
		return pair;
	}
	return NULL;
}

static struct pair *pair__get(uint16_t index)
{
	return &gpus[index / N_PAIRS].pairs[index % N_PAIRS];
}

static void pair__free(struct pair *pair)
{
	uint32_t state = atomic_load(&pair->state);

	atomic_store(&pair->state, (state >> 2) << 2 | PAIR_FREE);
}

/*
 * On the legacy stream the answer may be an error of capture: another stream captures, and would be
 * broken by work on this one. All of them say the same: hands off.
 */
static enum nbp_timing stream__ask(struct gpu *gpu, uint64_t stream)
{
	int status = 1, error = cuda.stream_is_capturing((CUstream)(uintptr_t)stream, &status);

	if (!error)
		return status == CAPTURE_NONE ? NBP_TIMED : NBP_NOT_TIMED_CAPTURING;
	if (error >= CUDA_CAPTURE_ERROR_FIRST && error <= CUDA_CAPTURE_ERROR_LAST)
		return NBP_NOT_TIMED_CAPTURING;
	gpu__fail(gpu);
	return NBP_NOT_TIMED_ERROR;
}

static enum nbp_timing gpu__ready(struct comm *comm, struct gpu **ret)
{
	CUcontext context = NULL;
	struct gpu *gpu;

	if (!cuda__usable() || cuda.ctx_get_current(&context) || !context)
		return NBP_NOT_TIMED_NO_CUDA;
	gpu = gpu__find(context);
	if (!gpu)
		return NBP_NOT_TIMED_EVENTS;
	atomic_store_explicit(&comm->gpu, (uint32_t)(gpu - gpus) + 1, memory_order_relaxed);
	*ret = gpu;
	switch (atomic_load_explicit(&gpu->state, memory_order_acquire)) {
	case GPU_READY:
		return NBP_TIMED;
	case GPU_BROKEN:
		return NBP_NOT_TIMED_ERROR;
	default:
		return NBP_NOT_TIMED_STARTING;
	}
}

static enum nbp_timing launch__begin(struct comm *comm, uint64_t stream, bool captured,
				     uint64_t now, struct launch_timing *t)
{
	struct gpu *gpu = NULL;
	struct pair *pair;
	enum nbp_timing answer;

	if (captured)
		return NBP_NOT_TIMED_CAPTURING;
	answer = gpu__ready(comm, &gpu);
	if (answer != NBP_TIMED)
		return answer;
	if (!budget__may(&gpu->budget, now))
		return NBP_NOT_TIMED_BUDGET;
	answer = stream__ask(gpu, stream);
	if (answer != NBP_TIMED)
		return answer;
	pair = pair__take(gpu, now, &t->stamp);
	if (!pair)
		return NBP_NOT_TIMED_EVENTS;
	if (cuda.event_record(pair->start, (CUstream)(uintptr_t)stream)) {
		gpu__fail(gpu);
		pair__free(pair);
		return NBP_NOT_TIMED_ERROR;
	}
	t->pair = (gpu - gpus) * N_PAIRS + (pair - gpu->pairs);
	t->spent_ns = now_ns() - now;
	return NBP_TIMED;
}

void timing__begin(struct comm *comm, uint64_t stream, bool captured, uint64_t now,
		   struct launch_timing *t)
{
	t->pair = 0;
	t->stamp = 0;
	t->spent_ns = 0;
	t->timing = launch__begin(comm, stream, captured, now, t);
}

static enum nbp_timing launch__end(struct gpu *gpu, struct pair *pair, uint64_t stream,
				   uint32_t stamp)
{
	uint32_t taken = stamp << 2 | PAIR_TAKEN;
	enum nbp_timing answer;

	if (atomic_load(&pair->state) != taken)
		return NBP_NOT_TIMED_EVENTS; /* taken back: the launch took longer than a minute */
	answer = stream__ask(gpu, stream);
	if (answer == NBP_TIMED && cuda.event_record(pair->end, (CUstream)(uintptr_t)stream)) {
		gpu__fail(gpu);
		answer = NBP_NOT_TIMED_ERROR;
	}
	if (answer != NBP_TIMED) {
		pair__free(pair);
		return answer;
	}
	if (!atomic_compare_exchange_strong(&pair->state, &taken, stamp << 2 | PAIR_PENDING))
		return NBP_NOT_TIMED_EVENTS;
	control__add(&nccl_bpftrace_control.n_timed, 1);
	return NBP_TIMED;
}

void timing__end(uint64_t stream, struct launch_timing *t)
{
	struct gpu *gpu = &gpus[t->pair / N_PAIRS];
	uint64_t begin = now_ns();

	t->timing = launch__end(gpu, pair__get(t->pair), stream, t->stamp);
	budget__charge(&gpu->budget, t->spent_ns + now_ns() - begin);
}

void timing__drop(struct launch_timing *t)
{
	uint32_t taken = t->stamp << 2 | PAIR_TAKEN;

	if (t->timing == NBP_TIMED)
		atomic_compare_exchange_strong(&pair__get(t->pair)->state, &taken,
					       t->stamp << 2 | PAIR_FREE);
}

/* Recording a pending event again is allowed: the pair can be used at once. */
void timing__give_back(uint16_t pair)
{
	pair__free(pair__get(pair));
}

/* ---- the plugin's thread ---- */

static bool gpu__enter(struct gpu *gpu)
{
	int error = cuda__enter(atomic_load(&gpu->context));

	if (error > 0)
		gpu__fail(gpu); /* the job has destroyed its context */
	return !error;
}

static int gpu__identify(struct gpu *gpu)
{
	CUdevice device;

	if (cuda.ctx_get_device(&device))
		return -1;
	if (cuda.device_get_uuid && !cuda.device_get_uuid(gpu->uuid, device)) {
		gpu->device = device;
		gpu->identified = true;
	}
	return 0;
}

static int gpu__fill(struct gpu *gpu)
{
	for (int i = 0; i < N_PAIRS; i++) {
		struct pair *pair = &gpu->pairs[i];

		if (cuda.event_create(&pair->start, 0) || cuda.event_create(&pair->end, 0))
			return -1;
	}
	return 0;
}

static void gpu__prepare(struct gpu *gpu)
{
	if (!gpu__enter(gpu))
		return;
	if (gpu__identify(gpu) || gpu__fill(gpu) || clock__create(&gpu->clock))
		gpu__fail(gpu);
	else
		atomic_store_explicit(&gpu->state, GPU_READY, memory_order_release);
	cuda__leave();
}

/* Launches that were started and never stopped: their thread is gone. */
static void gpu__take_back(struct gpu *gpu, uint64_t now)
{
	for (int i = 0; i < N_PAIRS; i++) {
		struct pair *pair = &gpu->pairs[i];
		uint32_t state = atomic_load(&pair->state);
		uint64_t taken_ns = atomic_load_explicit(&pair->taken_ns, memory_order_relaxed);

		if ((state & 3) != PAIR_TAKEN || now < taken_ns || now - taken_ns < LOST_AFTER_NS)
			continue;
		if (atomic_compare_exchange_strong(&pair->state, &state,
						   (state >> 2) << 2 | PAIR_FREE))
			control__lost(NBP_LOSS_TIMING_ABANDONED);
	}
}

static void gpu__compare_clocks(struct gpu *gpu, uint64_t now)
{
	if (!clock__is_due(&gpu->clock, now) || !gpu__enter(gpu))
		return;
	if (clock__compare(&gpu->clock))
		gpu__fail(gpu);
	cuda__leave();
}

void timing__serve(uint64_t now)
{
	if (!cuda__load())
		return;
	for (int i = 0; i < N_GPUS && atomic_load(&gpus[i].context); i++) {
		uint32_t state = atomic_load(&gpus[i].state);

		if (state == GPU_NEW)
			gpu__prepare(&gpus[i]);
		if (state != GPU_READY)
			continue;
		gpu__take_back(&gpus[i], now);
		gpu__compare_clocks(&gpus[i], now);
	}
}

static enum timing_result pair__times(struct gpu *gpu, struct pair *pair, uint64_t launched_ns,
				      struct timing_times *ret)
{
	uint64_t now = now_ns();
	float ms = -1;

	if (cuda.event_elapsed(&ms, pair->start, pair->end))
		return TIMING_FAILED;
	memset(ret, 0, sizeof(*ret));
	ret->clock_error_ns = NBP_UNKNOWN;
	/* Not longer than the time since the host launched it. */
	if (!(ms > 0) || ms * 1e6 > (double)(now - launched_ns) + NS_PER_MS ||
	    ms * 1e6 > TIME_ABSURD_NS)
		return TIMING_INVALID;
	ret->duration_ns = ms * 1e6;
	ret->start_ns = clock__host_ns(&gpu->clock, pair->start, launched_ns, now);
	if (ret->start_ns) {
		ret->end_ns = ret->start_ns + ret->duration_ns;
		ret->clock_error_ns = gpu->clock.error_ns;
	}
	return TIMING_DONE;
}

static enum timing_result pair__poll(struct gpu *gpu, struct pair *pair, uint64_t launched_ns,
				     struct timing_times *ret)
{
	enum timing_result result = TIMING_FAILED;
	int error = cuda.event_query(pair->end);

	if (error == CUDA_NOT_READY)
		return TIMING_PENDING;
	if (!error)
		result = pair__times(gpu, pair, launched_ns, ret);
	if (result == TIMING_FAILED)
		gpu__fail(gpu);
	pair__free(pair);
	return result;
}

enum timing_result timing__poll(uint16_t index, uint64_t launched_ns, struct timing_times *ret)
{
	struct gpu *gpu = &gpus[index / N_PAIRS];
	enum timing_result result;

	if (atomic_load(&gpu->state) != GPU_READY || !gpu__enter(gpu)) {
		timing__give_back(index);
		return TIMING_FAILED;
	}
	result = pair__poll(gpu, pair__get(index), launched_ns, ret);
	cuda__leave();
	return result;
}

bool timing__device(uint32_t index, int32_t *ret_device, uint8_t ret_uuid[16])
{
	struct gpu *gpu = &gpus[index];

	if (index >= N_GPUS || atomic_load(&gpu->state) == GPU_NEW || !gpu->identified)
		return false;
	*ret_device = gpu->device;
	memcpy(ret_uuid, gpu->uuid, 16);
	return true;
}
