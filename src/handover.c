/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "handover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "handover_private.h"

#define FUTURE_NS (1 * NSEC_PER_SEC) /* a plugin's clock is ours */

int handovers__new(struct handovers **ret, uint64_t proof_ns)
{
	struct handovers *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	h->proof_ns = proof_ns;
	*ret = h;
	return 0;
}

void handovers__listen(struct handovers *h, handover_call_fn *call, handover_lost_fn *lost,
		       void *ctx)
{
	h->on_call = call;
	h->on_lost = lost;
	h->listener_ctx = ctx;
}

bool handover__covers(enum nccl_function_id function)
{
	for (int i = 0; i < NBP_N_COUNTED; i++)
		if (nccl_functions[function].operation == handover_operations[i])
			return true;
	return false;
}

int handover__index(uint16_t function)
{
	for (int i = 0; function < NCCL_FN_PROBED && i < NBP_N_COUNTED; i++)
		if (nccl_functions[function].operation == handover_operations[i])
			return i;
	return -1;
}

struct handover_process *handovers__find(const struct handovers *h, uint32_t tgid)
{
	struct handover_process *process;

	HASH_FIND(hh, h->processes, &tgid, sizeof(tgid), process);
	return process;
}

struct handover_comm *handovers__by_name(const struct handovers *h, uint32_t tgid, uint64_t hash,
					 int32_t rank)
{
	const struct handover_name name = {hash, tgid, rank};
	struct handover_comm *comm;

	HASH_FIND(by_name, h->names, &name, sizeof(name), comm);
	return comm;
}

static void handovers__forget_name(struct handovers *h, struct handover_comm *comm)
{
	if (comm->named)
		HASH_DELETE(by_name, h->names, comm);
	comm->named = false;
}

void handovers__drop_comm(struct handovers *h, struct handover_comm *comm)
{
	struct handover_process *process = comm->process;

	for (int i = 0; i < NBP_N_COUNTED; i++)
		waiting__free(h, &comm->operations[i].waiting);
	handovers__forget_name(h, comm);
	HASH_DEL(h->comms, comm);
	if (comm->prev)
		comm->prev->next = comm->next;
	else
		process->comms = comm->next;
	if (comm->next)
		comm->next->prev = comm->prev;
	process->n_comms--;
	free(comm);
}

void handovers__drop_process(struct handovers *h, struct handover_process *process)
{
	while (process->comms)
		handovers__drop_comm(h, process->comms);
	HASH_DEL(h->processes, process);
	free(process);
}

void handovers__free(struct handovers *h)
{
	if (!h)
		return;
	while (h->processes)
		handovers__drop_process(h, h->processes);
	free(h);
}

/* One that has the number of a process that is gone is another. */
static struct handover_process *handovers__process(struct handovers *h, uint32_t tgid,
						   uint64_t now_ns)
{
	struct handover_process *process = handovers__find(h, tgid);

	if (process && process->gone_ns) {
		handovers__drop_process(h, process);
		process = NULL;
	}
	if (process || HASH_COUNT(h->processes) >= MAX_PLUGIN_PROCESSES)
		return process;
	process = calloc(1, sizeof(*process));
	if (!process)
		return NULL;
	process->tgid = tgid;
	process->first_ns = process->trouble_ns = now_ns;
	HASH_ADD(hh, h->processes, tgid, sizeof(tgid), process);
	return process;
}

static struct handover_comm *handovers__find_comm(const struct handovers *h, uint32_t tgid,
						  uint64_t id)
{
	const struct handover_comm_key key = {id, tgid};
	struct handover_comm *comm;

	HASH_FIND(hh, h->comms, &key, sizeof(key), comm);
	return comm;
}

/* NULL: no place, and its process keeps its probes. */
static struct handover_comm *handovers__comm(struct handovers *h, struct handover_process *process,
					     uint64_t id)
{
	struct handover_comm *comm = handovers__find_comm(h, process->tgid, id);

	if (comm)
		return comm;
	if (process->n_comms < MAX_PROCESS_COMMS && HASH_COUNT(h->comms) < MAX_PLUGIN_COMMS)
		comm = calloc(1, sizeof(*comm));
	if (!comm) {
		process->unfit = true;
		return NULL;
	}
	comm->key = (struct handover_comm_key){id, process->tgid};
	comm->process = process;
	comm->next = process->comms;
	if (comm->next)
		comm->next->prev = comm;
	process->comms = comm;
	process->n_comms++;
	for (int i = 0; i < NBP_N_COUNTED; i++)
		comm->operations[i].sequence = NB_NO_SEQUENCE;
	/* Made while its process was handed over: all its calls count, and its sums begin at 0. */
	comm->has_counts = process->handed_over;
	comm->counts_ns = process->heard_ns;
	HASH_ADD(hh, h->comms, key, sizeof(comm->key), comm);
	return comm;
}

static void comm__take_name(struct handovers *h, struct handover_comm *comm,
			    const struct nbp_record *r)
{
	const struct handover_name name = {r->comm_hash, comm->process->tgid, r->rank};
	struct handover_comm *other;

	if (comm->named && !memcmp(&comm->name, &name, sizeof(name)))
		return;
	handovers__forget_name(h, comm);
	if (!name.hash || name.rank < 0)
		return;
	other = handovers__by_name(h, name.tgid, name.hash, name.rank);
	if (other && !other->ended_ns)
		comm->process->unfit = true; /* one name for two */
	if (other)
		handovers__forget_name(h, other);
	comm->name = name;
	comm->named = true;
	HASH_ADD(by_name, h->names, name, sizeof(comm->name), comm);
}

static void comm__take_comm(struct handover_comm *comm, const struct nbp_record *r)
{
	bool alone = comm->n_ranks != 1 && r->n_ranks == 1;

	comm->n_ranks = r->n_ranks;
	comm->abi = r->comm.abi;
	if (!comm->listed || alone)
		process__trouble(comm->process, r->time_ns);
	comm->listed = true;
}

void handovers__plugin_record(struct handovers *h, uint32_t tgid, const struct nbp_record *r,
			      uint64_t now_ns)
{
	struct handover_process *process = handovers__process(h, tgid, now_ns);
	struct handover_comm *comm;

	if (!process)
		return;
	if (r->time_ns > now_ns + FUTURE_NS) {
		process->unfit = true;
		return;
	}
	process->heard_ns = now_ns;
	comm = r->comm_id ? handovers__comm(h, process, r->comm_id) : NULL;
	if (!comm)
		return;
	comm__take_name(h, comm, r);
	if (r->kind == NBP_KIND_COMM)
		comm__take_comm(comm, r);
	else if (r->kind == NBP_KIND_API)
		comm__take_api(h, comm, r);
	else if (r->kind == NBP_KIND_COUNTS)
		comm__take_counts(h, comm, r);
	else if (r->kind == NBP_KIND_OPERATION)
		comm__take_operation(comm, r);
	else if (r->kind == NBP_KIND_END)
		comm->ended_ns = now_ns;
}

/* Before a process makes a communicator it is not known whether the plugin will tell all. */
static void process__take_lifecycle(struct handover_process *process, const struct nb_record *r)
{
	enum nccl_meaning meaning = nccl_functions[r->function].meaning;

	if (meaning == NCCL_MEANS_CREATES || meaning == NCCL_MEANS_CREATES_MANY)
		process__trouble(process, r->time_ns);
}

void handovers__probe_record(struct handovers *h, const struct nb_record *r)
{
	struct handover_process *process = handovers__find(h, r->tgid);
	struct handover_comm *comm;
	int function;

	if (!process || r->function >= NCCL_FN_PROBED)
		return;
	if (r->kind == NB_KIND_LIFECYCLE)
		process__take_lifecycle(process, r);
	function = r->kind == NB_KIND_CALL ? handover__index(r->function) : -1;
	if (function < 0)
		return;
	comm = handovers__by_name(h, r->tgid, r->comm_hash, r->rank);
	if (comm && comm->has_counts && r->n_ranks != 1)
		comm__take_probe(h, comm, function, r);
	else if (r->count)
		process__trouble(process, r->time_ns);
}
