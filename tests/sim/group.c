/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Groups: what they hold back, and what happens at their end. */
#include "lib.h"

#include <stdlib.h>

#define FEW_TASKS 4

/* The group that this thread has open. */
struct sim_group {
	int depth;
	size_t n, capacity;
	struct sim_job *job;
	size_t n_tasks, task_capacity;
	struct sim_task *task; /* first[], until they are too many */
	struct sim_task first[FEW_TASKS];
};

static __thread struct sim_group group;

static ncclResult_t job_run(const struct sim_job *job)
{
	return job->kind == JOB_INIT ? sim_job_init(job) : sim_job_split(job);
}

static ncclResult_t job_push(const struct sim_job *job)
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
	return group.depth ? job_push(job) : job_run(job);
}

static bool tasks_grow(void)
{
	size_t capacity = 2 * group.task_capacity;
	struct sim_task *grown = malloc(capacity * sizeof(*grown));

	if (!grown)
		return false;
	for (size_t i = 0; i < group.n_tasks; i++)
		grown[i] = group.task[i];
	if (group.task != group.first)
		free(group.task);
	group.task = grown;
	group.task_capacity = capacity;
	return true;
}

ncclResult_t sim_task_push(const struct sim_task *task)
{
	if (!group.task) {
		group.task = group.first;
		group.task_capacity = FEW_TASKS;
	}
	if (group.n_tasks == group.task_capacity && !tasks_grow())
		return sim_fail(ncclSystemError, "out of memory");
	group.task[group.n_tasks++] = *task;
	return ncclSuccess;
}

void sim_group_forget(const struct sim_comm *comm)
{
	size_t kept = 0;

	for (size_t i = 0; i < group.n; i++)
		if (group.job[i].comm != comm && group.job[i].child != comm)
			group.job[kept++] = group.job[i];
	group.n = kept;
	kept = 0;
	for (size_t i = 0; i < group.n_tasks; i++)
		if (group.task[i].comm != comm)
			group.task[kept++] = group.task[i];
	group.n_tasks = kept;
}

static void keep_first(ncclResult_t *first, ncclResult_t result)
{
	if (*first == ncclSuccess)
		*first = result;
}

/* One launch for each communicator, in the order in which the group met them. */
static ncclResult_t launch_all(struct sim_task *task, size_t n)
{
	struct sim_task *few[FEW_TASKS], **chosen = n > FEW_TASKS ? calloc(n, sizeof(*few)) : few;
	ncclResult_t first = ncclSuccess;

	if (!chosen)
		return sim_fail(ncclSystemError, "out of memory");
	for (size_t i = 0; i < n; i++) {
		struct sim_comm *comm = task[i].comm;
		size_t n_chosen = 0;

		if (!comm)
			continue;
		for (size_t j = i; j < n; j++) {
			if (task[j].comm != comm)
				continue;
			chosen[n_chosen++] = &task[j];
			task[j].comm = NULL;
		}
		keep_first(&first, sim_plan_launch(comm, chosen, n_chosen));
	}
	if (chosen != few)
		free(chosen);
	return first;
}

static void group_clear(void)
{
	free(group.job);
	if (group.task != group.first)
		free(group.task);
	group.job = NULL;
	group.task = NULL;
	group.n = group.capacity = group.n_tasks = group.task_capacity = 0;
}

/* Communicators first: NCCL launches nothing before they stand. */
static ncclResult_t group_run(void)
{
	ncclResult_t first = ncclSuccess;

	for (size_t i = 0; i < group.n; i++)
		keep_first(&first, job_run(&group.job[i]));
	keep_first(&first, launch_all(group.task, group.n_tasks));
	return first;
}

void sim_group_begin(void)
{
	group.depth++;
}

int sim_group_depth(void)
{
	return group.depth;
}

ncclResult_t sim_group_end(bool run)
{
	ncclResult_t result = ncclSuccess;

	if (group.depth == 0)
		return sim_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
	api_event_group_ends();
	if (--group.depth == 0) {
		if (run)
			result = group_run();
		group_clear();
	}
	api_event_group_ended();
	return result;
}

NCCL_API(ncclResult_t, ncclGroupStart, void)
{
	sim_group_begin();
	return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclGroupEnd, void)
{
	return sim_group_end(true);
}

#if SIM_VERSION >= 22203
NCCL_API(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t *simInfo)
{
	if (simInfo)
		simInfo->estimatedTime = 0;
	return sim_group_end(false);
}
#endif
