/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A profiler plugin that is not ours: v1 to v6, with handles from a small pool that are used again
 * as soon as they are free, the way NVIDIA's Inspector does it. In the environment:
 *
 *   FOREIGN_MASK=BITS    what it asks for (Coll, P2p and KernelCh)
 *   FOREIGN_TABLE=WHAT   what stands in its tables instead of startEvent: `data`, `null`,
 *                        `anonymous` (executable memory of no file), `libc`; or `late`: all is NULL
 *                        until a second has passed
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../src/plugin/abi.h"

#define POOL	 64
#define CHANNELS 64

struct channel {
	uint64_t type;
	struct task *task;
};

struct task {
	uint64_t type;
	int references; /* its own, until its stop; one for each channel to come or under way */
	struct channel channels[CHANNELS];
	struct task *next_free;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct task pool[POOL], *free_tasks;
static bool is_filled;
static uint64_t nobodys; /* handle of what is not looked at */

static struct task *take_task(uint64_t type, int channels)
{
	struct task *task;

	if (!is_filled)
		for (int i = 0; i < POOL; i++) {
			pool[i].next_free = free_tasks;
			free_tasks = &pool[i];
		}
	is_filled = true;
	task = free_tasks;
	if (!task)
		return NULL;
	free_tasks = task->next_free;
	task->type = type;
	task->references = 1 + channels;
	return task;
}

static void drop_task(struct task *task)
{
	if (--task->references)
		return;
	task->next_free = free_tasks;
	free_tasks = task;
}

static int init_any(void **context, int *mask)
{
	const char *bits = getenv("FOREIGN_MASK");

	*mask = bits ? (int)strtol(bits, NULL, 0) : ABI_COLL | ABI_P2P | ABI_KERNEL_CH;
	*context = malloc(64);
	return 0;
}

static bool has_channels(void)
{
	const char *bits = getenv("FOREIGN_MASK");

	return !bits || strtol(bits, NULL, 0) & ABI_KERNEL_CH;
}

static int start_any(const struct abi_version *v, void **handle, const char *d)
{
	uint64_t type = abi__type(v, d);
	struct channel *channel;
	struct task *parent;
	int at = type == ABI_COLL ? v->coll.channels : v->p2p.channels;

	*handle = NULL;
	pthread_mutex_lock(&lock);
	if (type == ABI_COLL || type == ABI_P2P) {
		*handle = take_task(type, v->version >= 4 && has_channels() ? (uint8_t)d[at] : 0);
	} else if (type == ABI_KERNEL_CH && v->version >= 4) {
		memcpy(&parent, d + ABI_PARENT, sizeof(parent));
		if (parent) {
			channel = &parent->channels[(uint8_t)d[24] % CHANNELS];
			*channel = (struct channel){ABI_KERNEL_CH, parent};
			*handle = channel;
		}
	} else if (type != ABI_KERNEL_CH) {
		*handle = &nobodys; /* before 2.28 NCCL tells no more without one for a group */
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

static int stop_any(void *handle)
{
	const uint64_t *type = handle;

	pthread_mutex_lock(&lock);
	if (handle && handle != &nobodys) {
		if (*type == ABI_KERNEL_CH)
			drop_task(((struct channel *)handle)->task);
		else
			drop_task(handle);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

static int record_any(void *handle, int state, void *arguments)
{
	(void)handle, (void)state, (void)arguments;
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int finalize_any(void *context)
{
	free(context);
	return 0;
}

#define VERSION(N)                                                                                 \
	static int start_v##N(void *context, void **handle, void *d)                               \
	{                                                                                          \
		(void)context;                                                                     \
		return start_any(&abi_versions[N], handle, d);                                     \
	}                                                                                          \
	extern struct abi_profiler ncclProfiler_v##N;                                              \
	ABI_EXPORT struct abi_profiler ncclProfiler_v##N = {"foreign",	(void (*)(void))init_v##N, \
							    start_v##N, stop_any, record_any,     \
							    finalize_any}
#define INIT_V1(N)                                                                                 \
	static int init_v##N(void **context, int *mask)                                            \
	{                                                                                          \
		return init_any(context, mask);                                                    \
	}
#define INIT_V5(N)                                                                                 \
	static int init_v##N(void **context, uint64_t hash, int *mask, const char *name,           \
			     int n_nodes, int n_ranks, int rank, abi_logger logger)                \
	{                                                                                          \
		(void)hash, (void)name, (void)n_nodes, (void)n_ranks, (void)rank, (void)logger;    \
		return init_any(context, mask);                                                    \
	}

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int n_nodes,
		   int n_ranks, int rank, abi_logger logger)
{
	(void)hash, (void)name, (void)n_nodes, (void)n_ranks, (void)rank, (void)logger;
	return init_any(context, mask);
}

INIT_V1(1)
INIT_V1(2)
INIT_V1(3)
INIT_V5(5)
INIT_V5(6)
VERSION(1);
VERSION(2);
VERSION(3);
VERSION(4);
VERSION(5);
VERSION(6);

static struct abi_profiler *const tables[] = {&ncclProfiler_v1, &ncclProfiler_v2, &ncclProfiler_v3,
					      &ncclProfiler_v4, &ncclProfiler_v5, &ncclProfiler_v6};
static struct abi_profiler filled[6];

static void *fill_later(void *unused)
{
	(void)unused;
	sleep(1);
	for (int i = 0; i < 6; i++)
		*tables[i] = filled[i];
	return NULL;
}

static void empty_until_later(void)
{
	pthread_t thread;

	for (int i = 0; i < 6; i++) {
		filled[i] = *tables[i];
		*tables[i] = (struct abi_profiler){};
	}
	pthread_create(&thread, NULL, fill_later, NULL);
}

static void *wrong_address(const char *what)
{
	if (!strcmp(what, "data"))
		return pool;
	if (!strcmp(what, "anonymous"))
		return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return !strcmp(what, "libc") ? (void *)puts : NULL;
}

__attribute__((constructor)) static void spoil_tables(void)
{
	const char *what = getenv("FOREIGN_TABLE");

	if (!what)
		return;
	if (!strcmp(what, "late")) {
		empty_until_later();
		return;
	}
	for (int i = 0; i < 6; i++)
		tables[i]->start = (int (*)(void *, void **, void *))wrong_address(what);
}
