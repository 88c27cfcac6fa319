/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NCCL's side of profiler plugins: finding one, the life of its communicators, its activation
 * mask. As in NCCL there is one plugin, one mask and one verdict on loading for the process.
 */
#ifndef SIM_PROFILER_H
#define SIM_PROFILER_H

#include "event.h"
#include "lib.h"

/* When a communicator comes and goes. */
void profiler_comm_init(struct sim_comm *comm);
void profiler_comm_finalize(struct sim_comm *comm);

/* The bits that the plugin asks for at this moment; 0 without a plugin. */
int profiler_mask(void);

/* NULL-safe, and without a plugin nothing. *handle stays as it is when the ABI lacks the event. */
void profiler_start(const struct sim_comm *comm, void **handle, const struct sim_event *event);
void profiler_stop(void *handle);
void profiler_record(void *handle, enum sim_state state, uint64_t timer);

#endif
