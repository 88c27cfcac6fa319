/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "../../src/handover.c"
#include "../../src/handover_count.c"
#include "../../src/handover_match.c"
#include "../../src/handover_state.c"
#include "../../src/nccl_api.c"

#include "handover_model.h"

/* ---- a whole process, its plugin and its agent, by chance ---- */

#define N_SEEDS 100

struct totals {
	uint64_t periods, calls, unprobed, uncertain, probes_off, both_lost;
};

static void run_seeds(uint32_t first, const struct model_losses *losses, struct totals *totals)
{
	*totals = (struct totals){0};
	for (uint32_t seed = first; seed < first + N_SEEDS && !unit_n_failures; seed++) {
		struct model model;

		model__init(&model, seed, losses);
		model__run(&model);
		if (unit_n_failures)
			printf("     seed %u\n", seed);
		totals->periods += model.n_periods;
		totals->calls += model.n_calls;
		totals->unprobed += model.n_unprobed;
		totals->uncertain += handovers__uncertain(model.handovers);
		totals->both_lost += model.n_doubtful;
		model__free(&model);
	}
	printf("     %d runs: %llu times handed over, %llu calls, %llu without a probe, "
	       "%llu uncertain, %llu lost twice\n",
	       N_SEEDS, (unsigned long long)totals->periods, (unsigned long long)totals->calls,
	       (unsigned long long)totals->unprobed, (unsigned long long)totals->uncertain,
	       (unsigned long long)totals->both_lost);
	CHECK(totals->periods > N_SEEDS);
	CHECK(totals->unprobed > totals->calls / 20);
}

TEST(nothing_is_lost_or_doubled)
{
	struct totals totals;

	run_seeds(1, &(struct model_losses){0}, &totals);
	CHECK_INT(totals.uncertain, 0);
}

TEST(records_of_probes_are_lost)
{
	struct totals totals;

	run_seeds(100000, &(struct model_losses){.probe = 500}, &totals);
}

TEST(records_of_the_plugin_are_lost)
{
	struct totals totals;

	run_seeds(200000, &(struct model_losses){.plugin = 500}, &totals);
}

TEST(the_plugin_s_ring_is_full)
{
	struct totals totals;

	run_seeds(300000, &(struct model_losses){.unseen = 500}, &totals);
}

TEST(all_is_lost_now_and_then)
{
	struct totals totals;

	run_seeds(400000, &(struct model_losses){.probe = 100, .plugin = 100, .unseen = 100},
		  &totals);
}

TEST(the_agent_stalls)
{
	struct totals totals;

	run_seeds(500000, &(struct model_losses){.stalls = true}, &totals);
	CHECK_INT(totals.uncertain, 0);
}

UNIT_MAIN()
