/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From operations to the state of each communicator: who is missing, stuck, late, or disagrees.
 * Pure: no I/O, no clock of its own, no BPF. Times are CLOCK_MONOTONIC of this node.
 *
 * Ranks are compared only at one absolute sequence number of one operation (NCCL's own, or counted
 * since the communicator was made), never by order of arrival: who is heard late shifts nothing.
 * What rests on absence (a missing call, a mismatch of order) is claimed only where nothing was
 * lost since the ranks were last seen at one number.
 *
 * Bounded: 4096 communicators, 1024 ranks of each and 16384 of all, 32 MB of history; together less
 * than 100 MB when all of that is reached, and about 100 kB for a communicator of 8 ranks. What
 * finds no place is counted. A communicator's hash is no secret: a process that claims a rank of
 * another job's communicator makes that one unknown, and can do no more.
 */
#ifndef VERDICT_H
#define VERDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "nccl_api.h"

#define VERDICT_NO_SEQUENCE  (~0ULL)
#define VERDICT_MAX_NAMED    64	 /* ranks listed in one verdict; the others are only counted */
#define VERDICT_MAX_EVIDENCE 8	 /* lines */
#define VERDICT_MAX_EVENTS   16	 /* changes of state that are remembered */
#define VERDICT_TEXT	     200 /* bytes of one line, NUL included */

/* In the order of the contract; verdict_state__severity() tells which one counts. */
enum verdict_state {
	VERDICT_HEALTHY,
	VERDICT_IDLE,
	VERDICT_WAITING,
	VERDICT_STUCK,
	VERDICT_STRAGGLER,
	VERDICT_SLOW,
	VERDICT_MISMATCH,
	VERDICT_ABORTED,
	VERDICT_ERROR,
	VERDICT_DEGRADED_SIGHT,
	VERDICT_UNKNOWN,
	VERDICT_STATES,
};

enum verdict_cause {
	VERDICT_NO_CAUSE,
	VERDICT_MISSING_CALL,	 /* the culprits have not called what their peers have called */
	VERDICT_MISSING_LAUNCH,	 /* nor launched their CUDA graphs as often as these */
	VERDICT_GPU_NOT_STARTED, /* all called; the culprits' GPUs are busy with something before it
				  */
	VERDICT_GPU_NOT_DONE,  /* all called, all GPUs are at it, none gets done: link or network */
	VERDICT_ELSEWHERE,     /* this node's ranks have all called: ranks of other nodes */
	VERDICT_ENDED,	       /* the culprits' processes are no more, their peers wait */
	VERDICT_LATE,	       /* the culprit calls last again and again */
	VERDICT_LATE_ON_GPU,   /* its GPU starts last again and again */
	VERDICT_SLOW_TRANSFER, /* the transfer itself takes longer than it used to */
	VERDICT_DISAGREE,      /* see mismatch */
	VERDICT_CAUSES,
};

/* Contract: label `kind` of nccl_mismatches_total. */
enum verdict_mismatch {
	VERDICT_MISMATCH_OPERATION, /* another operation, or another order of them */
	VERDICT_MISMATCH_COUNT,
	VERDICT_MISMATCH_DATATYPE,
	VERDICT_MISMATCH_REDOP,
	VERDICT_MISMATCH_ROOT,
	VERDICT_MISMATCHES,
};

/* One rank of a communicator, in one process of this node. */
struct verdict_member {
	uint64_t hash; /* of the communicator; never 0 */
	int32_t rank, n_ranks;
	uint32_t tgid;
};

struct verdict_options {
	uint64_t stuck_after_ns;
};

struct verdicts;

/* 0 or -ENOMEM. */
int verdicts__new(struct verdicts **ret, const struct verdict_options *options);
void verdicts__free(struct verdicts *verdicts);

/* ---- what was seen; in order of time as far as possible, a few 100 ms late is no harm ---- */

/*
 * A rank lives. whole: every call since the communicator was made is told of. Told of again, it
 * may only become whole no more. n_nodes 0: not known.
 */
void verdicts__join(struct verdicts *verdicts, const struct verdict_member *member, bool whole,
		    int32_t n_nodes, uint64_t now_ns);

enum verdict_end {
	VERDICT_END_DESTROYED, /* or finalised */
	VERDICT_END_ABORTED,
	VERDICT_END_DIED, /* its process ended, and the communicator had not */
};
void verdicts__leave(struct verdicts *verdicts, const struct verdict_member *member,
		     enum verdict_end how, uint64_t now_ns);

/* One call. */
struct verdict_call {
	struct verdict_member member;
	enum nccl_operation operation;
	uint64_t sequence; /* absolute, the first call is 1; VERDICT_NO_SEQUENCE: not numbered */
	uint64_t time_ns;
	uint64_t count;
	uint32_t datatype;
	uint32_t redop; /* ~0U: none, or not known */
	int32_t root;	/* or peer; -1: none, or not known */
	bool captured;	/* into a CUDA graph: nothing runs; not numbered */
};
void verdicts__call(struct verdicts *verdicts, const struct verdict_call *call);

/*
 * The number that an operation has reached, as NCCL's memory or the kernel's exact counters say:
 * also for calls that nobody saw, so that a job that hung before we came can be judged.
 */
void verdicts__reached(struct verdicts *verdicts, const struct verdict_member *member,
		       enum nccl_operation operation, uint64_t sequence, uint64_t now_ns);

/* It moves, with what is not numbered (the launch of a CUDA graph, one-sided operations). */
void verdicts__moved(struct verdicts *verdicts, const struct verdict_member *member,
		     uint64_t time_ns);

/*
 * What a rank's CUDA graphs have run on this communicator: collectives alone, which all ranks
 * capture and run alike. Told again as it grows.
 */
struct verdict_replays {
	uint64_t n_captured, n;	       /* calls into captures; operations that launches have run */
	enum nccl_operation operation; /* the most frequent of those captured */
	bool is_known; /* no launch of that process was of a graph that is not known */
};
void verdicts__replayed(struct verdicts *verdicts, const struct verdict_member *member,
			const struct verdict_replays *replays);
/* What was last told of replays is as of then, which may be long ago; never told: as of now. */
void verdicts__replays_as_of(struct verdicts *verdicts, uint64_t time_ns);

/* What the plugin knows of a rank's GPU at this time; told again at every settle. */
struct verdict_gpu {
	uint32_t n_in_flight;	       /* launches known to be made and not known to be done */
	enum nccl_operation operation; /* of the oldest; NCCL_OP_MAX: not known */
	uint64_t sequence;	       /* of the oldest; VERDICT_NO_SEQUENCE: not known */
	uint64_t launch_ns;	       /* of the oldest */
	bool started;	  /* the oldest runs on the GPU; false: not yet, or not known */
	bool start_known; /* whether it has started is known */
};
void verdicts__gpu(struct verdicts *verdicts, const struct verdict_member *member,
		   const struct verdict_gpu *gpu, uint64_t now_ns);

/* A launch of one numbered operation whose GPU time is known. */
struct verdict_timed {
	struct verdict_member member;
	enum nccl_operation operation;
	uint64_t sequence;     /* as in struct verdict_call */
	uint64_t gpu_start_ns; /* 0: clocks not compared */
	uint64_t duration_ns;
	uint64_t bytes; /* nccl-tests' size column; 0: not known */
};
void verdicts__timed(struct verdicts *verdicts, const struct verdict_timed *timed);

/* Records of that process (0: of whom is not known) were lost up to now. */
void verdicts__lost(struct verdicts *verdicts, uint32_t tgid, uint64_t now_ns);

/* An asynchronous error, NCCL's name of it ("ncclRemoteError"); "": it is over. */
void verdicts__error(struct verdicts *verdicts, const struct verdict_member *member,
		     const char *result, uint64_t now_ns);

/* ---- what follows ---- */

/* Four times a second: confirms, lets go, recovers. */
void verdicts__settle(struct verdicts *verdicts, uint64_t now_ns);

struct verdict_named {
	int32_t ranks[VERDICT_MAX_NAMED]; /* ascending */
	uint32_t n;			  /* all of them, those beyond the list too */
};

struct verdict {
	enum verdict_state state;
	enum verdict_cause cause;
	enum verdict_mismatch mismatch; /* VERDICT_DISAGREE only */
	uint64_t since_ns;		/* the fault's beginning, as far as known */
	uint64_t confirmed_ns;		/* when it became this state */
	struct verdict_named culprits, waiting;
	enum nccl_operation operation; /* NCCL_OP_MAX: none */
	uint64_t sequence;	       /* VERDICT_NO_SEQUENCE: none */
	char why[VERDICT_TEXT];	       /* one sentence */
	char evidence[VERDICT_MAX_EVIDENCE][VERDICT_TEXT];
	uint32_t n_evidence;
};

struct verdict_event {
	uint64_t time_ns;
	enum verdict_state state;
	int32_t culprit; /* the first one; -1: none */
};

/* A rank of this node as the judge sees it. Read only. */
struct verdict_rank {
	struct verdict_member member;
	uint64_t joined_ns;
	enum nccl_operation last_operation; /* NCCL_OP_MAX: no call seen */
	uint64_t last_sequence;		    /* VERDICT_NO_SEQUENCE */
	uint64_t last_ns;		    /* of the last call; 0: none seen */
	struct verdict_gpu gpu;
	uint64_t gpu_told_ns;		       /* 0: no plugin tells of it */
	uint64_t lateness_ns, lateness_max_ns; /* mean and most over the recent numbers */
	uint32_t n_compared, n_last; /* recent numbers at which all local ranks came; last there */
	/* Since the rank is known; they never fall. */
	uint64_t lateness_total_ns[NCCL_OP_MAX];
	uint64_t last_arrivals[NCCL_OP_MAX]; /* by more than 1 ms */
	uint64_t mismatches[VERDICT_MISMATCHES];
};

/* A communicator of this node. */
struct verdict_comm;
struct verdict_comm *verdicts__first(struct verdicts *verdicts);
struct verdict_comm *verdict_comm__next(struct verdict_comm *comm);
struct verdict_comm *verdicts__find(struct verdicts *verdicts, uint64_t hash);
uint64_t verdict_comm__hash(const struct verdict_comm *comm);
int32_t verdict_comm__n_ranks(const struct verdict_comm *comm);
/* The ranks of this node, by rank; valid until the next feed. */
const struct verdict_rank *verdict_comm__ranks(const struct verdict_comm *comm, uint32_t *ret_n);
/* What holds since the last settle. */
const struct verdict *verdict_comm__now(const struct verdict_comm *comm);
/* The worst confirmed since it was known, or since verdicts__forget_worst(). */
const struct verdict *verdict_comm__worst(const struct verdict_comm *comm);
void verdicts__forget_worst(struct verdicts *verdicts);
/* The newest first; returns how many, at most max. */
uint32_t verdict_comm__events(const struct verdict_comm *comm, struct verdict_event *events,
			      uint32_t max);

/* By hash, rank and process; NULL. */
const struct verdict_rank *verdicts__rank(struct verdicts *verdicts,
					  const struct verdict_member *member);

/* Each rank's lateness at each number at which all ranks of this node came. */
typedef void verdict_lateness_fn(void *ctx, const struct verdict_member *member,
				 enum nccl_operation operation, uint64_t lateness_ns);
void verdicts__on_lateness(struct verdicts *verdicts, verdict_lateness_fn *fn, void *ctx);

/* Drops communicators all of whose ranks left before that, and whose verdict was long enough seen.
 */
void verdicts__expire(struct verdicts *verdicts, uint64_t before_ns);

/* Communicators or ranks that found no place; they are judged by nobody. */
uint64_t verdicts__refused(const struct verdicts *verdicts);

const char *verdict_state__name(enum verdict_state state); /* contract.md's words */
const char *verdict_mismatch__name(enum verdict_mismatch kind);
const char *verdict_cause__name(enum verdict_cause cause); /* a word of lower case and _ */
/* The worse one is greater: healthy and idle 0, up to stuck, mismatch, aborted, error. */
unsigned int verdict_state__severity(enum verdict_state state);
/* contract.md: 0, 1 or 4. */
int verdict_state__exit_status(enum verdict_state state);

#endif
