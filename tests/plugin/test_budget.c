/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What share of launches is timed, and what it costs, by the time between them. */
#include "../../src/plugin/budget.h"
#include "unit.h"

#define COST_NS	  10000
#define SECOND_NS 1000000000ULL
#define N_COMMS	  16

struct nbp_control nccl_bpftrace_control = {.budget_ppm = 10000, .launch_cost_ns = COST_NS};

_Atomic uint32_t n_gpus = 1;

static struct budget budget;

static void fresh(void)
{
	memset(&budget, 0, sizeof(budget));
}

/* Of a communicator that launches all the time; last timed then. */
static bool take(uint64_t now, uint64_t timed_ns)
{
	const struct claim claim = {.timed_ns = timed_ns};

	return budget__take(&budget, now, &claim);
}

static bool take_after_pause(uint64_t now)
{
	const struct claim claim = {.timed_ns = now, .paused = true};

	return budget__take(&budget, now, &claim);
}

struct outcome {
	uint64_t n, n_timed;
	uint64_t longest_ns; /* without a timed launch */
	double cost_percent;
};

/* One communicator that launches every `every` ns for `length`, from `now` on. */
static struct outcome launch_for(uint64_t now, uint64_t every, uint64_t length)
{
	struct outcome o = {0};
	uint64_t last = 0, from = now;

	for (; now < from + length; now += every) {
		o.n++;
		if (!take(now, last))
			continue;
		if (last && now - last > o.longest_ns)
			o.longest_ns = now - last;
		last = now;
		o.n_timed++;
	}
	o.cost_percent = 100.0 * o.n_timed * COST_NS / length;
	return o;
}

TEST(what_share_is_timed)
{
	static const struct {
		uint64_t every_ns;
		double least, most; /* percent of launches */
	} cases[] = {
		{10000, 0.95, 1.05},
		{100000, 9, 10.5},
		{2000000, 99.9, 100},
		{20000000, 99.9, 100},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct outcome o;
		double share;

		fresh();
		o = launch_for(SECOND_NS, cases[i].every_ns, 60 * SECOND_NS);
		share = 100.0 * o.n_timed / o.n;
		printf("     a launch every %5d us: %6.2f %% timed, %.3f %% of wall time, at most "
		       "%.1f ms without\n",
		       (int)(cases[i].every_ns / 1000), share, o.cost_percent, o.longest_ns / 1e6);
		CHECK(share >= cases[i].least && share <= cases[i].most);
		CHECK(o.cost_percent <= 1.001);
		CHECK(o.longest_ns <= cases[i].every_ns + 2000000);
	}
}

/* In any stretch of time, not only on average over a minute. */
TEST(a_burst_costs_no_more_than_was_saved)
{
	for (uint64_t length = 1000000; length <= SECOND_NS; length *= 10) {
		struct outcome o;

		fresh();
		o = launch_for(SECOND_NS, 10000, length);
		/* what was saved and what is taken in advance are 14 ms of budget at most */
		CHECK(o.n_timed * COST_NS <= (length + 15500000) / 100);
	}
}

/* One that launches all the time does not starve those that do so now and then. */
TEST(rare_ones_are_timed)
{
	uint64_t last[N_COMMS] = {0}, n[N_COMMS] = {0}, timed[N_COMMS] = {0}, all = 0;
	uint64_t from = SECOND_NS, until = from + 10 * SECOND_NS;

	fresh();
	for (uint64_t now = from; now < until; now += 10000) {
		for (int c = 0; c < N_COMMS; c++) {
			/* the first every 10 us, the others every 50 ms, not at the same time */
			if (c && (now - from) % 50000000 != c * 1230000ULL)
				continue;
			n[c]++;
			if (!take(now + c, last[c]))
				continue;
			last[c] = now;
			timed[c]++;
			all++;
		}
	}
	for (int c = 1; c < N_COMMS; c++)
		CHECK(n[c] >= 199 && timed[c] >= n[c] * 9 / 10);
	printf("     busy: %d of %d timed; rare: %d of %d; %.3f %% of wall time\n", (int)timed[0],
	       (int)n[0], (int)timed[1], (int)n[1], 100.0 * all * COST_NS / (until - from));
	CHECK(all * COST_NS <= (until - from) / 100 * 1.01);
}

/* More rare ones than the budget has room for: it holds. */
TEST(a_thousand_rare_ones_keep_it)
{
	static uint64_t last[1000];
	uint64_t all = 0, from = SECOND_NS, until = from + 2 * SECOND_NS;

	fresh();
	for (uint64_t now = from; now < until; now += 20000) {
		int c = (now / 20000) % 1000;

		if (!take(now, last[c]))
			continue;
		last[c] = now;
		all++;
	}
	CHECK(all * COST_NS <=
	      (until - from) / 100 * 1.02 + 160000); /* the jitter does not even out */
}

/* A step: 200 launches 20 us apart, then 16 ms of nothing. Its first launch is always timed. */
TEST(the_first_after_a_pause)
{
	uint64_t last = 0, now = SECOND_NS, timed = 0;
	int first = 0, in_last_ms = 0;

	fresh();
	for (int step = 0; step < 500; step++) {
		bool near_end = false;

		for (int i = 0; i < 200; i++, now += 20000) {
			if (!take(now, last))
				continue;
			last = now;
			timed++;
			first += !i;
			near_end |= i >= 150;
		}
		in_last_ms += near_end;
		now += 16000000;
	}
	printf("     steps whose first launch is timed: %d of 500; one of the last 50: %d of 500; "
	       "%.3f %% of wall time\n",
	       first, in_last_ms, 100.0 * timed * COST_NS / (now - SECOND_NS));
	CHECK_INT(first, 500);
	CHECK(in_last_ms >= 400);
	CHECK(timed * COST_NS <= (now - SECOND_NS) / 100);
}

TEST(off_and_without_bound)
{
	fresh();
	nccl_bpftrace_control.budget_ppm = 0;
	CHECK(!take(SECOND_NS, 0));
	nccl_bpftrace_control.budget_ppm = 1000000;
	for (int i = 0; i < 100; i++)
		CHECK(take(SECOND_NS, SECOND_NS));
	fresh();
	nccl_bpftrace_control.budget_ppm = 10000;
	CHECK(take(SECOND_NS, 0));
	budget__charge(&budget, SECOND_NS);
	CHECK(!take(SECOND_NS, SECOND_NS));
	nccl_bpftrace_control.budget_ppm = 1000000;
	CHECK(take(SECOND_NS, SECOND_NS));
	nccl_bpftrace_control.budget_ppm = 1; /* a launch every 5000 s would be too rare to see */
	fresh();
	CHECK(take(SECOND_NS, 0));
	CHECK(!take(4 * SECOND_NS, 0));
	CHECK(take(17 * SECOND_NS, 0));
	nccl_bpftrace_control.budget_ppm = 10000;
}

/* One thread may launch on all of them. */
TEST(gpus_of_a_process_share_it)
{
	struct outcome one, eight;

	fresh();
	one = launch_for(SECOND_NS, 10000, 10 * SECOND_NS);
	n_gpus = 8;
	fresh();
	eight = launch_for(SECOND_NS, 10000, 10 * SECOND_NS);
	printf("     of one: %.3f %% of wall time, of each of eight %.4f %%\n", one.cost_percent,
	       eight.cost_percent);
	CHECK(eight.n_timed * 8 >= one.n_timed * 95 / 100);
	CHECK(eight.cost_percent * 8 <= 1.05);
	nccl_bpftrace_control.budget_ppm = 1; /* a share of it is not nothing */
	fresh();
	CHECK(take(SECOND_NS, 0));
	nccl_bpftrace_control.budget_ppm = 1000000;
	for (int i = 0; i < 100; i++)
		CHECK(take(SECOND_NS, SECOND_NS));
	nccl_bpftrace_control.budget_ppm = 10000;
	n_gpus = 1;
}

TEST(what_is_dearer_is_charged)
{
	fresh();
	CHECK(take(SECOND_NS, 0));
	budget__charge(&budget, COST_NS + 1000000); /* 1 ms: 100 ms of budget */
	CHECK(!take(SECOND_NS + 80000000, SECOND_NS));
	CHECK(!take(SECOND_NS + 80000000, 0));
	CHECK(take(SECOND_NS + 102000000, SECOND_NS));
}

/* What was charged for a launch that blocked keeps no other from being timed after a pause. */
TEST(after_a_pause_whatever_was_charged)
{
	fresh();
	CHECK(take(SECOND_NS, 0));
	budget__charge(&budget, SECOND_NS); /* 100 s of budget; 10 s are charged */
	CHECK(!take(2 * SECOND_NS, 0));
	for (int i = 0; i < 4; i++)
		CHECK(take_after_pause(2 * SECOND_NS + i * SECOND_NS / 10));
	nccl_bpftrace_control.budget_ppm = 0;
	CHECK(!take_after_pause(4 * SECOND_NS));
	nccl_bpftrace_control.budget_ppm = 10000;
}

/* A thousand that launch every 100 ms: more than the budget has, so that it holds in the end. */
TEST(pauses_of_many_keep_it)
{
	uint64_t n = 0, from = SECOND_NS, until = from + 100 * SECOND_NS;

	fresh();
	for (uint64_t now = from; now < until; now += 100000)
		n += take_after_pause(now);
	printf("     %.3f %% of 100 s\n", 100.0 * n * COST_NS / (until - from));
	CHECK(n * COST_NS <= (until - from + 11 * SECOND_NS) / 100);
	/* and a step every 100 ms costs what its launches cost, all of them timed */
	fresh();
	n = 0;
	for (uint64_t now = from; now < until; now += SECOND_NS / 10)
		n += take_after_pause(now);
	CHECK_INT(n, 1000);
}

UNIT_MAIN()
