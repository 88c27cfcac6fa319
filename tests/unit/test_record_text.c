/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Lines of a recording: byte for byte, and that a JSON reader takes them whatever jobs name things.
 */
#include "unit.h"

#include "../../src/nccl_api.c"
#include "../../src/utf8.c"
#include "../../src/json_text.c"
#include "../../src/timing_form.c"
#include "../../src/inspector.c"
#include "../../src/record_inspector.c"
#include "../../src/record_jsonl.c"

#include "unit_launch.h"

#include <jansson.h>

static const struct record_origin origin = {
	.host = "n0",
	.version = "nccl-bpftrace 0.2",
	.kernel = "6.18",
	.wall_offset_ns = 1700000000000000000,
	.now_ns = 2000000000,
};

static struct json_text json;
static char line[8192];

/* What was written since the last call, as a string. */
static const char *take(void)
{
	CHECK(!json.failed && json.len < sizeof(line));
	memcpy(line, json.data, json.len);
	line[json.len] = 0;
	json_text__free(&json);
	return line;
}

static json_t *parse(const char *text)
{
	json_error_t error;
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);

	if (!root)
		printf("FAIL %s: %s", error.text, text);
	CHECK(root);
	return root;
}

static struct timing_comm comm;
static struct timing_operation operation;

static struct timing_launch all_reduce(void)
{
	comm = launch_comm(8, 1, "DP Group 0");
	operation = launch_operation(NCCL_OP_AllReduce, 4 << 20, 4);
	return launch_of(&comm, &operation, 1, 100400);
}

#define INSPECTOR_HEAD                                                                             \
	"{\"header\":{\"id\":\"0x1122334455667788\",\"comm_name\":\"DP Group 0\",\"rank\":2,"      \
	"\"n_ranks\":8,\"nnodes\":1},"                                                             \
	"\"metadata\":{\"inspector_output_format_version\":\"v4.0\","                              \
	"\"git_rev\":\"nccl-bpftrace 0.2\",\"rec_mechanism\":\"nccl_profiler_interface\","         \
	"\"dump_timestamp_us\":1700000002000000,\"hostname\":\"n0\",\"pid\":4242},"

TEST(inspector_collective)
{
	struct timing_launch launch = all_reduce();
	uint64_t omitted[INSPECTOR_OMISSION_MAX] = {};

	CHECK_INT(record_inspector__launch(&json, &launch, &origin, omitted), 1);
	CHECK_STR(take(), INSPECTOR_HEAD
		  "\"coll_perf\":{\"coll\":\"AllReduce\",\"coll_sn\":40,"
		  "\"coll_msg_size_bytes\":16777216,\"coll_exec_time_us\":100,"
		  "\"coll_timing_source\":\"kernel_gpu\",\"coll_algobw_gbs\":167.103745,"
		  "\"coll_busbw_gbs\":292.431554,"
		  "\"event_trace_sn\":{\"coll_start_sn\":1,\"coll_stop_sn\":2,\"kernel_events\":["
		  "{\"channel_id\":-1,\"kernel_start_sn\":3,\"kernel_stop_sn\":5,"
		  "\"kernel_record_sn\":4}]},"
		  "\"event_trace_ts\":{\"coll_start_ts\":1700000001000000,"
		  "\"coll_stop_ts\":1700000001000002,\"kernel_events\":[{\"channel_id\":-1,"
		  "\"kernel_start_ts\":1700000001000010,\"kernel_stop_ts\":1700000001000110,"
		  "\"kernel_record_ts\":1700000001000110}]}}}\n");
}

TEST(inspector_send_and_receive)
{
	struct timing_launch launch = all_reduce();
	struct timing_operation both[2] = {launch_operation(NCCL_OP_Send, 8192, 1),
					   launch_operation(NCCL_OP_Recv, 16384, 1)};
	uint64_t omitted[INSPECTOR_OMISSION_MAX] = {};

	both[0].root = 3;
	both[1].root = 1;
	both[0].sequence = both[1].sequence = NBP_NO_NUMBER;
	both[1].number = 18;
	launch = launch_of(&comm, both, 2, 8192);
	launch.form = TIMING_PAIR;
	launch.gpu_start_ns = 0;
	CHECK_INT(record_inspector__launch(&json, &launch, &origin, omitted), 2);
	CHECK_STR(take(),
		  INSPECTOR_HEAD "\"p2p_perf\":{\"p2p\":\"Send\",\"p2p_sn\":17,\"p2p_peer\":3,"
				 "\"p2p_msg_size_bytes\":8192,\"p2p_exec_time_us\":8,"
				 "\"p2p_timing_source\":\"kernel_gpu\",\"p2p_algobw_gbs\":1.000000,"
				 "\"p2p_busbw_gbs\":1.000000}}\n" INSPECTOR_HEAD
				 "\"p2p_perf\":{\"p2p\":\"Recv\",\"p2p_sn\":18,\"p2p_peer\":1,"
				 "\"p2p_msg_size_bytes\":16384,\"p2p_exec_time_us\":8,"
				 "\"p2p_timing_source\":\"kernel_gpu\",\"p2p_algobw_gbs\":2.000000,"
				 "\"p2p_busbw_gbs\":2.000000}}\n");
}

TEST(inspector_leaves_out_what_is_not_timed)
{
	struct timing_launch launch = all_reduce();
	uint64_t omitted[INSPECTOR_OMISSION_MAX] = {};

	launch.timing = NBP_NOT_TIMED_BUDGET;
	CHECK_INT(record_inspector__launch(&json, &launch, &origin, omitted), 0);
	CHECK_INT(json.len, 0);
	CHECK_INT(omitted[INSPECTOR_NOT_TIMED], 1);
}

#define OURS_HEAD                                                                                  \
	"{\"kind\":\"launch\",\"pid\":4242,\"job_id\":\"12345\",\"comm\":\"1122334455667788\","    \
	"\"rank\":2,\"nranks\":8,\"comm_name\":\"DP Group 0\",\"n_nodes\":1,"                      \
	"\"uuid\":\"GPU-00112233-4455-6677-8899-aabbccddeeff\",\"stream\":\"0x7f00\","             \
	"\"launch\":5,\"launch_ns\":1000002000,"

TEST(our_launch)
{
	struct timing_launch launch = all_reduce();

	launch__judge(&launch);
	record_jsonl__launch(&json, &launch, "12345");
	CHECK_STR(take(), OURS_HEAD
		  "\"duration_ns\":100400,\"timing\":\"timed\",\"sampled\":true,"
		  "\"source\":\"cuda_event\","
		  "\"gpu_start_ns\":1000010000,\"gpu_end_ns\":1000110400,\"clock_error_ns\":900,"
		  "\"captured\":\"no\",\"complete\":true,\"form\":\"one\","
		  "\"operation\":\"AllReduce\",\"bytes\":16777216,\"bus_bytes\":29360128.000000,"
		  "\"n_operations\":1,\"operations\":[{\"operation\":\"AllReduce\",\"number\":17,"
		  "\"sequence\":40,\"count\":4194304,\"datatype\":7,\"type_bytes\":4,"
		  "\"root\":null,\"algorithm\":\"RING\",\"protocol\":\"LL128\",\"channels\":8,"
		  "\"call_ns\":1000000000}]}\n");
}

TEST(our_launch_that_was_not_timed)
{
	struct timing_launch launch = all_reduce();

	launch.timing = NBP_NOT_TIMED_CAPTURING;
	launch.source = NBP_SOURCE_NONE;
	launch.duration_ns = launch.gpu_start_ns = launch.gpu_end_ns = 0;
	launch.capture = NBP_CAPTURED_YES;
	launch.complete = false;
	launch.n_operations = 3;
	operation.algorithm = operation.protocol = NBP_UNKNOWN_U8;
	operation.sequence = NBP_NO_NUMBER;
	operation.n_channels = operation.type_bytes = 0;
	operation.datatype = NBP_UNKNOWN;
	operation.operation = NCCL_OP_Send;
	operation.root = 1;
	record_jsonl__launch(&json, &launch, "12345");
	CHECK_STR(take(), OURS_HEAD
		  "\"duration_ns\":null,\"timing\":\"capturing\",\"sampled\":null,\"source\":null,"
		  "\"gpu_start_ns\":null,\"gpu_end_ns\":null,\"clock_error_ns\":null,"
		  "\"captured\":\"yes\",\"complete\":false,\"form\":null,\"operation\":null,"
		  "\"bytes\":null,\"bus_bytes\":null,\"n_operations\":3,\"operations\":["
		  "{\"operation\":\"Send\",\"number\":17,\"sequence\":null,\"count\":4194304,"
		  "\"datatype\":null,\"type_bytes\":null,\"peer\":1,\"algorithm\":null,"
		  "\"protocol\":null,\"channels\":null,\"call_ns\":1000000000}]}\n");
}

TEST(our_call)
{
	struct nb_record record = {
		.kind = NB_KIND_CALL,
		.tgid = 4242,
		.tid = 4243,
		.time_ns = 1000000000,
		.function = NCCL_FN_AllReduce,
		.comm = 0x5000,
		.comm_hash = 0xabc,
		.rank = -1,
		.n_ranks = 0,
		.count = 100,
		.stream = 0x7f00,
		.sequence = NB_NO_SEQUENCE,
		.datatype = 7,
		.redop = 2,
		.root = -1,
	};

	record_jsonl__call(&json, &record, "");
	CHECK_STR(take(), "{\"kind\":\"call\",\"pid\":4242,\"job_id\":null,"
			  "\"comm\":\"0000000000000abc\",\"rank\":null,\"nranks\":null,"
			  "\"tid\":4243,\"stream\":\"0x7f00\",\"call_ns\":1000000000,"
			  "\"operation\":\"AllReduce\",\"function\":\"ncclAllReduce\","
			  "\"sequence\":null,\"count\":100,\"datatype\":7,\"type_bytes\":4,"
			  "\"redop\":2,\"root\":null}\n");
	record.function = NCCL_FN_WaitSignal;
	record.comm_hash = 0;
	record_jsonl__call(&json, &record, NULL);
	CHECK(strstr(take(), "\"comm\":null,"));
	CHECK(strstr(line, "\"count\":null,\"datatype\":null,\"type_bytes\":null,\"redop\":null,"));
}

TEST(our_first_and_last_line)
{
	const struct record_count lost[] = {{"ring_full", 3}, {"bad_record", 0}, {}};
	const struct record_totals totals = {
		.launches = 10, .operations = 12, .timed = 4, .calls = 7, .lost = lost};

	record_jsonl__begin(&json, &origin);
	record_jsonl__clock(&json, &origin);
	record_jsonl__end(&json, &origin, &totals);
	CHECK_STR(take(),
		  "{\"kind\":\"begin\",\"schema\":\"nccl-bpftrace/record/1\",\"host\":\"n0\","
		  "\"version\":\"nccl-bpftrace 0.2\",\"kernel\":\"6.18\","
		  "\"monotonic_ns\":2000000000,\"wall_offset_ns\":1700000000000000000}\n"
		  "{\"kind\":\"clock\",\"monotonic_ns\":2000000000,"
		  "\"wall_offset_ns\":1700000000000000000}\n"
		  "{\"kind\":\"end\",\"monotonic_ns\":2000000000,"
		  "\"wall_offset_ns\":1700000000000000000,\"launches\":10,\"operations\":12,"
		  "\"timed\":4,\"calls\":7,\"lost\":{\"ring_full\":3,\"bad_record\":0},"
		  "\"invalid\":{}}\n");
}

/* X3: whatever a job calls its communicator, each line is one line and can be read. */
TEST(hostile_names)
{
	static const char *const names[] = {
		"\"},{\"kind\":\"end\"",
		"a\\",
		"a\nb\r\t\x01\x1b[2J",
		"\xff\xfe\xc0\xaf",
		"\xed\xa0\x80",
		"\xe2\x82",
		"\x7f\xc2\x9b",
		"Gr\xc3\xb6\xc3\x9f"
		"e \xe2\x82\xac",
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++) {
		struct timing_launch launch = all_reduce();
		uint64_t omitted[INSPECTOR_OMISSION_MAX] = {};
		json_t *root;

		snprintf(comm.name, sizeof(comm.name), "%s", names[i]);
		record_jsonl__launch(&json, &launch, "1");
		record_inspector__launch(&json, &launch, &origin, omitted);
		take();
		CHECK(strchr(line, '\n') && strchr(strchr(line, '\n') + 1, '\n')[1] == 0);
		for (const char *at = line; *at; at++)
			CHECK((unsigned char)*at >= 0x20 || *at == '\n');
		root = parse(strtok(line, "\n"));
		if (i == 7)
			CHECK_STR(json_string_value(json_object_get(root, "comm_name")), names[7]);
		json_decref(root);
		json_decref(parse(strtok(NULL, "\n")));
	}
}

TEST(numbers_at_their_ends)
{
	json_t *root;

	json_text__open(&json, NULL, '{');
	json_text__u64(&json, "a", 0);
	json_text__u64(&json, "b", INT64_MAX);
	json_text__i64(&json, "c", INT64_MIN);
	json_text__hex(&json, "d", "0x", UINT64_MAX, 1);
	json_text__fixed(&json, "e", 1e308);
	json_text__fixed(&json, "f", 0.0 / 0.0);
	json_text__bool(&json, "g", false);
	json_text__string(&json, "h", "");
	json_text__close(&json, '}');
	root = parse(take());
	CHECK(json_integer_value(json_object_get(root, "b")) == INT64_MAX);
	CHECK(json_integer_value(json_object_get(root, "c")) == INT64_MIN);
	CHECK_STR(json_string_value(json_object_get(root, "d")), "0xffffffffffffffff");
	CHECK(json_real_value(json_object_get(root, "e")) == 1e308);
	CHECK(json_is_null(json_object_get(root, "f")));
	CHECK(json_is_false(json_object_get(root, "g")));
	json_decref(root);
}

TEST(a_thousand_operations_are_one_line)
{
	static struct timing_operation many[TIMING_MAX_OPERATIONS];
	struct timing_launch launch = all_reduce();
	json_t *root;
	char *text;

	for (int i = 0; i < TIMING_MAX_OPERATIONS; i++)
		many[i] = launch_operation(NCCL_OP_Send, UINT64_MAX, 8);
	launch = launch_of(&comm, many, TIMING_MAX_OPERATIONS, 1);
	launch__judge(&launch);
	record_jsonl__launch(&json, &launch, "1");
	text = strndup(json.data, json.len);
	CHECK(strchr(text, '\n') == text + json.len - 1);
	text[json.len - 1] = 0;
	/* counts of 2^64 - 1 are JSON, but jansson has no such integer */
	for (char *at = text; (at = strstr(at, "18446744073709551615")); at++)
		at[0] = at[1] = '9';
	for (char *at = text; (at = strstr(at, "99446744073709551615")); at++)
		memcpy(at, "9                   ", 20);
	root = parse(text);
	CHECK_INT(json_array_size(json_object_get(root, "operations")), TIMING_MAX_OPERATIONS);
	json_decref(root);
	free(text);
	json_text__free(&json);
}

UNIT_MAIN()
