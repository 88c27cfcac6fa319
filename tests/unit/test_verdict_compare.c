/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who calls something else; who is late; whose GPU keeps others waiting; who does not send. */
#include "unit.h"

#include "../../src/nccl_api.c"

#include "verdict_sources.h"
#include "verdict_bench.h"

#define LONG 60 * SEC

/* ---- arguments ---- */

/* At one number, `rank` calls with what the other call has. */
static void differ(struct bench *b, int rank, const struct verdict_call *other)
{
	for (int r = 0; r < b->n; r++) {
		struct verdict_call call = bench_call(b, r, other->operation);

		if (r == rank) {
			call.count = other->count;
			call.datatype = other->datatype;
			call.redop = other->redop;
			call.root = other->root;
		}
		bench_send(b, &call);
		b->now_ns += 1000;
	}
}

TEST(another_count)
{
	struct verdict_call other = {
		.operation = NCCL_OP_AllReduce,
		.count = 2048,
		.datatype = 7,
		.root = -1,
	};
	const struct verdict_rank *ranks;
	const struct verdict *v;
	struct bench b;
	uint32_t n;

	bench_init(&b, 4, true, LONG);
	steps(&b, 20, 100 * MS);
	differ(&b, 0, &other);
	bench_pass(&b, 500 * MS);
	CHECK_STATE(&b, "mismatch");
	v = verdict_of(&b);
	CHECK_INT(v->mismatch, VERDICT_MISMATCH_COUNT);
	CHECK_INT(v->cause, VERDICT_DISAGREE);
	CHECK(NAMES(&v->culprits, 0));
	CHECK_INT(v->operation, NCCL_OP_AllReduce);
	CHECK_INT(v->sequence, 21);
	CHECK_STR(v->why, "AllReduce 21: rank 0 calls with 2048 elements, ranks 1-3 with 1024 "
			  "elements.");
	ranks = verdict_comm__ranks(verdicts__find(b.verdicts, HASH), &n);
	CHECK_INT(ranks[0].mismatches[VERDICT_MISMATCH_COUNT], 1);
	CHECK_INT(ranks[1].mismatches[VERDICT_MISMATCH_COUNT], 0);
	/* five minutes of agreement */
	steps(&b, 50, 5 * SEC);
	CHECK_STATE(&b, "mismatch");
	steps(&b, 12, 5 * SEC);
	CHECK_STATE(&b, "healthy");
	CHECK_INT(worst_of(&b)->state, VERDICT_MISMATCH);
	bench_free(&b);
}

/* Without a hang or with one; a job that is quiet since has not agreed. */
TEST(a_mismatch_that_hangs_stays)
{
	struct verdict_call other = {
		.operation = NCCL_OP_AllReduce,
		.count = 512,
		.datatype = 7,
		.root = -1,
	};
	const struct verdict_rank *ranks;
	struct bench b;
	uint32_t n;

	bench_init(&b, 4, true, LONG);
	steps(&b, 20, 100 * MS);
	b.hears[3] = false; /* it never comes */
	differ(&b, 1, &other);
	bench_pass(&b, 900 * SEC);
	CHECK_STATE(&b, "mismatch");
	CHECK(NAMES(&verdict_of(&b)->culprits, 1));
	ranks = verdict_comm__ranks(verdicts__find(b.verdicts, HASH), &n);
	CHECK_INT(ranks[1].mismatches[VERDICT_MISMATCH_COUNT], 1);
	CHECK_INT(ranks[0].mismatches[VERDICT_MISMATCH_COUNT], 0);
	bench_free(&b);
}

static void check_kind(const struct verdict_call *other, enum verdict_mismatch kind,
		       const char *why)
{
	struct bench b;

	bench_init(&b, 3, true, LONG);
	steps(&b, 20, 100 * MS);
	differ(&b, 2, other);
	bench_pass(&b, 500 * MS);
	CHECK_STATE(&b, "mismatch");
	CHECK_INT(verdict_of(&b)->mismatch, kind);
	CHECK(NAMES(&verdict_of(&b)->culprits, 2));
	CHECK_WHY(&b, why);
	bench_free(&b);
}

TEST(another_type_reduction_or_root)
{
	struct verdict_call other = {
		.operation = NCCL_OP_AllReduce,
		.count = 1024,
		.datatype = 9,
		.root = -1,
	};

	check_kind(&other, VERDICT_MISMATCH_DATATYPE,
		   "AllReduce 21: ranks 0, 1 call with float32, rank 2 with bfloat16.");
	other.datatype = 7;
	other.redop = 2;
	check_kind(&other, VERDICT_MISMATCH_REDOP,
		   "AllReduce 21: ranks 0, 1 call with sum, rank 2 with max.");
	other.operation = NCCL_OP_Broadcast;
	other.redop = ~0U;
	other.root = 1;
	check_kind(&other, VERDICT_MISMATCH_ROOT,
		   "Broadcast 1: ranks 0, 1 call with root 0, rank 2 with root 1.");
}

TEST(what_is_not_known_does_not_differ)
{
	struct verdict_call other = {
		.operation = NCCL_OP_AllReduce,
		.count = 1024,
		.datatype = ~0U,
		.redop = ~0U,
		.root = -1,
	};
	struct bench b;

	bench_init(&b, 3, true, LONG);
	steps(&b, 20, 100 * MS);
	for (int rank = 0; rank < 3; rank++)
		differ(&b, rank, &other);
	bench_pass(&b, SEC);
	CHECK_STATE(&b, "healthy");
	/* a job's own reductions are handles, different ones on each rank */
	for (int rank = 0; rank < 3; rank++) {
		struct verdict_call call = bench_call(&b, rank, NCCL_OP_AllReduce);

		call.redop = 5 + rank;
		bench_send(&b, &call);
	}
	bench_pass(&b, SEC);
	CHECK_STATE(&b, "healthy");
	bench_free(&b);
}

TEST(of_two_that_differ_both_are_named)
{
	struct verdict_call other = {
		.operation = NCCL_OP_AllReduce,
		.count = 1,
		.datatype = 7,
		.root = -1,
	};
	struct bench b;

	bench_init(&b, 2, true, LONG);
	steps(&b, 20, 100 * MS);
	differ(&b, 1, &other);
	bench_pass(&b, 500 * MS);
	CHECK_STATE(&b, "mismatch");
	CHECK(NAMES(&verdict_of(&b)->culprits, 0, 1));
	bench_free(&b);
}

/* V5: compared only at one number, whenever each of them was first heard. */
TEST(late_attach_shifts_nothing)
{
	struct bench b;

	bench_init(&b, 2, false, LONG);
	b.hears[1] = false;
	for (int i = 0; i < 80; i++) {
		b.hears[0] = i >= 50;
		for (int rank = 0; rank < 2; rank++) {
			struct verdict_call call = bench_call(&b, rank, NCCL_OP_AllReduce);

			call.count = 1000 + i;
			bench_send(&b, &call);
			call_one(&b, rank, i % 3 ? NCCL_OP_AllGather : NCCL_OP_ReduceScatter);
		}
		bench_pass(&b, 100 * MS);
	}
	b.hears[1] = true;
	steps(&b, 50, 100 * MS);
	CHECK_STATE(&b, "healthy");
	CHECK_INT(verdict_state__severity(worst_of(&b)->state), 0);
	bench_free(&b);
}

/* ---- order ---- */

static void two_calls(struct bench *b, int swapped)
{
	for (int rank = 0; rank < b->n; rank++) {
		bool swaps = rank == swapped;

		call_one(b, rank, swaps ? NCCL_OP_AllGather : NCCL_OP_AllReduce);
		b->now_ns += 10000;
		call_one(b, rank, swaps ? NCCL_OP_AllReduce : NCCL_OP_AllGather);
		b->now_ns += 10000;
	}
}

static void agree(struct bench *b)
{
	for (int i = 0; i < 20; i++) {
		two_calls(b, -1);
		bench_pass(b, 100 * MS);
	}
}

TEST(another_order)
{
	const struct verdict *v;
	struct bench b;

	bench_init(&b, 4, true, LONG);
	agree(&b);
	two_calls(&b, 3);
	bench_pass(&b, 1500 * MS);
	CHECK_STATE(&b, "mismatch");
	v = verdict_of(&b);
	CHECK_INT(v->mismatch, VERDICT_MISMATCH_OPERATION);
	CHECK(NAMES(&v->culprits, 3));
	CHECK_INT(v->operation, NCCL_OP_AllReduce);
	CHECK_INT(v->sequence, 21);
	CHECK_STR(v->why, "After AllGather 20, ranks 0-2 call AllReduce 21, but rank 3 calls "
			  "AllGather 21.");
	bench_free(&b);
}

TEST(the_first_call_of_all)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	two_calls(&b, 1);
	bench_pass(&b, 1500 * MS);
	CHECK_STATE(&b, "mismatch");
	CHECK_INT(verdict_of(&b)->mismatch, VERDICT_MISMATCH_OPERATION);
	CHECK(NAMES(&verdict_of(&b)->culprits, 0, 1));
	bench_free(&b);
}

/* Each stands where the other does not come: nothing follows, and it is known all the same. */
TEST(two_that_wait_for_one_another_have_another_order)
{
	struct bench b;

	bench_init(&b, 2, false, LONG);
	for (int rank = 0; rank < 2; rank++) {
		const struct verdict_member member = bench_member(&b, rank);

		for (int op = 0; op < NCCL_OP_AlltoAll; op++)
			verdicts__reached(b.verdicts, &member, op, 0, b.now_ns);
	}
	call_one(&b, 0, NCCL_OP_AllReduce);
	call_one(&b, 1, NCCL_OP_AllGather);
	bench_pass(&b, 5 * SEC);
	CHECK_STATE(&b, "mismatch");
	CHECK_INT(verdict_of(&b)->mismatch, VERDICT_MISMATCH_OPERATION);
	CHECK_WHY(&b, "The order differs: rank 0 calls AllReduce 1, but rank 1 calls AllGather 1.");
	bench_free(&b);
}

/* One operation too many shifts the numbers of the following: the order is the cause. */
TEST(an_operation_too_many_is_the_cause_of_other_arguments)
{
	struct bench b;

	bench_init(&b, 4, true, LONG);
	for (int i = 0; i < 30; i++) {
		for (int rank = 0; rank < 4; rank++) {
			struct verdict_call call = bench_call(&b, rank, NCCL_OP_AllReduce);

			call.count = 100 + i;
			if (i == 20 && rank == 1) {
				bench_send(&b, &call);
				call = bench_call(&b, rank, NCCL_OP_AllReduce);
			}
			bench_send(&b, &call);
			call_one(&b, rank, NCCL_OP_AllGather);
			b.now_ns += 1000;
		}
		bench_pass(&b, 100 * MS);
	}
	bench_pass(&b, SEC);
	CHECK_STATE(&b, "mismatch");
	CHECK_INT(verdict_of(&b)->mismatch, VERDICT_MISMATCH_OPERATION);
	CHECK(NAMES(&verdict_of(&b)->culprits, 1));
	bench_free(&b);
}

/* What lies between two calls is not known after a loss, a capture, or a call without a number. */
TEST(order_is_not_judged_across_a_gap)
{
	struct verdict_call call;
	struct bench b;

	bench_init(&b, 2, true, LONG);
	agree(&b);
	/* rank 1: AllReduce is lost, and told of nowhere */
	call_one(&b, 0, NCCL_OP_AllReduce);
	call_one(&b, 0, NCCL_OP_AllGather);
	bench_call(&b, 1, NCCL_OP_AllReduce);
	verdicts__lost(b.verdicts, 101, b.now_ns);
	call_one(&b, 1, NCCL_OP_AllGather);
	bench_pass(&b, 2 * SEC);
	CHECK(verdict_of(&b)->state != VERDICT_MISMATCH);
	/* rank 0 captures its AllReduce: it is not numbered */
	agree(&b);
	CHECK_STATE(&b, "healthy");
	call = bench_call(&b, 0, NCCL_OP_AllReduce);
	call.captured = true;
	call.sequence = VERDICT_NO_SEQUENCE;
	bench_send(&b, &call);
	b.sequences[0][NCCL_OP_AllReduce]--;
	call_one(&b, 0, NCCL_OP_AllGather);
	call_one(&b, 1, NCCL_OP_AllReduce);
	bench_pass(&b, 2 * SEC);
	CHECK(verdict_of(&b)->state != VERDICT_MISMATCH);
	bench_free(&b);
}

/* A loss is told of before calls that were made before it. */
TEST(order_is_not_judged_across_a_loss_told_of_early)
{
	static const enum nccl_operation step[] = {NCCL_OP_AllReduce, NCCL_OP_AllGather,
						   NCCL_OP_Broadcast, NCCL_OP_AllReduce};
	struct verdict_call calls[4];
	struct bench b;

	bench_init(&b, 2, true, LONG);
	for (int i = 0; i < 20; i++) {
		for (int k = 0; k < 3; k++)
			call_all_but(&b, -1, step[k]);
		bench_pass(&b, 100 * MS);
	}
	for (int k = 0; k < 4; k++) {
		b.now_ns += MS;
		call_one(&b, 0, step[k]);
		calls[k] = bench_call(&b, 1, step[k]);
		if (k == 2)
			verdicts__lost(b.verdicts, 101, b.now_ns + MS / 2);
	}
	bench_send(&b, &calls[3]);
	bench_send(&b, &calls[0]); /* and not AllGather */
	bench_send(&b, &calls[2]);
	bench_pass(&b, 2 * SEC);
	CHECK(verdict_of(&b)->state != VERDICT_MISMATCH);
	bench_free(&b);
}

/* What ranks have called last is known by its number alone. */
TEST(ranks_do_not_cross_by_calls_of_long_ago)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	agree(&b);
	for (int rank = 0; rank < 2; rank++) {
		const struct verdict_member member = bench_member(&b, rank);

		verdicts__reached(b.verdicts, &member, NCCL_OP_AllReduce, 20 + rank, b.now_ns);
		verdicts__reached(b.verdicts, &member, NCCL_OP_AllGather, 21 - rank, b.now_ns);
	}
	bench_pass(&b, 6 * SEC);
	CHECK(verdict_of(&b)->state != VERDICT_MISMATCH);
	bench_free(&b);
}

/* Some calls are told by probes at once, some by a plugin a while later. */
TEST(calls_told_of_out_of_order)
{
	struct verdict_call held;
	struct bench b;

	bench_init(&b, 2, true, LONG);
	for (int i = 0; i < 50; i++) {
		call_one(&b, 0, NCCL_OP_AllReduce);
		held = bench_call(&b, 1, NCCL_OP_AllReduce);
		b.now_ns += MS;
		call_one(&b, 0, NCCL_OP_AllGather);
		call_one(&b, 1, NCCL_OP_AllGather);
		bench_pass(&b, 150 * MS);
		bench_send(&b, &held);
		bench_pass(&b, 50 * MS);
		CHECK(verdict_of(&b)->state != VERDICT_MISMATCH);
	}
	CHECK_STATE(&b, "healthy");
	bench_free(&b);
}

TEST(calls_told_of_out_of_order_at_speed)
{
	struct verdict_call held[25] = {};
	struct bench b;

	bench_init(&b, 2, true, LONG);
	for (int i = 0; i < 3000; i++) {
		struct verdict_call *call = &held[i % 25];

		call_one(&b, 0, NCCL_OP_AllReduce);
		if (call->sequence)
			bench_send(&b, call);
		*call = bench_call(&b, 1, NCCL_OP_AllReduce);
		b.now_ns += MS;
		call_one(&b, 0, NCCL_OP_AllGather);
		call_one(&b, 1, NCCL_OP_AllGather);
		bench_pass(&b, 3 * MS);
		CHECK(verdict_of(&b)->state != VERDICT_MISMATCH);
	}
	bench_free(&b);
}

/* A thousand calls a second, one swap among them. */
TEST(another_order_at_speed)
{
	struct bench b;

	bench_init(&b, 4, true, LONG);
	for (int i = 0; i < 4000; i++) {
		two_calls(&b, i == 2000 ? 2 : -1);
		bench_pass(&b, MS);
	}
	bench_pass(&b, SEC);
	CHECK_STATE(&b, "mismatch");
	CHECK(NAMES(&verdict_of(&b)->culprits, 2));
	bench_free(&b);
}

/* ---- lateness ---- */

/* Up to that, other every time, and the same in every run. */
static uint64_t some_ns(uint64_t most_ns)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (state >> 33) % most_ns;
}

/* Ranks that wait for one another at every number; `late` computes longer. */
static void waited_steps(struct bench *b, int n, int late, uint64_t extra_ns)
{
	for (int i = 0; i < n; i++) {
		uint64_t start_ns = b->now_ns, last_ns = start_ns;

		for (int rank = 0; rank < b->n; rank++) {
			b->now_ns = start_ns + some_ns(2 * MS);
			if (rank == late)
				b->now_ns += extra_ns + some_ns(5 * MS);
			last_ns = later(last_ns, b->now_ns);
			call_one(b, rank, NCCL_OP_AllReduce);
		}
		b->now_ns = last_ns;
		bench_pass(b, 150 * MS);
	}
}

/* V3 */
TEST(straggler_by_host_calls)
{
	const struct verdict *v;
	struct bench b;
	uint64_t fault_ns;
	int n = 0;

	bench_init(&b, 2, true, LONG);
	waited_steps(&b, 100, -1, 0);
	CHECK_STATE(&b, "healthy");
	fault_ns = b.now_ns;
	for (; n < 80 && verdict_of(&b)->state != VERDICT_STRAGGLER; n++)
		waited_steps(&b, 1, 1, 50 * MS);
	v = verdict_of(&b);
	CHECK_STATE(&b, "straggler");
	CHECK(b.now_ns - fault_ns < 12 * SEC);
	CHECK_INT(v->cause, VERDICT_LATE);
	CHECK(NAMES(&v->culprits, 1));
	CHECK(NAMES(&v->waiting, 0));
	CHECK(v->since_ns > fault_ns - SEC && v->since_ns < fault_ns + 2 * SEC);
	CHECK_WHY(&b, "Rank 1 comes last again and again: the others lose 2");
	CHECK(strstr(v->evidence[0], "late by"));
	waited_steps(&b, 55, -1, 0);
	CHECK_STATE(&b, "healthy");
	bench_free(&b);
}

TEST(two_stragglers_of_eight)
{
	struct bench b;

	bench_init(&b, 8, true, LONG);
	for (int i = 0; i < 150; i++) {
		uint64_t start_ns = b.now_ns, last_ns = start_ns;

		for (int rank = 0; rank < 8; rank++) {
			b.now_ns = start_ns + some_ns(2 * MS);
			if (rank == 2 || rank == 5)
				b.now_ns += 40 * MS + some_ns(8 * MS);
			last_ns = later(last_ns, b.now_ns);
			call_one(&b, rank, NCCL_OP_AllReduce);
		}
		b.now_ns = last_ns;
		bench_pass(&b, 100 * MS);
	}
	CHECK_STATE(&b, "straggler");
	CHECK(NAMES(&verdict_of(&b)->culprits, 2, 5));
	bench_free(&b);
}

/* Either rank is late, now this one, now that one, and is waited for: for half an hour. */
TEST(chance_makes_no_straggler)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	for (int i = 0; i < 3000; i++) {
		uint64_t start_ns = b.now_ns, last_ns = start_ns;

		for (int rank = 0; rank < 2; rank++) {
			b.now_ns = start_ns + some_ns(100 * MS);
			last_ns = later(last_ns, b.now_ns);
			call_one(&b, rank, NCCL_OP_AllReduce);
		}
		b.now_ns = last_ns;
		bench_pass(&b, 600 * MS);
		CHECK(verdict_of(&b)->state != VERDICT_STRAGGLER);
	}
	bench_free(&b);
}

/* The first number of a step is late, four more follow at once. */
TEST(straggler_at_the_first_of_a_burst)
{
	struct bench b;

	bench_init(&b, 4, true, LONG);
	for (int i = 0; i < 120; i++) {
		waited_steps(&b, 1, 3, 60 * MS);
		for (int k = 0; k < 4; k++)
			call_all_but(&b, -1, NCCL_OP_AllGather);
		b.now_ns += some_ns(5 * MS);
	}
	CHECK_STATE(&b, "straggler");
	CHECK(NAMES(&verdict_of(&b)->culprits, 3));
	bench_free(&b);
}

/* Rank 1 is 30 ms behind and stays so: but nobody waits, rank 0 keeps to its own pace. */
TEST(who_is_not_waited_for_is_no_straggler)
{
	struct bench b;
	int64_t one = 0, other = 0;
	uint64_t start_ns;

	bench_init(&b, 2, true, LONG);
	start_ns = b.now_ns;
	for (int i = 0; i < 600; i++) {
		one += some_ns(2001) - 1000;
		other += some_ns(2001) - 1000;
		b.now_ns = start_ns + i * 100 * MS + 50 * MS + one * 1000;
		call_one(&b, 0, NCCL_OP_AllReduce);
		b.now_ns = start_ns + i * 100 * MS + 80 * MS + other * 1000;
		call_one(&b, 1, NCCL_OP_AllReduce);
		bench_settle(&b);
		CHECK(verdict_of(&b)->state != VERDICT_STRAGGLER);
	}
	bench_free(&b);
}

/* ---- GPUs ---- */

static void gpu(struct bench *b, int rank, uint32_t n, bool started, uint64_t launch_ns)
{
	const struct verdict_member member = bench_member(b, rank);
	const struct verdict_gpu gpu = {
		.n_in_flight = n,
		.operation = n ? NCCL_OP_AllReduce : NCCL_OP_MAX,
		.sequence = n ? b->sequences[rank][NCCL_OP_AllReduce] : VERDICT_NO_SEQUENCE,
		.launch_ns = launch_ns,
		.started = started,
		.start_known = true,
	};

	verdicts__gpu(b->verdicts, &member, &gpu, b->now_ns);
}

/* All have called; `stuck` (-1: none) has not started, the others have. */
static void gpus_hang(struct bench *b, int stuck, uint64_t ns)
{
	uint64_t launch_ns;

	call_all_but(b, -1, NCCL_OP_AllReduce);
	launch_ns = b->now_ns;
	for (uint64_t passed = 0; passed < ns; passed += 250 * MS) {
		for (int rank = 0; rank < b->n; rank++)
			gpu(b, rank, 1, rank != stuck, launch_ns);
		bench_pass(b, 250 * MS);
	}
}

static void gpus_rest(struct bench *b)
{
	for (int rank = 0; rank < b->n; rank++)
		gpu(b, rank, 0, false, 0);
}

/* V2, V8 */
TEST(a_gpu_that_does_not_start)
{
	const struct verdict *v;
	struct bench b;

	bench_init(&b, 2, true, LONG);
	steps(&b, 20, 100 * MS);
	gpus_rest(&b);
	gpus_hang(&b, 1, 5 * SEC);
	CHECK_STATE(&b, "waiting");
	v = verdict_of(&b);
	CHECK_INT(v->cause, VERDICT_GPU_NOT_STARTED);
	CHECK(NAMES(&v->culprits, 1));
	CHECK(NAMES(&v->waiting, 0));
	CHECK_INT(v->sequence, 21);
	CHECK_WHY(&b, "The GPU of rank 1 has not started AllReduce 21");
	b.sequences[0][NCCL_OP_AllReduce]--;
	b.sequences[1][NCCL_OP_AllReduce]--;
	gpus_hang(&b, 1, 62 * SEC);
	CHECK_STATE(&b, "stuck");
	bench_free(&b);
}

/* Rank 1's host waits for its GPU, and does not call on; rank 0 has run ahead of its own. */
TEST(a_host_that_waits_for_its_gpu)
{
	struct bench b;
	uint64_t launch_ns;

	bench_init(&b, 2, true, LONG);
	steps(&b, 20, 100 * MS);
	call_all_but(&b, -1, NCCL_OP_AllReduce);
	launch_ns = b.now_ns;
	for (int i = 0; i < 20; i++) {
		gpu(&b, 0, 1, true, launch_ns);
		gpu(&b, 1, 1, false, launch_ns);
		bench_pass(&b, 250 * MS);
		if (!i)
			call_one(&b, 0, NCCL_OP_AllGather);
	}
	CHECK_STATE(&b, "waiting");
	CHECK_INT(verdict_of(&b)->cause, VERDICT_GPU_NOT_STARTED);
	CHECK(NAMES(&verdict_of(&b)->culprits, 1));
	bench_free(&b);
}

TEST(gpus_that_do_not_get_done)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	steps(&b, 20, 100 * MS);
	gpus_hang(&b, -1, 5 * SEC);
	CHECK_STATE(&b, "waiting");
	CHECK_INT(verdict_of(&b)->cause, VERDICT_GPU_NOT_DONE);
	CHECK_INT(verdict_of(&b)->culprits.n, 0);
	CHECK_WHY(&b, "link and network");
	bench_free(&b);
}

TEST(ranks_of_other_nodes_are_waited_for)
{
	const struct verdict_options options = {.stuck_after_ns = 60 * SEC};
	const struct verdict_member member = {HASH, 3, 8, 103};
	struct verdict_gpu flying = {
		.n_in_flight = 1,
		.operation = NCCL_OP_AllReduce,
		.sequence = 12,
		.start_known = true,
		.started = true,
	};
	struct verdicts *verdicts = NULL;
	const struct verdict *v;
	uint64_t now_ns = 1000 * SEC;

	CHECK_INT(verdicts__new(&verdicts, &options), 0);
	verdicts__join(verdicts, &member, true, 2, now_ns);
	flying.launch_ns = now_ns;
	for (int i = 0; i < 20; i++, now_ns += 250 * MS) {
		verdicts__gpu(verdicts, &member, &flying, now_ns);
		verdicts__settle(verdicts, now_ns);
	}
	v = verdict_comm__now(verdicts__find(verdicts, HASH));
	CHECK_INT(v->state, VERDICT_WAITING);
	CHECK_INT(v->cause, VERDICT_ELSEWHERE);
	CHECK_INT(v->culprits.n, 0);
	verdicts__free(verdicts);
}

/* Its oldest launch is another one every time: a GPU far behind its host gets on. */
TEST(gpus_that_get_on_are_healthy)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	for (int i = 0; i < 60; i++) {
		call_all_but(&b, -1, NCCL_OP_AllReduce);
		for (int rank = 0; rank < 2; rank++)
			gpu(&b, rank, 50, i % 2, b.now_ns - 10 * SEC);
		bench_pass(&b, 500 * MS);
		CHECK(verdict_of(&b)->state != VERDICT_WAITING);
	}
	CHECK_STATE(&b, "healthy");
	bench_free(&b);
}

/* V8: a process that is stopped does not call; its GPU has done what there was. */
TEST(a_stopped_process_is_no_stuck_gpu)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	steps(&b, 20, 100 * MS);
	call_one(&b, 0, NCCL_OP_AllReduce);
	for (int i = 0; i < 20; i++) {
		gpu(&b, 0, 1, true, b.now_ns);
		gpu(&b, 1, 0, false, 0);
		bench_pass(&b, 250 * MS);
	}
	CHECK_STATE(&b, "waiting");
	CHECK_INT(verdict_of(&b)->cause, VERDICT_MISSING_CALL);
	CHECK(NAMES(&verdict_of(&b)->culprits, 1));
	bench_free(&b);
}

/* Every rank's GPU starts `late_ns` after that of rank 0, and ends with the last. */
static void timed(struct bench *b, int late, uint64_t late_ns, uint64_t transfer_ns, uint64_t bytes)
{
	for (int rank = 0; rank < b->n; rank++) {
		struct verdict_timed t = {
			.member = bench_member(b, rank),
			.operation = NCCL_OP_AllReduce,
			.sequence = b->sequences[rank][NCCL_OP_AllReduce],
			.gpu_start_ns = b->now_ns + 100 * rank,
			.duration_ns = transfer_ns,
			.bytes = bytes,
		};

		if (rank == late)
			t.gpu_start_ns += late_ns;
		else
			t.duration_ns += late_ns;
		verdicts__timed(b->verdicts, &t);
	}
}

TEST(straggler_by_gpu)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	for (int i = 0; i < 200; i++) {
		uint64_t late_ns = i < 100 ? 0 : 50 * MS + some_ns(7 * MS);

		call_all_but(&b, -1, NCCL_OP_AllReduce); /* hosts are punctual */
		timed(&b, 1, late_ns, 20000, 1 << 20);
		bench_pass(&b, 100 * MS + late_ns + some_ns(2 * MS));
		CHECK(i > 100 || verdict_of(&b)->state != VERDICT_STRAGGLER);
	}
	CHECK_STATE(&b, "straggler");
	CHECK_INT(verdict_of(&b)->cause, VERDICT_LATE_ON_GPU);
	CHECK(NAMES(&verdict_of(&b)->culprits, 1));
	CHECK_WHY(&b, "The GPU of rank 1 starts last again and again");
	bench_free(&b);
}

/* Rank 1's host comes late, its GPU does not: hosts that run ahead may do as they like. */
TEST(gpus_refute_hosts)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	for (int i = 0; i < 200; i++) {
		call_one(&b, 0, NCCL_OP_AllReduce);
		b.now_ns += 30 * MS + some_ns(7 * MS);
		call_one(&b, 1, NCCL_OP_AllReduce);
		timed(&b, 1, 0, 20000, 1 << 20);
		bench_pass(&b, 100 * MS);
		CHECK(verdict_of(&b)->state != VERDICT_STRAGGLER);
	}
	bench_free(&b);
}

TEST(transfers_slower_than_they_were)
{
	struct bench b;
	uint64_t began_ns;

	bench_init(&b, 2, true, LONG);
	for (int i = 0; i < 900; i++) {
		call_all_but(&b, -1, NCCL_OP_AllReduce);
		timed(&b, 1, 0, (1000 + i % 7 * 50) * 1000, i % 2 ? 1 << 20 : 1 << 24);
		bench_pass(&b, 50 * MS);
		CHECK(verdict_of(&b)->state != VERDICT_SLOW);
	}
	/* a fifth more is no fault */
	for (int i = 0; i < 400; i++) {
		call_all_but(&b, -1, NCCL_OP_AllReduce);
		timed(&b, 1, 0, 1380 * 1000, 1 << 20);
		bench_pass(&b, 50 * MS);
		CHECK(verdict_of(&b)->state != VERDICT_SLOW);
	}
	began_ns = b.now_ns;
	while (verdict_of(&b)->state != VERDICT_SLOW && b.now_ns < began_ns + 60 * SEC) {
		call_all_but(&b, -1, NCCL_OP_AllReduce);
		timed(&b, 1, 0, 2200 * 1000, 1 << 20);
		bench_pass(&b, 50 * MS);
	}
	CHECK_STATE(&b, "slow");
	CHECK_INT(verdict_of(&b)->cause, VERDICT_SLOW_TRANSFER);
	CHECK(b.now_ns > began_ns + 5 * SEC && b.now_ns < began_ns + 20 * SEC);
	CHECK_WHY(&b, "AllReduce of 1024 KiB or more takes 2.2 ms, 1.");
	for (int i = 0; i < 400; i++) {
		call_all_but(&b, -1, NCCL_OP_AllReduce);
		timed(&b, 1, 0, 1150 * 1000, 1 << 20);
		bench_pass(&b, 50 * MS);
	}
	CHECK_STATE(&b, "healthy");
	bench_free(&b);
}

/* ---- Send and Recv ---- */

static void peer_call(struct bench *b, int rank, enum nccl_operation operation, int peer)
{
	struct verdict_call call = bench_call(b, rank, operation);

	call.root = peer;
	bench_send(b, &call);
}

/* A pipeline: each stage receives from the one before it, and sends to the one behind it. */
static void pipeline(struct bench *b, int stages)
{
	for (int rank = 0; rank < stages; rank++) {
		if (rank)
			peer_call(b, rank, NCCL_OP_Recv, rank - 1);
		if (rank < b->n - 1)
			peer_call(b, rank, NCCL_OP_Send, rank + 1);
		b->now_ns += MS;
	}
}

TEST(who_does_not_send_and_waits_for_nobody)
{
	const struct verdict *v;
	struct bench b;

	bench_init(&b, 4, true, LONG);
	for (int i = 0; i < 60; i++) {
		pipeline(&b, 4);
		bench_pass(&b, 100 * MS);
	}
	CHECK_STATE(&b, "healthy");
	/* stage 1 hangs; 2 waits for it, and 3 for 2 */
	peer_call(&b, 0, NCCL_OP_Send, 1);
	peer_call(&b, 2, NCCL_OP_Recv, 1);
	peer_call(&b, 3, NCCL_OP_Recv, 2);
	bench_pass(&b, 5 * SEC);
	CHECK_STATE(&b, "waiting");
	v = verdict_of(&b);
	CHECK(NAMES(&v->culprits, 1));
	CHECK(NAMES(&v->waiting, 2, 3));
	CHECK_INT(v->operation, NCCL_OP_Send);
	CHECK_INT(v->sequence, VERDICT_NO_SEQUENCE);
	CHECK_WHY(&b, "Rank 1 has not sent what ranks 2, 3 have waited to receive for");
	peer_call(&b, 1, NCCL_OP_Recv, 0);
	peer_call(&b, 1, NCCL_OP_Send, 2);
	peer_call(&b, 2, NCCL_OP_Send, 3);
	for (int i = 0; i < 10; i++) {
		pipeline(&b, 4);
		bench_pass(&b, 100 * MS);
	}
	CHECK_STATE(&b, "healthy");
	bench_free(&b);
}

TEST(a_send_may_lie_in_a_buffer)
{
	struct bench b;

	bench_init(&b, 2, true, LONG);
	for (int i = 0; i < 40; i++) {
		peer_call(&b, 0, NCCL_OP_Send, 1);
		bench_pass(&b, 100 * MS);
	}
	bench_pass(&b, 120 * SEC);
	CHECK_STATE(&b, "idle");
	bench_free(&b);
}

/* Ranks make different numbers of Sends: they are not compared, and no order of them either. */
TEST(messages_are_counted_by_pairs)
{
	struct bench b;

	bench_init(&b, 3, true, LONG);
	for (int i = 0; i < 60; i++) {
		peer_call(&b, 0, NCCL_OP_Send, 1);
		peer_call(&b, 0, NCCL_OP_Send, 2);
		peer_call(&b, 1, NCCL_OP_Recv, 0);
		peer_call(&b, 2, NCCL_OP_Recv, 0);
		call_all_but(&b, -1, NCCL_OP_AllReduce);
		bench_pass(&b, 100 * MS);
	}
	CHECK_STATE(&b, "healthy");
	bench_free(&b);
}

TEST(messages_lost_or_before_we_came_accuse_nobody)
{
	struct bench b;

	bench_init(&b, 2, false, LONG);
	for (int i = 0; i < 10; i++)
		peer_call(&b, 1, NCCL_OP_Recv, 0);
	bench_pass(&b, 30 * SEC);
	CHECK(verdict_of(&b)->state != VERDICT_WAITING);
	bench_free(&b);

	bench_init(&b, 2, true, LONG);
	for (int i = 0; i < 40; i++) {
		b.hears[0] = i != 20;
		peer_call(&b, 0, NCCL_OP_Send, 1);
		peer_call(&b, 1, NCCL_OP_Recv, 0);
		bench_pass(&b, 100 * MS);
	}
	bench_pass(&b, 30 * SEC);
	CHECK(verdict_of(&b)->state != VERDICT_WAITING);
	bench_free(&b);
}

UNIT_MAIN()
