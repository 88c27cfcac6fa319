/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Events of a launch: KernelLaunch around it, then Group with a Coll or P2p for each task. */
#include "plan.h"

#include "profiler.h"

#define OF_PROXY (ABI_PROXY_OP | ABI_PROXY_STEP)
#define OF_TASKS (OF_PROXY | ABI_KERNEL_CH | ABI_NET_PLUGIN)

/* Before 2.26 Coll's bits ask for sends and receives as well, and the mask is read for each plan. */
#define MASK_PER_PLAN (SIM_VERSION < 22602)
#define GROUP_BITS (MASK_PER_PLAN ? ABI_COLL | ABI_P2P | OF_PROXY : \
				    ABI_GROUP | ABI_COLL | ABI_P2P | OF_TASKS)
#define COLL_BITS (MASK_PER_PLAN ? ABI_COLL | OF_PROXY : ABI_COLL | OF_TASKS)
#define P2P_BITS (MASK_PER_PLAN ? COLL_BITS : ABI_P2P | OF_TASKS)
/* Up to 2.27 a plugin that gave Group no handle is told of no task. */
#define NEEDS_GROUP (SIM_VERSION < 22803)

static bool is_p2p(const struct sim_task *task)
{
	return task->func == FUNC_SEND || task->func == FUNC_RECV;
}

/* The first task that the plugin wants anything of; NULL: there is none. */
static const struct sim_task *first_wanted(const struct plan *plan)
{
	for (size_t i = 0; i < plan->n; i++)
		if (plan->task[i]->mask)
			return plan->task[i];
	return NULL;
}

static bool wants_timer(const struct plan *plan)
{
	for (size_t i = 0; i < plan->n; i++)
		if (plan->task[i]->mask & ABI_KERNEL_CH)
			return true;
	return false;
}

void *plan_event_launch_start(const struct plan *plan)
{
	const struct sim_task *task = first_wanted(plan);
	struct sim_event event = { .type = ABI_KERNEL_LAUNCH, .stream = plan->stream };
	void *handle = NULL;

	if (!SIM_HAS_API_EVENTS || !task || !(task->mask & ABI_KERNEL_LAUNCH))
		return NULL;
	event.parent = task->group_api;
	profiler_start(plan->comm, &handle, &event);
	return handle;
}

bool plan_is_deferred(const struct plan *plan)
{
	return plan->captured && (plan->comm->nccl.nNodes > 1 || wants_timer(plan));
}

static uint64_t *counter_of(const struct plan *plan, int func)
{
#if SIM_HAS_SEQ_NUMBER
	return &plan->comm->nccl.seqNumber[func];
#else
	return &plan->comm->profiler_sequence[func];
#endif
}

/*
 * What sits in a graph is counted only when the proxy tells of each replay, hence the same on all
 * ranks, and NCCL counts that only with the kernel timer on.
 */
void plan_number(const struct plan *plan)
{
	for (size_t i = 0; i < plan->n; i++) {
		struct sim_task *task = plan->task[i];

		if (task->func >= SIM_SEQ_COUNT)
			task->sequence = UINT64_MAX;
		else if (!plan->captured)
			task->sequence = __atomic_fetch_add(counter_of(plan, task->func), 1,
							    __ATOMIC_RELAXED);
		else
			task->sequence = __atomic_load_n(counter_of(plan, task->func),
							 __ATOMIC_RELAXED);
	}
}

static void number_replay(const struct plan *plan, struct sim_task *task)
{
	if (plan->captured && task->func < SIM_SEQ_COUNT && task->mask & ABI_KERNEL_CH)
		task->sequence = __atomic_fetch_add(counter_of(plan, task->func), 1,
						    __ATOMIC_RELAXED);
}

static void start_task(const struct plan *plan, struct sim_task *task, void *group)
{
	struct sim_event event = {
		.type = is_p2p(task) ? ABI_P2P : ABI_COLL, .parent = task->api,
		.parent_group = group, .rank = plan->comm->nccl.rank, .func = task->func,
		.datatype = task->datatype, .root = task->root, .count = task->count,
		.sequence = task->sequence, .traffic = task->traffic, .send = task->send,
		.recv = task->recv, .redop = task->redop, .algorithm = task->algorithm,
		.protocol = task->protocol, .n_channels = task->n_channels,
		.hash = plan->comm->nccl.commHash,
	};

	task->handle = NULL;
	if (!SIM_HAS_API_EVENTS)
		event.parent = group;
	if (task->mask & (is_p2p(task) ? P2P_BITS : COLL_BITS) && (group || !NEEDS_GROUP))
		profiler_start(plan->comm, &task->handle, &event);
}

static void *start_group(const struct plan *plan)
{
	struct sim_event event = { .type = ABI_GROUP };
	const struct sim_task *task;
	void *group = NULL;

	for (size_t i = 0; MASK_PER_PLAN && i < plan->n; i++)
		plan->task[i]->mask = profiler_mask();
	task = first_wanted(plan);
	if (task && task->mask & GROUP_BITS)
		profiler_start(plan->comm, &group, &event);
	return group;
}

void plan_tell(const struct plan *plan, uint64_t launch)
{
	void *group = start_group(plan);

	for (size_t i = 0; i < plan->n; i++) {
		number_replay(plan, plan->task[i]);
		start_task(plan, plan->task[i], group);
	}
	for (size_t i = 0; i < plan->n; i++)
		if (launch && plan->task[i]->mask & ABI_KERNEL_CH)
			progress_post(plan, i, launch);
	for (size_t i = 0; i < plan->n; i++)
		profiler_stop(plan->task[i]->handle);
	profiler_stop(group);
}
