/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What every callback does with its communicator: inline, for little of it is in a cache by then.
 */
#ifndef NCCL_BPFTRACE_PLUGIN_COMM_H
#define NCCL_BPFTRACE_PLUGIN_COMM_H

#include "plugin.h"
#include "ticks.h"

extern struct comm comms_first[COMM_CHUNK]; /* the first chunk: found without a look */
extern _Atomic(struct comm *) comm_chunks[COMM_CHUNKS];

/* NULL: none, or finalised */
static inline struct comm *comm__get(void *context)
{
	uint64_t token = (uint64_t)(uintptr_t)context;
	uint32_t index = token & 0xffff;
	struct comm *comm;

	if (!token__is_ours(context) || index >= COMM_SLOTS)
		return NULL;
	comm = index < COMM_CHUNK ? comms_first
				  : atomic_load_explicit(&comm_chunks[index / COMM_CHUNK],
							 memory_order_acquire);
	if (!comm)
		return NULL;
	comm += index % COMM_CHUNK;
	if (atomic_load_explicit(&comm->generation, memory_order_acquire) !=
		    (uint32_t)(token >> 16) ||
	    atomic_load_explicit(&comm->state, memory_order_acquire) != COMM_LIVE)
		return NULL;
	return comm;
}

/*
 * Where the next note goes, to be written there and then told: every member that note__copy()
 * knows but the generation. NULL: nowhere, which is counted.
 */
static inline struct note *comm__place(struct comm *comm)
{
	struct ring *ring = atomic_load_explicit(&comm->ring, memory_order_acquire);
	struct note *cell;

	return ring && ring__try(ring, &cell) == RING_OK ? cell : comm__place_again(comm);
}

/*
 * Of an API call or a launch, which NCCL allows one thread at a time: no locked instruction. (Of
 * operations it may tell from two, see caller.h.)
 */
static inline uint64_t comm__next_number(_Atomic uint64_t *last)
{
	uint64_t number = atomic_load_explicit(last, memory_order_relaxed) + 1;

	atomic_store_explicit(last, number, memory_order_relaxed);
	return number;
}

static inline void comm__tell(const struct comm *comm, struct note *cell)
{
	cell->generation = (uint16_t)comm->live_generation;
	note__publish(cell);
}

#endif
