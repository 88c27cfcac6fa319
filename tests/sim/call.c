/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Instructions that call NCCL. */
#include "rank.h"

/* Stand-ins for device memory: nothing ever follows them. */
#define SEND_BUFFER ((void *)0x7f5500000000)
#define RECV_BUFFER ((void *)0x7f5600000000)

static enum flow checked(const struct rank *rank, const struct instruction *i, ncclResult_t result)
{
	if (result == ncclSuccess)
		return FLOW_ON;
	if (rank_stopped(rank))
		return FLOW_EXIT;
	return rank_fail(rank, i, "%s: %s", rank->api.ncclGetErrorString(result),
			 rank->api.ncclGetLastError(NULL));
}

static enum flow missing(const struct rank *rank, const struct instruction *i)
{
	return rank_fail(rank, i, "this version of NCCL has no such function");
}

static const char *name_of(const struct rank *rank, int comm)
{
	return comm == SCRIPT_NULL_COMM ? "null" : rank->job->script->comm_name[comm];
}

/* Gives communicators that have come to stand their records. */
static enum flow bind_comms(struct rank *rank, const struct instruction *i)
{
	struct nccl_sim_view view;

	for (int n = 0; n < rank->job->script->n_comms; n++) {
		struct rank_comm *comm = &rank->comm[n];

		if (!comm->handle || comm->record)
			continue;
		rank->api.nccl_sim_view(comm->handle, &view);
		comm->record = ledger_add(rank->ledger, n, &view);
		if (!comm->record)
			return rank_fail(rank, i, "too many communicators to keep account of");
	}
	return FLOW_ON;
}

static enum flow made(struct line_state *line, const struct instruction *i, ncclResult_t result)
{
	if (result != ncclSuccess)
		line->rank->comm[i->comm].handle = NULL;
	if (result != ncclSuccess || line->group_depth)
		return checked(line->rank, i, result);
	return bind_comms(line->rank, i);
}

/* The first rank makes the unique id; two meetings, so that a loop cannot overtake itself. */
static enum flow share_id(struct rank *rank, const struct instruction *i, ncclUniqueId *ret_id)
{
	struct job_slot *slot = &rank->shared->slot[i->index];
	uint32_t n = (uint32_t)rank_set_count(&i->ranks);
	const uint32_t *stop = &rank->shared->nccl.stop;

	if (rank_set_index(&i->ranks, rank->number) == 0) {
		ncclResult_t result = rank->api.ncclGetUniqueId(&slot->id);

		if (result != ncclSuccess)
			return checked(rank, i, result);
	}
	if (!sim_barrier_wait(&slot->barrier, n, stop))
		return FLOW_EXIT;
	*ret_id = slot->id;
	return sim_barrier_wait(&slot->barrier, n, stop) ? FLOW_ON : FLOW_EXIT;
}

enum flow call_comm(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;
	ncclConfig_t config = { .size = sizeof(config), .magic = NCCL_CONFIG_MAGIC,
				.version = 22809, .blocking = 1 };
	int n = rank_set_count(&i->ranks), me = rank_set_index(&i->ranks, rank->number);
	ncclComm_t *handle = &rank->comm[i->comm].handle;
	ncclUniqueId id;
	enum flow flow;

	if (*handle)
		return rank_fail(rank, i, "%s exists already", name_of(rank, i->comm));
	flow = share_id(rank, i, &id);
	if (flow != FLOW_ON)
		return flow;
	config.commName = name_of(rank, i->comm);
	if (i->init == INIT_SCALABLE && !rank->api.ncclCommInitRankScalable)
		return missing(rank, i);
	if (i->init == INIT_SCALABLE)
		return made(line, i, rank->api.ncclCommInitRankScalable(handle, n, me, 1, &id,
									NULL));
	if (i->init == INIT_CONFIG)
		return made(line, i, rank->api.ncclCommInitRankConfig(handle, n, id, me, &config));
	return made(line, i, rank->api.ncclCommInitRank(handle, n, id, me));
}

/* False, with *ret_flow the failure, when there is no communicator to use. */
static bool get_comm(struct rank *rank, const struct instruction *i, int comm,
		     struct rank_comm *ret_comm, enum flow *ret_flow)
{
	*ret_comm = (struct rank_comm){ 0 };
	if (comm == SCRIPT_NULL_COMM)
		return true;
	*ret_comm = rank->comm[comm];
	if (ret_comm->handle && ret_comm->record)
		return true;
	*ret_flow = rank_fail(rank, i, ret_comm->handle ?
			      "%s stands only after its group" : "%s does not exist here",
			      name_of(rank, comm));
	return false;
}

enum flow call_split(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;
	ncclComm_t *handle = &rank->comm[i->comm].handle;
	struct rank_comm parent;
	enum flow flow;
	int me;

	if (!get_comm(rank, i, i->parent, &parent, &flow))
		return flow;
	if (*handle)
		return rank_fail(rank, i, "%s exists already", name_of(rank, i->comm));
	me = parent.record->rank;
	return made(line, i, rank->api.ncclCommSplit(parent.handle, me % (int)i->times, me, handle,
						     NULL));
}

/* Calls after it fail as NCCL's do, which ends the job: scripts make none. */
enum flow call_error(struct line_state *line, const struct instruction *i)
{
	struct rank_comm comm;
	enum flow flow;

	if (!get_comm(line->rank, i, i->comm, &comm, &flow))
		return flow;
	line->rank->api.nccl_sim_set_error(comm.handle, (ncclResult_t)i->result);
	return FLOW_ON;
}

enum flow call_end(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;
	struct rank_comm comm;
	ncclResult_t result;
	enum flow flow;

	if (!get_comm(rank, i, i->comm, &comm, &flow))
		return flow;
	if (i->kind == DO_FINALIZE)
		result = rank->api.ncclCommFinalize(comm.handle);
	else if (i->kind == DO_ABORT)
		result = rank->api.ncclCommAbort(comm.handle);
	else
		result = rank->api.ncclCommDestroy(comm.handle);
	if (i->comm == SCRIPT_NULL_COMM)
		return FLOW_ON;
	if (i->kind != DO_FINALIZE)
		rank->comm[i->comm] = (struct rank_comm){ 0 };
	return checked(rank, i, result);
}

static int peer_of(const struct instruction *i, const struct ledger_record *record)
{
	int n = record ? record->n_ranks : 1, me = record ? record->rank : 0;

	if (i->peer >= 0)
		return i->peer;
	return i->operation == OP_SEND ? (me + 1) % n : (me + n - 1) % n;
}

static ncclResult_t call(const struct rank *rank, const struct instruction *i, ncclComm_t comm,
			 int peer)
{
	const struct api *api = &rank->api;
	cudaStream_t stream = gpu_stream_of(rank, i->stream);
	ncclDataType_t type = (ncclDataType_t)i->datatype;
	ncclRedOp_t op = (ncclRedOp_t)i->redop;
	void *send = SEND_BUFFER, *recv = RECV_BUFFER;
	size_t n = i->count;

	switch (i->operation) {
	case OP_ALLGATHER:
		return api->ncclAllGather(send, recv, n, type, comm, stream);
	case OP_ALLREDUCE:
		return api->ncclAllReduce(send, recv, n, type, op, comm, stream);
	case OP_ALLTOALL:
		return api->ncclAlltoAll(send, recv, n, type, comm, stream);
	case OP_BROADCAST:
		return api->ncclBroadcast(send, recv, n, type, i->root, comm, stream);
	case OP_BCAST:
		return api->ncclBcast(send, n, type, i->root, comm, stream);
	case OP_GATHER:
		return api->ncclGather(send, recv, n, type, i->root, comm, stream);
	case OP_RECV:
		return api->ncclRecv(recv, n, type, peer, comm, stream);
	case OP_REDUCE:
		return api->ncclReduce(send, recv, n, type, op, i->root, comm, stream);
	case OP_REDUCESCATTER:
		return api->ncclReduceScatter(send, recv, n, type, op, comm, stream);
	case OP_SCATTER:
		return api->ncclScatter(send, recv, n, type, i->root, comm, stream);
	case OP_SEND:
		return api->ncclSend(send, n, type, peer, comm, stream);
	default:
		return ncclInternalError;
	}
}

static bool lacks(const struct api *api, enum operation operation)
{
	return (operation == OP_ALLTOALL && !api->ncclAlltoAll) ||
	       (operation == OP_GATHER && !api->ncclGather) ||
	       (operation == OP_SCATTER && !api->ncclScatter);
}

/* A refusal that the script asks for, by an unknown type or `null`, is no failure. */
enum flow call_operation(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;
	bool may_fail = !datatype_bytes(i->datatype) || i->comm == SCRIPT_NULL_COMM;
	struct nccl_sim_view view;
	struct rank_comm comm;
	enum flow flow;

	if (lacks(&rank->api, i->operation))
		return missing(rank, i);
	if (!get_comm(rank, i, i->comm, &comm, &flow))
		return flow;
	for (uint64_t n = 0; n < i->times && !rank_stopped(rank); n++) {
		ncclResult_t result;

		if (comm.record)
			ledger_count(comm.record, i);
		if (comm.record && line->capture)
			call_captured(line, comm.record, i);
		result = call(rank, i, comm.handle, peer_of(i, comm.record));
		if (result != ncclSuccess && !may_fail)
			return checked(rank, i, result);
		if (!comm.record || line->group_depth)
			continue;
		rank->api.nccl_sim_view(comm.handle, &view);
		ledger_sequence(comm.record, &view);
	}
	return FLOW_ON;
}

enum flow call_group_start(struct line_state *line, const struct instruction *i)
{
	line->group_depth++;
	return checked(line->rank, i, line->rank->api.ncclGroupStart());
}

enum flow call_group_end(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;
	enum flow flow = checked(rank, i, rank->api.ncclGroupEnd());
	struct nccl_sim_view view;

	if (--line->group_depth || flow != FLOW_ON)
		return flow;
	for (int n = 0; n < rank->job->script->n_comms; n++) {
		struct rank_comm *comm = &rank->comm[n];

		if (!comm->handle || !comm->record)
			continue;
		rank->api.nccl_sim_view(comm->handle, &view);
		ledger_sequence(comm->record, &view);
	}
	return bind_comms(rank, i);
}
