/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A binary heap of events by their time; those of one time stay as they came. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "foreign_private.h"

static bool event__is_before(const struct event *a, const struct event *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->number < b->number;
}

static void order__swap(struct order *order, uint32_t a, uint32_t b)
{
	struct event *event = order->events[a];

	order->events[a] = order->events[b];
	order->events[b] = event;
}

static int order__grow(struct order *order)
{
	uint32_t room = order->room ? order->room * 2 : 64;
	struct event **events = realloc(order->events, room * sizeof(*events));

	if (!events)
		return -ENOMEM;
	order->events = events;
	order->room = room;
	return 0;
}

static struct event *event__copy(const struct event *event)
{
	size_t size = event->is_call ? offsetof(struct event, call) + sizeof(event->call)
				     : offsetof(struct event, record) + event->record.size;
	struct event *copy = malloc(size);

	if (copy)
		memcpy(copy, event, size);
	return copy;
}

int order__add(struct order *order, const struct event *event)
{
	struct event *copy;
	uint32_t at;

	if (order->n == order->room && order__grow(order))
		return -ENOMEM;
	copy = event__copy(event);
	if (!copy)
		return -ENOMEM;
	copy->number = order->arrived++;
	at = order->n++;
	order->events[at] = copy;
	while (at && event__is_before(order->events[at], order->events[(at - 1) / 2])) {
		order__swap(order, at, (at - 1) / 2);
		at = (at - 1) / 2;
	}
	return 0;
}

const struct event *order__first(const struct order *order)
{
	return order->n ? order->events[0] : NULL;
}

void order__drop_first(struct order *order)
{
	uint32_t at = 0, child;

	free(order->events[0]);
	order->events[0] = order->events[--order->n];
	while ((child = 2 * at + 1) < order->n) {
		if (child + 1 < order->n &&
		    event__is_before(order->events[child + 1], order->events[child]))
			child++;
		if (!event__is_before(order->events[child], order->events[at]))
			break;
		order__swap(order, at, child);
		at = child;
	}
}

void order__free(struct order *order)
{
	while (order->n)
		free(order->events[--order->n]);
	free(order->events);
	order->events = NULL;
	order->room = 0;
}
