/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An event on an otherwise empty stream, between two readings of the host's clock, ties the GPU's
 * time to the host's. Repeated, since clocks drift and since a float of milliseconds holds half a
 * microsecond only up to some seconds. On the same stream: what a pair of events reads with nothing
 * between.
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
	    cuda.event_create(&clock->now, 0) || cuda.event_create(&clock->spare, 0) ||
	    cuda.event_create(&clock->behind, 0))
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

static int clock__tie(struct clock *clock)
{
	uint64_t best = 2 * ERROR_MAX_NS;

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

/* 1: took too long, or reads as if it had */
static int empty__try(struct clock *clock, uint64_t *ret_ns)
{
	float ms = -1;
	int result;

	if (cuda.event_record(clock->spare, clock->stream) ||
	    cuda.event_record(clock->behind, clock->stream))
		return -1;
	result = event__reached(clock->behind, now_ns());
	if (result)
		return result;
	if (cuda.event_elapsed(&ms, clock->spare, clock->behind))
		return -1;
	if (!(ms > 0 && ms * 1e6 < WAIT_NS))
		return 1;
	*ret_ns = ms * 1e6;
	return 0;
}

static void sorted__insert(uint64_t *sorted, int n, uint64_t value)
{
	for (; n && sorted[n - 1] > value; n--)
		sorted[n] = sorted[n - 1];
	sorted[n] = value;
}

/*
 * The median of the tries, and the least of all medians so far: whatever else goes on there makes
 * an empty pair longer, and never shorter.
 */
static int clock__measure_empty(struct clock *clock)
{
	uint64_t tries[COMPARE_TRIES], ns = 0;
	int n = 0;

	for (int i = 0; i < COMPARE_TRIES; i++) {
		int result = empty__try(clock, &ns);

		if (result < 0)
			return -1;
		if (!result)
			sorted__insert(tries, n++, ns);
	}
	if (n && (!clock->empty_ns || tries[n / 2] < clock->empty_ns))
		clock->empty_ns = tries[n / 2];
	return 0;
}

int clock__compare(struct clock *clock)
{
	clock->tried_ns = now_ns();
	if (clock__tie(clock))
		return -1;
	if (clock->host_ns < clock->tried_ns)
		return 0; /* no event came in time, and none will now */
	return clock__measure_empty(clock);
}

/*
 * On an H200 a pair reads 2.9 us more than a kernel that spins takes of its stream, and as much
 * with nothing between; of NCCL's kernels it reads 0.5 to 1.6 us more, as part of the events' work
 * is done where the next kernel would wait anyway. So a pair adds between nothing and what an empty
 * one reads, and never more than it reads itself. With half of that taken off, no time is off by
 * more than the other half, and none becomes 0.
 */
uint64_t clock__between_ns(const struct clock *clock, uint64_t read_ns)
{
	uint64_t most_ns = clock->empty_ns < read_ns ? clock->empty_ns : read_ns;

	return read_ns - most_ns / 2;
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
