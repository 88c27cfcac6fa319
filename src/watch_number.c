/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "watch_number.h"

#include "verdict.h"

#define STEADY 64 /* calls in order, until what had been out of order is forgotten */

/* The function's own place; -1: there is none left. */
static int number__place(struct watch_number *n, uint16_t function)
{
	for (int i = 0; i < n->n_of; i++)
		if (n->of[i].function == function)
			return i;
	if (n->n_of == WATCH_FUNCTIONS)
		return -1;
	n->of[n->n_of].function = function;
	n->of[n->n_of].entry = NB_NO_SEQUENCE - 1; /* no call's */
	return n->n_of++;
}

/* Calls of each function are counted apart, and NCCL counts them as one. */
static uint64_t number__pending(struct watch_number *n, const struct nb_record *call)
{
	int place = number__place(n, call->function);
	uint64_t pending = 0;

	if (place < 0)
		return 0;
	n->of[place].entry = call->sequence;
	n->of[place].pending = call->pending;
	for (int i = 0; i < n->n_of; i++)
		if (n->of[i].entry == call->sequence)
			pending += n->of[i].pending;
	return pending;
}

bool watch_number__is_exact(const struct watch_number *n, bool whole)
{
	return !n->suspect && (n->proven || (whole && !n->unprobed));
}

static void number__raise(struct watch_number *n, uint64_t sequence)
{
	if (sequence > n->last)
		n->last = sequence;
}

/* Two calls of one number: not all of them are numbered, and which are not cannot be told. */
static void number__check(struct watch_number *n, uint64_t sequence)
{
	if (n->called && sequence <= n->called)
		n->suspect = STEADY;
	else if (n->suspect)
		n->suspect--;
	n->called = sequence;
	number__raise(n, sequence);
}

uint64_t watch_number__call(struct watch_number *n, const struct nb_record *call, bool whole)
{
	bool numbered = call->sequence != NB_NO_SEQUENCE;
	uint64_t pending, sequence;

	if (!call->count || call->n_ranks == 1 || !call->pending ||
	    call->pending == NB_PENDING_CAPTURED)
		return VERDICT_NO_SEQUENCE;
	pending = number__pending(n, call);
	if (!pending || (!numbered && (!whole || n->unprobed)))
		return VERDICT_NO_SEQUENCE;
	if (n->seen && call->sequence != n->entry)
		n->proven = true;
	n->seen = true;
	n->entry = call->sequence;
	if (!n->proven && (!whole || n->unprobed))
		return VERDICT_NO_SEQUENCE;
	sequence = numbered ? call->sequence + pending : pending;
	number__check(n, sequence);
	return n->suspect ? VERDICT_NO_SEQUENCE : sequence;
}

uint64_t watch_number__own(const struct watch_number *n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n->n_of; i++) {
		if (n->of[i].entry != NB_NO_SEQUENCE)
			return VERDICT_NO_SEQUENCE;
		sum += n->of[i].pending;
	}
	return sum;
}

/* From now on the kernel's count of what is pending is not all, until NCCL's own number rises. */
static void number__leave_probes(struct watch_number *n)
{
	n->unprobed = true;
	n->seen = n->proven = false;
}

uint64_t watch_number__next(struct watch_number *n, bool whole)
{
	bool known = !n->suspect && !n->doubtful && (n->last || whole);

	number__leave_probes(n);
	if (!known)
		return VERDICT_NO_SEQUENCE;
	n->called = ++n->last;
	return n->called;
}

void watch_number__told(struct watch_number *n, uint64_t sequence)
{
	number__leave_probes(n);
	number__raise(n, sequence);
	n->called = sequence;
	n->suspect = 0;
	n->doubtful = false;
}

void watch_number__doubt(struct watch_number *n)
{
	n->doubtful = true;
}

bool watch_number__reached(struct watch_number *n, uint64_t sequence)
{
	if (sequence < n->last)
		return false;
	n->last = sequence;
	return true;
}
