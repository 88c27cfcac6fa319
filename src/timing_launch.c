/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Operations and launches as their records tell. A thread tells of a launch, then of its
 * operations, then of its next launch; that a timed one has finished comes later, from the plugin's
 * own thread. Nothing rests on that order but when an untimed launch is handed out.
 */
#include "timing_private.h"

#include <utlist.h>

/* ---- operations ---- */

/*
 * Every release from 2.23 to 2.30 names each type but ncclUint8 to a profiler; v1 gives numbers.
 * AllGather and Broadcast are turned into bytes before they get here.
 */
static uint32_t record__datatype(const struct tracked *tracked, enum nccl_operation operation,
				 uint8_t datatype)
{
	if (operation == NCCL_OP_AllGather || operation == NCCL_OP_Broadcast)
		return 0;
	if (datatype == NBP_UNKNOWN_U8)
		return tracked->comm.abi == 1 ? NBP_UNKNOWN : 1;
	return nccl_datatype__size(datatype) ? datatype : NBP_UNKNOWN;
}

static bool operation__parse(const struct tracked *tracked, const struct nbp_operation *from,
			     struct timing_operation *ret)
{
	*ret = (struct timing_operation){
		.number = from->operation > MAX_NUMBER ? 0 : from->operation,
		.sequence = from->sequence,
		.count = from->count,
		.root = from->root < 0 ? -1 : from->root,
		.n_channels = from->n_channels > 1024 ? 0 : from->n_channels,
		.algorithm = from->algorithm < NBP_ALGORITHM_MAX ? from->algorithm : NBP_UNKNOWN_U8,
		.protocol = from->protocol < NBP_PROTOCOL_MAX ? from->protocol : NBP_UNKNOWN_U8,
	};
	if (!nbp_function__operation(from->function, &ret->operation))
		return false;
	ret->datatype = record__datatype(tracked, ret->operation, from->datatype);
	ret->type_bytes = nccl_datatype__size(ret->datatype);
	return true;
}

void tracked__call(struct timings *timings, struct tracked *tracked,
		   const struct nbp_record *record, uint64_t now_ns)
{
	struct usage *of_process = &tracked->process->usage;
	struct work *work = tracked__work(timings, tracked);
	const struct nbp_api *api = &record->api;
	enum nccl_operation operation;
	struct call call = {
		.time_ns = record->time_ns < now_ns ? record->time_ns : now_ns,
		.group = api->group,
		.tid = record->tid,
		.root = api->root,
		.function = api->function,
		.is_single = api->group_depth == 1,
	};
	uint32_t datatype, room, more;

	if (!work)
		return;
	numbers__add(&tracked->api, api->api_number);
	if (!nbp_function__operation(api->function, &operation)) {
		timings->lost[TIMING_LOST_BAD_RECORD]++;
		return;
	}
	datatype = record__datatype(tracked, NCCL_OP_MAX, api->datatype);
	call.bytes = timing_operation__message_bytes(&(struct timing_operation){
		.count = api->count, .type_bytes = nccl_datatype__size(datatype)});
	room = TIMING_MAX_CALLS - timings->usage.calls;
	if (room > TIMING_MAX_CALLS_PER_PROCESS - of_process->calls)
		room = TIMING_MAX_CALLS_PER_PROCESS - of_process->calls;
	more = calls__add(&work->calls, &call, room);
	timings->usage.calls += more;
	of_process->calls += more;
}

/* One whose launch is not known, or was handed out already. */
static void tracked__lone(struct timings *timings, struct tracked *tracked,
			  const struct nbp_record *record, const struct timing_operation *operation,
			  uint64_t now_ns)
{
	struct open *open = open__make(timings, tracked, record, record->operation.launch, now_ns);

	if (!open)
		return;
	open->is_sealed = true;
	open__add(timings, tracked, open, operation);
	if (work__has_timers(tracked->work, now_ns))
		tracked__hold(timings, tracked, open);
	else
		open__hand_out(timings, tracked, open);
}

/* Each by itself: what the timer tells is of one operation. */
static bool open__split(struct timings *timings, struct tracked *tracked, struct open *open,
			const struct nbp_record *record, const struct timing_operation *operation,
			uint64_t now_ns)
{
	struct open *part;

	if (open__is_pending(open) || open->launch.capture == NBP_CAPTURED_YES ||
	    !work__has_timers(tracked->work, now_ns))
		return false;
	part = open__make(timings, tracked, record, open->launch.number, now_ns);
	if (!part)
		return false;
	part->launch.stream = open->launch.stream;
	part->launch.launch_ns = open->launch.launch_ns;
	part->launch.timing = open->launch.timing;
	part->launch.capture = open->launch.capture;
	part->launch.after_pause = open->launch.after_pause;
	part->is_sealed = true;
	open__add(timings, tracked, part, operation);
	open->is_split = true;
	tracked__hold(timings, tracked, part);
	return true;
}

void tracked__operation(struct timings *timings, struct tracked *tracked,
			const struct nbp_record *record, uint64_t now_ns)
{
	const uint64_t number = record->operation.launch;
	struct work *work = tracked__work(timings, tracked);
	struct timing_operation operation;
	struct open *open;

	if (!work)
		return;
	if (numbers__add(&tracked->operation, record->operation.operation))
		work__see(work, record->operation.operation);
	if (number > MAX_NUMBER || !operation__parse(tracked, &record->operation, &operation)) {
		timings->lost[TIMING_LOST_BAD_RECORD]++;
		return;
	}
	operation.call_ns =
		calls__take(&work->calls, record, timing_operation__message_bytes(&operation));
	flight__described(&work->flight, number, &operation);
	if (timings->on_operation)
		timings->on_operation(timings->operation_ctx, &tracked->comm, &operation);
	if (!number || (work->done[number % WINDOW_DONE] == number && !work__find(work, number))) {
		tracked__lone(timings, tracked, record, &operation, now_ns);
		return;
	}
	open = work__need(timings, tracked, record, number, now_ns);
	if (open && !open__split(timings, tracked, open, record, &operation, now_ns))
		open__add(timings, tracked, open, &operation);
	work__seal(tracked);
}

/* ---- launches ---- */

static bool record__launch_is_sound(const struct nbp_launch *launch)
{
	if (!launch->launch || launch->launch > MAX_NUMBER || launch->timing >= NBP_TIMING_MAX)
		return false;
	if (launch->phase == NBP_LAUNCHED)
		return launch->timing != NBP_ABANDONED;
	if (launch->phase == NBP_QUEUED || launch->phase == NBP_STARTED)
		return launch->timing == NBP_TIMED;
	return launch->phase == NBP_FINISHED &&
	       (launch->timing == NBP_ABANDONED ||
		(launch->timing == NBP_TIMED && launch->source == NBP_SOURCE_CUDA_EVENT));
}

static void open__tell(struct open *open, const struct nbp_record *record)
{
	open->tid = record->tid;
	open->is_told = true;
	open->launch.stream = record->launch.stream;
	open->launch.launch_ns = record->time_ns;
	open->launch.timing = record->launch.timing;
	open->launch.after_pause = record->launch.after_pause;
	open->launch.capture = record->launch.capture <= NBP_CAPTURED_UNKNOWN
				       ? record->launch.capture
				       : NBP_CAPTURED_UNKNOWN;
}

/* The thread has gone on: its earlier launches have all their operations. */
static void tracked__close_before(struct timings *timings, struct tracked *tracked,
				  const struct open *last)
{
	struct open *open, *next;

	DL_FOREACH_SAFE(tracked->work->opens, open, next)
	{
		if (open != last && open->tid == last->tid && !open__is_pending(open))
			work__hand_out(timings, tracked, open);
	}
}

static void tracked__made(struct tracked *tracked, const struct open *open, uint64_t now_ns)
{
	const struct timing_launch *launch = &open->launch;
	struct flight *flight = &tracked->work->flight;

	tracked->comm.n_launches++;
	tracked->comm.n_timed += launch->timing == NBP_TIMED;
	tracked->comm.n_captured += launch->capture == NBP_CAPTURED_YES;
	flight__made(flight, launch, launch->launch_ns < now_ns ? launch->launch_ns : now_ns);
	for (uint32_t i = 0; i < launch->n_described; i++)
		flight__described(flight, launch->number, &open->operations[i]);
}

static void tracked__launched(struct timings *timings, struct tracked *tracked,
			      const struct nbp_record *record, uint64_t now_ns)
{
	const uint64_t number = record->launch.launch, base = tracked->launch.base;
	struct work *work = tracked->work;
	struct open *open = work__find(work, number);

	if (work->done[number % WINDOW_DONE] == number || (open && open->is_told)) {
		timings->lost[TIMING_LOST_BAD_RECORD]++; /* twice */
		return;
	}
	numbers__add(&tracked->launch, number);
	if (base != tracked->launch.base)
		flight__restart(&work->flight);
	open = work__need(timings, tracked, record, number, now_ns);
	if (!open)
		return;
	open__tell(open, record);
	tracked__made(tracked, open, now_ns);
	tracked__close_before(timings, tracked, open);
}

static void open__time(struct timings *timings, struct open *open, const struct nbp_launch *from,
		       uint64_t now_ns)
{
	struct timing_launch *launch = &open->launch;
	enum timing_invalid reason;

	launch->source = NBP_SOURCE_CUDA_EVENT;
	launch->after_pause = from->after_pause;
	launch->n_operations = from->n_operations;
	if (from->timing == NBP_ABANDONED) /* and counted: the plugin tells how often */
		return;
	reason = nbp_launch__check(from, launch->launch_ns, now_ns);
	if (reason != TIMING_INVALID_MAX) {
		timings->invalid[reason]++;
		return;
	}
	launch->duration_ns = from->duration_ns;
	if (from->clock_error_ns == NBP_UNKNOWN)
		return;
	launch->gpu_start_ns = from->gpu_start_ns;
	launch->gpu_end_ns = from->gpu_end_ns;
	launch->clock_error_ns = from->clock_error_ns;
}

static void tracked__finished(struct timings *timings, struct tracked *tracked,
			      const struct nbp_record *record, uint64_t now_ns)
{
	const uint64_t number = record->launch.launch;
	struct work *work = tracked->work;
	struct open *open = work__find(work, number);

	if (!open && work->done[number % WINDOW_DONE] == number) {
		timings->invalid[TIMING_INVALID_DUPLICATE]++;
		return;
	}
	if (open && open->is_told && open->launch.timing != NBP_TIMED) {
		timings->lost[TIMING_LOST_BAD_RECORD]++; /* it was not timed */
		return;
	}
	open = open ?: work__need(timings, tracked, record, number, now_ns);
	if (!open)
		return;
	if (!open->is_told)
		open__tell(open, record);
	open->launch.timing = NBP_TIMED;
	open__time(timings, open, &record->launch, now_ns);
	flight__done(&work->flight, &open->launch);
	work__hand_out(timings, tracked, open);
}

void tracked__launch(struct timings *timings, struct tracked *tracked,
		     const struct nbp_record *record, uint64_t now_ns)
{
	if (!record__launch_is_sound(&record->launch)) {
		timings->lost[TIMING_LOST_BAD_RECORD]++;
		return;
	}
	if (!tracked__work(timings, tracked))
		return;
	if (record->launch.phase == NBP_LAUNCHED)
		tracked__launched(timings, tracked, record, now_ns);
	else if (record->launch.phase != NBP_FINISHED)
		tracked__told(timings, tracked, record, now_ns);
	else
		tracked__finished(timings, tracked, record, now_ns);
}
