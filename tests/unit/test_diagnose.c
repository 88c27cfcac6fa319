/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What `diagnose` says of verdicts that are made by hand, and of what the judge holds. */
#include <jansson.h>
#include <signal.h>
#include <sys/syscall.h>

#include "unit.h"

#include "../../src/cmd_diagnose_json.c"
#include "../../src/cmd_diagnose_rank.c"
#include "../../src/cmd_diagnose_take.c"
#include "../../src/cmd_diagnose_text.c"
#include "../../src/comm.c"
#include "../../src/comm_graph.c"
#include "../../src/comm_owner.c"
#include "../../src/comm_plugin.c"
#include "../../src/comm_query.c"
#include "../../src/nccl_api.c"
#include "../../src/procstate_parse.c"
#include "../../src/procstate_syscall.c"
#include "../../src/sanitize.c"
#include "../../src/screen_text.c"
#include "../../src/utf8.c"
#include "../../src/wrapped.c"
#include "verdict_sources.h"

#include "stub_tracer.h"

const char *command__not_known(const struct process *process)
{
	return process->scan_err ? "its memory cannot be read" : NULL;
}

#define SEC	    NSEC_PER_SEC
#define BEGUN	    (1000 * SEC)
#define NOW	    (BEGUN + 10 * SEC)
#define WALL_OFFSET ((int64_t)(1700000000 * SEC - NOW)) /* 22:13:20 UTC */
#define HASH	    0x2f74544dd51c3504ULL
#define OUTPUT_MAX  16384

/* A diagnosis of one communicator of eight ranks. */
struct fixture {
	struct diagnosis d;
	struct diagnosis_comm comms[2];
	struct diagnosis_rank ranks[8];
	struct diagnosis_look look;
	struct diagnosis_unseen unseen;
	char text[OUTPUT_MAX];
};

static void fixture__begin(struct fixture *f)
{
	setenv("TZ", "UTC", 1);
	memset(f, 0, sizeof(*f));
	f->d = (struct diagnosis){
		.host = "node17",
		.begun_ns = BEGUN - SEC,
		.settled_ns = BEGUN,
		.now_ns = NOW,
		.wall_offset_ns = WALL_OFFSET,
		.n_processes = 8,
		.comms = f->comms,
		.n_comms = 1,
		.unseen = &f->unseen,
	};
	f->comms[0] = (struct diagnosis_comm){
		.hash = HASH,
		.label = "2f74544dd51c3504",
		.name = "world",
		.n_ranks = 8,
		.verdict = {.operation = NCCL_OP_MAX, .sequence = VERDICT_NO_SEQUENCE},
		.ranks = f->ranks,
		.n_local = 8,
	};
	for (int i = 0; i < 8; i++) {
		f->ranks[i] = (struct diagnosis_rank){
			.rank = i,
			.tgid = 100 + i,
			.command = "python3",
			.gpu = i,
			.last_operation = NCCL_OP_AllReduce,
			.last_sequence = 4711,
			.last_ns = NOW - 5 * SEC,
		};
		snprintf(f->ranks[i].uuid, sizeof(f->ranks[i].uuid), "GPU-%d", i);
	}
}

/* Rank 3 has been stopped, 74 s ago. */
static void fixture__stuck(struct fixture *f)
{
	struct verdict *v = &f->comms[0].verdict;

	fixture__begin(f);
	f->d.settled_ns = NOW - 100 * SEC;
	f->comms[0].now = v->state = VERDICT_STUCK;
	v->cause = VERDICT_MISSING_CALL;
	v->operation = NCCL_OP_AllReduce;
	v->sequence = 4711;
	v->since_ns = NOW - 74 * SEC;
	strcpy(v->why, "Rank 3 has not called AllReduce 4711.");
	strcpy(v->evidence[0], "Rank 3 stands at AllReduce 4710, the others at 4711.");
	v->n_evidence = 1;
	v->culprits = (struct verdict_named){.ranks = {3}, .n = 1};
	v->waiting = (struct verdict_named){.ranks = {0, 1, 2, 4, 5, 6, 7}, .n = 7};
	for (int i = 0; i < 8; i++) {
		f->ranks[i].is_culprit = i == 3;
		f->ranks[i].is_waiting = i != 3;
	}
	f->ranks[3].last_sequence = 4710;
	f->ranks[3].last_ns = NOW - 75 * SEC;
	f->look.tgid = 103;
	f->look.state.main = (struct procstate_task){
		.tid = 103, .state = 'T', .name = "python3", .syscall = SYS_futex};
	f->look.state.stop_signal = SIGSTOP;
	f->look.state.n_threads = 40;
	f->ranks[3].look = &f->look;
}

static const char *print(struct fixture *f)
{
	FILE *out = fmemopen(f->text, sizeof(f->text), "w");

	diagnosis__print(&f->d, out, "on this node");
	fclose(out);
	return f->text;
}

/* Wherever lines were broken. */
static bool says(struct fixture *f, const char *sentence)
{
	size_t len = 0;
	char *flat = print(f) ? strdup(f->text) : NULL;
	bool found;

	for (const char *c = f->text; *c; c++)
		if ((*c != ' ' && *c != '\n') || (len && flat[len - 1] != ' '))
			flat[len++] = *c == '\n' ? ' ' : *c;
	flat[len] = 0;
	found = strstr(flat, sentence);
	if (!found)
		printf("%s", f->text);
	free(flat);
	return found;
}

/* The object, the caller's to free. */
static json_t *print_json(struct fixture *f)
{
	FILE *out = fmemopen(f->text, sizeof(f->text), "w");
	json_error_t error;
	json_t *root;

	diagnosis__print_json(&f->d, out);
	fclose(out);
	root = json_loads(f->text, 0, &error);
	if (!root)
		printf("FAIL %s\n", error.text);
	CHECK(root);
	return root;
}

static const char *json_text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key)) ?: "(none)";
}

TEST(stuck)
{
	struct fixture f;

	fixture__stuck(&f);
	CHECK_STR(print(&f),
		  "STUCK     comm 2f74544dd51c3504 \"world\" (8 ranks, 8 here), for 74s\n"
		  "          Rank 3 has not called AllReduce 4711.\n"
		  "          since 22:12:06\n"
		  "          rank 3: pid 103 python3, GPU 3 (GPU-3), stopped (SIGSTOP)\n"
		  "          evidence:\n"
		  "            Rank 3 stands at AllReduce 4710, the others at 4711.\n"
		  "          next: kill -CONT 103 lets it go on; who stopped it?\n"
		  "8 NCCL processes, 1 communicator: 1 stuck; watched 100s on node17\n");
	CHECK_INT(diagnosis__exit_status(&f.d), 4);
}

TEST(stuck_since_before_the_watch)
{
	struct fixture f;

	fixture__stuck(&f);
	f.d.settled_ns = NOW - 60 * SEC;
	f.ranks[3].last_ns = 0;
	f.comms[0].verdict.n_evidence = 0;
	CHECK(says(&f, "8 here), for at least 74s "));
	CHECK(says(&f, "since 22:12:06 or before "));
	CHECK(says(&f, "last call AllReduce 4710, before this watch "));
}

TEST(first_sight_is_no_beginning)
{
	struct fixture f;

	fixture__stuck(&f);
	for (int i = 0; i < 8; i++)
		f.ranks[i].last_ns = 0;
	CHECK(says(&f, "for at least 74s"));
	f.ranks[7].last_ns = NOW - 74 * SEC; /* one was seen to call and to wait since */
	CHECK(says(&f, "8 here), for 74s"));
}

TEST(another_day_is_named)
{
	struct fixture f;

	fixture__stuck(&f);
	f.d.now_ns += 86400 * SEC;
	CHECK(says(&f, "2023-11-14 22:12:06"));
}

TEST(advice_goes_by_what_the_process_does)
{
	static const struct {
		char state;
		const char *wait, *advice;
	} cases[] = {
		{'S', "", "next: look at pid 103 (py-spy dump --pid 103, or gdb -p 103)"},
		{'R', "", "next: look at pid 103 (py-spy dump --pid 103, or gdb -p 103)"},
		{'t', "", "next: process 77 holds it"},
		{'D', "", "next: cat /proc/103/stack; dmesg"},
		{'S', "do_freezer_trap", "next: thaw its cgroup (see /proc/103/cgroup)"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct fixture f;

		fixture__stuck(&f);
		f.look.state.main.state = cases[i].state;
		f.look.state.tracer_pid = 77;
		strcpy(f.look.state.main.wait, cases[i].wait);
		CHECK(says(&f, cases[i].advice));
	}
}

TEST(what_proc_did_not_tell)
{
	static const struct {
		int status;
		const char *text;
	} cases[] = {
		{-ESRCH, "its process has ended"},
		{-ETIMEDOUT, "/proc did not answer in time"},
		{-EPERM, "/proc tells nothing of it"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct fixture f;

		fixture__stuck(&f);
		f.look.status = cases[i].status;
		f.ranks[3].command[0] = f.ranks[3].uuid[0] = 0;
		f.ranks[3].gpu = -1;
		CHECK(says(&f, "rank 3: pid 103, "));
		CHECK(says(&f, cases[i].text));
		CHECK(says(&f, "py-spy dump --pid 103"));
	}
}

TEST(a_process_that_ended)
{
	struct fixture f;

	fixture__stuck(&f);
	f.comms[0].verdict.cause = VERDICT_ENDED;
	f.ranks[3].look = NULL;
	f.ranks[3].ended = true;
	CHECK(says(&f, "its process has ended evidence:"));
	CHECK(says(&f, "next: why it ended:"));
	CHECK(!diagnosis_comm__next(&f.d, &f.comms[0]));
}

TEST(who_waits_elsewhere_leads_there)
{
	struct diagnosis_rank others[2] = {
		{.rank = 0, .tgid = 103, .is_waiting = true, .gpu = -1},
		{.rank = 1, .tgid = 200, .is_culprit = true, .gpu = -1},
	};
	struct fixture f;

	fixture__stuck(&f);
	f.comms[1] = f.comms[0];
	f.comms[1].ranks = others;
	f.comms[1].n_local = 2;
	f.d.n_comms = 2;
	CHECK_INT(diagnosis_comm__next(&f.d, &f.comms[0])->tgid, 200);
	CHECK_INT(diagnosis_comm__next(&f.d, &f.comms[1])->tgid, 200);
	others[1].tgid = 102; /* which waits for 103: a circle */
	CHECK_INT(diagnosis_comm__next(&f.d, &f.comms[0])->tgid, 103);
	CHECK_INT(diagnosis_comm__next(&f.d, &f.comms[1])->tgid, 102);
}

TEST(threads)
{
	struct fixture f;

	fixture__stuck(&f);
	f.look.state.main.state = 'S';
	f.look.state.caller = (struct procstate_task){.tid = 120,
						      .state = 'D',
						      .name = "loader\033",
						      .syscall = SYS_read,
						      .file = "/mnt/shard",
						      .wait = "nfs_wait"};
	f.look.state.n_uninterruptible = 2;
	CHECK(says(&f, "sleeping in futex; its"));
	CHECK(says(&f, "thread 120 loader?, which called last, is uninterruptible in read"));
	CHECK(says(&f, "of /mnt/shard (nfs_wait); 2 of 40 threads uninterruptible"));
	f.look.state.main.state = 'D';
	f.look.state.n_uninterruptible = 1;
	CHECK(!strstr(print(&f), "threads uninterruptible"));
}

TEST(on_the_gpu)
{
	struct fixture f;

	fixture__stuck(&f);
	f.comms[0].verdict.cause = VERDICT_GPU_NOT_STARTED;
	f.comms[0].verdict.n_evidence = 0;
	f.look.state.main.state = 'S';
	f.ranks[3].in_flight = (struct verdict_gpu){
		.n_in_flight = 4,
		.operation = NCCL_OP_AllReduce,
		.sequence = 4711,
		.launch_ns = NOW - 74 * SEC,
		.start_known = true,
	};
	CHECK(says(&f, "on its GPU: AllReduce 4711, launched 74s ago, not started"));
	CHECK(says(&f, "next: nvidia-smi -i 3; dmesg | grep -i xid; then pid 103"));
}

TEST(no_gpu_gets_it_done)
{
	struct fixture f;

	fixture__stuck(&f);
	f.comms[0].verdict.cause = VERDICT_GPU_NOT_DONE;
	f.comms[0].verdict.culprits.n = 0;
	CHECK(says(&f, "next: dmesg | grep -i xid; nvidia-smi nvlink -s; the error counters of"));
}

TEST(nobody_named_means_every_rank)
{
	struct fixture f;

	fixture__stuck(&f);
	f.comms[0].verdict.culprits.n = 0;
	f.comms[0].verdict.cause = VERDICT_ELSEWHERE;
	for (int i = 0; i < 8; i++) {
		char want[64];

		snprintf(want, sizeof(want), "          rank %d: pid %d ", i, 100 + i);
		CHECK(strstr(print(&f), want));
	}
	CHECK(says(&f, "next: the same command on the nodes of the other ranks "));
}

TEST(many_ranks_are_not_listed)
{
	struct diagnosis_rank ranks[64];
	struct fixture f;

	fixture__stuck(&f);
	for (int i = 0; i < 64; i++) {
		ranks[i] = f.ranks[0];
		ranks[i].rank = i;
	}
	f.comms[0].verdict.culprits.n = 0;
	f.comms[0].ranks = ranks;
	f.comms[0].n_local = 64;
	CHECK(says(&f, "rank 7: "));
	CHECK(!strstr(f.text, "rank 8: "));
	CHECK(says(&f, "and 56 more ranks: --json tells of all"));
	f.comms[0].verdict.state = VERDICT_DEGRADED_SIGHT; /* it is about none of them */
	CHECK(!strstr(print(&f), "rank 0: "));
	CHECK(says(&f, "next: again, with a larger --ring-size"));
	CHECK(!diagnosis_comm__next(&f.d, &f.comms[0]));
}

TEST(fine_ones_are_one_line)
{
	struct fixture f;

	fixture__begin(&f);
	f.comms[1] = f.comms[0];
	f.comms[1].verdict.state = VERDICT_IDLE;
	f.comms[1].name[0] = 0;
	f.comms[1].n_ranks = f.comms[1].n_local = 1;
	f.d.n_comms = 2;
	CHECK_STR(print(&f),
		  "healthy   comm 2f74544dd51c3504 \"world\" (8 ranks, 8 here)\n"
		  "idle      comm 2f74544dd51c3504 (1 rank, 1 here)\n"
		  "8 NCCL processes, 2 communicators: 1 healthy, 1 idle; watched 10s on node17\n");
	CHECK_INT(diagnosis__exit_status(&f.d), 0);
	CHECK_INT(diagnosis__state(&f.d), VERDICT_HEALTHY);
}

TEST(no_process)
{
	struct fixture f;
	json_t *root;

	fixture__begin(&f);
	f.d.n_comms = f.d.n_processes = 0;
	CHECK_STR(print(&f), "no NCCL process on this node; watched 10s on node17\n");
	CHECK_INT(diagnosis__exit_status(&f.d), 0);
	root = print_json(&f);
	CHECK(json_is_null(json_object_get(root, "state")));
	CHECK_INT(json_array_size(json_object_get(root, "communicators")), 0);
	json_decref(root);
}

TEST(what_is_not_seen)
{
	struct fixture f;

	fixture__begin(&f);
	f.d.n_unseen = 1;
	f.unseen = (struct diagnosis_unseen){
		.tgid = 9, .command = "\033[2J", .why = "its memory cannot be read"};
	f.d.lost = 7;
	f.d.refused = 3;
	CHECK(says(&f, "UNKNOWN pid 9 ?[2J its memory cannot be read healthy comm"));
	CHECK(says(
		&f,
		"; 1 not seen into; 7 records lost; 3 ranks or communicators not judged: too many "));
	CHECK_INT(diagnosis__exit_status(&f.d), 1);
}

TEST(what_is_over_says_so)
{
	struct fixture f;

	fixture__stuck(&f);
	f.comms[0].verdict.state = VERDICT_STRAGGLER;
	f.comms[0].now = VERDICT_HEALTHY;
	f.comms[0].over_ns = NOW - 14 * SEC;
	CHECK(says(&f, "8 here), for 60s, now healthy "));
	CHECK_INT(diagnosis__exit_status(&f.d), 1);
}

TEST(nothing_a_terminal_obeys)
{
	struct fixture f;

	fixture__stuck(&f);
	strcpy(f.comms[0].name, "\033]0;owned\a");
	strcpy(f.ranks[3].command, "\033[31m");
	strcpy(f.d.host, "\033c");
	f.look.state.main.state = 'S';
	strcpy(f.look.state.main.file, "/tmp/\033[2J");
	print(&f);
	for (const char *c = f.text; *c; c++)
		CHECK((unsigned char)*c >= ' ' || *c == '\n');
}

TEST(json_of_stuck)
{
	static const char *const contract[] = {"comm",		"comm_name",	 "nranks",
					       "local_ranks",	"state",	 "why",
					       "culprit_ranks", "waiting_ranks", "operation",
					       "sequence",	"evidence",	 "for_seconds"};
	struct fixture f;
	json_t *root, *comm, *rank, *process;

	fixture__stuck(&f);
	root = print_json(&f);
	CHECK_STR(json_text_of(root, "schema"), "nccl-bpftrace/diagnose/1");
	CHECK_STR(json_text_of(root, "state"), "stuck");
	comm = json_array_get(json_object_get(root, "communicators"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(contract); i++)
		CHECK(json_object_get(comm, contract[i]));
	CHECK_STR(json_text_of(comm, "comm"), "2f74544dd51c3504");
	CHECK_STR(json_text_of(comm, "cause"), "missing_call");
	CHECK_STR(json_text_of(comm, "operation"), "AllReduce");
	CHECK_INT(json_integer_value(json_object_get(comm, "sequence")), 4711);
	CHECK_INT(json_integer_value(json_object_get(comm, "next_pid")), 103);
	CHECK_INT(json_real_value(json_object_get(comm, "for_seconds")), 74);
	CHECK(json_is_false(json_object_get(comm, "began_before")));
	CHECK(json_is_null(json_object_get(comm, "mismatch")));
	CHECK_INT(json_array_size(json_object_get(comm, "waiting_ranks")), 7);
	rank = json_array_get(json_object_get(comm, "ranks"), 3);
	process = json_object_get(rank, "process");
	CHECK_STR(json_text_of(process, "state"), "stopped");
	CHECK_INT(json_integer_value(json_object_get(process, "stop_signal")), SIGSTOP);
	CHECK_STR(json_text_of(json_object_get(process, "main_thread"), "syscall"), "futex");
	CHECK(json_is_null(json_object_get(process, "calling_thread")));
	CHECK(json_is_null(
		json_object_get(json_array_get(json_object_get(comm, "ranks"), 2), "process")));
	json_decref(root);
}

TEST(json_of_what_is_not_known)
{
	struct fixture f;
	json_t *root, *comm, *rank;

	fixture__begin(&f);
	f.comms[0].n_local = 1;
	f.comms[0].n_ranks = 0;
	strcpy(f.comms[0].name, "\xff\xfe");
	f.comms[0].verdict.state = VERDICT_UNKNOWN;
	f.ranks[0] = (struct diagnosis_rank){.rank = -1,
					     .tgid = 5,
					     .gpu = -1,
					     .last_operation = NCCL_OP_MAX,
					     .last_sequence = VERDICT_NO_SEQUENCE};
	root = print_json(&f);
	comm = json_array_get(json_object_get(root, "communicators"), 0);
	CHECK_STR(json_text_of(comm, "comm_name"), "??");
	for (const char *const *key =
		     (const char *const[]){"nranks", "operation", "sequence", "for_seconds",
					   "began_before", "cause", NULL};
	     *key; key++)
		CHECK(json_is_null(json_object_get(comm, *key)));
	CHECK_INT(json_array_size(json_object_get(comm, "local_ranks")), 0);
	rank = json_array_get(json_object_get(comm, "ranks"), 0);
	for (const char *const *key =
		     (const char *const[]){"rank", "command", "gpu", "uuid", "last_operation",
					   "last_sequence", "last_call_seconds", "in_flight",
					   "process", NULL};
	     *key; key++)
		CHECK(json_is_null(json_object_get(rank, *key)));
	json_decref(root);
}

/* A rank of a communicator that the tracer and the judge know. */
static void join(struct tracer *tracer, struct verdicts *verdicts, int rank)
{
	const struct verdict_member member = {
		.hash = HASH, .rank = rank, .n_ranks = 2, .tgid = 100 + rank};

	stub_process(tracer, 100 + rank, "python3");
	stub_calls(tracer, 100 + rank, HASH, rank, NCCL_FN_AllReduce, 1)->bus_id = rank;
	verdicts__join(verdicts, &member, false, 1, BEGUN);
}

static void call(struct verdicts *verdicts, int rank, uint64_t sequence, uint64_t time_ns)
{
	verdicts__call(
		verdicts,
		&(struct verdict_call){
			.member = {.hash = HASH, .rank = rank, .n_ranks = 2, .tgid = 100 + rank},
			.operation = NCCL_OP_AllReduce,
			.sequence = sequence,
			.time_ns = time_ns,
			.count = 1,
			.root = -1,
		});
}

static void settle_until(struct verdicts *verdicts, uint64_t *now, uint64_t until)
{
	for (; *now < until; *now += SEC / 4)
		verdicts__settle(verdicts, *now);
}

TEST(taken_from_the_judge)
{
	const struct verdict_options options = {.stuck_after_ns = 10 * SEC};
	struct diagnosis d = {.settled_ns = BEGUN};
	struct tracer *tracer = stub_new();
	uint64_t now = BEGUN;
	struct verdicts *verdicts;

	CHECK_INT(verdicts__new(&verdicts, &options), 0);
	join(tracer, verdicts, 0);
	join(tracer, verdicts, 1);
	for (int i = 1; i <= 20; i++) {
		call(verdicts, 0, i, now);
		call(verdicts, 1, i, now);
		settle_until(verdicts, &now, now + SEC / 4);
	}
	call(verdicts, 1, 21, now);
	settle_until(verdicts, &now, now + 11 * SEC);
	d.now_ns = now;
	CHECK_INT(diagnosis__take(&d, tracer, verdicts), 0);
	CHECK_INT(d.n_comms, 1);
	CHECK_INT(d.n_processes, 2);
	CHECK_INT(d.comms[0].verdict.state, VERDICT_STUCK);
	CHECK_INT(d.comms[0].n_local, 2);
	CHECK(d.comms[0].ranks[0].is_culprit && d.comms[0].ranks[1].is_waiting);
	CHECK_INT(d.comms[0].ranks[1].gpu, 1);
	CHECK_STR(d.comms[0].ranks[1].uuid, "GPU-0001");
	CHECK_STR(d.comms[0].ranks[1].command, "python3");
	CHECK_INT(d.comms[0].over_ns, 0);
	diagnosis__clear(&d);

	/* it comes after all: the worst stays, and is over */
	for (int i = 21; i <= 40; i++) {
		call(verdicts, 0, i, now);
		call(verdicts, 1, i, now);
		settle_until(verdicts, &now, now + SEC / 4);
	}
	tracer->processes[0].gone_ns = now;
	tracer->processes[1].scan_err = -EIO; /* but it has a communicator that is judged */
	d = (struct diagnosis){.settled_ns = BEGUN, .now_ns = now};
	CHECK_INT(diagnosis__take(&d, tracer, verdicts), 0);
	CHECK_INT(d.comms[0].verdict.state, VERDICT_STUCK);
	CHECK_INT(d.comms[0].now, VERDICT_HEALTHY);
	CHECK(d.comms[0].over_ns && d.comms[0].over_ns < now);
	CHECK(d.comms[0].ranks[0].ended && !d.comms[0].ranks[1].ended);
	CHECK(!d.comms[0].ended);
	CHECK_INT(d.n_unseen, 0);
	CHECK_INT(d.n_processes, 1);
	diagnosis__clear(&d);

	tracer->processes[1].gone_ns = now;
	d = (struct diagnosis){.settled_ns = BEGUN, .now_ns = now};
	CHECK_INT(diagnosis__take(&d, tracer, verdicts), 0);
	CHECK(d.comms[0].ended);
	diagnosis__clear(&d);
	verdicts__free(verdicts);
	stub_free(tracer);
}

TEST(what_nobody_can_judge)
{
	const struct verdict_options options = {.stuck_after_ns = 10 * SEC};
	struct diagnosis d = {.settled_ns = BEGUN, .now_ns = NOW};
	struct tracer *tracer = stub_new();
	struct verdicts *verdicts;

	CHECK_INT(verdicts__new(&verdicts, &options), 0);
	stub_process(tracer, 100, "python3");
	stub_calls(tracer, 100, 0, -1, NCCL_FN_AllReduce, 1);
	CHECK_INT(diagnosis__take(&d, tracer, verdicts), 0);
	CHECK_INT(d.n_comms, 1);
	CHECK_STR(d.comms[0].label, "unknown-100-1");
	CHECK_INT(d.comms[0].verdict.state, VERDICT_UNKNOWN);
	CHECK(strstr(d.comms[0].verdict.why, "its hash is not known"));
	CHECK_INT(diagnosis__exit_status(&d), 1);
	diagnosis__clear(&d);
	tracer->processes[0].scan_err = -EIO;
	comms__process_gone(tracer->comms, 100, NOW);
	d = (struct diagnosis){.settled_ns = BEGUN, .now_ns = NOW};
	CHECK_INT(diagnosis__take(&d, tracer, verdicts), 0);
	CHECK_INT(d.n_comms, 0);
	CHECK_INT(d.n_unseen, 1);
	CHECK_INT(d.unseen[0].tgid, 100);
	CHECK_INT(diagnosis__exit_status(&d), 1);
	diagnosis__clear(&d);
	verdicts__free(verdicts);
	stub_free(tracer);
}

TEST(wrapping)
{
	char text[256];
	FILE *out = fmemopen(text, sizeof(text), "w");

	wrapped__print(out, "aa bb  cc ääää eeeeeeeeeeeeeeeee f", 2, 10);
	fclose(out);
	CHECK_STR(text, "  aa bb cc\n    ääää\n    eeeeeeeeeeeeeeeee\n    f\n");
}

UNIT_MAIN()
