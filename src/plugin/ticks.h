/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * CLOCK_MONOTONIC for NCCL's threads, by the processor's time stamp counter: reading the clock
 * itself is the dearest part of a callback. In each round the plugin's thread ties the counter to
 * the clock anew, so the two differ by what a round's drift is, well below a microsecond. Without a
 * tie that is good, the clock itself is read: on other processors, where the kernel does not go by
 * the counter, until the rate is known, when the thread is held up.
 */
#ifndef NCCL_BPFTRACE_PLUGIN_TICKS_H
#define NCCL_BPFTRACE_PLUGIN_TICKS_H

#include "plugin.h"

#define TIE_LASTS_NS  NS_PER_SECOND	   /* after that it is not gone by */
#define TIE_EARLY_NS  (NS_PER_MS / 2)	   /* nor long before: the counter began anew */
#define RATE_FIRST_NS (4 * NS_PER_MS)	   /* what the rate is taken over, at first */
#define RATE_NS	      NS_PER_SECOND	   /* and then */
#define RATE_MAX_NS   (10 * NS_PER_SECOND) /* no tracer was there meanwhile */
#define ASTRAY_NS     (50 * 1000)	   /* from what the last tie foretells, */
#define ASTRAY_PART   8 /* and a part of the time since: chrony slews by a 12th */
#define CHECK_NS      (10 * NS_PER_SECOND) /* what the kernel goes by */
#define RATE_BITS     32

struct tie {
	_Atomic uint64_t ticks, ns; /* at the same moment */
	_Atomic uint64_t rate;	    /* nanoseconds a tick, by 2^-RATE_BITS */
};

/* One thread ties, others read. */
struct ticks {
	_Alignas(64) _Atomic uint32_t turn; /* 0: no tie; else the last is ties[turn % 2] */
	struct tie ties[2];

	/* of the one that ties */
	uint32_t last; /* turn */
	uint64_t rate; /* 0: not known */
	struct {
		uint64_t ticks, ns; /* 0: never */
	} from;			    /* since when the next rate is taken */
};

extern struct ticks host_ticks;

/* They are now at so many, and the clock at ns. */
void ticks__tie(struct ticks *t, uint64_t now, uint64_t ns);
/* The plugin's thread, in each round, which began then. */
void ticks__serve(uint64_t round_ns);

#ifdef __x86_64__
/* Early or late by what a processor reorders: some nanoseconds. */
static inline uint64_t ticks__read(void)
{
	return __builtin_ia32_rdtsc();
}
#else
static inline uint64_t ticks__read(void)
{
	return 0;
}
#endif

/* 0: there is no tie that is good for it */
static inline uint64_t ticks__to_ns(const struct ticks *t, uint64_t now)
{
	uint32_t turn = atomic_load_explicit(&t->turn, memory_order_acquire);
	const struct tie *tie = &t->ties[turn % 2];
	int64_t since = now - atomic_load_explicit(&tie->ticks, memory_order_acquire);
	uint64_t ns = atomic_load_explicit(&tie->ns, memory_order_acquire);
	uint64_t rate = atomic_load_explicit(&tie->rate, memory_order_acquire);
	int64_t since_ns = (__int128)since * (int64_t)rate >> RATE_BITS;

	/* it is written over only after the other one has become the last */
	if (!turn || atomic_load_explicit(&t->turn, memory_order_relaxed) != turn)
		return 0;
	if (since_ns < -(int64_t)TIE_EARLY_NS || since_ns > (int64_t)TIE_LASTS_NS)
		return 0;
	return ns + since_ns;
}

static inline uint64_t ticks__now_ns(void)
{
	if (!atomic_load_explicit(&host_ticks.turn, memory_order_relaxed))
		return now_ns(); /* a process may forbid to read the counter */
	return ticks__to_ns(&host_ticks, ticks__read()) ?: now_ns();
}

#endif
