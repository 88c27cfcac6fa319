/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A libcuda.so.1 with no GPU: streams are times until which they are busy, events are points on
 * them. It is as strict about stream capture as the real one: recording on a capturing stream, on
 * the legacy stream while another captures, or an unsafe call from a thread that is not in relaxed
 * mode breaks the capture, and is counted.
 */
#include "fake_cuda.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define INVALID_CONTEXT	    201
#define INVALID_HANDLE	    400
#define NOT_READY	    600
#define CAPTURE_UNSUPPORTED 900
#define CAPTURE_IMPLICIT    906
#define MODE_RELAXED	    2

struct fake_event {
	void *context;
	_Atomic uint64_t done_ns; /* 0: never recorded */
};

struct fake_cuda fake_cuda;
struct fake_stream fake_legacy_stream;
static _Thread_local void *current;
static _Thread_local int mode;

int cuCtxGetCurrent(void **context);
int cuCtxGetDevice(int *device);
int cuDeviceGetUuid(void *uuid, int device);
int cuEventCreate(struct fake_event **event, unsigned flags);
int cuEventRecord(struct fake_event *event, struct fake_stream *stream);
int cuEventQuery(struct fake_event *event);
int cuEventElapsedTime(float *ms, struct fake_event *from, struct fake_event *to);
int cuStreamIsCapturing(struct fake_stream *stream, int *status);
int cuThreadExchangeStreamCaptureMode(int *new_mode);

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void spin(uint64_t ns)
{
	uint64_t until = now_ns() + ns;

	while (ns && now_ns() < until)
		;
}

/* A call that CUDA forbids while any thread captures in global mode. */
static int unsafe_call(void)
{
	if (!atomic_load(&fake_cuda.n_captures) || mode == MODE_RELAXED)
		return 0;
	atomic_fetch_add(&fake_cuda.n_captures_broken, 1);
	return CAPTURE_UNSUPPORTED;
}

int cuCtxGetCurrent(void **context)
{
	*context = current;
	return 0;
}

int cuCtxSetCurrent(void *context)
{
	if (atomic_load(&fake_cuda.context_destroyed))
		return INVALID_CONTEXT;
	current = context;
	return 0;
}

int cuCtxGetDevice(int *device)
{
	*device = 3;
	return current ? 0 : INVALID_CONTEXT;
}

int cuDeviceGetUuid(void *uuid, int device)
{
	memset(uuid, 0xa0 + device, 16);
	return 0;
}

int cuThreadExchangeStreamCaptureMode(int *new_mode)
{
	int old = mode;

	mode = *new_mode;
	*new_mode = old;
	return 0;
}

int cuEventCreate(struct fake_event **event, unsigned flags)
{
	int error = unsafe_call();

	(void)flags;
	if (error || !current)
		return error ? error : INVALID_CONTEXT;
	*event = calloc(1, sizeof(**event));
	(*event)->context = current;
	atomic_fetch_add(&fake_cuda.n_events, 1);
	return 0;
}

int cuStreamCreate(void **stream, unsigned flags)
{
	struct fake_stream *s;
	int error = unsafe_call();

	(void)flags;
	if (error || !current)
		return error ? error : INVALID_CONTEXT;
	s = calloc(1, sizeof(*s));
	s->context = current;
	atomic_fetch_add(&fake_cuda.n_streams, 1);
	*stream = s;
	return 0;
}

int cuStreamIsCapturing(struct fake_stream *stream, int *status)
{
	if (!stream && atomic_load(&fake_cuda.n_captures))
		return CAPTURE_IMPLICIT;
	*status = stream ? atomic_load(&stream->capturing) : 0;
	return 0;
}

static uint64_t event__takes_ns(const struct fake_stream *stream, int number)
{
	if (atomic_load(&stream->quick))
		return 0;
	return atomic_load(&fake_cuda.event_ns) +
	       (number % 5 ? 0 : atomic_load(&fake_cuda.slow_ns));
}

int cuEventRecord(struct fake_event *event, struct fake_stream *stream)
{
	struct fake_stream *s = stream ? stream : &fake_legacy_stream;
	int number = atomic_fetch_add(&fake_cuda.n_event_records, 1);
	uint64_t now = now_ns(), done;

	if (stream ? atomic_load(&stream->capturing) : atomic_load(&fake_cuda.n_captures)) {
		atomic_fetch_add(&fake_cuda.n_captures_broken, 1);
		return CAPTURE_UNSUPPORTED;
	}
	if (event->context != current || (stream && stream->context != current)) {
		atomic_fetch_add(&fake_cuda.n_wrong_context, 1);
		return INVALID_HANDLE;
	}
	spin(atomic_load(&fake_cuda.record_cost_ns));
	done = atomic_load(&s->busy_until_ns);
	done = (done > now ? done : now) + event__takes_ns(s, number);
	atomic_store(&event->done_ns, done);
	atomic_store(&s->busy_until_ns, done);
	return 0;
}

static int fails(const struct fake_event *event)
{
	void *context = atomic_load(&fake_cuda.fails_in);

	return !context || event->context == context;
}

/* A look at an event. */
static int look(const struct fake_event *event)
{
	int error = unsafe_call();

	atomic_fetch_add(&fake_cuda.n_event_queries, 1);
	if (error)
		return error;
	if (atomic_load(&fake_cuda.fail_query) && fails(event))
		return atomic_load(&fake_cuda.fail_query);
	return now_ns() >= atomic_load(&event->done_ns) ? 0 : NOT_READY;
}

int cuEventQuery(struct fake_event *event)
{
	return look(event);
}

int cuEventElapsedTime(float *ms, struct fake_event *from, struct fake_event *to)
{
	uint64_t a = atomic_load(&from->done_ns), b = atomic_load(&to->done_ns);
	int error;

	if (!a || !b)
		return INVALID_HANDLE;
	error = look(a > b ? from : to);
	if (!error)
		*ms = (float)((double)(int64_t)(b - a) / 1e6);
	return error;
}

void fake_launch(struct fake_stream *stream, uint64_t duration_ns)
{
	struct fake_stream *s = stream ? stream : &fake_legacy_stream;
	uint64_t now = now_ns(), busy = atomic_load(&s->busy_until_ns);

	atomic_store(&s->busy_until_ns, (busy > now ? busy : now) + duration_ns);
}

void fake_capture_begin(struct fake_stream *stream)
{
	atomic_store(&stream->capturing, 1);
	atomic_fetch_add(&fake_cuda.n_captures, 1);
}

void fake_capture_end(struct fake_stream *stream)
{
	atomic_fetch_sub(&fake_cuda.n_captures, 1);
	atomic_store(&stream->capturing, 0);
}
