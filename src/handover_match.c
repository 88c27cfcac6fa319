/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which word of a plugin belongs to which record of a probe. */
#include "handover_private.h"

#define FIRST_ROOM 64
#define MAX_WALK   64 /* calls on one communicator that are under way at the same time */

static struct waiting_call *waiting__at(const struct waiting *w, uint32_t i)
{
	return &w->calls[(w->first + i) & (w->room - 1)];
}

static void waiting__drop_first(struct waiting *w)
{
	w->first = (w->first + 1) & (w->room - 1);
	w->n--;
}

static void waiting__trim(struct waiting *w)
{
	while (w->n && waiting__at(w, 0)->skip)
		waiting__drop_first(w);
}

static bool waiting__grow(struct handovers *h, struct waiting *w)
{
	uint32_t room = w->room ? w->room * 2 : FIRST_ROOM;
	struct waiting_call *calls;

	if (room > MAX_WAITING || h->n_waiting + room > MAX_ALL_WAITING)
		return false;
	calls = malloc(room * sizeof(*calls));
	if (!calls)
		return false;
	for (uint32_t i = 0; i < w->n; i++)
		calls[i] = *waiting__at(w, i);
	free(w->calls);
	h->n_waiting += room - w->room;
	w->calls = calls;
	w->room = room;
	w->first = 0;
	return true;
}

bool waiting__put(struct handovers *h, struct waiting *w, uint64_t time_ns, uint32_t arguments)
{
	bool has_place = true;
	uint32_t i;

	if (w->n == w->room && !waiting__grow(h, w)) {
		has_place = false;
		if (!w->room)
			return false;
		waiting__drop_first(w);
		waiting__trim(w);
	}
	/* Threads read the clock before they get their place in the ring: nearly sorted. */
	for (i = w->n++; i > 0 && waiting__at(w, i - 1)->time_ns > time_ns; i--) {
		*waiting__at(w, i) = *waiting__at(w, i - 1);
		if (waiting__at(w, i)->skip)
			waiting__at(w, i)->skip = 1; /* not over the new one */
	}
	*waiting__at(w, i) = (struct waiting_call){time_ns, arguments, 0};
	return has_place;
}

/* Number of calls up to that time. */
static uint32_t waiting__up_to(const struct waiting *w, uint64_t time_ns)
{
	uint32_t low = 0, high = w->n;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (waiting__at(w, middle)->time_ns <= time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Index + 1 of the last one among the first n that waits; 0: none. What is skipped is remembered.
 */
static uint32_t waiting__last(struct waiting *w, uint32_t n)
{
	uint32_t i = n;

	while (i > 0 && waiting__at(w, i - 1)->skip)
		i -= i < waiting__at(w, i - 1)->skip ? i : waiting__at(w, i - 1)->skip;
	if (i + 1 < n)
		waiting__at(w, n - 1)->skip = n - i;
	return i;
}

bool waiting__take(struct waiting *w, uint64_t time_ns, uint32_t arguments)
{
	uint32_t n = waiting__up_to(w, time_ns);

	for (uint32_t walked = 0; walked < MAX_WALK; walked++, n--) {
		struct waiting_call *call;

		n = waiting__last(w, n);
		call = n ? waiting__at(w, n - 1) : NULL;
		if (!call || call->time_ns + MAX_CALL_NS < time_ns)
			return false;
		if (call->arguments != arguments)
			continue;
		call->skip = 1;
		waiting__trim(w);
		return true;
	}
	return false;
}

uint64_t waiting__give_up(struct waiting *w, uint64_t before_ns, uint64_t n)
{
	uint64_t taken = 0;

	while (taken < n && w->n && waiting__at(w, 0)->time_ns < before_ns) {
		waiting__drop_first(w);
		waiting__trim(w);
		taken++;
	}
	return taken;
}

void waiting__expire(struct waiting *w, uint64_t before_ns)
{
	while (w->n && waiting__at(w, 0)->time_ns < before_ns)
		waiting__drop_first(w);
	waiting__trim(w);
}

bool waiting__any(const struct waiting *w, uint64_t before_ns)
{
	/* the first is never one that was answered */
	return w->n && waiting__at(w, 0)->time_ns < before_ns;
}

void waiting__free(struct handovers *h, struct waiting *w)
{
	h->n_waiting -= w->room;
	free(w->calls);
	*w = (struct waiting){0};
}
