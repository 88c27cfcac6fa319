/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Another profiler plugin, v5 only, that counts what it is called with. */
#include "chained.h"

#include <stddef.h>
#include <string.h>

struct profiler {
	const char *name;
	int (*init)(void **, uint64_t, int *, const char *, int, int, int, void *);
	int (*start)(void *, void **, char *);
	int (*stop)(void *);
	int (*record)(void *, int, void *);
	int (*finalize)(void *);
};

struct chained chained;
static int context_word;

static int init(void **context, uint64_t hash, int *mask, const char *name, int n_nodes,
		int n_ranks, int rank, void *logger)
{
	(void)name, (void)n_nodes, (void)n_ranks, (void)rank, (void)logger;
	chained.n_init++;
	chained.hash = hash;
	chained.mask_given = mask;
	*mask = chained.mask;
	*context = &context_word;
	return 0;
}

static int start(void *context, void **handle, char *descriptor)
{
	uint64_t type;

	memcpy(&type, descriptor, sizeof(type));
	chained.n_wrong_context += context != &context_word;
	chained.n_start[__builtin_ctzll(type)]++;
	memcpy(&chained.last_parent, descriptor + 8, sizeof(void *));
	if (type == 2)
		memcpy(&chained.last_group_of_coll, descriptor + 104, sizeof(void *));
	if (type & chained.handles_for)
		*handle = (void *)(uintptr_t)(0x10000 + type);
	return 0;
}

static int stop(void *handle)
{
	chained.n_stop++;
	chained.last_stopped = (uintptr_t)handle;
	return 0;
}

static int record(void *handle, int state, void *arguments)
{
	(void)arguments;
	chained.n_record++;
	chained.last_recorded = (uintptr_t)handle;
	chained.last_state = state;
	return 0;
}

static int finalize(void *context)
{
	chained.n_wrong_context += context != &context_word;
	chained.n_finalize++;
	return 0;
}

extern const struct profiler ncclProfiler_v5;
const struct profiler ncclProfiler_v5 = {"chained", init, start, stop, record, finalize};
