/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which communicator a plugin's context stands for. Best told by init(). Where that was before our
 * time, or says nothing (ABI v1 to v3), by NCCL's calls: outside a group of several communicators
 * an operation begins on the thread, and within the call, that asked for it. One that agrees in
 * operation and rank, MIN_AGREED times in a row, is believed; until then, and where threads call
 * for one another, the communicator is unknown.
 */
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "foreign_private.h"
#include "nccl_api.h"
#include "util.h"

#define MIN_AGREED 3
#define TELL_NS	   (20 * NSEC_PER_SEC)
#define CALL_NS	   (10 * NSEC_PER_SEC) /* the first call of a communicator can take seconds */

static bool identity__is_known(const struct foreign_identity *identity)
{
	return identity->hash && identity->rank >= 0 && identity->rank < identity->n_ranks;
}

static bool identity__is(const struct foreign_identity *a, const struct foreign_identity *b)
{
	return a->hash == b->hash && a->rank == b->rank && a->n_ranks == b->n_ranks;
}

/* A thread can have several ranks of one communicator, and call for all in one group. */
static bool identity__is_beside(const struct foreign_identity *a, const struct foreign_identity *b)
{
	return a->hash == b->hash && a->n_ranks == b->n_ranks;
}

/* ---- calls ---- */

static struct caller *followed__caller(struct followed *f, uint32_t tid)
{
	uint64_t key = tid;
	struct caller *caller;

	HASH_FIND(hh, f->callers, &key, sizeof(key), caller);
	return caller;
}

static struct caller *followed__need_caller(struct followed *f, uint32_t tid)
{
	struct caller *caller = followed__caller(f, tid);

	if (caller)
		return caller;
	if (HASH_COUNT(f->callers) == FOREIGN_MAX_CALLERS) { /* the oldest makes room */
		caller = f->callers;
		HASH_DEL(f->callers, caller);
		free(caller);
	}
	caller = calloc(1, sizeof(*caller));
	if (!caller)
		return NULL;
	caller->tid = tid;
	caller->is_used = true;
	HASH_ADD(hh, f->callers, tid, sizeof(caller->tid), caller);
	return caller;
}

void followed__call(struct followed *f, const struct nb_record *call)
{
	struct foreign_identity identity = {call->comm_hash, call->rank, call->n_ranks};
	struct caller *caller = followed__need_caller(f, call->tid);

	if (!caller)
		return;
	if (caller->is_used) {
		caller->is_mixed = !identity__is_known(&identity);
		caller->identity = identity;
		caller->has_ranks = false;
	} else if (!identity__is_beside(&caller->identity, &identity)) {
		caller->is_mixed = true;
	} else if (caller->identity.rank != identity.rank) {
		caller->has_ranks = true;
	}
	caller->is_used = false;
	caller->called_ns = call->time_ns;
	caller->function = call->function;
}

/* Whether an operation of this function can come of that call. */
static bool call__makes(uint16_t called, uint8_t function)
{
	static const uint8_t functions[NCCL_OP_MAX] = {
		[NCCL_OP_AllReduce] = NBP_ALLREDUCE,
		[NCCL_OP_AllGather] = NBP_ALLGATHER,
		[NCCL_OP_ReduceScatter] = NBP_REDUCESCATTER,
		[NCCL_OP_Broadcast] = NBP_BROADCAST,
		[NCCL_OP_Reduce] = NBP_REDUCE,
		[NCCL_OP_AlltoAll] = NBP_ALLTOALL,
		[NCCL_OP_Gather] = NBP_GATHER,
		[NCCL_OP_Scatter] = NBP_SCATTER,
		[NCCL_OP_Send] = NBP_SEND,
		[NCCL_OP_Recv] = NBP_RECV,
		[NCCL_OP_PutSignal] = NBP_PUTSIGNAL,
		[NCCL_OP_Signal] = NBP_SIGNAL,
		[NCCL_OP_WaitSignal] = NBP_WAITSIGNAL,
	};
	enum nccl_operation operation;

	if (called >= NCCL_FN_PROBED || nccl_functions[called].operation >= NCCL_OP_MAX)
		return false;
	operation = nccl_functions[called].operation;
	if (functions[operation] == function)
		return true;
	return (function == NBP_SEND || function == NBP_RECV) &&
	       (operation == NCCL_OP_AlltoAll || operation == NCCL_OP_Gather ||
		operation == NCCL_OP_Scatter || operation == NCCL_OP_Send ||
		operation == NCCL_OP_Recv);
}

/* The communicator that the thread has called for this event, and when; 0: not known. */
static uint64_t followed__called(struct followed *f, const struct nb_foreign_record *record,
				 uint8_t function, struct foreign_identity *ret)
{
	struct caller *caller = followed__caller(f, record->tid);

	if (!caller)
		return 0;
	caller->is_used = true;
	if (caller->is_mixed || record->rank < 0 || record->rank >= caller->identity.n_ranks ||
	    (caller->identity.rank != record->rank && !caller->has_ranks) ||
	    record->time_ns < caller->called_ns || record->time_ns - caller->called_ns > CALL_NS ||
	    !call__makes(caller->function, function))
		return 0;
	*ret = caller->identity;
	ret->rank = record->rank;
	return caller->called_ns;
}

/* ---- contexts ---- */

struct foreign_comm *followed__find_comm(struct followed *f, uint64_t context)
{
	struct foreign_comm *comm;

	HASH_FIND(hh, f->comms, &context, sizeof(context), comm);
	return comm;
}

static void comm__begin(struct followed *f, struct foreign_comm *comm)
{
	UT_hash_handle hh = comm->hh;
	uint64_t context = comm->context;

	*comm = (struct foreign_comm){
		.context = context,
		.id = FOREIGN_COMM_ID | ++f->n_comms_made,
		.identity.rank = NBP_NO_RANK,
		.n_nodes = NBP_UNKNOWN,
		.hh = hh,
	};
}

static struct foreign_comm *followed__need_comm(struct followed *f, uint64_t context)
{
	struct foreign_comm *comm = followed__find_comm(f, context);

	if (comm)
		return comm;
	if (HASH_COUNT(f->comms) == FOREIGN_MAX_COMMS)
		return NULL;
	comm = calloc(1, sizeof(*comm));
	if (!comm)
		return NULL;
	comm->context = context;
	comm__begin(f, comm);
	HASH_ADD(hh, f->comms, context, sizeof(comm->context), comm);
	return comm;
}

static void comm__end(struct followed *f, struct foreign_comm *comm, uint64_t time_ns)
{
	struct nbp_record record = foreign_comm__record(comm, NBP_KIND_END, 0, time_ns);

	followed__close_tasks(f, comm);
	if (comm->is_told)
		followed__send(f, &record);
}

/* The context is another communicator's now. */
static void comm__renew(struct followed *f, struct foreign_comm *comm, uint64_t time_ns)
{
	comm__end(f, comm, time_ns);
	comm__begin(f, comm);
}

struct nbp_record foreign_comm__record(const struct foreign_comm *comm, enum nbp_kind kind,
				       uint32_t tid, uint64_t time_ns)
{
	return (struct nbp_record){
		.kind = kind,
		.size = sizeof(struct nbp_record),
		.tid = tid,
		.time_ns = time_ns,
		.comm_hash = comm->identity.hash,
		.rank = comm->identity.rank,
		.n_ranks = comm->identity.n_ranks,
		.comm_id = comm->id,
	};
}

void foreign_comm__tell(struct followed *f, struct foreign_comm *comm, uint64_t time_ns)
{
	struct nbp_record record = foreign_comm__record(comm, NBP_KIND_COMM, 0, time_ns);

	record.comm = (struct nbp_comm){
		.n_nodes = comm->n_nodes,
		.cuda_device = -1,
		.abi = f->abi,
		.mask = comm->timers == TIMERS_COME ? NBP_MASK_KERNEL_CH : 0,
		.api_number = NBP_NO_NUMBER,
		.launch = NBP_NO_NUMBER,
		.operation = comm->n_operations,
	};
	memcpy(record.comm.name, comm->name, sizeof(comm->name));
	comm->is_told = true;
	comm->told_ns = time_ns;
	followed__send(f, &record);
}

static void comm__believe(struct followed *f, struct foreign_comm *comm,
			  const struct foreign_identity *identity, uint64_t time_ns)
{
	comm->identity = *identity;
	comm->n_agreed = comm->n_against = 0;
	foreign_comm__tell(f, comm, time_ns);
}

/* One more call that came before one of its events. */
static void comm__hear(struct followed *f, struct foreign_comm *comm,
		       const struct foreign_identity *called, uint64_t time_ns)
{
	if (comm->identity.hash == called->hash) {
		comm->n_against = 0;
		if (!comm->identity.n_ranks) /* v1 to v3 tell hash and rank only */
			comm__believe(f, comm, called, time_ns);
		return;
	}
	if (comm->identity.hash && ++comm->n_against < MIN_AGREED)
		return;
	if (comm->identity.hash) {
		comm__renew(f, comm, time_ns);
		comm->identity.rank = called->rank;
	}
	if (!identity__is(&comm->candidate, called)) {
		comm->candidate = *called;
		comm->n_agreed = 0;
	}
	if (++comm->n_agreed >= MIN_AGREED)
		comm__believe(f, comm, called, time_ns);
}

/* Whoever waits for times does not wait for ever. */
static bool is_told_long_ago(const struct foreign_comm *comm, uint64_t now_ns)
{
	return comm->timers == TIMERS_COME && now_ns > comm->told_ns + TELL_NS;
}

struct foreign_comm *followed__comm(struct followed *f, const struct nb_foreign_record *record,
				    uint64_t hash, uint8_t function)
{
	struct foreign_comm *comm = followed__need_comm(f, record->context);
	struct foreign_identity called;
	uint64_t called_ns;

	if (!comm)
		return NULL;
	if ((comm->identity.rank >= 0 && comm->identity.rank != record->rank) ||
	    (hash && comm->identity.hash && comm->identity.hash != hash))
		comm__renew(f, comm, record->time_ns);
	comm->identity.rank = record->rank >= 0 ? record->rank : NBP_NO_RANK;
	if (hash && !comm->identity.hash) {
		comm->identity.hash = hash;
		comm->is_told = false;
	}
	called_ns = followed__called(f, record, function, &called);
	if (called_ns && called_ns != comm->heard_ns) {
		comm->heard_ns = called_ns; /* a call agrees once, however much comes of it */
		comm__hear(f, comm, &called, record->time_ns);
	}
	if (!comm->is_told || is_told_long_ago(comm, record->time_ns))
		foreign_comm__tell(f, comm, record->time_ns);
	return comm;
}

/* ---- what init() and finalize() say ---- */

void followed__init(struct followed *f, const struct nb_foreign_record *record)
{
	struct init *init = &f->inits[f->n_inits++ % NB_FOREIGN_INITS];
	const struct nb_foreign_init *from = &record->init;

	*init = (struct init){
		.time_ns = record->time_ns,
		.identity = {from->comm_hash, record->rank, from->n_ranks},
		.n_nodes = from->n_nodes > 0 ? (uint32_t)from->n_nodes : NBP_UNKNOWN,
	};
	memcpy(init->name, from->name, sizeof(init->name) - 1);
	if (identity__is_known(&init->identity))
		return;
	init->time_ns = 0;
	followed__lose(f, FOREIGN_LOST_BAD_RECORD);
}

void followed__context(struct followed *f, const struct nb_foreign_record *record)
{
	struct foreign_comm *comm;

	for (int i = 0; i < NB_FOREIGN_INITS; i++) {
		struct init *init = &f->inits[i];

		if (!init->time_ns || init->time_ns != record->handle)
			continue;
		comm = followed__need_comm(f, record->context);
		if (!comm)
			return;
		if (comm->is_told)
			comm__renew(f, comm, record->time_ns);
		comm->n_nodes = init->n_nodes;
		memcpy(comm->name, init->name, sizeof(comm->name));
		comm__believe(f, comm, &init->identity, record->time_ns);
		init->time_ns = 0;
		return;
	}
}

void followed__finalize(struct followed *f, const struct nb_foreign_record *record)
{
	struct foreign_comm *comm = followed__find_comm(f, record->context);

	if (!comm)
		return;
	comm__end(f, comm, record->time_ns);
	HASH_DEL(f->comms, comm);
	free(comm);
}

void followed__forget_comms(struct followed *f)
{
	struct foreign_comm *comm, *next_comm;
	struct caller *caller, *next;

	HASH_ITER(hh, f->comms, comm, next_comm)
	{
		HASH_DEL(f->comms, comm);
		free(comm);
	}
	HASH_ITER(hh, f->callers, caller, next)
	{
		HASH_DEL(f->callers, caller);
		free(caller);
	}
}
