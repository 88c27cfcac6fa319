/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "textfile_file.h"

TEST(a_rank_is_all_there)
{
	struct tracer *tracer = tracer_new();
	struct process *process = stub_process(tracer, 77, "train \"x\"");
	struct comm *comm = stub_calls(tracer, 77, 0xc0ffee, 3, NCCL_FN_AllReduce, 10);

	comm->bus_id = 2;
	strcpy(comm->name, "tp\n0");
	strcpy(process->info.job.job_id, "1234");
	strcpy(process->info.job.step, "0");
	strcpy(process->info.job.local_rank, "1");
	strcpy(process->info.job.namespace, "research");
	strcpy(process->info.job.pod, "llm");
	strcpy(process->info.job.container, "trainer");
	tracer->census = (struct tracer_census){.traced = 1, .unsupported = 2};
	tracer->lost[NB_LOST_RING_FULL] = 5;
	tracer->received = 10;
	write_once(tracer, BIG_CAP, NULL);
#define J "{job_id=\"1234\",UUID=\"GPU-0002\""
#define C J ",comm=\"0000000000c0ffee\",rank=\"3\""
	CHECK(has("nccl_bpftrace_build_info{version=\"" NCCL_BPFTRACE_VERSION "\",libbpf=\"1.1\""));
	CHECK(has("\nnccl_bpftrace_processes{state=\"traced\"} 1\n"));
	CHECK(has("\nnccl_bpftrace_processes{state=\"plugin\"} 0\n"));
	CHECK(has("\nnccl_bpftrace_processes{state=\"unsupported\"} 2\n"));
	CHECK(has("\nnccl_bpftrace_events_total 10\n"));
	CHECK(has("\nnccl_bpftrace_events_lost_total{reason=\"ring_full\"} 5\n"));
	CHECK(has("\nnccl_bpftrace_events_lost_total{reason=\"bad_record\"} 0\n"));
	CHECK(has(
		"\nnccl_bpftrace_process_info" J
		",pid=\"77\",namespace=\"research\",pod=\"llm\",container=\"trainer\",slurm_step=\"0\","
		"local_rank=\"1\",command=\"train \\\"x\\\"\",nccl_version=\"2.28.9\","
		"plugin=\"absent\"} 1\n"));
	CHECK(has("\nnccl_communicator_info" C
		  ",comm_name=\"tp\\n0\",nranks=\"8\",n_nodes=\"\",pid=\"77\",node=\"node17\","
		  "gpu=\"2\",identity=\"recovered\",timing=\"none\"} 1\n"));
	CHECK(has("\nnccl_operations_total" C ",operation=\"AllReduce\",mode=\"launched\"} 10\n"));
	CHECK(has("\nnccl_operation_bytes_total" C
		  ",operation=\"AllReduce\",mode=\"launched\"} 10000\n"));
	CHECK(has("\nnccl_operation_sequence" C ",operation=\"AllReduce\"} 42\n"));
	CHECK(has("\nnccl_operation_signature" C ",operation=\"AllReduce\"} "));
	CHECK(has("\nnccl_last_operation_timestamp_seconds" C "} "));
	CHECK(!strstr(text, "AllGather"));
	CHECK(!strstr(text, "cluster="));
	CHECK(!strstr(text, "nan") && !strstr(text, "inf\n"));
	CHECK_INT(count_series(), 7);
	tracer_free(tracer);
}

TEST(what_is_not_known_is_empty)
{
	struct tracer *tracer = tracer_new();
	struct comm *comm = stub_calls(tracer, 5, 0, -1, NCCL_FN_AllGather, 3);

	comm->n_ranks = 0; /* then the bytes of an AllGather are not known */
	write_once(tracer, BIG_CAP, NULL);
	CHECK(has("\nnccl_operations_total{job_id=\"\",UUID=\"\",comm=\"unknown-5-1\",rank=\"\","
		  "operation=\"AllGather\",mode=\"launched\"} 3\n"));
	CHECK(has(",comm_name=\"\",nranks=\"\",n_nodes=\"\",pid=\"5\",node=\"node17\",gpu=\"\","
		  "identity=\"unknown\",timing=\"none\"} 1\n"));
	CHECK(!strstr(text, "nccl_operation_bytes_total"));
	tracer_free(tracer);
}

TEST(fork_copies_are_left_out_until_they_call)
{
	struct tracer *tracer = tracer_new();
	struct process *process = stub_process(tracer, 5, "worker");

	process->is_fork_copy = true;
	stub_calls(tracer, 5, 1, 0, NCCL_FN_AllReduce, 3);
	write_once(tracer, BIG_CAP, NULL);
	CHECK(!strstr(text, "worker") && !strstr(text, "nccl_communicator_info"));
	process->has_called = true;
	write_once(tracer, BIG_CAP, NULL);
	CHECK(strstr(text, "worker") && strstr(text, "nccl_communicator_info"));
	tracer_free(tracer);
}

TEST(only_nccl_processes_are_listed)
{
	struct tracer *tracer = tracer_new();

	stub_process(tracer, 5, "no_nccl")->n_mappings = 0;
	stub_process(tracer, 6, "no_gpu");
	write_once(tracer, BIG_CAP, NULL);
	CHECK(!strstr(text, "no_nccl"));
	CHECK(has("nccl_bpftrace_process_info{job_id=\"\",UUID=\"\",pid=\"6\""));
	tracer_free(tracer);
}

/* One process with several GPUs: one series for each, none without. */
TEST(every_gpu_of_a_process_once)
{
	struct tracer *tracer = tracer_new();

	stub_process(tracer, 9, "many");
	for (int i = 0; i < 6; i++)
		stub_calls(tracer, 9, 100 + i, i, NCCL_FN_AllReduce, 1)->bus_id = i % 3;
	stub_calls(tracer, 9, 110, 0, NCCL_FN_AllReduce, 1); /* GPU not known */
	write_once(tracer, BIG_CAP, NULL);
	CHECK_INT(count_of(text, "nccl_bpftrace_process_info{"), 3);
	CHECK(!strstr(text, "nccl_bpftrace_process_info{job_id=\"\",UUID=\"\""));
	count_series();
	tracer_free(tracer);
}

TEST(no_series_twice)
{
	struct tracer *tracer = tracer_new();
	struct comm *old = stub_calls(tracer, 5, 0, -1, NCCL_FN_AllReduce, 3);
	struct comm *other;
	struct nb_key key = {.comm = 0x9999, .tgid = 6, .rank = -1, .function = NCCL_FN_AllReduce};
	struct nb_counter counter = {.launched.calls = 8, .first_ns = 1, .last_ns = 2};

	other = comms__count(tracer->comms, &key, &counter);
	strcpy(other->label, old->label); /* as when a process number came back */
	old->dead_ns = 1;
	write_once(tracer, BIG_CAP, NULL);
	CHECK(has("operation=\"AllReduce\",mode=\"launched\"} 8\n"));
	CHECK(!strstr(text, "mode=\"launched\"} 3\n"));
	CHECK(strstr(text, "nccl_bpftrace_series_suppressed_total ") &&
	      !strstr(text, "nccl_bpftrace_series_suppressed_total 0\n"));
	count_series();
	tracer_free(tracer);
}

TEST(the_cap_leaves_out_whole_ranks)
{
	struct tracer *tracer = tracer_new();

	stub_process(tracer, 9, "many");
	for (int i = 0; i < 100; i++)
		stub_calls(tracer, 9, 100 + i, 0, NCCL_FN_AllReduce, 1);
	write_once(tracer, 50, NULL);
	/* one for the process, 6 each for 8 communicators; 92 left out */
	CHECK_INT(count_of(text, "nccl_communicator_info{"), 8);
	CHECK_INT(count_of(text, "nccl_operations_total{"), 8);
	CHECK_INT(count_of(text, "nccl_last_operation_timestamp_seconds{"), 8);
	CHECK(has("\nnccl_bpftrace_series_suppressed_total 552\n"));
	CHECK_INT(count_series(), 49);
	tracer_free(tracer);
}

TEST(cluster_is_the_option_else_the_jobs)
{
	struct tracer *tracer = tracer_new();
	struct process *process = stub_process(tracer, 9, "a");

	strcpy(process->info.job.cluster, "theirs");
	write_once(tracer, BIG_CAP, NULL);
	CHECK(has("nccl_bpftrace_process_info{cluster=\"theirs\",job_id"));
	CHECK(has("nccl_bpftrace_processes{state=\"traced\"}"));
	write_once(tracer, BIG_CAP, "ours");
	CHECK(has("nccl_bpftrace_process_info{cluster=\"ours\",job_id"));
	CHECK(has("nccl_bpftrace_processes{cluster=\"ours\",state=\"traced\"}"));
	CHECK(!strstr(text, "theirs"));
	tracer_free(tracer);
}

/* The contract's budget is 400 series for one GPU. */
TEST(budget_of_series)
{
	static const uint16_t functions[] = {NCCL_FN_AllReduce, NCCL_FN_AllGather,
					     NCCL_FN_ReduceScatter, NCCL_FN_Broadcast,
					     NCCL_FN_Send};
	struct tracer *tracer = tracer_new();
	size_t n;

	stub_process(tracer, 9, "train");
	for (int i = 0; i < 6; i++)
		for (size_t j = 0; j < ARRAY_SIZE(functions); j++)
			stub_calls(tracer, 9, 100 + i, 0, functions[j], 5)->bus_id = 0;
	write_once(tracer, BIG_CAP, NULL);
	n = count_series();
	printf("6 communicators x 5 operations on one GPU: %zu series\n", n);
	CHECK(n <= 150);
	tracer_free(tracer);
}

TEST(times_stand_still)
{
	struct tracer *tracer = tracer_new();
	struct textfile *tf = NULL;
	char first[64];
	const char *line;

	make_dir();
	CHECK_INT(textfile__new(&tf, dir, BIG_CAP, NULL), 0);
	stub_calls(tracer, 9, 1, 0, NCCL_FN_AllReduce, 5)->last_ns = now_ns() - NSEC_PER_SEC;
	for (int i = 0; i < 50; i++) {
		CHECK_INT(textfile__write(tf, tracer), 0);
		read_file();
		line = strstr(text, "\nnccl_last_operation_timestamp_seconds{");
		line = line ? strchr(line, '}') : "";
		if (!i)
			snprintf(first, sizeof(first), "%.40s", line);
		CHECK(!strncmp(first, line, strcspn(line, "\n")));
	}
	CHECK(time(NULL) - atof(first + 2) < 5 && time(NULL) - atof(first + 2) >= 0);
	textfile__free(tf);
	remove_dir();
	tracer_free(tracer);
}

TEST(directories)
{
	struct textfile *tf = NULL;
	char left[160];
	int fd;

	CHECK_INT(textfile__new(&tf, "/no/such", 10, NULL), -ENOENT);
	CHECK_INT(textfile__new(&tf, "/dev/null", 10, NULL), -ENOTDIR);
	CHECK(!tf);
	make_dir();
	snprintf(left, sizeof(left), "%s/.%s.%d.tmp", dir, PROM_FILE_NAME, getpid());
	fd = open(left, O_CREAT | O_WRONLY, 0600);
	CHECK(fd >= 0 && !close(fd));
	CHECK_INT(textfile__new(&tf, dir, 10, NULL), 0);
	CHECK(access(left, F_OK));
	CHECK(!textfile__warning(tf));
	textfile__free(tf);
	chmod(dir, 0777);
	CHECK_INT(textfile__new(&tf, dir, 10, NULL), 0);
	CHECK(textfile__warning(tf) != NULL);
	textfile__free(tf);
	chmod(dir, 01777);
	CHECK_INT(textfile__new(&tf, dir, 10, NULL), 0);
	CHECK(!textfile__warning(tf));
	textfile__free(tf);
	remove_dir();
}

TEST(one_agent_a_directory)
{
	struct textfile *first = NULL, *second = NULL;

	make_dir();
	CHECK_INT(textfile__new(&first, dir, 100, NULL), 0);
	CHECK_INT(textfile__new(&second, dir, 100, NULL), -EBUSY);
	CHECK(second == NULL);
	textfile__free(first);
	CHECK_INT(textfile__new(&second, dir, 100, NULL), 0);
	textfile__free(second);
	CHECK_INT(rmdir(dir), 0); /* nothing stays behind */
}

TEST(a_failed_write_is_told_and_tried_again)
{
	struct tracer *tracer = tracer_new();
	struct textfile *tf = NULL;

	make_dir();
	CHECK_INT(textfile__new(&tf, dir, 10, NULL), 0);
	remove_dir();
	CHECK_INT(textfile__write(tf, tracer), -ENOENT);
	CHECK_INT(textfile__write(tf, tracer), -ENOENT);
	/* made anew, it is written to again */
	CHECK_INT(mkdir(dir, 0755), 0);
	CHECK_INT(textfile__write(tf, tracer), 0);
	CHECK(read_file() > 0);
	remove_dir();
	textfile__free(tf);
	tracer_free(tracer);
}

TEST(promtool_finds_nothing)
{
	struct tracer *tracer = tracer_new();

	stub_process(tracer, 9, "\xff\"\\\n");
	stub_calls(tracer, 9, 1, 0, NCCL_FN_AllReduce, 5)->bus_id = 0;
	write_once(tracer, BIG_CAP, NULL);
	check_with_promtool();
	tracer_free(tracer);
}

UNIT_MAIN()
