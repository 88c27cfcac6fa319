/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a plugin's record costs the agent: put together, and summed up. No kernel, no process. */
#include "../../src/nccl_api.c"
#include "../../src/timing_stats.c"
#include "timing_feed.h"

#include <malloc.h>

#include "bench.h"
#include "comm.h"

#define ROUNDS	     15
#define N_COMMS	     64
#define N_LAUNCHES   2000 /* of each, a round */
#define TIMED_EVERY  20
#define N_IN_FLIGHT  4 /* timed launches of one communicator that are not done */
#define BATCH	     (3 * N_LAUNCHES + N_LAUNCHES / TIMED_EVERY)
#define MEMORY_COMMS 1000

struct bench {
	struct timings *timings;
	struct timing_stats *stats;
	struct feed feeds[N_COMMS];
	struct nbp_record batch[BATCH];
	uint64_t checksum, n_launches;
};

static void count_launch(void *ctx, const struct timing_launch *launch)
{
	struct bench *bench = ctx;

	bench->n_launches += launch->n_operations;
}

static void sum_launch(void *ctx, const struct timing_launch *launch)
{
	struct bench *bench = ctx;
	struct timing_job *job = timing_stats__first(bench->stats);

	bench->n_launches++;
	timing_stats__add(bench->stats, job, launch, launch->comm->n_nodes);
}

static void feed__open(struct feed *feed, struct timings *timings, int i)
{
	*feed = (struct feed){
		.timings = timings,
		.now_ns = 1000 * SECOND,
		.comm_id = i + 1,
		.rank = 3,
		.n_ranks = 8,
	};
	SEND(feed, feed_comm(feed));
}

/* As the plugin tells: call, launch, operation; what was timed some launches before has ended. */
static size_t feed__fill(struct feed *feed, struct nbp_record *batch)
{
	struct nbp_record pending[N_IN_FLIGHT];
	unsigned int n_pending = 0;
	size_t n = 0;

	for (int i = 0; i < N_LAUNCHES; i++) {
		bool timed = i % TIMED_EVERY == 0;

		feed->now_ns += 10 * US;
		feed->group++;
		batch[n++] = feed_api(feed, NBP_ALLREDUCE, 1 << 18, 1);
		batch[n++] = feed_launched(feed, timed ? NBP_TIMED : NBP_NOT_TIMED_BUDGET);
		if (timed)
			pending[n_pending++] = batch[n - 1];
		batch[n++] = feed_operation(feed, NBP_ALLREDUCE, 1 << 18, 0);
		if (n_pending == N_IN_FLIGHT || i == N_LAUNCHES - 1)
			while (n_pending)
				batch[n++] = feed_finished(feed, &pending[--n_pending], 50 * US, 1);
	}
	return n;
}

static void read_only(struct bench *bench, const struct nbp_record *records, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < sizeof(*records) / 8; k++)
			bench->checksum += ((const uint64_t *)&records[i])[k];
}

/* fn NULL: the records are only read. */
static void measure(struct bench *bench, timing_launch_fn *fn, const char *name)
{
	struct rounds ns = {};

	timings__new(&bench->timings, fn ?: count_launch, bench);
	timing_stats__new(&bench->stats);
	timing_stats__job(bench->stats, "77", "GPU-x", "", TGID);
	for (int i = 0; i < N_COMMS; i++)
		feed__open(&bench->feeds[i], bench->timings, i);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t spent_ns = 0, n_records = 0;

		for (int i = 0; i < N_COMMS; i++) {
			struct feed *feed = &bench->feeds[i];
			size_t n = feed__fill(feed, bench->batch);
			uint64_t start = now_ns();

			if (fn)
				for (size_t k = 0; k < n; k++)
					timings__record(bench->timings, TGID, &bench->batch[k],
							feed->now_ns);
			else
				read_only(bench, bench->batch, n);
			spent_ns += now_ns() - start;
			n_records += n;
		}
		rounds__add(&ns, (double)spent_ns / n_records);
	}
	rounds__print(&ns, name);
	for (int i = 0; i < TIMING_INVALID_MAX; i++)
		if (timings__invalid(bench->timings, i))
			die("a time was refused", 0);
	timings__free(bench->timings);
	timing_stats__free(bench->stats);
}

static double bytes_in_use(void)
{
	return (double)mallinfo2().uordblks;
}

/* Of a communicator that is only there, and of one that launches. */
static void memory(struct bench *bench)
{
	double before, idle, busy;
	struct feed feed;

	timings__new(&bench->timings, count_launch, bench);
	before = bytes_in_use();
	for (int i = 0; i < MEMORY_COMMS; i++)
		feed__open(&feed, bench->timings, i);
	idle = bytes_in_use();
	for (int i = 0; i < MEMORY_COMMS; i++) {
		feed__open(&feed, bench->timings, i);
		for (int k = 0; k < 10; k++) {
			feed.group++;
			SEND(&feed, feed_api(&feed, NBP_ALLREDUCE, 1 << 18, 1));
			SEND(&feed, feed_launched(&feed, NBP_TIMED));
			SEND(&feed, feed_operation(&feed, NBP_ALLREDUCE, 1 << 18, 0));
		}
	}
	busy = bytes_in_use();
	printf("idle_comm_bytes %.0f\n", (idle - before) / MEMORY_COMMS);
	printf("busy_comm_bytes %.0f\n", (busy - before) / MEMORY_COMMS);
	printf("level1_comm_bytes %zu\n", sizeof(struct comm));
	timings__free(bench->timings);
}

int main(void)
{
	static struct bench bench;

	measure(&bench, NULL, "read_ns");
	measure(&bench, count_launch, "timing_ns");
	measure(&bench, sum_launch, "timing_stats_ns");
	memory(&bench);
	return bench.checksum == 1;
}
