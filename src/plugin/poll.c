/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The plugin's thread: makes the events of a GPU context, looks after those that are under way. */
#include "timing.h"

#include <string.h>

#define LOST_AFTER_NS (60 * NS_PER_SECOND) /* a launch whose stop never came */
#define FLOAT_BITS    22		   /* of a length that a float is sure to hold */
#define FILL	      0.9		   /* of the budget: chance bunches what it chooses */

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

/* Compared before a launch is timed: what is taken off is known then, unless all tries failed. */
static void gpu__prepare(struct gpu *gpu)
{
	if (!gpu__enter(gpu))
		return;
	if (gpu__identify(gpu) || gpu__fill(gpu) || clock__create(&gpu->clock) ||
	    clock__compare(&gpu->clock))
		gpu__fail(gpu);
	else
		atomic_store_explicit(&gpu->state, GPU_READY, memory_order_release);
	cuda__leave();
}

/*
 * Launches that were started and never stopped: their thread is gone. By what this thread sees, and
 * by its clock: the other may be held up anywhere.
 */
static void gpu__take_back(struct gpu *gpu, uint64_t now)
{
	for (int i = 0; i < N_PAIRS; i++) {
		struct pair *pair = &gpu->pairs[i];
		uint32_t state = atomic_load(&pair->state);

		if (state != pair->seen) {
			pair->seen = state;
			pair->seen_ns = now;
		}
		if ((state & 3) != PAIR_TAKEN || now - pair->seen_ns < LOST_AFTER_NS)
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

static struct gpu *comm__gpu(const struct comm *comm)
{
	uint32_t gpu = atomic_load_explicit(&comm->gpu, memory_order_relaxed);

	return gpu && atomic_load(&gpus[gpu - 1].state) == GPU_READY ? &gpus[gpu - 1] : NULL;
}

/* Each GPU's budget, among the communicators that launch there. */
void timing__share(uint64_t now)
{
	double room = budget__room() * FILL;
	struct comm *comm;

	for (uint32_t i = 0; (comm = comm__next(&i));) {
		struct gpu *gpu = comm__gpu(comm);
		uint64_t n = atomic_load_explicit(&comm->launch_number, memory_order_relaxed);
		double rate = rate__update(&comm->rate, n, now);

		atomic_store_explicit(&comm->sample.share,
				      gpu ? share__of(&gpu->share, rate) : SAMPLE_ALL,
				      memory_order_relaxed);
		atomic_store_explicit(&comm->sample.lately,
				      gpu ? share__part(&gpu->share, comm->rate.lately)
					  : SAMPLE_ALL,
				      memory_order_relaxed);
	}
	for (int i = 0; i < N_GPUS && atomic_load(&gpus[i].context); i++)
		share__settle(&gpus[i].share, room);
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

/* As it was read: not longer than the time since the host launched it. */
static bool time__is_sound(float ms, uint64_t since_ns)
{
	return ms > 0 && ms * 1e6 <= (double)(since_ns + NS_PER_MS + (since_ns >> FLOAT_BITS));
}

static enum timing_result pair__times(struct gpu *gpu, struct pair *pair, float ms,
				      uint64_t launched_ns, struct timing_times *ret)
{
	uint64_t now = now_ns();

	memset(ret, 0, sizeof(*ret));
	ret->clock_error_ns = NBP_UNKNOWN;
	if (!time__is_sound(ms, now - launched_ns))
		return TIMING_INVALID;
	ret->duration_ns = clock__between_ns(&gpu->clock, ms * 1e6);
	ret->start_ns = clock__host_ns(&gpu->clock, pair->start, launched_ns, now);
	if (ret->start_ns) {
		ret->end_ns = ret->start_ns + ret->duration_ns;
		ret->clock_error_ns = gpu->clock.error_ns;
	}
	return TIMING_DONE;
}

/*
 * The time between the two says whether both have come. As few calls as that: each may take a lock
 * of the driver's that a thread of the job wants.
 */
static enum timing_result pair__poll(struct gpu *gpu, struct pair *pair, uint64_t launched_ns,
				     struct timing_times *ret)
{
	enum timing_result result = TIMING_FAILED;
	float ms = -1;
	int error = cuda.event_elapsed(&ms, pair->start, pair->end);

	if (error == CUDA_NOT_READY)
		return TIMING_PENDING;
	if (error)
		gpu__fail(gpu);
	else
		result = pair__times(gpu, pair, ms, launched_ns, ret);
	pair__free(pair);
	return result;
}

enum timing_result timing__poll(uint16_t index, uint64_t launched_ns, struct timing_times *ret)
{
	struct gpu *gpu = &gpus[index / N_PAIRS];

	if (atomic_load(&gpu->state) != GPU_READY || !gpu__enter(gpu)) {
		timing__give_back(index);
		return TIMING_FAILED;
	}
	return pair__poll(gpu, pair__get(index), launched_ns, ret);
}

static enum timing_result pair__look(struct gpu *gpu, struct pair *pair, uint64_t launched_ns,
				     struct timing_times *ret)
{
	int error = cuda.event_query(pair->start);

	if (error == CUDA_NOT_READY)
		return TIMING_PENDING;
	if (error) {
		gpu__fail(gpu);
		return TIMING_FAILED;
	}
	ret->start_ns = clock__host_ns(&gpu->clock, pair->start, launched_ns, now_ns());
	if (ret->start_ns)
		ret->clock_error_ns = gpu->clock.error_ns;
	return TIMING_DONE;
}

enum timing_result timing__look(uint16_t index, uint64_t launched_ns, struct timing_times *ret)
{
	struct gpu *gpu = &gpus[index / N_PAIRS];

	if (atomic_load(&gpu->state) != GPU_READY || !gpu__enter(gpu))
		return TIMING_FAILED;
	return pair__look(gpu, pair__get(index), launched_ns, ret);
}

uint32_t timing__gpu(uint16_t index)
{
	return index / N_PAIRS;
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
