/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What time brings: launches that are over, numbers that never come. */
#include "timing_private.h"

#include <utlist.h>

#include "util.h"

#define SETTLE_NS   (500 * NSEC_PER_MSEC) /* from a launch to the last of its operations */
#define PASSED_NS   (1 * NSEC_PER_SEC)	  /* a later one has finished, this one never will */
#define CALL_AGE_NS (10 * NSEC_PER_SEC)	  /* from a call to its launch */

static bool open__is_passed(struct open *open, const struct work *work, uint64_t now_ns)
{
	const struct flight *flight = &work->flight;

	if (open->launch.number >= flight->last_done ||
	    open->launch.stream != flight->last_done_stream)
		return false;
	if (!open->passed_ns)
		open->passed_ns = now_ns;
	return now_ns - open->passed_ns > PASSED_NS;
}

static bool open__is_over(const struct tracked *tracked, struct open *open, uint64_t now_ns)
{
	if (!open__is_pending(open))
		return now_ns - open->seen_ns > SETTLE_NS;
	if (!tracked__is_untold(tracked, open))
		return open__is_passed(open, tracked->work, now_ns);
	flight__done(&tracked->work->flight, &open->launch);
	return true;
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
		if (open__is_over(tracked, open, now_ns))
			work__give_up(timings, tracked, open);
	}
	tracked__expire_told(tracked);
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
