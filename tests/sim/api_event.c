/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Events of the API: GroupApi once for the outermost group with work in it, CollApi or P2pApi for
 * each call. A task keeps the mask and the handles of the moment at which it was called. As in
 * NCCL 2.28 to 2.30 the handle of CollApi is never forgotten by the thread.
 */
#include "profiler.h"

#define ANY (ABI_GROUP_API | ABI_COLL_API | ABI_P2P_API | ABI_KERNEL_LAUNCH | ABI_GROUP | ABI_COLL | \
	     ABI_P2P | ABI_PROXY_OP | ABI_PROXY_STEP | ABI_KERNEL_CH | ABI_NET_PLUGIN)
#define OF_TASKS (ABI_PROXY_OP | ABI_PROXY_STEP | ABI_KERNEL_CH | ABI_NET_PLUGIN)
#define COPIES (SIM_VERSION >= 22902 ? ABI_CE_COLL | ABI_CE_SYNC | ABI_CE_BATCH : 0)

static __thread struct {
	int mask; /* of the last call */
	int depth; /* of groups, counted from the one that GroupApi was started in */
	enum { RESET, STARTED, STOPPED } state;
	void *group, *coll, *p2p;
} api;

void api_event_enter(void)
{
	if (api.depth > 0)
		api.depth++;
}

static void start_group(const struct sim_comm *comm, bool captured, int depth)
{
	struct sim_event event = { .type = ABI_GROUP_API, .captured = captured, .depth = depth };

	api.mask = profiler_mask();
	if (!(api.mask & (ANY | COPIES)) || api.depth)
		return;
	profiler_start(comm, &api.group, &event);
	api.depth = depth;
	api.state = STARTED;
}

static void record_group(int from, int to, enum sim_state state)
{
	if ((int)api.state != from)
		return;
	api.state = to;
	profiler_record(api.group, state, 0);
}

static void start_call(const struct sim_task *task, struct sim_event *event, bool p2p)
{
	event->type = p2p ? ABI_P2P_API : ABI_COLL_API;
	if (p2p && api.mask & (ABI_P2P_API | ABI_P2P | OF_TASKS))
		profiler_start(task->comm, &api.p2p, event);
	if (!p2p && api.mask & (ABI_COLL_API | ABI_COLL | OF_TASKS | COPIES))
		profiler_start(task->comm, &api.coll, event);
}

static void stop_call(bool p2p)
{
	profiler_stop(p2p ? api.p2p : api.coll);
	if (p2p)
		api.p2p = NULL;
}

void api_event_call(struct sim_task *task, int func, uint64_t count, int datatype, int depth)
{
	bool p2p = func == FUNC_SEND || func == FUNC_RECV;
	struct sim_event event = { .func = func, .count = count, .datatype = datatype,
				   .root = task->root, .stream = task->stream,
				   .captured = task->captured };

	if (!SIM_HAS_API_EVENTS) {
		task->mask = profiler_mask();
		return;
	}
	start_group(task->comm, task->captured, depth);
	record_group(STARTED, STOPPED, STATE_GROUP_START_API_STOP);
	event.parent = api.group;
	start_call(task, &event, p2p);
	task->mask = api.mask;
	task->group_api = api.group;
	task->api = p2p ? api.p2p : api.coll;
	stop_call(p2p);
}

void api_event_group_ends(void)
{
	if (api.depth > 0)
		api.depth--;
	if (api.depth == 0)
		record_group(STOPPED, RESET, STATE_GROUP_END_API_START);
}

void api_event_group_ended(void)
{
	if (api.depth || !api.group)
		return;
	profiler_stop(api.group);
	api.group = NULL;
}
