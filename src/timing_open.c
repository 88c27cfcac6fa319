/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A launch while it is put together: its operations, what may be missing, its handing out. */
#include "timing_private.h"

#include <utlist.h>

#define SEAL_DISTANCE 128 /* operations; see work__seal() */

struct work *tracked__work(struct timings *timings, struct tracked *tracked)
{
	if (!tracked->work)
		tracked->work = calloc(1, sizeof(*tracked->work));
	if (!tracked->work)
		timings->lost[TIMING_LOST_NO_ROOM]++;
	return tracked->work;
}

/* ---- what may be missing ---- */

static bool open__numbers_came(const struct open *open, const struct tracked *tracked)
{
	if (!open->first)
		return true;
	if (open->last - open->first >= WINDOW_OPERATIONS)
		return false;
	for (uint64_t number = open->first - 1; number <= open->last + 1; number++)
		if (!work__saw(tracked->work, &tracked->operation, number))
			return false;
	return true;
}

/*
 * A number that is missing beside those of a launch may be one of its operations, which the plugin
 * lost before it counted them. Looked at when later ones have come, before the window has passed.
 */
void work__seal(const struct tracked *tracked)
{
	struct open *open;

	if (tracked->operation.highest % SEAL_DISTANCE)
		return;
	DL_FOREACH(tracked->work->opens, open)
	{
		if (open->is_sealed || !open->last ||
		    open->last + SEAL_DISTANCE > tracked->operation.highest)
			continue;
		open->is_sealed = true;
		open->doubtful |= !open__numbers_came(open, tracked);
	}
}

/* Notes were lost, and their numbers may be those that come after the last one. */
void tracked__doubt(struct tracked *tracked)
{
	struct open *open;

	if (!tracked->work)
		return;
	DL_FOREACH(tracked->work->opens, open)
	{
		if (open->last >= tracked->operation.highest || !open->last)
			open->doubtful = true;
	}
}

/* ---- handing out ---- */

static void open__free(struct timings *timings, struct tracked *tracked, struct open *open)
{
	struct usage *of_process = &tracked->process->usage;

	timings->usage.operations -= open->capacity;
	of_process->operations -= open->capacity;
	timings->usage.opens--;
	of_process->opens--;
	if (open->capacity)
		free(open->operations);
	free(open);
}

static bool open__is_complete(const struct open *open, const struct tracked *tracked)
{
	const struct timing_launch *launch = &open->launch;

	return launch->n_described && launch->n_described == launch->n_operations &&
	       launch->n_described == open->n_seen && !open->doubtful &&
	       (open->is_sealed || open__numbers_came(open, tracked));
}

/* Takes the launch, which is in no list any more. */
void open__hand_out(struct timings *timings, struct tracked *tracked, struct open *open)
{
	struct timing_launch *launch = &open->launch;

	launch->comm = &tracked->comm;
	launch->operations = open->operations;
	if (launch->n_operations == NBP_UNKNOWN)
		launch->n_operations = open->n_seen;
	launch->complete = open__is_complete(open, tracked);
	if (launch->complete)
		launch__judge(launch);
	else if (launch->duration_ns)
		timings->invalid[TIMING_INVALID_INCOMPLETE]++;
	timings->fn(timings->ctx, launch);
	open__free(timings, tracked, open);
}

void work__hand_out(struct timings *timings, struct tracked *tracked, struct open *open)
{
	struct work *work = tracked->work;

	DL_DELETE(work->opens, open);
	work->n_opens--;
	work->done[open->launch.number % WINDOW_DONE] = open->launch.number;
	/* Its operations wait for their timers, each by itself. */
	if (open->is_split && !open->n_seen)
		open__free(timings, tracked, open);
	else
		open__hand_out(timings, tracked, open);
}

bool open__is_pending(const struct open *open)
{
	return open->is_told && open->launch.timing == NBP_TIMED;
}

/* As it stands: its end, if one was to come, does not come any more. */
void work__give_up(struct timings *timings, struct tracked *tracked, struct open *open)
{
	if (open__is_pending(open))
		timings->invalid[TIMING_INVALID_ABANDONED]++;
	work__hand_out(timings, tracked, open);
}

/* ---- open launches ---- */

/* NULL: no room. */
struct open *open__make(struct timings *timings, struct tracked *tracked,
			const struct nbp_record *record, uint64_t number, uint64_t now_ns)
{
	struct usage *of_process = &tracked->process->usage;
	struct open *open = NULL;

	if (timings->usage.opens < TIMING_MAX_OPENS &&
	    of_process->opens < TIMING_MAX_OPENS_PER_PROCESS)
		open = calloc(1, sizeof(*open));
	if (!open) {
		timings->lost[TIMING_LOST_NO_ROOM]++;
		return NULL;
	}
	timings->usage.opens++;
	of_process->opens++;
	open->operations = &open->one;
	open->seen_ns = now_ns;
	open->beat = tracked->n_beats;
	open->tid = record->tid;
	open->launch.number = number;
	open->launch.timing = NBP_TIMING_MAX;
	open->launch.capture = NBP_CAPTURED_UNKNOWN;
	open->launch.clock_error_ns = NBP_UNKNOWN;
	open->launch.n_operations = NBP_UNKNOWN;
	return open;
}

/* Mostly it is one of the last. */
struct open *work__find(const struct work *work, uint64_t number)
{
	struct open *open = work->opens ? work->opens->prev : NULL;

	for (; open; open = open == work->opens ? NULL : open->prev)
		if (open->launch.number == number)
			return open;
	return NULL;
}

/* The oldest, but not one that is under way while there are others. */
static struct open *work__dispensable(const struct work *work)
{
	struct open *first = work->opens;

	return open__is_pending(first) && first->next ? first->next : first;
}

struct open *work__need(struct timings *timings, struct tracked *tracked,
			const struct nbp_record *record, uint64_t number, uint64_t now_ns)
{
	struct work *work = tracked->work;
	struct open *open = work__find(work, number);

	if (open)
		return open;
	if (work->n_opens == TIMING_MAX_OPENS_PER_COMM) {
		timings->lost[TIMING_LOST_NO_ROOM]++;
		work__give_up(timings, tracked, work__dispensable(work));
	}
	open = open__make(timings, tracked, record, number, now_ns);
	if (!open)
		return NULL;
	DL_APPEND(work->opens, open);
	work->n_opens++;
	return open;
}

/* False: no room for more; it is counted and not described. */
static bool open__grow(struct timings *timings, struct tracked *tracked, struct open *open)
{
	uint32_t room = open->capacity ?: 1, capacity = open->capacity ? open->capacity * 2 : 4;
	uint32_t more = capacity - open->capacity;
	struct usage *of_process = &tracked->process->usage;
	struct timing_operation *operations;

	if (open->launch.n_described < room)
		return true;
	if (capacity > TIMING_MAX_OPERATIONS ||
	    timings->usage.operations + more > TIMING_MAX_ALL_OPERATIONS ||
	    of_process->operations + more > TIMING_MAX_OPERATIONS_PER_PROCESS)
		return false;
	operations =
		realloc(open->capacity ? open->operations : NULL, capacity * sizeof(*operations));
	if (!operations)
		return false;
	if (!open->capacity)
		operations[0] = open->one;
	open->operations = operations;
	open->capacity = capacity;
	timings->usage.operations += more;
	of_process->operations += more;
	return true;
}

void open__add(struct timings *timings, struct tracked *tracked, struct open *open,
	       const struct timing_operation *operation)
{
	open->n_seen++;
	if (operation->number) {
		if (!open->first || operation->number < open->first)
			open->first = operation->number;
		if (operation->number > open->last)
			open->last = operation->number;
	}
	if (open__grow(timings, tracked, open))
		open->operations[open->launch.n_described++] = *operation;
	else
		timings->lost[TIMING_LOST_NO_ROOM]++;
}
