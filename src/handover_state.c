/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Readings of the counters, what follows from them, and who may do without probes. */
#include "handover_private.h"

#define PROOF_CALLS 8			  /* answered ones, before the probes may go */
#define FRESH_NS    (2 * NSEC_PER_SEC)	  /* its last word is no older */
#define QUIET_NS    (500 * NSEC_PER_MSEC) /* and so long without a loss */
#define SILENCE_NS  (5 * NSEC_PER_SEC)	  /* a plugin speaks every second */
#define ANSWER_NS   (1 * NSEC_PER_SEC)	  /* a call not told of by then shows that not all are */
#define WAIT_NS	    (10 * NSEC_PER_SEC)	  /* and by then it is not waited for any more */

/* ---- readings of the counters ---- */

void handovers__begin(struct handovers *h)
{
	for (struct handover_comm *comm = h->comms; comm; comm = comm->hh.next)
		for (int i = 0; i < NBP_N_COUNTED; i++)
			comm->operations[i].kernel_lost_sum = 0;
}

void handovers__count(struct handovers *h, const struct nb_key *key, const struct nb_counter *c)
{
	struct handover_comm *comm;
	int function;

	if (!c->lost || !h->names)
		return;
	function = handover__index(key->function);
	comm = function < 0 ? NULL : handovers__by_name(h, key->tgid, key->comm_hash, key->rank);
	if (comm)
		comm->operations[function].kernel_lost_sum += c->lost - c->lost_empty;
}

static void operation__read(struct handover_comm *comm, struct handover_operation *op)
{
	struct handover_process *process = comm->process;
	uint64_t told_ns = comm->counts_ns;
	uint64_t answer_ns = told_ns > ANSWER_NS ? told_ns - ANSWER_NS : 0;

	if (op->kernel_lost_sum != op->kernel_lost || waiting__any(&op->waiting, answer_ns))
		process__trouble(process, told_ns);
	op->kernel_lost = op->kernel_lost_sum;
	if (process->handed_over)
		op->probed_lost = op->kernel_lost - op->base_lost;
	/* What could be told of them has been told. */
	operation__settle_missing(op, process->gone_ns ? UINT64_MAX : answer_ns);
	waiting__expire(&op->waiting, told_ns > WAIT_NS ? told_ns - WAIT_NS : 0);
}

void handovers__end(struct handovers *h)
{
	for (struct handover_comm *comm = h->comms; comm; comm = comm->hh.next)
		for (int i = 0; i < NBP_N_COUNTED; i++)
			operation__read(comm, &comm->operations[i]);
}

/* ---- who may do without probes ---- */

static bool comm__is_told_of(const struct handover_comm *comm)
{
	/* NCCL 2.28 came with the fifth version of the interface, and with API events */
	return comm->listed && comm->named && comm->has_counts && comm->abi >= 5 &&
	       comm->n_ranks > 1;
}

static bool process__is_told_of(const struct handover_process *process)
{
	if (process->unfit || process->gone_ns)
		return false;
	for (const struct handover_comm *comm = process->comms; comm; comm = comm->next)
		if (!comm->ended_ns && !comm__is_told_of(comm))
			return false;
	return true;
}

/* No probed call waits for a record that was lost: a later one might be taken for it. */
static bool process__is_settled(const struct handover_process *process)
{
	for (const struct handover_comm *comm = process->comms; comm; comm = comm->next)
		for (int i = 0; i < NBP_N_COUNTED; i++)
			if (comm->operations[i].missing[0].sum.calls)
				return false;
	return true;
}

bool handovers__ready(const struct handovers *h, uint32_t tgid, uint64_t now_ns)
{
	const struct handover_process *process = handovers__find(h, tgid);

	return process && !process->handed_over && process->answered >= PROOF_CALLS &&
	       now_ns > process->first_ns + h->proof_ns &&
	       now_ns > process->trouble_ns + h->proof_ns &&
	       now_ns > process->missed_ns + QUIET_NS && now_ns < process->heard_ns + FRESH_NS &&
	       process__is_told_of(process) && process__is_settled(process);
}

bool handovers__knows(const struct handovers *h, uint32_t tgid, uint64_t hash, int32_t rank)
{
	const struct handover_comm *comm = handovers__by_name(h, tgid, hash, rank);

	return comm && comm__is_told_of(comm);
}

bool handovers__any(const struct handovers *h)
{
	return h->processes != NULL;
}

bool handovers__is_handed_over(const struct handovers *h, uint32_t tgid)
{
	const struct handover_process *process = handovers__find(h, tgid);

	return process && process->handed_over;
}

bool handovers__wants_back(const struct handovers *h, uint32_t tgid, uint64_t now_ns)
{
	const struct handover_process *process = handovers__find(h, tgid);

	return process && process->handed_over &&
	       (process->trouble_ns > process->handed_over_ns ||
		now_ns > process->heard_ns + SILENCE_NS || !process__is_told_of(process));
}

void handovers__hand_over(struct handovers *h, uint32_t tgid, uint64_t now_ns)
{
	struct handover_process *process = handovers__find(h, tgid);

	if (!process || process->handed_over)
		return;
	process->handed_over = true;
	process->handed_over_ns = now_ns;
	for (struct handover_comm *comm = process->comms; comm; comm = comm->next)
		for (int i = 0; i < NBP_N_COUNTED; i++)
			operation__begin_period(&comm->operations[i]);
}

void handovers__take_back(struct handovers *h, uint32_t tgid, uint64_t now_ns)
{
	struct handover_process *process = handovers__find(h, tgid);

	if (!process || !process->handed_over)
		return;
	process->handed_over = false;
	process->taken_back_ns = now_ns;
	process__trouble(process, now_ns);
}

/* ---- what came of it ---- */

static void comm__tell(struct handover_comm *comm, int i, handover_calls_fn *fn, void *ctx)
{
	struct handover_operation *op = &comm->operations[i];
	uint64_t covered = op->probed_lost + op->dropped, calls = op->unprobed;
	struct handover_calls told = {
		.tgid = comm->process->tgid,
		.rank = comm->name.rank,
		.n_ranks = comm->n_ranks,
		.comm_hash = comm->name.hash,
		.operation = handover_operations[i],
		.is_new = !comm->was_taken && !comm->ended_ns && !comm->process->gone_ns,
		.calls = op->settled.calls,
		.type_bytes = op->settled.bytes,
		.last_ns = op->last_ns,
		.last_count = op->last_count,
		.sequence = op->sequence,
		.last_datatype = op->last_datatype,
		.last_root = op->last_root,
	};

	if (calls > covered) {
		told.calls += calls - covered;
		told.type_bytes += op->unprobed_bytes - op->unprobed_bytes / calls * covered;
	}
	if (told.type_bytes < op->told_bytes)
		told.type_bytes = op->told_bytes;
	op->told_bytes = told.type_bytes;
	if (!told.calls)
		return;
	told.captured = op->captured.calls < told.calls ? op->captured.calls : told.calls;
	told.captured_bytes =
		op->captured.bytes < told.type_bytes ? op->captured.bytes : told.type_bytes;
	told.calls -= told.captured;
	told.type_bytes -= told.captured_bytes;
	if (fn(ctx, &told))
		comm->is_taken = comm->was_taken = true;
}

void handovers__each(struct handovers *h, handover_calls_fn *fn, void *ctx)
{
	for (struct handover_comm *comm = h->comms; comm; comm = comm->hh.next) {
		comm->is_taken = false;
		for (int i = 0; comm->name.hash && i < NBP_N_COUNTED; i++)
			comm__tell(comm, i, fn, ctx);
	}
}

uint64_t handovers__uncertain(const struct handovers *h)
{
	return h->uncertain;
}

void handovers__process_gone(struct handovers *h, uint32_t tgid, uint64_t now_ns)
{
	struct handover_process *process = handovers__find(h, tgid);

	if (process && !process->gone_ns)
		process->gone_ns = now_ns;
}

void handovers__expire(struct handovers *h, uint64_t before_ns)
{
	struct handover_process *process, *next;
	struct handover_comm *comm, *next_comm;

	HASH_ITER(hh, h->comms, comm, next_comm)
	{
		uint64_t end_ns = comm->ended_ns ?: comm->process->gone_ns;

		if (end_ns && end_ns < before_ns && !comm->is_taken)
			handovers__drop_comm(h, comm);
	}
	HASH_ITER(hh, h->processes, process, next)
	if (process->gone_ns && process->gone_ns < before_ns && !process->comms)
		handovers__drop_process(h, process);
}
