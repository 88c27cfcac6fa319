/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tracer as a whole: finds NCCL processes, attaches, collects, keeps the picture of processes
 * and communicators. The commands ask it and hand what it knows to the sinks.
 */
#ifndef TRACER_H
#define TRACER_H

#include <stdbool.h>
#include <stdint.h>

#include "comm.h"
#include "foreign.h"
#include "gpu.h"
#include "handover.h"
#include "knobs.h"
#include "library.h"
#include "loop.h"
#include "probe.h"
#include "process.h"
#include "timing.h"

#define TRACER_MAX_PIDS	     64
#define TRACER_MAX_LISTENERS 8

struct tracer_options {
	struct probe_options probe;
	bool attach;			/* else only look (ps) */
	bool watch;			/* processes that come later too */
	bool fuse;			/* probe files on FUSE mounts too */
	uint32_t pids[TRACER_MAX_PIDS]; /* only these, when n_pids is not 0 */
	unsigned int n_pids;
	uint64_t handover_after_ns; /* see handover.h; 0: never */
	const char *cgroup;	    /* only processes in it; NULL: all */
	const char *gpu_root;	    /* GPU_PROC_ROOT */
	const char *host_root;	    /* of what names pods and containers; NULL: the default */
	struct knobs knobs;	    /* of every plugin that is heard; only with attach */
};

struct tracer;

/* 0 or -errno; ret_why as in probe__new(). The loop must outlive the tracer. */
int tracer__new(struct tracer **ret, struct loop *loop, const struct tracer_options *options,
		const char **ret_why);
void tracer__free(struct tracer *tracer);

/* Scans what runs and starts watching. on_settled is called once what ran at start is known. */
int tracer__start(struct tracer *tracer, loop_fn *on_settled, void *ctx);

/*
 * Why the processes that run could not be looked at (-errno), 0: they were. While it is not 0 those
 * that ran before may be missing; another look comes by itself.
 */
int tracer__look_failed(const struct tracer *tracer);

/* Takes in ring and counters: the picture is as of now. */
int tracer__refresh(struct tracer *tracer);

/* Drops what had ended at the last refresh: a publication in between has shown it once more. */
void tracer__expire(struct tracer *tracer);

struct comms *tracer__comms(struct tracer *tracer);
struct processes *tracer__processes(struct tracer *tracer);
struct libraries *tracer__libraries(struct tracer *tracer);
struct probe *tracer__probe(struct tracer *tracer);
struct timings *tracer__timings(struct tracer *tracer);

/*
 * Hands each launch that plugins tell of to the function, too: as timing_launch_fn says, from now
 * on. 0, or -ENOSPC past TRACER_MAX_LISTENERS. Nobody stops listening before the tracer's end.
 */
int tracer__on_launch(struct tracer *tracer, timing_launch_fn *fn, void *ctx);

/*
 * Called once for each process with a profiler plugin that is not ours, when those are followed
 * (probe.foreign): version N of its ncclProfiler_vN, or 0 when it is not followed, for the reason
 * in process->foreign.why. Its file: process__foreign_mapping().
 */
typedef void tracer_foreign_fn(void *ctx, const struct process *process, int version);
void tracer__on_foreign(struct tracer *tracer, tracer_foreign_fn *fn, void *ctx);

/* Called once for each process whose NCCL is not asked for the kernel timer that was asked for. */
typedef void tracer_process_fn(void *ctx, const struct process *process);
void tracer__on_timer_refused(struct tracer *tracer, tracer_process_fn *fn, void *ctx);

/* Hands each call that probes tell of to the function, too: likewise. */
typedef void tracer_call_fn(void *ctx, const struct nb_record *record);
int tracer__on_call(struct tracer *tracer, tracer_call_fn *fn, void *ctx);

/* Calls that no probe told of but the process's plugin, and its word of what NCCL made of them:
 * one listener. */
struct tracer_plugin_listener {
	handover_call_fn *call;
	handover_lost_fn *lost;
	timing_operation_fn *operation;
	void *ctx;
};
void tracer__on_plugin(struct tracer *tracer, const struct tracer_plugin_listener *listener);

/* Called ten times a second while anything is traced, when what came until then is taken in: one
 * listener. */
void tracer__on_tick(struct tracer *tracer, loop_fn *fn, void *ctx);

/* When the last refresh began, CLOCK_MONOTONIC; 0: there was none. */
uint64_t tracer__refreshed_ns(const struct tracer *tracer);

/* Do probes on collectives leave that process alone, as its plugin tells of them? */
bool tracer__is_handed_over(const struct tracer *tracer, uint32_t tgid);

/*
 * Has the communicators of a process read once more, soon, in a helper: what changes in them is
 * in struct comm then. False: they cannot be, or are being read.
 */
bool tracer__read_again(struct tracer *tracer, uint32_t tgid);

/* The GPU of a communicator, or NULL; and of a process: the first that its communicators use. */
const struct gpu *tracer__gpu_of(struct tracer *tracer, const struct comm *comm);

/* By the UUID as the driver writes it, in either case; NULL: this node has no such GPU. */
const struct gpu *tracer__gpu_by_uuid(struct tracer *tracer, const char *uuid);

/* Processes by what can be done with them. */
struct tracer_census {
	unsigned int traced, unsupported;
	unsigned int plugin; /* have the cooperating plugin, asleep or awake */
};
struct tracer_census tracer__census(struct tracer *tracer);

/* Launches of CUDA graphs of which it is not known what NCCL operations they run. */
uint64_t tracer__graphs_unresolved(struct tracer *tracer);

/* Records lost, by reason; what user space refuses is one more reason. */
enum {
	TRACER_LOST_BAD_RECORD = NB_LOST_MAX,
	TRACER_LOST_HANDOVER,
	TRACER_LOST_FOREIGN, /* then enum foreign_loss */
	TRACER_LOST_MAX = TRACER_LOST_FOREIGN + FOREIGN_LOST_MAX,
};
uint64_t tracer__lost(struct tracer *tracer, int reason);
const char *tracer__lost_name(int reason);

#endif
