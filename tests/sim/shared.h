/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory shared by all ranks of one simulated job: where they meet. */
#ifndef SIM_SHARED_H
#define SIM_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_MAX_RANKS 256
#define SIM_MAX_COMMS 16384 /* a power of two; slots are never given back */

/* Counts arrivals; the last one moves the generation, on which the others sleep. */
struct sim_barrier {
	uint32_t arrived;
	uint32_t generation;
};

struct sim_post {
	int32_t color;
	int32_t key;
};

/* One communicator, found by its hash. */
struct sim_meeting {
	uint64_t hash;
	struct sim_barrier barrier;
	int32_t world_rank[SIM_MAX_RANKS];
	struct sim_post post[SIM_MAX_RANKS];
};

struct sim_shared {
	uint32_t stop; /* futex word: the driver ends the job */
	struct sim_meeting meeting[SIM_MAX_COMMS];
};

/* Sleeps while *word is value, at most timeout_ns (negative: for ever); may return early. */
void sim_futex_wait(uint32_t *word, uint32_t value, int64_t timeout_ns);
void sim_futex_wake(uint32_t *word);

/* False when *stop (may be NULL) became non-zero before all n had arrived. */
bool sim_barrier_wait(struct sim_barrier *barrier, uint32_t n, const uint32_t *stop);

/* The slot of this hash, claimed when new; NULL when all are taken. */
struct sim_meeting *sim_meeting_get(struct sim_shared *shared, uint64_t hash);

#endif
