/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NCCL's kernel timer: one operation at a time, by the operation's number. Its operations are held
 * until their time comes, in any order, for it comes when a GPU has done them.
 */
#include "timing_private.h"

#include <utlist.h>

#include "util.h"

#define TIMERS_NS (60 * NSEC_PER_SEC) /* for so long after one more are waited for */
#define HOLD_NS	  (30 * NSEC_PER_SEC)

bool work__has_timers(const struct work *work, uint64_t now_ns)
{
	return now_ns < work->timers_until_ns;
}

static void work__release(struct timings *timings, struct tracked *tracked, struct open *open)
{
	DL_DELETE(tracked->work->held, open);
	tracked->work->n_held--;
	open__hand_out(timings, tracked, open);
}

/* Takes a launch of one operation. */
void tracked__hold(struct timings *timings, struct tracked *tracked, struct open *open)
{
	struct work *work = tracked->work;

	if (work->n_held == TIMING_MAX_HELD_PER_COMM)
		work__release(timings, tracked, work->held);
	DL_APPEND(work->held, open);
	work->n_held++;
}

static struct open *work__find_held(const struct work *work, uint64_t operation)
{
	struct open *open;

	DL_FOREACH(work->held, open)
	{
		if (open->operations[0].number == operation)
			return open;
	}
	return NULL;
}

void tracked__expect_timers(struct timings *timings, struct tracked *tracked, uint64_t now_ns)
{
	struct work *work = tracked__work(timings, tracked);

	if (work)
		work->timers_until_ns = now_ns + TIMERS_NS;
}

void tracked__timer(struct timings *timings, struct tracked *tracked,
		    const struct nbp_record *record, uint64_t now_ns)
{
	const struct nbp_timer *timer = &record->timer;
	struct work *work = tracked__work(timings, tracked);
	enum timing_invalid reason;
	struct open *open;

	if (!work)
		return;
	if (!timer->operation || timer->operation > MAX_NUMBER) {
		timings->lost[TIMING_LOST_BAD_RECORD]++;
		return;
	}
	work->timers_until_ns = now_ns + TIMERS_NS;
	if (work->timed[timer->operation % WINDOW_DONE] == timer->operation) {
		timings->invalid[TIMING_INVALID_DUPLICATE]++;
		return;
	}
	work->timed[timer->operation % WINDOW_DONE] = timer->operation;
	open = work__find_held(work, timer->operation);
	if (!open) { /* timed by events, or handed out before the first timer came */
		if (timer->operation > tracked->operation.highest ||
		    !work__saw(work, &tracked->operation, timer->operation))
			timings->invalid[TIMING_INVALID_INCOMPLETE]++;
		return;
	}
	reason = nbp_timer__check(timer, open->launch.launch_ns, now_ns);
	open->launch.source = NBP_SOURCE_KERNEL_TIMER;
	open->launch.timing = NBP_TIMED;
	if (reason == TIMING_INVALID_MAX) {
		open->launch.duration_ns = timer->gpu_last_ns - timer->gpu_first_ns;
		tracked->comm.n_timers++;
	} else {
		timings->invalid[reason]++;
	}
	work__release(timings, tracked, open);
}

void tracked__settle_held(struct timings *timings, struct tracked *tracked, uint64_t now_ns)
{
	struct work *work = tracked->work;

	while (work->held && now_ns - work->held->seen_ns > HOLD_NS)
		work__release(timings, tracked, work->held);
}
