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
