/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Launches as the timing module would hand them out, made by hand. */
#ifndef NCCL_BPFTRACE_TESTS_UNIT_LAUNCH_H
#define NCCL_BPFTRACE_TESTS_UNIT_LAUNCH_H

#include "../../src/timing.h"

#include <string.h>

#define LAUNCH_TGID 4242

static inline struct timing_comm launch_comm(int32_t n_ranks, uint32_t n_nodes, const char *name)
{
	struct timing_comm comm = {
		.key = {.id = 1, .tgid = LAUNCH_TGID},
		.hash = 0x1122334455667788,
		.rank = 2,
		.n_ranks = n_ranks,
		.n_nodes = n_nodes,
		.abi = 5,
		.uuid = "GPU-00112233-4455-6677-8899-aabbccddeeff",
	};

	snprintf(comm.name, sizeof(comm.name), "%s", name);
	return comm;
}

static inline struct timing_operation launch_operation(enum nccl_operation operation,
						       uint64_t count, uint32_t type_bytes)
{
	return (struct timing_operation){
		.number = 17,
		.sequence = 40,
		.count = count,
		.call_ns = 1000000000,
		.operation = operation,
		.type_bytes = type_bytes,
		.datatype = 7,
		.root = -1,
		.n_channels = 8,
		.algorithm = NBP_RING,
		.protocol = NBP_LL128,
	};
}

/* A timed launch of operations that are all described. */
static inline struct timing_launch launch_of(const struct timing_comm *comm,
					     const struct timing_operation *operations, uint32_t n,
					     uint64_t duration_ns)
{
	return (struct timing_launch){
		.comm = comm,
		.number = 5,
		.stream = 0x7f00,
		.launch_ns = 1000002000,
		.gpu_start_ns = 1000010000,
		.gpu_end_ns = 1000010000 + duration_ns,
		.duration_ns = duration_ns,
		.clock_error_ns = 900,
		.timing = NBP_TIMED,
		.source = NBP_SOURCE_CUDA_EVENT,
		.capture = NBP_CAPTURED_NO,
		.n_operations = n,
		.n_described = n,
		.operations = operations,
		.complete = true,
		.form = TIMING_ONE,
		.operation = operations[0].operation,
	};
}

#endif
