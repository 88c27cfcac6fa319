/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* NCCL's side of the plugin's ABI, and the agent's side of its hook, for tests in one process. */
#ifndef PLUGIN_DRIVER_H
#define PLUGIN_DRIVER_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nccl_bpftrace_plugin.h"
#include "unit.h"

struct table {
	const char *name;
	void *init;
	int (*start)(void *, void **, void *);
	int (*stop)(void *);
	int (*record)(void *, int, void *);
	int (*finalize)(void *);
};

typedef int (*init_v1)(void **, int *);
typedef int (*init_v4)(void **, int *, const char *, uint64_t, int, int, int, void *);
typedef int (*init_v5)(void **, uint64_t, int *, const char *, int, int, int, void *);

static void *plugin;
static struct table *tables[7];
static unsigned short *semaphore;
static struct nbp_control *control;

#define N_RECORDS_MAX (1 << 20)
static struct nbp_record *records;
static int n_records;
static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;

static void (*batch_seen)(const struct nbp_record *r, uint32_t n);

void nccl_bpftrace_test_batch(const struct nbp_record *r, uint32_t n);

void nccl_bpftrace_test_batch(const struct nbp_record *r, uint32_t n)
{
	pthread_mutex_lock(&records_lock);
	for (uint32_t i = 0; i < n && n_records < N_RECORDS_MAX; i++)
		records[n_records++] = r[i];
	pthread_mutex_unlock(&records_lock);
	if (batch_seen)
		batch_seen(r, n);
}

static void ms_sleep(int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&t, NULL);
}

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

/* Beside the test program: the plugin of the same sanitizer, the stand-in driver. */
static void *open_beside(const char *name, int flags)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *slash;
	void *library;

	path[n > 0 ? n : 0] = 0;
	slash = strrchr(path, '/');
	snprintf(slash + 1, sizeof(path) - (slash + 1 - path), "plugin/%s", name);
	library = dlopen(path, flags);
	if (!library) {
		printf("FAIL %s\n0 passed, 1 failed\n", dlerror());
		exit(1);
	}
	return library;
}

static void load_plugin(const char *name)
{
	char symbol[32];

	if (!records)
		records = calloc(N_RECORDS_MAX, sizeof(*records));
	plugin = open_beside(name, RTLD_NOW | RTLD_LOCAL);
	for (int i = 1; i <= 6; i++) {
		snprintf(symbol, sizeof(symbol), "ncclProfiler_v%d", i);
		tables[i] = dlsym(plugin, symbol);
	}
	semaphore = dlsym(plugin, "nccl_bpftrace_batch_semaphore");
	control = dlsym(plugin, "nccl_bpftrace_control");
}

static void raise_semaphore(int value)
{
	__atomic_store_n(semaphore, value, __ATOMIC_RELAXED);
}

static int mask_of(int *mask)
{
	return __atomic_load_n(mask, __ATOMIC_RELAXED);
}

/* Milliseconds until the mask is what it should be, -1: not within a second. */
static int wait_mask(int *mask, int wanted)
{
	uint64_t from = clock_ns();

	while (clock_ns() - from < 1000000000) {
		if (mask_of(mask) == wanted)
			return (clock_ns() - from) / 1000000;
		ms_sleep(2);
	}
	return -1;
}

static bool wait_asleep(void)
{
	__atomic_store_n(semaphore, 0, __ATOMIC_RELAXED);
	for (int i = 0; i < 20000 && __atomic_load_n(&control->awake, __ATOMIC_RELAXED); i++)
		ms_sleep(2);
	return !__atomic_load_n(&control->awake, __ATOMIC_RELAXED);
}

static void forget_records(void)
{
	pthread_mutex_lock(&records_lock);
	n_records = 0;
	pthread_mutex_unlock(&records_lock);
}

/* Records of a kind, of a communicator (0: any), copied to `first` if that is not NULL. */
static int count_records(int kind, uint64_t hash, struct nbp_record *first)
{
	int n = 0;

	pthread_mutex_lock(&records_lock);
	for (int i = 0; i < n_records; i++) {
		if (records[i].kind != kind || (hash && records[i].comm_hash != hash))
			continue;
		if (!n++ && first)
			*first = records[i];
	}
	pthread_mutex_unlock(&records_lock);
	return n;
}

/* The n-th of a kind, of a communicator, as it stands in the order of arrival. */
static struct nbp_record nth_record(int kind, uint64_t hash, int n)
{
	struct nbp_record found = {0};

	pthread_mutex_lock(&records_lock);
	for (int i = 0; i < n_records; i++) {
		if (records[i].kind == kind && records[i].comm_hash == hash && !n--)
			found = records[i];
	}
	pthread_mutex_unlock(&records_lock);
	return found;
}

static int wait_records(int kind, uint64_t hash, int wanted, struct nbp_record *first)
{
	int n = 0;

	for (int i = 0; i < 20000 && (n = count_records(kind, hash, first)) < wanted; i++)
		ms_sleep(2);
	return n;
}

/* The last sums told of are so many calls of the function, and come behind their records. */
static bool wait_counts(uint64_t hash, int function, uint64_t calls, struct nbp_record *ret)
{
	for (int tries = 0; tries < 2000; tries++) {
		bool found = false;

		pthread_mutex_lock(&records_lock);
		for (int i = 0; i < n_records; i++) {
			if (records[i].kind == NBP_KIND_API && records[i].comm_hash == hash)
				found = false;
			if (records[i].kind != NBP_KIND_COUNTS || records[i].comm_hash != hash)
				continue;
			*ret = records[i];
			found = ret->counts.function[function].calls == calls;
		}
		pthread_mutex_unlock(&records_lock);
		if (found)
			return true;
		ms_sleep(2);
	}
	return false;
}

/* What was told of launches of a communicator, by enum nbp_phase. */
static int count_phase(uint64_t hash, int phase, struct nbp_record *last)
{
	int n = 0;

	pthread_mutex_lock(&records_lock);
	for (int i = 0; i < n_records; i++) {
		if (records[i].kind != NBP_KIND_LAUNCH || records[i].comm_hash != hash ||
		    records[i].launch.phase != phase)
			continue;
		n++;
		if (last)
			*last = records[i];
	}
	pthread_mutex_unlock(&records_lock);
	return n;
}

static int count_finished(uint64_t hash, struct nbp_record *last)
{
	return count_phase(hash, NBP_FINISHED, last);
}

static int wait_finished(uint64_t hash, int wanted, struct nbp_record *last)
{
	int n = 0;

	for (int i = 0; i < 20000 && (n = count_finished(hash, last)) < wanted; i++)
		ms_sleep(2);
	return n;
}

static void *init(int version, int *mask, uint64_t hash, const char *name)
{
	void *context = (void *)1;
	int result;

	if (version <= 3)
		result = ((init_v1)tables[version]->init)(&context, mask);
	else if (version == 4)
		result = ((init_v4)tables[4]->init)(&context, mask, name, hash, 2, 8, 5, NULL);
	else
		result =
			((init_v5)tables[version]->init)(&context, hash, mask, name, 2, 8, 5, NULL);
	return result ? NULL : context;
}

/* ---- descriptors of v5 and v6, by offset ---- */

static void put(void *d, int at, const void *value, size_t size)
{
	memcpy((char *)d + at, value, size);
}

static void put_u64(void *d, int at, uint64_t value)
{
	put(d, at, &value, 8);
}

static void put_s32(void *d, int at, int32_t value)
{
	put(d, at, &value, 4);
}

static void put_string(void *d, int at, const char *value)
{
	put(d, at, &value, 8);
}

struct descriptor {
	_Alignas(8) char bytes[128];
};

static struct descriptor descriptor(uint64_t type)
{
	struct descriptor d = {{0}};

	put_u64(&d, 0, type);
	put_s32(&d, 16, 5);
	return d;
}

static struct descriptor group_api(int depth)
{
	struct descriptor d = descriptor(256);

	put_s32(&d, 28, depth);
	return d;
}

static struct descriptor coll_api(const char *function, uint64_t count, void *stream, int captured)
{
	struct descriptor d = descriptor(512);

	put_string(&d, 24, function);
	put_u64(&d, 32, count);
	put_string(&d, 40, "ncclFloat32");
	put_s32(&d, 48, 0);
	put(&d, 56, &stream, 8);
	d.bytes[64] = captured;
	return d;
}

static struct descriptor kernel_launch(void *stream)
{
	struct descriptor d = descriptor(2048);

	put(&d, 24, &stream, 8);
	return d;
}

static struct descriptor coll(const char *function, uint64_t sequence, uint64_t count)
{
	struct descriptor d = descriptor(2);

	put_u64(&d, 24, sequence);
	put_string(&d, 32, function);
	put_u64(&d, 56, count);
	put_s32(&d, 64, 0);
	put_string(&d, 72, "ncclFloat32");
	d.bytes[80] = 16;
	put_string(&d, 88, "RING");
	put_string(&d, 96, "SIMPLE");
	return d;
}

/* NCCL's own are NULL; a plugin alone must not leave them as they were. */
static void *handle_before = (void *)0xdead0;

static void *start(int version, void *context, struct descriptor d)
{
	void *handle = handle_before;

	tables[version]->start(context, &handle, &d);
	return handle;
}

/* One collective outside a group, as NCCL >= 2.28 tells of it. */
static void one_collective(int version, void *context, void *stream, uint64_t sequence,
			   int captured, void (*launch)(void *stream))
{
	struct table *t = tables[version];
	void *kernel, *group, *task, *group_handle = start(version, context, group_api(1));

	if (group_handle)
		t->record(group_handle, 23, NULL);
	start(version, context, coll_api("AllReduce", 1000, stream, captured));
	kernel = start(version, context, kernel_launch(stream));
	if (launch)
		launch(stream);
	if (kernel)
		t->stop(kernel);
	group = start(version, context, descriptor(1));
	task = start(version, context, coll("AllReduce", sequence, 1000));
	if (task)
		t->stop(task);
	if (group)
		t->stop(group);
	if (group_handle)
		t->stop(group_handle);
}

#endif
