/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From the plugin's records to launches with their operations and GPU times. Pure: no I/O, no
 * clock, no BPF. Records are a process's own word: every field is checked, what cannot be is
 * counted and never averaged.
 *
 * A launch is put together by the plugin's own numbers (communicator, launch, operation), never by
 * order of arrival, so that a lost record costs its own launch and shifts none.
 */
#ifndef TIMING_H
#define TIMING_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "nccl_api.h"
#include "nccl_bpftrace_plugin.h"

#define TIMING_MAX_OPERATIONS 1024 /* of one launch that are described; the others are counted */

/* A communicator as the plugin of its process tells of it. */
struct timing_comm {
	struct timing_comm_key {
		uint64_t id;   /* the plugin's, never given twice in a process */
		uint64_t tgid; /* the kernel's word */
	} key;
	uint64_t hash;	  /* 0: not known yet (ABI v1 to v3, before its first operation) */
	int32_t rank;	  /* -1: not known */
	int32_t n_ranks;  /* 0: not known */
	uint32_t n_nodes; /* 0: not known */
	uint32_t abi;	  /* 1..6: ncclProfiler_vN */
	uint64_t control; /* address of struct nbp_control in the process; 0: not told */
	char name[40];	  /* "": none or not known */
	char uuid[48];	  /* "GPU-…", as the process says; "" : not known */
	uint64_t n_launches, n_timed, n_captured; /* launches told of */
	uint64_t n_timers;			  /* operations that NCCL's own timer has timed */
	uint64_t ended_ns;			  /* CLOCK_MONOTONIC; 0: it lives */
	UT_hash_handle hh;
};

struct timing_operation {
	uint64_t number;   /* the plugin's running one; 0: not known */
	uint64_t sequence; /* NCCL's own, NBP_NO_NUMBER: it keeps none */
	uint64_t count;	   /* elements of datatype; AllGather and Broadcast: bytes */
	uint64_t call_ns;  /* host call, CLOCK_MONOTONIC; 0: not known */
	enum nccl_operation operation;
	uint32_t type_bytes;	     /* of one element; 0: not known */
	uint32_t datatype;	     /* ncclDataType_t; NBP_UNKNOWN */
	int32_t root;		     /* or peer; -1: none */
	uint32_t n_channels;	     /* 0: not known */
	uint8_t algorithm, protocol; /* enum nbp_algorithm, nbp_protocol, or NBP_UNKNOWN_U8 */
};

/* What a launch is as a whole. */
enum timing_form {
	TIMING_ONE,   /* one operation, or several of one kind: timed as one */
	TIMING_PAIR,  /* one Send and one Recv: both took that long */
	TIMING_MIXED, /* of different kinds: no operation's time can be told */
};

struct timing_launch {
	const struct timing_comm *comm;
	uint64_t number; /* the plugin's; 0: no launch was told of (a graph's replay) */
	uint64_t stream;
	uint64_t launch_ns;		   /* host CLOCK_MONOTONIC; 0: that record was lost */
	uint64_t gpu_start_ns, gpu_end_ns; /* host CLOCK_MONOTONIC; 0: clocks not compared */
	uint64_t duration_ns;		   /* 0: not timed, or refused */
	uint32_t clock_error_ns;	   /* of gpu_start_ns; NBP_UNKNOWN */
	enum nbp_timing timing;		   /* why it is timed or not; NBP_TIMING_MAX: not told */
	enum nbp_source source;
	enum nbp_capture capture;
	bool after_pause;      /* timed for that alone: of no use for what is usual */
	uint32_t n_operations; /* in it, as the plugin counted; or else as many as came */
	uint32_t n_described;  /* fewer: lost, or more than TIMING_MAX_OPERATIONS */
	const struct timing_operation *operations;

	/* Every operation is described, so far as known; the rest is valid only then. */
	bool complete;
	enum timing_form form;
	enum nccl_operation operation; /* of TIMING_ONE; AlltoAll for one made of sends and recvs */
	bool has_bytes;		       /* every type, and n_ranks where it matters, is known */
	uint64_t bytes;		       /* nccl-tests' size column, summed */
	double bus_bytes;	       /* bytes x nccl-tests' bus factor, summed */
};

/*
 * Each launch once: when its time is known, or when it is known that it will not be. One that
 * NCCL's own timer times (NBP_SOURCE_KERNEL_TIMER) comes as so many launches of one operation each.
 */
typedef void timing_launch_fn(void *ctx, const struct timing_launch *launch);

/* Each operation as soon as its record comes; call_ns says of which call it is. */
typedef void timing_operation_fn(void *ctx, const struct timing_comm *comm,
				 const struct timing_operation *operation);

/* Why a GPU time was refused, or is missing although it was begun. */
enum timing_invalid {
	TIMING_INVALID_ZERO,	  /* no length, or no time stamp */
	TIMING_INVALID_BACKWARDS, /* end before start */
	TIMING_INVALID_ABSURD,	  /* longer than since the launch, or clocks that drifted apart */
	TIMING_INVALID_DUPLICATE,
	TIMING_INVALID_INCOMPLETE, /* an operation of the launch was lost */
	TIMING_INVALID_ABANDONED,  /* begun, end not seen */
	TIMING_INVALID_PLUGIN,	   /* refused by the plugin itself */
	TIMING_INVALID_DRIVER,	   /* refused by the CUDA driver */
	TIMING_INVALID_TIMER_FULL, /* NCCL's own timer: more operations than the plugin follows */
	TIMING_INVALID_TIMER_REFUSED, /* communicators where it was asked for and is not on */
	TIMING_INVALID_MAX,
};

struct timings;

/* 0 or -ENOMEM. */
int timings__new(struct timings **ret, timing_launch_fn *fn, void *ctx);
void timings__free(struct timings *timings); /* hands out nothing any more */

/* One listener, from now on. */
void timings__on_operation(struct timings *timings, timing_operation_fn *fn, void *ctx);

/* One record of a process; now_ns: CLOCK_MONOTONIC. */
void timings__record(struct timings *timings, uint32_t tgid, const struct nbp_record *record,
		     uint64_t now_ns);

/* Hands out launches whose last operation must have come by now. Some ten times a second. */
void timings__settle(struct timings *timings, uint64_t now_ns);

/* The process has ended: what it left is handed out, its communicators are kept until expire. */
void timings__process_gone(struct timings *timings, uint32_t tgid, uint64_t now_ns);
void timings__expire(struct timings *timings, uint64_t before_ns);

struct timing_comm *timings__first(struct timings *timings); /* next: ->hh.next */
/* By the communicator's hash and rank in that process; NULL. */
const struct timing_comm *timings__find(const struct timings *timings, uint32_t tgid, uint64_t hash,
					int32_t rank);

/*
 * Launches known to have been made and not known to be done: those up to the last one that is
 * timed. An untimed launch behind it may be done: nothing is said of it. ret_start_ns: when the
 * oldest was launched. 0: none.
 */
uint32_t timing_comm__in_flight(const struct timing_comm *comm, uint64_t *ret_start_ns);

/* The oldest of these. */
struct timing_oldest {
	uint32_t n_in_flight;	       /* with it */
	enum nccl_operation operation; /* its first; NCCL_OP_MAX: not known */
	uint64_t sequence;	       /* NCCL's own, from 0; NBP_NO_NUMBER: none, or not known */
	uint64_t launch_ns;	       /* host CLOCK_MONOTONIC */
	uint64_t gpu_start_ns;	       /* host CLOCK_MONOTONIC; 0: not known */
	/*
	 * Started: what its stream had before it is done. Not started: something else is not. Where
	 * launches before it were not timed, it is not known whether it is one of them.
	 */
	bool started, start_known;
};

/* False: nothing is known to be in flight. */
bool timing_comm__oldest(const struct timing_comm *comm, struct timing_oldest *ret);

uint64_t timings__invalid(const struct timings *timings, enum timing_invalid reason);
const char *timing_invalid__name(enum timing_invalid reason);

/*
 * What was lost on the way: by the plugins' own word (enum nbp_loss; the NBP_LOSS_TIM* among
 * them are times and are in timings__invalid()), then by ours. TIMING_LOST_GAP: numbers that never
 * came and that no plugin owns up to; those that the kernel had no room for are among them.
 */
enum {
	TIMING_LOST_BAD_RECORD = NBP_LOSS_MAX, /* fields that cannot be */
	TIMING_LOST_NO_ROOM,		       /* more than one process, or all, may have */
	TIMING_LOST_GAP,
	TIMING_LOST_MAX,
};
uint64_t timings__lost(const struct timings *timings, int reason);
const char *timing_lost__name(int reason);
static inline bool timing_lost__is_time(int reason)
{
	return reason >= NBP_LOSS_TIMING_ERROR && reason < NBP_LOSS_MAX;
}

/*
 * Bytes of one operation: of nccl-tests' size column, of its bus (nccl-tests' PERFORMANCE.md), and
 * of Inspector's message size (count x size of the type). 0 when the type or n_ranks is not known.
 */
uint64_t timing_operation__bytes(const struct timing_operation *operation, int32_t n_ranks);
double timing_operation__bus_bytes(const struct timing_operation *operation, int32_t n_ranks);
uint64_t timing_operation__message_bytes(const struct timing_operation *operation);

/* The operation that a function of the plugin's records (enum nbp_function) is; false: none. */
bool nbp_function__operation(uint8_t function, enum nccl_operation *ret);

const char *nbp_algorithm__name(uint8_t algorithm); /* "RING", as NCCL spells it; "" unknown */
const char *nbp_protocol__name(uint8_t protocol);   /* "LL128" */

#endif
