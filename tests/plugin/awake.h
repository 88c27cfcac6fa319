/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A plugin that is awake and has events for the stand-in CUDA driver's context. */
#ifndef PLUGIN_AWAKE_H
#define PLUGIN_AWAKE_H

#include "driver.h"
#include "fake_cuda.h"

#define MASK_V4 7
#define MASK_V5 (7 | 512 | 1024 | 2048)
#define MASK_V6 (MASK_V5 | 4096)

static const int masks[7] = {0, MASK_V4, MASK_V4, MASK_V4, MASK_V4, MASK_V5, MASK_V6};
static void *cuda_context = (void *)0x1000; /* any word will do for the stand-in */

static void *streams[64]; /* kept in sight of the leak checker */
static atomic_int n_streams;

static struct fake_stream *new_stream(void)
{
	void **stream = &streams[atomic_fetch_add(&n_streams, 1)];

	cuCtxSetCurrent(cuda_context);
	cuStreamCreate(stream, 1);
	return *stream;
}

static void launch_1ms(void *stream)
{
	fake_launch(stream, 1000000);
}

static void launch_20us(void *stream)
{
	fake_launch(stream, 20000);
}

/* What is chosen is settled from one round of the thread to the next: 20 ms each at most. */
static void set_budget(uint32_t ppm)
{
	if (__atomic_exchange_n(&control->budget_ppm, ppm, __ATOMIC_RELAXED) != ppm)
		ms_sleep(60);
}

/* Awake, with events made for the context. */
static void *awake_comm(int version, int *mask, uint64_t hash, struct fake_stream *stream)
{
	void *context = init(version, mask, hash, "tp_0");

	raise_semaphore(1);
	CHECK(wait_mask(mask, masks[version]) >= 0);
	set_budget(1000000);
	for (int i = 0; stream && i < 200 && !count_finished(hash, NULL); i++) {
		one_collective(version, context, stream, i, 0, launch_20us);
		ms_sleep(10);
	}
	for (int n = -1; stream && n != count_finished(hash, NULL);) {
		n = count_finished(hash, NULL); /* what was launched before is all done, too */
		ms_sleep(50);
	}
	set_budget(10000);
	forget_records();
	return context;
}

static void to_sleep(void)
{
	CHECK(wait_asleep());
	forget_records();
}

#endif
