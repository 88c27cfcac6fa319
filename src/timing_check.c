/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which GPU times can be true. */
#include "timing_private.h"

#include "util.h"

#define MAX_ERROR_NS	(10 * NSEC_PER_MSEC)  /* of comparing the clocks; coarser is not compared */
#define MAX_DURATION_NS (3600 * NSEC_PER_SEC) /* where the launch is not known */

static bool is_after(uint64_t a_ns, uint64_t b_ns, uint64_t slack_ns)
{
	return a_ns > b_ns && a_ns - b_ns > slack_ns;
}

/* The driver tells a length as a float of milliseconds. */
static uint64_t slack_ns(uint64_t length_ns)
{
	return SLACK_NS + (length_ns >> 22);
}

/* It ran between its launch on the host and now, or the two clocks have drifted apart. */
static bool launch__fits(const struct nbp_launch *launch, uint64_t launch_ns, uint64_t now_ns)
{
	uint64_t error_ns = launch->clock_error_ns, length_ns;

	if (error_ns > MAX_ERROR_NS)
		error_ns = MAX_ERROR_NS;
	length_ns = launch->gpu_end_ns - launch->gpu_start_ns;
	return !is_after(launch_ns, launch->gpu_start_ns, SLACK_NS + error_ns) &&
	       !is_after(launch->gpu_end_ns, now_ns, slack_ns(length_ns) + error_ns) &&
	       !is_after(length_ns, launch->duration_ns, SLACK_NS) &&
	       !is_after(launch->duration_ns, length_ns, SLACK_NS);
}

enum timing_invalid nbp_launch__check(const struct nbp_launch *launch, uint64_t launch_ns,
				      uint64_t now_ns)
{
	if (!launch->duration_ns || !launch->gpu_start_ns != !launch->gpu_end_ns || !launch_ns)
		return TIMING_INVALID_ZERO;
	if (launch->gpu_end_ns < launch->gpu_start_ns)
		return TIMING_INVALID_BACKWARDS;
	if (is_after(launch_ns, now_ns, SLACK_NS) ||
	    is_after(launch->duration_ns, now_ns > launch_ns ? now_ns - launch_ns : 0,
		     slack_ns(launch->duration_ns)))
		return TIMING_INVALID_ABSURD;
	if (launch->gpu_start_ns && !launch__fits(launch, launch_ns, now_ns))
		return TIMING_INVALID_ABSURD;
	return TIMING_INVALID_MAX;
}

/* The GPU's own clock says nothing of when, only of how long. */
enum timing_invalid nbp_timer__check(const struct nbp_timer *timer, uint64_t launch_ns,
				     uint64_t now_ns)
{
	uint64_t duration_ns = timer->gpu_last_ns - timer->gpu_first_ns;
	uint64_t most_ns = MAX_DURATION_NS;

	if (!timer->gpu_first_ns || !timer->gpu_last_ns || !timer->seen_ns)
		return TIMING_INVALID_ZERO;
	if (timer->gpu_last_ns < timer->gpu_first_ns)
		return TIMING_INVALID_BACKWARDS;
	if (!duration_ns)
		return TIMING_INVALID_ZERO;
	if (launch_ns)
		most_ns = timer->seen_ns > launch_ns ? timer->seen_ns - launch_ns : 0;
	if (is_after(timer->seen_ns, now_ns, SLACK_NS) ||
	    is_after(duration_ns, most_ns, SLACK_NS) || duration_ns > MAX_DURATION_NS)
		return TIMING_INVALID_ABSURD;
	if (timer->n_expected != NBP_UNKNOWN && timer->n_channels < timer->n_expected)
		return TIMING_INVALID_INCOMPLETE;
	return TIMING_INVALID_MAX;
}
