/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Groups and the operations: all of them pass ncclEnqueueCheck, as in NCCL. */
#include "lib.h"

#include <stdlib.h>

/* The group that this thread has open. */
struct sim_group {
	int depth;
	size_t n, capacity;
	struct sim_job *job;
};

static __thread struct sim_group group;

/* A rank alone, or no data: NCCL launches nothing and counts nothing. */
static ncclResult_t launch(struct sim_comm *comm, int func)
{
	struct ncclComm *nccl = &comm->nccl;
	bool collective = func != FUNC_SEND && func != FUNC_RECV && func < FUNC_PUT_SIGNAL;

#if SIM_HAS_SEQ_NUMBER
	if (func < SIM_SEQ_COUNT)
		__atomic_add_fetch(&nccl->seqNumber[func], 1, __ATOMIC_RELAXED);
#endif
	/* from 2.27 on only work that uses the network is counted here */
	if (SIM_VERSION < 22703 || nccl->nNodes > 1)
		__atomic_add_fetch(&nccl->opCount, 1, __ATOMIC_RELAXED);
	if (collective && sim_process()->sync && !sim_comm_meet(comm))
		return sim_fail(ncclRemoteError, "the job is being stopped");
	return ncclSuccess;
}

static ncclResult_t job_run(const struct sim_job *job)
{
	switch (job->kind) {
	case JOB_INIT:
		return sim_job_init(job);
	case JOB_SPLIT:
		return sim_job_split(job);
	case JOB_LAUNCH:
		return launch(job->comm, job->func);
	}
	return ncclInternalError;
}

static ncclResult_t group_push(const struct sim_job *job)
{
	if (group.n == group.capacity) {
		size_t capacity = group.capacity ? 2 * group.capacity : 16;
		struct sim_job *grown = realloc(group.job, capacity * sizeof(*grown));

		if (!grown)
			return sim_fail(ncclSystemError, "out of memory");
		group.job = grown;
		group.capacity = capacity;
	}
	group.job[group.n++] = *job;
	return ncclSuccess;
}

ncclResult_t sim_submit(const struct sim_job *job)
{
	return group.depth ? group_push(job) : job_run(job);
}

void sim_group_forget(const struct sim_comm *comm)
{
	size_t kept = 0;

	for (size_t i = 0; i < group.n; i++)
		if (group.job[i].comm != comm && group.job[i].child != comm)
			group.job[kept++] = group.job[i];
	group.n = kept;
}

/* Communicators first: NCCL launches nothing before they stand. */
static ncclResult_t group_run(void)
{
	ncclResult_t first = ncclSuccess;

	for (int launches = 0; launches < 2; launches++) {
		for (size_t i = 0; i < group.n; i++) {
			ncclResult_t result = ncclSuccess;

			if ((group.job[i].kind == JOB_LAUNCH) == launches)
				result = job_run(&group.job[i]);
			if (first == ncclSuccess)
				first = result;
		}
	}
	free(group.job);
	group.job = NULL;
	group.n = group.capacity = 0;
	return first;
}

NCCL_API(ncclResult_t, ncclGroupStart, void)
{
	group.depth++;
	return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclGroupEnd, void)
{
	if (group.depth == 0)
		return sim_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
	return --group.depth ? ncclSuccess : group_run();
}

#if SIM_VERSION >= 22203
NCCL_API(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t *simInfo)
{
	if (group.depth == 0)
		return sim_fail(ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
	if (simInfo)
		simInfo->estimatedTime = 0;
	if (--group.depth == 0)
		group.n = 0;
	return ncclSuccess;
}
#endif

/* NCCL's internal bottleneck: one probe here sees the whole interface. */
__attribute__((noinline)) ncclResult_t ncclEnqueueCheck(struct ncclInfo *info)
{
	struct ncclComm *comm = info->comm;
	ncclResult_t result = sim_comm_ready(comm);
	struct sim_job job = { .kind = JOB_LAUNCH, .func = info->coll };

	if (result != ncclSuccess)
		return result;
	if (info->root < 0 || info->root >= comm->nRanks)
		return sim_fail(ncclInvalidArgument, "root or peer is outside the communicator");
	if ((unsigned int)info->datatype >= SIM_NUM_TYPES)
		return sim_fail(ncclInvalidArgument, "unknown data type");
	if ((unsigned int)info->op > ncclMaxRedOp)
		return sim_fail(ncclInvalidArgument, "unknown reduction");
	if (comm->nRanks == 1 || info->count == 0)
		return ncclSuccess;
	job.comm = (struct sim_comm *)comm;
	return sim_submit(&job);
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
