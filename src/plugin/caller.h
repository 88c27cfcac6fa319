/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is kept of a thread of NCCL's from one callback to the next. A plan is launched and its
 * operations started by one thread, one after the other: KernelLaunch start, stop, Group start,
 * Coll and P2p, Group stop. So what belongs together is found here. Work that NCCL defers to a CUDA
 * callback has another thread, and its launch is then not known.
 */
#ifndef NCCL_BPFTRACE_PLUGIN_CALLER_H
#define NCCL_BPFTRACE_PLUGIN_CALLER_H

#include "plugin.h"

/* What most callbacks need comes first, in three cache lines. */
struct caller {
	_Atomic uintptr_t thread; /* whose it is; 0: nobody's */
	uint32_t tid;
	struct {
		uint32_t number; /* 0: none yet */
		uint32_t depth;
		bool called; /* an API call was seen in it, so `captured` says something */
		bool captured;
		uint64_t time_ns; /* of the last API call, if one was seen */
	} api;
	struct {
		void *context; /* of the launch that ended last, until its Group comes */
		uint64_t number;
	} launched;
	bool owes; /* the note of launch.number, which goes with that of its first operation */

	_Alignas(64) struct abi_names names;

	struct {
		void *context;
		uint64_t launch, time_ns;
	} group;
	struct {
		void *handle; /* what NCCL was given; NULL: none under way */
		void *context;
		uint64_t number, time_ns, stream;
		struct launch_timing timing;
		uint8_t capture;
		bool copies; /* by copy engines: no Group follows, the operation is here */
		struct note operation; /* of copies */
	} launch;
	void *group_handle; /* what NCCL was given for the group; NULL: nothing */
	uint64_t tokens;    /* numbers given out */
};

_Static_assert(offsetof(struct caller, names) == 64 &&
		       offsetof(struct caller, launch.timing) <= 192,
	       "what most callbacks need");

/*
 * Thread-local storage, which for a library costs a call of the loader each time, stands behind a
 * table that is looked up by the thread's own address. A thread keeps its place until it ends.
 */
#define N_CALLERS 256

extern struct caller callers[N_CALLERS];

COLD struct caller *caller__find(struct caller *place, uintptr_t thread);

static inline struct caller *caller__get(void)
{
	uintptr_t thread = (uintptr_t)__builtin_thread_pointer();
	struct caller *place = &callers[(thread >> 6 ^ thread >> 14) % N_CALLERS];

	if (atomic_load_explicit(&place->thread, memory_order_relaxed) == thread)
		return place;
	return caller__find(place, thread);
}

/* Else the thread's end is not seen. */
static inline bool caller__is_in_table(const struct caller *caller)
{
	return atomic_load_explicit(&caller->thread, memory_order_relaxed);
}

static inline void *token__new(struct caller *caller, enum token_kind kind)
{
	return token__make(kind, (uint64_t)caller->tid << 20 ^ ++caller->tokens);
}

#endif
