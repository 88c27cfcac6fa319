/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process whose plugin is awake tells of its collectives by itself, so it need not pay for probes
 * on them too. This module says when the probes of a process may go and when they must be back, and
 * sees to it that calls are counted once while both tell of them. Pure: no I/O, no clock, no BPF.
 *
 * In the one ring a probe's record of a call (U) always comes before the plugin's (A), which is
 * handed over some milliseconds later. Calls of one communicator and function: an A takes the
 * latest U before it that no other A has taken. As every U is taken by some A if its own comes,
 * the number of A that find none is the number of calls that no probe saw, whatever threads
 * overlap; and those alone are added to the kernel's counters, which have all others.
 *
 * So probes may come and go at any moment. Records that are lost do not mislead it:
 * - a U without place in the ring is in nb_counter.lost, and so many A without U are not added;
 * - an A without place is missed by the plugin's own sums (NBP_KIND_COUNTS), and is added unless
 *   a U waits for it in vain.
 * What stays inexact: records lost in the very moment in which the first probe goes or the last
 * one is back, handovers__uncertain(); and the bytes, not the number, of calls whose U was lost.
 *
 * The API events of NCCL are one for each call of AllReduce, AllGather, ReduceScatter, Broadcast
 * and Reduce, but there are none for calls of count 0, calls that fail NCCL's check of their
 * arguments, and calls on communicators of one rank. A process that has such a communicator keeps
 * its probes; so does one whose probed calls are not all answered.
 */
#ifndef HANDOVER_H
#define HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "nccl_api.h"
#include "nccl_bpftrace_record.h"

struct handovers;

/* proof_ns: so long a plugin must have told of all calls of its process. 0 or -ENOMEM. */
int handovers__new(struct handovers **ret, uint64_t proof_ns);
void handovers__free(struct handovers *handovers);

/*
 * Told of, from now on: each call of a process that is handed over which no probe saw, by the
 * plugin's record of it (an API event of one of the five functions); and that such records were
 * lost. One listener.
 */
typedef void handover_call_fn(void *ctx, uint32_t tgid, const struct nbp_record *record);
typedef void handover_lost_fn(void *ctx, uint32_t tgid);
void handovers__listen(struct handovers *handovers, handover_call_fn *call, handover_lost_fn *lost,
		       void *ctx);

/* True for the functions that API events tell of one to one: the others keep their probes. */
bool handover__covers(enum nccl_function_id function);

/* Every record of the ring, in its order. now_ns: CLOCK_MONOTONIC. */
void handovers__probe_record(struct handovers *handovers, const struct nb_record *record);
void handovers__plugin_record(struct handovers *handovers, uint32_t tgid,
			      const struct nbp_record *record, uint64_t now_ns);

/*
 * A reading of all counters, after the ring was emptied: begin, count each, end. Only the calls
 * whose records were lost matter here.
 */
void handovers__begin(struct handovers *handovers);
void handovers__count(struct handovers *handovers, const struct nb_key *key,
		      const struct nb_counter *counter);
void handovers__end(struct handovers *handovers);

/*
 * May the probes go? Every communicator of the process that the plugin knows is told of call by
 * call, and has been for some seconds. The caller knows those that the plugin may not know.
 */
bool handovers__ready(const struct handovers *handovers, uint32_t tgid, uint64_t now_ns);
bool handovers__knows(const struct handovers *handovers, uint32_t tgid, uint64_t hash,
		      int32_t rank);

/* Has any plugin told of anything? */
bool handovers__any(const struct handovers *handovers);

/* Must the probes be back? Once they are handed over; true until handovers__take_back(). */
bool handovers__wants_back(const struct handovers *handovers, uint32_t tgid, uint64_t now_ns);
bool handovers__is_handed_over(const struct handovers *handovers, uint32_t tgid);

/*
 * Straight after a reading, all probes of the process being there when it began, at now_ns: from
 * then on they may go; from then on they stay.
 */
void handovers__hand_over(struct handovers *handovers, uint32_t tgid, uint64_t now_ns);
void handovers__take_back(struct handovers *handovers, uint32_t tgid, uint64_t now_ns);

/* Calls of one operation that no probe saw. */
struct handover_calls {
	uint32_t tgid;
	int32_t rank, n_ranks;
	uint64_t comm_hash;
	enum nccl_operation operation;
	bool is_new;		    /* nobody has taken them yet, and the communicator lives */
	uint64_t calls, type_bytes; /* launched */
	uint64_t captured, captured_bytes; /* into CUDA graphs, not among those */
	uint64_t last_ns, last_count;	   /* of the last such call */
	uint64_t sequence;		   /* NCCL's number after it, NB_NO_SEQUENCE: not known */
	uint32_t last_datatype;
	int32_t last_root; /* -1: none */
};

/* True when it takes them: it knows the communicator, or does from now on. */
typedef bool handover_calls_fn(void *ctx, const struct handover_calls *calls);

/* All sums; they never fall. After handovers__end(). */
void handovers__each(struct handovers *handovers, handover_calls_fn *fn, void *ctx);

/* Calls that may be missing, or counted twice: lost where it cannot be said who told of them. */
uint64_t handovers__uncertain(const struct handovers *handovers);

void handovers__process_gone(struct handovers *handovers, uint32_t tgid, uint64_t now_ns);
/* Drops what ended before that and nobody takes the sums of any more. */
void handovers__expire(struct handovers *handovers, uint64_t before_ns);

#endif
