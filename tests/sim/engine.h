/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The engine of the simulated GPUs: a thread of the driver's process. A kernel of NCCL begins when
 * its rank has launched it and its stream is free, as on a GPU: it then waits there for the other
 * ranks' kernels, and all end together, a modelled time after the last has begun. So the ranks that
 * come early have the long kernels. The model's time does not claim to be any real NCCL's.
 */
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include <stdio.h>
#include <sys/types.h>

#include "gpu.h"

struct gpu_model {
	double latency_us, bandwidth, network_bandwidth; /* GB/s of bus bandwidth */
	double jitter; /* share of a kernel's time, either way */
	uint64_t seed;
};

struct engine;

/* pids: of the ranks; all live until engine_stop(). truth: NULL, or where kernels are told of. */
int engine_start(struct engine **ret, struct gpu_shared *shared, const struct gpu_model *model,
		 const pid_t *pids, int n_ranks, FILE *truth);
void engine_stop(struct engine *engine); /* NULL is fine */

/* engine_model.c: what crosses the bus, by nccl-tests; how long a kernel works. */
double model_bus_bytes(const struct gpu_op *op, int32_t n_ranks);

struct kernel_load {
	double collective_bytes, sent_bytes, received_bytes; /* bus bytes */
	double slow, link; /* factors of the slowest taking part */
	bool network;
	uint64_t number; /* of the kernel, the same on all ranks */
};
/* From 0 to 1, always the same for one number. */
double model_chance(uint64_t seed, uint64_t number);
uint64_t model_duration_ns(const struct gpu_model *model, const struct kernel_load *load);

/* engine_truth.c: one line for each operation of a kernel that has ended. */
struct kernel_times {
	uint64_t launch, host_ns, start_ns, end_ns;
	bool replay;
};
void truth_print(FILE *file, pid_t pid, const struct gpu_command *command,
		 const struct gpu_op *ops, const struct kernel_times *times);

#endif
