/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "../../src/nccl_api.c"

static uint8_t slot(const char *symbol, enum nccl_param param, enum nccl_arch arch)
{
	return nccl_api__slot(nccl_api__by_symbol(symbol), param, arch);
}

#define X86(symbol, param) slot(symbol, NCCL_PARAM_##param, NCCL_ARCH_X86_64)
#define ARM(symbol, param) slot(symbol, NCCL_PARAM_##param, NCCL_ARCH_ARM64)

TEST(unique_id_by_value_takes_no_register_on_x86_and_one_on_arm64)
{
	CHECK_INT(X86("ncclCommInitRank", NEWCOMM), 0); /* rdi */
	CHECK_INT(X86("ncclCommInitRank", NRANKS), 1);	/* esi */
	CHECK_INT(X86("ncclCommInitRank", RANK), 2);	/* edx */
	CHECK_INT(X86("ncclCommInitRankConfig", CONFIG), 3);
	CHECK_INT(ARM("ncclCommInitRank", NRANKS), 1);
	CHECK_INT(ARM("ncclCommInitRank", RANK), 3); /* w3: x2 points at the id */
	CHECK_INT(ARM("ncclCommInitRankConfig", CONFIG), 4);
	CHECK_INT(X86("ncclCommInitRankScalable", RANK), 2); /* ids by pointer */
	CHECK_INT(ARM("ncclCommInitRankScalable", RANK), 2);
}

TEST(seventh_and_later_arguments_lie_on_the_stack_on_x86)
{
	CHECK_INT(X86("ncclAllReduce", REDOP), 4);
	CHECK_INT(X86("ncclAllReduce", COMM), 5);
	CHECK_INT(X86("ncclAllReduce", STREAM), NCCL_SLOT_STACK + 0); /* [rsp + 8] */
	CHECK_INT(X86("ncclReduce", ROOT), 5);
	CHECK_INT(X86("ncclReduce", COMM), NCCL_SLOT_STACK + 0);   /* [rsp + 8] */
	CHECK_INT(X86("ncclReduce", STREAM), NCCL_SLOT_STACK + 1); /* [rsp + 16] */
	CHECK_INT(X86("ncclReduceConfig", COLLCONFIG), NCCL_SLOT_STACK + 2);
	CHECK_INT(X86("ncclSend", COMM), 4);
	CHECK_INT(X86("ncclSend", STREAM), 5);
	CHECK_INT(X86("ncclPutSignal", COMM), NCCL_SLOT_STACK + 3);
	CHECK_INT(X86("ncclPutSignal", STREAM), NCCL_SLOT_STACK + 4);
}

TEST(ninth_and_later_arguments_lie_on_the_stack_on_arm64)
{
	CHECK_INT(ARM("ncclAllReduce", STREAM), 6);
	CHECK_INT(ARM("ncclReduce", COMM), 6);
	CHECK_INT(ARM("ncclReduce", STREAM), 7);
	CHECK_INT(ARM("ncclReduceConfig", COLLCONFIG), NCCL_SLOT_STACK + 0);
	CHECK_INT(ARM("ncclPutSignal", COMM), NCCL_SLOT_STACK + 1);
}

TEST(parameter_that_a_function_lacks_has_no_slot)
{
	CHECK_INT(X86("ncclAllReduce", ROOT), NCCL_SLOT_NONE);
	CHECK_INT(X86("ncclSend", RECVBUF), NCCL_SLOT_NONE);
	CHECK_INT(X86("ncclGroupStart", COMM), NCCL_SLOT_NONE);
}

/* What attach needs of every probed row. */
TEST(every_operation_has_a_communicator_and_a_stream)
{
	for (unsigned int i = 0; i < NCCL_FN_PROBED; i++) {
		const struct nccl_function *fn = &nccl_functions[i];
		bool operation = fn->family == NCCL_FAMILY_OPERATION;

		for (int arch = NCCL_ARCH_X86_64; operation && arch <= NCCL_ARCH_ARM64; arch++) {
			CHECK(nccl_api__slot(fn, NCCL_PARAM_COMM, arch) != NCCL_SLOT_NONE);
			CHECK(nccl_api__slot(fn, NCCL_PARAM_STREAM, arch) != NCCL_SLOT_NONE);
		}
		CHECK(operation == (fn->operation != NCCL_OP_MAX));
		CHECK(fn->params[0] != NCCL_PARAM_END);
	}
}

TEST(no_symbol_stands_twice)
{
	for (unsigned int i = 0; i < nccl_n_functions; i++)
		for (unsigned int j = 0; j < i; j++)
			CHECK(strcmp(nccl_functions[i].symbol, nccl_functions[j].symbol));
}

TEST(rows_are_plausible)
{
	for (unsigned int i = 0; i < nccl_n_functions; i++) {
		const struct nccl_function *fn = &nccl_functions[i];

		CHECK(!strncmp(fn->symbol, "nccl", 4));
		CHECK(fn->since >= 20906 && fn->since <= 23299 && fn->since % 100 > 0);
		CHECK((fn->family == NCCL_FAMILY_UNPROBED) == (i >= NCCL_FN_PROBED));
		CHECK((fn->family == NCCL_FAMILY_UNPROBED) == (fn->why_unprobed != NULL));
		CHECK(fn->sequence >= NCCL_NO_SEQUENCE && fn->sequence < 5);
	}
}

/* ncclFunc_t's order, which seqNumber[] has: the same from 2.23 to 2.32. */
TEST(sequence_indices_are_those_of_ncclFunc_t)
{
	static const enum nccl_operation order[] = {NCCL_OP_Broadcast, NCCL_OP_Reduce,
						    NCCL_OP_AllGather, NCCL_OP_ReduceScatter,
						    NCCL_OP_AllReduce};

	for (unsigned int i = 0; i < NCCL_FN_PROBED; i++) {
		int8_t sequence = nccl_functions[i].sequence;

		if (sequence != NCCL_NO_SEQUENCE)
			CHECK_INT(nccl_functions[i].operation, order[sequence]);
	}
	CHECK_INT(nccl_functions[NCCL_FN_Broadcast].sequence, 0);
	CHECK_INT(nccl_functions[NCCL_FN_AllReduce].sequence, 4);
}

TEST(symbols_are_found_by_both_names)
{
	CHECK(nccl_api__by_symbol("ncclSend") == &nccl_functions[NCCL_FN_Send]);
	CHECK(nccl_api__by_symbol("pncclSend") == &nccl_functions[NCCL_FN_Send]);
	CHECK(!nccl_api__by_symbol("ppncclSend"));
	CHECK(!nccl_api__by_symbol("ncclSen"));
	CHECK(!nccl_api__by_symbol(""));
}

TEST(operations_have_names)
{
	for (int i = 0; i < NCCL_OP_MAX; i++)
		CHECK(nccl_operation__name(i) && strlen(nccl_operation__name(i)) > 3);
	CHECK_STR(nccl_operation__name(NCCL_OP_AlltoAll), "AlltoAll");
	CHECK_STR(nccl_operation__name(NCCL_OP_MAX), "unknown");
}

TEST(datatype_sizes)
{
	CHECK_INT(nccl_datatype__size(0), 1);
	CHECK_INT(nccl_datatype__size(8), 8);
	CHECK_INT(nccl_datatype__size(9), 2);
	CHECK_INT(nccl_datatype__size(NCCL_N_DATATYPES), 0);
	CHECK_INT(nccl_datatype__size(UINT32_MAX), 0);
}

TEST(versions_are_spelt)
{
	char buf[16];

	CHECK_STR(nccl_version__format(22809, buf), "2.28.9");
	CHECK_STR(nccl_version__format(23102, buf), "2.31.2");
	CHECK_STR(nccl_version__format(0, buf), "unknown");
	CHECK_STR(nccl_version__format(-1, buf), "unknown");
	CHECK_STR(nccl_version__format(INT32_MAX, buf), "unknown");
}

UNIT_MAIN()
