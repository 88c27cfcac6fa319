/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One note for a launch and its operation, and the two again. */
#include "../../src/plugin/joined.h"
#include "unit.h"

#define STREAM 0x7fff12345678abcdULL

static void check_both(uint64_t launch, uint64_t operation, uint64_t since)
{
	struct note both = {.kind = NBP_KIND_OPERATION, .number = operation, .launch = launch};
	struct note split;

	both.tid = 77;
	both.time_ns = 1ULL << 60;
	both.generation = 9;
	both.sequence = 12345678901ULL;
	both.count = 1ULL << 40;
	both.group = 5;
	both.root = -3;
	both.extra = 16;
	both.function = NBP_ALLREDUCE;
	both.datatype = 7;
	both.detail = 0x12;
	note__join(&both, STREAM);
	CHECK_INT(both.kind, NOTE_JOINED);
	note__split(&both, launch - since, operation - since, &split);
	CHECK_INT(both.kind, NBP_KIND_OPERATION);
	CHECK(both.number == operation && both.launch == launch);
	CHECK(both.sequence == 12345678901ULL && both.count == 1ULL << 40 && both.group == 5);
	CHECK(both.root == -3 && both.extra == 16 && both.function == NBP_ALLREDUCE);
	CHECK(both.datatype == 7 && both.detail == 0x12 && both.tid == 77);
	CHECK_INT(split.kind, NBP_KIND_LAUNCH);
	CHECK(split.number == launch && split.stream == STREAM && split.tid == 77);
	CHECK(split.time_ns == 1ULL << 60 && split.generation == 9);
	CHECK(split.function == NBP_NOT_TIMED_BUDGET && split.datatype == NBP_CAPTURED_NO);
	CHECK(!split.detail && !split.extra && !split.count && !split.launch);
}

TEST(joined_and_split)
{
	check_both(1, 1, 1);
	check_both(100, 7000, 1);
}

/* Lower halves are enough, however long it has run and whatever was lost in between. */
TEST(long_numbers)
{
	for (uint64_t at = (1ULL << 32) - 3; at < (1ULL << 32) + 3; at++) {
		check_both(at, at + 1, 1);
		check_both(at + (7ULL << 32), at, 2);
		check_both(at, at + (1ULL << 50), 1000000);
	}
	CHECK(number__widen(1ULL << 32, UINT32_MAX) == UINT32_MAX); /* from another thread, late */
}

UNIT_MAIN()
