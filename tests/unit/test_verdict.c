/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who is missing, idle, gone, or in error; what the judge remembers and forgets. */
#include "unit.h"

#include "../../src/nccl_api.c"

#include "verdict_sources.h"
#include "verdict_bench.h"

#define LONG 60 * SEC

TEST(healthy_after_a_few_numbers)
{
	struct bench b;

	bench_init(&b, 4, true, LONG);
	bench_pass(&b, SEC);
	CHECK_STATE(&b, "unknown");
	steps(&b, 10, 200 * MS);
	CHECK_STATE(&b, "healthy");
	CHECK_INT(worst_of(&b)->state, VERDICT_HEALTHY);
	bench_free(&b);
}

TEST(missing_call_is_named_then_stuck_then_forgiven)
{
	struct verdict_event events[8];
	const struct verdict *v;
	struct bench b;
	uint64_t fault_ns;

	bench_init(&b, 4, true, LONG);
	steps(&b, 50, 100 * MS);
	fault_ns = b.now_ns;
	call_all_but(&b, 2, NCCL_OP_AllReduce);
	bench_pass(&b, 2 * SEC);
	CHECK_STATE(&b, "healthy");
	bench_pass(&b, 3 * SEC);
	CHECK_STATE(&b, "waiting");
	v = verdict_of(&b);
	CHECK_INT(v->cause, VERDICT_MISSING_CALL);
	CHECK(NAMES(&v->culprits, 2));
	CHECK(NAMES(&v->waiting, 0, 1, 3));
	CHECK_INT(v->operation, NCCL_OP_AllReduce);
	CHECK_INT(v->sequence, 51);
	CHECK_INT(v->since_ns, fault_ns);
	CHECK_STR(v->why, "Rank 2 has not called AllReduce 51, in which ranks 0, 1, 3 have waited "
			  "for 5.0 s.");
	CHECK(v->n_evidence == 4 &&
	      strstr(v->evidence[0], "Rank 2 (pid 102): last call AllReduce 50"));
	bench_pass(&b, 54 * SEC);
	CHECK_STATE(&b, "waiting");
	bench_pass(&b, 2 * SEC);
	CHECK_STATE(&b, "stuck");
	CHECK(NAMES(&verdict_of(&b)->culprits, 2));
	call_one(&b, 2, NCCL_OP_AllReduce);
	steps(&b, 10, 200 * MS);
	CHECK_STATE(&b, "healthy");
	CHECK_INT(worst_of(&b)->state, VERDICT_STUCK);
	CHECK_INT(verdict_comm__events(verdicts__find(b.verdicts, HASH), events, 8), 4);
	CHECK_INT(events[0].state, VERDICT_HEALTHY);
	CHECK_INT(events[1].state, VERDICT_STUCK);
	CHECK_INT(events[1].culprit, 2);
	verdicts__forget_worst(b.verdicts);
	CHECK_INT(worst_of(&b)->state, VERDICT_HEALTHY);
	bench_free(&b);
}

/* Hosts run ahead of their GPUs: whoever still calls is not missing, however far behind. */
TEST(a_rank_behind_that_calls_is_not_missing)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	steps(&b, 20, 100 * MS);
	for (int i = 0; i < 40; i++)
		call_one(&b, 0, NCCL_OP_AllReduce);
	for (int i = 0; i < 40; i++) {
		call_one(&b, 1, NCCL_OP_AllReduce);
		bench_pass(&b, 500 * MS);
		CHECK(verdict_of(&b)->state != VERDICT_WAITING);
	}
	bench_free(&b);
}

/* The others wait for rank 3, and rank 3 for nobody: of two behind, the hindmost is to blame. */
TEST(the_hindmost_is_to_blame)
{
	struct bench b;

	bench_init(&b, 4, true, LONG);
	steps(&b, 20, 100 * MS);
	call_one(&b, 0, NCCL_OP_AllReduce);
	call_one(&b, 1, NCCL_OP_AllReduce);
	call_one(&b, 2, NCCL_OP_AllReduce);
	call_one(&b, 0, NCCL_OP_AllGather);
	bench_pass(&b, 6 * SEC);
	CHECK_STATE(&b, "waiting");
	CHECK(NAMES(&verdict_of(&b)->culprits, 3));
	CHECK(NAMES(&verdict_of(&b)->waiting, 0, 1, 2));
	bench_free(&b);
}

/* V7 */
TEST(pauses_of_all_are_idleness)
{
	struct bench b;

	bench_init(&b, 8, true, LONG);
	steps(&b, 20, 100 * MS);
	for (int i = 0; i < 300; i++) {
		bench_pass(&b, SEC);
		CHECK(verdict_of(&b)->state == VERDICT_IDLE || i < 12);
	}
	CHECK_WHY(&b, "Nobody has called for");
	steps(&b, 10, 200 * MS);
	CHECK_STATE(&b, "healthy");
	bench_pass(&b, 600 * SEC);
	CHECK_STATE(&b, "idle");
	CHECK_INT(verdict_state__severity(worst_of(&b)->state), 0);
	bench_free(&b);
}

TEST(a_checkpoint_is_waited_for_and_never_stuck)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	for (int i = 0; i < 5; i++) {
		steps(&b, 50, 100 * MS);
		CHECK_STATE(&b, "healthy");
		call_one(&b, 1, NCCL_OP_AllReduce);
		bench_pass(&b, i < 3 ? 10 * SEC : 30 * SEC);
		CHECK(i >= 3 || verdict_of(&b)->state == VERDICT_WAITING);
		CHECK(i >= 3 || NAMES(&verdict_of(&b)->culprits, 0));
		call_one(&b, 0, NCCL_OP_AllReduce);
	}
	CHECK(verdict_state__severity(worst_of(&b)->state) <=
	      verdict_state__severity(VERDICT_WAITING));
	bench_free(&b);
}

/* A job whose ranks are late by 8 s at every step: that is how it is, until it takes far longer. */
TEST(habits_are_learnt)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	for (int i = 0; i < 20; i++) {
		call_one(&b, 0, NCCL_OP_AllReduce);
		bench_pass(&b, 8 * SEC);
		CHECK(i < 4 || verdict_of(&b)->state != VERDICT_WAITING);
		call_one(&b, 1, NCCL_OP_AllReduce);
		bench_pass(&b, SEC);
	}
	call_one(&b, 0, NCCL_OP_AllReduce);
	bench_pass(&b, 15 * SEC);
	CHECK(verdict_of(&b)->state != VERDICT_WAITING);
	bench_pass(&b, 3 * SEC);
	CHECK_STATE(&b, "waiting");
	CHECK(NAMES(&verdict_of(&b)->culprits, 1));
	bench_free(&b);
}

static void reached_all(struct bench *b, int behind)
{
	for (int rank = 0; rank < b->n; rank++) {
		const struct verdict_member member = bench_member(b, rank);

		verdicts__reached(b->verdicts, &member, NCCL_OP_AllReduce,
				  rank == behind ? 500 : 501, b->now_ns);
		verdicts__reached(b->verdicts, &member, NCCL_OP_AllGather, 0, b->now_ns);
	}
}

TEST(attached_to_a_job_that_hangs)
{
	struct bench b;

	bench_init(&b, 4, false, 10 * SEC);
	reached_all(&b, 3);
	bench_pass(&b, 5 * SEC);
	CHECK_STATE(&b, "waiting");
	CHECK(NAMES(&verdict_of(&b)->culprits, 3));
	CHECK_INT(verdict_of(&b)->sequence, 501);
	CHECK(strstr(verdict_of(&b)->evidence[0], "no call seen; stands at AllReduce 500"));
	bench_pass(&b, 6 * SEC);
	CHECK_STATE(&b, "stuck");
	bench_free(&b);
}

TEST(attached_to_a_job_that_idles)
{
	struct bench b;

	bench_init(&b, 4, false, 10 * SEC);
	reached_all(&b, -1);
	bench_pass(&b, 4 * SEC);
	CHECK_STATE(&b, "unknown");
	bench_pass(&b, 3 * SEC);
	CHECK_STATE(&b, "idle");
	bench_pass(&b, 60 * SEC);
	CHECK_STATE(&b, "idle");
	CHECK_INT(worst_of(&b)->state, VERDICT_IDLE);
	bench_free(&b);
}

/* Numbers that are read one after the other differ while the job runs; nobody stands still. */
TEST(numbers_read_at_different_times_accuse_nobody)
{
	struct bench b;

	bench_init(&b, 4, false, LONG);
	for (uint64_t n = 0; n < 100; n++) {
		for (int rank = 0; rank < 4; rank++) {
			const struct verdict_member member = bench_member(&b, rank);

			verdicts__reached(b.verdicts, &member, NCCL_OP_AllReduce, 10 * n + 3 * rank,
					  b.now_ns);
		}
		bench_pass(&b, 250 * MS);
		CHECK(verdict_of(&b)->state != VERDICT_WAITING);
	}
	CHECK_STATE(&b, "healthy");
	bench_free(&b);
}

/* V6 */
TEST(lost_records_accuse_nobody)
{
	struct bench b;

	bench_init(&b, 4, true, LONG);
	steps(&b, 20, 100 * MS);
	b.hears[1] = false;
	call_all_but(&b, -1, NCCL_OP_AllReduce);
	verdicts__lost(b.verdicts, 101, b.now_ns);
	b.hears[1] = true;
	bench_pass(&b, 30 * SEC);
	CHECK_STATE(&b, "degraded_sight");
	CHECK_INT(verdict_of(&b)->culprits.n, 0);
	CHECK_WHY(&b, "nobody is accused");
	/* seen at one number again: what is missing from then on is missing */
	steps(&b, 10, 200 * MS);
	CHECK_STATE(&b, "healthy");
	call_all_but(&b, 1, NCCL_OP_AllReduce);
	bench_pass(&b, 6 * SEC);
	CHECK_STATE(&b, "waiting");
	CHECK(NAMES(&verdict_of(&b)->culprits, 1));
	/* what held before a loss goes on where exact counters say that nothing has changed */
	verdicts__lost(b.verdicts, 0, b.now_ns);
	bench_pass(&b, 2 * SEC);
	CHECK_STATE(&b, "degraded_sight");
	for (int rank = 0; rank < 4; rank++) {
		const struct verdict_member member = bench_member(&b, rank);

		verdicts__reached(b.verdicts, &member, NCCL_OP_AllReduce,
				  b.sequences[rank][NCCL_OP_AllReduce], b.now_ns);
	}
	bench_free(&b);
}

TEST(a_loss_elsewhere_does_not_end_an_accusation)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	steps(&b, 20, 100 * MS);
	call_one(&b, 0, NCCL_OP_AllReduce);
	bench_pass(&b, 6 * SEC);
	CHECK_STATE(&b, "waiting");
	verdicts__lost(b.verdicts, 0, b.now_ns);
	for (int i = 0; i < 20; i++) {
		b.now_ns += MS;
		for (int rank = 0; rank < 2; rank++) {
			const struct verdict_member member = bench_member(&b, rank);

			verdicts__reached(b.verdicts, &member, NCCL_OP_AllReduce,
					  b.sequences[rank][NCCL_OP_AllReduce], b.now_ns);
		}
		bench_pass(&b, 250 * MS);
	}
	CHECK_STATE(&b, "waiting");
	CHECK(NAMES(&verdict_of(&b)->culprits, 1));
	bench_free(&b);
}

static void leave(struct bench *b, int rank, enum verdict_end how)
{
	const struct verdict_member member = bench_member(b, rank);

	verdicts__leave(b->verdicts, &member, how, b->now_ns);
}

TEST(died_while_others_wait)
{
	const struct verdict *v;
	struct bench b;

	bench_init(&b, 4, true, LONG);
	steps(&b, 20, 100 * MS);
	leave(&b, 1, VERDICT_END_DIED);
	call_all_but(&b, 1, NCCL_OP_AllReduce);
	bench_pass(&b, 5 * SEC);
	CHECK_STATE(&b, "aborted");
	v = verdict_of(&b);
	CHECK_INT(v->cause, VERDICT_ENDED);
	CHECK(NAMES(&v->culprits, 1));
	CHECK_INT(v->sequence, 21);
	CHECK_WHY(&b, "Rank 1 ended 5.0 s ago, while ranks 0, 2, 3 wait for it in AllReduce 21");
	/* the others are killed for it: it stays who was to blame */
	leave(&b, 0, VERDICT_END_DIED);
	leave(&b, 2, VERDICT_END_DIED);
	leave(&b, 3, VERDICT_END_DIED);
	bench_pass(&b, 5 * SEC);
	CHECK_STATE(&b, "aborted");
	CHECK(NAMES(&verdict_of(&b)->culprits, 1));
	verdicts__expire(b.verdicts, b.now_ns + SEC);
	CHECK(verdicts__find(b.verdicts, HASH));
	bench_pass(&b, 310 * SEC);
	verdicts__expire(b.verdicts, b.now_ns);
	CHECK(!verdicts__find(b.verdicts, HASH));
	CHECK(!verdicts__first(b.verdicts));
	bench_free(&b);
}

TEST(processes_that_end_without_a_word_are_no_fault)
{
	struct bench b;

	bench_init(&b, 4, true, LONG);
	steps(&b, 20, 100 * MS);
	leave(&b, 1, VERDICT_END_DIED);
	leave(&b, 2, VERDICT_END_DIED);
	bench_pass(&b, 60 * SEC);
	leave(&b, 0, VERDICT_END_DIED);
	leave(&b, 3, VERDICT_END_DESTROYED);
	bench_pass(&b, 60 * SEC);
	CHECK_STATE(&b, "idle");
	CHECK_WHY(&b, "have ended");
	CHECK_INT(verdict_state__severity(worst_of(&b)->state), 0);
	verdicts__expire(b.verdicts, b.now_ns);
	CHECK(!verdicts__find(b.verdicts, HASH));
	bench_free(&b);
}

TEST(one_destroys_it_too_early)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	steps(&b, 20, 100 * MS);
	leave(&b, 1, VERDICT_END_DESTROYED);
	call_one(&b, 0, NCCL_OP_AllReduce);
	bench_pass(&b, 6 * SEC);
	CHECK_STATE(&b, "waiting");
	CHECK_INT(verdict_of(&b)->cause, VERDICT_ENDED);
	CHECK(NAMES(&verdict_of(&b)->culprits, 1));
	CHECK_WHY(&b, "Rank 1 ended the communicator");
	bench_free(&b);
}

TEST(aborted)
{
	struct bench b;

	bench_init(&b, 4, true, LONG);
	steps(&b, 20, 100 * MS);
	leave(&b, 3, VERDICT_END_ABORTED);
	bench_pass(&b, 4 * SEC);
	CHECK_STATE(&b, "aborted");
	CHECK(NAMES(&verdict_of(&b)->culprits, 3));
	CHECK_WHY(&b, "Rank 3 aborted the communicator 4.0 s ago.");
	bench_free(&b);
}

/* A record may come after the news of its process's end. */
TEST(last_calls_of_one_that_died)
{
	struct verdict_call call;
	struct bench b;

	bench_init(&b, 2, true, LONG);
	steps(&b, 20, 100 * MS);
	call_one(&b, 0, NCCL_OP_AllReduce);
	call = bench_call(&b, 1, NCCL_OP_AllReduce);
	b.now_ns += MS;
	leave(&b, 1, VERDICT_END_DIED);
	verdicts__call(b.verdicts, &call);
	bench_pass(&b, 20 * SEC);
	CHECK_STATE(&b, "idle");
	bench_free(&b);
}

TEST(asynchronous_error)
{
	struct verdict_member member;
	struct bench b;

	bench_init(&b, 2, true, LONG);
	steps(&b, 20, 100 * MS);
	member = bench_member(&b, 1);
	verdicts__error(b.verdicts, &member, "ncclRemoteError", b.now_ns);
	bench_pass(&b, 250 * MS);
	CHECK_STATE(&b, "error");
	CHECK_STR(verdict_of(&b)->why, "Rank 1 reports ncclRemoteError.");
	verdicts__error(b.verdicts, &member,
			"\033[2Jevil \"name\" that is far longer than any of NCCL", b.now_ns);
	bench_pass(&b, 250 * MS);
	CHECK_WHY(&b, "reports __2Jevil__name__that_is_far_lon.");
	verdicts__error(b.verdicts, &member, "", b.now_ns);
	steps(&b, 10, 200 * MS);
	CHECK_STATE(&b, "healthy");
	bench_free(&b);
}

/* A hash is no secret: two processes that claim one rank cannot both be right. */
TEST(two_claim_one_rank)
{
	struct verdict_member forged;
	struct bench b;

	bench_init(&b, 4, true, LONG);
	steps(&b, 20, 100 * MS);
	forged = bench_member(&b, 2);
	forged.tgid = 666;
	verdicts__join(b.verdicts, &forged, true, 1, b.now_ns);
	bench_pass(&b, 20 * SEC);
	CHECK_STATE(&b, "unknown");
	CHECK_WHY(&b, "both claim rank 2: nothing can be said");
	verdicts__leave(b.verdicts, &forged, VERDICT_END_DIED, b.now_ns);
	steps(&b, 20, 100 * MS);
	CHECK_STATE(&b, "healthy");
	CHECK(!verdicts__rank(b.verdicts, &forged));
	/* a new process takes the place of one that has ended */
	leave(&b, 2, VERDICT_END_DIED);
	verdicts__join(b.verdicts, &forged, false, 1, b.now_ns);
	bench_pass(&b, SEC);
	CHECK(verdicts__rank(b.verdicts, &forged));
	CHECK(verdict_of(&b)->state != VERDICT_UNKNOWN);
	bench_free(&b);
}

TEST(another_size_is_another_communicator)
{
	struct verdict_member odd;
	struct bench b;
	int n = 0;

	bench_init(&b, 4, true, LONG);
	odd = bench_member(&b, 1);
	odd.n_ranks = 9;
	odd.tgid = 666;
	verdicts__join(b.verdicts, &odd, true, 1, b.now_ns);
	steps(&b, 20, 100 * MS);
	CHECK_STATE(&b, "healthy");
	for (struct verdict_comm *c = verdicts__first(b.verdicts); c;
	     c = verdict_comm__next(c), n++)
		CHECK_INT(verdict_comm__n_ranks(c), n ? 9 : 4);
	CHECK_INT(n, 2);
	for (int rank = 0; rank < 4; rank++)
		leave(&b, rank, VERDICT_END_DESTROYED);
	bench_pass(&b, SEC);
	verdicts__expire(b.verdicts, b.now_ns);
	CHECK_INT(verdict_comm__n_ranks(verdicts__find(b.verdicts, HASH)), 9);
	bench_free(&b);
}

TEST(what_jobs_can_grow_is_bounded)
{
	const struct verdict_options options = {.stuck_after_ns = 60 * SEC};
	struct verdicts *verdicts = NULL;
	struct verdict_member member = {.n_ranks = 100000};
	uint32_t n;

	CHECK_INT(verdicts__new(&verdicts, &options), 0);
	for (int i = 0; i < 5000; i++) {
		member.hash = 1 + i;
		verdicts__join(verdicts, &member, true, 1, SEC);
	}
	CHECK_INT(verdicts__refused(verdicts), 5000 - MAX_COMMS);
	member.hash = 7;
	for (int32_t rank = 1; rank < 2000; rank++) {
		struct verdict_call call = {.sequence = 1, .time_ns = SEC, .root = -1};

		member.rank = rank;
		member.tgid = rank;
		verdicts__join(verdicts, &member, true, 1, SEC);
		call.member = member;
		verdicts__call(verdicts, &call);
	}
	verdict_comm__ranks(verdicts__find(verdicts, 7), &n);
	CHECK_INT(n, MAX_MEMBERS);
	CHECK_INT(verdicts__refused(verdicts), 5000 - MAX_COMMS + 2000 - MAX_MEMBERS);
	for (int32_t bad = -2; bad < 0; bad++) {
		member.rank = bad;
		verdicts__join(verdicts, &member, true, 1, SEC);
	}
	member = (struct verdict_member){.n_ranks = 4};
	verdicts__join(verdicts, &member, true, 1, SEC);
	CHECK_INT(verdicts__refused(verdicts), 5000 - MAX_COMMS + 2000 - MAX_MEMBERS + 3);
	verdicts__settle(verdicts, 2 * SEC);
	verdicts__free(verdicts);
}

TEST(history_is_bounded)
{
	const struct verdict_options options = {.stuck_after_ns = 60 * SEC};
	struct verdicts *verdicts = NULL;

	CHECK_INT(verdicts__new(&verdicts, &options), 0);
	for (int i = 0; i < 200; i++) {
		struct verdict_call call = {.sequence = 1, .time_ns = SEC, .root = -1};

		call.member = (struct verdict_member){.hash = 1 + i, .n_ranks = 128, .tgid = 1};
		for (; call.member.rank < 80; call.member.rank++) {
			verdicts__join(verdicts, &call.member, true, 1, SEC);
			for (int op = 0; op < N_COLLECTIVES; op++) {
				call.operation = op;
				verdicts__call(verdicts, &call);
			}
		}
	}
	CHECK(verdicts->n_cells <= MAX_CELLS);
	CHECK(verdicts__refused(verdicts) > 0 && verdicts__refused(verdicts) <= 200);
	verdicts__settle(verdicts, 2 * SEC);
	verdicts__free(verdicts);
}

/* A graph's replays are not numbered; captured calls run nothing. */
TEST(graphs_move)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	for (int rank = 0; rank < 2; rank++) {
		struct verdict_call call = bench_call(&b, rank, NCCL_OP_AllReduce);

		call.captured = true;
		call.sequence = VERDICT_NO_SEQUENCE;
		verdicts__call(b.verdicts, &call);
	}
	for (int i = 0; i < 100; i++) {
		for (int rank = 0; rank < 2; rank++) {
			const struct verdict_member member = bench_member(&b, rank);

			verdicts__moved(b.verdicts, &member, b.now_ns);
		}
		bench_pass(&b, 200 * MS);
	}
	CHECK_STATE(&b, "healthy");
	CHECK_WHY(&b, "cannot be compared");
	bench_pass(&b, 60 * SEC);
	CHECK_STATE(&b, "idle");
	bench_free(&b);
}

/* No numbers: one goes on, one does not, and nothing tells whether it should. */
TEST(unnumbered_ranks_are_not_compared)
{
	struct bench b;

	bench_init(&b, 2, false, LONG);
	for (int i = 0; i < 100; i++) {
		for (int rank = 0; rank < (i < 50 ? 2 : 1); rank++) {
			struct verdict_call call = bench_call(&b, rank, NCCL_OP_AlltoAll);

			call.sequence = VERDICT_NO_SEQUENCE;
			verdicts__call(b.verdicts, &call);
		}
		bench_pass(&b, 200 * MS);
		if (i == 49)
			CHECK_STATE(&b, "healthy");
	}
	CHECK_STATE(&b, "unknown");
	CHECK_INT(verdict_of(&b)->culprits.n, 0);
	bench_free(&b);
}

static void note_lateness(void *ctx, const struct verdict_member *member,
			  enum nccl_operation operation, uint64_t lateness_ns)
{
	uint64_t *sums = ctx;

	CHECK_INT(operation, NCCL_OP_AllReduce);
	sums[member->rank] += lateness_ns;
}

TEST(lateness_is_told)
{
	const struct verdict_rank *ranks;
	uint64_t sums[3] = {};
	struct bench b;
	uint32_t n;

	bench_init(&b, 3, true, LONG);
	verdicts__on_lateness(b.verdicts, note_lateness, sums);
	for (int i = 0; i < 10; i++) {
		call_one(&b, 1, NCCL_OP_AllReduce);
		b.now_ns += 2 * MS;
		call_one(&b, 0, NCCL_OP_AllReduce);
		b.now_ns += MS;
		call_one(&b, 2, NCCL_OP_AllReduce);
		bench_pass(&b, 250 * MS);
	}
	CHECK_INT(sums[0], 20 * MS);
	CHECK_INT(sums[1], 0);
	CHECK_INT(sums[2], 30 * MS);
	ranks = verdict_comm__ranks(verdicts__find(b.verdicts, HASH), &n);
	CHECK_INT(n, 3);
	CHECK_INT(ranks[2].lateness_total_ns[NCCL_OP_AllReduce], 30 * MS);
	CHECK_INT(ranks[2].last_arrivals[NCCL_OP_AllReduce], 10);
	CHECK_INT(ranks[0].last_arrivals[NCCL_OP_AllReduce], 0);
	CHECK_INT(ranks[2].lateness_ns, 3 * MS);
	CHECK_INT(ranks[2].lateness_max_ns, 3 * MS);
	CHECK_INT(ranks[2].n_compared, 10);
	CHECK_INT(ranks[2].n_last, 10);
	CHECK_INT(ranks[1].last_operation, NCCL_OP_AllReduce);
	CHECK_INT(ranks[1].last_sequence, 10);
	bench_free(&b);
}

TEST(a_clock_that_runs_ahead_hides_nobody)
{
	struct verdict_call call;
	struct bench b;

	bench_init(&b, 2, true, LONG);
	steps(&b, 20, 100 * MS);
	call = bench_call(&b, 1, NCCL_OP_AllGather);
	call.sequence = VERDICT_NO_SEQUENCE;
	call.time_ns += 3600 * SEC;
	verdicts__call(b.verdicts, &call);
	call_one(&b, 0, NCCL_OP_AllReduce);
	bench_pass(&b, 8 * SEC);
	CHECK_STATE(&b, "waiting");
	CHECK(NAMES(&verdict_of(&b)->culprits, 1));
	bench_free(&b);
}

static void call_other(struct bench *b, int rank, uint64_t sequence)
{
	const struct verdict_call call = {
		.member = {OTHER, rank - 2, 2, 100 + rank},
		.operation = NCCL_OP_AllGather,
		.sequence = sequence,
		.time_ns = b->now_ns,
		.count = 7,
		.redop = ~0U,
		.root = -1,
	};

	verdicts__call(b->verdicts, &call);
}

/* Ranks 2 and 3 are in a second one as well: rank 2 waits there for 3, all others here for both. */
TEST(who_waits_elsewhere_is_not_to_blame)
{
	const struct verdict *v;
	struct bench b;

	bench_init(&b, 4, true, LONG);
	for (int rank = 2; rank < 4; rank++) {
		const struct verdict_member member = {OTHER, rank - 2, 2, 100 + rank};

		verdicts__join(b.verdicts, &member, true, 1, b.now_ns);
	}
	for (uint64_t i = 1; i <= 20; i++) {
		call_other(&b, 2, i);
		call_other(&b, 3, i);
		steps(&b, 1, 100 * MS);
	}
	call_other(&b, 2, 21);
	call_one(&b, 0, NCCL_OP_AllReduce);
	call_one(&b, 1, NCCL_OP_AllReduce);
	bench_pass(&b, 6 * SEC);
	CHECK_STATE(&b, "waiting");
	CHECK(NAMES(&verdict_of(&b)->culprits, 3));
	CHECK(NAMES(&verdict_of(&b)->waiting, 0, 1, 2));
	v = verdict_comm__now(verdicts__find(b.verdicts, OTHER));
	CHECK_INT(v->state, VERDICT_WAITING);
	CHECK(NAMES(&v->culprits, 1));
	/* rank 3 comes there: what rank 2 does now is its own affair, and takes its time */
	call_other(&b, 3, 21);
	bench_pass(&b, 2 * SEC);
	CHECK(!(verdict_of(&b)->state == VERDICT_WAITING && verdict_of(&b)->culprits.n > 1));
	bench_free(&b);
}

TEST(who_goes_on_elsewhere_is_said_to)
{
	struct bench b;

	bench_init(&b, 4, true, LONG);
	for (int rank = 2; rank < 4; rank++) {
		const struct verdict_member member = {OTHER, rank - 2, 2, 100 + rank};

		verdicts__join(b.verdicts, &member, true, 1, b.now_ns);
	}
	steps(&b, 20, 100 * MS);
	call_all_but(&b, 3, NCCL_OP_AllReduce);
	for (uint64_t i = 1; i <= 100; i++) {
		call_other(&b, 2, i);
		call_other(&b, 3, i);
		bench_pass(&b, 100 * MS);
	}
	CHECK_STATE(&b, "waiting");
	CHECK(NAMES(&verdict_of(&b)->culprits, 3));
	CHECK_STR(verdict_of(&b)->evidence[0], "Rank 3 goes on in communicator 1111222233334444");
	bench_free(&b);
}

TEST(tables)
{
	static const char *const names_of[VERDICT_STATES] = {
		"healthy",  "idle",    "waiting", "stuck",	    "straggler", "slow",
		"mismatch", "aborted", "error",	  "degraded_sight", "unknown",
	};
	static const int statuses[VERDICT_STATES] = {0, 0, 1, 4, 1, 1, 4, 4, 4, 1, 1};

	for (int i = 0; i < VERDICT_STATES; i++) {
		CHECK_STR(verdict_state__name(i), names_of[i]);
		CHECK_INT(verdict_state__exit_status(i), statuses[i]);
		/* the worse exit status is never the lesser evil */
		for (int k = 0; k < VERDICT_STATES; k++)
			CHECK(statuses[i] <= statuses[k] ||
			      verdict_state__severity(i) > verdict_state__severity(k));
	}
	for (int i = 0; i < VERDICT_CAUSES; i++)
		CHECK(verdict_cause__name(i)[0]);
	for (int i = 0; i < VERDICT_MISMATCHES; i++)
		CHECK(verdict_mismatch__name(i)[0]);
	CHECK_STR(verdict_mismatch__name(VERDICT_MISMATCH_REDOP), "redop");
	CHECK_STR(verdict_cause__name(VERDICT_CAUSES), "unknown");
}

UNIT_MAIN()
