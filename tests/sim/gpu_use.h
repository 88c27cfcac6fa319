/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What NCCL's progress thread can know of the simulated GPU. */
#ifndef SIM_GPU_USE_H
#define SIM_GPU_USE_H

#include "plan.h"

#define SIM_KEPT_TASKS 512

/* Start and end of a launch on the host's clock, 0 while not known. False: there is no GPU. */
bool sim_gpu_result(uint64_t launch, uint64_t ret_ns[2]);
/* The GPU's own timer at that time. */
uint64_t sim_gpu_clock(uint64_t host_ns);
/* Which part of [0, end_ns] one task of a plan takes. */
void sim_gpu_share(const struct plan *plan, size_t task, uint64_t end_ns, uint64_t ret_ns[2]);

#endif
