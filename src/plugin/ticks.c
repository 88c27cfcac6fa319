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

static void ticks__learn_rate(struct ticks *t, uint64_t now, uint64_t ns)
{
	uint64_t passed_ns = ns - t->from.ns;

	if (t->from.ns && passed_ns < (t->rate ? RATE_NS : RATE_FIRST_NS))
		return;
	if (t->from.ns)
		t->rate = ((unsigned __int128)passed_ns << RATE_BITS) / (now - t->from.ticks);
	t->from.ticks = now;
	t->from.ns = ns;
}

void ticks__tie(struct ticks *t, uint64_t now, uint64_t ns)
{
	struct tie *tie;

	if (now <= t->from.ticks || ns <= t->from.ns || ns - t->from.ns > RATE_MAX_NS)
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
#define INVARIANT                                                                                  \
	(1U << 8) /* of leaf 0x80000007's edx: the counter never stops, nor changes pace */

static bool counter__is_invariant(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && d & INVARIANT;
}
#else
static bool counter__is_invariant(void)
{
	return false;
}
#endif

/* What the kernel's own clock goes by: it would not if processors' counters differed. */
static bool kernel__goes_by_counter(void)
{
	static const char *const sources[] = {"tsc\n", "kvm-clock\n",
					      "hyperv_clocksource_tsc_page\n"};
	char text[64] = "";
	int fd = open(CLOCK_SOURCE, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(fd);
	for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++) {
		if (!strcmp(text, sources[i]))
			return true;
	}
	return false;
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

void ticks__serve(void)
{
	static enum { UNKNOWN, GOOD, BAD } counter;
	uint64_t now = 0, ns = 0;

	if (counter == UNKNOWN)
		counter = counter__is_invariant() && kernel__goes_by_counter() ? GOOD : BAD;
	if (counter == BAD)
		return;
	ticks__compare(&now, &ns);
	ticks__tie(&host_ticks, now, ns);
}
