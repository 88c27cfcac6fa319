/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the awake plugin costs the thread that calls NCCL, per operation and per callback, by NCCL's
 * callbacks for one ncclAllReduce outside a group (ABI v5). In bursts, so that the ring is not full
 * and its lines come from another core, as in a job. Asleep NCCL calls nothing.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "bench.h"
#include "nccl_bpftrace_plugin.h"

#define BURST	 1000 /* collectives */
#define N_ROUNDS 40

struct table {
	const char *name;
	int (*init)(void **, uint64_t, int *, const char *, int, int, int, void *);
	int (*start)(void *, void **, void *);
	int (*stop)(void *);
	int (*record)(void *, int, void *);
	int (*finalize)(void *);
};

/* struct ncclProfilerEventDescr_v5_t, by offset. */
union descriptor {
	_Alignas(8) char bytes[112];
	uint64_t words[14];
};

struct job {
	const struct table *table;
	void *context, *contexts[2];
	union descriptor group_api, coll_api, launch, group, coll;
};

int cuCtxSetCurrent(void *context); /* the stand-in driver's */
int cuStreamCreate(void **stream, unsigned flags);

static void job__describe(struct job *job, void *stream)
{
	job->group_api.words[0] = 256;
	job->group_api.bytes[28] = 1;
	job->coll_api.words[0] = 512;
	job->coll_api.words[3] = (uintptr_t) "AllReduce";
	job->coll_api.words[4] = 1 << 20;
	job->coll_api.words[5] = (uintptr_t) "ncclFloat32";
	job->coll_api.words[7] = (uintptr_t)stream;
	job->launch.words[0] = 2048;
	job->launch.words[3] = (uintptr_t)stream;
	job->group.words[0] = 1;
	job->coll.words[0] = 2;
	job->coll.words[4] = (uintptr_t) "AllReduce";
	job->coll.words[7] = 1 << 20;
	job->coll.words[9] = (uintptr_t) "ncclFloat32";
	job->coll.bytes[80] = 16;
	job->coll.words[11] = (uintptr_t) "RING";
	job->coll.words[12] = (uintptr_t) "SIMPLE";
}

static void *event(struct job *job, union descriptor *d)
{
	void *handle = NULL;

	job->table->start(job->context, &handle, d);
	return handle;
}

static void event_and_stop(struct job *job, union descriptor *d)
{
	void *handle = event(job, d);

	if (handle)
		job->table->stop(handle);
}

enum part {
	ALL,
	ALL_OF_TWO, /* communicators, as where one thread drives two GPUs */
	API,
	LAUNCH,
	OPERATION,
};

static void collective(struct job *job, enum part part)
{
	if (part == ALL || part == API) {
		event(job, &job->group_api);
		event(job, &job->coll_api);
	}
	if (part == ALL || part == LAUNCH)
		event_and_stop(job, &job->launch);
	if (part != ALL && part != OPERATION)
		return;
	event(job, &job->group);
	job->coll.words[3]++;
	event(job, &job->coll);
}

static double burst(struct job *job, enum part part)
{
	uint64_t from = now_ns();

	for (int i = 0; i < BURST; i++) {
		if (part == ALL_OF_TWO)
			job->context = job->contexts[i % 2];
		collective(job, part == ALL_OF_TWO ? ALL : part);
	}
	from = now_ns() - from;
	usleep(12000); /* its thread empties the ring */
	return (double)from / BURST;
}

/* ---- a plugin that does nothing ---- */

/* No stops, as for the real one. */
static int empty_start(void *context, void **handle, void *descriptor)
{
	(void)context;
	(void)descriptor;
	*handle = NULL;
	return 0;
}

static const struct table empty = {.start = empty_start};

/* ---- the real one ---- */

static struct nbp_control *control;

static void plugin__wake(struct job *job, const char *path, int *mask)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	unsigned short *semaphore;

	if (!library)
		die(dlerror(), 0);
	job->table = dlsym(library, "ncclProfiler_v5");
	semaphore = dlsym(library, "nccl_bpftrace_batch_semaphore");
	control = dlsym(library, "nccl_bpftrace_control");
	job->table->init(&job->contexts[1], 8, mask, "other", 1, 8, 0, NULL);
	job->table->init(&job->contexts[0], 7, mask, "bench", 1, 8, 0, NULL);
	job->context = job->contexts[0];
	__atomic_store_n(semaphore, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 1000 && !__atomic_load_n(mask, __ATOMIC_RELAXED); i++)
		usleep(2000);
	if (!*mask)
		die("the plugin does not wake", 0);
	/* until there are events for the context */
	__atomic_store_n(&control->budget_ppm, 1000000, __ATOMIC_RELAXED);
	for (int i = 0; i < 500 && !__atomic_load_n(&control->n_timed, __ATOMIC_RELAXED); i++) {
		collective(job, ALL);
		usleep(10000);
	}
	__atomic_store_n(&control->budget_ppm, 1, __ATOMIC_RELAXED);
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"all", "all_of_two", "api", "launch", "operation"};
	struct job job = {0}, nothing = {.table = &empty};
	uint64_t lost;
	void *stream;
	int mask = 0;

	if (argc != 2)
		die("usage: bench_callbacks PLUGIN", 0);
	cuCtxSetCurrent((void *)0x1000);
	cuStreamCreate(&stream, 1);
	job__describe(&job, stream);
	job__describe(&nothing, stream);
	plugin__wake(&job, argv[1], &mask);
	for (int part = ALL; part <= OPERATION; part++) {
		struct rounds real = {0}, none = {0};
		char name[64];

		for (int i = 0; i < N_ROUNDS; i++) {
			rounds__add(&none, burst(&nothing, part));
			rounds__add(&real, burst(&job, part));
		}
		snprintf(name, sizeof(name), "%s_ns", names[part]);
		rounds__print(&real, name);
		snprintf(name, sizeof(name), "%s_empty_ns", names[part]);
		rounds__print(&none, name);
	}
	lost = __atomic_load_n(&control->lost[NBP_LOSS_RING_FULL], __ATOMIC_RELAXED);
	printf("lost %llu\n", (unsigned long long)lost);
	for (int i = 0; i < 2; i++)
		job.table->finalize(job.contexts[i]);
	return 0;
}
