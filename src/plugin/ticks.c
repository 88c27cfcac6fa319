/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ticks.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#define TRIES	     3
#define CLOCK_SOURCE "/sys/devices/system/clocksource/clocksource0/current_clocksource"

struct ticks host_ticks;

/* ---- the tie ---- */

static void ticks__untie(struct ticks *t)
{
	atomic_store_explicit(&t->turn, 0, memory_order_release);
	t->rate = t->from.ns = 0;
}

/* A counter that went on in a suspension, or stood still; another processor's that differs. */
static bool ticks__is_astray(const struct ticks *t, uint64_t now, uint64_t ns)
{
	uint64_t foretold = ticks__to_ns(t, now);
	uint64_t since = ns - atomic_load_explicit(&t->ties[t->last % 2].ns, memory_order_relaxed);

	if (!atomic_load_explicit(&t->turn, memory_order_relaxed))
		return false;
	return !foretold ||
	       passed_ns(foretold, ns) + passed_ns(ns, foretold) > ASTRAY_NS + since / ASTRAY_PART;
}

static void ticks__learn_rate(struct ticks *t, uint64_t now, uint64_t ns)
{
	uint64_t since_ns = ns - t->from.ns;

	if (t->from.ns && since_ns < (t->rate ? RATE_NS : RATE_FIRST_NS))
		return;
	if (t->from.ns)
		t->rate = ((unsigned __int128)since_ns << RATE_BITS) / (now - t->from.ticks);
	t->from.ticks = now;
	t->from.ns = ns;
}

void ticks__tie(struct ticks *t, uint64_t now, uint64_t ns)
{
	struct tie *tie;

	if (now <= t->from.ticks || ns <= t->from.ns || ns - t->from.ns > RATE_MAX_NS ||
	    ticks__is_astray(t, now, ns))
		ticks__untie(t);
	ticks__learn_rate(t, now, ns);
	if (!t->rate)
		return;
	if (!++t->last)
		t->last = 2;
	tie = &t->ties[t->last % 2];
	/* after the turn of the other one */
	atomic_store_explicit(&tie->ticks, now, memory_order_release);
	atomic_store_explicit(&tie->ns, ns, memory_order_release);
	atomic_store_explicit(&tie->rate, t->rate, memory_order_release);
	atomic_store_explicit(&t->turn, t->last, memory_order_release);
}

/* ---- this machine's ---- */

#ifdef __x86_64__
#define POWER_LEAF 0x80000007
#define INVARIANT  (1U << 8) /* in its edx: the counter never stops, nor changes pace */

static bool counter__is_invariant(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(POWER_LEAF, &a, &b, &c, &d) && d & INVARIANT;
}
#else
static bool counter__is_invariant(void)
{
	return false;
}
#endif

/*
 * Whether the kernel's own clock goes by it as it is, which it would not if processors' counters
 * differed. kvm-clock would: it is made for those.
 */
static bool kernel__goes_by_counter(void)
{
	char text[8] = "";
	int fd = open(CLOCK_SOURCE, O_RDONLY | O_CLOEXEC);
	bool does;

	if (fd < 0)
		return false;
	does = read(fd, text, sizeof(text) - 1) > 0 && !strcmp(text, "tsc\n");
	close(fd);
	return does;
}

/* Of some tries the one that least came between. */
static void ticks__compare(uint64_t *ret_ticks, uint64_t *ret_ns)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < TRIES; i++) {
		uint64_t before = ticks__read(), ns = now_ns(), took = ticks__read() - before;

		if (took >= best)
			continue;
		best = took;
		*ret_ticks = before + took / 2;
		*ret_ns = ns;
	}
}

/* The kernel may find out later that the counter will not do. */
static bool counter__is_good(uint64_t ns)
{
	static uint64_t checked_ns;
	static bool good;

	if (!checked_ns || ns - checked_ns > CHECK_NS) {
		good = counter__is_invariant() && kernel__goes_by_counter();
		checked_ns = ns;
	}
	return good;
}

void ticks__serve(uint64_t round_ns)
{
	uint64_t now = 0, ns = 0;

	if (!counter__is_good(round_ns)) {
		ticks__untie(&host_ticks);
		return;
	}
	ticks__compare(&now, &ns);
	ticks__tie(&host_ticks, now, ns);
}
