/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "textfile.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "agent_cost.h"
#include "shown.h"
#include "textfile_private.h"
#include "util.h"

/* Not the directory itself: whoever may read that could hold its lock against us. */
#define LOCK_NAME ".nccl_bpftrace.lock"

struct textfile {
	int dirfd, lockfd;
	struct prom *prom;
	char *dir, *cluster;
	struct utsname host;
	int64_t wall_offset_ns;
	struct job_timing *timing; /* NULL: it does not listen */
	struct watch *watch;	   /* NULL: nobody judges */
	const struct textfile_count *omitted;
	size_t n_omitted;
	uint64_t n_collisions, n_gaps;
	bool is_open_to_all, is_locked;
};

static int textfile__open(struct textfile *tf)
{
	struct stat st;

	tf->dirfd = open(tf->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (tf->dirfd < 0 || fstat(tf->dirfd, &st) ||
	    faccessat(tf->dirfd, ".", W_OK | X_OK, AT_EACCESS))
		return -errno;
	tf->is_open_to_all = st.st_mode & S_IWOTH && !(st.st_mode & S_ISVTX);
	return 0;
}

/* A dead agent of another user may have left one: to lock it, reading is enough (but on NFS). */
static int lock__open(int dirfd)
{
	const int flags = O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dirfd, LOCK_NAME, O_RDWR | O_CREAT | flags, 0600);

	if (fd < 0 && errno == EACCES)
		fd = openat(dirfd, LOCK_NAME, O_RDONLY | flags);
	return fd;
}

/*
 * Two agents would take turns in one file. The kernel lets go of the lock of one that dies. One
 * that ends removes the name first: a lock on a file without a name is nobody's.
 */
static int textfile__lock(struct textfile *tf)
{
	struct stat st = {};

	while (!st.st_nlink) {
		if (tf->lockfd >= 0)
			close(tf->lockfd);
		tf->lockfd = lock__open(tf->dirfd);
		if (tf->lockfd < 0)
			return -errno;
		if (flock(tf->lockfd, LOCK_EX | LOCK_NB))
			return errno == EWOULDBLOCK ? -EBUSY : -errno;
		if (fstat(tf->lockfd, &st))
			return -errno;
	}
	tf->is_locked = true;
	prom__sweep(tf->dirfd);
	return 0;
}

int textfile__new(struct textfile **ret, const char *dir, size_t max_series, const char *cluster)
{
	struct textfile *tf = calloc(1, sizeof(*tf));
	int err;

	if (!tf)
		return -ENOMEM;
	uname(&tf->host);
	tf->dirfd = tf->lockfd = -1;
	tf->dir = strdup(dir);
	tf->cluster = strdup(cluster ?: "");
	err = tf->dir && tf->cluster ? textfile__open(tf) : -ENOMEM;
	err = err ?: textfile__lock(tf);
	if (!err)
		err = prom__new(&tf->prom, max_series);
	if (err) {
		textfile__free(tf);
		return err;
	}
	*ret = tf;
	return 0;
}

void textfile__free(struct textfile *tf)
{
	if (!tf)
		return;
	if (tf->is_locked)
		unlinkat(tf->dirfd, LOCK_NAME, 0);
	if (tf->dirfd >= 0)
		close(tf->dirfd);
	if (tf->lockfd >= 0)
		close(tf->lockfd);
	job_timing__free(tf->timing);
	prom__free(tf->prom);
	free(tf->dir);
	free(tf->cluster);
	free(tf);
}

int textfile__listen(struct textfile *tf, struct tracer *tracer)
{
	return job_timing__new(&tf->timing, tracer);
}

void textfile__watch(struct textfile *tf, struct watch *watch)
{
	tf->watch = watch;
	job_timing__watch(tf->timing, watch__verdicts(watch));
}

void textfile__set_omitted(struct textfile *tf, const struct textfile_count *counts,
			   size_t n_counts)
{
	tf->omitted = counts;
	tf->n_omitted = n_counts;
}

const char *textfile__warning(const struct textfile *tf)
{
	return tf->is_open_to_all ? "every user may replace files in it; mend: chmod o-w" : NULL;
}

static int collect_comms(struct textfile_source *src, struct textfile *tf, struct tracer *tracer)
{
	struct comms *comms = tracer__comms(tracer);
	struct processes *processes = tracer__processes(tracer);

	src->comms = calloc(comms__count_of(comms) + 1, sizeof(*src->comms));
	if (!src->comms)
		return -ENOMEM;
	for (struct comm *comm = comms__first(comms); comm; comm = comm->hh.next) {
		struct process *process = processes__find(processes, comm->key.tgid);
		struct textfile_comm *row = &src->comms[src->n_comms];

		if (!process__is_shown(process))
			continue;
		src->n_comms++;
		*row = (struct textfile_comm){
			.comm = comm,
			.process = process,
			.gpu = tracer__gpu_of(tracer, comm),
			.timing = timings__find(tracer__timings(tracer), comm->key.tgid,
						comm->key.hash, comm->rank),
		};
		if (tf->watch)
			textfile_comm__judge(row, tf->watch);
	}
	return 0;
}

/* By process, then GPU; that of no GPU last. */
static int compare_processes(const void *left, const void *right)
{
	const struct textfile_process *a = left, *b = right;

	if (a->process->tgid != b->process->tgid)
		return a->process->tgid < b->process->tgid ? -1 : 1;
	if (!a->gpu || !b->gpu)
		return !a->gpu - !b->gpu;
	return strcmp(a->gpu->uuid, b->gpu->uuid);
}

/* Of a process with GPUs, each once; of one without, the one without. */
static void unique_processes(struct textfile_source *src)
{
	size_t n = 0;

	qsort(src->processes, src->n_processes, sizeof(*src->processes), compare_processes);
	for (size_t i = 0; i < src->n_processes; i++) {
		const struct textfile_process *row = &src->processes[i];
		const struct textfile_process *last = n ? &src->processes[n - 1] : NULL;

		if (last && last->process == row->process &&
		    (!row->gpu || !compare_processes(last, row)))
			continue;
		src->processes[n++] = *row;
	}
	src->n_processes = n;
}

static int collect_processes(struct textfile_source *src, struct tracer *tracer)
{
	struct process *first = processes__first(tracer__processes(tracer));
	size_t n = src->n_comms;

	for (struct process *process = first; process; process = process->hh.next)
		n++;
	src->processes = calloc(n + 1, sizeof(*src->processes));
	if (!src->processes)
		return -ENOMEM;
	for (struct process *process = first; process; process = process->hh.next)
		if (process__is_shown(process) && process__nccl(process))
			src->processes[src->n_processes++] =
				(struct textfile_process){.process = process};
	for (size_t i = 0; i < src->n_comms; i++) {
		const struct textfile_comm *row = &src->comms[i];

		if (row->process && row->gpu)
			src->processes[src->n_processes++] = (struct textfile_process){
				.process = row->process,
				.gpu = row->gpu,
			};
	}
	unique_processes(src);
	return 0;
}

static int collect_timed(struct textfile_source *src, struct textfile *tf)
{
	struct timing_job *job;
	size_t n = 0;

	if (!tf->timing)
		return 0;
	job_timing__sweep(tf->timing);
	for (job = timing_stats__first(job_timing__stats(tf->timing)); job; job = job->hh.next)
		n += 1 + job->n_series;
	src->timed = calloc(n + 1, sizeof(*src->timed));
	if (!src->timed)
		return -ENOMEM;
	for (job = timing_stats__first(job_timing__stats(tf->timing)); job; job = job->hh.next) {
		src->timed[src->n_timed++] = (struct textfile_timed){.job = job};
		for (uint32_t i = 0; i < job->n_series; i++)
			src->timed[src->n_timed++] = (struct textfile_timed){
				.job = job,
				.series = job->series[i],
			};
	}
	return 0;
}

/*
 * What is missing in the plugins' own numbering is what the kernel had no room for, and that is
 * counted there. More than that is lost nobody knows where.
 */
static void collect_plugin_losses(struct textfile_source *src, struct textfile *tf,
				  struct tracer *tracer)
{
	const struct timings *timings = tracer__timings(tracer);
	uint64_t known = src->lost[NB_LOST_PLUGIN_RING_FULL] + src->lost[NB_LOST_BAD_BATCH];
	uint64_t gaps = timings__lost(timings, TIMING_LOST_GAP);

	for (int i = 0; i < TIMING_LOST_MAX; i++)
		src->plugin_lost[i] = timings__lost(timings, i);
	if (gaps > known && gaps - known > tf->n_gaps)
		tf->n_gaps = gaps - known;
	src->plugin_lost[TIMING_LOST_GAP] = tf->n_gaps;
	if (tf->timing)
		src->plugin_lost[TIMING_LOST_NO_ROOM] +=
			timing_stats__overflow(job_timing__stats(tf->timing));
	for (int i = 0; i < TIMING_INVALID_MAX; i++)
		src->invalid[i] = timings__invalid(timings, i);
}

/* The file is as old as what it tells: what came since the refresh began may not be in it. */
static void collect_clock(struct textfile_source *src, struct textfile *tf,
			  const struct tracer *tracer)
{
	struct timespec wall;
	uint64_t wall_ns;

	wall_offset__update(&tf->wall_offset_ns, &wall);
	src->wall_offset_ns = tf->wall_offset_ns;
	wall_ns = wall.tv_sec * NSEC_PER_SEC + wall.tv_nsec;
	src->wall_ms = (wall_ns - (now_ns() - tracer__refreshed_ns(tracer))) / NSEC_PER_MSEC;
}

static void collect_agent(struct textfile_source *src, struct textfile *tf, struct tracer *tracer)
{
	const char *libbpf = libbpf_version_string();

	src->omitted = tf->omitted;
	src->n_omitted = tf->n_omitted;
	src->census = tracer__census(tracer);
	src->graphs_unresolved = tracer__graphs_unresolved(tracer);
	src->received = probe__received(tracer__probe(tracer));
	for (int i = 0; i < TRACER_LOST_MAX; i++)
		src->lost[i] = tracer__lost(tracer, i);
	collect_plugin_losses(src, tf, tracer);
	src->cpu_seconds = agent__cpu_seconds();
	src->n_unjudged = tf->watch ? watch__refused(tf->watch) : 0;
	src->resident_bytes = agent__resident_bytes();
	src->libbpf = libbpf + (libbpf[0] == 'v');
	src->kernel = tf->host.release;
	src->host = tf->host.nodename;
	src->cluster = tf->cluster;
	collect_clock(src, tf, tracer);
}

/* Nothing can be made in a directory that was removed; there may be a new one of its name. */
static int textfile__publish_anew(struct textfile *tf)
{
	if (tf->dirfd >= 0)
		close(tf->dirfd);
	tf->is_locked = false;
	return textfile__open(tf) ?: textfile__lock(tf) ?:
	       prom__publish(tf->prom, tf->dirfd, PROM_FILE_NAME);
}

static int textfile__publish(struct textfile *tf, struct tracer *tracer,
			     struct textfile_source *src)
{
	int err = collect_comms(src, tf, tracer);

	err = err ?: collect_processes(src, tracer) ?: collect_timed(src, tf);
	if (err)
		return err;
	collect_agent(src, tf, tracer);
	prom__reset(tf->prom);
	err = textfile__fill(tf->prom, src);
	if (err)
		return err;
	err = tf->dirfd < 0 ? -ENOENT : prom__publish(tf->prom, tf->dirfd, PROM_FILE_NAME);
	return err == -ENOENT ? textfile__publish_anew(tf) : err;
}

int textfile__write(struct textfile *tf, struct tracer *tracer)
{
	struct textfile_source src = {.n_collisions = tf->n_collisions};
	int err = textfile__publish(tf, tracer, &src);

	tf->n_collisions = src.n_collisions;
	if (!err)
		source__remember_states(&src);
	free(src.comms);
	free(src.processes);
	free(src.timed);
	return err;
}
