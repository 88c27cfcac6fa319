/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The file that NVIDIA's Inspector would write, text by text. The expected strings are worked out
 * by hand from the format as NCCL 2.30's Inspector has it.
 */
#include "unit.h"

#include "../../src/nccl_api.c"
#include "../../src/metrics.c"
#include "../../src/prom.c"
#include "../../src/utf8.c"
#include "../../src/timing_form.c"
#include "../../src/inspector.c"
#include "../../src/inspector_prom.c"

#include "unit_launch.h"

#define HEAD                                                                                       \
	"version=\"v5.1\",slurm_job_id=\"12345\",node=\"n0\",gpu=\"GPU3\","                        \
	"comm_name=\"DP Group 0\",n_nodes=\"1\",nranks=\"8\","

static const struct gpu node_gpu = {.index = 3};
static const struct inspector_owner owner = {.tgid = LAUNCH_TGID, .job_id = "12345"};

struct window {
	struct inspector_gpus gpus;
	struct inspector_gpu *gpu;
	struct prom *prom;
	uint64_t omitted[INSPECTOR_OMISSION_MAX];
	unsigned int n_refused;
};

static void window__open(struct window *w)
{
	*w = (struct window){.gpus = {.node = "n0"}};
	w->gpu = inspector_gpus__get(&w->gpus, "GPU-00112233-4455-6677-8899-aabbccddeeff",
				     &node_gpu);
	CHECK_INT(prom__new(&w->prom, 1), 0);
}

static void window__close(struct window *w)
{
	inspector_gpus__free(&w->gpus);
	prom__free(w->prom);
}

static void window__add(struct window *w, const struct timing_launch *launch)
{
	struct inspector_operation told[INSPECTOR_MAX_OPERATIONS];
	unsigned int n = inspector__operations(launch, told, w->omitted);

	for (unsigned int i = 0; i < n; i++)
		w->n_refused += !inspector_gpu__add(w->gpu, &told[i], &owner);
}

/* One operation alone in its launch. */
static void window__one(struct window *w, const struct timing_comm *comm,
			struct timing_operation operation, uint64_t duration_ns)
{
	struct timing_launch launch = launch_of(comm, &operation, 1, duration_ns);

	window__add(w, &launch);
}

static const char *window__text(struct window *w)
{
	const char *text = NULL;
	size_t len;

	prom__reset(w->prom);
	CHECK_INT(inspector_gpu__text(&w->gpus, w->gpu, w->prom), 0);
	CHECK_INT(prom__text(w->prom, &text, &len), 0);
	return text;
}

TEST(one_all_reduce)
{
	struct timing_comm comm = launch_comm(8, 1, "DP Group 0");
	struct window w;

	window__open(&w);
	/* 4 Mi floats in 100 us: 167.77216 GB/s, x 2 x 7/8 on the bus */
	window__one(&w, &comm, launch_operation(NCCL_OP_AllReduce, 4 << 20, 4), 100000);
	CHECK(!inspector_gpu__is_idle(w.gpu));
	CHECK_STR(window__text(&w),
		  "nccl_bus_bandwidth_gbs{" HEAD "collective=\"AllReduce\","
		  "message_size=\"16-17MB\",algo_proto=\"RING_LL128\"} 293.601\n"
		  "nccl_collective_exec_time_microseconds{" HEAD "collective=\"AllReduce\","
		  "message_size=\"16-17MB\",algo_proto=\"RING_LL128\"} 100\n");
	CHECK(inspector_gpu__is_idle(w.gpu));
	CHECK_STR(window__text(&w), "");
	window__close(&w);
}

TEST(bandwidth_is_a_geometric_time_an_arithmetic_mean)
{
	struct timing_comm comm = launch_comm(8, 1, "DP Group 0");
	struct window w;

	window__open(&w);
	/* 14.68006, 29.36012 and 7.34003 GB/s: geometric mean the first, arithmetic 17.127 */
	window__one(&w, &comm, launch_operation(NCCL_OP_AllReduce, 1 << 20, 1), 125000);
	window__one(&w, &comm, launch_operation(NCCL_OP_AllReduce, 1 << 20, 1), 62500);
	window__one(&w, &comm, launch_operation(NCCL_OP_AllReduce, 1 << 20, 1), 250000);
	CHECK_STR(window__text(&w),
		  "nccl_bus_bandwidth_gbs{" HEAD "collective=\"AllReduce\","
		  "message_size=\"1-2MB\",algo_proto=\"RING_LL128\"} 14.6801\n"
		  "nccl_collective_exec_time_microseconds{" HEAD "collective=\"AllReduce\","
		  "message_size=\"1-2MB\",algo_proto=\"RING_LL128\"} 145.833\n");
	window__close(&w);
}

/* The value of the first line that has this text. */
static double value_of(const char *text, const char *part)
{
	const char *at = strstr(text, part), *end = at ? strstr(at, "} ") : NULL;

	return end ? strtod(end + 2, NULL) : -1;
}

static double bandwidth(enum nccl_operation operation, int32_t n_ranks, const char *name)
{
	struct timing_comm comm = launch_comm(n_ranks, 1, "DP Group 0");
	char part[64];
	struct window w;
	double value;

	window__open(&w);
	window__one(&w, &comm, launch_operation(operation, 1000000, 1), 1000000); /* 1 GB/s */
	snprintf(part, sizeof(part), "\"%s\"", name);
	value = value_of(window__text(&w), part);
	window__close(&w);
	return value;
}

TEST(bandwidth_of_each_kind)
{
	CHECK(bandwidth(NCCL_OP_AllReduce, 8, "AllReduce") == 1.75);
	CHECK(bandwidth(NCCL_OP_AllGather, 8, "AllGather") == 7);
	CHECK(bandwidth(NCCL_OP_ReduceScatter, 8, "ReduceScatter") == 7);
	CHECK(bandwidth(NCCL_OP_Broadcast, 8, "Broadcast") == 1);
	CHECK(bandwidth(NCCL_OP_Reduce, 8, "Reduce") == 1);
	CHECK(bandwidth(NCCL_OP_AlltoAll, 8, "All2All") == 7);
	CHECK(bandwidth(NCCL_OP_Send, 8, "Send") == 1);
	CHECK(bandwidth(NCCL_OP_Recv, 8, "Recv") == 1);
	/* alone: no bus */
	CHECK(bandwidth(NCCL_OP_AllReduce, 1, "AllReduce") == 0);
}

TEST(order_is_inspector_s)
{
	static const char *const wanted[] = {"Broadcast",     "Reduce",	   "AllGather",
					     "ReduceScatter", "\"8-9KB\"", "\"16-17KB\"",
					     "Send",	      "Recv",	   "nranks=\"16\""};
	struct timing_comm small = launch_comm(8, 1, "b"), large = launch_comm(16, 1, "a");
	const char *text, *at;
	struct window w;

	window__open(&w);
	window__one(&w, &large, launch_operation(NCCL_OP_Send, 8192, 1), 1000);
	window__one(&w, &small, launch_operation(NCCL_OP_Recv, 8192, 1), 1000);
	window__one(&w, &small, launch_operation(NCCL_OP_Send, 8192, 1), 1000);
	window__one(&w, &small, launch_operation(NCCL_OP_AllReduce, 16384, 1), 1000);
	window__one(&w, &small, launch_operation(NCCL_OP_AllReduce, 8192, 1), 1000);
	window__one(&w, &small, launch_operation(NCCL_OP_ReduceScatter, 1 << 20, 1), 1000);
	window__one(&w, &small, launch_operation(NCCL_OP_AllGather, 1 << 20, 1), 1000);
	window__one(&w, &small, launch_operation(NCCL_OP_Reduce, 1 << 20, 1), 1000);
	window__one(&w, &small, launch_operation(NCCL_OP_Broadcast, 1 << 20, 1), 1000);
	text = at = window__text(&w);
	for (unsigned int i = 0; at && i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		at = strstr(at, wanted[i]);
		if (!at)
			printf("FAIL %s is not there, or too early\n%s", wanted[i], text);
		CHECK(at);
	}
	window__close(&w);
}

TEST(send_and_receive)
{
	struct timing_comm comm = launch_comm(8, 1, "DP Group 0");
	struct timing_operation both[2] = {launch_operation(NCCL_OP_Send, 2000000, 1),
					   launch_operation(NCCL_OP_Recv, 1000000, 2)};
	struct timing_launch launch = launch_of(&comm, both, 2, 100000);
	struct window w;

	launch.form = TIMING_PAIR;
	window__open(&w);
	window__add(&w, &launch);
	CHECK_STR(window__text(&w), "nccl_p2p_bus_bandwidth_gbs{" HEAD
				    "p2p_operation=\"Send\",message_size=\"1-2MB\"} 20\n"
				    "nccl_p2p_exec_time_microseconds{" HEAD
				    "p2p_operation=\"Send\",message_size=\"1-2MB\"} 100\n"
				    "nccl_p2p_bus_bandwidth_gbs{" HEAD
				    "p2p_operation=\"Recv\",message_size=\"1-2MB\"} 20\n"
				    "nccl_p2p_exec_time_microseconds{" HEAD
				    "p2p_operation=\"Recv\",message_size=\"1-2MB\"} 100\n");
	window__close(&w);
}

TEST(sends_and_receives_of_everybody_are_one)
{
	struct timing_comm comm = launch_comm(8, 1, "DP Group 0");
	struct timing_operation all[16] = {};
	struct timing_launch launch = launch_of(&comm, all, 16, 1000000);
	struct window w;

	for (int i = 0; i < 16; i++) {
		all[i] = launch_operation(i % 2 ? NCCL_OP_Recv : NCCL_OP_Send, 1000000, 1);
		all[i].algorithm = all[i].protocol = NBP_UNKNOWN_U8;
		all[i].root = i / 2;
	}
	launch__judge(&launch);
	window__open(&w);
	window__add(&w, &launch);
	CHECK_STR(window__text(&w),
		  "nccl_bus_bandwidth_gbs{" HEAD "collective=\"All2All\","
		  "message_size=\"976-977KB\",algo_proto=\"unknown_unknown\"} 7\n"
		  "nccl_collective_exec_time_microseconds{" HEAD "collective=\"All2All\","
		  "message_size=\"976-977KB\",algo_proto=\"unknown_unknown\"} 1000\n");
	all[3].count = 1;
	launch__judge(&launch);
	window__add(&w, &launch);
	CHECK_INT(w.omitted[INSPECTOR_SEVERAL], 1);
	window__close(&w);
}

TEST(what_is_not_known_is_called_unknown)
{
	struct timing_comm comm = launch_comm(8, 0, "");
	struct timing_operation operation = launch_operation(NCCL_OP_AllReduce, 8192, 1);
	struct inspector_operation told[INSPECTOR_MAX_OPERATIONS];
	const struct inspector_owner nobody = {};
	struct timing_launch launch;
	struct window w;

	operation.algorithm = NBP_UNKNOWN_U8;
	launch = launch_of(&comm, &operation, 1, 1000);
	window__open(&w);
	w.gpus.node = "";
	CHECK_INT(inspector__operations(&launch, told, w.omitted), 1);
	CHECK(inspector_gpu__add(w.gpu, &told[0], &nobody));
	CHECK(strstr(window__text(&w),
		     "{version=\"v5.1\",slurm_job_id=\"unknown\",node=\"unknown\",gpu=\"GPU3\","
		     "comm_name=\"unknown\",n_nodes=\"unknown\",nranks=\"8\","
		     "collective=\"AllReduce\",message_size=\"8-9KB\","
		     "algo_proto=\"unknown_LL128\"}"));
	window__close(&w);
}

TEST(left_out_and_counted)
{
	struct timing_comm comm = launch_comm(8, 1, ""), nobody = launch_comm(0, 1, "");
	struct timing_operation two[2] = {launch_operation(NCCL_OP_AllReduce, 8192, 1),
					  launch_operation(NCCL_OP_AllReduce, 8192, 1)};
	struct timing_launch launch = launch_of(&comm, two, 1, 1000);
	struct window w;

	window__open(&w);
	launch.after_pause = true; /* a time, but none of what is usual */
	window__add(&w, &launch);
	CHECK_INT(w.omitted[INSPECTOR_NOT_TIMED], 1);
	launch.after_pause = false;
	launch.timing = NBP_NOT_TIMED_BUDGET;
	window__add(&w, &launch);
	CHECK_INT(w.omitted[INSPECTOR_NOT_TIMED], 2);
	launch = launch_of(&comm, two, 2, 1000);
	window__add(&w, &launch);
	launch = launch_of(&comm, two, 1, 1000);
	launch.complete = false;
	window__add(&w, &launch);
	CHECK_INT(w.omitted[INSPECTOR_SEVERAL], 2);
	window__one(&w, &comm, launch_operation(NCCL_OP_AllReduce, 8191, 1), 1000);
	CHECK_INT(w.omitted[INSPECTOR_SMALL], 1);
	window__one(&w, &comm, launch_operation(NCCL_OP_Gather, 8192, 1), 1000);
	CHECK_INT(w.omitted[INSPECTOR_UNNAMED], 1);
	window__one(&w, &comm, launch_operation(NCCL_OP_AllReduce, 8192, 0), 1000);
	window__one(&w, &nobody, launch_operation(NCCL_OP_AllReduce, 8192, 1), 1000);
	CHECK_INT(w.omitted[INSPECTOR_UNSIZED], 2);
	CHECK(inspector_gpu__is_idle(w.gpu));
	window__close(&w);
}

TEST(hostile_values_break_no_line)
{
	struct timing_comm comm = launch_comm(8, 1, "a\"b\\c\nd\xff");
	struct window w;

	window__open(&w);
	w.gpus.cluster = "east \"1\"";
	window__one(&w, &comm, launch_operation(NCCL_OP_AllReduce, 8192, 1), 1000);
	CHECK(strstr(window__text(&w), "comm_name=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\",n_nodes"));
	CHECK(strstr(window__text(&w), "") != NULL);
	window__close(&w);
}

TEST(cluster_comes_last)
{
	struct timing_comm comm = launch_comm(8, 1, "");
	struct timing_operation operation = launch_operation(NCCL_OP_AllReduce, 8192, 1);
	struct timing_launch launch = launch_of(&comm, &operation, 1, 1000);
	struct inspector_operation told[INSPECTOR_MAX_OPERATIONS];
	struct inspector_owner slurm = owner;
	struct window w;

	window__open(&w);
	slurm.cluster = "east";
	inspector__operations(&launch, told, w.omitted);
	inspector_gpu__add(w.gpu, &told[0], &slurm);
	CHECK(strstr(window__text(&w), "algo_proto=\"RING_LL128\",cluster=\"east\"} "));
	w.gpus.cluster = "admin's";
	inspector_gpu__add(w.gpu, &told[0], &slurm);
	CHECK(strstr(window__text(&w), "algo_proto=\"RING_LL128\",cluster=\"admin's\"} "));
	window__close(&w);
}

TEST(size_texts)
{
	static const struct {
		uint64_t bytes;
		const char *text;
		uint64_t floor;
	} rows[] = {
		{0, "0B", 0},
		{1, "1-2B", 1},
		{1023, "1023-1024B", 1023},
		{1024, "1-2KB", 1024},
		{8192, "8-9KB", 8192},
		{9215, "8-9KB", 8192},
		{9216, "9-10KB", 9216},
		{1048575, "1023-1024KB", 1047552},
		{1048576, "1-2MB", 1048576},
		{4ULL << 30, "4-5GB", 4ULL << 30},
		{(4ULL << 30) + 1, "4-5GB", 4ULL << 30},
		{1ULL << 40, "1-2TB", 1ULL << 40},
		{5000ULL << 40, "5000-5001TB", 5000ULL << 40},
		{UINT64_MAX, "16777215-16777216TB", 16777215ULL << 40},
	};
	char buf[32];

	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CHECK_STR(inspector__size_text(rows[i].bytes, buf, sizeof(buf)), rows[i].text);
		CHECK(inspector__size_floor(rows[i].bytes) == rows[i].floor);
		CHECK_STR(inspector__size_text(rows[i].floor, buf, sizeof(buf)), rows[i].text);
	}
}

TEST(a_bucket_is_a_range)
{
	struct timing_comm comm = launch_comm(8, 1, "");
	const char *text;
	struct window w;

	window__open(&w);
	window__one(&w, &comm, launch_operation(NCCL_OP_AllReduce, 8192, 1), 1000);
	window__one(&w, &comm, launch_operation(NCCL_OP_AllReduce, 9000, 1), 3000);
	text = window__text(&w);
	CHECK(value_of(text, "nccl_collective_exec_time_microseconds") == 2);
	CHECK(!strstr(strstr(text, "exec_time") + 1, "exec_time"));
	window__close(&w);
}

/* X6: sizes without end. */
TEST(buckets_are_bounded)
{
	struct timing_comm comm = launch_comm(8, 1, "");
	unsigned int n_lines = 0;
	struct window w;

	window__open(&w);
	for (int i = 0; i < 5000; i++)
		window__one(&w, &comm, launch_operation(NCCL_OP_AllReduce, 8192 + i * 1024, 1),
			    1000);
	/* up to 1 MB each size has a bucket, above that 1024 share one */
	CHECK_INT(w.n_refused, 5000 - INSPECTOR_MAX_BUCKETS);
	for (const char *at = window__text(&w); (at = strchr(at, '\n')); at++)
		n_lines++;
	CHECK_INT(n_lines, 2 * INSPECTOR_MAX_BUCKETS);
	window__one(&w, &comm, launch_operation(NCCL_OP_AllReduce, 5 << 20, 1), 1000);
	CHECK(strstr(window__text(&w), "\"5-6MB\""));
	window__close(&w);
}

TEST(gpus_by_uuid)
{
	struct inspector_gpus gpus = {};
	struct inspector_gpu *gpu, *mig;
	char uuid[64];

	CHECK(!inspector_gpus__get(&gpus, "", NULL));
	CHECK(!inspector_gpus__get(&gpus, "GPU-", NULL));
	CHECK(!inspector_gpus__get(&gpus, "GPU-../../../etc/cron.d/0123456789abcdef0", NULL));
	CHECK(!inspector_gpus__get(&gpus, "GPU-00112233-4455-6677-8899-aabbccddeeff0", NULL));
	CHECK(!inspector_gpus__get(&gpus, "00112233-4455-6677-8899-aabbccddeeff", NULL));
	gpu = inspector_gpus__get(&gpus, "GPU-00112233-4455-6677-8899-AABBCCDDEEFF", &node_gpu);
	CHECK_STR(gpu->uuid, "00112233-4455-6677-8899-aabbccddeeff");
	CHECK_STR(gpu->label, "GPU3");
	CHECK(inspector_gpus__get(&gpus, "GPU-00112233-4455-6677-8899-aabbccddeeff", NULL) == gpu);
	mig = inspector_gpus__get(&gpus, "MIG-10112233-4455-6677-8899-aabbccddeeff", NULL);
	CHECK_STR(mig->label, "MIG-10112233-4455-6677-8899-aabbccddeeff");
	for (int i = 0; i < INSPECTOR_MAX_GPUS; i++) {
		snprintf(uuid, sizeof(uuid), "GPU-20112233-4455-6677-8899-%012d", i);
		CHECK(!inspector_gpus__get(&gpus, uuid, NULL) == (i >= INSPECTOR_MAX_GPUS - 2));
	}
	inspector_gpus__remove(&gpus, gpu);
	CHECK(inspector_gpus__get(&gpus, uuid, NULL));
	inspector_gpus__free(&gpus);
}

TEST(processes_of_a_gpu_are_noted_once)
{
	struct timing_comm comm = launch_comm(8, 1, "");
	struct timing_operation operation = launch_operation(NCCL_OP_AllReduce, 8192, 1);
	struct timing_launch launch = launch_of(&comm, &operation, 1, 1000);
	struct inspector_operation told[INSPECTOR_MAX_OPERATIONS];
	struct inspector_owner other = owner;
	struct window w;

	window__open(&w);
	inspector__operations(&launch, told, w.omitted);
	for (int i = 0; i < 3 * INSPECTOR_MAX_PROCESSES; i++) {
		other.tgid = 100 + i / 2;
		inspector_gpu__add(w.gpu, &told[0], &other);
	}
	CHECK_INT(w.gpu->n_tgids, INSPECTOR_MAX_PROCESSES);
	CHECK_INT(w.gpu->tgids[1], 101);
	/* two processes of one job on one GPU are one series */
	CHECK(!strchr(strchr(window__text(&w), '\n') + 1, '\n')[1]);
	window__close(&w);
}

TEST(names_of_files)
{
#define BARE "00112233-4455-6677-8899-aabbccddeeff"
	CHECK_INT(inspector__file_name_length("nccl_inspector_metrics_" BARE ".prom"), 64);
	CHECK_INT(inspector__file_name_length("nccl_inspector_metrics_" BARE ".prom.12.tmp"), 64);
	CHECK(!inspector__file_name_length("nccl_inspector_metrics_" BARE));
	CHECK(!inspector__file_name_length("nccl_inspector_metrics_.prom"));
	CHECK(!inspector__file_name_length("nccl_inspector_metrics_x" BARE ".prom"));
	CHECK(!inspector__file_name_length("nccl_bpftrace.prom"));
	CHECK(!inspector__file_name_length(""));
}

static bool writes(const char *environment, size_t len)
{
	return inspector__writes_files(environment, len);
}

#define WRITES(text) writes(text, sizeof(text))

TEST(environments_of_inspector)
{
	CHECK(WRITES("A=1\0NCCL_INSPECTOR_ENABLE=1\0NCCL_INSPECTOR_PROM_DUMP=1"));
	CHECK(WRITES("NCCL_INSPECTOR_PROM_DUMP=2\0NCCL_INSPECTOR_ENABLE= 1x"));
	CHECK(!WRITES("NCCL_INSPECTOR_ENABLE=1"));
	CHECK(!WRITES("NCCL_INSPECTOR_ENABLE=1\0NCCL_INSPECTOR_PROM_DUMP=0"));
	CHECK(!WRITES("NCCL_INSPECTOR_ENABLE=no\0NCCL_INSPECTOR_PROM_DUMP=1"));
	CHECK(!WRITES("XNCCL_INSPECTOR_ENABLE=1\0NCCL_INSPECTOR_PROM_DUMP=1"));
	/* the first of a name holds; what was cut off says nothing */
	CHECK(!WRITES("NCCL_INSPECTOR_ENABLE=0\0NCCL_INSPECTOR_ENABLE=1\0"
		      "NCCL_INSPECTOR_PROM_DUMP=1"));
	CHECK(!writes("NCCL_INSPECTOR_ENABLE=1\0NCCL_INSPECTOR_PROM_DUMP=1",
		      sizeof("NCCL_INSPECTOR_ENABLE=1\0NCCL_INSPECTOR_PROM_DUMP=1") - 1));
	CHECK(!writes("", 0));
}

UNIT_MAIN()
