/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The driver's side of a job: starts the ranks, passes on standard input, takes stock. */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)
#define STOP_GRACE_NS NS_PER_S

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void set_word(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	sim_futex_wake(word);
}

static void signal_ranks(const struct job *job, int number)
{
	for (int i = 0; i < job->options->n_ranks; i++)
		if (job->pid[i] > 0 && !job->ended[i])
			kill(job->pid[i], number);
}

/* Ranks leave by themselves between two instructions; those that hang in NCCL are killed. */
static void stop_job(struct job *job)
{
	if (job->stopping)
		return;
	job->stopping = true;
	job->kill_at_ns = now_ns() + STOP_GRACE_NS;
	set_word(&job->shared->nccl.stop, 1);
	signal_ranks(job, SIGCONT);
}

static void rank_ended(struct job *job, int rank, int status)
{
	job->ended[rank] = true;
	job->n_alive--;
	if (job->gpus)
		__atomic_store_n(&job->gpus->rank[rank].gone, 1, __ATOMIC_RELAXED);
	if (WIFSIGNALED(status)) {
		if (job->stopping || job->shared->death_ordered[rank])
			return;
		fprintf(stderr, "nccl-sim: rank %d (pid %d) died from signal %d, which the script "
			"did not order\n", rank, (int)job->pid[rank], WTERMSIG(status));
		job->failed = true;
	} else if (WEXITSTATUS(status)) {
		job->failed = true;
		stop_job(job);
	}
}

static void reap(struct job *job)
{
	for (int i = 0; i < job->options->n_ranks; i++) {
		int status;

		if (!job->ended[i] && waitpid(job->pid[i], &status, WNOHANG) == job->pid[i])
			rank_ended(job, i, status);
	}
}

static void read_signals(struct job *job)
{
	struct signalfd_siginfo info;

	while (read(job->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			reap(job);
		else
			stop_job(job);
	}
}

static void read_events(struct job *job)
{
	struct job_message message;

	while (read(job->events[0], &message, sizeof(message)) == sizeof(message)) {
		job->n_ready += message.event == JOB_READY;
		if (message.event == JOB_DONE)
			job->done[message.rank] = true;
	}
}

static void read_input(struct job *job)
{
	uint32_t for_arm = job->options->arm ? 1 : 0;
	char text[4096];
	ssize_t n = read(STDIN_FILENO, text, sizeof(text));

	if (n < 0 && errno == EINTR)
		return;
	for (ssize_t i = 0; i < n; i++)
		job->lines += text[i] == '\n';
	if (n <= 0) {
		job->input_ended = true;
		set_word(&job->shared->lines, JOB_ALL_LINES);
	} else if (job->lines > for_arm) {
		set_word(&job->shared->lines, job->lines - for_arm);
	}
}

static void print_armed(const struct job *job)
{
	printf("armed pids=");
	for (int i = 0; i < job->options->n_ranks; i++)
		printf("%s%d", i ? "," : "", (int)job->pid[i]);
	putchar('\n');
	fflush(stdout);
}

/* Ranks that ended without a word (killed) will not come any more. */
static bool all_done(const struct job *job)
{
	for (int i = 0; i < job->options->n_ranks; i++)
		if (!job->done[i] && !job->ended[i])
			return false;
	return true;
}

/* What was called so far, and what the GPUs have done. */
static int write_expect(const struct job *job)
{
	FILE *out = job->options->expect ? fopen(job->options->expect, "we") : NULL;
	int err = 0;

	if (job->truth && fflush(job->truth))
		return -errno;
	if (!out)
		return job->options->expect ? -errno : 0;
	for (int i = 0; i < job->options->n_ranks; i++)
		ledger_print(&job->shared->ledger[i], job->script, job->pid[i], out);
	if (ferror(out))
		err = -EIO;
	return fclose(out) ? -errno : err;
}

/* Whatever is due now. */
static void advance(struct job *job)
{
	const struct job_options *options = job->options;

	if (!job->armed && job->n_ready == options->n_ranks) {
		job->armed = true;
		if (options->arm)
			print_armed(job);
	}
	if (job->armed && !job->gone && (!options->arm || job->lines || job->input_ended)) {
		job->gone = true;
		set_word(&job->shared->go, 1);
	}
	if (options->hold && job->gone && !job->held && all_done(job)) {
		job->held = true;
		job->hold_lines = job->lines;
		write_expect(job);
		puts("done");
		fflush(stdout);
	}
	if (job->held && !job->released && (job->lines > job->hold_lines || job->input_ended)) {
		job->released = true;
		set_word(&job->shared->release, 1);
	}
	if (job->stopping && now_ns() >= job->kill_at_ns)
		signal_ranks(job, SIGKILL);
}

static int poll_timeout_ms(const struct job *job)
{
	int64_t left;

	if (!job->stopping)
		return -1;
	left = (job->kill_at_ns - now_ns()) / NS_PER_MS + 1;
	return left > 0 ? (int)left : 10;
}

static bool waits_for_release(const struct job *job)
{
	return job->options->hold && !job->released && !job->stopping;
}

static void supervise(struct job *job)
{
	bool want_input = job->options->arm || job->options->hold || job->script->has_wait;

	while (job->n_alive > 0 || (job->gone && waits_for_release(job))) {
		struct pollfd fds[] = {
			{ .fd = job->signals, .events = POLLIN },
			{ .fd = job->events[0], .events = POLLIN },
			{ .fd = want_input && !job->input_ended ? STDIN_FILENO : -1,
			  .events = POLLIN },
		};

		if (poll(fds, 3, poll_timeout_ms(job)) < 0 && errno != EINTR)
			stop_job(job);
		read_events(job);
		read_signals(job);
		if (fds[2].revents)
			read_input(job);
		advance(job);
	}
}

static int open_signals(struct job *job)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	job->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return job->signals < 0 ? -errno : 0;
}

/* Zeroed; only what is touched takes memory. */
static void *map_shared(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static int open_gpus(struct job *job)
{
	size_t ranks = (size_t)job->options->n_ranks * sizeof(job->gpus->rank[0]);

	if (!job->options->gpu)
		return 0;
	job->gpus_bytes = sizeof(*job->gpus) + ranks;
	job->gpus = map_shared(job->gpus_bytes);
	if (!job->gpus)
		return -errno;
	job->gpus->stop = &job->shared->nccl.stop;
	if (job->options->truth)
		job->truth = fopen(job->options->truth, "we");
	return job->options->truth && !job->truth ? -errno : 0;
}

static int open_job(struct job *job)
{
	size_t ledgers = (size_t)job->options->n_ranks * sizeof(job->shared->ledger[0]);

	job->shared_bytes = sizeof(*job->shared) + ledgers;
	job->shared = map_shared(job->shared_bytes);
	if (!job->shared || open_gpus(job))
		return -errno;
	if (pipe2(job->events, O_CLOEXEC) || fcntl(job->events[0], F_SETFL, O_NONBLOCK))
		return -errno;
	return open_signals(job);
}

static int start_ranks(struct job *job)
{
	job->driver = getpid();
	for (int i = 0; i < job->options->n_ranks; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return -errno;
		if (!pid)
			rank_main(job, i);
		job->pid[i] = pid;
		job->n_alive++;
	}
	return 0;
}

static int close_job(struct job *job)
{
	int err = write_expect(job);

	if (err)
		fprintf(stderr, "nccl-sim: cannot write the account: %s\n", strerror(-err));
	if (job->truth)
		fclose(job->truth);
	if (job->gpus)
		munmap(job->gpus, job->gpus_bytes);
	munmap(job->shared, job->shared_bytes);
	return err;
}

int job_run(const struct job_options *options, const struct script *script)
{
	struct job job = { .options = options, .script = script };
	int err = open_job(&job);

	if (!err)
		err = start_ranks(&job);
	if (!err && job.gpus) /* after the forks: ranks have one thread when they begin */
		err = engine_start(&job.engine, job.gpus, &options->model, job.pid,
				   options->n_ranks, job.truth);
	if (err) {
		fprintf(stderr, "nccl-sim: cannot start the job: %s\n", strerror(-err));
		signal_ranks(&job, SIGKILL);
		return EXIT_FAILURE;
	}
	supervise(&job);
	engine_stop(job.engine);
	err = close_job(&job);
	return err || job.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
