/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Events: points on a stream, with the time at which the stream reached them. */
#include "cuda_private.h"

#include <time.h>

#define NAP_NS (100 * 1000)

static struct CUevent_st events[GPU_MAX_EVENTS];

static bool is_event(CUevent event)
{
	return event >= events && event < events + GPU_MAX_EVENTS && event->used;
}

static struct gpu_event *state_of(CUevent event)
{
	return &cuda_device()->rank->event[event->index];
}

CUDA_EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	CUresult error = cuda_unsafe_call();

	(void)flags;
	if (error || !cuda_has_context())
		return error ? error : CUDA_ERROR_INVALID_CONTEXT;
	for (uint32_t i = 0; i < GPU_MAX_EVENTS; i++) {
		bool free = false;

		if (!__atomic_compare_exchange_n(&events[i].used, &free, true, false,
						 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		events[i].index = i;
		*event = &events[i];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Its number of recordings goes on, so that a late one of its former life is told apart. */
CUDA_EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
	if (!is_event(event))
		return CUDA_ERROR_INVALID_HANDLE;
	__atomic_store_n(&event->used, false, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

static uint64_t completed(const struct gpu_event *state)
{
	return __atomic_load_n(&state->completed, __ATOMIC_ACQUIRE);
}

/* An empty stream is at the event now, or when its last work ends: the engine is not needed. */
static bool record_at_once(struct CUstream_st *stream, CUevent event)
{
	struct gpu_event *state = state_of(event);
	struct gpu_stream *queue = stream->queue;
	uint64_t now = cuda_now_ns();

	if (__atomic_load_n(&queue->consumed, __ATOMIC_ACQUIRE) != queue->submitted ||
	    completed(state) != event->recorded)
		return false;
	state->done_ns = queue->free_ns > now ? queue->free_ns : now;
	event->recorded++;
	__atomic_store_n(&state->completed, event->recorded, __ATOMIC_RELEASE);
	return true;
}

static CUresult record(struct CUstream_st *stream, CUevent event)
{
	struct gpu_command command = { .kind = GPU_EVENT, .event = event->index };

	if (record_at_once(stream, event))
		return CUDA_SUCCESS;
	command.record = __atomic_add_fetch(&event->recorded, 1, __ATOMIC_RELEASE);
	return cuda_submit(stream, &command, NULL, NULL);
}

/* A captured event is a dependency and no time stamp: the capture that meets one here is lost. */
CUDA_EXPORT CUresult cuEventRecord(CUevent event, CUstream handle)
{
	struct CUstream_st *stream = cuda_stream(handle);
	bool captures = !handle && __atomic_load_n(&cuda_device()->n_captures, __ATOMIC_ACQUIRE);
	CUresult error;

	if (!stream || !is_event(event) || !cuda_has_context())
		return CUDA_ERROR_INVALID_HANDLE;
	if (captures) {
		__atomic_add_fetch(&cuda_device()->rank->captures_broken, 1, __ATOMIC_RELAXED);
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	pthread_mutex_lock(&stream->lock);
	if (stream->capture) {
		cuda_break_capture(stream);
		error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	} else {
		error = record(stream, event);
	}
	pthread_mutex_unlock(&stream->lock);
	return error;
}

/* 0: not reached; an event never recorded counts as reached, at time 1. */
static uint64_t reached_ns(CUevent event)
{
	uint64_t recorded = __atomic_load_n(&event->recorded, __ATOMIC_ACQUIRE);
	const struct gpu_event *state = state_of(event);

	if (!recorded)
		return 1;
	if (completed(state) != recorded || cuda_now_ns() < state->done_ns)
		return 0;
	return state->done_ns;
}

CUDA_EXPORT CUresult cuEventQuery(CUevent event)
{
	CUresult error;

	if (!is_event(event))
		return CUDA_ERROR_INVALID_HANDLE;
	error = cuda_unsafe_call();
	if (error)
		return error;
	return reached_ns(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUDA_EXPORT CUresult cuEventSynchronize(CUevent event)
{
	struct timespec nap = { .tv_nsec = NAP_NS };
	CUresult error;

	while ((error = cuEventQuery(event)) == CUDA_ERROR_NOT_READY) {
		if (__atomic_load_n(cuda_device()->shared->stop, __ATOMIC_RELAXED))
			return CUDA_ERROR_DEINITIALIZED;
		nanosleep(&nap, NULL);
	}
	return error;
}

CUDA_EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	uint64_t from, to;

	if (!is_event(start) || !is_event(end) || !start->recorded || !end->recorded)
		return CUDA_ERROR_INVALID_HANDLE;
	from = reached_ns(start);
	to = reached_ns(end);
	if (!from || !to)
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(int64_t)(to - from) / 1e6);
	return CUDA_SUCCESS;
}
