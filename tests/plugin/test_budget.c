/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which launches are timed, and what that costs, by the time between them. */
#include "../../src/plugin/budget.h"
#include "../../src/plugin/sample.c"
#include "unit.h"

#define COST_NS	  20000
#define SECOND_NS 1000000000ULL
#define ROUND_NS  (20 * NS_PER_MS)
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
	const struct claim claim = {.timed_ns = timed_ns, .chosen = true};

	return budget__take(&budget, now, &claim);
}

static bool take_after_pause(uint64_t now)
{
	const struct claim claim = {.timed_ns = now, .pause_ns = PAUSE_NS};

	return budget__take(&budget, now, &claim);
}

/* ---- a rank: its GPU, its communicators, the plugin's thread ---- */

struct one {
	struct sample sample;
	struct launch_rate rate;
	uint64_t launched_ns, timed_ns, n, n_timed, n_marked;
};

struct rank {
	struct budget budget;
	struct share share;
	struct one comms[N_COMMS];
	uint64_t round_ns;
};

static void rank__start(struct rank *rank)
{
	memset(rank, 0, sizeof(*rank));
	for (int i = 0; i < N_COMMS; i++)
		sample__reset(&rank->comms[i].sample, i);
}

static void rank__round(struct rank *rank, uint64_t now, double fill)
{
	for (int i = 0; i < N_COMMS; i++) {
		struct one *one = &rank->comms[i];
		double rate = rate__update(&one->rate, one->n, now);

		if (!one->n)
			continue;
		atomic_store(&one->sample.share, share__of(&rank->share, rate));
		atomic_store(&one->sample.lately, share__part(&rank->share, one->rate.lately));
	}
	share__settle(&rank->share, budget__room() * fill);
	rank->round_ns = now;
}

/* True: it was timed. */
static bool rank__launches(struct rank *rank, int comm, uint64_t now)
{
	struct one *one = &rank->comms[comm];
	struct claim claim = {.timed_ns = one->timed_ns, .pause_ns = now - one->launched_ns};
	struct choice choice;

	if (now - rank->round_ns >= ROUND_NS)
		rank__round(rank, now, 0.9);
	choice = sample__choose(&one->sample);
	claim.chosen = choice.chosen;
	sample__operation(&one->sample, ++one->n, 4);
	one->launched_ns = now;
	if (!claim__asks(&claim) || !budget__take(&rank->budget, now, &claim))
		return false;
	one->timed_ns = now;
	one->n_timed++;
	one->n_marked += claim__is_first(&claim) && !choice.usual;
	return true;
}

static struct rank rank, other;

/* Of launches that one of the two timed, how many both did. */
struct agreement {
	uint64_t both, either;
};

static void agreement__add(struct agreement *a, bool here, bool there)
{
	a->both += here && there;
	a->either += here || there;
}

static void agreement__check(const struct agreement *a)
{
	printf("     of %d launches that one of two ranks timed both did %d\n", (int)a->either,
	       (int)a->both);
	CHECK(a->either > 5000 && a->both * 10 >= a->either * 9);
}

struct outcome {
	uint64_t n, n_timed;
	uint64_t longest_ns; /* without a timed launch */
	double cost_percent;
};

/* One communicator that launches every `every` ns for `length`. */
static struct outcome launch_for(uint64_t every, uint64_t length)
{
	struct outcome o = {0};
	uint64_t last = 0, from = SECOND_NS;

	rank__start(&rank);
	for (uint64_t now = from; now < from + length; now += every) {
		o.n++;
		if (!rank__launches(&rank, 0, now))
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
		{10000, 0.4, 0.5},
		{100000, 4, 5},
		{1000000, 40, 50},
		{20000000, 99.9, 100},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct outcome o = launch_for(cases[i].every_ns, 60 * SECOND_NS);
		double share = 100.0 * o.n_timed / o.n;

		printf("     a launch every %5d us: %6.2f %% timed, %.3f %% of wall time, at most "
		       "%.1f ms without\n",
		       (int)(cases[i].every_ns / 1000), share, o.cost_percent, o.longest_ns / 1e6);
		CHECK(share >= cases[i].least && share <= cases[i].most);
		CHECK(o.cost_percent <= 1);
		CHECK(o.longest_ns <= cases[i].every_ns + 30000000);
	}
}

/* In any stretch of time, not only on average over a minute, and before the rate is known. */
TEST(a_burst_costs_no_more_than_was_saved)
{
	for (uint64_t length = 1000000; length <= SECOND_NS; length *= 10) {
		struct outcome o = launch_for(10000, length);

		/* what was saved and what is taken in advance are 30 ms of budget at most */
		CHECK(o.n_timed * COST_NS <= (length + 31000000) / 100);
	}
}

/* Every rank of a job, each by its own clock and from its own time on. */
TEST(ranks_time_the_same_launches)
{
	struct agreement agreement = {0};

	rank__start(&rank);
	rank__start(&other);
	for (uint64_t i = 0; i < 1000000; i++) {
		uint64_t now = SECOND_NS + i * 15000;
		bool here = rank__launches(&rank, 0, now), there;

		if (i == 50000) { /* attached later, at the same operation */
			sample__reset(&other.comms[0].sample, 0);
			sample__operation(&other.comms[0].sample, other.comms[0].n, 4);
		}
		there = rank__launches(&other, 0, 77 * SECOND_NS + i * 15000 + i % 5 * 2000);
		if (i < 100000)
			continue; /* until both know how often they launch */
		agreement__add(&agreement, here, there);
	}
	agreement__check(&agreement);
}

/* A rank with less budget times some of those that the others time, and no others. */
TEST(less_budget_is_less_of_the_same)
{
	struct sample little, much;

	sample__reset(&little, 0);
	sample__reset(&much, 0);
	little.share = SAMPLE_ALL / 100;
	much.share = SAMPLE_ALL / 20;
	for (int i = 0, n = 0; i < 100000; i++) {
		bool a = sample__choose(&little).chosen, b = sample__choose(&much).chosen;

		CHECK(!a || b);
		n += a;
		if (i % 3) { /* two launches of some operations */
			sample__operation(&little, i, 0);
			sample__operation(&much, i, 0);
		}
		CHECK(i < 99999 || (n > 900 && n < 1100));
	}
}

/* Sends and receives have no numbers: their launches have. */
TEST(without_collectives)
{
	struct sample sample;
	int n = 0;

	sample__reset(&sample, 0);
	sample.share = SAMPLE_ALL / 100;
	for (int i = 0; i < 100000; i++)
		n += sample__choose(&sample).chosen;
	CHECK(n > 900 && n < 1100);
}

/* Each operation of a step as often as any other, however many a step has. */
TEST(a_step_of_any_length)
{
	static const int lengths[] = {2, 10, 64, 144, 377, 1000};

	for (size_t k = 0; k < sizeof(lengths) / sizeof(*lengths); k++) {
		int length = lengths[k], timed[1000] = {0}, steps = 100000, least = steps, most = 0;
		struct sample sample;

		sample__reset(&sample, 0);
		sample.share = SAMPLE_ALL / 100;
		for (int i = 0; i < steps * length; i++) {
			timed[i % length] += sample__choose(&sample).chosen;
			sample__operation(&sample, i, 4);
		}
		for (int i = 0; i < length; i++) {
			least = timed[i] < least ? timed[i] : least;
			most = timed[i] > most ? timed[i] : most;
		}
		printf("     steps of %4d: each operation timed %d to %d times of %d\n", length,
		       least, most, steps);
		CHECK(least > 800 && most < 1200); /* of 1000: 6 standard deviations */
	}
}

/* One that launches all the time does not starve those that do so now and then. */
TEST(rare_ones_are_timed)
{
	uint64_t all = 0, from = SECOND_NS, until = from + 10 * SECOND_NS;

	rank__start(&rank);
	for (uint64_t now = from; now < until; now += 10000) {
		for (int c = 0; c < N_COMMS; c++) {
			/* the first every 10 us, the others every 50 ms, not at the same time */
			if (c && (now - from) % 50000000 != c * 1230000ULL)
				continue;
			all += rank__launches(&rank, c, now + c);
		}
	}
	for (int c = 1; c < N_COMMS; c++)
		CHECK(rank.comms[c].n >= 199 && rank.comms[c].n_timed >= rank.comms[c].n * 9 / 10);
	printf("     busy: %d of %d timed; rare: %d of %d; %.3f %% of wall time\n",
	       (int)rank.comms[0].n_timed, (int)rank.comms[0].n, (int)rank.comms[1].n_timed,
	       (int)rank.comms[1].n, 100.0 * all * COST_NS / (until - from));
	CHECK(rank.comms[0].n_timed > 1200);
	CHECK(all * COST_NS <= (until - from) / 100 * 1.01);
}

/* Budget is shared out evenly: what those who need less leave is for those who need more. */
TEST(equal_parts)
{
	static const double rates[] = {10, 100, 5000, 300, 100000};
	struct share share = {0};
	double chosen[5], sum = 0;

	CHECK(share__of(&share, 1e6) == SAMPLE_ALL); /* nothing is known yet */
	share__settle(&share, 1000);
	for (int round = 0; round < 10; round++) {
		sum = 0;
		for (int i = 0; i < 5; i++) {
			chosen[i] = rates[i] * share__of(&share, rates[i]) / SAMPLE_ALL;
			sum += chosen[i];
		}
		share__settle(&share, 1000);
	}
	CHECK(chosen[0] == 10 && chosen[1] == 100);
	CHECK(chosen[2] > 294 && chosen[2] < 297 && chosen[4] > 294 && chosen[4] < 297);
	CHECK(sum > 998 && sum < 1001);
	for (int round = 0; round < 3; round++) { /* suddenly all want much */
		sum = 0;
		for (int i = 0; i < 5; i++)
			sum += 1e5 * share__of(&share, 1e5) / SAMPLE_ALL;
		share__settle(&share, 1000);
	}
	CHECK(sum > 999 && sum < 1001);
	share__settle(&share, 0);
	CHECK(share__of(&share, 1e5) == 0);
}

/* None above what there is for all, and all together are: shared out, not left to the bucket. */
TEST(together_too_many)
{
	struct agreement agreement = {0};
	uint64_t from = SECOND_NS;

	rank__start(&rank);
	rank__start(&other);
	for (uint64_t i = 0; i < 60000; i++) {
		for (int c = 0; c < 8; c++) { /* 8 of 300 a second: room for 450 */
			uint64_t now = from + i * 3333333 / 8 + c * 30000;
			bool here, there;

			if (i % 8 != (uint64_t)c)
				continue;
			here = rank__launches(&rank, c, now);
			there = rank__launches(&other, c, now + i % 5 * 50000);
			if (i < 8000)
				continue;
			agreement__add(&agreement, here, there);
		}
	}
	agreement__check(&agreement);
}

/* In lockstep, always in the same order: nobody is always the one that finds nothing left. */
TEST(lockstep)
{
	uint64_t least = UINT64_MAX, most = 0;

	rank__start(&rank);
	for (uint64_t now = SECOND_NS; now < 61 * SECOND_NS; now += 1000000)
		for (int c = 0; c < N_COMMS; c++)
			rank__launches(&rank, c, now + c * 1000);
	for (int c = 0; c < N_COMMS; c++) {
		least = rank.comms[c].n_timed < least ? rank.comms[c].n_timed : least;
		most = rank.comms[c].n_timed > most ? rank.comms[c].n_timed : most;
	}
	printf("     sixteen in lockstep: each timed %d to %d times\n", (int)least, (int)most);
	CHECK(least * 10 >= most * 7);
}

/* After a pause of any length: what is not marked is what chance would have chosen of a step. */
TEST(a_first_one_is_marked_after_any_pause)
{
	static const uint64_t pauses[] = {20000000, 100000000, 500000000, 1000000000};

	for (size_t k = 0; k < sizeof(pauses) / sizeof(*pauses); k++) {
		uint64_t now = SECOND_NS;
		struct one *one = &rank.comms[0];

		rank__start(&rank);
		for (int step = 0; step < 220; step++) {
			if (step == 20)
				one->n_marked = 0;
			for (int i = 0; i < 4000; i++, now += 100000)
				rank__launches(&rank, 0, now);
			now += pauses[k];
		}
		printf("     pauses of %4d ms: %d of 200 first ones marked\n",
		       (int)(pauses[k] / 1000000), (int)one->n_marked);
		CHECK(one->n_marked >= 170);
	}
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
	CHECK(all * COST_NS <= (until - from + 31000000) / 100);
}

/* A step: 200 launches 20 us apart, then 16 ms of nothing. Its first launch is always timed. */
TEST(the_first_after_a_pause)
{
	uint64_t now = SECOND_NS, timed = 0;
	int first = 0, steps_near_end = 0;

	rank__start(&rank);
	for (int step = 0; step < 500; step++) {
		bool near_end = false;

		for (int i = 0; i < 200; i++, now += 20000) {
			if (!rank__launches(&rank, 0, now))
				continue;
			timed++;
			first += !i;
			near_end |= i >= 150;
		}
		steps_near_end += near_end;
		now += 16000000;
	}
	printf("     steps whose first launch is timed: %d of 500; one of the last 50: %d of 500; "
	       "%.3f %% of wall time\n",
	       first, steps_near_end, 100.0 * timed * COST_NS / (now - SECOND_NS));
	CHECK_INT(first, 500);
	CHECK(steps_near_end >= 350);
	CHECK(timed * COST_NS <= (now - SECOND_NS) / 100);
}

TEST(off_and_without_bound)
{
	fresh();
	nccl_bpftrace_control.budget_ppm = 0;
	CHECK(!take(SECOND_NS, 0));
	CHECK(budget__room() == 0);
	nccl_bpftrace_control.budget_ppm = 1000000;
	CHECK(budget__room() > 1e9);
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
	CHECK(take(12 * SECOND_NS, 0));
	nccl_bpftrace_control.budget_ppm = 10000;
}

/* One thread may launch on all of them. */
TEST(gpus_of_a_process_share_it)
{
	struct outcome one, eight;

	one = launch_for(10000, 10 * SECOND_NS);
	n_gpus = 8;
	eight = launch_for(10000, 10 * SECOND_NS);
	printf("     of one: %.3f %% of wall time, of each of eight %.4f %%\n", one.cost_percent,
	       eight.cost_percent);
	CHECK(eight.n_timed * 8 >= one.n_timed * 9 / 10);
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
	budget__charge(&budget, COST_NS + 1000000); /* 1 ms: 100 ms of budget, 20 were saved */
	CHECK(!take(SECOND_NS + 60000000, SECOND_NS));
	CHECK(!take(SECOND_NS + 60000000, 0));
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
