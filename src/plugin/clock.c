/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An event on an otherwise empty stream, between two readings of the host's clock, ties the GPU's
 * time to the host's. Repeated, since clocks drift and since a float of milliseconds holds half a
 * microsecond only up to some seconds.
 */
#include "timing.h"

#define COMPARE_EVERY_NS (1 * NS_PER_SECOND)
#define COMPARE_TRIES	 5
#define WAIT_NS		 (1 * NS_PER_MS)
#define ERROR_MAX_NS	 (200 * 1000)
#define REACH_MS	 8000.0f /* of one comparison */

int clock__create(struct clock *clock)
{
	if (cuda.stream_create(&clock->stream, STREAM_NON_BLOCKING) ||
	    cuda.event_create(&clock->now, 0) || cuda.event_create(&clock->spare, 0))
		return -1;
	return 0;
}

bool clock__is_due(const struct clock *clock, uint64_t now)
{
	return !clock->tried_ns || now - clock->tried_ns >= COMPARE_EVERY_NS;
}

/* 1: took too long */
static int event__reached(CUevent event, uint64_t since_ns)
{
	for (;;) {
		int error = cuda.event_query(event);

		if (error != CUDA_NOT_READY)
			return error ? -1 : 0;
		if (now_ns() - since_ns > WAIT_NS)
			return 1;
	}
}

static int clock__try(struct clock *clock, uint64_t *ret_ns, uint64_t *ret_bracket_ns)
{
	uint64_t before = now_ns(), after;
	int result;

	if (cuda.event_record(clock->spare, clock->stream))
		return -1;
	result = event__reached(clock->spare, before);
	after = now_ns();
	*ret_ns = before + (after - before) / 2;
	*ret_bracket_ns = after - before;
	return result;
}

int clock__compare(struct clock *clock)
{
	uint64_t best = 2 * ERROR_MAX_NS;

	clock->tried_ns = now_ns();
	if (clock->host_ns && clock->tried_ns - clock->host_ns > 4 * COMPARE_EVERY_NS)
		clock->host_ns = 0;
	for (int i = 0; i < COMPARE_TRIES; i++) {
		uint64_t host, bracket;
		int result = clock__try(clock, &host, &bracket);
		CUevent event = clock->spare;

		if (result < 0)
			return -1;
		if (result || bracket >= best)
			continue;
		best = bracket;
		clock->spare = clock->now;
		clock->now = event;
		clock->host_ns = host;
		clock->error_ns = bracket / 2;
	}
	return 0;
}

uint64_t clock__host_ns(const struct clock *clock, CUevent event, uint64_t not_before,
			uint64_t not_after)
{
	uint64_t host;
	float ms;

	if (!clock->host_ns || cuda.event_elapsed(&ms, clock->now, event))
		return 0;
	if (!(ms > -REACH_MS && ms < REACH_MS))
		return 0;
	host = clock->host_ns + (int64_t)(ms * 1e6);
	if (host + clock->error_ns + NS_PER_MS < not_before || host > not_after + clock->error_ns)
		return 0;
	return host;
}
