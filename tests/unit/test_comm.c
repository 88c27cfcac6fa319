/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "../../src/comm.c"
#include "../../src/comm_learn.c"
#include "../../src/comm_graph.c"
#include "../../src/comm_owner.c"
#include "../../src/comm_plugin.c"
#include "../../src/comm_query.c"
#include "../../src/nccl_api.c"

#define PID  1000
#define ADDR 0x7f0000001000ULL
#define HASH 0x1122334455667788ULL

static struct nb_key key_of(uint64_t address, uint64_t hash, int32_t rank, int function)
{
	return (struct nb_key){
		.comm = address,
		.comm_hash = hash,
		.tgid = PID,
		.rank = rank,
		.n_ranks = rank < 0 ? 0 : 8,
		.function = function,
	};
}

static struct nb_counter counter_of(uint64_t calls, uint64_t first_ns, uint64_t last_ns)
{
	return (struct nb_counter){
		.launched = {.calls = calls, .type_bytes = calls * 4},
		.first_ns = first_ns,
		.last_ns = last_ns,
		.sequence = NB_NO_SEQUENCE,
		.last_count = 1,
		.last_datatype = 7,
	};
}

static struct comm *count_one(struct comms *comms, uint64_t address, uint64_t hash, int32_t rank,
			      int function, uint64_t calls, uint64_t first_ns)
{
	const struct nb_key key = key_of(address, hash, rank, function);
	const struct nb_counter counter = counter_of(calls, first_ns, first_ns + 10);

	comms__begin(comms);
	return comms__count(comms, &key, &counter);
}

static struct nb_record lifecycle(int function, uint64_t time_ns, uint64_t comm, uint64_t pointer)
{
	return (struct nb_record){
		.kind = NB_KIND_LIFECYCLE,
		.tgid = PID,
		.time_ns = time_ns,
		.function = function,
		.comm = comm,
		.count = pointer,
		.rank = 5,
		.n_ranks = 8,
	};
}

static struct comms *new_comms(void)
{
	struct comms *comms = NULL;

	CHECK(!comms__new(&comms));
	return comms;
}

TEST(functions_of_one_operation_are_one)
{
	struct comms *comms = new_comms();
	struct nb_key plain = key_of(ADDR, HASH, 5, NCCL_FN_AllReduce);
	struct nb_key config = key_of(ADDR, HASH, 5, NCCL_FN_AllReduceConfig);
	struct nb_counter a = counter_of(3, 10, 20), b = counter_of(4, 30, 40);
	struct comm *comm = NULL;

	for (int round = 0; round < 2; round++) { /* cumulative: a second reading adds nothing */
		comms__begin(comms);
		comm = comms__count(comms, &plain, &a);
		CHECK(comm && comm == comms__count(comms, &config, &b));
	}
	CHECK_INT(comm->operations[NCCL_OP_AllReduce].tally[COMM_LAUNCHED].calls, 7);
	CHECK_INT(comm->operations[NCCL_OP_AllReduce].last_ns, 40);
	CHECK_INT(comm->first_ns, 10);
	CHECK_INT(comm->last_ns, 40);
	CHECK_INT(comms__count_of(comms), 1);
	comms__free(comms);
}

TEST(a_creation_makes_observed_only_what_cannot_be_older)
{
	struct comms *comms = new_comms();
	struct nb_record r = lifecycle(NCCL_FN_CommInitRank, 100, 0, 0x1234);
	struct comm *comm;

	comms__record(comms, &r);
	comm = count_one(comms, ADDR, HASH, 5, NCCL_FN_AllReduce, 1, 200);
	CHECK_INT(comm->identity, COMM_RECOVERED); /* it may have been there all along */
	comms__free(comms);

	comms = new_comms();
	comms__complete(comms, PID, 50);
	comms__record(comms, &r);
	comm = count_one(comms, ADDR, HASH, 5, NCCL_FN_AllReduce, 1, 200);
	CHECK_INT(comm->identity, COMM_OBSERVED);
	comm = count_one(comms, ADDR + 4096, HASH + 1, 5, NCCL_FN_AllReduce, 1, 300);
	CHECK_INT(comm->identity, COMM_RECOVERED); /* one creation, one communicator */
	comms__free(comms);
}

/* Ranks and sizes of two are alike, and one of them was made before all was probed. */
TEST(a_creation_in_doubt_is_told_by_the_address)
{
	const uint64_t probed_ns = 1000 + 2 * INIT_NS;
	struct nb_record missed = lifecycle(NCCL_FN_CommInitRank, 1000, 0, 0x1234);
	struct nb_record seen = lifecycle(NCCL_FN_CommInitRank, probed_ns + 10, 0, 0x5678);
	struct comms *comms = new_comms();
	struct comm *first, *second;

	comms__complete(comms, PID, 50);
	comms__record(comms, &missed);
	comms__probed_since(comms, PID, probed_ns);
	comms__record(comms, &seen);
	first = count_one(comms, ADDR, HASH, 5, NCCL_FN_AllReduce, 1, probed_ns + 20);
	second = count_one(comms, ADDR + 4096, HASH + 1, 5, NCCL_FN_AllReduce, 1, probed_ns + 30);
	CHECK_INT(first->identity, COMM_RECOVERED);
	CHECK_INT(second->identity, COMM_RECOVERED);
	comms__made(comms, PID, 0x1234, ADDR);
	comms__made(comms, PID, 0x5678, ADDR + 4096);
	CHECK_INT(first->identity, COMM_RECOVERED);
	CHECK_INT(second->identity, COMM_OBSERVED);
	comms__free(comms);
}

TEST(a_communicator_known_before_the_creation_is_not_its)
{
	struct nccl_identity id = {.comm_hash = HASH,
				   .rank = 5,
				   .n_ranks = 8,
				   .valid = NCCL_IDENTITY_IDENTITY | NCCL_IDENTITY_HASH};
	struct nb_record r = lifecycle(NCCL_FN_CommInitRank, 100, 0, 0x1234);
	struct comms *comms = new_comms();

	comms__learn(comms, PID, ADDR, true, 60, &id);
	comms__complete(comms, PID, 60);
	comms__record(comms, &r);
	comms__learn(comms, PID, ADDR, true, 150, &id);
	CHECK_INT(comms__first(comms)->identity, COMM_RECOVERED);
	comms__free(comms);
}

TEST(the_address_in_the_variable_tells_rank_and_size)
{
	struct nb_record r = lifecycle(NCCL_FN_CommInitRank, 100, 0, 0x1234);
	struct comms *comms = new_comms();
	uint64_t pointers[4];
	struct comm *comm;

	comms__record(comms, &r);
	comm = count_one(comms, ADDR, 0, -1, NCCL_FN_AllReduce, 1, 200);
	CHECK_INT(comm->rank, -1);
	CHECK_INT(comms__pending(comms, PID, pointers, 4), 1);
	CHECK_INT(pointers[0], 0x1234);
	comms__made(comms, PID, 0x1234, ADDR);
	CHECK_INT(comm->rank, 5);
	CHECK_INT(comm->n_ranks, 8);
	CHECK_INT(comm->identity, COMM_OBSERVED);
	CHECK_INT(comms__pending(comms, PID, pointers, 4), 0);
	comms__free(comms);
}

TEST(an_address_used_again_is_another_communicator)
{
	struct nb_record end = lifecycle(NCCL_FN_CommDestroy, 300, ADDR, 0);
	struct comms *comms = new_comms();
	struct comm *first = count_one(comms, ADDR, HASH, 5, NCCL_FN_AllReduce, 3, 200), *second;

	comms__record(comms, &end);
	CHECK_INT(first->dead_ns, 300);
	second = count_one(comms, ADDR, HASH + 1, 5, NCCL_FN_AllReduce, 1, 400);
	CHECK(second != first);
	CHECK_INT(second->dead_ns, 0);
	CHECK_STR(first->label, "1122334455667788");
	CHECK_STR(second->label, "1122334455667789");
	comms__expire(comms, 350);
	CHECK_INT(comms__count_of(comms), 1);
	CHECK(comms__first(comms) == second);
	comms__free(comms);
}

TEST(without_an_end_the_next_one_at_the_address_is_the_end)
{
	struct comms *comms = new_comms();
	struct comm *first = count_one(comms, ADDR, HASH, 5, NCCL_FN_AllReduce, 3, 200);

	count_one(comms, ADDR, HASH + 1, 5, NCCL_FN_AllReduce, 1, 400);
	CHECK_INT(first->dead_ns, 400);
	comms__free(comms);
}

TEST(labels_are_never_shared)
{
	struct comms *comms = new_comms();
	struct nb_key forged = key_of(ADDR, HASH, 5, NCCL_FN_AllReduce);
	struct nb_counter counter = counter_of(1, 500, 600);
	struct comm *honest = count_one(comms, ADDR, HASH, 5, NCCL_FN_AllReduce, 3, 200);
	struct comm *forger, *unknown;

	forged.tgid = PID + 1;
	forger = comms__count(comms, &forged, &counter);
	unknown = count_one(comms, ADDR + 1, 0, -1, NCCL_FN_AllReduce, 1, 700);
	CHECK_STR(honest->label, "1122334455667788");
	CHECK_STR(forger->label, "unknown-1001-1");
	CHECK_STR(unknown->label, "unknown-1000-1");
	CHECK(forger->is_double);
	CHECK(comms__named(comms, PID, HASH, 5) == honest);
	CHECK(!comms__named(comms, PID + 1, HASH, 5));
	CHECK(!comms__named(comms, PID, HASH, 6));
	comms__free(comms);
}

TEST(sequence_is_nccl_s_or_ours_or_none)
{
	struct comms *comms = new_comms();
	struct nb_key key = key_of(ADDR, HASH, 5, NCCL_FN_AllReduce);
	struct nb_counter counter = counter_of(3, 100, 200);
	struct comm *comm;
	uint64_t n = 0;

	counter.sequence = 41;
	counter.pending = 1;
	comms__begin(comms);
	comm = comms__count(comms, &key, &counter);
	CHECK(comm__sequence(comm, NCCL_OP_AllReduce, &n));
	CHECK_INT(n, 42);
	key.function = NCCL_FN_Send;
	counter.sequence = NB_NO_SEQUENCE;
	comms__count(comms, &key, &counter);
	CHECK(!comm__sequence(comm, NCCL_OP_Send, &n)); /* attached late: nobody knows */
	comm->identity = COMM_OBSERVED;
	CHECK(comm__sequence(comm, NCCL_OP_Send, &n));
	CHECK_INT(n, 3);
	comms__free(comms);
}

TEST(bytes_as_nccl_tests_counts_them)
{
	struct comms *comms = new_comms();
	struct comm *comm = count_one(comms, ADDR, HASH, 5, NCCL_FN_AllGather, 2, 100);
	uint64_t bytes = 0;

	CHECK(comm__bytes(comm, NCCL_OP_AllGather, COMM_LAUNCHED, &bytes));
	CHECK_INT(bytes, 2 * 4 * 8);
	comm = count_one(comms, ADDR, HASH, 5, NCCL_FN_AllReduce, 2, 100);
	CHECK(comm__bytes(comm, NCCL_OP_AllReduce, COMM_LAUNCHED, &bytes));
	CHECK_INT(bytes, 2 * 4);
	comm = count_one(comms, ADDR + 1, 0, -1, NCCL_FN_AllGather, 2, 100);
	CHECK(!comm__bytes(comm, NCCL_OP_AllGather, COMM_LAUNCHED, &bytes)); /* ranks not known */
	comms__free(comms);
}

TEST(signatures_agree_where_ranks_must)
{
	struct comms *comms = new_comms();
	struct comm *comm = count_one(comms, ADDR, HASH, 5, NCCL_FN_AllReduce, 1, 100);
	uint32_t a = 0, b = 0;

	comm->operations[NCCL_OP_AllReduce].last_redop = 7; /* a handle, another on each rank */
	CHECK(comm__signature(comm, NCCL_OP_AllReduce, &a));
	comm->operations[NCCL_OP_AllReduce].last_redop = 9;
	CHECK(comm__signature(comm, NCCL_OP_AllReduce, &b));
	CHECK_INT(a, b);
	comm->operations[NCCL_OP_AllReduce].last_count++;
	CHECK(comm__signature(comm, NCCL_OP_AllReduce, &b));
	CHECK(a != b);
	CHECK(!comm__signature(comm, NCCL_OP_Send, &b)); /* peers differ by rank */
	comms__free(comms);
}

TEST(a_process_that_ends_takes_its_communicators)
{
	struct comms *comms = new_comms();

	count_one(comms, ADDR, HASH, 5, NCCL_FN_AllReduce, 1, 100);
	comms__process_gone(comms, PID, 500);
	CHECK_INT(comms__first(comms)->dead_ns, 500);
	comms__expire(comms, 400);
	CHECK_INT(comms__count_of(comms), 1); /* still shown once */
	comms__expire(comms, 501);
	CHECK_INT(comms__count_of(comms), 0);
	comms__free(comms);
}

TEST(what_is_younger_than_the_end_is_another_s)
{
	struct comms *comms = new_comms();
	struct comm *old = count_one(comms, ADDR, HASH, 5, NCCL_FN_AllReduce, 3, 200);
	struct comm *young = count_one(comms, ADDR + 4096, HASH + 1, 5, NCCL_FN_AllReduce, 1, 301);

	comms__process_gone(comms, PID, 300);
	CHECK_INT(old->dead_ns, 300);
	CHECK_INT(young->dead_ns, 0);
	young = count_one(comms, ADDR, HASH + 2, 5, NCCL_FN_AllReduce, 1, 302);
	CHECK_INT(young->dead_ns, 0);
	CHECK_INT(old->dead_ns, 300);
	CHECK_INT(old->ending, COMM_DIED);
	comms__free(comms);
}

TEST(creations_are_bounded)
{
	struct comms *comms = new_comms();
	uint64_t pointers[256];

	for (uint64_t i = 1; i <= 1000; i++) {
		struct nb_record r = lifecycle(NCCL_FN_CommInitRank, i, 0, i);

		comms__record(comms, &r);
	}
	CHECK_INT(comms__pending(comms, PID, pointers, 256), 32);
	CHECK_INT(pointers[0], 1000);
	comms__free(comms);
}

TEST(replays)
{
	const struct nb_key key = {
		.comm = 0x10,
		.comm_hash = 9,
		.tgid = 1,
		.rank = 0,
		.function = NCCL_FN_AllReduce,
		.n_ranks = 2,
	};
	const struct nb_counter counter = {
		.launched = {.calls = 2, .type_bytes = 8},
		.captured = {.calls = 3, .type_bytes = 12},
		.first_ns = 1,
		.last_ns = 5,
		.sequence = NB_NO_SEQUENCE,
	};
	const struct nb_tally held = {.calls = 3, .type_bytes = 12};
	struct nb_capture capture = {.launches = 10, .last_ns = 50};
	const enum nccl_operation op = NCCL_OP_AllReduce;
	struct comms *comms;
	struct comm *comm = NULL;
	uint64_t bytes;

	CHECK(!comms__new(&comms));
	for (int round = 0; round < 3; round++) {
		comms__begin(comms);
		comm = comms__count(comms, &key, &counter);
		CHECK_INT(comm__ran(comm, op), 2 + (round ? 30 : 0));
		comms__replay(comms, &key, &held, &capture, round == 0);
		CHECK_INT(comm->operations[op].tally[COMM_LAUNCHED].calls, 2);
		CHECK_INT(comm->operations[op].tally[COMM_CAPTURED].calls, 3);
		/* the first capture is past, what is told later is another of the same content */
		CHECK_INT(comm__ran(comm, op), 2 + 30 + (round ? 3 : 0));
		CHECK(comm__bytes(comm, op, COMM_REPLAYED, &bytes));
		CHECK_INT(bytes, 120 + (round ? 12 : 0));
		capture.launches = 1;
	}
	CHECK_INT(comm__last_ns(comm), 50);
	CHECK_INT(comm->last_ns, 5);
	comms__replay(comms, &(struct nb_key){.comm = 0x99, .tgid = 7}, &held, &capture, true);
	comms__free(comms);
}

TEST(captured_calls_have_no_signature)
{
	const struct nb_key key = {.comm = 0x10, .comm_hash = 9, .tgid = 1, .n_ranks = 2};
	const struct nb_counter counter = {
		.captured = {.calls = 3, .type_bytes = 12}, .first_ns = 1, .last_ns = 5};
	struct comms *comms;
	uint32_t signature;
	struct comm *comm;

	CHECK(!comms__new(&comms));
	comms__begin(comms);
	comm = comms__count(comms, &key, &counter);
	CHECK(!comm__signature(comm, NCCL_OP_AllReduce, &signature));
	comms__free(comms);
}

UNIT_MAIN()
