/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What GPU timing may cost a process: a share of wall time, a token bucket in one word for each of
 * its GPUs, among which the share is divided: one thread may drive them all. Which launches ask for
 * it is sample.h's; the bucket holds what it may cost whatever they do. A communicator that was not
 * timed for a while may take in advance: a rare one may be the one that hangs. One that has
 * launched nothing for a while may take as much in advance as one launch can be charged at most:
 * what it launches next is timed, whatever the last ones cost. So in any stretch of time the cost
 * is no more than the share of that time and of the most that is taken in advance; on average it is
 * the share.
 */
#ifndef NCCL_BPFTRACE_PLUGIN_BUDGET_H
#define NCCL_BPFTRACE_PLUGIN_BUDGET_H

#include <math.h>

#include "plugin.h"

#define SAVED_NS	(20 * NS_PER_MS)     /* budget that may be saved up, in wall time */
#define N_SAVED		4		     /* but no less than for so many launches */
#define ADVANCE_NS	(10 * NS_PER_MS)     /* and that may be taken in advance */
#define RARE_NS		(10 * NS_PER_MS)     /* not timed for so long: may take in advance */
#define PAUSE_NS	(100 * NS_PER_MS)    /* nothing launched for so long: */
#define INTERVAL_MAX_NS (10 * NS_PER_SECOND) /* may take so much */

/* How a communicator stands to the budget. */
struct claim {
	uint64_t timed_ns; /* when a launch of it was last timed; 0: none was */
	uint64_t pause_ns; /* it has launched nothing for so long */
	bool chosen;	   /* by chance */
};

/* Of a step, say: that is where ranks wait for one another. */
static inline bool claim__is_first(const struct claim *claim)
{
	return claim->pause_ns >= RARE_NS;
}

static inline bool claim__asks(const struct claim *claim)
{
	return claim->chosen || claim__is_first(claim);
}

/* What was not chosen leaves half of what is saved to what is. */
static inline bool claim__is_modest(const struct claim *claim)
{
	return !claim->chosen && claim->pause_ns < PAUSE_NS;
}

static inline uint64_t claim__advance_ns(const struct claim *claim, uint64_t now)
{
	if (claim->pause_ns >= PAUSE_NS)
		return INTERVAL_MAX_NS;
	return passed_ns(claim->timed_ns, now) >= RARE_NS ? ADVANCE_NS : 0;
}

extern _Atomic uint32_t n_gpus; /* contexts that launches were seen in */

#define UNLIMITED_PPM 1000000

/* 0: nothing; UNLIMITED_PPM: everything. */
static inline uint32_t budget__ppm(void)
{
	uint32_t ppm = __atomic_load_n(&nccl_bpftrace_control.budget_ppm, __ATOMIC_RELAXED);
	uint32_t n = atomic_load_explicit(&n_gpus, memory_order_relaxed);

	if (ppm >= UNLIMITED_PPM)
		return UNLIMITED_PPM;
	return n > 1 && ppm ? (ppm + n - 1) / n : ppm;
}

/* Of a launch. */
static inline uint32_t budget__cost_ns(void)
{
	return __atomic_load_n(&nccl_bpftrace_control.launch_cost_ns, __ATOMIC_RELAXED);
}

struct budget {
	_Atomic uint64_t next_ns; /* when the next launch may be timed */
};

static inline uint64_t budget__interval_ns(uint64_t cost_ns, uint32_t budget_ppm)
{
	uint64_t interval = cost_ns * 1000000 / budget_ppm;

	return interval < INTERVAL_MAX_NS ? interval : INTERVAL_MAX_NS;
}

/* How many launches may be timed a second. */
static inline double budget__room(void)
{
	uint32_t cost = budget__cost_ns();
	uint32_t ppm = budget__ppm();

	return ppm == UNLIMITED_PPM || !cost ? HUGE_VAL : ppm * 1e3 / cost;
}

static inline uint64_t budget__saved_ns(uint64_t interval_ns)
{
	return N_SAVED * interval_ns > SAVED_NS ? N_SAVED * interval_ns : SAVED_NS;
}

/* Without taking. */
static inline bool budget__has(const struct budget *budget, uint64_t now, const struct claim *claim)
{
	uint32_t cost = budget__cost_ns();
	uint64_t next = atomic_load_explicit(&budget->next_ns, memory_order_relaxed);
	uint32_t ppm = budget__ppm();

	if (!ppm || ppm == UNLIMITED_PPM) /* whatever was charged before */
		return ppm;
	if (claim__is_modest(claim))
		return next + budget__saved_ns(budget__interval_ns(cost, ppm)) / 2 <= now;
	return next <= now || next - now <= claim__advance_ns(claim, now);
}

static inline bool budget__take(struct budget *budget, uint64_t now, const struct claim *claim)
{
	uint32_t ppm = budget__ppm();
	uint32_t cost = budget__cost_ns();
	uint64_t next = atomic_load_explicit(&budget->next_ns, memory_order_relaxed);
	uint64_t from = next, interval, saved;

	if (!budget__has(budget, now, claim))
		return false;
	if (ppm == UNLIMITED_PPM)
		return true;
	interval = budget__interval_ns(cost, ppm);
	saved = budget__saved_ns(interval);
	if (next < now && now - next > saved)
		from = now - saved;
	return atomic_compare_exchange_strong(&budget->next_ns, &next, from + interval);
}

/* What it has really cost, where that is more than was taken for granted. */
static inline void budget__charge(struct budget *budget, uint64_t spent_ns)
{
	uint32_t ppm = budget__ppm();
	uint32_t cost = budget__cost_ns();

	if (ppm && ppm != UNLIMITED_PPM && spent_ns > cost)
		atomic_fetch_add(&budget->next_ns, budget__interval_ns(spent_ns - cost, ppm));
}

#endif
