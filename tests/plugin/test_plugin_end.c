/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How a process ends, and what of it still reaches the agent: each way in a process of its own,
 * that writes what its plugin hands over into a pipe.
 */
#include "driver.h"
#include "fake_cuda.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define MASK_V6	   (7 | 512 | 1024 | 2048 | 4096)
#define N_CALLS	   1000
#define PIPE_FD	   3
#define PATIENCE_S 20

/* Also driver.h's nccl_bpftrace_test_batch() fills `records`; here they go on to the parent. */
static atomic_bool to_parent;

static void forward(const struct nbp_record *r, uint32_t n)
{
	if (to_parent && write(PIPE_FD, r, n * sizeof(*r)) < 0)
		_exit(99);
}

/* ---- in the child ---- */

static struct fake_stream *stream;
static int mask;
static void *context;

static void launch_1ms(void *s)
{
	fake_launch(s, 1000000);
}

static void begin(int budget_ppm)
{
	batch_seen = forward;
	load_plugin(PLUGIN_FILE);
	cuCtxSetCurrent((void *)0x1000);
	cuStreamCreate((void **)&stream, 1);
	context = init(6, &mask, 0xe0d, "ends");
	raise_semaphore(1);
	if (wait_mask(&mask, MASK_V6) < 0)
		_exit(98);
	__atomic_store_n(&control->budget_ppm, 1000000, __ATOMIC_RELAXED);
	for (int i = 0; i < 500 && !count_finished(0xe0d, NULL); i++) {
		one_collective(6, context, stream, i, 0, NULL);
		ms_sleep(10);
	}
	ms_sleep(100); /* all told */
	__atomic_store_n(&control->budget_ppm, budget_ppm, __ATOMIC_RELAXED);
	to_parent = true;
}

static void call(int n, void (*launch)(void *))
{
	for (int i = 0; i < n; i++)
		one_collective(6, context, stream, i, 0, launch);
}

static void *call_without_end(void *unused)
{
	for (;;)
		call(1, NULL);
	return unused;
}

static int child_exits(void)
{
	begin(0);
	call(N_CALLS, NULL);
	return 0;
}

static int child_exits_with_launches_under_way(void)
{
	begin(1000000);
	call(20, launch_1ms);
	return 0;
}

static int child_exits_while_threads_call(void)
{
	pthread_t thread;

	begin(10000);
	for (int i = 0; i < 8; i++)
		pthread_create(&thread, NULL, call_without_end, NULL);
	ms_sleep(50);
	return 0;
}

static int child_finalizes_and_is_gone(void)
{
	begin(0);
	call(N_CALLS, NULL);
	tables[6]->finalize(context);
	_exit(0);
}

static int child_is_gone(void)
{
	begin(0);
	call(N_CALLS, NULL);
	_exit(0);
}

/* The child of a fork ends by exit(), too, with the handlers that it has inherited. */
static int child_forks(void)
{
	int status = -1;
	pid_t pid;

	begin(0);
	pid = fork();
	if (!pid) {
		int own_mask = 9;
		void *own = init(6, &own_mask, 0xc41d, "child");

		call(10, NULL);
		tables[6]->finalize(own);
		tables[6]->finalize(context);
		exit(own_mask);
	}
	waitpid(pid, &status, 0);
	call(N_CALLS, NULL);
	return status;
}

static int child_replaces_itself(void)
{
	begin(1000000);
	call(100, launch_1ms);
	execl("/bin/true", "true", NULL);
	return 1;
}

/* NCCL unloads the plugin after the last communicator and loads it for the next. */
static int child_unloads(void)
{
	begin(0);
	call(N_CALLS / 2, NULL);
	tables[6]->finalize(context);
	for (int i = 0; i < 50; i++) {
		dlclose(plugin);
		ms_sleep(i % 5);
		load_plugin(PLUGIN_FILE);
		context = init(6, &mask, 0xe0d, "again");
		if (i % 10 == 9)
			ms_sleep(30);
		tables[6]->finalize(context);
	}
	dlclose(plugin);
	ms_sleep(4000); /* its thread ends meanwhile */
	load_plugin(PLUGIN_FILE);
	context = init(6, &mask, 0xe0d, "again");
	if (wait_mask(&mask, MASK_V6) < 0)
		return 1;
	call(N_CALLS / 2, NULL);
	tables[6]->finalize(context);
	return 0;
}

/* Such a program ends with its last thread: the plugin's must not be that. */
static int child_main_is_a_thread(void)
{
	begin(0);
	call(N_CALLS, NULL);
	tables[6]->finalize(context);
	pthread_exit(NULL);
	return 1;
}

static const struct {
	const char *name;
	int (*run)(void);
} children[] = {
	{"exits", child_exits},
	{"exits_with_launches_under_way", child_exits_with_launches_under_way},
	{"exits_while_threads_call", child_exits_while_threads_call},
	{"finalizes_and_is_gone", child_finalizes_and_is_gone},
	{"is_gone", child_is_gone},
	{"forks", child_forks},
	{"replaces_itself", child_replaces_itself},
	{"unloads", child_unloads},
	{"main_is_a_thread", child_main_is_a_thread},
};

/* ---- in the parent ---- */

static uint64_t took_ns; /* from the pipe's end, which comes with the process's */

static pid_t child__start(const char *name, int *ret_fd)
{
	int fds[2];
	pid_t pid;

	if (pipe(fds))
		return -1;
	pid = fork();
	if (!pid) {
		alarm(PATIENCE_S);
		dup2(fds[1], PIPE_FD);
		execl("/proc/self/exe", "child", name, NULL);
		_exit(97);
	}
	close(fds[1]);
	*ret_fd = fds[0];
	return pid;
}

/* Runs it; its records are in `records` afterwards. */
static int child__run(const char *name)
{
	int fd = -1, status = -1;
	pid_t pid = child__start(name, &fd);
	ssize_t n, have = 0;

	n_records = 0;
	while (pid > 0 &&
	       (n = read(fd, (char *)records + have, N_RECORDS_MAX * sizeof(*records) - have)) > 0)
		have += n;
	close(fd);
	n_records = have / sizeof(*records);
	waitpid(pid, &status, 0);
	return status;
}

static int count(int kind)
{
	return count_records(kind, 0xe0d, NULL);
}

TEST(exit_hands_over_what_was_noted)
{
	CHECK_INT(child__run("exits"), 0);
	CHECK_INT(count(NBP_KIND_API), N_CALLS);
	CHECK_INT(count(NBP_KIND_OPERATION), N_CALLS);
	CHECK_INT(count(NBP_KIND_LAUNCH), N_CALLS);
}

TEST(exit_tells_of_launches_under_way)
{
	int n_begun = 0, n_over = 0;

	CHECK_INT(child__run("exits_with_launches_under_way"), 0);
	for (int i = 0; i < n_records; i++) {
		if (records[i].kind != NBP_KIND_LAUNCH)
			continue;
		n_begun += records[i].launch.phase == NBP_LAUNCHED &&
			   records[i].launch.timing == NBP_TIMED;
		n_over += records[i].launch.phase == NBP_FINISHED;
	}
	CHECK_INT(count(NBP_KIND_OPERATION), 20);
	CHECK(n_begun > 0);
	CHECK_INT(n_over, n_begun);
}

/* The thread has to get at a processor in time. */
TEST(exit_while_others_call)
{
	int n_heard = 0;

	for (int i = 0; i < 5; i++) {
		CHECK_INT(child__run("exits_while_threads_call"), 0);
		n_heard += count(NBP_KIND_API) > 0;
	}
	CHECK(n_heard >= 3);
}

TEST(the_last_finalize_hands_over_at_once)
{
	CHECK_INT(child__run("finalizes_and_is_gone"), 0);
	CHECK_INT(count(NBP_KIND_API), N_CALLS);
	CHECK_INT(count(NBP_KIND_OPERATION), N_CALLS);
	CHECK_INT(count(NBP_KIND_END), 1);
}

TEST(what_is_gone_is_gone)
{
	CHECK_INT(child__run("is_gone"), 0);
	CHECK(count(NBP_KIND_API) <= N_CALLS);
	CHECK_INT(child__run("replaces_itself"), 0);
}

TEST(a_child_hands_over_nothing)
{
	CHECK_INT(child__run("forks"), 0);
	CHECK_INT(count(NBP_KIND_OPERATION), N_CALLS);
	CHECK_INT(count_records(NBP_KIND_COMM, 0xc41d, NULL), 0);
}

TEST(unloaded_and_loaded_again)
{
	CHECK_INT(child__run("unloads"), 0);
	CHECK_INT(count(NBP_KIND_OPERATION), N_CALLS);
	CHECK(count(NBP_KIND_END) >= 2);
}

TEST(a_program_ends_with_its_last_thread)
{
	uint64_t before = clock_ns();

#ifdef __SANITIZE_THREAD__
	SKIP("TSan has a thread of its own, which never ends");
#endif
	CHECK_INT(child__run("main_is_a_thread"), 0);
	took_ns = clock_ns() - before;
	CHECK_INT(count(NBP_KIND_OPERATION), N_CALLS);
	printf("     in %.1f s\n", took_ns / 1e9);
	CHECK(took_ns < 10000000000ULL);
}

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(children) / sizeof(*children); i++) {
		if (!strcmp(argv[1], children[i].name))
			return children[i].run();
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	records = calloc(N_RECORDS_MAX, sizeof(*records));
	return unit_main();
}
