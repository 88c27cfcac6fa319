/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The simulated GPUs, in memory shared by all ranks: each rank has one. Streams are queues of
 * commands that libcuda's stand-in (cuda_*.c) fills; the engine, a thread of the driver's own
 * process (gpu_engine.c), works them off in virtual time and so goes on when a rank is stopped.
 * All times are the host's CLOCK_MONOTONIC in nanoseconds.
 */
#ifndef SIM_GPU_H
#define SIM_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "names.h"
#include "shared.h"

#define GPU_MAX_STREAMS 8 /* of a rank; stream 0 is the legacy one */
#define GPU_STREAM_COMMANDS 1024 /* a launch waits while so many are under way, as CUDA's does */
#define GPU_STREAM_OPS 8192
#define GPU_MAX_EVENTS 4096 /* of a rank */
#define GPU_RESULTS 8192 /* of a rank, the latest */
#define GPU_NO_SEQUENCE UINT64_MAX
#define GPU_FOREVER UINT64_MAX

/* One operation of a kernel of NCCL. */
struct gpu_op {
	uint64_t count; /* as NCCL executes it: AllGather and Broadcast in bytes */
	uint64_t bytes;
	uint64_t sequence; /* NCCL's, GPU_NO_SEQUENCE where it has none */
	int32_t root; /* or peer */
	uint8_t func, datatype, algorithm, protocol, n_channels;
	uint8_t pad[7];
};

/* What a kernel of NCCL is to do. */
struct gpu_kernel {
	uint64_t comm_hash;
	int32_t rank, n_ranks, n_nodes;
	uint32_t n_ops;
	const struct gpu_op *ops;
};

enum gpu_command_kind { GPU_KERNEL, GPU_COMPUTE, GPU_EVENT };

struct gpu_command {
	uint8_t kind;
	bool replay; /* of a graph */
	uint32_t n_ops; /* GPU_KERNEL: so many, next in the stream's ops */
	uint64_t host_ns; /* when it was submitted */
	uint64_t launch; /* GPU_KERNEL: running number of the rank, from 1 */
	uint64_t comm_hash;
	int32_t rank, n_ranks, n_nodes;
	uint32_t event; /* GPU_EVENT */
	uint64_t record; /* GPU_EVENT: which recording of it */
	uint64_t duration_ns; /* GPU_COMPUTE; GPU_FOREVER: until the GPU is told to be well */
};

/* Counters only grow; a position is the counter modulo the capacity. */
struct gpu_stream {
	uint64_t submitted, ops_submitted; /* the rank's */
	uint64_t consumed, ops_consumed; /* the engine's */
	uint64_t free_ns; /* when all that was consumed is done; the engine's while work is left */
	struct gpu_command command[GPU_STREAM_COMMANDS];
	struct gpu_op op[GPU_STREAM_OPS];
};

struct gpu_event {
	uint64_t completed; /* the recording that done_ns belongs to */
	uint64_t done_ns;
};

/* Written start first, then end; launch tells whose it is. */
struct gpu_result {
	uint64_t launch;
	uint64_t start_ns, end_ns; /* 0: not known yet */
};

struct gpu_rank {
	uint32_t n_streams;
	uint32_t gone; /* its process has ended */
	uint32_t hang; /* the next kernel of NCCL does not begin */
	uint64_t well_ns; /* when it was last told to be well */
	uint32_t slow_permille, link_permille; /* how much longer work takes; 0: as ever */
	uint32_t captures_broken;
	uint64_t n_launches;
	struct gpu_stream stream[GPU_MAX_STREAMS];
	struct gpu_event event[GPU_MAX_EVENTS];
	struct gpu_result result[GPU_RESULTS];
};

struct gpu_shared {
	uint32_t doorbell; /* futex: rises with each submission */
	uint32_t sleeping; /* the engine waits for it */
	uint32_t progress; /* futex: rises when the engine has done something */
	uint32_t waiters; /* for that */
	const uint32_t *stop; /* the word that ends the job */
	struct gpu_rank rank[];
};

/* The clock that a GPU's own timer shows: another one than the host's, and each GPU's its own. */
static inline uint64_t gpu_clock(int world_rank, uint64_t host_ns)
{
	return host_ns + UINT64_C(1700000000000000000) + (uint64_t)world_rank * 987654321;
}

static inline bool gpu_op_is_p2p(const struct gpu_op *op)
{
	return op->func == FUNC_SEND || op->func == FUNC_RECV;
}

/*
 * Operations of one kernel follow one another, each as long as its bytes ask for; sends and
 * receives all run at once.
 */
static inline void gpu_op_share(const struct gpu_op *ops, uint32_t n, uint32_t which,
				uint64_t start_ns, uint64_t end_ns, uint64_t ret_ns[2])
{
	double before = 0, own = 0, all = 0;

	ret_ns[0] = start_ns;
	ret_ns[1] = end_ns;
	for (uint32_t i = 0; i < n; i++) {
		double weight = gpu_op_is_p2p(&ops[i]) ? 0 : 1e4 + (double)ops[i].bytes;

		if (i < which)
			before += weight;
		if (i == which)
			own = weight;
		all += weight;
	}
	if (gpu_op_is_p2p(&ops[which]) || before + own == 0)
		return;
	ret_ns[0] += (uint64_t)((double)(end_ns - start_ns) * before / all);
	if (before + own < all)
		ret_ns[1] = start_ns + (uint64_t)((double)(end_ns - start_ns) *
						  (before + own) / all);
}

static inline void gpu_ring(struct gpu_shared *shared)
{
	__atomic_add_fetch(&shared->doorbell, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&shared->sleeping, __ATOMIC_SEQ_CST))
		sim_futex_wake(&shared->doorbell);
}

#endif
