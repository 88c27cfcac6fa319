/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From plugin records to the families of GPU times. */
#include "unit.h"

#include "textfile_file.h"

#define GPU0 "GPU-12340000-0000-0000-0000-000000000000"
#define JOB0 "job_id=\"77\",UUID=\"" GPU0 "\""

/* A job of one process, whose communicators launch. */
struct world {
	struct tracer *tracer;
	struct process *process;
	struct textfile *tf;
	struct feed feed;
};

static void world_open(struct world *world, size_t max_series)
{
	*world = (struct world){.tracer = tracer_new()};
	world->feed = (struct feed){.timings = world->tracer->timings,
				    .now_ns = 1000 * SECOND,
				    .comm_id = 1,
				    .rank = 3,
				    .n_ranks = 8};
	strcpy(world->tracer->gpus[0].uuid, GPU0);
	world->process = stub_process(world->tracer, TGID, "train");
	strcpy(world->process->info.job.job_id, "77");
	make_dir();
	CHECK_INT(textfile__new(&world->tf, dir, max_series, NULL), 0);
	CHECK_INT(textfile__listen(world->tf, world->tracer), 0);
}

static void world_close(struct world *world)
{
	tracer_free(world->tracer);
	textfile__free(world->tf);
	remove_dir();
}

static void world_write(struct world *world)
{
	CHECK_INT(textfile__write(world->tf, world->tracer), 0);
	CHECK(read_file() > 0);
}

/* The level-1 communicator and what its plugin says of it, on a GPU of the node or not. */
static struct comm *world_comm(struct world *world, uint64_t id, uint32_t n_nodes, uint8_t gpu)
{
	struct comm *comm = stub_calls(world->tracer, TGID, 0xabc + id, 3, NCCL_FN_AllReduce, 10);
	struct nbp_record r;

	comm->bus_id = 0;
	world->feed.comm_id = id;
	world->feed.api = world->feed.launch = world->feed.operation = 0;
	r = feed_comm(&world->feed);
	r.comm.n_nodes = n_nodes;
	r.comm.gpu_uuid[1] = 0x34;
	r.comm.gpu_uuid[2] = gpu;
	feed_send(&world->feed, &r);
	return comm;
}

/* One launch of `n` operations; called 10 us, launched 5 us before it starts. */
static void world_launch(struct world *world, const uint8_t *functions, unsigned int n,
			 uint64_t count, uint64_t duration_ns)
{
	struct feed *feed = &world->feed;
	struct nbp_record launched;

	feed->group++;
	for (unsigned int i = 0; i < n; i++)
		SEND(feed, feed_api(feed, functions[i], count, 1 + (n > 1)));
	feed->now_ns += 5 * US;
	launched = feed_launched(feed, NBP_TIMED);
	feed_send(feed, &launched);
	for (unsigned int i = 0; i < n; i++)
		SEND(feed, feed_operation(feed, functions[i], count, 1));
	SEND(feed, feed_finished(feed, &launched, duration_ns, n));
}

static void world_untimed(struct world *world)
{
	struct feed *feed = &world->feed;

	SEND(feed, feed_launched(feed, NBP_NOT_TIMED_BUDGET));
	SEND(feed, feed_operation(feed, NBP_ALLREDUCE, 1, 0));
	timings__settle(feed->timings, feed->now_ns + SECOND);
}

static const uint8_t all_reduce[] = {NBP_ALLREDUCE, NBP_ALLREDUCE};
static const uint8_t pair[] = {NBP_SEND, NBP_RECV};
static const uint8_t mixed[] = {NBP_ALLREDUCE, NBP_REDUCESCATTER};

TEST(durations_rates_and_queues)
{
	struct world world;

	world_open(&world, BIG_CAP);
	world_comm(&world, 1, 1, 0);
	world_launch(&world, all_reduce, 1, 1 << 20, 150 * US);
	world_launch(&world, all_reduce, 1, 1 << 20, 250 * US);
	for (int i = 0; i < 6; i++)
		world_untimed(&world);
	world_write(&world);
#define SERIES JOB0 ",operation=\"AllReduce\",size=\"lt16MiB\",scope=\"node\""
	CHECK(has("# TYPE nccl_operation_duration_seconds histogram\n"));
	CHECK(has("nccl_operation_duration_seconds_bucket{" SERIES ",le=\"1e-05\"} 0\n"));
	CHECK(has("nccl_operation_duration_seconds_bucket{" SERIES ",le=\"0.0002\"} 1\n"));
	CHECK(has("nccl_operation_duration_seconds_bucket{" SERIES ",le=\"0.001\"} 2\n"));
	CHECK(has("nccl_operation_duration_seconds_bucket{" SERIES ",le=\"1\"} 2\n"));
	CHECK(has("nccl_operation_duration_seconds_bucket{" SERIES ",le=\"+Inf\"} 2\n"));
	CHECK(has("nccl_operation_duration_seconds_sum{" SERIES "} 0.0004\n"));
	CHECK(has("nccl_operation_duration_seconds_count{" SERIES "} 2\n"));
#define RATE SERIES ",algorithm=\"RING\",protocol=\"SIMPLE\""
	CHECK(has("nccl_timed_operations_total{" RATE "} 2\n"));
	CHECK(has("nccl_timed_seconds_total{" RATE "} 0.0004\n"));
	CHECK(has("nccl_timed_bus_bytes_total{" RATE "} 14680064\n")); /* 2 x 4 MiB x 14/8 */
	CHECK(has("nccl_operation_queue_seconds_bucket{" JOB0 ",le=\"5e-05\"} 2\n"));
	CHECK(has("nccl_operation_queue_seconds_sum{" JOB0 "} 5e-05\n"));
	CHECK(has("nccl_bpftrace_timing_sample_ratio{" JOB0 "} 0.25\n"));
	CHECK(has("\",timing=\"cuda_event\"} 1\n"));
	CHECK(has("nccl_operations_in_flight{" JOB0 ",comm=\"0000000000000abd\",rank=\"3\"} 0\n"));
	CHECK(has("nccl_bpftrace_invalid_timings_total{reason=\"backwards\"} 0\n"));
	CHECK(has("nccl_bpftrace_events_lost_total{reason=\"plugin_notes_full\"} 0\n"));
	CHECK(has("nccl_bpftrace_events_lost_total{reason=\"plugin_gap\"} 0\n"));
	CHECK(!strstr(text, "reason=\"plugin_timing_"));
	check_with_promtool();
	world_write(&world); /* nothing was launched since */
	CHECK(!strstr(text, "nccl_bpftrace_timing_sample_ratio"));
	CHECK(has("nccl_timed_operations_total{" RATE "} 2\n"));
	world_close(&world);
}

TEST(launches_of_several_operations)
{
	struct world world;

	world_open(&world, BIG_CAP);
	world_comm(&world, 1, 4, 0);
	world_launch(&world, all_reduce, 2, 1024, 50 * US);
	world_launch(&world, pair, 2, 256, 60 * US);
	world_launch(&world, mixed, 2, 256, 70 * US);
	world_write(&world);
#define OF(operation)                                                                              \
	"{" JOB0 ",operation=\"" operation "\",size=\"lt64KiB\",scope=\"network\",algorithm="
	CHECK(has(
		"nccl_timed_operations_total" OF("AllReduce") "\"RING\",protocol=\"SIMPLE\"} 2\n"));
	CHECK(has("nccl_timed_seconds_total" OF(
		"AllReduce") "\"RING\",protocol=\"SIMPLE\"} 5e-05\n"));
	CHECK(has("nccl_timed_seconds_total" OF("Send") "\"RING\",protocol=\"SIMPLE\"} 6e-05\n"));
	CHECK(has("nccl_timed_bus_bytes_total" OF("Send") "\"RING\",protocol=\"SIMPLE\"} 1024\n"));
	CHECK(has("nccl_timed_seconds_total" OF("Recv") "\"RING\",protocol=\"SIMPLE\"} 6e-05\n"));
	CHECK(has("nccl_timed_operations_total" OF("Group") "\"\",protocol=\"\"} 2\n"));
	CHECK(has("nccl_timed_seconds_total" OF("Group") "\"\",protocol=\"\"} 7e-05\n"));
	CHECK(has("nccl_timed_bus_bytes_total" OF("Group") "\"\",protocol=\"\"} 8960\n"));
	check_with_promtool();
	world_close(&world);
}

TEST(a_gpu_that_the_node_does_not_have_is_not_believed)
{
	struct world world;
	struct comm *comm;

	world_open(&world, BIG_CAP);
	comm = world_comm(&world, 1, 1, 0xff);
	comm->bus_id = 5;
	world_launch(&world, all_reduce, 1, 1, 50 * US);
	world_write(&world);
	CHECK(has("nccl_timed_operations_total{job_id=\"77\",UUID=\"GPU-0005\","));
	CHECK(!strstr(text, "UUID=\"GPU-1234ff"));
	world_close(&world);
}

/* The job's sums outlive its communicators, and leave with its last process. */
TEST(sums_live_as_long_as_the_job)
{
	struct world world;

	world_open(&world, BIG_CAP);
	world_comm(&world, 1, 1, 0);
	world_launch(&world, all_reduce, 1, 1, 50 * US);
	SEND(&world.feed, feed_record(&world.feed, NBP_KIND_END));
	timings__expire(world.tracer->timings, UINT64_MAX);
	for (int i = 0; i < 3; i++) {
		world_write(&world);
		CHECK(has("nccl_timed_operations_total{" JOB0));
	}
	world_comm(&world, 2, 1, 0);
	world_launch(&world, all_reduce, 1, 1, 50 * US);
	world_write(&world);
	CHECK(has("operation=\"AllReduce\",size=\"lt64KiB\",scope=\"node\",algorithm=\"RING\","
		  "protocol=\"SIMPLE\"} 2\n"));
	world.process->gone_ns = 1;
	timings__process_gone(world.tracer->timings, TGID, world.feed.now_ns);
	world_write(&world);
	CHECK(has("nccl_timed_operations_total{" JOB0));
	world_write(&world);
	CHECK(!strstr(text, "nccl_timed_operations_total"));
	CHECK(!strstr(text, "nccl_operation_duration_seconds"));
	world_close(&world);
}

TEST(in_flight_and_since_when)
{
	struct world world;
	struct nbp_record launched;

	world_open(&world, BIG_CAP);
	world_comm(&world, 1, 1, 0);
	launched = feed_launched(&world.feed, NBP_TIMED);
	feed_send(&world.feed, &launched);
	world_write(&world);
	CHECK(has("nccl_operations_in_flight{" JOB0 ",comm=\"0000000000000abd\",rank=\"3\"} 1\n"));
	CHECK(has("nccl_oldest_in_flight_start_timestamp_seconds{" JOB0 ",comm=\""));
	SEND(&world.feed, feed_operation(&world.feed, NBP_ALLREDUCE, 1, 0));
	SEND(&world.feed, feed_finished(&world.feed, &launched, 50 * US, 1));
	world_write(&world);
	CHECK(has("nccl_operations_in_flight{" JOB0 ",comm=\"0000000000000abd\",rank=\"3\"} 0\n"));
	CHECK(!strstr(text, "nccl_oldest_in_flight_start_timestamp_seconds"));
	world_close(&world);
}

TEST(gaps_that_the_kernel_has_counted_are_not_counted_again)
{
	struct world world;

	world_open(&world, BIG_CAP);
	world_comm(&world, 1, 1, 0);
	world_untimed(&world);
	for (int i = 0; i < 10; i++)
		feed_operation(&world.feed, NBP_ALLREDUCE, 1, 0);
	world_untimed(&world);
	for (int i = 0; i < 3; i++)
		timings__settle(world.tracer->timings, world.feed.now_ns + i * SECOND);
	world.tracer->lost[NB_LOST_PLUGIN_RING_FULL] = 7;
	world_write(&world);
	CHECK(has("nccl_bpftrace_events_lost_total{reason=\"plugin_gap\"} 3\n"));
	world.tracer->lost[NB_LOST_PLUGIN_RING_FULL] = 10;
	world_write(&world);
	CHECK(has("nccl_bpftrace_events_lost_total{reason=\"plugin_gap\"} 3\n")); /* never falls */
	world_close(&world);
}

/* As for ranks: all of a histogram or none of it. */
TEST(the_cap_counts_histograms)
{
	struct world world;
	size_t n_capped;

	world_open(&world, 30);
	world_comm(&world, 1, 1, 0); /* 8 with the process */
	world_launch(&world, all_reduce, 1, 1, 50 * US);
	world_launch(&world, all_reduce, 1, 1 << 20, 50 * US);
	world_write(&world);
	CHECK_INT(count_of(text, "nccl_operation_duration_seconds_count"), 0);
	CHECK_INT(count_of(text, "nccl_operation_queue_seconds_bucket"), 9);
	CHECK(has("\nnccl_bpftrace_series_suppressed_total 28\n"));
	n_capped = count_series();
	CHECK(n_capped <= 30);
	world_close(&world);
}

/* The rank is judged, and late; its state has just changed, as it seems to the file. */
static void world_judge(struct world *world, struct watch *watch, uint64_t id)
{
	const struct verdict_member ranks[] = {{0xabc + id, 0, 8, 1}, {0xabc + id, 3, 8, TGID}};

	for (size_t i = 0; i < ARRAY_SIZE(ranks); i++)
		verdicts__join(watch->verdicts, &ranks[i], true, 1, SECOND);
	for (size_t i = 0; i < ARRAY_SIZE(ranks); i++)
		verdicts__call(watch->verdicts, &(struct verdict_call){
							.member = ranks[i],
							.operation = NCCL_OP_AllReduce,
							.sequence = 1,
							.time_ns = 2 * SECOND + i * 10 * MS,
							.root = -1,
						});
	comms__named(world->tracer->comms, TGID, 0xabc + id, 3)->shown_state = VERDICT_IDLE;
}

/* The contract's budget is 400 series for one GPU, here with all that this program writes. */
TEST(budget_of_series_with_gpu_times)
{
	static const uint16_t called[] = {NCCL_FN_AllReduce, NCCL_FN_AllGather,
					  NCCL_FN_ReduceScatter, NCCL_FN_Broadcast, NCCL_FN_Send};
	static const uint8_t functions[] = {NBP_ALLREDUCE, NBP_ALLGATHER, NBP_REDUCESCATTER,
					    NBP_BROADCAST, NBP_SEND};
	/* as each is told: bytes of one rank, elements, ... */
	static const uint64_t units[] = {4, 8, 32, 1, 4};
	static const uint64_t bytes[] = {1 << 10, 1 << 19, 1 << 23};
	struct watch watch = {};
	struct world world;
	size_t n;

	world_open(&world, BIG_CAP);
	verdicts__new(&watch.verdicts, &(struct verdict_options){.stuck_after_ns = SECOND});
	textfile__watch(world.tf, &watch);
	for (uint64_t id = 1; id <= 6; id++) {
		world_comm(&world, id, 1, 0);
		world_judge(&world, &watch, id);
		for (size_t i = 0; i < ARRAY_SIZE(called); i++)
			stub_calls(world.tracer, TGID, 0xabc + id, 3, called[i], 10);
		for (size_t i = 0; i < ARRAY_SIZE(functions); i++)
			for (size_t k = 0; k < ARRAY_SIZE(bytes); k++)
				world_launch(&world, &functions[i], 1, bytes[k] / units[i],
					     50 * US);
		SEND(&world.feed, feed_launched(&world.feed, NBP_TIMED)); /* in flight */
	}
	world_write(&world);
	check_with_promtool();
	CHECK_INT(count_of(text, "nccl_operation_duration_seconds_count"), 15);
	CHECK_INT(count_of(text, "\nnccl_communicator_state{"), 12);
	CHECK_INT(count_of(text, "\nnccl_operations_last_arrival_total{"), 6);
	n = count_series();
	printf("6 communicators, 5 operations, 3 sizes on one GPU: %zu series\n", n);
	CHECK(n <= 400);
	verdicts__free(watch.verdicts);
	world_close(&world);
}

UNIT_MAIN()
