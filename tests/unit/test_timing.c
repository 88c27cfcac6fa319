/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "../../src/nccl_api.c"

#include "timing_feed.h"

/* One timed launch: `n` operations were told before, all of them described. */
static void finish(struct feed *feed, const struct nbp_record *launched, uint64_t duration_ns,
		   uint32_t n)
{
	SEND(feed, feed_finished(feed, launched, duration_ns, n));
}

static struct nbp_record launch(struct feed *feed, enum nbp_timing timing)
{
	struct nbp_record launched = feed_launched(feed, timing);

	feed_send(feed, &launched);
	return launched;
}

TEST(one_timed_operation)
{
	struct feed *feed = feed_new();
	const struct timing_launch *l = &feed->launches[0];
	struct nbp_record launched;
	uint64_t called_ns = feed->now_ns;

	SEND(feed, feed_comm(feed));
	feed->group = 1;
	SEND(feed, feed_api(feed, NBP_ALLREDUCE, 1024, 1));
	feed->now_ns += 5 * US;
	launched = launch(feed, NBP_TIMED);
	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 1024, 0));
	CHECK_INT(feed->n, 0);
	finish(feed, &launched, 50 * US, 1);
	CHECK_INT(feed->n, 1);
	CHECK(l->complete && l->has_bytes);
	CHECK_INT(l->form, TIMING_ONE);
	CHECK_INT(l->operation, NCCL_OP_AllReduce);
	CHECK_INT(l->duration_ns, 50 * US);
	CHECK_INT(l->launch_ns, launched.time_ns);
	CHECK_INT(l->gpu_start_ns, launched.time_ns + 20 * US);
	CHECK_INT(l->source, NBP_SOURCE_CUDA_EVENT);
	CHECK_INT(l->bytes, 4096);
	CHECK(l->bus_bytes == 4096 * 14.0 / 8);
	CHECK_INT(feed->operations[0][0].call_ns, called_ns);
	CHECK_INT(feed->operations[0][0].sequence, 100);
	CHECK_INT(feed->operations[0][0].algorithm, NBP_RING);
	CHECK_STR(l->comm->uuid, "GPU-1234ab00-0000-0000-0000-000000000000");
	CHECK_STR(l->comm->name, "default_pg");
	CHECK(timings__find(feed->timings, TGID, 0xabc + 7, 3) == l->comm);
	CHECK(!timings__find(feed->timings, TGID + 1, 0xabc + 7, 3));
	for (int i = 0; i < TIMING_INVALID_MAX; i++)
		CHECK_INT(timings__invalid(feed->timings, i), 0);
	for (int i = 0; i < TIMING_LOST_MAX; i++)
		CHECK_INT(timings__lost(feed->timings, i), 0);
	feed_free(feed);
}

TEST(untimed_launches_come_when_their_thread_goes_on_or_time_passes)
{
	struct feed *feed = feed_new();

	launch(feed, NBP_NOT_TIMED_BUDGET);
	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 1, 0));
	CHECK_INT(feed->n, 0);
	launch(feed, NBP_NOT_TIMED_BUDGET);
	CHECK_INT(feed->n, 1);
	CHECK(feed->launches[0].complete);
	CHECK_INT(feed->launches[0].n_operations, 1);
	CHECK_INT(feed->launches[0].timing, NBP_NOT_TIMED_BUDGET);
	SEND(feed, feed_operation(feed, NBP_ALLGATHER, 1, 0));
	timings__settle(feed->timings, feed->now_ns - MS); /* a clock read before it came */
	CHECK_INT(feed->n, 1);
	timings__settle(feed->timings, feed->now_ns + 100 * MS);
	CHECK_INT(feed->n, 1);
	timings__settle(feed->timings, feed->now_ns + SECOND);
	CHECK_INT(feed->n, 2);
	CHECK_INT(feed->launches[1].operation, NCCL_OP_AllGather);
	feed_free(feed);
}

static enum timing_form form_of(const uint8_t *functions, const int32_t *peers, unsigned int n,
				int32_t n_ranks, struct timing_launch *ret)
{
	struct feed *feed = feed_new();
	struct nbp_record launched;

	feed->n_ranks = n_ranks;
	feed->rank = 0;
	launched = launch(feed, NBP_TIMED);
	for (unsigned int i = 0; i < n; i++)
		SEND(feed, feed_operation(feed, functions[i], 256, peers[i]));
	finish(feed, &launched, 50 * US, n);
	CHECK_INT(feed->n, 1);
	CHECK(feed->launches[0].complete);
	*ret = feed->launches[0];
	feed_free(feed);
	return ret->form;
}

#define FORM(n_ranks, functions, peers, ret)                                                       \
	form_of(functions, peers, sizeof(functions), n_ranks, ret)

TEST(forms)
{
	const uint8_t same[] = {NBP_ALLREDUCE, NBP_ALLREDUCE};
	const uint8_t mixed[] = {NBP_ALLREDUCE, NBP_ALLGATHER};
	const uint8_t pair[] = {NBP_RECV, NBP_SEND};
	const uint8_t sends[] = {NBP_SEND, NBP_SEND, NBP_SEND};
	const uint8_t four[] = {NBP_SEND, NBP_RECV, NBP_RECV, NBP_SEND};
	const int32_t none[] = {0, 0}, to[] = {1, 1}, all[] = {0, 1, 2};
	const int32_t both[] = {0, 0, 1, 1}, others[] = {1, 2, 1, 2}, twice[] = {1, 1, 1, 1};
	struct timing_launch l;

	CHECK_INT(FORM(8, same, none, &l), TIMING_ONE);
	CHECK_INT(l.bytes, 2048);
	CHECK_INT(FORM(8, mixed, none, &l), TIMING_MIXED);
	CHECK_INT(l.bytes, 1024 + 8 * 256); /* of AllGather the count is in bytes */
	CHECK(l.bus_bytes == 1024 * 14.0 / 8 + 8 * 256 * 7.0 / 8);
	CHECK_INT(FORM(8, pair, to, &l), TIMING_PAIR);
	CHECK_INT(FORM(2, pair, to, &l), TIMING_PAIR);
	CHECK_INT(FORM(3, sends, all, &l), TIMING_ONE); /* a Scatter's root: not told apart */
	CHECK_INT(l.operation, NCCL_OP_Send);
	CHECK_INT(FORM(2, four, both, &l), TIMING_ONE);
	CHECK_INT(l.operation, NCCL_OP_AlltoAll);
	CHECK_INT(l.bytes, 2 * 1024);
	CHECK(l.bus_bytes == 1024);
	CHECK_INT(FORM(3, four, others, &l), TIMING_ONE); /* in place */
	CHECK_INT(l.operation, NCCL_OP_AlltoAll);
	CHECK_INT(l.bytes, 3 * 1024);
	CHECK_INT(FORM(4, four, others, &l), TIMING_MIXED); /* not with all */
	CHECK_INT(FORM(3, four, twice, &l), TIMING_MIXED);
}

TEST(times_that_cannot_be_are_counted_and_not_handed_out)
{
	struct feed *feed = feed_new();
	struct nbp_record r, launched;
	const struct {
		int64_t start, end, duration;
		enum timing_invalid reason;
	} cases[] = {
		{0, 0, 0, TIMING_INVALID_ZERO},
		{20000, 0, 50000, TIMING_INVALID_ZERO},
		{70000, 20000, 50000, TIMING_INVALID_BACKWARDS},
		{6 * SECOND, 6 * SECOND + 50000, 50000, TIMING_INVALID_ABSURD},
		{-6 * (int64_t)SECOND, -6 * (int64_t)SECOND + 50000, 50000, TIMING_INVALID_ABSURD},
		{20000, 3 * SECOND, 3 * SECOND, TIMING_INVALID_ABSURD},
		{20000, 70000, 100 * MS, TIMING_INVALID_ABSURD},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t before = timings__invalid(feed->timings, cases[i].reason);

		launched = launch(feed, NBP_TIMED);
		SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 1, 0));
		r = feed_finished(feed, &launched, 200 * MS, 1);
		r.launch.gpu_start_ns = cases[i].start ? launched.time_ns + cases[i].start : 0;
		r.launch.gpu_end_ns = cases[i].end ? launched.time_ns + cases[i].end : 0;
		r.launch.duration_ns = cases[i].duration;
		feed_send(feed, &r);
		CHECK_INT(feed->n, i + 1);
		CHECK_INT(feed->launches[i].duration_ns, 0);
		CHECK_INT(timings__invalid(feed->timings, cases[i].reason), before + 1);
	}
	feed_free(feed);
}

/* Said with either record, whichever comes. */
TEST(timed_for_a_pause_alone)
{
	struct feed *feed = feed_new();
	struct nbp_record launched, r;

	for (int i = 0; i < 3; i++) {
		launched = feed_launched(feed, NBP_TIMED);
		launched.launch.after_pause = i > 0;
		if (i < 2)
			feed_send(feed, &launched);
		SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 1, 0));
		r = feed_finished(feed, &launched, 50 * US, 1);
		feed_send(feed, &r);
		CHECK_INT(feed->n, i + 1);
		CHECK_INT(feed->launches[i].after_pause, i > 0);
	}
	feed_free(feed);
}

TEST(a_duplicate_is_refused)
{
	struct feed *feed = feed_new();
	struct nbp_record launched = launch(feed, NBP_TIMED), r;

	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 1, 0));
	r = feed_finished(feed, &launched, 50 * US, 1);
	feed_send(feed, &r);
	feed_send(feed, &r);
	CHECK_INT(feed->n, 1);
	CHECK_INT(timings__invalid(feed->timings, TIMING_INVALID_DUPLICATE), 1);
	feed_free(feed);
}

TEST(plugin_s_refusals_are_counted_once)
{
	struct feed *feed = feed_new();
	struct nbp_record launched = launch(feed, NBP_TIMED), r = feed_record(feed, NBP_KIND_LOSS);

	r.loss = (struct nbp_loss_record){
		.reason = NBP_LOSS_TIMING_ABANDONED, .count = 1, .total = 1};
	feed_send(feed, &r);
	r = feed_finished(feed, &launched, 50 * US, 1);
	r.launch.timing = NBP_ABANDONED;
	r.launch.source = NBP_SOURCE_NONE;
	feed_send(feed, &r);
	CHECK_INT(feed->n, 1);
	CHECK_INT(feed->launches[0].duration_ns, 0);
	CHECK_INT(timings__invalid(feed->timings, TIMING_INVALID_ABANDONED), 1);
	r = feed_record(feed, NBP_KIND_LOSS);
	r.comm_id = 0;
	/* one such record was lost: the total tells */
	for (uint64_t total = 3; total <= 9; total += 6) {
		r.loss = (struct nbp_loss_record){
			.reason = NBP_LOSS_TIMING_ERROR, .count = 3, .total = total};
		feed_send(feed, &r);
	}
	CHECK_INT(timings__invalid(feed->timings, TIMING_INVALID_DRIVER), 9);
	feed_free(feed);
}

/* The plugin tells of each loss twice; a tracer may miss either record, or come between them. */
TEST(a_loss_that_is_told_twice_counts_once)
{
	for (int missed = 0; missed < 3; missed++) {
		struct feed *feed = feed_new();
		struct nbp_record r = feed_record(feed, NBP_KIND_LOSS);

		r.loss = (struct nbp_loss_record){
			.reason = NBP_LOSS_RING_FULL, .count = 3, .total = 1003};
		for (int i = 0; i < 2; i++)
			if (i + 1 != missed)
				feed_send(feed, &r);
		CHECK_INT(timings__lost(feed->timings, NBP_LOSS_RING_FULL), 3);
		r.loss.total = 1005; /* 2 more within the second */
		r.loss.count = 5;
		feed_send(feed, &r);
		CHECK_INT(timings__lost(feed->timings, NBP_LOSS_RING_FULL), 5);
		feed_free(feed);
	}
}

TEST(in_flight_is_what_lies_up_to_the_last_timed_launch)
{
	struct feed *feed = feed_new();
	struct nbp_record first, second;
	const struct timing_comm *comm;
	uint64_t start_ns = 0, second_ns;

	SEND(feed, feed_comm(feed));
	comm = timings__first(feed->timings);
	launch(feed, NBP_NOT_TIMED_BUDGET);
	CHECK_INT(timing_comm__in_flight(comm, &start_ns), 0);
	feed->now_ns += MS;
	first = launch(feed, NBP_TIMED);
	CHECK_INT(timing_comm__in_flight(comm, &start_ns), 2);
	CHECK_INT(start_ns, 1000 * SECOND);
	feed->now_ns += MS;
	second_ns = feed->now_ns;
	launch(feed, NBP_NOT_TIMED_BUDGET);
	launch(feed, NBP_NOT_TIMED_BUDGET);
	feed->now_ns += MS;
	second = launch(feed, NBP_TIMED);
	launch(feed, NBP_NOT_TIMED_BUDGET);
	CHECK_INT(timing_comm__in_flight(comm, &start_ns), 5);
	finish(feed, &first, MS, 1);
	CHECK_INT(timing_comm__in_flight(comm, &start_ns), 3);
	CHECK_INT(start_ns, second_ns);
	finish(feed, &second, MS, 1);
	CHECK_INT(timing_comm__in_flight(comm, &start_ns), 0);
	feed_free(feed);
}

TEST(a_finish_that_was_lost_is_given_up_when_a_later_one_came)
{
	struct feed *feed = feed_new();
	struct nbp_record later;

	launch(feed, NBP_TIMED);
	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 1, 0));
	later = launch(feed, NBP_TIMED);
	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 2, 0));
	timings__settle(feed->timings, feed->now_ns + 100 * SECOND);
	CHECK_INT(feed->n, 0); /* a GPU may hang */
	finish(feed, &later, MS, 1);
	CHECK_INT(feed->n, 1);
	timings__settle(feed->timings, feed->now_ns);
	timings__settle(feed->timings, feed->now_ns + 2 * SECOND);
	CHECK_INT(feed->n, 2);
	CHECK_INT(feed->operations[1][0].count, 1);
	CHECK_INT(feed->launches[1].duration_ns, 0);
	CHECK_INT(timings__invalid(feed->timings, TIMING_INVALID_ABANDONED), 1);
	feed_free(feed);
}

TEST(calls_of_a_group_are_found_by_count)
{
	struct feed *feed = feed_new();
	struct nbp_record launched;
	uint64_t called_ns[3];

	for (int i = 0; i < 3; i++) { /* 1, 2, 3 elements; NCCL starts the largest first */
		feed->group = 5;
		called_ns[i] = feed->now_ns;
		SEND(feed, feed_api(feed, NBP_ALLREDUCE, i + 1, 2));
		feed->now_ns += US;
	}
	launched = launch(feed, NBP_TIMED);
	for (int i = 2; i >= 0; i--)
		SEND(feed, feed_operation(feed, NBP_ALLREDUCE, i + 1, 0));
	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 2, 0)); /* one more than was called */
	finish(feed, &launched, US, 4);
	for (int i = 0; i < 3; i++)
		CHECK_INT(feed->operations[0][i].call_ns, called_ns[2 - i]);
	CHECK_INT(feed->operations[0][3].call_ns, 0);
	feed_free(feed);
}

TEST(call_of_an_all_gather_has_elements_and_its_operation_bytes)
{
	struct feed *feed = feed_new();
	struct nbp_record launched;

	feed->group = 9;
	SEND(feed, feed_api(feed, NBP_ALLGATHER, 100, 2));
	launched = launch(feed, NBP_TIMED);
	SEND(feed, feed_operation(feed, NBP_ALLGATHER, 400, 0));
	finish(feed, &launched, US, 1);
	CHECK(feed->operations[0][0].call_ns);
	CHECK_INT(feed->launches[0].bytes, 8 * 400);
	CHECK_INT(timing_operation__message_bytes(&feed->operations[0][0]), 400);
	feed_free(feed);
}

/* ncclGroupStart, an AllReduce of count 0 (no operation), then another group with a like call. */
TEST(a_call_without_an_operation_is_not_taken_by_the_next)
{
	struct feed *feed = feed_new();
	struct nbp_record launched;

	feed->group = 1;
	SEND(feed, feed_api(feed, NBP_ALLREDUCE, 8, 2));
	feed->group = 2;
	feed->now_ns += MS;
	SEND(feed, feed_api(feed, NBP_ALLREDUCE, 8, 2));
	launched = launch(feed, NBP_TIMED);
	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 8, 0));
	finish(feed, &launched, US, 1);
	CHECK_INT(feed->operations[0][0].call_ns, launched.time_ns);
	feed_free(feed);
}

static void timer(struct feed *feed, uint64_t operation, uint64_t first_ns, uint64_t last_ns)
{
	struct nbp_record r = feed_record(feed, NBP_KIND_TIMER);

	r.timer = (struct nbp_timer){
		.operation = operation,
		.gpu_first_ns = first_ns,
		.gpu_last_ns = last_ns,
		.seen_ns = feed->now_ns,
		.n_channels = 4,
		.n_expected = 4,
		.function = NBP_ALLREDUCE,
	};
	feed_send(feed, &r);
}

TEST(kernel_timer_times_each_operation)
{
	struct feed *feed = feed_new();

	SEND(feed, feed_comm(feed));
	timer(feed, 4000, 1, 2); /* of an operation that was never told of */
	CHECK_INT(timings__invalid(feed->timings, TIMING_INVALID_INCOMPLETE), 1);
	launch(feed, NBP_NOT_TIMED_BUDGET);
	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 1, 0));
	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 2, 0));
	launch(feed, NBP_NOT_TIMED_BUDGET);
	CHECK_INT(feed->n, 0);
	feed->now_ns += MS;
	timer(feed, 2, 5000, 25000);
	timer(feed, 1, 5000, 15000);
	timer(feed, 1, 5000, 15000);
	CHECK_INT(feed->n, 2);
	CHECK_INT(feed->operations[0][0].count, 2);
	CHECK_INT(feed->launches[0].duration_ns, 20000);
	CHECK_INT(feed->launches[0].source, NBP_SOURCE_KERNEL_TIMER);
	CHECK_INT(feed->launches[0].timing, NBP_TIMED);
	CHECK_INT(feed->launches[0].gpu_start_ns, 0);
	CHECK_INT(feed->launches[0].n_operations, 1);
	CHECK(feed->launches[0].complete);
	CHECK_INT(feed->launches[1].duration_ns, 10000);
	CHECK_INT(timings__invalid(feed->timings, TIMING_INVALID_DUPLICATE), 1);
	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 3, 0));
	timings__process_gone(feed->timings, TGID, feed->now_ns);
	CHECK_INT(feed->n, 3);
	CHECK_INT(feed->launches[2].duration_ns, 0);
	feed_free(feed);
}

TEST(gaps_are_counted_once)
{
	struct feed *feed = feed_new();
	struct nbp_record r;

	feed->operation = feed->launch = 500; /* told to a tracer before us */
	SEND(feed, feed_comm(feed));
	launch(feed, NBP_NOT_TIMED_BUDGET);
	feed_operation(feed, NBP_ALLREDUCE, 1, 0); /* these two are lost */
	feed_operation(feed, NBP_ALLREDUCE, 1, 0);
	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 1, 0));
	launch(feed, NBP_NOT_TIMED_BUDGET);
	CHECK(!feed->launches[0].complete);
	for (int i = 0; i < 4; i++)
		timings__settle(feed->timings, feed->now_ns + i * SECOND);
	CHECK_INT(timings__lost(feed->timings, TIMING_LOST_GAP), 2);
	/* one that the plugin owns up to is its loss */
	feed_operation(feed, NBP_ALLREDUCE, 1, 0);
	r = feed_record(feed, NBP_KIND_LOSS);
	r.loss = (struct nbp_loss_record){.reason = NBP_LOSS_RING_FULL, .count = 1, .total = 1};
	feed_send(feed, &r);
	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 1, 0));
	timings__process_gone(feed->timings, TGID, feed->now_ns);
	CHECK_INT(timings__lost(feed->timings, TIMING_LOST_GAP), 2);
	CHECK_INT(timings__lost(feed->timings, NBP_LOSS_RING_FULL), 1);
	feed_free(feed);
}

TEST(a_process_number_that_comes_back_is_another_process)
{
	struct feed *feed = feed_new();

	feed->n_ranks = 8;
	SEND(feed, feed_comm(feed));
	timings__process_gone(feed->timings, TGID, feed->now_ns);
	CHECK(timings__first(feed->timings)->ended_ns);
	feed->n_ranks = 4;
	SEND(feed, feed_comm(feed));
	CHECK(!timings__first(feed->timings)->ended_ns);
	CHECK_INT(timings__first(feed->timings)->n_ranks, 4);
	CHECK(!timings__first(feed->timings)->hh.next);
	SEND(feed, feed_record(feed, NBP_KIND_END));
	timings__expire(feed->timings, feed->now_ns);
	CHECK(timings__first(feed->timings));
	timings__expire(feed->timings, feed->now_ns + 1);
	CHECK(!timings__first(feed->timings));
	feed_free(feed);
}

TEST(hostile_records_are_refused)
{
	struct feed *feed = feed_new();
	struct nbp_record r = feed_record(feed, NBP_KIND_COMM);

	r.size = 64;
	feed_send(feed, &r);
	r = feed_record(feed, 99);
	feed_send(feed, &r);
	r = feed_record(feed, NBP_KIND_OPERATION);
	r.operation.function = 200;
	feed_send(feed, &r);
	r = feed_record(feed, NBP_KIND_LAUNCH);
	feed_send(feed, &r);
	r = feed_record(feed, NBP_KIND_LOSS);
	r.loss.reason = 77;
	feed_send(feed, &r);
	CHECK_INT(timings__lost(feed->timings, TIMING_LOST_BAD_RECORD), 5);
	for (int i = 0; i < 3000; i++) {
		feed->comm_id = 100 + i;
		SEND(feed, feed_comm(feed));
	}
	CHECK_INT(HASH_COUNT(feed->timings->comms), TIMING_MAX_COMMS_PER_PROCESS);
	CHECK_INT(timings__lost(feed->timings, TIMING_LOST_NO_ROOM),
		  3001 - TIMING_MAX_COMMS_PER_PROCESS);
	feed_free(feed);
}

TEST(one_launch_of_very_many_operations)
{
	struct feed *feed = feed_new();
	struct nbp_record launched = launch(feed, NBP_TIMED);
	const unsigned int n = TIMING_MAX_OPERATIONS + 10;

	for (unsigned int i = 0; i < n; i++)
		SEND(feed, feed_operation(feed, NBP_SEND, 1, 1));
	finish(feed, &launched, US, n);
	CHECK_INT(feed->launches[0].n_described, TIMING_MAX_OPERATIONS);
	CHECK_INT(feed->launches[0].n_operations, n);
	CHECK(!feed->launches[0].complete);
	CHECK_INT(timings__lost(feed->timings, TIMING_LOST_NO_ROOM), 10);
	CHECK_INT(timings__invalid(feed->timings, TIMING_INVALID_INCOMPLETE), 1);
	CHECK_INT(feed->timings->usage.operations, 0);
	CHECK_INT(feed->timings->usage.opens, 0);
	feed_free(feed);
}

TEST(every_reason_has_a_name_of_its_own)
{
	for (int i = 0; i < TIMING_LOST_MAX; i++) {
		CHECK(timing_lost__name(i) && timing_lost__name(i)[0]);
		for (int j = 0; j < i; j++)
			CHECK(strcmp(timing_lost__name(i), timing_lost__name(j)));
	}
	for (int i = 0; i < TIMING_INVALID_MAX; i++)
		CHECK(timing_invalid__name(i) && timing_invalid__name(i)[0]);
}

UNIT_MAIN()
