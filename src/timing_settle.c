/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What time brings: launches that are over, numbers that never come; and what is in flight. */
#include "timing_private.h"

#include <utlist.h>

#include "util.h"

#define SETTLE_NS   (500 * NSEC_PER_MSEC) /* from a launch to the last of its operations */
#define PASSED_NS   (1 * NSEC_PER_SEC)	  /* a later one has finished, this one never will */
#define CALL_AGE_NS (10 * NSEC_PER_SEC)	  /* from a call to its launch */

static bool open__is_passed(struct open *open, const struct work *work, uint64_t now_ns)
{
	if (open->launch.number >= work->last_done || open->launch.stream != work->last_done_stream)
		return false;
	if (!open->passed_ns)
		open->passed_ns = now_ns;
	return now_ns - open->passed_ns > PASSED_NS;
}

static void tracked__count_gaps(struct timings *timings, struct tracked *tracked)
{
	uint64_t missing = tracked__missing(tracked), before = tracked->missing_before;
	/* One that is only late is not missing twice in a row. */
	uint64_t sure = missing < before ? missing : before;

	if (sure > tracked->missing) {
		timings->lost[TIMING_LOST_GAP] += sure - tracked->missing;
		tracked->missing = sure;
	}
	tracked->missing_before = missing;
}

static void tracked__expire_calls(struct timings *timings, struct tracked *tracked,
				  uint64_t before_ns)
{
	uint32_t n = calls__expire(&tracked->work->calls, before_ns);

	timings->usage.calls -= n;
	tracked->process->usage.calls -= n;
}

/* True: there is nothing left to look at. */
bool tracked__settle(struct timings *timings, struct tracked *tracked, uint64_t now_ns)
{
	uint64_t missing_before = tracked->missing_before;
	struct work *work = tracked->work;
	struct open *open, *next;

	tracked__count_gaps(timings, tracked);
	if (!work)
		return missing_before == tracked->missing_before;
	DL_FOREACH_SAFE(work->opens, open, next)
	{
		if (open__is_pending(open) ? open__is_passed(open, work, now_ns)
					   : now_ns - open->seen_ns > SETTLE_NS)
			work__give_up(timings, tracked, open);
	}
	tracked__settle_held(timings, tracked, now_ns);
	tracked__expire_calls(timings, tracked, now_ns > CALL_AGE_NS ? now_ns - CALL_AGE_NS : 0);
	return !work->opens && !work->held && !work->calls.n &&
	       missing_before == tracked->missing_before;
}

/* Nothing comes any more. */
void tracked__close(struct timings *timings, struct tracked *tracked)
{
	struct work *work = tracked->work;

	for (int i = 0; i < 2; i++)
		tracked__count_gaps(timings, tracked);
	if (!work)
		return;
	while (work->opens)
		work__give_up(timings, tracked, work->opens);
	tracked__settle_held(timings, tracked, UINT64_MAX);
	tracked__expire_calls(timings, tracked, UINT64_MAX);
	free(work);
	tracked->work = NULL;
}

uint32_t timing_comm__in_flight(const struct timing_comm *comm, uint64_t *ret_start_ns)
{
	const struct tracked *tracked = (const struct tracked *)comm;
	const struct work *work = tracked->work;
	uint64_t from, n, start_ns = 0;

	if (!work || work->last_timed <= work->last_done)
		return 0;
	from = work->last_done ?: tracked->launch.base;
	n = work->last_timed - from;
	for (int i = 0; i < WINDOW_MADE; i++) {
		uint64_t number = work->made[i].number, launch_ns = work->made[i].launch_ns;

		if (number <= from || number > work->last_timed)
			continue;
		if (work->made[i].captured)
			n--;
		else if (!start_ns || launch_ns < start_ns)
			start_ns = launch_ns;
	}
	if (!n || !start_ns)
		return 0;
	*ret_start_ns = start_ns;
	return n > UINT32_MAX ? UINT32_MAX : n;
}
