/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The numbers of calls, against a model of NCCL that launches at the end of a group. */
#include "unit.h"

#include "../../src/nccl_api.c"
#include "../../src/watch_number.c"

#define NONE VERDICT_NO_SEQUENCE

/* One rank: what NCCL and the kernel's counters hold. */
struct rank {
	struct watch_number number;
	uint64_t launched; /* NCCL's number */
	uint64_t in_group; /* called, and not launched yet */
	struct {
		uint64_t entry, pending;
	} counter[2]; /* ncclAllReduce, ncclAllReduceConfig */
	bool whole, has_number;
};

static struct rank rank_new(bool whole)
{
	return (struct rank){
		.whole = whole,
		.has_number = true,
		.counter = {{~1ULL, 0}, {~1ULL, 0}},
	};
}

/* As bpf/nccl_bpftrace.bpf.c, counter__sequence(). */
static struct nb_record rank_record(struct rank *r, int function, uint64_t count)
{
	struct nb_record call = {
		.function = function ? NCCL_FN_AllReduceConfig : NCCL_FN_AllReduce,
		.count = count,
		.n_ranks = 8,
		.sequence = r->has_number ? r->launched : NB_NO_SEQUENCE,
	};

	if (r->counter[function].entry != call.sequence) {
		r->counter[function].entry = call.sequence;
		r->counter[function].pending = 0;
	}
	r->counter[function].pending += count > 0;
	r->in_group += count > 0;
	call.pending = r->counter[function].pending;
	return call;
}

static uint64_t rank_call(struct rank *r, int function)
{
	const struct nb_record call = rank_record(r, function, 10);

	return watch_number__call(&r->number, &call, r->whole);
}

static void rank_launch(struct rank *r)
{
	r->launched += r->in_group;
	r->in_group = 0;
}

/* A call that is launched at once. */
static uint64_t rank_do(struct rank *r)
{
	uint64_t number = rank_call(r, 0);

	rank_launch(r);
	return number;
}

TEST(from_the_first)
{
	struct rank r = rank_new(true);

	for (uint64_t i = 1; i <= 100; i++)
		CHECK_INT(rank_do(&r), i);
}

TEST(groups_see_one_number)
{
	struct rank r = rank_new(true);

	for (uint64_t i = 1; i <= 60; i++) {
		CHECK_INT(rank_call(&r, 0), i);
		if (i % 7 == 0)
			rank_launch(&r);
	}
}

/* NCCL's number is absolute: what was lost in between shifts nothing, in a group either. */
TEST(lost_records_shift_nothing)
{
	struct rank r = rank_new(true);

	for (uint64_t i = 1; i <= 1000; i++) {
		if (i % 11 < 3)
			rank_record(&r, 0, 10);
		else
			CHECK_INT(rank_call(&r, 0), i);
		if (i % 5 == 0)
			rank_launch(&r);
	}
}

/* Attached to in the middle of a group, it cannot know the group's earlier calls. */
TEST(a_late_comer_waits_for_the_number_to_rise)
{
	struct rank r = rank_new(false);

	r.launched = 40;
	r.in_group = 2; /* not seen */
	CHECK(rank_call(&r, 0) == NONE);
	CHECK(rank_call(&r, 0) == NONE);
	CHECK(!watch_number__is_exact(&r.number, r.whole));
	rank_launch(&r);
	CHECK_INT(rank_call(&r, 0), 45);
	CHECK_INT(rank_call(&r, 0), 46);
	CHECK(watch_number__is_exact(&r.number, r.whole));
}

TEST(no_number_of_its_own)
{
	struct rank r = rank_new(true), late = rank_new(false);

	r.has_number = late.has_number = false;
	for (uint64_t i = 1; i <= 20; i++) {
		if (i % 3)
			CHECK_INT(rank_call(&r, 0), i);
		else
			rank_record(&r, 0, 10); /* lost */
		CHECK(rank_do(&late) == NONE);
	}
}

TEST(what_launches_nothing_has_no_number)
{
	struct rank r = rank_new(true);
	struct nb_record call = rank_record(&r, 0, 0);

	CHECK(watch_number__call(&r.number, &call, true) == NONE);
	call = rank_record(&r, 0, 10);
	call.n_ranks = 1;
	CHECK(watch_number__call(&r.number, &call, true) == NONE);
	call.n_ranks = 8;
	call.pending = NB_PENDING_CAPTURED;
	CHECK(watch_number__call(&r.number, &call, true) == NONE);
	call.pending = 0; /* found no counter */
	CHECK(watch_number__call(&r.number, &call, true) == NONE);
}

TEST(captured_calls_are_in_no_number)
{
	struct rank r = rank_new(true);
	struct nb_record call = {
		.function = NCCL_FN_AllReduce,
		.count = 10,
		.n_ranks = 8,
		.pending = NB_PENDING_CAPTURED,
	};

	for (uint64_t i = 1; i <= 20; i++) {
		CHECK(watch_number__call(&r.number, &call, true) == NONE);
		CHECK_INT(rank_do(&r), i);
	}
}

/* ncclAllReduceConfig is an AllReduce: NCCL counts both as one, the kernel each for itself. */
TEST(two_functions_of_one_operation)
{
	struct rank r = rank_new(true), plain = rank_new(true);

	plain.has_number = false;
	for (uint64_t i = 1; i <= 60; i++) {
		CHECK_INT(rank_call(&r, i % 3 == 0), i);
		CHECK_INT(rank_call(&plain, i % 2), i);
		if (i % 4 == 0)
			rank_launch(&r);
	}
}

/*
 * Symmetric kernels: called and never numbered. The call after one that is not has the number of
 * that one; from then on nothing is numbered until all is in order for long enough.
 */
TEST(what_nccl_does_not_number)
{
	struct rank a = rank_new(true), b = rank_new(true);
	unsigned int unnumbered = 0;

	for (unsigned int i = 0; i < 500; i++) {
		uint64_t of_a = rank_call(&a, 0), of_b = rank_call(&b, 0);

		CHECK(of_a == of_b); /* what one rank is told, every rank is */
		unnumbered += of_a == NONE;
		if (i == 100 || i == 102)
			a.in_group = b.in_group = 0;
		rank_launch(&a);
		rank_launch(&b);
	}
	CHECK(unnumbered >= STEADY && unnumbered < 3 * STEADY);
	CHECK_INT(rank_call(&a, 0), a.launched + 1);
}

TEST(handed_over_and_back)
{
	struct rank r = rank_new(false);

	r.launched = 10;
	rank_do(&r);
	CHECK_INT(rank_do(&r), 12);
	for (uint64_t i = 13; i <= 20; i++) { /* no probe: NCCL's number moves all the same */
		watch_number__told(&r.number, i);
		r.launched = i;
	}
	r.launched = 21; /* this one is not told of yet */
	CHECK_INT(watch_number__next(&r.number, false), 21);
	/* Back, in the middle of a group whose first two calls no probe saw. */
	r.in_group = 2;
	CHECK(rank_call(&r, 0) == NONE);
	rank_launch(&r);
	CHECK_INT(rank_call(&r, 0), 25);
}

TEST(whole_ones_that_were_handed_over)
{
	struct rank r = rank_new(true);

	CHECK_INT(watch_number__next(&r.number, true), 1);
	CHECK_INT(watch_number__next(&r.number, true), 2);
	r.in_group = 2;
	CHECK(rank_call(&r, 0) == NONE); /* 3, if the kernel had seen those two */
	rank_launch(&r);
	CHECK_INT(rank_do(&r), 4);
}

TEST(lost_ones_that_no_probe_saw)
{
	struct watch_number n = {};

	watch_number__told(&n, 7);
	CHECK_INT(watch_number__next(&n, false), 8);
	watch_number__doubt(&n);
	CHECK(watch_number__next(&n, false) == NONE);
	watch_number__told(&n, 12);
	CHECK_INT(watch_number__next(&n, false), 13);
	n = (struct watch_number){};
	CHECK(watch_number__next(&n, false) == NONE); /* what came before is not known */
}

/* Counters and memory are read while calls are on their way to us: that is no contradiction. */
TEST(what_is_reached_before_its_call_is_told)
{
	struct rank r = rank_new(true);

	rank_do(&r);
	CHECK(watch_number__reached(&r.number, 3));
	CHECK_INT(rank_do(&r), 2);
	CHECK(!watch_number__reached(&r.number, 2));
	CHECK_INT(rank_do(&r), 3);
	CHECK(watch_number__reached(&r.number, 3));
}

UNIT_MAIN()
