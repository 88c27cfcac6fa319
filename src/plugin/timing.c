/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * GPU time of sampled launches: one CUDA event before the kernel and one behind it, recorded by
 * NCCL's own thread, looked at by the plugin's (poll.c). Both events come from a pool per GPU
 * context that the plugin's thread fills. A stream under capture is never touched: an event would
 * end up in the job's graph or break its capture. The first error of a context is its last: nothing
 * more is timed.
 */
#include "timing.h"

#include "ticks.h"

struct gpu gpus[N_GPUS];
_Atomic uint32_t n_gpus;

static struct gpu *gpu__find(CUcontext context)
{
	for (int i = 0; i < N_GPUS; i++) {
		CUcontext here = atomic_load_explicit(&gpus[i].context, memory_order_acquire);

		if (!here && atomic_compare_exchange_strong(&gpus[i].context, &here, context)) {
			atomic_fetch_add(&n_gpus, 1);
			here = context;
		}
		if (here == context)
			return &gpus[i];
	}
	return NULL;
}

void gpu__fail(struct gpu *gpu)
{
	atomic_store(&gpu->state, GPU_BROKEN);
	control__lost(NBP_LOSS_TIMING_ERROR);
}

static struct pair *pair__take(struct gpu *gpu, uint32_t *ret_stamp)
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
		*ret_stamp = taken >> 2;
		return pair;
	}
	return NULL;
}

struct pair *pair__get(uint16_t index)
{
	return &gpus[index / N_PAIRS].pairs[index % N_PAIRS];
}

void pair__free(struct pair *pair)
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

/* No call of the driver where the communicator's GPU, as it was last time, has no budget left. */
static bool comm__has_budget(struct comm *comm, uint64_t now, const struct claim *claim)
{
	uint32_t gpu = atomic_load_explicit(&comm->gpu, memory_order_relaxed);

	if (!gpu || atomic_load_explicit(&gpus[gpu - 1].state, memory_order_relaxed) != GPU_READY)
		return true;
	return budget__has(&gpus[gpu - 1].budget, now, claim);
}

/* With every launch: when the one before it was is part of the answer. */
static struct claim comm__claim(struct comm *comm, uint64_t now, bool chosen)
{
	uint64_t launched_ns = atomic_load_explicit(&comm->launched_ns, memory_order_relaxed);
	const struct claim claim = {
		.timed_ns = atomic_load_explicit(&comm->timed_ns, memory_order_relaxed),
		.pause_ns = passed_ns(launched_ns, now),
		.chosen = chosen,
	};

	atomic_store_explicit(&comm->launched_ns, now, memory_order_relaxed);
	return claim;
}

static enum nbp_timing gpu__ready(struct comm *comm, struct gpu **ret)
{
	CUcontext context = NULL;
	struct gpu *gpu;

	if (cuda.ctx_get_current(&context) || !context)
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
				     struct choice choice, uint64_t now, struct launch_timing *t)
{
	const struct claim claim = comm__claim(comm, now, choice.chosen);
	struct gpu *gpu = NULL;
	struct pair *pair;
	enum nbp_timing answer;

	if (captured)
		return NBP_NOT_TIMED_CAPTURING;
	if (!cuda__usable())
		return NBP_NOT_TIMED_NO_CUDA;
	if (!claim__asks(&claim) || !comm__has_budget(comm, now, &claim))
		return NBP_NOT_TIMED_BUDGET;
	answer = gpu__ready(comm, &gpu);
	if (answer != NBP_TIMED)
		return answer;
	if (!budget__take(&gpu->budget, now, &claim))
		return NBP_NOT_TIMED_BUDGET;
	answer = stream__ask(gpu, stream);
	if (answer != NBP_TIMED)
		return answer;
	pair = pair__take(gpu, &t->stamp);
	if (!pair)
		return NBP_NOT_TIMED_EVENTS;
	if (cuda.event_record(pair->start, (CUstream)(uintptr_t)stream)) {
		gpu__fail(gpu);
		pair__free(pair);
		return NBP_NOT_TIMED_ERROR;
	}
	t->pair = (gpu - gpus) * N_PAIRS + (pair - gpu->pairs);
	t->after_pause = claim__is_first(&claim) && !choice.usual;
	t->spent_ns = passed_ns(now, ticks__now_ns());
	return NBP_TIMED;
}

void timing__begin(struct comm *comm, uint64_t stream, bool captured, struct choice choice,
		   uint64_t now, struct launch_timing *t)
{
	t->pair = 0;
	t->after_pause = false;
	t->stamp = 0;
	t->spent_ns = 0;
	t->timing = launch__begin(comm, stream, captured, choice, now, t);
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

void timing__end(struct comm *comm, uint64_t stream, struct launch_timing *t)
{
	struct gpu *gpu = &gpus[t->pair / N_PAIRS];
	uint64_t begin = ticks__now_ns();

	t->timing = launch__end(gpu, pair__get(t->pair), stream, t->stamp);
	if (t->timing == NBP_TIMED)
		atomic_store_explicit(&comm->timed_ns, begin, memory_order_relaxed);
	budget__charge(&gpu->budget, t->spent_ns + passed_ns(begin, ticks__now_ns()));
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
