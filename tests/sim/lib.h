/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the files of the stand-in library share. */
#ifndef SIM_LIB_H
#define SIM_LIB_H

#include <stdbool.h>

#include "layout.h"
#include "nccl_sim.h"
#include "shared.h"

#define SIM_EXPORT __attribute__((visibility("default")))

/* As NCCL does: ncclX weak and pncclX global, at one address. */
#define NCCL_API(type, function, ...) \
	SIM_EXPORT __attribute__((alias(#function))) type p##function(__VA_ARGS__); \
	SIM_EXPORT __attribute__((weak)) type function(__VA_ARGS__)

/* Numbers of ncclFunc_t; the first five are the indices of seqNumber. */
enum sim_func {
	FUNC_BROADCAST, FUNC_REDUCE, FUNC_ALLGATHER, FUNC_REDUCESCATTER, FUNC_ALLREDUCE,
	FUNC_SEND = 6, FUNC_RECV, FUNC_ALLTOALL, FUNC_SCATTER, FUNC_GATHER,
	FUNC_PUT_SIGNAL = 12, FUNC_SIGNAL, FUNC_WAIT_SIGNAL,
};

/* The first 72 bytes are the same from NCCL 2.12.7 to 2.30.7. Send and receive keep their buffer
 * in recvbuff and their peer in root. */
struct ncclInfo {
	int coll;
	const char *opName;
	const void *sendbuff;
	void *recvbuff;
	size_t count;
	ncclDataType_t datatype;
	ncclRedOp_t op;
	int root;
	struct ncclComm *comm;
	cudaStream_t stream;
};

_Static_assert(offsetof(struct ncclInfo, datatype) == 40 && offsetof(struct ncclInfo, stream) == 64,
	       "struct ncclInfo is NCCL's");

/* The stand-in's own state lies behind NCCL's structure, which keeps its true size. */
struct sim_comm {
	struct ncclComm nccl;
	uint32_t abort_word;
	uint32_t n_children;
	int n_user_ops;
	struct sim_meeting *meeting; /* NULL: alone in this process */
};

/* Work that waits for ncclGroupEnd when a group is open. */
enum sim_job_kind { JOB_INIT, JOB_SPLIT, JOB_LAUNCH };

struct sim_job {
	enum sim_job_kind kind;
	struct sim_comm *comm; /* JOB_SPLIT: the parent */
	struct sim_comm *child; /* JOB_SPLIT: NULL for a rank without a colour */
	uint64_t hash;
	int rank, n_ranks, device;
	int color, key;
	int func;
};

/* comm.c */
ncclResult_t sim_fail(ncclResult_t result, const char *why);
ncclResult_t sim_comm_check(const struct ncclComm *comm);
ncclResult_t sim_comm_ready(struct ncclComm *comm);
/* Without a config a child has its parent's. */
struct sim_comm *sim_comm_new(const ncclConfig_t *config, const struct ncclComm *parent);
void sim_comm_free(struct sim_comm *comm);
bool sim_comm_meet(struct sim_comm *comm);

/* init.c */
ncclResult_t sim_job_init(const struct sim_job *job);
ncclResult_t sim_job_split(const struct sim_job *job);

/* group.c */
ncclResult_t sim_submit(const struct sim_job *job);
void sim_group_forget(const struct sim_comm *comm);
ncclResult_t ncclEnqueueCheck(struct ncclInfo *info);

/* The one job this process belongs to. */
struct sim_process {
	struct sim_shared *shared;
	int world_rank;
	int gpus_per_node;
	int sync;
};
const struct sim_process *sim_process(void);

#endif
