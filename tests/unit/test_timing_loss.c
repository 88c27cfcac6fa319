/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Records are lost at random, in the plugin (a note finds no place: it is not counted there, and is
 * told of as a loss) and on the way from it (any record). Whatever is handed out with a time must
 * be true of every operation in it. Counts are unique, so that an operation says which one it is.
 */
#include "unit.h"

#include "../../src/nccl_api.c"

#include "timing_feed.h"

#define N_LAUNCHES  400
#define N_SEEDS	    200
#define MAX_PENDING 8

struct truth {
	uint64_t first, n; /* counts of its operations */
	uint64_t duration_ns, called_ns;
};

struct job {
	struct timings *timings;
	struct feed feed; /* for its record makers */
	uint64_t random;
	unsigned int lose_plugin, lose_way;  /* per mille */
	struct truth truths[N_LAUNCHES + 1]; /* by launch number */
	struct nbp_record pending[MAX_PENDING];
	uint32_t counted[N_LAUNCHES + 1]; /* operations, as the plugin counts them */
	unsigned int n_pending, n_good, n_wrong, n_calls, n_wrong_calls;
	uint64_t owed, lost; /* notes lost in the plugin, of these not yet told */
	uint64_t n_sent, n_dropped;
	bool timers;
};

static uint32_t job_random(struct job *job, uint32_t below)
{
	job->random = job->random * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(job->random >> 33) % below;
}

static void on_launch(void *ctx, const struct timing_launch *launch)
{
	struct job *job = ctx;
	const struct truth *truth;
	bool is_one = launch->source == NBP_SOURCE_KERNEL_TIMER;

	if (!launch->complete || !launch->duration_ns)
		return;
	truth = &job->truths[launch->number];
	if (launch->number < 1 || launch->number > N_LAUNCHES ||
	    (!is_one && launch->duration_ns != truth->duration_ns) ||
	    launch->n_described != (is_one ? 1 : truth->n)) {
		job->n_wrong++;
		return;
	}
	for (uint32_t i = 0; i < launch->n_described; i++) {
		const struct timing_operation *operation = &launch->operations[i];

		if (operation->count < truth->first || operation->count >= truth->first + truth->n)
			job->n_wrong++;
		if (is_one && launch->duration_ns != operation->count)
			job->n_wrong++;
		job->n_calls += !!operation->call_ns;
		if (operation->call_ns && operation->call_ns != truth->called_ns)
			job->n_wrong_calls++;
	}
	job->n_good++;
}

/* On its way to the agent. */
static void job_send(struct job *job, const struct nbp_record *record, bool may_drop)
{
	job->n_sent++;
	if (may_drop && job_random(job, 1000) < job->lose_way)
		job->n_dropped++;
	else
		timings__record(job->timings, TGID, record, job->feed.now_ns);
}

/* True: the plugin had place for the note. */
static bool job_note(struct job *job, const struct nbp_record *record)
{
	if (job_random(job, 1000) < job->lose_plugin) {
		job->owed++;
		job->lost++;
		return false;
	}
	job_send(job, record, true);
	return true;
}

/* The plugin's round: losses first, then what has finished. */
static void job_round(struct job *job, bool all)
{
	struct nbp_record r = feed_record(&job->feed, NBP_KIND_LOSS);

	r.loss = (struct nbp_loss_record){
		.reason = NBP_LOSS_RING_FULL, .count = job->owed, .total = job->lost};
	if (job->owed)
		job_send(job, &r, false);
	job->owed = 0;
	while (job->n_pending && (all || job_random(job, 3))) {
		const struct nbp_record *launched = &job->pending[0];
		uint64_t number = launched->launch.launch;

		r = feed_finished(&job->feed, launched, job->truths[number].duration_ns,
				  job->counted[number] ?: NBP_UNKNOWN);
		job_send(job, &r, true);
		memmove(job->pending, job->pending + 1, --job->n_pending * sizeof(r));
	}
	timings__settle(job->timings, job->feed.now_ns);
}

static void job_timer(struct job *job, uint64_t operation, uint64_t count)
{
	struct nbp_record r = feed_record(&job->feed, NBP_KIND_TIMER);

	r.timer = (struct nbp_timer){
		.operation = operation,
		.gpu_first_ns = 77000,
		.gpu_last_ns = 77000 + count,
		.seen_ns = job->feed.now_ns,
		.n_channels = 1,
		.n_expected = 1,
	};
	job_send(job, &r, true);
}

static void job_launch(struct job *job)
{
	struct feed *feed = &job->feed;
	uint64_t number = feed->launch + 1, first = feed->operation + 1;
	uint64_t n = 1 + (job_random(job, 3) ? 0 : job_random(job, 5));
	bool timed = job->n_pending < MAX_PENDING && job_random(job, 3) && !job->timers;
	struct truth *truth = &job->truths[number];
	struct nbp_record r;

	feed->group++;
	feed->now_ns += 10 * US;
	*truth = (struct truth){first, n, 1000 + number, feed->now_ns};
	for (uint64_t i = 0; i < n; i++) {
		r = feed_api(feed, NBP_ALLREDUCE, first + i, n > 1 ? 2 : 1);
		job_note(job, &r);
	}
	feed->now_ns += 5 * US;
	r = feed_launched(feed, timed ? NBP_TIMED : NBP_NOT_TIMED_BUDGET);
	timed &= job_note(job, &r);
	if (timed)
		job->pending[job->n_pending++] = r;
	for (uint64_t i = 0; i < n; i++) {
		r = feed_operation(feed, NBP_ALLREDUCE, first + i, 0);
		job->counted[number] += job_note(job, &r);
	}
	feed->now_ns += MS;
	for (uint64_t i = n; job->timers && i > 0; i--)
		job_timer(job, first + i - 1, first + i - 1);
}

static void job_run(struct job *job)
{
	job->feed.comm_id = 7;
	job->feed.n_ranks = 8;
	job->feed.now_ns = 1000 * SECOND;
	timings__new(&job->timings, on_launch, job);
	while (job->feed.launch < N_LAUNCHES) {
		for (uint32_t i = job_random(job, 4); i-- && job->feed.launch < N_LAUNCHES;)
			job_launch(job);
		job_round(job, false);
	}
	job_round(job, true);
	timings__process_gone(job->timings, TGID, job->feed.now_ns);
	CHECK_INT(job->n_wrong, 0);
	CHECK_INT(job->n_wrong_calls, 0);
	CHECK_INT(job->timings->usage.opens, 0);
	CHECK_INT(job->timings->usage.operations, 0);
	CHECK_INT(job->timings->usage.calls, 0);
}

static void run(unsigned int lose_plugin, unsigned int lose_way, bool timers)
{
	uint64_t n_good = 0, n_calls = 0, n_lost = 0, n_refused = 0;

	for (unsigned int seed = 1; seed <= N_SEEDS; seed++) {
		struct job *job = calloc(1, sizeof(*job));

		*job = (struct job){.random = seed * 7919,
				    .lose_plugin = lose_plugin,
				    .lose_way = lose_way,
				    .timers = timers};
		job_run(job);
		for (int i = 0; i < TIMING_INVALID_MAX; i++)
			n_refused += timings__invalid(job->timings, i);
		n_good += job->n_good;
		n_calls += job->n_calls;
		n_lost += job->lost + job->n_dropped;
		/* every number that never came is owned up to or a gap, and none of them twice */
		CHECK(timings__lost(job->timings, TIMING_LOST_GAP) <= job->n_dropped);
		timings__free(job->timings);
		free(job);
	}
	printf("lost %u+%u per mille%s: %llu records lost, %llu launches true, %llu calls true\n",
	       lose_plugin, lose_way, timers ? ", kernel timer" : "", (unsigned long long)n_lost,
	       (unsigned long long)n_good, (unsigned long long)n_calls);
	CHECK(n_lost || !n_refused);
	CHECK(n_good > 1000);
	CHECK(n_calls > 1000);
}

TEST(nothing_lost)
{
	run(0, 0, false);
	run(0, 0, true);
}

TEST(lost_in_the_plugin)
{
	run(10, 0, false);
	run(100, 0, false);
	run(100, 0, true);
}

TEST(lost_on_the_way)
{
	run(0, 10, false);
	run(0, 200, false);
	run(0, 200, true);
}

TEST(lost_on_both)
{
	run(50, 50, false);
	run(200, 200, false);
	run(100, 100, true);
}

UNIT_MAIN()
