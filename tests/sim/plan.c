/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "plan.h"

#include "profiler.h"

/* Greater comes first. */
static uint64_t place(const struct sim_task *task)
{
	if (!task->on_gpu)
		return 0;
	return task->func == FUNC_SEND || task->func == FUNC_RECV ? 1 : task->traffic + 2;
}

/* Stable, so that all ranks have the same order. */
static void order(struct sim_task **task, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct sim_task *moved = task[i];
		size_t j = i;

		for (; j > 0 && place(task[j - 1]) < place(moved); j--)
			task[j] = task[j - 1];
		task[j] = moved;
	}
}

static ncclResult_t launch_kernel(const struct plan *plan)
{
	ncclResult_t result = ncclSuccess;
	bool deferred = plan_is_deferred(plan);
	uint64_t launch = 0;
	void *handle;

	for (size_t i = 0; i < plan->n; i++)
		plan_tune(plan->task[i]);
	plan_number(plan);
	if (deferred)
		result = sim_gpu_defer(plan);
	handle = plan_event_launch_start(plan);
	if (result == ncclSuccess)
		result = sim_gpu_launch(plan, &launch);
	profiler_stop(handle);
	if (result == ncclSuccess && !deferred)
		plan_tell(plan, launch);
	return result;
}

/* From 2.27 on only work that uses the network is counted in opCount. */
static ncclResult_t account(struct sim_comm *comm, struct sim_task **task, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!task[i]->last_of_call)
			continue;
		if (SIM_VERSION < 22703 || comm->nccl.nNodes > 1)
			__atomic_add_fetch(&comm->nccl.opCount, 1, __ATOMIC_RELAXED);
		if (task[i]->collective && sim_process()->sync && !sim_comm_meet(comm))
			return sim_fail(ncclRemoteError, "the job is being stopped");
	}
	return ncclSuccess;
}

ncclResult_t sim_plan_launch(struct sim_comm *comm, struct sim_task **task, size_t n)
{
	struct plan plan = { .comm = comm, .task = task, .captured = task[0]->captured,
			     .stream = task[0]->stream };
	ncclResult_t result = ncclSuccess;

	order(task, n);
	while (plan.n < n && task[plan.n]->on_gpu)
		plan.n++;
	if (plan.n)
		result = launch_kernel(&plan);
	return result == ncclSuccess ? account(comm, task, n) : result;
}
