/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Between timing.c, poll.c, clock.c and cuda.c: the CUDA driver, found in the process, never
 * brought in. */
#ifndef NCCL_BPFTRACE_PLUGIN_TIMING_H
#define NCCL_BPFTRACE_PLUGIN_TIMING_H

#include "budget.h"
#include "plugin.h"

typedef void *CUcontext, *CUstream, *CUevent;
typedef int CUdevice;

#define CUDA_NOT_READY		 600
#define CUDA_CAPTURE_ERROR_FIRST 900 /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
#define CUDA_CAPTURE_ERROR_LAST	 909 /* ..._CAPTURE_WRONG_THREAD is 908; 909 is a timeout's */
#define CAPTURE_NONE		 0
#define CAPTURE_MODE_RELAXED	 2
#define STREAM_NON_BLOCKING	 1

enum gpu_state {
	GPU_NEW,
	GPU_READY,
	GPU_BROKEN,
};

struct cuda {
	int (*ctx_get_current)(CUcontext *);
	int (*ctx_set_current)(CUcontext);
	int (*ctx_get_device)(CUdevice *);
	int (*device_get_uuid)(void *uuid, CUdevice); /* may be absent */
	int (*event_create)(CUevent *, unsigned flags);
	int (*event_record)(CUevent, CUstream);
	int (*event_query)(CUevent);
	int (*event_elapsed)(float *ms, CUevent, CUevent);
	int (*stream_create)(CUstream *, unsigned flags);
	int (*stream_is_capturing)(CUstream, int *status);
	int (*exchange_capture_mode)(int *mode);
};

extern struct cuda cuda;

bool cuda__usable(void);
bool cuda__load(void); /* the plugin's thread only; looks again at most once a second */

/*
 * The plugin's thread, before its calls: in relaxed capture mode, with the context current, where
 * it stays until it goes to another or leaves. 0 or CUDA's error; -1: no more, the process is
 * ending.
 */
int cuda__enter(CUcontext context);

/* How a GPU's events lie on the host's clock. */
struct clock {
	CUstream stream;
	CUevent now, spare; /* `now` holds the last comparison */
	CUevent behind;	    /* `spare` in an empty pair */
	uint64_t host_ns;   /* 0: never compared */
	uint32_t error_ns;
	uint64_t tried_ns;
	uint64_t empty_ns; /* what an empty pair reads; 0: never measured */
};

int clock__create(struct clock *clock);
bool clock__is_due(const struct clock *clock, uint64_t now);
int clock__compare(struct clock *clock); /* -1: the driver refused; too coarse is no error */
/* How long was what lay between the events of a pair that reads so much. */
uint64_t clock__between_ns(const struct clock *clock, uint64_t read_ns);
/* 0: not known. Neither before the host launched it nor after it was seen to be done. */
uint64_t clock__host_ns(const struct clock *clock, CUevent event, uint64_t not_before,
			uint64_t not_after);

#define N_GPUS	16
#define N_PAIRS 64 /* timed launches under way in one context */

enum pair_state {
	PAIR_FREE,
	PAIR_TAKEN,   /* by the thread that launches */
	PAIR_PENDING, /* by the plugin's thread */
};

struct pair {
	_Atomic uint32_t state; /* stamp << 2 | enum pair_state */
	CUevent start, end;
	/* the plugin's thread's own */
	uint32_t seen;
	uint64_t seen_ns; /* since when it has found it so */
};

struct gpu {
	_Atomic(CUcontext) context;
	_Atomic uint32_t state; /* enum gpu_state */
	struct budget budget;
	_Atomic uint32_t hint;
	struct pair pairs[N_PAIRS];

	/* the plugin's thread's own */
	struct clock clock;
	struct share share;
	bool identified;
	int32_t device;
	uint8_t uuid[16];
};

extern struct gpu gpus[N_GPUS];

void gpu__fail(struct gpu *gpu);
struct pair *pair__get(uint16_t index);
void pair__free(struct pair *pair);

#endif
