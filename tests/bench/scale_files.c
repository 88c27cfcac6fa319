/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The textfiles of a fleet, by the agent's own writer from simulated jobs: nodes of 8 GPUs, jobs of
 * 10 nodes, each GPU in 6 communicators that call 5 operations of 3 sizes, timed by the plugin.
 * usage: scale_files DIRECTORY NODES ROUND     a later round has larger counters
 */
#include "textfile_files.h"

#include <sys/stat.h>

#include "bench.h"
#include "stub_tracer.h"
#include "stub_watch.h"

#define N_GPUS	     8
#define N_COMMS	     6
#define N_OPERATIONS 5
#define N_SIZES	     3
#define JOB_NODES    10
#define JOB_RANKS    (JOB_NODES * N_GPUS)
#define STEPS	     8 /* in each another rank of the node comes last */
#define STEP_NS	     (250 * MS)
#define FIRST_TGID   1000
#define MAX_SERIES   5000 /* the agent's default */

static const struct {
	enum nccl_operation operation;
	uint16_t function;
	uint8_t plugin_function;
	bool of_all_ranks; /* its size is that of all ranks' parts together */
} operations[N_OPERATIONS] = {
	{NCCL_OP_AllReduce, NCCL_FN_AllReduce, NBP_ALLREDUCE, false},
	{NCCL_OP_AllGather, NCCL_FN_AllGather, NBP_ALLGATHER, true},
	{NCCL_OP_ReduceScatter, NCCL_FN_ReduceScatter, NBP_REDUCESCATTER, true},
	{NCCL_OP_Broadcast, NCCL_FN_Broadcast, NBP_BROADCAST, false},
	{NCCL_OP_Reduce, NCCL_FN_Reduce, NBP_REDUCE, false},
};
static const uint64_t counts[N_SIZES] = {8 << 10, 128 << 10, 2 << 20}; /* of 4 bytes */

struct node {
	struct tracer *tracer;
	struct watch watch;
	struct textfile *textfile;
	struct feed feeds[N_GPUS][N_COMMS];
	unsigned int number, round;
	uint64_t now_ns;
};

static char host[32];

int uname(struct utsname *name)
{
	*name = (struct utsname){.release = "6.1"};
	snprintf(name->nodename, sizeof(name->nodename), "%s", host);
	return 0;
}

const char *libbpf_version_string(void)
{
	return "v1.1";
}

static void hand_out(void *ctx, const struct timing_launch *launch)
{
	struct tracer *tracer = ctx;

	tracer->on_launch(tracer->on_launch_ctx, launch);
}

static uint64_t hash_of(const struct node *node, int comm)
{
	return 0xabc + (uint64_t)(node->number / JOB_NODES) * N_COMMS + comm +
	       1; /* timing_feed.h */
}

static int rank_of(const struct node *node, int gpu)
{
	return (int)(node->number % JOB_NODES) * N_GPUS + gpu;
}

static void send(struct feed *feed, int gpu, struct nbp_record record)
{
	timings__record(feed->timings, FIRST_TGID + gpu, &record, feed->now_ns);
}

/* What the kernel's counters say, and the communicator's own memory. */
static void count_calls(struct node *node, int gpu, int comm)
{
	for (int i = 0; i < N_OPERATIONS; i++) {
		uint64_t calls = 3000 * (uint64_t)node->round;
		const struct nb_key key = {
			.comm = 0x1000 + comm,
			.comm_hash = hash_of(node, comm),
			.tgid = FIRST_TGID + gpu,
			.rank = rank_of(node, gpu),
			.function = operations[i].function,
			.n_ranks = JOB_RANKS,
		};
		const struct nb_counter counter = {
			.launched = {.calls = calls, .type_bytes = calls * counts[1]},
			.first_ns = SECOND,
			.last_ns = now_ns() - MS,
			.sequence = calls,
			.last_count = counts[1],
			.last_datatype = 7,
			.last_root = -1,
		};
		struct comm *row = comms__count(node->tracer->comms, &key, &counter);

		if (!row)
			die("comms__count", ENOMEM);
		row->bus_id = gpu;
		row->n_nodes = JOB_NODES;
		snprintf(row->name, sizeof(row->name), "group%d", comm);
	}
}

static void begin_timing(struct node *node, int gpu, int comm)
{
	struct feed *feed = &node->feeds[gpu][comm];
	struct nbp_record r;

	*feed = (struct feed){
		.timings = node->tracer->timings,
		.now_ns = 1000 * SECOND,
		.comm_id = hash_of(node, comm) - 0xabc,
		.rank = rank_of(node, gpu),
		.n_ranks = JOB_RANKS,
	};
	r = feed_comm(feed);
	r.comm.n_nodes = JOB_NODES;
	r.comm.gpu_uuid[12] = node->number >> 8;
	r.comm.gpu_uuid[13] = node->number;
	r.comm.gpu_uuid[15] = gpu;
	send(feed, gpu, r);
}

static struct nbp_record launch(struct feed *feed, int gpu, int operation, uint64_t count)
{
	uint8_t function = operations[operation].plugin_function;
	struct nbp_record launched;

	feed->group++;
	send(feed, gpu, feed_api(feed, function, count, 1));
	feed->now_ns += 5 * US;
	launched = feed_launched(feed, NBP_TIMED);
	send(feed, gpu, launched);
	send(feed, gpu, feed_operation(feed, function, count, 0));
	return launched;
}

/* All sizes of all operations, as often as there were rounds; the last one is in flight. */
static void time_launches(struct node *node, int gpu, int comm)
{
	struct feed *feed = &node->feeds[gpu][comm];

	for (unsigned int i = 0; i < node->round * N_OPERATIONS * N_SIZES; i++) {
		int operation = i % N_OPERATIONS, size = i / N_OPERATIONS % N_SIZES;
		uint64_t share = operations[operation].of_all_ranks ? JOB_RANKS : 1;
		struct nbp_record launched = launch(feed, gpu, operation, counts[size] / share + 1);

		send(feed, gpu, feed_finished(feed, &launched, (50ULL << (2 * size)) * US, 1));
	}
	launch(feed, gpu, 0, counts[0]);
}

static struct verdict_member member(const struct node *node, int gpu, int comm)
{
	return (struct verdict_member){
		.hash = hash_of(node, comm),
		.rank = rank_of(node, gpu),
		.n_ranks = JOB_RANKS,
		.tgid = FIRST_TGID + gpu,
	};
}

static void judge_step(struct node *node, int comm, unsigned int step)
{
	for (int gpu = 0; gpu < N_GPUS; gpu++) {
		const struct verdict_call call = {
			.member = member(node, gpu, comm),
			.operation = NCCL_OP_AllReduce,
			.sequence = 1 + step,
			.time_ns = node->now_ns + (gpu + step) % N_GPUS * 300 * US,
			.count = counts[1],
			.datatype = 7,
			.root = -1,
		};

		verdicts__call(node->watch.verdicts, &call);
	}
}

static void judge(struct node *node)
{
	for (int comm = 0; comm < N_COMMS; comm++)
		for (int gpu = 0; gpu < N_GPUS; gpu++) {
			const struct verdict_member rank = member(node, gpu, comm);

			verdicts__join(node->watch.verdicts, &rank, true, 1, node->now_ns);
		}
	for (unsigned int step = 0; step < STEPS * node->round; step++) {
		for (int comm = 0; comm < N_COMMS; comm++)
			judge_step(node, comm, step);
		node->now_ns += STEP_NS;
		verdicts__settle(node->watch.verdicts, node->now_ns);
	}
}

static void open_gpu(struct node *node, int gpu)
{
	struct process *process = stub_process(node->tracer, FIRST_TGID + gpu, "python3");

	process->plugin_heard_ns = 1;
	snprintf(process->info.job.job_id, sizeof(process->info.job.job_id), "%u",
		 4000 + node->number / JOB_NODES);
	snprintf(node->tracer->gpus[gpu].uuid, sizeof(node->tracer->gpus[gpu].uuid),
		 "GPU-1234ab00-0000-0000-0000-0000%04x%04x", node->number, gpu);
}

static void write_node(struct node *node, const char *dir)
{
	const struct verdict_options options = {.stuck_after_ns = 60 * SECOND};
	char path[4096];
	int err;

	snprintf(host, sizeof(host), "node%u", node->number);
	if (snprintf(path, sizeof(path), "%s/%s", dir, host) >= (int)sizeof(path) ||
	    (mkdir(path, 0755) && errno != EEXIST))
		die(dir, errno);
	node->tracer = stub_new();
	node->tracer->refreshed_ns = now_ns();
	node->now_ns = 100 * SECOND;
	timings__new(&node->tracer->timings, hand_out, node->tracer);
	verdicts__new(&node->watch.verdicts, &options);
	err = textfile__new(&node->textfile, path, MAX_SERIES, NULL)
		      ?: textfile__listen(node->textfile, node->tracer);
	if (err)
		die(path, err);
	textfile__watch(node->textfile, &node->watch);
	for (int gpu = 0; gpu < N_GPUS; gpu++) {
		open_gpu(node, gpu);
		for (int comm = 0; comm < N_COMMS; comm++) {
			count_calls(node, gpu, comm);
			begin_timing(node, gpu, comm);
			time_launches(node, gpu, comm);
		}
	}
	judge(node);
	err = textfile__write(node->textfile, node->tracer);
	if (err)
		die(path, err);
	textfile__free(node->textfile);
	verdicts__free(node->watch.verdicts);
	timings__free(node->tracer->timings);
	stub_free(node->tracer);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		die("usage: scale_files DIRECTORY NODES ROUND", EINVAL);
	for (unsigned int i = 0; i < strtoul(argv[2], NULL, 10); i++) {
		struct node node = {.number = i, .round = strtoul(argv[3], NULL, 10)};

		write_node(&node, argv[1]);
	}
	return 0;
}
