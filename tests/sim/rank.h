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

#define RANK_MAX_CAPTURED 1024

/* The calls that a graph holds; past the last place they are not accounted for. */
struct captured_list {
	int n;
	struct ledger_record *record[RANK_MAX_CAPTURED];
	const struct instruction *operation[RANK_MAX_CAPTURED];
};

struct rank {
	struct job *job;
	struct job_shared *shared;
	struct ledger *ledger;
	int number;
	uint32_t waits; /* `wait` passed, executed or not */
	struct api api;
	struct cuda_api cuda; /* with --gpu */
	CUcontext context; /* NULL: no GPU */
	CUstream stream[SCRIPT_MAX_STREAMS];
	CUgraphExec graph[SCRIPT_MAX_GRAPHS];
	struct captured_list captured[SCRIPT_MAX_GRAPHS];
	struct rank_comm comm[SCRIPT_MAX_COMMS];
};

/* A line of execution: the rank's own, or one of `threads`. */
struct line_state {
	struct rank *rank;
	int group_depth;
	int capture; /* index of the graph that is captured + 1 */
	uint64_t drawn; /* random numbers so far */
	int64_t *tick_ns; /* when the next `rate` falls due, for each instruction */
};

__attribute__((format(printf, 3, 4)))
enum flow rank_fail(const struct rank *rank, const struct instruction *i, const char *format, ...);
bool rank_stopped(const struct rank *rank);
/* ns, and by chance up to more_ns on top; the same in each run of one --seed. */
int64_t line_span_ns(struct line_state *line, const struct instruction *i);
int64_t rank_now_ns(void); /* CLOCK_MONOTONIC */

/* call.c */
enum flow call_comm(struct line_state *line, const struct instruction *i);
enum flow call_split(struct line_state *line, const struct instruction *i);
enum flow call_error(struct line_state *line, const struct instruction *i);
enum flow call_end(struct line_state *line, const struct instruction *i);
enum flow call_operation(struct line_state *line, const struct instruction *i);
enum flow call_group_start(struct line_state *line, const struct instruction *i);
enum flow call_group_end(struct line_state *line, const struct instruction *i);


/* gpu_call.c: what programs do to their GPU. */
const char *gpu_open(struct rank *rank); /* NULL, or what went wrong */
cudaStream_t gpu_stream_of(const struct rank *rank, int stream);
enum flow gpu_synchronize_all(const struct rank *rank);
enum flow call_synchronize(struct line_state *line, const struct instruction *i);
enum flow call_compute(struct line_state *line, const struct instruction *i);
enum flow call_gpu(struct line_state *line, const struct instruction *i);
enum flow call_capture_begin(struct line_state *line, const struct instruction *i);
/* A call inside a capture. */
void call_captured(struct line_state *line, struct ledger_record *record,
		   const struct instruction *operation);
enum flow call_capture_end(struct line_state *line, const struct instruction *i);
enum flow call_replay(struct line_state *line, const struct instruction *i);
enum flow call_drop(struct line_state *line, const struct instruction *i);

#endif
