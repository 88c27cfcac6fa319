/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract between the plugin (src/plugin/) and the agent. The plugin hands batches of records
 * of one size to nccl_bpftrace_batch(batch, n), USDT probe nccl_bpftrace:batch, whose semaphore
 * wakes it. Types only; fixed width; kinds, reasons and values are appended, never renumbered;
 * sizes are asserted by every compiler. What is not known is NBP_UNKNOWN, or says so.
 */
#ifndef NCCL_BPFTRACE_PLUGIN_H
#define NCCL_BPFTRACE_PLUGIN_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define NBP_PROVIDER   "nccl_bpftrace"
#define NBP_PROBE      "batch"
#define NBP_MAX_BATCH  64 /* records in one call of the hook */
#define NBP_UNKNOWN_U8 0xff
#define NBP_UNKNOWN    0xffffffffU
#define NBP_NO_RANK    (-1)
#define NBP_NO_NUMBER  (~0ULL)

#define NBP_MASK_KERNEL_CH 0x40 /* in nbp_comm.mask: operations will have their nbp_timer */

enum nbp_kind {
	NBP_KIND_COMM = 1,	/* a communicator lives; sent again now and then, see there */
	NBP_KIND_API = 2,	/* one API event of NCCL: see struct nbp_api */
	NBP_KIND_OPERATION = 3, /* an operation as NCCL executes it */
	NBP_KIND_LAUNCH = 4,	/* a kernel was launched; what became of a timed one */
	NBP_KIND_TIMER = 5,	/* one operation's channels, by NCCL's own timer on the GPU */
	NBP_KIND_END = 6,	/* the communicator was finalised; its last record */
	NBP_KIND_LOSS = 7,	/* what found no place since the last such record */
	NBP_KIND_COUNTS = 8,	/* the API calls of five functions up to here: see nbp_counts */
	NBP_KIND_MAX,
};

/* NCCL's ncclFunc_t, as NCCL >= 2.29 numbers it. */
enum nbp_function {
	NBP_BROADCAST,
	NBP_REDUCE,
	NBP_ALLGATHER,
	NBP_REDUCESCATTER,
	NBP_ALLREDUCE,
	NBP_SENDRECV,
	NBP_SEND,
	NBP_RECV,
	NBP_ALLTOALL,
	NBP_SCATTER,
	NBP_GATHER,
	NBP_ALLGATHERV,
	NBP_PUTSIGNAL,
	NBP_SIGNAL,
	NBP_WAITSIGNAL,
	NBP_FUNCTION_MAX,
};

enum nbp_algorithm {
	NBP_TREE,
	NBP_RING,
	NBP_COLLNET_DIRECT,
	NBP_COLLNET_CHAIN,
	NBP_NVLS,
	NBP_NVLS_TREE,
	NBP_PAT,
	NBP_COPY_ENGINE, /* not NCCL's: a collective done by copy engines, without a kernel */
	NBP_ALGORITHM_MAX,
};

enum nbp_protocol {
	NBP_LL,
	NBP_LL128,
	NBP_SIMPLE,
	NBP_PROTOCOL_MAX,
};

enum nbp_capture {
	NBP_CAPTURED_NO,
	NBP_CAPTURED_YES,
	NBP_CAPTURED_UNKNOWN, /* launched from another thread than called from */
};

/* Why a launch is timed or not. */
enum nbp_timing {
	NBP_TIMED,
	NBP_NOT_TIMED_BUDGET,
	NBP_NOT_TIMED_CAPTURING,
	NBP_NOT_TIMED_NO_CUDA,	/* no CUDA driver in the process, or none that can do it */
	NBP_NOT_TIMED_ERROR,	/* the driver refused; this GPU context is timed no more */
	NBP_NOT_TIMED_STARTING, /* no events made yet for this GPU context */
	NBP_NOT_TIMED_EVENTS,	/* all events are under way */
	NBP_ABANDONED,		/* timed, but its end was not seen: phase NBP_FINISHED */
	NBP_TIMING_MAX,
};

enum nbp_source {
	NBP_SOURCE_NONE,
	NBP_SOURCE_CUDA_EVENT,
	NBP_SOURCE_KERNEL_TIMER,
};

/*
 * A launch that is not timed may have its call's time, up to 20 ms before its own. The last three
 * only of timed launches; queued and started only of a communicator's oldest one
 * that is not finished, some 250 ms after its launch, and again every second while it stays so: a
 * tracer that has just come learns of it, and one that was told that a launch is under way need not
 * believe it for ever.
 */
enum nbp_phase {
	NBP_LAUNCHED = 1,
	NBP_FINISHED = 2,
	NBP_QUEUED = 3,	 /* something before it on its stream is not done */
	NBP_STARTED = 4, /* all that was before it on its stream is done */
};

enum nbp_loss {
	NBP_LOSS_RING_FULL,	   /* notes: the plugin's thread was too slow */
	NBP_LOSS_CONTENTION,	   /* notes: too many threads at one communicator at once */
	NBP_LOSS_NOT_READY,	   /* notes: came before the communicator had its ring */
	NBP_LOSS_NO_COMM,	   /* communicators: more than the plugin has place for */
	NBP_LOSS_STALE,		   /* callbacks for a communicator that was finalised */
	NBP_LOSS_UNKNOWN_TYPE,	   /* callbacks of an event type that this plugin does not know */
	NBP_LOSS_BAD_CALLBACK,	   /* callbacks with NULL where NCCL gives none */
	NBP_LOSS_UNKNOWN_STOP,	   /* stops of what was not started, or was stopped already */
	NBP_LOSS_UNKNOWN_STATE,	   /* states recorded for what the plugin gave no handle for */
	NBP_LOSS_TIMING_ERROR,	   /* calls that the CUDA driver refused */
	NBP_LOSS_TIMING_ABANDONED, /* timed launches whose end was not seen */
	NBP_LOSS_TIMING_INVALID,   /* GPU times that cannot be: end before start, absurd length */
	NBP_LOSS_TIMER_FULL,	/* operations: more under way than the kernel timer has place for */
	NBP_LOSS_TIMER_REFUSED, /* the kernel timer was asked for and is not on: see detail */
	NBP_LOSS_MAX,
};

/*
 * The three numbers are the highest that were told before this record, to whoever listened then: a
 * tracer that has just come starts at one more, and what is missing after that is a loss. Records
 * of several threads may come a little out of order.
 */
struct nbp_comm {
	__u32 n_nodes;	   /* NBP_UNKNOWN: ABI v1 to v3 */
	__s32 cuda_device; /* in the process's own numbering; -1: not known yet */
	__u8 gpu_uuid[16]; /* valid with cuda_device */
	__u16 abi;	   /* 1..6: ncclProfiler_vN that NCCL took */
	__u16 mask;	   /* this plugin's part of NCCL's activation mask */
	char name[28];	   /* the communicator's, cut; empty: none or not known */
	__u64 api_number;
	__u64 launch;
	__u64 operation;
	__u64 control; /* address of struct nbp_control in the process */
};

/*
 * NCCL >= 2.28 only. Not one per public call: AlltoAll, Gather and Scatter come as one Send or
 * Recv per peer, calls of count 0 and those of one-rank communicators not at all.
 */
struct nbp_api {
	__u64 api_number; /* per communicator from 1: a gap is a loss */
	__u64 count;
	__u64 stream;
	__u64 group;	   /* running number of the thread's group, of 32 bits; 0: not known */
	__s32 root;	   /* NBP_NO_RANK: not said (p2p: see the operation) */
	__u32 group_depth; /* 1: an implicit group, so one public call */
	__u8 function;	   /* enum nbp_function */
	__u8 datatype;	   /* ncclDataType_t; NCCL does not name ncclUint8: NBP_UNKNOWN_U8 */
	__u8 redop;	   /* the ABI never says: NBP_UNKNOWN_U8 */
	__u8 capture;	   /* enum nbp_capture */
	__u8 pad[44];
};

/*
 * API events of the first functions of enum nbp_function since the communicator was made: those
 * whose record came before this one, and those that never got a record. What came between two of
 * these and is not in the difference was lost on the way. time_ns: the calls before it. At most one
 * per communicator in each round of batches, when it has changed; with every NBP_KIND_COMM; before
 * NBP_KIND_END.
 */
#define NBP_N_COUNTED 5 /* NBP_BROADCAST to NBP_ALLREDUCE */

struct nbp_count {
	__u64 calls;
	__u64 bytes; /* sum of count x size of type; a type without a name is ncclUint8 */
};

struct nbp_counts {
	struct nbp_count function[NBP_N_COUNTED];
	__u64 unseen; /* calls among them that got no record */
};

struct nbp_operation {
	__u64 sequence;	  /* NCCL's number of this function, by copy engine: of all such;
			     NBP_NO_NUMBER: it keeps none (p2p) */
	__u64 count;	  /* AllGather, Broadcast: bytes, as NCCL converts them */
	__u64 launch;	  /* struct nbp_launch; 0: not known */
	__u64 operation;  /* per communicator from 1: a gap is a loss */
	__u64 group;	  /* struct nbp_api's; 0: not known, or called from another thread */
	__s32 root;	  /* or peer */
	__u32 n_channels; /* NBP_UNKNOWN */
	__u8 function;
	__u8 datatype;
	__u8 redop; /* v1 only: NCCL's device operation is no ncclRedOp_t, so NBP_UNKNOWN_U8 */
	__u8 algorithm;
	__u8 protocol;
	__u8 pad[35];
};

struct nbp_launch {
	__u64 launch; /* per communicator from 1: a gap is a loss */
	__u64 stream;
	__u64 gpu_start_ns; /* host CLOCK_MONOTONIC; 0: clocks not compared */
	__u64 gpu_end_ns;
	/* Of CUDA events: less half of what an empty pair reads. 0: not timed, or not yet */
	__u64 duration_ns;
	__u32 clock_error_ns; /* half the bracket in which the clocks were compared; NBP_UNKNOWN */
	__u32 n_operations;   /* NBP_UNKNOWN until finished */
	__u8 phase;	      /* enum nbp_phase */
	__u8 timing;	      /* enum nbp_timing */
	__u8 source;	      /* enum nbp_source */
	__u8 capture;	      /* enum nbp_capture */

	/* NBP_QUEUED and NBP_STARTED only */
	__u8 function;	  /* of its first operation; NBP_UNKNOWN_U8: not known */
	__u8 after_pause; /* any phase. 1: timed for that alone, not chosen by chance */
	__u8 pad[2];
	__u64 sequence; /* of that operation, as there */
	__u64 done;	/* launches up to this number are done; 0: none is known to be */
	__u8 pad2[16];
};

/*
 * With NBP_WANT_KERNEL_TIMER: all channels of an operation have stopped, or no more are waited for.
 * The times are the GPU's own (globaltimer), on no other clock; NCCL >= 2.27.
 */
struct nbp_timer {
	__u64 operation;    /* struct nbp_operation */
	__u64 sequence;	    /* as there */
	__u64 gpu_first_ns; /* the first channel's start */
	__u64 gpu_last_ns;  /* the last channel's stop */
	__u64 seen_ns;	  /* host CLOCK_MONOTONIC, when NCCL's proxy thread told of the last stop */
	__u32 n_channels; /* that started and stopped */
	__u32 n_expected; /* NBP_UNKNOWN */
	__u8 function;
	__u8 pad[39];
};

/*
 * Sent when something was lost, and once more a second later: who missed the first hears of it, and
 * who did not has heard of that total.
 */
struct nbp_loss_record {
	__u32 reason; /* enum nbp_loss */
	__u32 detail; /* NBP_LOSS_TIMER_REFUSED: enum nbp_timer_state */
	__u64 count;  /* since it last stood still for a second, of that communicator */
	__u64 total;
	__u8 pad2[64];
};

struct nbp_record {
	__u16 kind;
	__u16 size;    /* of this record */
	__u32 tid;     /* 0: the plugin's own thread */
	__u64 time_ns; /* host CLOCK_MONOTONIC of the callback; operation: of its launch's, if known
			*/
	__u64 comm_hash; /* 0: not known, or the record is of the whole process */
	__s32 rank;	 /* NBP_NO_RANK: not known */
	__s32 n_ranks;	 /* 0: not known */
	__u64 comm_id;	 /* of this process, never given twice; 0: the whole process */
	union {
		struct nbp_comm comm;
		struct nbp_api api;
		struct nbp_counts counts;
		struct nbp_operation operation;
		struct nbp_launch launch;
		struct nbp_timer timer;
		struct nbp_loss_record loss;
		__u8 bytes[88];
	};
};

_Static_assert(sizeof(struct nbp_comm) == 88, "nbp_comm");
_Static_assert(sizeof(struct nbp_api) == 88, "nbp_api");
_Static_assert(sizeof(struct nbp_counts) == 88, "nbp_counts");
_Static_assert(NBP_ALLREDUCE == NBP_N_COUNTED - 1, "nbp_counts.function");
_Static_assert(sizeof(struct nbp_operation) == 88, "nbp_operation");
_Static_assert(sizeof(struct nbp_launch) == 88, "nbp_launch");
_Static_assert(sizeof(struct nbp_timer) == 88, "nbp_timer");
_Static_assert(sizeof(struct nbp_loss_record) == 88, "nbp_loss_record");
_Static_assert(sizeof(struct nbp_record) == 128, "nbp_record");

/*
 * In the plugin's .data: what a privileged agent may read, and the knobs that it may write
 * (at any time, whole words). Its address comes with every NBP_KIND_COMM.
 */
#define NBP_CONTROL_MAGIC 0x6c727463706c6e62ULL /* "bnlpctrl" */

#define NBP_DEFAULT_BUDGET_PPM 10000 /* what the plugin starts with; wants nothing */

/*
 * NCCL's KernelCh events. They make NCCL run a polling thread per GPU, take some 34 MB of /dev/shm
 * for a communicator's rank, and stay in every CUDA graph that is captured meanwhile, on purpose:
 * nothing else times a graph's replays.
 */
#define NBP_WANT_KERNEL_TIMER 1u

/* What became of that wish. */
enum nbp_timer_state {
	NBP_TIMER_OFF, /* not asked for, or nobody listens */
	NBP_TIMER_ON,
	NBP_TIMER_NO_ABI,  /* NCCL before 2.27 has none that tells the GPU's time */
	NBP_TIMER_NO_SHM,  /* it would take more than half of what is free in /dev/shm */
	NBP_TIMER_CHAINED, /* another plugin behind this one may hold the operations' handles */
	NBP_TIMER_STATE_MAX,
};

struct nbp_control {
	__u64 magic;
	__u32 size;
	__u32 version;
	__u32 budget_ppm;     /* knob: share of wall time that GPU timing may cost; 10000 = 1 % */
	__u32 launch_cost_ns; /* knob: what timing one launch is taken to cost a job */
	__u32 wants;	      /* knob: NBP_WANT_* bits */
	__u32 timer;	      /* enum nbp_timer_state */
	__u32 awake;
	__u32 n_comms;
	__u64 n_launches; /* seen while awake */
	__u64 n_timed;
	__u64 n_batches;
	__u64 n_records;
	__u64 lost[16]; /* by enum nbp_loss, never falls */
};

_Static_assert(NBP_LOSS_MAX <= 16, "nbp_control.lost");
_Static_assert(sizeof(struct nbp_control) == 200, "nbp_control");

#endif
