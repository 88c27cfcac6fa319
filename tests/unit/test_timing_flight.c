/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known to be under way: the oldest launch, for how long, whether it has started. */
#include "unit.h"

#include "../../src/nccl_api.c"

#include "timing_feed.h"

/* 100 ms later. */
static struct nbp_record launch(struct feed *feed, enum nbp_timing timing)
{
	struct nbp_record launched;

	feed->now_ns += 100 * MS;
	launched = feed_launched(feed, timing);
	feed_send(feed, &launched);
	return launched;
}

static struct nbp_record all_reduce(struct feed *feed, enum nbp_timing timing)
{
	struct nbp_record launched = launch(feed, timing);

	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 1024, 0));
	return launched;
}

static struct nbp_record told(const struct nbp_record *launched, enum nbp_phase phase,
			      uint64_t done)
{
	struct nbp_record r = *launched;

	r.launch.phase = phase;
	r.launch.function = NBP_ALLREDUCE;
	r.launch.sequence = 555;
	r.launch.done = done;
	return r;
}

/* As the plugin does every second for a launch that does not end. */
static void pass(struct feed *feed, const struct nbp_record *under_way, uint64_t ns)
{
	uint64_t until = feed->now_ns + ns;

	while (feed->now_ns < until) {
		feed->now_ns += SECOND;
		SEND(feed, feed_comm(feed));
		if (under_way)
			feed_send(feed, under_way);
		timings__settle(feed->timings, feed->now_ns);
	}
}

static bool oldest(struct feed *feed, struct timing_oldest *ret)
{
	return timing_comm__oldest(timings__first(feed->timings), ret);
}

TEST(queued_started_finished)
{
	struct feed *feed = feed_new();
	struct nbp_record launched, r;
	struct timing_oldest o;

	SEND(feed, feed_comm(feed));
	CHECK(!oldest(feed, &o));
	launched = all_reduce(feed, NBP_TIMED);
	CHECK(oldest(feed, &o));
	CHECK_INT(o.n_in_flight, 1);
	CHECK_INT(o.operation, NCCL_OP_AllReduce);
	CHECK_INT(o.sequence, 100);
	CHECK_INT(o.launch_ns, launched.time_ns);
	CHECK(!o.start_known && !o.started);
	feed->now_ns += 300 * MS;
	SEND(feed, told(&launched, NBP_QUEUED, 0));
	CHECK(oldest(feed, &o));
	CHECK(o.start_known && !o.started);
	CHECK_INT(o.sequence, 100);
	r = told(&launched, NBP_STARTED, 0);
	r.launch.gpu_start_ns = launched.time_ns + 200 * MS;
	r.launch.clock_error_ns = 1000;
	feed_send(feed, &r);
	CHECK(oldest(feed, &o));
	CHECK(o.start_known && o.started);
	CHECK_INT(o.gpu_start_ns, launched.time_ns + 200 * MS);
	r.launch.gpu_start_ns = feed->now_ns + SECOND; /* cannot be */
	feed_send(feed, &r);
	CHECK(oldest(feed, &o) && o.started && !o.gpu_start_ns);
	SEND(feed, feed_finished(feed, &launched, 400 * MS, 1));
	CHECK(!oldest(feed, &o));
	CHECK_INT(feed->n, 1);
	CHECK_INT(feed->launches[0].duration_ns, 400 * MS);
	SEND(feed, told(&launched, NBP_STARTED, 0)); /* too late */
	CHECK(!oldest(feed, &o));
	CHECK_INT(timings__lost(feed->timings, TIMING_LOST_BAD_RECORD), 0);
	feed_free(feed);
}

/* Behind launches that were not timed nothing is said of the oldest, until they are done. */
TEST(whose_start_it_is)
{
	struct feed *feed = feed_new();
	struct nbp_record first, untimed, timed;
	struct timing_oldest o;

	SEND(feed, feed_comm(feed));
	first = all_reduce(feed, NBP_TIMED);
	SEND(feed, feed_finished(feed, &first, MS, 1));
	untimed = all_reduce(feed, NBP_NOT_TIMED_BUDGET);
	timed = all_reduce(feed, NBP_TIMED);
	SEND(feed, told(&timed, NBP_QUEUED, 1));
	CHECK(oldest(feed, &o));
	CHECK_INT(o.n_in_flight, 2);
	CHECK_INT(o.launch_ns, untimed.time_ns);
	CHECK_INT(o.sequence, 101);
	CHECK(!o.start_known);
	SEND(feed, told(&timed, NBP_STARTED, 2));
	CHECK(oldest(feed, &o));
	CHECK_INT(o.n_in_flight, 1);
	CHECK_INT(o.launch_ns, timed.time_ns);
	CHECK_INT(o.sequence, 102);
	CHECK(o.start_known && o.started);
	feed_free(feed);
}

/* With its operation, whatever is launched behind it, and however much. */
TEST(for_hours)
{
	struct feed *feed = feed_new();
	struct nbp_record first, r;
	struct timing_oldest o;

	SEND(feed, feed_comm(feed));
	first = all_reduce(feed, NBP_TIMED);
	for (int i = 0; i < 63; i++)
		all_reduce(feed, NBP_TIMED);
	for (int i = 0; i < 900; i++)
		all_reduce(feed, NBP_NOT_TIMED_EVENTS);
	r = told(&first, NBP_STARTED, 0);
	pass(feed, &r, 3 * 3600 * SECOND);
	CHECK(oldest(feed, &o));
	CHECK_INT(o.n_in_flight, 64);
	CHECK_INT(o.launch_ns, first.time_ns);
	CHECK_INT(o.operation, NCCL_OP_AllReduce);
	CHECK_INT(o.sequence, 100);
	CHECK(o.started);
	CHECK_INT(feed->n, 900);
	SEND(feed, feed_finished(feed, &first, 3 * 3600 * SECOND, 1));
	CHECK_INT(feed->launches[FEED_MAX - 1].timing, NBP_NOT_TIMED_EVENTS);
	CHECK_INT(feed->n, 901);
	CHECK(oldest(feed, &o));
	CHECK_INT(o.n_in_flight, 63);
	CHECK_INT(o.launch_ns, first.time_ns + 100 * MS);
	CHECK_INT(o.sequence, 101);
	CHECK(!o.start_known);
	for (int i = 0; i < TIMING_INVALID_MAX; i++)
		CHECK_INT(timings__invalid(feed->timings, i), 0);
	for (int i = 0; i < TIMING_LOST_MAX; i++)
		CHECK_INT(timings__lost(feed->timings, i), 0);
	feed_free(feed);
}

/* More than a communicator may have open: the oldest is not the one that goes. */
TEST(the_cap_spares_the_oldest)
{
	struct feed *feed = feed_new();
	struct nbp_record first;
	struct timing_oldest o;

	first = all_reduce(feed, NBP_TIMED);
	for (int i = 0; i < 2 * TIMING_MAX_OPENS_PER_COMM; i++)
		all_reduce(feed, NBP_TIMED);
	SEND(feed, told(&first, NBP_QUEUED, 0));
	CHECK(timings__lost(feed->timings, TIMING_LOST_NO_ROOM) > 0);
	CHECK_INT(feed->timings->usage.opens, TIMING_MAX_OPENS_PER_COMM);
	CHECK(oldest(feed, &o));
	CHECK_INT(o.n_in_flight, 1 + 2 * TIMING_MAX_OPENS_PER_COMM);
	CHECK_INT(o.launch_ns, first.time_ns);
	CHECK_INT(o.sequence, 100);
	CHECK(o.start_known);
	SEND(feed, feed_finished(feed, &first, MS, 1));
	CHECK_INT(timings__invalid(feed->timings, TIMING_INVALID_DUPLICATE), 0);
	feed_free(feed);
}

/* The record of its end was lost: the plugin lives and speaks of it no more. */
TEST(not_for_ever_on_an_old_word)
{
	struct feed *feed = feed_new();
	struct nbp_record launched, r;
	struct timing_oldest o;

	SEND(feed, feed_comm(feed));
	launched = all_reduce(feed, NBP_TIMED);
	pass(feed, NULL, 3 * SECOND);
	CHECK(oldest(feed, &o));
	pass(feed, NULL, 4 * SECOND);
	CHECK(!oldest(feed, &o));
	CHECK_INT(feed->n, 1);
	CHECK_INT(feed->launches[0].duration_ns, 0);
	CHECK_INT(timings__invalid(feed->timings, TIMING_INVALID_ABANDONED), 1);
	/* one that it spoke of for a while */
	launched = all_reduce(feed, NBP_TIMED);
	r = told(&launched, NBP_STARTED, 1);
	pass(feed, &r, 60 * SECOND);
	CHECK(oldest(feed, &o));
	pass(feed, NULL, 7 * SECOND);
	CHECK(!oldest(feed, &o));
	/* and one behind another that it speaks of now */
	all_reduce(feed, NBP_TIMED);
	launched = all_reduce(feed, NBP_TIMED);
	r = told(&launched, NBP_STARTED, 3);
	pass(feed, &r, 10 * SECOND);
	CHECK(oldest(feed, &o));
	CHECK_INT(o.launch_ns, launched.time_ns);
	CHECK_INT(feed->n, 3);
	feed_free(feed);
}

/* A plugin that is silent altogether (its process is stopped) takes nothing back. */
TEST(silence_takes_nothing_back)
{
	struct feed *feed = feed_new();
	struct timing_oldest o;

	SEND(feed, feed_comm(feed));
	all_reduce(feed, NBP_TIMED);
	for (int i = 0; i < 100; i++)
		timings__settle(feed->timings, feed->now_ns + i * 60 * SECOND);
	CHECK(oldest(feed, &o));
	CHECK_INT(o.n_in_flight, 1);
	feed_free(feed);
}

/* Nor does one that was stopped: what it says first when it goes on is that it lives. */
TEST(a_process_that_was_stopped)
{
	struct feed *feed = feed_new();
	struct nbp_record launched, r;
	struct timing_oldest o;

	SEND(feed, feed_comm(feed));
	launched = all_reduce(feed, NBP_TIMED);
	r = told(&launched, NBP_STARTED, 0);
	for (int i = 0; i < 20; i++) {
		pass(feed, &r, 2 * SECOND);
		feed->now_ns += 600 * SECOND;
		SEND(feed, feed_comm(feed));
		SEND(feed, feed_comm(feed)); /* told anew, for another tracer */
		timings__settle(feed->timings, feed->now_ns);
		CHECK(oldest(feed, &o));
	}
	CHECK_INT(o.n_in_flight, 1);
	CHECK(o.started);
	feed_free(feed);
}

/* Launched and described before this tracer came. */
TEST(who_comes_late)
{
	struct feed *feed = feed_new();
	struct nbp_record launched, r;
	struct timing_oldest o;
	uint64_t launch_ns = feed->now_ns;

	feed->launch = 89;
	launched = feed_launched(feed, NBP_TIMED);
	feed->launch = feed->operation = 95;
	feed->now_ns += 3600 * SECOND;
	SEND(feed, feed_comm(feed));
	CHECK(!oldest(feed, &o));
	r = told(&launched, NBP_QUEUED, 88);
	pass(feed, &r, 10 * SECOND);
	CHECK(oldest(feed, &o));
	CHECK_INT(o.n_in_flight, 2);
	CHECK(!o.start_known); /* it may be the one before */
	r = told(&launched, NBP_STARTED, 89);
	pass(feed, &r, 10 * SECOND);
	CHECK(oldest(feed, &o));
	CHECK_INT(o.n_in_flight, 1);
	CHECK_INT(o.launch_ns, launch_ns);
	CHECK_INT(o.operation, NCCL_OP_AllReduce);
	CHECK_INT(o.sequence, 555);
	CHECK(o.started && o.start_known);
	CHECK_INT(timings__first(feed->timings)->n_timed, 1);
	all_reduce(feed, NBP_TIMED); /* 96, behind it */
	CHECK(oldest(feed, &o));
	CHECK_INT(o.n_in_flight, 7);
	CHECK_INT(o.launch_ns, launch_ns);
	CHECK_INT(timings__lost(feed->timings, TIMING_LOST_GAP), 0);
	SEND(feed, feed_finished(feed, &launched, 3600 * SECOND, 1));
	CHECK(oldest(feed, &o));
	CHECK_INT(o.n_in_flight, 6);
	CHECK_INT(timings__lost(feed->timings, TIMING_LOST_BAD_RECORD), 0);
	feed_free(feed);
}

/* As above, but its end is never heard of. */
TEST(who_comes_late_and_loses)
{
	struct feed *feed = feed_new();
	struct nbp_record launched, r;
	struct timing_oldest o;

	feed->launch = 89;
	launched = feed_launched(feed, NBP_TIMED);
	SEND(feed, feed_comm(feed));
	r = told(&launched, NBP_STARTED, 89);
	pass(feed, &r, 10 * SECOND);
	CHECK(oldest(feed, &o));
	pass(feed, NULL, 7 * SECOND);
	CHECK(!oldest(feed, &o));
	feed_free(feed);
}

TEST(an_all_to_all_is_called_so)
{
	struct feed *feed = feed_new();
	struct timing_oldest o;

	feed->n_ranks = 3;
	feed->rank = 0;
	launch(feed, NBP_TIMED);
	for (int peer = 0; peer < 3; peer++) {
		CHECK(!peer || (oldest(feed, &o) && o.operation == NCCL_OP_Send));
		SEND(feed, feed_operation(feed, NBP_SEND, 8, peer));
		SEND(feed, feed_operation(feed, NBP_RECV, 8, peer));
	}
	CHECK(oldest(feed, &o));
	CHECK_INT(o.operation, NCCL_OP_AlltoAll);
	feed_free(feed);
}

/* What goes into a graph does not run; its launch behind another is no reason to wait. */
TEST(captured_ones_are_not_under_way)
{
	struct feed *feed = feed_new();
	struct timing_oldest o;
	struct nbp_record r;

	SEND(feed, feed_comm(feed));
	for (int i = 0; i < 3; i++) {
		feed->now_ns += MS;
		r = feed_launched(feed, NBP_NOT_TIMED_CAPTURING);
		r.launch.capture = NBP_CAPTURED_YES;
		feed_send(feed, &r);
	}
	CHECK(!oldest(feed, &o));
	r = all_reduce(feed, NBP_TIMED);
	SEND(feed, told(&r, NBP_QUEUED, 0));
	CHECK(oldest(feed, &o));
	CHECK_INT(o.n_in_flight, 1);
	CHECK_INT(o.launch_ns, r.time_ns);
	CHECK(o.start_known && !o.started);
	feed_free(feed);
}

TEST(words_that_cannot_be)
{
	struct feed *feed = feed_new();
	struct nbp_record launched = all_reduce(feed, NBP_TIMED), r;
	struct timing_oldest o;
	uint64_t bad = timings__lost(feed->timings, TIMING_LOST_BAD_RECORD);

	r = told(&launched, NBP_STARTED, launched.launch.launch);
	feed_send(feed, &r);
	r = told(&launched, NBP_STARTED, ~0ULL);
	feed_send(feed, &r);
	r = told(&launched, NBP_STARTED, 0);
	r.launch.timing = NBP_NOT_TIMED_BUDGET;
	feed_send(feed, &r);
	r = told(&launched, NBP_STARTED, 0);
	r.launch.launch += 1ULL << 40;
	feed_send(feed, &r);
	r = told(&launched, 5, 0);
	feed_send(feed, &r);
	r = told(&launched, NBP_STARTED, 0);
	r.launch.launch = 0;
	feed_send(feed, &r);
	CHECK_INT(timings__lost(feed->timings, TIMING_LOST_BAD_RECORD), bad + 6);
	CHECK(oldest(feed, &o) && !o.start_known);
	r = told(&launched, NBP_QUEUED, 0);
	r.time_ns = feed->now_ns + 3600 * SECOND;
	r.launch.function = 200;
	feed_send(feed, &r);
	CHECK(oldest(feed, &o) && o.start_known && o.launch_ns <= feed->now_ns);
	feed_free(feed);
}

/* A length of 30 hours comes as a float of milliseconds: 8 of them are a step. */
TEST(a_length_of_more_than_a_day)
{
	struct feed *feed = feed_new();
	struct nbp_record launched = all_reduce(feed, NBP_TIMED), r;

	r = feed_finished(feed, &launched, 30 * 3600 * SECOND, 1);
	feed->now_ns = r.launch.gpu_end_ns - 7 * MS;
	feed_send(feed, &r);
	CHECK_INT(feed->n, 1);
	CHECK_INT(feed->launches[0].duration_ns, 30 * 3600 * SECOND);
	launched = all_reduce(feed, NBP_TIMED);
	r = feed_finished(feed, &launched, SECOND, 1);
	feed->now_ns = r.launch.gpu_end_ns - 7 * MS;
	feed_send(feed, &r);
	CHECK_INT(timings__invalid(feed->timings, TIMING_INVALID_ABSURD), 1);
	feed_free(feed);
}

UNIT_MAIN()
