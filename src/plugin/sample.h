/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which launches are to be timed: by a number made of what NCCL counts alike on all ranks, the same
 * launches everywhere, whatever the job's own period. A launch that one rank times is late for all
 * ranks that wait for it: were each to choose its own, a job of many ranks would pay for all of
 * them. A rank that has less budget than another times some of the other's. How many are chosen is
 * set by the plugin's thread, off the job's; what is chosen still has to find budget (budget.h).
 */
#ifndef NCCL_BPFTRACE_PLUGIN_SAMPLE_H
#define NCCL_BPFTRACE_PLUGIN_SAMPLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SAMPLE_ALL UINT32_MAX

/* Of a communicator. NCCL's threads count in it, the plugin's thread sets the share. */
struct sample {
	_Atomic uint64_t operation; /* the last collective */
	_Atomic uint32_t launches;  /* since */
	_Atomic uint32_t share;	    /* of launches that are chosen, by 2^-32 */
	_Atomic uint32_t lately;    /* the least of the last seconds, or so */
	uint64_t salt;
};

struct choice {
	bool chosen;
	bool usual; /* also had its communicator launched all the time */
};

/* A collective begins: with its number among those of its function, the same on all ranks. */
static inline void sample__operation(struct sample *sample, uint64_t sequence, uint8_t function)
{
	atomic_store_explicit(&sample->operation, sequence << 8 | function, memory_order_relaxed);
	atomic_store_explicit(&sample->launches, 0, memory_order_relaxed);
}

/* splitmix64's finaliser: neighbours get numbers that have nothing to do with one another. */
static inline uint32_t sample__mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x >> 32;
}

static inline bool share__has(uint32_t share, uint32_t number)
{
	return share == SAMPLE_ALL || number < share;
}

/* Once for each launch. */
static inline struct choice sample__choose(struct sample *sample)
{
	uint64_t operation = atomic_load_explicit(&sample->operation, memory_order_relaxed);
	uint64_t n = atomic_load_explicit(&sample->launches, memory_order_relaxed);
	uint32_t number;

	atomic_store_explicit(&sample->launches, n + 1, memory_order_relaxed);
	number = sample__mix(operation ^ n << 40 ^ sample->salt);
	return (struct choice){
		share__has(atomic_load_explicit(&sample->share, memory_order_relaxed), number),
		share__has(atomic_load_explicit(&sample->lately, memory_order_relaxed), number),
	};
}

/* salt: of the communicator, the same on all its ranks */
static inline void sample__reset(struct sample *sample, uint64_t salt)
{
	sample->salt = salt;
	atomic_store(&sample->operation, 0);
	atomic_store(&sample->launches, 0);
	atomic_store(&sample->share, SAMPLE_ALL);
	atomic_store(&sample->lately, SAMPLE_ALL);
}

/* ---- the plugin's thread ---- */

/* How often a communicator launches. */
struct launch_rate {
	uint64_t launches; /* by then */
	uint64_t since_ns; /* 0: never looked at */
	double per_second;
	double lately; /* falls slower */
};

/*
 * The room that a GPU has, shared out from round to round: whoever launches less than `most` has
 * each launch chosen, the others as many a second as that.
 */
struct share {
	bool settled; /* once at least */
	double most;
	double used; /* by those below, in this round */
	uint32_t n_below, n_above;
};

/* A communicator has made so many launches by now. Returns how many it makes a second. */
double rate__update(struct launch_rate *rate, uint64_t launches, uint64_t now);
/* Of one that makes so many: what is to be chosen. */
uint32_t share__part(const struct share *share, double per_second);
/* The same, and in this round it does make so many. */
uint32_t share__of(struct share *share, double per_second);
/* After all of them: what the next round goes by, with room for so many timed a second. */
void share__settle(struct share *share, double room);

#endif
