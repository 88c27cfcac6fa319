/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Handles of the stand-in libcuda.so.1: how a test moves its GPU. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdatomic.h>
#include <stdint.h>

struct fake_cuda {
	atomic_int n_event_records, n_event_queries, n_events, n_streams;
	atomic_int n_captures;	      /* under way in global mode */
	atomic_int n_captures_broken; /* a call that breaks a capture: must stay 0 */
	atomic_int n_wrong_context;   /* a call on an object of another context: must stay 0 */
	atomic_int fail_query;	      /* error that a look at an event is to return */
	void *_Atomic fails_in;	      /* a context; NULL: in all */
	atomic_int context_destroyed;
	atomic_uint record_cost_ns;
	atomic_uint event_ns; /* that an event takes of its stream */
	atomic_uint slow_ns;  /* that every fifth takes beyond that */
};

struct fake_stream {
	void *context;
	atomic_int capturing;
	atomic_int quick; /* events take nothing of it */
	_Atomic uint64_t busy_until_ns;
};

extern struct fake_cuda fake_cuda;

void fake_launch(struct fake_stream *stream, uint64_t duration_ns);
void fake_capture_begin(struct fake_stream *stream);
void fake_capture_end(struct fake_stream *stream);
extern struct fake_stream fake_legacy_stream;

int cuCtxSetCurrent(void *context);
int cuStreamCreate(void **stream, unsigned flags);

#endif
