/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a launch costs that goes into a recording, or into the files for NVIDIA's dashboards. The
 * same line by way of jansson stands beside. usage: bench_record DIRECTORY
 */
#include "../../src/nccl_api.c"
/* defines COMM, a word of the API table: after it */
#include "../../src/metrics.c"
#include "../../src/json_text.c"
#include "../../src/prom.c"
#include "../../src/prom_file.c"
#include "../../src/utf8.c"
#include "../../src/timing_form.c"
#include "../../src/inspector.c"
#include "../../src/inspector_prom.c"
#include "../../src/record_file.c"
#include "../../src/record_inspector.c"
#include "../../src/record_jsonl.c"

#include <jansson.h>

#include "bench.h"
#include "unit_launch.h"

#define ROUNDS 15
#define N      20000

static const struct record_origin origin = {
	.host = "node17",
	.version = "nccl-bpftrace",
	.kernel = "6.18",
	.wall_offset_ns = 1700000000000000000,
	.now_ns = 2000000000,
};

static struct json_text text;
static uint64_t omitted[INSPECTOR_OMISSION_MAX];

static void with_jsonl(const struct timing_launch *launch, struct record_file *file)
{
	record_jsonl__launch(&text, launch, "12345");
	record_file__write(file, text.data, text.len);
	json_text__reset(&text);
}

static void with_inspector(const struct timing_launch *launch, struct record_file *file)
{
	record_inspector__launch(&text, launch, &origin, omitted);
	record_file__write(file, text.data, text.len);
	json_text__reset(&text);
}

/* As many keys of the same kinds as record_jsonl__launch() writes. */
static void with_jansson(const struct timing_launch *launch, struct record_file *file)
{
	const struct timing_operation *op = launch->operations;
	json_t *operation = json_pack(
		"{s:s, s:I, s:I, s:I, s:I, s:I, s:n, s:s, s:s, s:I, s:I}", "operation", "AllReduce",
		"number", (json_int_t)op->number, "sequence", (json_int_t)op->sequence, "count",
		(json_int_t)op->count, "datatype", (json_int_t)op->datatype, "type_bytes",
		(json_int_t)op->type_bytes, "root", "algorithm", "RING", "protocol", "LL128",
		"channels", (json_int_t)op->n_channels, "call_ns", (json_int_t)op->call_ns);
	json_t *root = json_pack(
		"{s:s, s:I, s:s, s:s, s:I, s:I, s:s, s:I, s:s, s:s, s:I, s:I, s:I, s:s, s:b, s:s, s:I, "
		"s:I, s:I, s:s, s:b, s:s, s:s, s:I, s:f, s:I, s:[o]}",
		"kind", "launch", "pid", (json_int_t)launch->comm->key.tgid, "job_id", "12345",
		"comm", "1122334455667788", "rank", (json_int_t)2, "nranks", (json_int_t)8,
		"comm_name", launch->comm->name, "n_nodes", (json_int_t)1, "uuid",
		launch->comm->uuid, "stream", "0x7f00", "launch", (json_int_t)5, "launch_ns",
		(json_int_t)launch->launch_ns, "duration_ns", (json_int_t)launch->duration_ns,
		"timing", "timed", "sampled", 1, "source", "cuda_event", "gpu_start_ns",
		(json_int_t)launch->gpu_start_ns, "gpu_end_ns", (json_int_t)launch->gpu_end_ns,
		"clock_error_ns", (json_int_t)900, "captured", "no", "complete", 1, "form", "one",
		"operation", "AllReduce", "bytes", (json_int_t)launch->bytes, "bus_bytes",
		launch->bus_bytes, "n_operations", (json_int_t)1, "operations", operation);
	static char line[4096];
	size_t len = json_dumpb(root, line, sizeof(line) - 1, JSON_COMPACT);

	line[len++] = '\n';
	record_file__write(file, line, len);
	json_decref(root);
}

static struct record_file *new_file(const char *directory, char path[256])
{
	struct record_file *file = NULL;
	int err;

	snprintf(path, 256, "%s/recording", directory);
	unlink(path);
	err = record_file__new(&file, path);
	if (err)
		die(path, err);
	return file;
}

static void line_ns(const char *name, const char *directory, const struct timing_launch *launch,
		    void (*fn)(const struct timing_launch *, struct record_file *))
{
	struct rounds ns = {};
	char path[256];

	for (int round = 0; round < ROUNDS; round++) {
		struct record_file *file = new_file(directory, path);
		uint64_t start = now_ns();

		for (int i = 0; i < N; i++)
			fn(launch, file);
		record_file__flush(file);
		rounds__add(&ns, (double)(now_ns() - start) / N);
		record_file__close(file, false);
	}
	rounds__print(&ns, name);
}

static void bucket_ns(struct inspector_gpus *gpus, struct inspector_gpu *gpu,
		      const struct timing_launch *launch)
{
	const struct inspector_owner owner = {.tgid = 1, .job_id = "12345"};
	struct inspector_operation told[INSPECTOR_MAX_OPERATIONS];
	struct rounds ns = {};

	(void)gpus;
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start = now_ns();

		for (int i = 0; i < N; i++)
			if (inspector__operations(launch, told, omitted))
				inspector_gpu__add(gpu, &told[0], &owner);
		rounds__add(&ns, (double)(now_ns() - start) / N);
	}
	rounds__print(&ns, "bucket_ns");
}

/* A GPU's whole file, as full as it can be. */
static void file_ms(struct inspector_gpus *gpus, struct inspector_gpu *gpu,
		    const struct timing_launch *launch, struct timing_operation *operation,
		    const char *directory)
{
	const struct inspector_owner owner = {.tgid = 1, .job_id = "12345"};
	struct inspector_operation told[INSPECTOR_MAX_OPERATIONS];
	int dirfd = open(directory, O_RDONLY | O_DIRECTORY);
	struct rounds ms = {};
	struct prom *prom;

	prom__new(&prom, 1);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start;

		for (int i = 0; i < INSPECTOR_MAX_BUCKETS; i++) {
			operation->count = 8192 + i * 1024;
			if (inspector__operations(launch, told, omitted))
				inspector_gpu__add(gpu, &told[0], &owner);
		}
		start = now_ns();
		prom__reset(prom);
		inspector_gpu__text(gpus, gpu, prom);
		if (prom__publish(prom, dirfd, "nccl_inspector_metrics_x.prom"))
			die(directory, errno);
		rounds__add(&ms, (now_ns() - start) / 1e6);
	}
	rounds__print(&ms, "file_ms");
	close(dirfd);
	prom__free(prom);
}

int main(int argc, char **argv)
{
	struct timing_comm comm = launch_comm(8, 1, "DP Group 0");
	struct timing_operation operation = launch_operation(NCCL_OP_AllReduce, 4 << 20, 4);
	struct timing_launch launch = launch_of(&comm, &operation, 1, 100400);
	struct inspector_gpus gpus = {.node = "node17"};
	struct inspector_gpu *gpu = inspector_gpus__get(&gpus, comm.uuid, NULL);

	if (argc < 2)
		die("usage: bench_record DIRECTORY", EINVAL);
	launch__judge(&launch);
	line_ns("jsonl_ns", argv[1], &launch, with_jsonl);
	line_ns("jansson_ns", argv[1], &launch, with_jansson);
	line_ns("inspector_ns", argv[1], &launch, with_inspector);
	bucket_ns(&gpus, gpu, &launch);
	inspector_gpu__drop(gpu);
	operation.type_bytes = 1;
	file_ms(&gpus, gpu, &launch, &operation, argv[1]);
	inspector_gpus__free(&gpus);
	json_text__free(&text);
	return 0;
}
