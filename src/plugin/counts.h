/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How often each collective was called, for struct nbp_counts. Calls that become records are
 * summed by the plugin's thread as it reads their notes; only those that find no place in a ring
 * are summed where they happen.
 */
#ifndef NCCL_BPFTRACE_PLUGIN_COUNTS_H
#define NCCL_BPFTRACE_PLUGIN_COUNTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "nccl_bpftrace_plugin.h"
#include "ring.h"

struct counts { /* the thread's own */
	struct nbp_count told[NBP_N_COUNTED];
	uint64_t reported_unseen;
	bool due;
};

struct counts_unseen { /* any thread's */
	struct {
		_Atomic uint64_t calls, bytes;
	} function[NBP_N_COUNTED];
	_Atomic uint64_t calls; /* of all: raised last */
};

static inline void counts__reset(struct counts *counts, struct counts_unseen *unseen)
{
	memset(counts, 0, sizeof(*counts));
	memset(unseen, 0, sizeof(*unseen)); /* the slot is nobody's */
}

static inline bool counts__counts(const struct note *note)
{
	return note->kind == NBP_KIND_API && note->function < NBP_N_COUNTED;
}

/* nccl.h: int8 uint8 int32 uint32 int64 uint64 fp16 fp32 fp64 bf16 e4m3 e5m2 */
static inline uint64_t note__bytes(const struct note *note)
{
	static const uint8_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
	/* NCCL has checked the type, and ncclUint8 is the one that it does not name */
	uint64_t size = note->datatype == NBP_UNKNOWN_U8 ? 1
			: note->datatype < sizeof(sizes) ? sizes[note->datatype]
							 : 0;

	/* as the agent's probes count: what cannot be is no bytes */
	return size && note->count <= (1ULL << 56) / size ? note->count * size : 0;
}

static inline void counts__told(struct counts *counts, const struct note *note)
{
	if (!counts__counts(note))
		return;
	counts->told[note->function].calls++;
	counts->told[note->function].bytes += note__bytes(note);
	counts->due = true;
}

static inline void counts__unseen(struct counts_unseen *unseen, const struct note *note)
{
	if (!counts__counts(note))
		return;
	atomic_fetch_add_explicit(&unseen->function[note->function].calls, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&unseen->function[note->function].bytes, note__bytes(note),
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&unseen->calls, 1, memory_order_release);
}

/* True: they are to be told now, and are taken as told. */
static inline bool counts__changed(struct counts *counts, struct counts_unseen *unseen)
{
	uint64_t n = atomic_load_explicit(&unseen->calls, memory_order_acquire);
	bool changed = counts->due || counts->reported_unseen != n;

	counts->due = false;
	counts->reported_unseen = n;
	return changed;
}

static inline void counts__fill(const struct counts *counts, const struct counts_unseen *unseen,
				struct nbp_counts *ret)
{
	ret->unseen = counts->reported_unseen;
	for (int i = 0; i < NBP_N_COUNTED; i++) {
		ret->function[i].calls =
			counts->told[i].calls +
			atomic_load_explicit(&unseen->function[i].calls, memory_order_relaxed);
		ret->function[i].bytes =
			counts->told[i].bytes +
			atomic_load_explicit(&unseen->function[i].bytes, memory_order_relaxed);
	}
}

#endif
