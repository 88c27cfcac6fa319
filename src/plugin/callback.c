/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What NCCL calls. Of all event types only two get a handle: Group, because NCCL <= 2.27 starts no
 * operation without, and KernelLaunch, whose stop is needed. A CollApi handle above all is never
 * given: NCCL 2.28 to 2.30 goes on stopping it for as long as the thread lives.
 */
#include "plugin.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum token_kind {
	TOKEN_GROUP = 1,
	TOKEN_LAUNCH = 2,
};

#define TOKEN_KIND_SHIFT 46
#define TOKEN_NUMBER	 ((1ULL << TOKEN_KIND_SHIFT) - 1)

/*
 * A plan is launched and its operations started by one thread, one after the other: KernelLaunch
 * start, stop, Group start, Coll and P2p, Group stop. So what belongs together is kept here. Work
 * that NCCL defers to a CUDA callback has another thread, and its launch is then not known.
 */
static _Thread_local struct {
	uint32_t tid;
	uint64_t tokens; /* numbers given out */
	struct {
		uint32_t number; /* 0: none yet */
		uint32_t depth;
		bool called; /* an API call was seen in it, so `captured` says something */
		bool captured;
	} api;
	struct {
		void *handle; /* what NCCL was given; NULL: none under way */
		void *context;
		uint64_t number, stream, time_ns;
		struct launch_timing timing;
		uint8_t capture;
	} launch;
	struct {
		void *context; /* of the launch that ended last, until its Group comes */
		uint64_t number;
	} launched;
	struct {
		void *handle, *context;
		uint64_t launch;
	} group;
} thread;

static uint32_t thread__id(void)
{
	if (!thread.tid)
		thread.tid = syscall(SYS_gettid);
	return thread.tid;
}

static void *token__new(enum token_kind kind)
{
	uint64_t number = (uint64_t)thread__id() << 24 ^ ++thread.tokens;

	return (void *)(uintptr_t)(TOKEN_TAG | (uint64_t)kind << TOKEN_KIND_SHIFT |
				   (number & TOKEN_NUMBER));
}

static bool token__is(const void *handle, enum token_kind kind)
{
	return token__is_ours(handle) &&
	       (((uint64_t)(uintptr_t)handle & ~TOKEN_MASK) >> TOKEN_KIND_SHIFT) == kind;
}

/* ---- notes ---- */

static bool note__push(struct comm *comm, struct note *note)
{
	static const enum nbp_loss reasons[] = {
		[RING_FULL] = NBP_LOSS_RING_FULL,
		[RING_BUSY] = NBP_LOSS_CONTENTION,
	};
	struct ring *ring = atomic_load_explicit(&comm->ring, memory_order_acquire);
	enum ring_result result;

	if (!ring) {
		comm__lost(comm, NBP_LOSS_NOT_READY);
		return false;
	}
	note->tid = thread__id();
	note->generation = (uint16_t)comm->live_generation;
	result = ring__push(ring, note);
	if (result != RING_OK)
		comm__lost(comm, reasons[result]);
	return result == RING_OK;
}

static void api__note(struct comm *comm, const struct abi_event *e)
{
	struct note note = {
		.kind = NBP_KIND_API,
		.time_ns = now_ns(),
		.count = e->count,
		.number = atomic_fetch_add_explicit(&comm->api_number, 1, memory_order_relaxed) + 1,
		.stream = e->stream,
		.group = thread.api.number,
		.root = e->root,
		.extra = thread.api.depth,
		.function = e->function,
		.datatype = e->datatype,
		.detail = e->captured ? NBP_CAPTURED_YES : NBP_CAPTURED_NO,
	};

	thread.api.called = true;
	thread.api.captured = e->captured;
	if (!note__push(comm, &note))
		counts__unseen(&comm->unseen, &note);
}

/* v1 to v3 name the communicator only here. */
static void comm__learn(struct comm *comm, const struct abi_event *e, const void *descriptor)
{
	int32_t rank;

	if (comm->abi->version > 3 || atomic_load_explicit(&comm->hash, memory_order_relaxed))
		return;
	memcpy(&rank, (const char *)descriptor + ABI_RANK, sizeof(rank));
	atomic_store_explicit(&comm->rank, rank, memory_order_relaxed);
	atomic_store_explicit(&comm->hash, e->hash, memory_order_release);
}

static void operation__note(struct comm *comm, void *context, const struct abi_event *e)
{
	struct note note = {
		.kind = NBP_KIND_OPERATION,
		.time_ns = now_ns(),
		.count = e->count,
		.number = atomic_fetch_add_explicit(&comm->operation_number, 1,
						    memory_order_relaxed) +
			  1,
		.sequence = e->sequence,
		.launch = thread.group.context == context ? thread.group.launch : 0,
		.group = thread.api.number,
		.root = e->root,
		.extra = e->channels == NBP_UNKNOWN ? UINT16_MAX : e->channels,
		.function = e->function,
		.datatype = e->datatype,
		.detail = e->algorithm << 4 | (e->protocol & 0xf),
	};

	note__push(comm, &note);
}

/* ---- launches ---- */

static void launch__drop(void)
{
	timing__drop(&thread.launch.timing);
	thread.launch.handle = NULL;
}

static uint8_t launch__capture(void)
{
	if (thread.launch.timing.timing == NBP_TIMED)
		return NBP_CAPTURED_NO;
	if (thread.launch.timing.timing == NBP_NOT_TIMED_CAPTURING)
		return NBP_CAPTURED_YES;
	if (!thread.api.called)
		return NBP_CAPTURED_UNKNOWN;
	return thread.api.captured ? NBP_CAPTURED_YES : NBP_CAPTURED_NO;
}

static void *launch__start(struct comm *comm, void *context, const void *descriptor)
{
	bool captured = thread.api.called && thread.api.captured;

	if (thread.launch.handle) { /* never stopped */
		comm__lost(comm, NBP_LOSS_BAD_CALLBACK);
		launch__drop();
	}
	memcpy(&thread.launch.stream, (const char *)descriptor + comm->abi->launch_stream,
	       sizeof(uint64_t));
	thread.launch.context = context;
	thread.launch.number =
		atomic_fetch_add_explicit(&comm->launch_number, 1, memory_order_relaxed) + 1;
	thread.launch.time_ns = now_ns();
	control__add(&nccl_bpftrace_control.n_launches, 1);
	timing__begin(comm, thread.launch.stream, captured, thread.launch.time_ns,
		      &thread.launch.timing);
	thread.launch.capture = launch__capture();
	return token__new(TOKEN_LAUNCH);
}

static void launch__stop(void)
{
	struct comm *comm = comm__get(thread.launch.context);
	struct launch_timing *timing = &thread.launch.timing;
	struct note note = {
		.kind = NBP_KIND_LAUNCH,
		.time_ns = thread.launch.time_ns,
		.number = thread.launch.number,
		.stream = thread.launch.stream,
		.datatype = thread.launch.capture,
	};

	if (!comm) { /* finalised between start and stop */
		control__lost(NBP_LOSS_STALE);
		launch__drop();
		return;
	}
	if (timing->timing == NBP_TIMED)
		timing__end(thread.launch.stream, timing);
	note.function = timing->timing;
	note.extra = timing->pair;
	if (!note__push(comm, &note) && timing->timing == NBP_TIMED)
		timing__give_back(timing->pair);
	thread.launched.context = thread.launch.context;
	thread.launched.number = thread.launch.number;
	thread.launch.handle = NULL;
}

/* ---- events ---- */

static void group__start(void *context)
{
	thread.group.context = context;
	thread.group.launch = thread.launched.context == context ? thread.launched.number : 0;
	thread.launched.context = NULL;
}

static void group_api__start(const struct comm *comm, const void *descriptor)
{
	if (!++thread.api.number)
		thread.api.number = 1;
	thread.api.called = false;
	memcpy(&thread.api.depth, (const char *)descriptor + comm->abi->group_depth,
	       sizeof(uint32_t));
}

/* Returns this plugin's handle for the event, or NULL. */
static void *event__note(struct comm *comm, void *context, uint64_t type, const void *descriptor)
{
	struct abi_event e = {0};

	switch (type) {
	case ABI_GROUP_API:
		group_api__start(comm, descriptor);
		return NULL;
	case ABI_COLL_API:
		abi__coll_api(comm->abi, descriptor, &e);
		api__note(comm, &e);
		return NULL;
	case ABI_P2P_API:
		abi__p2p_api(comm->abi, descriptor, &e);
		api__note(comm, &e);
		return NULL;
	case ABI_KERNEL_LAUNCH:
		return launch__start(comm, context, descriptor);
	case ABI_GROUP:
		group__start(context);
		return token__new(TOKEN_GROUP);
	case ABI_COLL:
		abi__coll(comm->abi, descriptor, &e);
		break;
	case ABI_P2P:
		abi__p2p(comm->abi, descriptor, &e);
		break;
	case ABI_CE_COLL:
		abi__ce_coll(comm->abi, descriptor, &e);
		break;
	default:
		return NULL; /* a chained plugin's */
	}
	comm__learn(comm, &e, descriptor);
	operation__note(comm, type == ABI_CE_COLL ? NULL : context, &e);
	return NULL;
}

static bool type__is_known(const struct abi_version *v, uint64_t type)
{
	return type && !(type & (type - 1)) && !(type & ~(uint64_t)v->known);
}

int callback__start(const struct abi_version *v, void *context, void **handle, void *descriptor)
{
	struct comm *comm = comm__get(context);
	void *ours = NULL;
	uint64_t type;
	int result;

	if (!handle || !descriptor || !comm || comm->abi != v) {
		control__lost(!handle || !descriptor || !context ? NBP_LOSS_BAD_CALLBACK
								 : NBP_LOSS_STALE);
		if (handle)
			*handle = NULL;
		return 0;
	}
	type = abi__type(v, descriptor);
	if (!type__is_known(v, type)) {
		comm__lost(comm, NBP_LOSS_UNKNOWN_TYPE);
		*handle = NULL;
		return 0;
	}
	if (atomic_load_explicit(&process.awake, memory_order_relaxed) &&
	    !atomic_load_explicit(&process.dead, memory_order_relaxed))
		ours = event__note(comm, context, type, descriptor);
	result = chain__start(comm, handle, descriptor, type, ours);
	if (ours && type == ABI_KERNEL_LAUNCH)
		thread.launch.handle = *handle;
	if (ours && type == ABI_GROUP)
		thread.group.handle = *handle;
	return result;
}

int callback__stop(const struct abi_version *v, void *handle)
{
	int result;

	if (!handle) {
		control__lost(NBP_LOSS_BAD_CALLBACK);
		return 0;
	}
	if (atomic_load_explicit(&process.dead, memory_order_relaxed)) {
		result = token__is_ours(handle) ? 0 : chain__stop(v, handle);
		return result < 0 ? 0 : result;
	}
	if (handle == thread.launch.handle) {
		launch__stop();
	} else if (handle == thread.group.handle) {
		thread.group.handle = thread.group.context = NULL;
	} else if (token__is(handle, TOKEN_GROUP) || token__is(handle, TOKEN_LAUNCH)) {
		control__lost(NBP_LOSS_UNKNOWN_STOP);
		return 0;
	}
	if (token__is_ours(handle))
		return 0;
	result = chain__stop(v, handle);
	if (result < 0) {
		control__lost(NBP_LOSS_UNKNOWN_STOP);
		result = 0;
	}
	return result;
}

int callback__record(const struct abi_version *v, void *handle, int state, void *arguments)
{
	int result = -1;

	if (!handle) {
		control__lost(NBP_LOSS_BAD_CALLBACK);
		return 0;
	}
	if (!token__is_ours(handle))
		result = chain__record(v, handle, state, arguments);
	if (result < 0) {
		control__lost(NBP_LOSS_UNKNOWN_STATE);
		result = 0;
	}
	return result;
}
