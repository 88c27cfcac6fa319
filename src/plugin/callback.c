/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What NCCL calls. Of all event types few get a handle, as each is stopped by one more call: Group,
 * because NCCL <= 2.27 starts no operation without; KernelLaunch and CeColl where they are timed;
 * with NCCL's own GPU timer operations, their channels and, as NCCL numbers what is captured by it,
 * Group. A CollApi handle above all is never given: NCCL 2.28 to 2.30 goes on stopping it for as
 * long as the thread lives.
 */
#include "abi_decode.h"
#include "joined.h"
#include "launch.h"
#include "timer.h"

/* ---- API calls ---- */

static void group_api__start(struct caller *caller, const struct group_api_v5 *d)
{
	launch__settle(caller);
	if (!++caller->api.number)
		caller->api.number = 1;
	caller->api.called = false;
	caller->api.depth = d->depth;
}

ABI_INLINE void api__fill(struct note *note, const struct caller *caller, struct comm *comm,
			  const struct abi_event *e)
{
	note->kind = NBP_KIND_API;
	note->tid = caller->tid;
	note->time_ns = caller->api.time_ns;
	note->count = e->count;
	note->number = comm__next_number(&comm->api_number);
	note->stream = e->stream;
	note->launch = 0;
	note->group = caller->api.number;
	note->root = e->root;
	note->extra = caller->api.depth;
	note->function = e->function;
	note->datatype = e->datatype;
	note->detail = e->captured ? NBP_CAPTURED_YES : NBP_CAPTURED_NO;
}

/* Numbered also where there is no place: what is missing shows. */
ABI_INLINE void api__start(struct caller *caller, struct comm *comm, uint64_t type,
			   const void *descriptor)
{
	struct note *place, spare;
	struct abi_event event, *e = &event;

	if (type == ABI_COLL_API)
		abi__coll_api(descriptor, &caller->names, e);
	else
		abi__p2p_api(descriptor, &caller->names, e);
	caller->api.called = true;
	caller->api.captured = e->captured;
	caller->api.time_ns = ticks__now_ns();
	place = comm__place(comm);
	api__fill(place ?: &spare, caller, comm, e);
	if (place)
		comm__tell(comm, place);
	else
		counts__unseen(&comm->unseen, &spare);
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

ABI_INLINE void operation__fill(struct note *note, const struct caller *caller, struct comm *comm,
				void *context, const struct abi_event *e)
{
	bool grouped = caller->group.context == context;

	note->kind = NBP_KIND_OPERATION;
	note->tid = caller->tid;
	note->time_ns = grouped ? caller->group.time_ns : ticks__now_ns();
	note->launch = grouped ? caller->group.launch : 0;
	note->count = e->count;
	note->number =
		atomic_fetch_add_explicit(&comm->operation_number, 1, memory_order_relaxed) + 1;
	note->sequence = e->sequence;
	note->group = caller->api.number;
	note->root = e->root;
	note->extra = e->channels == NBP_UNKNOWN ? UINT16_MAX : e->channels;
	note->function = e->function;
	note->datatype = e->datatype;
	note->detail = e->algorithm << 4 | (e->protocol & 0xf);
	/* not of a graph's replay, which some ranks are not told of */
	if (e->sequence != NBP_NO_NUMBER && note->launch)
		sample__operation(&comm->sample, e->sequence, e->function);
}

/* Reading the clock is the dearest part of a callback: a plan's operations share its launch's. */
static void group__start(struct caller *caller, void *context)
{
	bool launched = caller->launched.context == context;

	if (!launched)
		launch__settle(caller);
	caller->group.context = context;
	caller->group.launch = launched ? caller->launched.number : 0;
	caller->group.time_ns = launched ? caller->launch.time_ns : ticks__now_ns();
	caller->launched.context = NULL;
}

ABI_INLINE void operation__note(struct caller *caller, struct comm *comm, void *context,
				const struct abi_event *e)
{
	bool joined = caller->owes && caller->launch.context == context &&
		      caller->group.context == context &&
		      caller->group.launch == caller->launch.number;
	struct note *place, spare;

	if (!joined)
		launch__settle(caller);
	place = comm__place(comm);
	operation__fill(place ?: &spare, caller, comm, context, e);
	if (!place) {
		if (joined)
			launch__pay(caller);
		return;
	}
	if (joined) {
		note__join(place, caller->launch.stream);
		caller->owes = false;
	}
	comm__tell(comm, place);
}

/* With NCCL's own timer, or before v4. */
static __attribute__((noinline)) void *operation__open(struct caller *caller, struct comm *comm,
						       void *context, uint64_t type,
						       const void *descriptor)
{
	struct abi_event e = {0};
	struct note note;

	launch__settle(caller);
	abi__task(comm->abi, type, descriptor, &caller->names, &e);
	comm__learn(comm, &e, descriptor);
	operation__fill(&note, caller, comm, context, &e);
	comm__note(comm, &note);
	return timer__is_on() ? timer__open(comm, context, &note) : NULL;
}

ABI_INLINE void *operation__start(struct caller *caller, struct comm *comm, void *context,
				  uint64_t type, const void *descriptor, bool from_v5)
{
	struct abi_event e;

	if ((!from_v5 && comm->abi->version < 4) || timer__is_on())
		return operation__open(caller, comm, context, type, descriptor);
	if (type == ABI_COLL)
		abi__coll(descriptor, &caller->names, &e);
	else
		abi__p2p(descriptor, &caller->names, &e);
	operation__note(caller, comm, context, &e);
	return NULL;
}

static COLD void *copies__start(struct caller *caller, struct comm *comm, void *context,
				const void *descriptor)
{
	struct abi_event e;
	struct note operation;

	abi__ce_coll(descriptor, &caller->names, &e);
	operation__fill(&operation, caller, comm, context, &e);
	sample__operation(&comm->sample, e.sequence, e.function);
	return launch__start(caller, comm, context, e.stream, sample__choose(&comm->sample),
			     &operation);
}

ABI_INLINE void *kernel__start(struct caller *caller, struct comm *comm, void *context,
			       const struct kernel_launch_v5 *d)
{
	uint64_t stream = (uintptr_t)d->stream;
	struct choice choice = sample__choose(&comm->sample);

	if (!launch__is_untimed(caller, comm, choice.chosen))
		return launch__start(caller, comm, context, stream, choice, NULL);
	launch__pass(caller, comm, context, stream);
	return NULL;
}

/* ---- events ---- */

static __attribute__((noinline)) void *rare__note(struct caller *caller, struct comm *comm,
						  void *context, uint64_t type,
						  const void *descriptor)
{
	switch (type) {
	case ABI_P2P:
		return operation__start(caller, comm, context, type, descriptor, false);
	case ABI_P2P_API:
		api__start(caller, comm, type, descriptor);
		return NULL;
	case ABI_CE_COLL:
		return copies__start(caller, comm, context, descriptor);
	case ABI_KERNEL_CH:
		return comm->abi->channel_timer < 0 ? NULL : timer__start(comm, descriptor);
	default:
		return NULL; /* a chained plugin's */
	}
}

/*
 * Returns this plugin's handle for the event, or NULL. By comparisons and for v5 on its own, which
 * is less to fetch than a table of jumps and one of versions.
 */
ABI_INLINE void *event__note(struct caller *caller, struct comm *comm, void *context, uint64_t type,
			     const void *descriptor, bool from_v5)
{
	abi_names__renew(&caller->names,
			 atomic_load_explicit(&process.n_inits, memory_order_relaxed));
	if (!(type & (ABI_GROUP | ABI_COLL | ABI_P2P)))
		launch__settle(caller);
	if (type == ABI_COLL)
		return operation__start(caller, comm, context, type, descriptor, from_v5);
	if (from_v5 && type == ABI_KERNEL_LAUNCH)
		return kernel__start(caller, comm, context, descriptor);
	if (type == ABI_GROUP) {
		group__start(caller, context);
		return !from_v5 || timer__is_on() ? token__new(caller, TOKEN_GROUP) : NULL;
	}
	if (from_v5 && type == ABI_COLL_API) {
		api__start(caller, comm, type, descriptor);
		return NULL;
	}
	if (from_v5 && type == ABI_GROUP_API) {
		group_api__start(caller, descriptor);
		return NULL;
	}
	return rare__note(caller, comm, context, type, descriptor);
}

/* The handle that NCCL is given may be a chained plugin's: it is by that that its stop is known. */
ABI_INLINE int event__start(struct comm *comm, void *context, void **handle, void *descriptor,
			    uint64_t type, bool from_v5)
{
	struct caller *caller;
	int result = 0;
	void *ours;

	if (!atomic_load_explicit(&process.awake, memory_order_relaxed))
		return chain__start(comm, handle, descriptor, type, NULL);
	caller = caller__get();
	ours = event__note(caller, comm, context, type, descriptor, from_v5);
	if (comm->chained)
		result = chain__start(comm, handle, descriptor, type, ours);
	else
		*handle = ours;
	if (ours && type & (ABI_KERNEL_LAUNCH | ABI_CE_COLL))
		caller->launch.handle = *handle;
	if (ours && type == ABI_GROUP)
		caller->group_handle = *handle;
	return result;
}

static COLD int callback__refuse(void *context, void **handle, const void *descriptor)
{
	control__lost(!handle || !descriptor || !context ? NBP_LOSS_BAD_CALLBACK : NBP_LOSS_STALE);
	if (handle)
		*handle = NULL;
	return 0;
}

static COLD int callback__refuse_type(struct comm *comm, void **handle)
{
	comm__lost(comm, NBP_LOSS_UNKNOWN_TYPE);
	*handle = NULL;
	return 0;
}

/* types: of which it is to be one */
static inline bool type__is_of(uint64_t type, uint32_t types)
{
	return type && !(type & (type - 1)) && !(type & ~(uint64_t)types);
}

/*
 * What only the thread is told of, where no other plugin wants it: no communicator is looked for.
 * False: it is not that.
 */
ABI_INLINE bool group__note(void *context, uint64_t type, const void *descriptor)
{
	struct caller *caller;

	if ((type != ABI_GROUP && type != ABI_GROUP_API) || timer__is_on() ||
	    !atomic_load_explicit(&process.awake, memory_order_relaxed) ||
	    atomic_load_explicit(&process.chained, memory_order_relaxed))
		return false;
	caller = caller__get();
	if (type == ABI_GROUP)
		group__start(caller, context);
	else
		group_api__start(caller, descriptor);
	return true;
}

ABI_INLINE int start(const struct abi_version *v, void *context, void **handle, void *descriptor,
		     bool from_v5)
{
	struct comm *comm;
	uint64_t type;

	if (!handle || !descriptor)
		return callback__refuse(context, handle, descriptor);
	type = from_v5 ? *(const uint64_t *)descriptor : abi__type(v, descriptor);
	if (from_v5 && group__note(context, type, descriptor)) {
		*handle = NULL;
		return 0;
	}
	comm = comm__get(context);
	if (!comm || comm->abi != v)
		return callback__refuse(context, handle, descriptor);
	if (!(from_v5 && type__is_of(type, ABI_USUAL)) && !type__is_of(type, v->known))
		return callback__refuse_type(comm, handle);
	return event__start(comm, context, handle, descriptor, type, from_v5);
}

int callback__start(const struct abi_version *v, void *context, void **handle, void *descriptor)
{
	return start(v, context, handle, descriptor, false);
}

int callback__start_v5(const struct abi_version *v, void *context, void **handle, void *descriptor)
{
	return start(v, context, handle, descriptor, true);
}

/* False: no handle of this plugin's that is still good. */
static bool event__stop(struct caller *caller, void *handle)
{
	if (handle == caller->launch.handle)
		launch__stop(caller);
	else if (handle == caller->group_handle)
		caller->group_handle = caller->group.context = NULL;
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
