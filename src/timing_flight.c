/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is under way on GPUs. A communicator's kernels run in the order of their launches, so one
 * that is known to be done says so of those before it; what was not timed, behind the last timed
 * one, may be done: nothing is said of it.
 */
#include "timing_private.h"

#include <utlist.h>

#define UNTOLD_BEATS 5			/* the plugin tells of what is under way with every one */
#define BEAT_NS	     (NSEC_PER_SEC / 2) /* by the plugin's clock; what comes sooner is no new one */
#define MAX_AHEAD    (1ULL << 20)	/* of the launches that were told of */

static struct made *flight__find(struct flight *flight, uint64_t number)
{
	struct made *made = &flight->made[number % WINDOW_MADE];

	if (made->number == number)
		return made;
	return flight->told.launch.number == number ? &flight->told.launch : NULL;
}

/* launch_ns: checked */
void flight__made(struct flight *flight, const struct timing_launch *launch, uint64_t launch_ns)
{
	flight->made[launch->number % WINDOW_MADE] = (struct made){
		.number = launch->number,
		.launch_ns = launch_ns,
		.operation = NCCL_OP_MAX,
		.sequence = NBP_NO_NUMBER,
		.captured = launch->capture == NBP_CAPTURED_YES,
	};
	if (launch->timing == NBP_TIMED && launch->number > flight->last_timed)
		flight->last_timed = launch->number;
}

void flight__described(struct flight *flight, uint64_t number,
		       const struct timing_operation *operation)
{
	struct made *made = flight__find(flight, number);

	if (!made || !operation->number || (made->first && made->first < operation->number))
		return;
	made->first = operation->number;
	made->operation = operation->operation;
	made->sequence = operation->sequence;
}

void flight__done(struct flight *flight, const struct timing_launch *launch)
{
	if (launch->timing != NBP_TIMED || launch->number <= flight->last_done)
		return;
	flight->last_done = launch->number;
	flight->last_done_stream = launch->stream;
}

/* Launches are numbered anew. */
void flight__restart(struct flight *flight)
{
	*flight = (struct flight){};
}

/* ---- what the plugin says of the oldest one ---- */

static void made__describe(struct made *made, const struct nbp_launch *from)
{
	enum nccl_operation operation;

	if (made->first || !nbp_function__operation(from->function, &operation))
		return;
	made->operation = operation;
	made->sequence = from->sequence;
}

/* Its record as a launch was lost, or is of before our time. */
static void tracked__made_up(struct tracked *tracked, const struct nbp_record *record,
			     uint64_t launch_ns)
{
	const struct timing_launch launch = {
		.number = record->launch.launch,
		.stream = record->launch.stream,
		.timing = NBP_TIMED,
	};

	flight__made(&tracked->work->flight, &launch, launch_ns);
	tracked->comm.n_launches++;
	tracked->comm.n_timed++;
}

static uint64_t launch__start_ns(const struct nbp_launch *from, uint64_t launch_ns, uint64_t now_ns)
{
	uint64_t slack_ns = SLACK_NS + from->clock_error_ns;

	if (from->clock_error_ns == NBP_UNKNOWN || from->gpu_start_ns + slack_ns < launch_ns ||
	    from->gpu_start_ns > now_ns + slack_ns)
		return 0;
	return from->gpu_start_ns;
}

/* NBP_QUEUED or NBP_STARTED */
void tracked__told(struct timings *timings, struct tracked *tracked,
		   const struct nbp_record *record, uint64_t now_ns)
{
	const struct nbp_launch *from = &record->launch;
	struct flight *flight = &tracked->work->flight;
	uint64_t launch_ns = record->time_ns < now_ns ? record->time_ns : now_ns;
	struct made *made;

	if (from->launch > tracked->launch.highest + MAX_AHEAD || from->done >= from->launch) {
		timings->lost[TIMING_LOST_BAD_RECORD]++;
		return;
	}
	if (from->launch <= flight->last_done)
		return; /* it came too late */
	if (!flight__find(flight, from->launch))
		tracked__made_up(tracked, record, launch_ns);
	if (from->launch > flight->last_timed)
		flight->last_timed = from->launch;
	if (from->done > flight->last_done)
		flight->last_done = from->done;
	made = flight__find(flight, from->launch);
	made__describe(made, from);
	if (made != &flight->told.launch)
		flight->told.launch = *made;
	flight->told.beat = tracked->n_beats;
	flight->told.started = from->phase == NBP_STARTED;
	flight->told.gpu_start_ns =
		flight->told.started ? launch__start_ns(from, launch_ns, now_ns) : 0;
}

/*
 * Signs of the plugin's life, a second apart. They are counted rather than timed: a process that
 * was stopped has not kept silent of anything.
 */
void tracked__beat(struct tracked *tracked, const struct nbp_record *record)
{
	uint64_t since_ns = record->time_ns - tracked->beat_ns;

	if (tracked->n_beats && since_ns < BEAT_NS)
		return;
	tracked->beat_ns = record->time_ns;
	tracked->n_beats++;
}

/*
 * The plugin lives and tells no more of it, nor of an older one: its end was lost on the way.
 */
bool tracked__is_untold(const struct tracked *tracked, const struct open *open)
{
	const struct flight *flight = &tracked->work->flight;
	uint64_t told = flight->told.launch.number;

	if (tracked->n_beats - open->beat <= UNTOLD_BEATS)
		return false;
	return !told || told > open->launch.number ||
	       tracked->n_beats - flight->told.beat > UNTOLD_BEATS;
}

/* The same of one that came before our time. */
void tracked__expire_told(struct tracked *tracked)
{
	struct flight *flight = &tracked->work->flight;
	uint64_t told = flight->told.launch.number;

	if (told > flight->last_done && tracked->n_beats - flight->told.beat > UNTOLD_BEATS)
		flight->last_done = told;
}

/* ---- asking ---- */

/* Up to where all is done, or before our time. */
static uint64_t tracked__from(const struct tracked *tracked)
{
	const struct flight *flight = &tracked->work->flight;
	uint64_t told = flight->told.launch.number;

	if (flight->last_done || (told && told <= tracked->launch.base))
		return flight->last_done;
	return tracked->launch.base;
}

/* The first that runs; 0: none. */
static uint64_t flight__oldest(struct flight *flight, uint64_t from, uint32_t *ret_n)
{
	uint64_t n = flight->last_timed - from, oldest = 0;

	for (int i = 0; i < WINDOW_MADE; i++)
		n -= flight->made[i].captured && flight->made[i].number > from &&
		     flight->made[i].number <= flight->last_timed;
	for (uint64_t number = from + 1; !oldest && number <= flight->last_timed; number++) {
		const struct made *made = flight__find(flight, number);

		if (!made || !made->captured)
			oldest = number;
	}
	*ret_n = n > UINT32_MAX ? UINT32_MAX : n;
	return oldest;
}

/* Of those that are known to be under way, the earliest. */
static uint64_t work__earliest_ns(const struct work *work, uint64_t from)
{
	const struct flight *flight = &work->flight;
	uint64_t earliest_ns = UINT64_MAX;
	const struct open *open;

	if (flight->told.launch.number > from)
		earliest_ns = flight->told.launch.launch_ns;
	for (int i = 0; i < WINDOW_MADE; i++) {
		const struct made *made = &flight->made[i];

		if (made->number > from && made->number <= flight->last_timed && !made->captured &&
		    made->launch_ns < earliest_ns)
			earliest_ns = made->launch_ns;
	}
	DL_FOREACH(work->opens, open)
	{
		if (open__is_pending(open) && open->launch.number > from &&
		    open->launch.launch_ns < earliest_ns)
			earliest_ns = open->launch.launch_ns;
	}
	return earliest_ns == UINT64_MAX ? 0 : earliest_ns;
}

/* What a launch of several is as a whole, if they are all here. */
static void oldest__judge(const struct tracked *tracked, const struct open *open,
			  struct timing_oldest *oldest)
{
	struct timing_launch launch = open->launch;

	if (launch.n_described < 2 || launch.n_described != open->n_seen)
		return;
	launch.comm = &tracked->comm;
	launch.operations = open->operations;
	launch__judge(&launch);
	if (launch.form == TIMING_ONE)
		oldest->operation = launch.operation;
}

/* By what is left of it. */
static void oldest__describe(const struct tracked *tracked, uint64_t number,
			     struct timing_oldest *oldest)
{
	const struct made *made = flight__find(&tracked->work->flight, number);
	const struct open *open = work__find(tracked->work, number);

	if (made) {
		oldest->operation = made->operation;
		oldest->sequence = made->sequence;
	}
	if (!open || !open->launch.n_described)
		return;
	oldest->operation = open->operations[0].operation;
	oldest->sequence = open->operations[0].sequence;
	oldest__judge(tracked, open, oldest);
}

bool timing_comm__oldest(const struct timing_comm *comm, struct timing_oldest *ret)
{
	const struct tracked *tracked = (const struct tracked *)comm;
	struct timing_oldest oldest = {.operation = NCCL_OP_MAX, .sequence = NBP_NO_NUMBER};
	struct flight *flight;
	uint64_t number, from;

	if (!tracked->work || tracked->work->flight.last_timed <= tracked->work->flight.last_done)
		return false;
	flight = &tracked->work->flight;
	from = tracked__from(tracked);
	number = flight__oldest(flight, from, &oldest.n_in_flight);
	oldest.launch_ns = work__earliest_ns(tracked->work, from);
	if (!number || !oldest.launch_ns)
		return false;
	oldest__describe(tracked, number, &oldest);
	if (flight->told.launch.number == number) {
		oldest.start_known = true;
		oldest.started = flight->told.started;
		oldest.gpu_start_ns = flight->told.gpu_start_ns;
	}
	*ret = oldest;
	return true;
}

uint32_t timing_comm__in_flight(const struct timing_comm *comm, uint64_t *ret_start_ns)
{
	struct timing_oldest oldest;

	if (!timing_comm__oldest(comm, &oldest))
		return 0;
	*ret_start_ns = oldest.launch_ns;
	return oldest.n_in_flight;
}
