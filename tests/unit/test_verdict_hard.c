/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Jobs that look like another one: who must not be accused, and what must not be passed over. */
#include "unit.h"

#include "../../src/nccl_api.c"

#include "verdict_sources.h"

#define MS   NSEC_PER_MSEC
#define SEC  NSEC_PER_SEC
#define HASH 0xabcdef0123456789ULL
#define N    4

static struct verdicts *verdicts;
static uint64_t now;

static struct verdict_member member(int32_t rank)
{
	return (struct verdict_member){HASH, rank, N, 100 + rank};
}

/* All ranks from `first` on are there, on that many nodes. */
static void begin(int32_t first, bool whole, int32_t n_nodes)
{
	const struct verdict_options options = {.stuck_after_ns = 20 * SEC};

	now = 1000 * SEC;
	CHECK_INT(verdicts__new(&verdicts, &options), 0);
	for (int32_t rank = first; rank < N; rank++) {
		struct verdict_member m = member(rank);

		verdicts__join(verdicts, &m, whole, n_nodes, now);
	}
}

static void settle(unsigned int steps)
{
	for (unsigned int i = 0; i < steps; i++, now += 250 * MS)
		verdicts__settle(verdicts, now);
}

static const struct verdict *said(void)
{
	return verdict_comm__now(verdicts__find(verdicts, HASH));
}

static void call(int32_t rank, enum nccl_operation operation, uint64_t sequence, uint32_t datatype,
		 uint64_t count)
{
	struct verdict_call call = {
		.member = member(rank),
		.operation = operation,
		.sequence = sequence,
		.time_ns = now,
		.count = count,
		.datatype = datatype,
		.redop = ~0U,
		.root = -1,
	};

	verdicts__call(verdicts, &call);
}

/* Ranks from `first` on call AllReduce up to that number. */
static void train(int32_t first, uint64_t numbers)
{
	for (uint64_t n = 1; n <= numbers; n++) {
		for (int32_t rank = first; rank < N; rank++)
			call(rank, NCCL_OP_AllReduce, n, 7, 1024);
		settle(1);
	}
}

static void abort_by(int32_t rank)
{
	struct verdict_member m = member(rank);

	verdicts__leave(verdicts, &m, VERDICT_END_ABORTED, now);
}

/* Its oldest launch in flight runs: AllReduce of that number. */
static void fly(int32_t rank, uint64_t sequence, uint64_t launch_ns)
{
	const struct verdict_member m = member(rank);
	const struct verdict_gpu gpu = {
		.n_in_flight = 1,
		.operation = NCCL_OP_AllReduce,
		.sequence = sequence,
		.launch_ns = launch_ns,
		.started = true,
		.start_known = true,
	};

	verdicts__gpu(verdicts, &m, &gpu, now);
}

/* The others have been in the kernel for a while when it dies: that is no matter of the network. */
TEST(one_that_died_has_not_called)
{
	struct verdict_member dead = member(2);
	uint64_t launch_ns;

	begin(0, true, 1);
	train(0, 100);
	launch_ns = now;
	for (int32_t rank = 0; rank < N; rank++)
		if (rank != 2)
			call(rank, NCCL_OP_AllReduce, 101, 7, 1024);
	for (int tick = 0; tick < 80; tick++) {
		if (tick == 8)
			verdicts__leave(verdicts, &dead, VERDICT_END_DIED, now);
		for (int32_t rank = 0; rank < N; rank++)
			if (rank != 2)
				fly(rank, 101, launch_ns);
		settle(1);
		CHECK(said()->cause != VERDICT_GPU_NOT_DONE);
	}
	CHECK_INT(said()->state, VERDICT_ABORTED);
	CHECK_INT(said()->culprits.ranks[0], 2);
	CHECK_INT(said()->sequence, 101);
	verdicts__free(verdicts);
}

/* Whose calls were lost may have called with other arguments: no matter of the network, then. */
TEST(no_gpu_gets_done_what_was_not_seen_to_be_called)
{
	for (int is_lost = 0; is_lost < 2; is_lost++) {
		begin(0, true, 1);
		train(0, 100);
		if (is_lost)
			verdicts__lost(verdicts, 0, now);
		for (int tick = 0; tick < 40; tick++) {
			for (int32_t rank = 0; rank < N; rank++) {
				struct verdict_member m = member(rank);

				if (!is_lost && !tick)
					call(rank, NCCL_OP_AllReduce, 101, 7, 1024);
				verdicts__reached(verdicts, &m, NCCL_OP_AllReduce, 101, now + 1);
				fly(rank, 101, 1025 * SEC);
			}
			settle(1);
		}
		CHECK_INT(said()->cause, VERDICT_GPU_NOT_DONE);
		CHECK_INT(!!strstr(said()->why, "not all of their calls were seen"), is_lost);
		verdicts__free(verdicts);
	}
}

TEST(a_rank_of_this_node_that_was_never_seen_is_no_idleness)
{
	for (int32_t n_nodes = 1; n_nodes <= 2; n_nodes++) {
		begin(1, false, n_nodes);
		for (int32_t rank = 1; rank < N; rank++) {
			struct verdict_member m = member(rank);

			verdicts__reached(verdicts, &m, NCCL_OP_AllReduce, 21, now);
		}
		settle(80);
		CHECK_INT(said()->state, n_nodes == 1 ? VERDICT_UNKNOWN : VERDICT_IDLE);
		CHECK(n_nodes == 2 || strstr(said()->why, "rank 0 of this node was never seen"));
		verdicts__free(verdicts);
	}
}

TEST(ranks_that_call_are_healthy_whoever_is_not_seen)
{
	begin(2, true, 1);
	train(2, 100);
	CHECK_INT(said()->state, VERDICT_HEALTHY);
	settle(100);
	CHECK_INT(said()->state, VERDICT_UNKNOWN);
	CHECK(strstr(said()->why, "ranks 0, 1 of this node were never seen"));
	verdicts__free(verdicts);
}

TEST(a_job_that_ends_by_aborting_is_no_fault)
{
	begin(0, true, 1);
	train(0, 100);
	for (int32_t rank = 0; rank < N; rank++) {
		abort_by(rank);
		settle(2);
	}
	settle(40);
	CHECK_INT(said()->state, VERDICT_IDLE);
	CHECK_INT(verdict_state__exit_status(
			  verdict_comm__worst(verdicts__find(verdicts, HASH))->state),
		  0);
	verdicts__free(verdicts);
}

TEST(an_abort_by_one_is_a_fault)
{
	begin(0, true, 1);
	train(0, 100);
	abort_by(2);
	settle(40);
	CHECK_INT(said()->state, VERDICT_ABORTED);
	CHECK_INT(said()->culprits.n, 1);
	CHECK_INT(said()->culprits.ranks[0], 2);
	verdicts__free(verdicts);
}

TEST(an_abort_at_different_numbers_is_a_fault)
{
	begin(0, true, 1);
	train(0, 100);
	call(1, NCCL_OP_AllReduce, 101, 7, 1024);
	for (int32_t rank = 0; rank < N; rank++)
		abort_by(rank);
	settle(20);
	CHECK_INT(said()->state, VERDICT_ABORTED);
	verdicts__free(verdicts);
}

TEST(an_abort_of_what_hung_is_a_fault)
{
	begin(0, true, 1);
	train(0, 100);
	for (int32_t rank = 1; rank < N; rank++)
		call(rank, NCCL_OP_AllReduce, 101, 7, 1024);
	settle(40);
	CHECK_INT(said()->state, VERDICT_WAITING);
	call(0, NCCL_OP_AllReduce, 101, 7, 1024);
	for (int32_t rank = 0; rank < N; rank++)
		abort_by(rank);
	settle(20);
	CHECK_INT(said()->state, VERDICT_ABORTED);
	verdicts__free(verdicts);
}

/* Between what is gathered of two ranks and what is made of it room is made for two more. */
TEST(ranks_that_join_late)
{
	for (uint64_t joined = 40; joined < 60; joined++) {
		begin(2, true, 1);
		for (uint64_t n = 1; n <= joined; n++, now += 130 * MS) {
			call(2, NCCL_OP_AllReduce, n, 7, 1024);
			now += 50 * MS;
			call(3, NCCL_OP_AllReduce, n, 7, 1024);
			for (int32_t rank = 0; n == joined && rank < 2; rank++) {
				struct verdict_member m = member(rank);

				verdicts__join(verdicts, &m, true, 1, now);
			}
			verdicts__settle(verdicts, now + MS);
		}
		settle(8);
		CHECK(said()->state != VERDICT_STRAGGLER);
		verdicts__free(verdicts);
	}
}

/* Ranks 0 and 1 replay what was captured before we came: their numbers stand still. */
TEST(who_is_known_to_have_been_in_it_is_not_missing)
{
	for (int is_timed = 0; is_timed < 2; is_timed++) {
		begin(0, false, 1);
		for (int32_t rank = 0; rank < N; rank++) {
			struct verdict_member m = member(rank);

			verdicts__reached(verdicts, &m, NCCL_OP_AllReduce, 4, now);
		}
		for (uint64_t n = 5; n <= 60; n++) {
			for (int32_t rank = 2; rank < N; rank++) {
				struct verdict_timed timed = {
					member(rank), NCCL_OP_AllReduce, n, now + 10 * MS, MS,
					4096};

				call(rank, NCCL_OP_AllReduce, n, 7, 1024);
				if (is_timed)
					verdicts__timed(verdicts, &timed);
			}
			settle(1);
		}
		CHECK_INT(verdict_state__exit_status(said()->state) == 1 &&
				  said()->cause == VERDICT_MISSING_CALL,
			  !is_timed);
		verdicts__free(verdicts);
	}
}

/* Who stands alone with what it calls is named, whatever number has what it calls. */
TEST(one_that_calls_another_operation_than_all_others)
{
	static const enum nccl_operation operations[] = {NCCL_OP_AllReduce, NCCL_OP_AllGather,
							 NCCL_OP_ReduceScatter};

	begin(0, false, 1);
	for (int32_t rank = 0; rank < N; rank++) {
		struct verdict_member m = member(rank);

		for (size_t i = 0; i < ARRAY_SIZE(operations); i++)
			verdicts__reached(verdicts, &m, operations[i], i ? 0 : 40, now);
	}
	settle(8);
	for (int32_t rank = 0; rank < N; rank++) {
		enum nccl_operation operation = operations[rank == 2 ? 1 : 2];
		struct verdict_member m = member(rank);

		call(rank, operation, VERDICT_NO_SEQUENCE, 7, 10);
		verdicts__reached(verdicts, &m, operation, 1, now);
	}
	settle(60);
	CHECK_INT(said()->state, VERDICT_MISMATCH);
	CHECK_INT(said()->culprits.n, 1);
	CHECK_INT(said()->culprits.ranks[0], 2);
	verdicts__free(verdicts);
}

static uint64_t up_to(uint64_t least_ms, uint64_t most_ms)
{
	static uint64_t seed = 1;

	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return least_ms * MS + (seed >> 33) % ((most_ms - least_ms) * MS);
}

static void call_at(uint64_t hash, int32_t rank, int32_t n, uint32_t tgid, uint64_t sequence,
		    uint64_t time_ns)
{
	struct verdict_call told = {
		.member = {hash, rank, n, tgid},
		.operation = NCCL_OP_AllReduce,
		.sequence = sequence,
		.time_ns = time_ns,
		.count = 1024,
		.datatype = 7,
		.redop = ~0U,
		.root = -1,
	};

	if (sequence == 1)
		verdicts__join(verdicts, &told.member, true, 1, time_ns);
	verdicts__call(verdicts, &told);
}

/* Pairs of ranks come to theirs now one, now the other first; rank 0 is late to what follows. */
TEST(chance_in_another_communicator_acquits_nobody)
{
	const struct verdict_options options = {.stuck_after_ns = 20 * SEC};
	uint64_t next_ns, came_ns[N], n_named = 0, n_steps = 1500;

	now = next_ns = 1000 * SEC;
	CHECK_INT(verdicts__new(&verdicts, &options), 0);
	for (uint64_t n = 1; n <= n_steps; n++) {
		uint64_t pair_ns[2] = {};

		for (int32_t rank = 0; rank < N; rank++) {
			came_ns[rank] = now + up_to(20, 30);
			call_at(HASH + 1 + rank % 2, rank / 2, 2, 100 + rank, n, came_ns[rank]);
			pair_ns[rank % 2] = later(pair_ns[rank % 2], came_ns[rank]);
		}
		for (int32_t rank = 0; rank < N; rank++) {
			came_ns[rank] = pair_ns[rank % 2] + (rank ? MS : up_to(30, 40));
			call_at(HASH, rank, N, 100 + rank, n, came_ns[rank]);
			now = later(now, came_ns[rank]);
		}
		for (; next_ns <= now; next_ns += 250 * MS)
			verdicts__settle(verdicts, next_ns);
		n_named += said()->state == VERDICT_STRAGGLER && said()->culprits.ranks[0] == 0;
	}
	CHECK(n_named > n_steps * 3 / 4);
	verdicts__free(verdicts);
}

/*
 * As a PyTorch job on two H200 did: rank 1 sleeps 50 ms, rank 0 has nothing to do but wait. How late
 * rank 1 comes varies less than by how much rank 0 needs from one to the next, which wanders.
 */
TEST(late_as_exactly_as_a_timer)
{
	const struct verdict_options options = {.stuck_after_ns = 20 * SEC};
	uint64_t end_ns = 1000 * SEC, next_ns = end_ns, wander_us = 100, named_ns = 0;

	CHECK_INT(verdicts__new(&verdicts, &options), 0);
	for (uint64_t n = 1; end_ns < 1020 * SEC; n++) {
		uint64_t late_ns = end_ns + 50 * MS + up_to(50, 90) / 1000;

		wander_us = (wander_us * 15 + up_to(0, 1600) / MS) / 16;
		call_at(HASH, 0, 2, 100, n, end_ns + wander_us * 1000);
		call_at(HASH, 1, 2, 101, n, late_ns);
		end_ns = late_ns + 700 * MS / 1000;
		for (; next_ns <= end_ns; next_ns += 250 * MS)
			verdicts__settle(verdicts, next_ns);
		if (!named_ns && said()->state == VERDICT_STRAGGLER)
			named_ns = end_ns - 1000 * SEC;
	}
	CHECK(named_ns && named_ns < 15 * SEC);
	CHECK_INT(said()->culprits.n, 1);
	CHECK_INT(said()->culprits.ranks[0], 1);
	verdicts__free(verdicts);
}

/* ncclUint8 1, ncclFloat32 7, ncclInt32 2 */
TEST(the_same_bytes_by_another_type)
{
	static const struct {
		enum nccl_operation operation;
		uint32_t datatype;
		uint64_t count;
		enum verdict_state state;
	} cases[] = {
		{NCCL_OP_Broadcast, 1, 4000, VERDICT_HEALTHY},
		{NCCL_OP_AllGather, 2, 1000, VERDICT_HEALTHY},
		{NCCL_OP_Broadcast, 1, 4001, VERDICT_MISMATCH},
		{NCCL_OP_AllReduce, 2, 1000, VERDICT_MISMATCH},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		begin(0, true, 1);
		for (uint64_t n = 1; n <= 40; n++, settle(1)) {
			for (int32_t rank = 0; rank < N; rank++)
				call(rank, cases[i].operation, n, rank ? 7 : cases[i].datatype,
				     rank ? 1000 : cases[i].count);
		}
		CHECK_INT(said()->state, cases[i].state);
		verdicts__free(verdicts);
	}
}

UNIT_MAIN()
