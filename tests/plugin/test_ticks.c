/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The host's clock by the processor's counter: how true it is, and when it is not gone by. */
#include <pthread.h>
#include <stdlib.h>

#include "../../src/plugin/ticks.c"
#include "unit.h"

#define GHZ   2.1
#define ROUND (20 * NS_PER_MS)
#define BEGIN (3600 * NS_PER_SECOND)

static struct ticks t;

static uint64_t counter_at(uint64_t ns)
{
	return 1000000 + (uint64_t)((ns - BEGIN) * GHZ);
}

static void tie_at(uint64_t ns)
{
	ticks__tie(&t, counter_at(ns), ns);
}

/* Rounds from `from` on, so many. Returns when the last was. */
static uint64_t rounds(uint64_t from, int n)
{
	for (int i = 0; i < n; i++)
		tie_at(from + i * ROUND);
	return from + (n - 1) * ROUND;
}

static void fresh(void)
{
	memset(&t, 0, sizeof(t));
}

static int64_t error_at(uint64_t ns)
{
	return ticks__to_ns(&t, counter_at(ns)) - ns;
}

TEST(the_same_time)
{
	fresh();
	for (uint64_t now = BEGIN; now < BEGIN + 30 * NS_PER_SECOND; now += ROUND) {
		tie_at(now);
		for (uint64_t part = 0; now > BEGIN && part < ROUND; part += ROUND / 7)
			CHECK(llabs(error_at(now + part)) < 50);
	}
}

/* adjtime() lets it run slower or faster by 0.05 %. */
TEST(a_clock_that_is_slewed)
{
	uint64_t ticks = 1000000, now = BEGIN;
	int64_t worst = 0;

	fresh();
	for (int i = 0; i < 1500; i++, now += ROUND) {
		double pace = i < 500 ? GHZ : GHZ / 1.0005;
		int64_t error;

		ticks__tie(&t, ticks, now);
		error = ticks__to_ns(&t, ticks + (uint64_t)(ROUND / 2 * pace)) - now - ROUND / 2;
		if (i && llabs(error) > worst)
			worst = llabs(error);
		if (i % 500 > 102) /* the rate is known again */
			CHECK(llabs(error) < 50);
		ticks += (uint64_t)(ROUND * pace);
	}
	CHECK(worst > 1000 && worst <= 5100);
}

TEST(not_before_the_rate_is_known)
{
	fresh();
	CHECK_INT(ticks__to_ns(&t, counter_at(BEGIN)), 0);
	tie_at(BEGIN);
	CHECK_INT(ticks__to_ns(&t, counter_at(BEGIN + 1)), 0);
	tie_at(BEGIN + RATE_FIRST_NS - 1);
	CHECK_INT(ticks__to_ns(&t, counter_at(BEGIN + RATE_FIRST_NS)), 0);
	tie_at(BEGIN + RATE_FIRST_NS);
	CHECK(llabs(error_at(BEGIN + RATE_FIRST_NS + 1)) < 50);
}

TEST(not_when_the_thread_is_held_up)
{
	uint64_t last;

	fresh();
	last = rounds(BEGIN, 3);
	CHECK(llabs(error_at(last + TIE_LASTS_NS - NS_PER_MS)) < 1000);
	CHECK_INT(ticks__to_ns(&t, counter_at(last + TIE_LASTS_NS + NS_PER_MS)), 0);
}

TEST(not_when_the_counter_began_anew)
{
	uint64_t last;

	fresh();
	last = rounds(BEGIN, 100);
	CHECK_INT(ticks__to_ns(&t, 5), 0);
	ticks__tie(&t, 100, last + ROUND);
	CHECK_INT(ticks__to_ns(&t, 200), 0);
	ticks__tie(&t, 100 + (uint64_t)(ROUND * GHZ), last + 2 * ROUND);
	CHECK(llabs((int64_t)(ticks__to_ns(&t, 100 + (uint64_t)(ROUND * GHZ)) - last - 2 * ROUND)) <
	      50);
}

/* Nobody tied while no tracer was there: what the counter did meanwhile is not known. */
TEST(after_a_long_sleep_anew)
{
	uint64_t last;

	fresh();
	last = rounds(BEGIN, 100) + RATE_MAX_NS + NS_PER_SECOND;
	tie_at(last);
	CHECK_INT(ticks__to_ns(&t, counter_at(last + 1)), 0);
	last = rounds(last + ROUND, 1);
	CHECK(llabs(error_at(last + ROUND / 2)) < 50);
}

/* The clock stands still in a suspension, and the counter does not. */
TEST(not_after_a_suspension)
{
	uint64_t last, slept;

	fresh();
	last = rounds(BEGIN, 100);
	slept = counter_at(last + 3600 * NS_PER_SECOND) - counter_at(last);
	CHECK_INT(ticks__to_ns(&t, counter_at(last) + slept), 0);
	for (int i = 1; i < 200; i++) {
		uint64_t at = last + i * ROUND, ns;

		ticks__tie(&t, counter_at(at) + slept, at);
		ns = ticks__to_ns(&t, counter_at(at + ROUND / 2) + slept);
		CHECK(i == 1 ? !ns : llabs((int64_t)(ns - at - ROUND / 2)) < 50);
	}
}

/* One that differs from another processor's by ten milliseconds. */
TEST(not_where_the_counter_is_another)
{
	uint64_t last;

	fresh();
	last = rounds(BEGIN, 100) + ROUND;
	ticks__tie(&t, counter_at(last + 10 * NS_PER_MS), last);
	CHECK_INT(ticks__to_ns(&t, counter_at(last + 10 * NS_PER_MS)), 0);
}

TEST(the_turns_go_round)
{
	uint64_t last;

	fresh();
	last = rounds(BEGIN, 100);
	t.last = UINT32_MAX - 1;
	for (int i = 0; i < 4; i++) {
		last = rounds(last + ROUND, 1);
		CHECK(llabs(error_at(last + ROUND / 2)) < 50);
	}
}

/* ---- this machine's ---- */

static atomic_bool stop;

static void *tie_all_the_time(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop)) {
		ticks__serve(now_ns());
		usleep(100);
	}
	return NULL;
}

/* What comes between the readings is time that passes: the bounds allow for the tie alone. */
TEST(between_two_readings_of_the_clock)
{
	uint64_t n = 0, since = now_ns();
	pthread_t other;

	pthread_create(&other, NULL, tie_all_the_time, NULL);
	while (now_ns() - since < 300 * NS_PER_MS) {
		uint64_t before = now_ns(), now = ticks__to_ns(&host_ticks, ticks__read());
		uint64_t after = now_ns();

		if (!now)
			continue;
		CHECK(now + 20000 >= before && now <= after + 20000);
		n++;
	}
	atomic_store(&stop, true);
	pthread_join(other, NULL);
	if (counter__is_invariant() && kernel__goes_by_counter())
		CHECK(n > 1000);
	else
		CHECK_INT(n, 0);
}

UNIT_MAIN()
