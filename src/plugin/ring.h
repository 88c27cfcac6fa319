/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bounded ring of notes: any thread writes, one reads. A cell's turn says who may have it: twice
 * the laps done, a writer; one more, the reader. Zeroed memory is an empty ring.
 */
#ifndef NCCL_BPFTRACE_PLUGIN_RING_H
#define NCCL_BPFTRACE_PLUGIN_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_BITS	13 /* cells: 20 ms at 10 us an operation take 4000 to 6000 */
#define RING_BITS_SMALL 10 /* of those that are not the first N_BIG_RINGS */
#define N_BIG_RINGS	32
#define RING_TRIES	16 /* where others are faster */
#define RING_AHEAD	4  /* cells that are fetched ahead: the reader's core has them */

struct note {
	_Atomic uint32_t turn; /* the ring's */
	uint32_t group;	       /* of an operation, of an API call */
	uint64_t time_ns;
	uint64_t count;	 /* of a timer gpu_first_ns */
	uint64_t number; /* of its kind, per communicator; see joined.h */
	union {
		uint64_t stream;   /* of an API call, of a launch */
		uint64_t sequence; /* of an operation, of a timer: NCCL's */
	};
	uint64_t launch; /* of an operation; of a timer gpu_last_ns; see joined.h */
	uint32_t tid;
	int32_t root;
	uint16_t generation;
	uint16_t extra; /* of an operation its channels, of an API call the group's depth, of a
			   launch its pair of events, of a timer n_channels << 8 | n_expected */
	uint8_t kind;
	uint8_t function; /* of a launch: enum nbp_timing */
	uint8_t datatype; /* of a launch: enum nbp_capture */
	uint8_t detail; /* of an operation algorithm << 4 | protocol, of an API call the capture, of
			   a launch whether it is timed for a pause alone */
};

_Static_assert(sizeof(struct note) == 64, "one cache line");

struct ring {
	_Alignas(64) _Atomic uint64_t head;
	uint32_t bits; /* 1 << bits cells */
	_Alignas(64) uint64_t tail;
	_Alignas(64) struct note cells[];
};

static inline size_t ring__bytes(uint32_t bits)
{
	return sizeof(struct ring) + (sizeof(struct note) << bits);
}

/* What a communicator costs once its process was traced, beside its slot. */
_Static_assert(sizeof(struct ring) + (sizeof(struct note) << RING_BITS) <= 513 * 1024,
	       "first ones");
_Static_assert(sizeof(struct ring) + (sizeof(struct note) << RING_BITS_SMALL) <= 65 * 1024,
	       "others");

enum ring_result {
	RING_OK,
	RING_FULL,
	RING_BUSY, /* another was faster */
};

static inline void note__copy(struct note *to, const struct note *from)
{
	to->time_ns = from->time_ns;
	to->group = from->group;
	to->count = from->count;
	to->number = from->number;
	to->stream = from->stream;
	to->launch = from->launch;
	to->tid = from->tid;
	to->root = from->root;
	to->generation = from->generation;
	to->extra = from->extra;
	to->kind = from->kind;
	to->function = from->function;
	to->datatype = from->datatype;
	to->detail = from->detail;
}

/*
 * With RING_OK *ret_cell is the caller's to write: all of it but the turn, and then
 * note__publish(). Until then the reader waits there.
 */
static inline enum ring_result ring__try(struct ring *ring, struct note **ret_cell)
{
	uint64_t at = atomic_load_explicit(&ring->head, memory_order_relaxed);
	uint64_t mask = (1ULL << ring->bits) - 1;
	struct note *cell = &ring->cells[at & mask];
	uint32_t turn = atomic_load_explicit(&cell->turn, memory_order_acquire);
	uint32_t mine = 2 * (uint32_t)(at >> ring->bits);

	if (turn != mine)
		return (int32_t)(turn - mine) < 0 ? RING_FULL : RING_BUSY;
	if (!atomic_compare_exchange_strong_explicit(&ring->head, &at, at + 1, memory_order_relaxed,
						     memory_order_relaxed))
		return RING_BUSY;
	__builtin_prefetch(&ring->cells[(at + RING_AHEAD) & mask], 1);
	*ret_cell = cell;
	return RING_OK;
}

static inline void note__publish(struct note *cell)
{
	uint32_t turn = atomic_load_explicit(&cell->turn, memory_order_relaxed);

	atomic_store_explicit(&cell->turn, turn + 1, memory_order_release);
}

/* Not from two threads at once. */
static inline bool ring__pop(struct ring *ring, struct note *ret)
{
	struct note *cell = &ring->cells[ring->tail & ((1ULL << ring->bits) - 1)];
	uint32_t theirs = 2 * (uint32_t)(ring->tail >> ring->bits) + 1;

	if (atomic_load_explicit(&cell->turn, memory_order_acquire) != theirs)
		return false;
	note__copy(ret, cell);
	atomic_store_explicit(&cell->turn, theirs + 1, memory_order_release);
	ring->tail++;
	return true;
}

#endif
