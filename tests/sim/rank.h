/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of one rank, and how it calls NCCL. */
#ifndef SIM_RANK_H
#define SIM_RANK_H

#include "api.h"
#include "job.h"

enum flow { FLOW_ON, FLOW_EXIT, FLOW_FAILED };

struct rank_comm {
	ncclComm_t handle;
	struct ledger_record *record; /* NULL until the communicator stands */
};

struct rank {
	struct job *job;
	struct job_shared *shared;
	struct ledger *ledger;
	int number;
	uint32_t waits; /* `wait` passed, executed or not */
	struct api api;
	struct rank_comm comm[SCRIPT_MAX_COMMS];
};

/* A line of execution: the rank's own, or one of `threads`. */
struct line_state {
	struct rank *rank;
	int group_depth;
	int64_t *tick_ns; /* when the next `rate` falls due, for each instruction */
};

__attribute__((format(printf, 3, 4)))
enum flow rank_fail(const struct rank *rank, const struct instruction *i, const char *format, ...);
bool rank_stopped(const struct rank *rank);

/* call.c */
enum flow call_comm(struct line_state *line, const struct instruction *i);
enum flow call_split(struct line_state *line, const struct instruction *i);
enum flow call_end(struct line_state *line, const struct instruction *i);
enum flow call_operation(struct line_state *line, const struct instruction *i);
enum flow call_group_start(struct line_state *line, const struct instruction *i);
enum flow call_group_end(struct line_state *line, const struct instruction *i);

#endif
