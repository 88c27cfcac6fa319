/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "comm.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "timer.h"

struct comm comms_first[COMM_CHUNK];
_Atomic(struct comm *) comm_chunks[COMM_CHUNKS] = {comms_first};
static _Atomic uint64_t last_id;
static _Atomic uint32_t n_rings;

static struct comm *chunk__need(uint32_t i)
{
	struct comm *none = NULL, *chunk = atomic_load(&comm_chunks[i]);

	if (chunk)
		return chunk;
	chunk = aligned_alloc(_Alignof(struct comm), COMM_CHUNK * sizeof(*chunk));
	if (!chunk)
		return NULL;
	memset(chunk, 0, COMM_CHUNK * sizeof(*chunk));
	if (atomic_compare_exchange_strong(&comm_chunks[i], &none, chunk))
		return chunk;
	free(chunk);
	return none;
}

static struct comm *slot__take(void)
{
	for (uint32_t i = 0; i < COMM_CHUNKS; i++) {
		struct comm *chunk = chunk__need(i);

		for (uint32_t k = 0; chunk && k < COMM_CHUNK; k++) {
			uint32_t state = COMM_FREE;

			if (!atomic_compare_exchange_strong(&chunk[k].state, &state, COMM_SETUP))
				continue;
			chunk[k].index = i * COMM_CHUNK + k;
			return &chunk[k];
		}
	}
	return NULL;
}

struct comm *comm__create(const struct abi_version *abi)
{
	struct comm *comm = slot__take();

	if (!comm) {
		control__lost(NBP_LOSS_NO_COMM);
		return NULL;
	}
	comm->abi = abi;
	comm->id = atomic_fetch_add(&last_id, 1) + 1;
	comm->live_generation = atomic_load(&comm->generation);
	atomic_store(&comm->hash, 0);
	atomic_store(&comm->rank, NBP_NO_RANK);
	comm->n_ranks = 0;
	comm->n_nodes = NBP_UNKNOWN;
	memset(comm->name, 0, sizeof(comm->name));
	comm->chain_context = NULL;
	comm->chained = false;
	atomic_store(&comm->apart, false);
	atomic_store(&comm->api_number, 0);
	atomic_store(&comm->launch_number, 0);
	atomic_store(&comm->operation_number, 0);
	memset(&comm->told, 0, sizeof(comm->told));
	counts__reset(&comm->counts, &comm->unseen);
	atomic_store(&comm->gpu, 0);
	for (int i = 0; i < NBP_LOSS_MAX; i++)
		atomic_store(&comm->lost[i], 0);
	memset(&comm->told_losses, 0, sizeof(comm->told_losses));
	comm->ended = false;
	comm->announced_ns = comm->announced_hash = comm->announced_gpu = 0;
	comm->closing_since_ns = 0;
	comm->n_pending = 0;
	comm->done_launch = 0;
	memset(&comm->run, 0, sizeof(comm->run));
	comm->counted_launches = 0;
	atomic_store(&comm->timed_ns, 0);
	atomic_store(&comm->launched_ns, 0);
	memset(&comm->rate, 0, sizeof(comm->rate));
	atomic_store(&comm->has_channels, false);
	return comm;
}

/* From here on the thread and callbacks see it. */
void comm__publish(struct comm *comm)
{
	if (atomic_load(&process.awake))
		comm__need_ring(comm);
	__atomic_fetch_add(&nccl_bpftrace_control.n_comms, 1, __ATOMIC_RELAXED);
	atomic_store(&comm->state, COMM_LIVE);
	atomic_fetch_add(&process.n_inits,
			 1); /* NCCL's timer is off until there is room for this one */
}

void *comm__context(const struct comm *comm)
{
	return (void *)(uintptr_t)(TOKEN_TAG | (uint64_t)comm->live_generation << 16 | comm->index);
}

/* NCCL may be unloaded as soon as this returns: the thread must be done with its mask. */
static void mask__forget(struct comm *comm)
{
	atomic_store(&comm->mask, NULL);
	for (int i = 0; i < 1000 && atomic_load(&comm->mask_users); i++)
		sched_yield();
}

bool comm__close(struct comm *comm)
{
	uint32_t live = COMM_LIVE;

	if (!atomic_compare_exchange_strong(&comm->state, &live, COMM_CLOSING))
		return false;
	atomic_fetch_add(&comm->generation, 1);
	mask__forget(comm);
	__atomic_fetch_sub(&nccl_bpftrace_control.n_comms, 1, __ATOMIC_RELAXED);
	if (atomic_load(&process.dead))
		comm__free(comm);
	return true;
}

void comm__free(struct comm *comm)
{
	atomic_store(&comm->state, COMM_FREE);
}

/* Never freed: a slot keeps its ring for the next communicator. */
struct ring *comm__need_ring(struct comm *comm)
{
	struct ring *none = NULL, *ring = atomic_load(&comm->ring);
	uint32_t bits = atomic_load(&n_rings) < N_BIG_RINGS ? RING_BITS : RING_BITS_SMALL;

	if (ring)
		return ring;
	ring = mmap(NULL, ring__bytes(bits), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	if (ring == MAP_FAILED)
		return NULL;
	ring->bits = bits;
	if (!atomic_compare_exchange_strong(&comm->ring, &none, ring)) {
		munmap(ring, ring__bytes(bits));
		return none;
	}
	atomic_fetch_add(&n_rings, 1);
	return ring;
}

struct comm *comm__next(uint32_t *index)
{
	while (*index < COMM_SLOTS) {
		struct comm *chunk = atomic_load(&comm_chunks[*index / COMM_CHUNK]);
		struct comm *comm = chunk ? &chunk[*index % COMM_CHUNK] : NULL;

		if (!chunk)
			return NULL; /* chunks come in order */
		(*index)++;
		if (atomic_load(&comm->state) >= COMM_LIVE)
			return comm;
	}
	return NULL;
}

void comm__lost(struct comm *comm, enum nbp_loss reason)
{
	atomic_fetch_add_explicit(&comm->lost[reason], 1, memory_order_relaxed);
	control__add(&nccl_bpftrace_control.lost[reason], 1);
}

struct note *comm__place_again(struct comm *comm)
{
	struct ring *ring = atomic_load_explicit(&comm->ring, memory_order_acquire);
	enum ring_result result = RING_BUSY;
	struct note *cell = NULL;

	for (int i = 0; ring && i < RING_TRIES && result == RING_BUSY; i++)
		result = ring__try(ring, &cell);
	if (cell)
		return cell;
	comm__lost(comm, !ring		       ? NBP_LOSS_NOT_READY
			 : result == RING_FULL ? NBP_LOSS_RING_FULL
					       : NBP_LOSS_CONTENTION);
	return NULL;
}

bool comm__note(struct comm *comm, const struct note *note)
{
	struct note *cell = comm__place(comm);

	if (!cell)
		return false;
	note__copy(cell, note);
	comm__tell(comm, cell);
	return true;
}

int comm__mask(const struct comm *comm)
{
	if (!atomic_load(&process.awake))
		return 0;
	return comm->abi->mask | (timer__is_on() ? ABI_KERNEL_CH : 0);
}

/* The thread, and whoever makes a communicator. */
void comm__set_mask(struct comm *comm)
{
	int wanted = comm__mask(comm) | (comm->chained ? chain__mask(comm->abi) : 0);
	int *mask;

	atomic_fetch_add(&comm->mask_users, 1);
	mask = atomic_load(&comm->mask);
	if (mask && __atomic_load_n(mask, __ATOMIC_RELAXED) != wanted)
		__atomic_store_n(mask, wanted, __ATOMIC_RELAXED);
	atomic_fetch_sub(&comm->mask_users, 1);
}
