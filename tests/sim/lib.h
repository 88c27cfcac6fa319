/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the files of the stand-in library share. */
#ifndef SIM_LIB_H
#define SIM_LIB_H

#include <stdbool.h>

#include "layout.h"
#include "names.h"
#include "nccl_sim.h"
#include "shared.h"

#define SIM_EXPORT __attribute__((visibility("default")))

/* As NCCL does: ncclX weak and pncclX global, at one address. */
#define NCCL_API(type, function, ...) \
	SIM_EXPORT __attribute__((alias(#function))) type p##function(__VA_ARGS__); \
	SIM_EXPORT __attribute__((weak)) type function(__VA_ARGS__)

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
	void *profiler_context;
	bool has_profiler;
	uint64_t profiler_sequence[SIM_SEQ_COUNT]; /* where NCCL itself keeps none */
};

/* Communicators that wait for ncclGroupEnd when a group is open. */
enum sim_job_kind { JOB_INIT, JOB_SPLIT };

struct sim_job {
	enum sim_job_kind kind;
	struct sim_comm *comm; /* JOB_SPLIT: the parent */
	struct sim_comm *child; /* JOB_SPLIT: NULL for a rank without a colour */
	uint64_t hash;
	int rank, n_ranks, device;
	int color, key;
};

/* What NCCL executes: a call is one, but AlltoAll, Gather and Scatter are sends and receives. */
struct sim_task {
	struct sim_comm *comm;
	int func;
	bool last_of_call, collective; /* of the call */
	bool on_gpu; /* false: one-sided, which needs no kernel */
	bool captured;
	const void *send, *recv;
	uint64_t count, bytes, traffic;
	int datatype, root;
	uint32_t redop;
	cudaStream_t stream;
	/* as the profiler plugin had it at the call */
	int mask;
	void *group_api, *api;
	/* set when it is launched */
	uint8_t algorithm, protocol, n_channels;
	uint64_t sequence;
	void *handle;
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
void sim_group_begin(void);
int sim_group_depth(void);
ncclResult_t sim_group_end(bool run);
ncclResult_t sim_task_push(const struct sim_task *task);

/* task.c */
uint64_t sim_type_bytes(int datatype);
ncclResult_t ncclEnqueueCheck(struct ncclInfo *info);

/* api_event.c: what a profiler plugin is told of calls and groups. */
void api_event_enter(void);
void api_event_call(struct sim_task *task, int func, uint64_t count, int datatype, int depth);
void api_event_group_ends(void);
void api_event_group_ended(void);

/* gpu_use.c: the simulated GPU, when the program has loaded one. */
bool sim_gpu_captures(cudaStream_t stream);

/* plan.c: all tasks of one communicator in one group; they are ordered in place. */
ncclResult_t sim_plan_launch(struct sim_comm *comm, struct sim_task **tasks, size_t n);

/* The one job this process belongs to. */
struct sim_process {
	struct sim_shared *shared;
	int world_rank;
	int gpus_per_node;
	int sync;
};
const struct sim_process *sim_process(void);

#endif
