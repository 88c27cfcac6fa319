/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What NCCL calls. Of all event types few get a handle, as each is stopped by one more call: Group,
 * because NCCL <= 2.27 starts no operation without; KernelLaunch and CeColl where they are timed;
 * with NCCL's own GPU timer operations, their channels and, as NCCL numbers what is captured by it,
 * Group. A CollApi handle above all is never given: NCCL 2.28 to 2.30 goes
 * on stopping it for as long as the thread lives.
 */
#include "caller.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "timer.h"

static _Thread_local struct caller this_thread;

/* One look-up of thread-local storage for a callback, which in a library is a call. */
static struct caller *caller__get(void)
{
	struct caller *caller = &this_thread;

	if (!caller->tid)
		caller->tid = syscall(SYS_gettid);
	return caller;
}

/* ---- API calls ---- */

static void group_api__start(struct caller *caller, const struct comm *comm, const void *descriptor)
{
	if (!++caller->api.number)
		caller->api.number = 1;
	caller->api.called = false;
	memcpy(&caller->api.depth, (const char *)descriptor + comm->abi->group_depth,
	       sizeof(uint32_t));
}

static void api__note(struct caller *caller, struct comm *comm, const struct abi_event *e)
{
	struct note note = {
		.kind = NBP_KIND_API,
		.tid = caller->tid,
		.time_ns = now_ns(),
		.count = e->count,
		.number = atomic_fetch_add_explicit(&comm->api_number, 1, memory_order_relaxed) + 1,
		.stream = e->stream,
		.group = caller->api.number,
		.root = e->root,
		.extra = caller->api.depth,
		.function = e->function,
		.datatype = e->datatype,
		.detail = e->captured ? NBP_CAPTURED_YES : NBP_CAPTURED_NO,
	};

	caller->api.called = true;
	caller->api.captured = e->captured;
	if (!comm__note(comm, &note))
		counts__unseen(&comm->unseen, &note);
}

/* ---- operations ---- */

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

static struct note operation__note(const struct caller *caller, struct comm *comm,
				   const struct abi_event *e)
{
	uint64_t number =
		atomic_fetch_add_explicit(&comm->operation_number, 1, memory_order_relaxed) + 1;

	return (struct note){
		.kind = NBP_KIND_OPERATION,
		.tid = caller->tid,
		.count = e->count,
		.number = number,
		.sequence = e->sequence,
		.group = caller->api.number,
		.root = e->root,
		.extra = e->channels == NBP_UNKNOWN ? UINT16_MAX : e->channels,
		.function = e->function,
		.datatype = e->datatype,
		.detail = e->algorithm << 4 | (e->protocol & 0xf),
	};
}

/* Reading the clock is the dearest part of a callback: a plan's operations share its launch's. */
static void group__start(struct caller *caller, void *context)
{
	bool launched = caller->launched.context == context;

	caller->group.context = context;
	caller->group.launch = launched ? caller->launched.number : 0;
	caller->group.time_ns = launched ? caller->launch.time_ns : now_ns();
	caller->launched.context = NULL;
}

static void *operation__start(struct caller *caller, struct comm *comm, void *context,
			      const struct abi_event *e, const void *descriptor)
{
	bool grouped = caller->group.context == context;
	struct note note;

	comm__learn(comm, e, descriptor);
	note = operation__note(caller, comm, e);
	note.time_ns = grouped ? caller->group.time_ns : now_ns();
	note.launch = grouped ? caller->group.launch : 0;
	comm__note(comm, &note);
	return timer__is_on() ? timer__open(comm, context, &note) : NULL;
}

static void *copies__start(struct caller *caller, struct comm *comm, void *context,
			   const struct abi_event *e)
{
	const struct note operation = operation__note(caller, comm, e);

	return launch__start(caller, comm, context, e->stream, &operation);
}

/* ---- events ---- */

/* Returns this plugin's handle for the event, or NULL. */
static void *event__note(struct caller *caller, struct comm *comm, void *context, uint64_t type,
			 const void *descriptor)
{
	const struct abi_version *v = comm->abi;
	struct abi_event e = {0};
	uint64_t stream;

	abi_names__renew(&caller->names,
			 atomic_load_explicit(&process.n_inits, memory_order_relaxed));
	switch (type) {
	case ABI_GROUP_API:
		group_api__start(caller, comm, descriptor);
		return NULL;
	case ABI_COLL_API:
	case ABI_P2P_API:
		abi__api(v, type, descriptor, &caller->names, &e);
		api__note(caller, comm, &e);
		return NULL;
	case ABI_KERNEL_LAUNCH:
		memcpy(&stream, (const char *)descriptor + v->launch_stream, sizeof(stream));
		return launch__start(caller, comm, context, stream, NULL);
	case ABI_GROUP:
		group__start(caller, context);
		return v->version < 5 || timer__is_on() ? token__new(caller, TOKEN_GROUP) : NULL;
	case ABI_COLL:
	case ABI_P2P:
		abi__task(v, type, descriptor, &caller->names, &e);
		return operation__start(caller, comm, context, &e, descriptor);
	case ABI_CE_COLL:
		abi__ce_coll(v, descriptor, &caller->names, &e);
		return copies__start(caller, comm, context, &e);
	case ABI_KERNEL_CH:
		return v->channel_timer < 0 ? NULL : timer__start(comm, descriptor);
	default:
		return NULL; /* a chained plugin's */
	}
}

static bool type__is_known(const struct abi_version *v, uint64_t type)
{
	return type && !(type & (type - 1)) && !(type & ~(uint64_t)v->known);
}

/* The handle that NCCL is given may be a chained plugin's: it is by that that its stop is known. */
static int event__start(struct comm *comm, void *context, void **handle, void *descriptor,
			uint64_t type)
{
	struct caller *caller;
	void *ours;
	int result;

	if (!atomic_load_explicit(&process.awake, memory_order_relaxed))
		return chain__start(comm, handle, descriptor, type, NULL);
	caller = caller__get();
	ours = event__note(caller, comm, context, type, descriptor);
	result = chain__start(comm, handle, descriptor, type, ours);
	if (ours && type & (ABI_KERNEL_LAUNCH | ABI_CE_COLL))
		caller->launch.handle = *handle;
	if (ours && type == ABI_GROUP)
		caller->group.handle = *handle;
	return result;
}

int callback__start(const struct abi_version *v, void *context, void **handle, void *descriptor)
{
	struct comm *comm = comm__get(context);
	uint64_t type;

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
	return event__start(comm, context, handle, descriptor, type);
}

/* False: no handle of this plugin's that is still good. */
static bool event__stop(struct caller *caller, void *handle)
{
	if (handle == caller->launch.handle)
		launch__stop(caller);
	else if (handle == caller->group.handle)
		caller->group.handle = caller->group.context = NULL;
	else
		return timer__stop(handle);
	return true;
}

int callback__stop(const struct abi_version *v, void *handle)
{
	bool ours = token__is_ours(handle), known = true;
	int result = -1;

	if (!handle) {
		control__lost(NBP_LOSS_BAD_CALLBACK);
		return 0;
	}
	if (!atomic_load_explicit(&process.dead, memory_order_relaxed))
		known = event__stop(caller__get(), handle);
	if (!ours)
		result = chain__stop(v, handle);
	if (ours ? !known : result < 0)
		control__lost(NBP_LOSS_UNKNOWN_STOP);
	return result < 0 ? 0 : result;
}

int callback__record(const struct abi_version *v, void *handle, int state, void *arguments)
{
	int result = -1;

	if (!handle) {
		control__lost(NBP_LOSS_BAD_CALLBACK);
		return 0;
	}
	if (token__is_ours(handle))
		result = timer__record(v, handle, state, arguments) ? 0 : -1;
	else
		result = chain__record(v, handle, state, arguments);
	if (result < 0) {
		control__lost(NBP_LOSS_UNKNOWN_STATE);
		result = 0;
	}
	return result;
}
