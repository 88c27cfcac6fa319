/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which API call an operation comes from. Both carry the number of their group in their thread. An
 * implicit group is one public call; in an explicit one count and root must agree, too. Calls that
 * agree in all of that are of one group and need not be told apart. A call without an operation
 * (count 0, in place to itself) stays unused.
 */
#include "timing_private.h"

#include <stdlib.h>

#define MAX_SCAN 512 /* calls looked at for one operation */

static struct call *calls__at(struct calls *calls, uint32_t i)
{
	return &calls->ring[(calls->head + i) % calls->size];
}

/* Returns how many places there are more; 0: none, as it may not or cannot. */
static uint32_t calls__grow(struct calls *calls, uint32_t room)
{
	uint32_t size = calls->size ? calls->size * 2 : 16, more = size - calls->size;
	struct call *ring;

	if (more > room || size > TIMING_MAX_CALLS_PER_COMM)
		return 0;
	ring = malloc(size * sizeof(*ring));
	if (!ring)
		return 0;
	for (uint32_t i = 0; i < calls->n; i++)
		ring[i] = *calls__at(calls, i);
	free(calls->ring);
	calls->ring = ring;
	calls->size = size;
	calls->head = 0;
	return more;
}

static void calls__drop(struct calls *calls)
{
	calls->head = (calls->head + 1) % calls->size;
	calls->n--;
}

/*
 * Without room the oldest makes place for the new one. May grow by `room` places; returns by how
 * many it did.
 */
uint32_t calls__add(struct calls *calls, const struct call *call, uint32_t room)
{
	uint32_t more = 0;

	if (calls->n == calls->size)
		more = calls__grow(calls, room);
	if (!calls->size)
		return 0;
	if (calls->n == calls->size)
		calls__drop(calls);
	*calls__at(calls, calls->n++) = *call;
	return more;
}

/* What this thread called before this group, and what is used, is done with. */
static void calls__trim(struct calls *calls, uint32_t tid, uint64_t group)
{
	while (calls->n) {
		const struct call *call = calls__at(calls, 0);

		if (!call->is_used && (call->tid != tid || call->group >= group))
			return;
		calls__drop(calls);
	}
}

static bool call__fits(const struct call *call, const struct nbp_record *record, uint64_t bytes)
{
	const struct nbp_operation *operation = &record->operation;

	if (call->is_used || call->group != operation->group || call->tid != record->tid ||
	    call->function != operation->function || call->time_ns > record->time_ns)
		return false;
	if (call->is_single)
		return true;
	return call->bytes == bytes && (call->root == NBP_NO_RANK || call->root == operation->root);
}

/* When it was called, CLOCK_MONOTONIC; 0: not known. */
uint64_t calls__take(struct calls *calls, const struct nbp_record *record, uint64_t bytes)
{
	uint64_t group = record->operation.group;

	if (!group)
		return 0;
	calls__trim(calls, record->tid, group);
	for (uint32_t i = 0; i < calls->n && i < MAX_SCAN; i++) {
		struct call *call = calls__at(calls, i);

		if (!call__fits(call, record, bytes))
			continue;
		call->is_used = true;
		return call->time_ns;
	}
	return 0;
}

/* Returns how many places were given back: all, when none is left. */
uint32_t calls__expire(struct calls *calls, uint64_t before_ns)
{
	uint32_t size = calls->size;

	while (calls->n) {
		const struct call *call = calls__at(calls, 0);

		if (!call->is_used && call->time_ns >= before_ns)
			return 0;
		calls__drop(calls);
	}
	free(calls->ring);
	*calls = (struct calls){};
	return size;
}
