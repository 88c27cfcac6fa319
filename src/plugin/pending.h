/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Timed launches whose end has not been seen. The plugin's thread only. */
#ifndef NCCL_BPFTRACE_PLUGIN_PENDING_H
#define NCCL_BPFTRACE_PLUGIN_PENDING_H

#include "record.h"

/* A round of the plugin's thread. */
struct round {
	struct batch *batch;
	uint64_t number, now_ns;
};

void pending__launch(struct comm *comm, const struct note *launch, uint64_t round);
void pending__drop(const struct note *note); /* of nobody */
void pending__operation(const struct comm *comm, const struct note *operation);
void pending__poll(const struct round *round);
void pending__tell_again(void); /* a tracer that has just come knows of none */
bool pending__any(void);

#endif
