/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One rank: a process that executes the script. */
#include "rank.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define STOP_CHECK_NS (50 * 1000 * 1000)

static enum flow run_block(struct line_state *line, const struct instruction *i);

enum flow rank_fail(const struct rank *rank, const struct instruction *i, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (i)
		fprintf(stderr, "nccl-sim: rank %d, line %d: %s\n", rank->number, i->line, text);
	else
		fprintf(stderr, "nccl-sim: rank %d: %s\n", rank->number, text);
	return FLOW_FAILED;
}

bool rank_stopped(const struct rank *rank)
{
	return __atomic_load_n(&rank->shared->nccl.stop, __ATOMIC_RELAXED) != 0;
}

bool job_wait(struct job_shared *shared, uint32_t *word, uint32_t value)
{
	uint32_t now;

	while ((now = __atomic_load_n(word, __ATOMIC_ACQUIRE)) < value) {
		if (__atomic_load_n(&shared->nccl.stop, __ATOMIC_RELAXED))
			return false;
		sim_futex_wait(word, now, STOP_CHECK_NS);
	}
	return true;
}

int64_t rank_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static enum flow sleep_until(const struct rank *rank, int64_t end_ns)
{
	int64_t left;

	while ((left = end_ns - rank_now_ns()) > 0) {
		if (rank_stopped(rank))
			return FLOW_EXIT;
		sim_futex_wait(&rank->shared->nccl.stop, 0, left);
	}
	return FLOW_ON;
}

/* A tick that was missed by more than a second is not made up for. */
static enum flow run_rate(struct line_state *line, const struct instruction *i)
{
	int64_t *tick = &line->tick_ns[i->index], now = rank_now_ns();

	if (now - *tick > NS_PER_S)
		*tick = now;
	*tick += i->ns;
	return sleep_until(line->rank, *tick);
}

int64_t line_span_ns(struct line_state *line, const struct instruction *i)
{
	uint64_t number = ((uint64_t)line->rank->number << 48) + line->drawn;

	if (!i->more_ns)
		return i->ns;
	line->drawn++;
	return i->ns + (int64_t)(model_chance(line->rank->job->options->model.seed, number) *
				 (double)i->more_ns);
}

/* One write: lines of different ranks stay whole. */
static enum flow run_print(const struct rank *rank, const struct instruction *i)
{
	char text[1024];
	int n;

	if (i->kind == DO_STAMP)
		n = snprintf(text, sizeof(text), "stamp rank=%d ns=%lld %s\n", rank->number,
			     (long long)rank_now_ns(), i->text);
	else
		n = snprintf(text, sizeof(text), "%s\n", i->text);
	if (n >= (int)sizeof(text))
		n = sizeof(text) - 1;
	return write(STDOUT_FILENO, text, (size_t)n) < 0 ? FLOW_FAILED : FLOW_ON;
}

static enum flow run_group(struct line_state *line, const struct instruction *i)
{
	enum flow flow = call_group_start(line, i);

	if (flow == FLOW_ON)
		flow = run_block(line, i->body);
	return flow == FLOW_ON ? call_group_end(line, i) : flow;
}

/* The capture ends even when the body fails: nobody captures for ever. */
static enum flow run_capture(struct line_state *line, const struct instruction *i)
{
	enum flow flow = call_capture_begin(line, i), end;

	if (flow != FLOW_ON)
		return flow;
	flow = run_block(line, i->body);
	end = call_capture_end(line, i);
	return flow == FLOW_ON ? end : flow;
}

/* NAME=VALUE, for this rank. */
static enum flow run_env(const struct rank *rank, const struct instruction *i)
{
	char text[1024];
	char *value;

	snprintf(text, sizeof(text), "%s", i->text);
	value = strchr(text, '=');
	if (!value)
		return rank_fail(rank, i, "not NAME=VALUE");
	*value++ = '\0';
	return setenv(text, value, 1) ? rank_fail(rank, i, "cannot set it") : FLOW_ON;
}

/* A mapping that tracers are told of; it stays for the rest of the process's life. */
static enum flow run_load(const struct rank *rank, const struct instruction *i)
{
	return dlopen(i->text, RTLD_NOW) ? FLOW_ON : rank_fail(rank, i, "%s", dlerror());
}

static enum flow run_loop(struct line_state *line, const struct instruction *i)
{
	enum flow flow = FLOW_ON;

	for (uint64_t n = 0; flow == FLOW_ON && (i->times == SCRIPT_FOREVER || n < i->times); n++)
		flow = rank_stopped(line->rank) ? FLOW_EXIT : run_block(line, i->body);
	return flow;
}

static bool line_open(struct line_state *line, struct rank *rank)
{
	line->rank = rank;
	line->tick_ns = calloc((size_t)rank->job->script->n_instructions + 1,
			       sizeof(*line->tick_ns));
	return line->tick_ns;
}

struct thread {
	pthread_t id;
	struct rank *rank;
	const struct instruction *body;
	uint64_t number;
	enum flow flow;
};

static void *thread_main(void *arg)
{
	struct line_state line = { 0 };
	struct thread *thread = arg;

	thread->flow = FLOW_FAILED;
	line.drawn = thread->number << 40;
	if (thread->rank->context)
		thread->rank->cuda.cuCtxSetCurrent(thread->rank->context);
	if (line_open(&line, thread->rank))
		thread->flow = run_block(&line, thread->body);
	free(line.tick_ns);
	return NULL;
}

static enum flow run_threads(struct line_state *line, const struct instruction *i)
{
	struct thread *threads = calloc(i->times + 1, sizeof(*threads));
	enum flow flow = FLOW_ON;
	uint64_t n;

	if (!threads)
		return rank_fail(line->rank, i, "out of memory");
	for (n = 0; n < i->times; n++) {
		threads[n].rank = line->rank;
		threads[n].body = i->body;
		threads[n].number = n + 1;
		if (pthread_create(&threads[n].id, NULL, thread_main, &threads[n])) {
			flow = rank_fail(line->rank, i, "cannot start a thread");
			break;
		}
	}
	while (n-- > 0) {
		pthread_join(threads[n].id, NULL);
		if (threads[n].flow > flow)
			flow = threads[n].flow;
	}
	free(threads);
	return flow;
}

static enum flow run_barrier(struct rank *rank, const struct instruction *i)
{
	return sim_barrier_wait(&rank->shared->slot[i->index].barrier,
				(uint32_t)rank_set_count(&i->ranks), &rank->shared->nccl.stop) ?
		       FLOW_ON : FLOW_EXIT;
}

static enum flow run_kill(const struct rank *rank)
{
	rank->shared->death_ordered[rank->number] = 1;
	kill(getpid(), SIGKILL);
	return FLOW_EXIT;
}

static enum flow run_on_gpu(struct line_state *line, const struct instruction *i)
{
	switch (i->kind) {
	case DO_SYNCHRONIZE:
		return call_synchronize(line, i);
	case DO_COMPUTE:
		return call_compute(line, i);
	case DO_GPU:
		return call_gpu(line, i);
	case DO_REPLAY:
		return call_replay(line, i);
	case DO_DROP:
		return call_drop(line, i);
	default:
		return FLOW_FAILED;
	}
}

static enum flow run(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;

	switch (i->kind) {
	case DO_COMM:
		return call_comm(line, i);
	case DO_SPLIT:
		return call_split(line, i);
	case DO_DESTROY:
	case DO_ABORT:
	case DO_FINALIZE:
		return call_end(line, i);
	case DO_OPERATION:
		return call_operation(line, i);
	case DO_GROUP:
		return run_group(line, i);
	case DO_LOOP:
		return run_loop(line, i);
	case DO_THREADS:
		return run_threads(line, i);
	case DO_PAUSE:
		return sleep_until(rank, rank_now_ns() + line_span_ns(line, i));
	case DO_RATE:
		return run_rate(line, i);
	case DO_BARRIER:
		return run_barrier(rank, i);
	case DO_STOP:
		kill(getpid(), SIGSTOP);
		return FLOW_ON;
	case DO_KILL:
		return run_kill(rank);
	case DO_EXIT:
		return FLOW_EXIT;
	case DO_PRINT:
	case DO_STAMP:
		return run_print(rank, i);
	case DO_LOAD:
		return run_load(rank, i);
	case DO_ERROR:
		return call_error(line, i);
	case DO_WAIT:
		return job_wait(rank->shared, &rank->shared->lines, rank->waits) ?
			       FLOW_ON : FLOW_EXIT;
	case DO_ENV:
		return run_env(rank, i);
	case DO_CAPTURE:
		return run_capture(line, i);
	default:
		return run_on_gpu(line, i);
	}
}

/* Ranks that pass over a `wait` count it too: the same `wait` means the same line to all. */
static enum flow run_block(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;
	enum flow flow = FLOW_ON;

	for (; i && flow == FLOW_ON; i = i->next) {
		if (i->kind == DO_WAIT)
			rank->waits++;
		if (rank_stopped(rank))
			return FLOW_EXIT;
		if (rank_set_has(&i->ranks, rank->number))
			flow = run(line, i);
	}
	return flow;
}

static void tell(const struct rank *rank, enum job_event event)
{
	struct job_message message = { (uint16_t)rank->number, (uint16_t)event };

	if (write(rank->job->events[1], &message, sizeof(message)) != sizeof(message))
		_exit(EXIT_FAILURE);
}

/* Dies with the driver; leaves an interrupt from the terminal to it. */
static void prepare_process(const struct rank *rank)
{
	char name[16];
	sigset_t none;

	snprintf(name, sizeof(name), "nccl-sim:%d", rank->number);
	prctl(PR_SET_NAME, name);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != rank->job->driver)
		_exit(EXIT_FAILURE);
	signal(SIGINT, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

void rank_main(struct job *job, int number)
{
	struct rank rank = { .job = job, .shared = job->shared, .number = number,
			     .ledger = &job->shared->ledger[number] };
	struct line_state line = { 0 };
	enum flow flow = FLOW_ON;
	const char *error;

	prepare_process(&rank);
	error = job->gpus ? gpu_open(&rank) : NULL;
	if (!error)
		error = api_load(&rank.api, job->options->library);
	if (error || !line_open(&line, &rank)) {
		rank_fail(&rank, NULL, "%s", error ? error : "out of memory");
		_exit(2);
	}
	rank.api.nccl_sim_attach(&job->shared->nccl, number, job->options->gpus_per_node,
				 job->options->sync);
	tell(&rank, JOB_READY);
	if (job_wait(job->shared, &job->shared->go, 1))
		flow = run_block(&line, job->script->first);
	if (flow == FLOW_ON && !job->options->hold)
		flow = gpu_synchronize_all(&rank);
	free(line.tick_ns);
	if (flow == FLOW_FAILED)
		_exit(EXIT_FAILURE);
	tell(&rank, JOB_DONE);
	if (job->options->hold)
		job_wait(job->shared, &job->shared->release, 1);
	_exit(EXIT_SUCCESS);
}
