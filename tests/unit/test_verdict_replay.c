/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ranks that launch CUDA graphs: who launches no more, and where nothing can be said. */
#include "unit.h"

#include "../../src/nccl_api.c"

#include "verdict_sources.h"
#include "verdict_bench.h"

#define STUCK_AFTER 20 * SEC
#define CAPTURED    12 /* calls in the graph of each rank */

static struct verdict_replays replays_of(uint64_t n)
{
	return (struct verdict_replays){CAPTURED, n * CAPTURED, NCCL_OP_AllReduce, true};
}

static void launched(struct bench *b, int rank, const struct verdict_replays *replays)
{
	const struct verdict_member member = bench_member(b, rank);

	verdicts__moved(b->verdicts, &member, b->now_ns);
	verdicts__replayed(b->verdicts, &member, replays);
}

static void launch(struct bench *b, int rank, uint64_t n)
{
	const struct verdict_replays replays = replays_of(n);

	launched(b, rank, &replays);
}

/* All ranks at a pace of ten launches a second: the n-th is the last. */
static void run_to(struct bench *b, uint64_t from, uint64_t to)
{
	for (uint64_t n = from; n <= to; n++) {
		for (int rank = 0; rank < b->n; rank++)
			launch(b, rank, n);
		bench_pass(b, 100 * MS);
	}
}

static void begin(struct bench *b, int n_ranks)
{
	bench_init(b, n_ranks, true, STUCK_AFTER);
	steps(b, 5, 100 * MS);
	run_to(b, 1, 50);
	CHECK_STATE(b, "healthy");
}

/* Ranks 1 and 2 wait in the graph for rank 3: neither has called what rank 0 has called next. */
TEST(who_waits_in_a_graph_owes_no_call)
{
	struct bench b;

	begin(&b, 4);
	for (int rank = 0; rank < 3; rank++)
		launch(&b, rank, 51);
	call_one(&b, 0, NCCL_OP_AllReduce);
	bench_pass(&b, 8 * SEC);
	CHECK_STATE(&b, "waiting");
	CHECK(NAMES(&verdict_of(&b)->culprits, 3));
	CHECK(NAMES(&verdict_of(&b)->waiting, 0, 1, 2));
	bench_free(&b);
}

/* That a rank was still is known only by counters that were read since. */
TEST(old_counters_accuse_nobody)
{
	struct bench b;

	begin(&b, 4);
	for (int rank = 0; rank < 3; rank++)
		launch(&b, rank, 51);
	verdicts__replays_as_of(b.verdicts, b.now_ns);
	bench_pass(&b, 9 * SEC);
	CHECK_STATE(&b, "healthy");
	verdicts__replays_as_of(b.verdicts, b.now_ns);
	bench_pass(&b, SEC);
	CHECK_STATE(&b, "waiting");
	CHECK(NAMES(&verdict_of(&b)->culprits, 3));
	bench_free(&b);
}

TEST(one_launches_no_more)
{
	struct bench b;
	uint64_t fault_ns;

	begin(&b, 4);
	fault_ns = b.now_ns;
	for (int rank = 0; rank < 3; rank++)
		launch(&b, rank, 51);
	bench_pass(&b, 2 * SEC);
	CHECK_STATE(&b, "healthy");
	bench_pass(&b, 3 * SEC);
	CHECK_STATE(&b, "waiting");
	CHECK_INT(verdict_of(&b)->cause, VERDICT_MISSING_LAUNCH);
	CHECK(NAMES(&verdict_of(&b)->culprits, 3));
	CHECK(NAMES(&verdict_of(&b)->waiting, 0, 1, 2));
	CHECK_INT(verdict_of(&b)->operation, NCCL_OP_AllReduce);
	CHECK(verdict_of(&b)->since_ns - fault_ns <= 250 * MS);
	CHECK_WHY(&b, "Rank 3 has not launched its CUDA graphs as often as ranks 0-2, which have "
		      "waited for ");
	CHECK(strstr(verdict_of(&b)->evidence[0], "; 600 operations replayed"));
	CHECK(strstr(verdict_of(&b)->evidence[1], "; 612 operations replayed"));
	bench_pass(&b, STUCK_AFTER);
	CHECK_STATE(&b, "stuck");
	run_to(&b, 51, 80);
	CHECK_STATE(&b, "healthy");
	bench_free(&b);
}

TEST(hosts_that_run_ahead_are_no_fault)
{
	struct bench b;

	begin(&b, 4);
	for (int i = 0; i < 200; i++) { /* rank 0 launches twenty in advance */
		launch(&b, 0, 70 + i);
		for (int rank = 1; rank < 4; rank++)
			launch(&b, rank, 50 + i);
		bench_pass(&b, 100 * MS);
		CHECK_STATE(&b, "healthy");
	}
	bench_free(&b);
}

TEST(slow_but_steady_is_no_fault)
{
	struct bench b;
	uint64_t n = 50;

	begin(&b, 2);
	for (int i = 0; i < 12; i++) { /* one launch in four seconds, one host always ahead */
		launch(&b, 0, n + 1);
		bench_pass(&b, 2 * SEC);
		launch(&b, 1, n++);
		bench_pass(&b, 2 * SEC);
	}
	CHECK_STATE(&b, "healthy");
	CHECK(worst_of(&b)->state <= VERDICT_WAITING); /* until its pace is known */
	bench_free(&b);
}

TEST(nobody_launches_is_idle)
{
	struct bench b;

	begin(&b, 4);
	bench_pass(&b, 60 * SEC);
	CHECK_STATE(&b, "idle");
	bench_free(&b);
}

/* A graph captured before we came, or one rank whose captures were not all seen. */
TEST(nothing_is_said_of_what_was_not_seen)
{
	struct verdict_replays replays = replays_of(51);
	struct bench b;

	for (int i = 0; i < 3; i++) {
		begin(&b, 4);
		for (int rank = 0; rank < 2; rank++)
			launch(&b, rank, 52);
		replays = replays_of(51);
		if (i == 0)
			replays.is_known = false;
		else if (i == 1)
			replays.n_captured = 0;
		else
			replays.n_captured++;
		launched(&b, 2, &replays);
		bench_pass(&b, 60 * SEC);
		CHECK_STATE(&b, "idle");
		CHECK(worst_of(&b)->state <= VERDICT_IDLE);
		bench_free(&b);
	}
}

TEST(who_calls_meanwhile_is_not_missing)
{
	struct bench b;

	begin(&b, 2);
	launch(&b, 0, 51);
	for (int i = 0; i < 30; i++) {
		call_all_but(&b, -1, NCCL_OP_Broadcast);
		bench_pass(&b, 500 * MS);
		CHECK_STATE(&b, "healthy");
	}
	bench_free(&b);
}

/* It ended while the others go on: not compared any more. */
TEST(who_has_left_is_not_compared)
{
	struct bench b;
	struct verdict_member member;

	begin(&b, 3);
	member = bench_member(&b, 2);
	verdicts__leave(b.verdicts, &member, VERDICT_END_DESTROYED, b.now_ns);
	launch(&b, 0, 51);
	launch(&b, 1, 51);
	bench_pass(&b, 60 * SEC);
	CHECK_STATE(&b, "idle");
	bench_free(&b);
}

UNIT_MAIN()
