/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Notes and what became of them, as the records that the agent gets. */
#ifndef NCCL_BPFTRACE_PLUGIN_RECORD_H
#define NCCL_BPFTRACE_PLUGIN_RECORD_H

#include "plugin.h"

struct batch {
	struct nbp_record records[NBP_MAX_BATCH];
	uint32_t n;
	bool wanted; /* else all is thrown away: nobody listens */
};

void batch__comm(struct batch *batch, const struct comm *comm, int32_t device, const uint8_t *uuid);
void batch__note(struct batch *batch, const struct comm *comm, const struct note *note);
void batch__counts(struct batch *batch, const struct comm *comm, uint64_t read_ns);
/* times: NULL when the end was not seen */
void batch__finished(struct batch *batch, const struct comm *comm, const struct note *note,
		     const struct timing_times *times, uint32_t n_operations);
/* A launch that is not done. */
struct under_way {
	bool started;
	uint8_t function; /* of its first operation; NBP_UNKNOWN_U8 */
	uint64_t sequence;
	uint64_t done;		   /* number of the last launch that is */
	struct timing_times times; /* start_ns, clock_error_ns */
};
void batch__under_way(struct batch *batch, const struct comm *comm, const struct note *note,
		      const struct under_way *under_way);
void batch__end(struct batch *batch, const struct comm *comm, uint64_t time_ns);
/* comm: NULL for what belongs to none */
void batch__loss(struct batch *batch, const struct comm *comm, enum nbp_loss reason, uint64_t count,
		 uint64_t total);
void batch__flush(struct batch *batch);

#endif
