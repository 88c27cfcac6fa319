/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The plugin's running numbers: what came, what is missing. */
#include <string.h>

#include "timing_private.h"

/* No loss is that large: who jumps further began anew, or lies. */
#define MAX_JUMP (1ULL << 20)

static void numbers__restart(struct numbers *n, uint64_t base, bool is_told)
{
	if (n->begun)
		n->folded += numbers__missing(n);
	n->base = n->highest = base;
	n->received = 0;
	n->begun = true;
	n->is_guess = base && !is_told;
}

bool numbers__add(struct numbers *n, uint64_t number)
{
	if (!number || number > MAX_NUMBER)
		return false;
	if (!n->begun || number > n->highest + MAX_JUMP || n->highest > number + MAX_JUMP)
		numbers__restart(n, number - 1, false);
	if (number <= n->base)
		return true; /* a thread that was a little late; it was never expected */
	if (number > n->highest)
		n->highest = number;
	n->received++;
	return true;
}

void numbers__told(struct numbers *n, uint64_t highest)
{
	if (highest > MAX_NUMBER)
		return;
	if (!n->begun || highest > n->highest + MAX_JUMP)
		numbers__restart(n, highest, true);
	else if (highest > n->highest)
		n->highest = highest;
}

uint64_t numbers__missing(const struct numbers *n)
{
	uint64_t expected = n->highest - n->base;

	return n->folded + (expected > n->received ? expected - n->received : 0);
}

void work__see(struct work *work, uint64_t number)
{
	uint64_t from = work->seen_highest, bit = number % WINDOW_OPERATIONS;

	if (number > from + WINDOW_OPERATIONS || from > number + MAX_JUMP) {
		memset(work->seen, 0, sizeof(work->seen));
		from = work->seen_highest = number;
	}
	if (from >= number + WINDOW_OPERATIONS)
		return;
	for (; from < number; from++)
		work->seen[(from + 1) % WINDOW_OPERATIONS / 64] &=
			~(1ULL << (from + 1) % WINDOW_OPERATIONS % 64);
	work->seen[bit / 64] |= 1ULL << bit % 64;
	if (number > work->seen_highest)
		work->seen_highest = number;
}

bool work__saw(const struct work *work, const struct numbers *operations, uint64_t number)
{
	uint64_t bit = number % WINDOW_OPERATIONS;

	if (number <= operations->base) /* before our time, if we know when that began */
		return number < operations->base || !operations->is_guess;
	if (number > operations->highest)
		return true; /* not made yet */
	if (number > work->seen_highest || work->seen_highest - number >= WINDOW_OPERATIONS)
		return false;
	return work->seen[bit / 64] >> bit % 64 & 1;
}

/* Numbers that never came, and that the plugin's own losses do not explain. */
uint64_t tracked__missing(const struct tracked *t)
{
	uint64_t missing = numbers__missing(&t->api) + numbers__missing(&t->launch) +
			   numbers__missing(&t->operation);

	return missing > t->own_up ? missing - t->own_up : 0;
}
