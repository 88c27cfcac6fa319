/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One kernel launch: all that a group holds for one communicator. */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include "lib.h"

struct plan {
	struct sim_comm *comm;
	struct sim_task **task; /* collectives by size, then sends and receives */
	size_t n;
	bool captured;
	cudaStream_t stream;
};

/* tuning.c: which algorithm, protocol and channels a task would be given. Plausible, no more. */
void plan_tune(struct sim_task *task);

/*
 * plan_event.c. A plan under capture whose tasks need NCCL's proxy is told of at each replay, by
 * CUDA's callback thread, instead of once at capture.
 */
void *plan_event_launch_start(const struct plan *plan);
bool plan_is_deferred(const struct plan *plan);
void plan_number(const struct plan *plan);
void plan_tell(const struct plan *plan, uint64_t launch);

/* gpu_use.c: 0 as *ret_launch without a GPU or under capture. */
ncclResult_t sim_gpu_launch(const struct plan *plan, uint64_t *ret_launch);
/* plan_tell() for each replay of the graph under capture. */
ncclResult_t sim_gpu_defer(const struct plan *plan);

/* progress.c: KernelCh events of one task, told by NCCL's progress thread as the GPU goes on. */
void progress_post(const struct plan *plan, size_t task, uint64_t launch);
void progress_forget(const struct sim_comm *comm);

#endif
