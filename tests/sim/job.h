/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A job: the driver's process and one process for each rank. */
#ifndef SIM_JOB_H
#define SIM_JOB_H

#include <limits.h>
#include <sys/types.h>

#include "engine.h"
#include "ledger.h"
#include "nccl_sim.h"
#include "script.h"
#include "shared.h"

struct job_options {
	int n_ranks;
	int gpus_per_node;
	bool arm, hold, sync, gpu;
	const char *expect, *truth; /* NULL: not wanted */
	struct gpu_model model;
	char library[PATH_MAX], cuda[PATH_MAX];
};

/* Where the ranks that execute one instruction meet. */
struct job_slot {
	struct sim_barrier barrier;
	ncclUniqueId id;
};

#define JOB_ALL_LINES INT32_MAX /* standard input has ended: nobody waits any more */

struct job_shared {
	struct sim_shared nccl; /* with the word that stops the job */
	uint32_t go; /* futex words, all */
	uint32_t lines; /* of standard input, for `wait` */
	uint32_t release;
	uint8_t death_ordered[SIM_MAX_RANKS]; /* the script says `kill` */
	struct job_slot slot[SCRIPT_MAX_INSTRUCTIONS];
	struct ledger ledger[]; /* one for each rank */
};

/* From a rank to the driver. */
enum job_event { JOB_READY, JOB_DONE };

struct job_message {
	uint16_t rank;
	uint16_t event;
};

struct job {
	const struct job_options *options;
	const struct script *script;
	struct job_shared *shared;
	size_t shared_bytes;
	struct gpu_shared *gpus; /* NULL: without */
	size_t gpus_bytes;
	struct engine *engine;
	FILE *truth;
	int events[2]; /* pipe of job_message */
	int signals;
	pid_t driver;
	pid_t pid[SIM_MAX_RANKS];
	bool done[SIM_MAX_RANKS], ended[SIM_MAX_RANKS];
	int n_alive, n_ready;
	uint32_t arm_lines, hold_lines; /* lines read before these */
	uint32_t lines;
	bool input_ended, armed, gone, held, released, stopping, failed;
	int64_t kill_at_ns;
};

/* Runs the job to its end: the exit status of the program. */
int job_run(const struct job_options *options, const struct script *script);

/* rank.c: the life of one rank's process. Does not return. */
__attribute__((noreturn)) void rank_main(struct job *job, int rank);

/* Sleeps until *word is at least value; false when the job is stopped. */
bool job_wait(struct job_shared *shared, uint32_t *word, uint32_t value);

#endif
