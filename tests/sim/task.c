/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From calls to tasks: all operations pass ncclEnqueueCheck, as in NCCL. */
#include "lib.h"

uint64_t sim_type_bytes(int datatype)
{
	static const uint8_t bytes[ncclNumTypes] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

	return bytes[datatype];
}

/* What crosses the busiest link, per byte of count: NCCL orders a group's collectives by it. */
static uint64_t traffic_per_byte(int func, int n_ranks)
{
	switch (func) {
	case FUNC_ALLREDUCE:
		return 2;
	case FUNC_ALLGATHER:
	case FUNC_REDUCESCATTER:
		return (uint64_t)n_ranks;
	default:
		return 1;
	}
}

static struct sim_task task_of(const struct ncclInfo *info, int func)
{
	bool one_sided = info->coll >= FUNC_PUT_SIGNAL;

	return (struct sim_task){
		.comm = (struct sim_comm *)info->comm,
		.func = func,
		.last_of_call = true,
		.collective = info->coll != FUNC_SEND && info->coll != FUNC_RECV && !one_sided,
		.on_gpu = !one_sided,
		.captured = sim_gpu_captures(info->stream),
		.send = info->sendbuff,
		.recv = info->recvbuff,
		.count = info->count,
		.bytes = info->count * sim_type_bytes(info->datatype),
		.datatype = info->datatype,
		.root = info->root,
		.redop = info->op,
		.stream = info->stream,
	};
}

/* NCCL moves these two as bytes; the call itself keeps its own count and type. */
static void task_count_bytes(struct sim_task *task)
{
	if (task->func != FUNC_ALLGATHER && task->func != FUNC_BROADCAST)
		return;
	task->count = task->bytes;
	task->datatype = ncclInt8;
}

static ncclResult_t append(struct sim_task *task)
{
	api_event_call(task, task->func, task->count, task->datatype, sim_group_depth());
	task->traffic = task->bytes * traffic_per_byte(task->func, task->comm->nccl.nRanks);
	task_count_bytes(task);
	return sim_task_push(task);
}

static ncclResult_t append_p2p(const struct ncclInfo *info, int func, int peer, bool last)
{
	struct sim_task task = task_of(info, func);

	if (func == FUNC_SEND)
		task.recv = info->sendbuff;
	task.root = peer;
	task.last_of_call = last;
	return append(&task);
}

static ncclResult_t append_all_to_all(const struct ncclInfo *info)
{
	ncclResult_t result = ncclSuccess;
	int n = info->comm->nRanks;

	for (int i = 0; i < n && result == ncclSuccess; i++) {
		result = append_p2p(info, FUNC_SEND, i, false);
		if (result == ncclSuccess)
			result = append_p2p(info, FUNC_RECV, i, i == n - 1);
	}
	return result;
}

/* Gather: everyone sends to the root, which receives from all. Scatter: the other way round. */
static ncclResult_t append_rooted(const struct ncclInfo *info)
{
	int own = info->coll == FUNC_GATHER ? FUNC_SEND : FUNC_RECV;
	int at_root = info->coll == FUNC_GATHER ? FUNC_RECV : FUNC_SEND;
	bool root = info->comm->rank == info->root;
	ncclResult_t result = append_p2p(info, own, info->root, !root);

	for (int i = 0; root && i < info->comm->nRanks && result == ncclSuccess; i++)
		result = append_p2p(info, at_root, i, i == info->comm->nRanks - 1);
	return result;
}

static ncclResult_t append_call(const struct ncclInfo *info)
{
	struct sim_task task = task_of(info, info->coll);

	switch (info->coll) {
	case FUNC_ALLTOALL:
		return append_all_to_all(info);
	case FUNC_GATHER:
	case FUNC_SCATTER:
		return append_rooted(info);
	case FUNC_PUT_SIGNAL:
	case FUNC_SIGNAL:
	case FUNC_WAIT_SIGNAL: /* a profiler plugin is told nothing of them */
		return sim_task_push(&task);
	default:
		return append(&task);
	}
}

static ncclResult_t check_arguments(const struct ncclInfo *info)
{
	if (info->root < 0 || info->root >= info->comm->nRanks)
		return sim_fail(ncclInvalidArgument, "root or peer is outside the communicator");
	if ((unsigned int)info->datatype >= SIM_NUM_TYPES)
		return sim_fail(ncclInvalidArgument, "unknown data type");
	if ((unsigned int)info->op > ncclMaxRedOp)
		return sim_fail(ncclInvalidArgument, "unknown reduction");
	return ncclSuccess;
}

/* A collective of a rank alone or without data: NCCL launches nothing and counts nothing. */
static bool is_nothing(const struct ncclInfo *info)
{
	bool p2p = info->coll == FUNC_SEND || info->coll == FUNC_RECV;

	return !p2p && (info->comm->nRanks == 1 || info->count == 0);
}

/* NCCL's internal bottleneck: one probe here sees the whole interface. */
__attribute__((noinline)) ncclResult_t ncclEnqueueCheck(struct ncclInfo *info)
{
	ncclResult_t result = sim_comm_ready(info->comm), end;

	if (result == ncclSuccess)
		result = check_arguments(info);
	if (result != ncclSuccess || is_nothing(info))
		return result;
	api_event_enter();
	sim_group_begin();
	result = append_call(info);
	end = sim_group_end(true);
	return result != ncclSuccess ? result : end;
}

#define ENQUEUE(number, name, ...) \
	ncclEnqueueCheck(&(struct ncclInfo){ .coll = (number), .opName = (name), .comm = comm, \
					     .count = count, .datatype = datatype, \
					     .stream = stream, __VA_ARGS__ })
#define BUFFERS .sendbuff = sendbuff, .recvbuff = recvbuff

NCCL_API(ncclResult_t, ncclAllGather, const void *sendbuff, void *recvbuff, size_t count,
	 ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
	return ENQUEUE(FUNC_ALLGATHER, "AllGather", BUFFERS);
}

NCCL_API(ncclResult_t, ncclAllReduce, const void *sendbuff, void *recvbuff, size_t count,
	 ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	return ENQUEUE(FUNC_ALLREDUCE, "AllReduce", BUFFERS, .op = op);
}

NCCL_API(ncclResult_t, ncclBroadcast, const void *sendbuff, void *recvbuff, size_t count,
	 ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
	return ENQUEUE(FUNC_BROADCAST, "Broadcast", BUFFERS, .root = root);
}

/* Weak, hence through the PLT: tracers of both names see the call twice, as with NCCL. */
NCCL_API(ncclResult_t, ncclBcast, void *buff, size_t count, ncclDataType_t datatype, int root,
	 ncclComm_t comm, cudaStream_t stream)
{
	return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

NCCL_API(ncclResult_t, ncclReduce, const void *sendbuff, void *recvbuff, size_t count,
	 ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
	return ENQUEUE(FUNC_REDUCE, "Reduce", BUFFERS, .op = op, .root = root);
}

NCCL_API(ncclResult_t, ncclReduceScatter, const void *sendbuff, void *recvbuff, size_t count,
	 ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	return ENQUEUE(FUNC_REDUCESCATTER, "ReduceScatter", BUFFERS, .op = op);
}

#if SIM_VERSION >= 22803
NCCL_API(ncclResult_t, ncclAlltoAll, const void *sendbuff, void *recvbuff, size_t count,
	 ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
	return ENQUEUE(FUNC_ALLTOALL, "AlltoAll", BUFFERS);
}

NCCL_API(ncclResult_t, ncclGather, const void *sendbuff, void *recvbuff, size_t count,
	 ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
	return ENQUEUE(FUNC_GATHER, "Gather", BUFFERS, .root = root);
}

NCCL_API(ncclResult_t, ncclScatter, const void *sendbuff, void *recvbuff, size_t count,
	 ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
	return ENQUEUE(FUNC_SCATTER, "Scatter", BUFFERS, .root = root);
}
#endif

#define SEND_RECV(number, name, buffer) \
	ENQUEUE(number, name, .recvbuff = (void *)(buffer), .root = peer)

/* Up to 2.23 these two open a group through the exported functions. */
static ncclResult_t in_group(ncclResult_t result)
{
	ncclResult_t end = ncclGroupEnd();

	return result != ncclSuccess ? result : end;
}

NCCL_API(ncclResult_t, ncclSend, const void *sendbuff, size_t count, ncclDataType_t datatype,
	 int peer, ncclComm_t comm, cudaStream_t stream)
{
	if (SIM_VERSION >= 22403)
		return SEND_RECV(FUNC_SEND, "Send", sendbuff);
	ncclGroupStart();
	return in_group(SEND_RECV(FUNC_SEND, "Send", sendbuff));
}

NCCL_API(ncclResult_t, ncclRecv, void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
	 ncclComm_t comm, cudaStream_t stream)
{
	if (SIM_VERSION >= 22403)
		return SEND_RECV(FUNC_RECV, "Recv", recvbuff);
	ncclGroupStart();
	return in_group(SEND_RECV(FUNC_RECV, "Recv", recvbuff));
}

#if SIM_VERSION >= 22902
NCCL_API(ncclResult_t, ncclPutSignal, const void *localbuff, size_t count, ncclDataType_t datatype,
	 int peer, ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
	 unsigned int flags, ncclComm_t comm, cudaStream_t stream)
{
	(void)peerWin, (void)peerWinOffset, (void)sigIdx, (void)ctx, (void)flags;
	return SEND_RECV(FUNC_PUT_SIGNAL, "PutSignal", localbuff);
}

NCCL_API(ncclResult_t, ncclSignal, int peer, int sigIdx, int ctx, unsigned int flags,
	 ncclComm_t comm, cudaStream_t stream)
{
	size_t count = 0;
	ncclDataType_t datatype = ncclInt8;

	(void)sigIdx, (void)ctx, (void)flags;
	return SEND_RECV(FUNC_SIGNAL, "Signal", NULL);
}

NCCL_API(ncclResult_t, ncclWaitSignal, int nDesc, ncclWaitSignalDesc_t *signalDescs,
	 ncclComm_t comm, cudaStream_t stream)
{
	size_t count = 0;
	ncclDataType_t datatype = ncclInt8;

	(void)nDesc, (void)signalDescs;
	return ENQUEUE(FUNC_WAIT_SIGNAL, "WaitSignal", .root = 0);
}
#endif
