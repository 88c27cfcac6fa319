/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the judge finds, as families of the textfile. */
#include "unit.h"

#include "textfile_file.h"

#define T_NS	    (1000 * NSEC_PER_SEC)
#define HASH	    0xc0ffee
#define RANK_OF_JOB "job_id=\"77\",UUID=\"GPU-0002\",comm=\"0000000000c0ffee\",rank="

/* Ranks 0 and 1 of eight, each in its process, both on GPU 2. */
struct world {
	struct tracer *tracer;
	struct watch watch;
	struct textfile *tf;
	struct verdict_member ranks[2];
	uint64_t now, sequence;
};

static void world_open(struct world *w, size_t max_series)
{
	const struct verdict_options options = {.stuck_after_ns = 60 * NSEC_PER_SEC};

	*w = (struct world){.tracer = tracer_new(), .now = T_NS};
	CHECK_INT(verdicts__new(&w->watch.verdicts, &options), 0);
	for (int i = 0; i < 2; i++) {
		struct process *process = stub_process(w->tracer, 100 + i, "train");

		strcpy(process->info.job.job_id, "77");
		stub_calls(w->tracer, 100 + i, HASH, i, NCCL_FN_AllReduce, 10)->bus_id = 2;
		w->ranks[i] = (struct verdict_member){HASH, i, 8, 100 + i};
		verdicts__join(w->watch.verdicts, &w->ranks[i], true, 1, w->now);
	}
	make_dir();
	CHECK_INT(textfile__new(&w->tf, dir, max_series, NULL), 0);
	CHECK_INT(textfile__listen(w->tf, w->tracer), 0);
	textfile__watch(w->tf, &w->watch);
}

static void world_close(struct world *w)
{
	verdicts__free(w->watch.verdicts);
	tracer_free(w->tracer);
	textfile__free(w->tf);
	remove_dir();
}

static void world_write(struct world *w)
{
	CHECK_INT(textfile__write(w->tf, w->tracer), 0);
	CHECK(read_file() > 0);
}

static void world_call(struct world *w, int rank, uint64_t late_ns, uint64_t count)
{
	const struct verdict_call call = {
		.member = w->ranks[rank],
		.operation = NCCL_OP_AllReduce,
		.sequence = w->sequence,
		.time_ns = w->now + late_ns,
		.count = count,
		.datatype = 7,
		.root = -1,
	};

	verdicts__call(w->watch.verdicts, &call);
}

/* So many steps of 250 ms, with a verdict after each; rank 1 comes late_ns after rank 0. */
static void world_run(struct world *w, unsigned int n, uint64_t late_ns)
{
	while (n--) {
		w->sequence++;
		world_call(w, 0, 0, 100);
		world_call(w, 1, late_ns, 100);
		w->now += 250 * NSEC_PER_MSEC;
		verdicts__settle(w->watch.verdicts, w->now);
	}
}

TEST(a_state_left_is_told_once)
{
	struct world w;

	world_open(&w, BIG_CAP);
	world_run(&w, 40, 0);
	world_write(&w);
	CHECK(has("\nnccl_communicator_state{" RANK_OF_JOB "\"0\",state=\"healthy\"} 1\n"));
	CHECK(has("\nnccl_communicator_state{" RANK_OF_JOB "\"1\",state=\"healthy\"} 1\n"));
	CHECK_INT(count_of(text, "\nnccl_communicator_state{"), 2);
	verdicts__error(w.watch.verdicts, &w.ranks[1], "ncclRemoteError", w.now);
	for (int i = 0; i < 8; i++)
		verdicts__settle(w.watch.verdicts, w.now += 250 * NSEC_PER_MSEC);
	world_write(&w);
	CHECK(has("\nnccl_communicator_state{" RANK_OF_JOB "\"0\",state=\"error\"} 1\n"));
	CHECK(has("\nnccl_communicator_state{" RANK_OF_JOB "\"0\",state=\"healthy\"} 0\n"));
	CHECK_INT(count_of(text, "\nnccl_communicator_state{"), 4);
	world_write(&w);
	CHECK(!strstr(text, "state=\"healthy\""));
	CHECK_INT(count_of(text, "\nnccl_communicator_state{"), 2);
	world_close(&w);
}

/* The old file says `healthy` until there is a new one: that must hear that it is over. */
TEST(a_file_that_failed_told_nothing)
{
	struct world w;

	world_open(&w, BIG_CAP);
	world_run(&w, 40, 0);
	world_write(&w);
	verdicts__error(w.watch.verdicts, &w.ranks[1], "ncclRemoteError", w.now);
	for (int i = 0; i < 8; i++)
		verdicts__settle(w.watch.verdicts, w.now += 250 * NSEC_PER_MSEC);
	unlink(file_name());
	CHECK_INT(mkdir(file_name(), 0700), 0); /* nothing can be renamed over that */
	CHECK(textfile__write(w.tf, w.tracer) < 0);
	CHECK_INT(rmdir(file_name()), 0);
	world_write(&w);
	CHECK(has("state=\"healthy\"} 0\n"));
	world_close(&w);
}

TEST(lateness)
{
	struct world w;

	world_open(&w, BIG_CAP);
	world_run(&w, 10, 0);
	world_write(&w);
	CHECK(!strstr(text, "nccl_operation_lateness_seconds_total"));
	CHECK(!strstr(text, "nccl_operations_last_arrival_total"));
	world_run(&w, 20, 2 * NSEC_PER_MSEC);
	world_write(&w);
	CHECK(has("\nnccl_operation_lateness_seconds_total{" RANK_OF_JOB "\"1\"} 0.04\n"));
	CHECK(has("\nnccl_operations_last_arrival_total{" RANK_OF_JOB "\"1\"} 20\n"));
	CHECK_INT(count_of(text, "\nnccl_operation_lateness_seconds_total{"), 1);
#define BUCKET "\nnccl_operation_lateness_seconds_bucket{job_id=\"77\",UUID=\"GPU-0002\",le="
	CHECK(has(BUCKET "\"1e-05\"} 40\n"));
	CHECK(has(BUCKET "\"0.001\"} 40\n"));
	CHECK(has(BUCKET "\"0.005\"} 60\n"));
	CHECK(has(BUCKET "\"+Inf\"} 60\n"));
	check_with_promtool();
	world_close(&w);
}

TEST(errors_and_mismatches)
{
	struct world w;

	world_open(&w, BIG_CAP);
	world_run(&w, 10, 0);
	w.sequence++;
	world_call(&w, 0, 0, 100);
	world_call(&w, 1, 0, 200);
	w.watch.errors[6] = 2;
	w.watch.errors[WATCH_ABORTED] = 1;
	w.watch.refused = 7;
	world_write(&w);
	CHECK(has("\nnccl_mismatches_total{" RANK_OF_JOB "\"1\",kind=\"count\"} 1\n"));
	CHECK(has("\nnccl_errors_total{" RANK_OF_JOB "\"0\",result=\"ncclRemoteError\"} 2\n"));
	CHECK(has("\nnccl_errors_total{" RANK_OF_JOB "\"0\",result=\"ncclCommAbort\"} 1\n"));
	CHECK_INT(count_of(text, "\nnccl_errors_total{"), 2);
	CHECK(has("\nnccl_bpftrace_unjudged_total 7\n"));
	check_with_promtool();
	world_close(&w);
}

/* Who bears another's name, or none, has no verdict; nor has what the limit leaves out. */
TEST(not_judged)
{
	struct world w;

	world_open(&w, BIG_CAP);
	stub_process(w.tracer, 200, "forger");
	stub_calls(w.tracer, 200, HASH, 0, NCCL_FN_AllReduce, 10);
	stub_calls(w.tracer, 200, 0, -1, NCCL_FN_AllReduce, 10);
	stub_calls(w.tracer, 200, 0xdead, 0, NCCL_FN_AllReduce, 10);
	world_run(&w, 10, 0);
	world_write(&w);
	CHECK_INT(count_of(text, "\nnccl_communicator_state{"), 2);
	world_close(&w);
}

TEST(the_limit_holds)
{
	for (size_t max = 0; max < 40; max++) {
		struct world w;
		size_t n;

		world_open(&w, max ?: 1);
		world_run(&w, 10, 2 * NSEC_PER_MSEC);
		w.watch.errors[1] = 1;
		world_write(&w);
		n = count_series();
		CHECK(n <= (max ?: 1));
		world_close(&w);
	}
}

UNIT_MAIN()
