/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "screen_timed.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <uthash.h>

#include "util.h"

#define FADE_NS (10 * NSEC_PER_SEC) /* to 1/e */

struct timed_size {
	uint64_t bytes, n, last_ns;
	double weight, ns, bus_bytes; /* sums that fade */
};

struct timed_operation {
	struct timed_key {
		uint64_t hash, operation;
	} key;
	bool keep;
	unsigned int n;
	struct timed_size sizes[SCREEN_MAX_SIZES + 1];
	UT_hash_handle hh;
};

struct screen_timed {
	struct timed_operation *all;
};

int screen_timed__new(struct screen_timed **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

static void screen_timed__drop(struct screen_timed *timed, struct timed_operation *operation)
{
	HASH_DEL(timed->all, operation);
	free(operation);
}

void screen_timed__free(struct screen_timed *timed)
{
	struct timed_operation *operation, *next;

	if (!timed)
		return;
	HASH_ITER(hh, timed->all, operation, next)
	screen_timed__drop(timed, operation);
	free(timed);
}

static struct timed_operation *screen_timed__find(const struct screen_timed *timed, uint64_t hash,
						  enum nccl_operation operation)
{
	const struct timed_key key = {hash, operation};
	struct timed_operation *found;

	HASH_FIND(hh, timed->all, &key, sizeof(key), found);
	return found;
}

static struct timed_operation *screen_timed__make(struct screen_timed *timed, uint64_t hash,
						  enum nccl_operation operation)
{
	struct timed_operation *made = screen_timed__find(timed, hash, operation);

	if (made || HASH_COUNT(timed->all) >= SCREEN_MAX_TIMED)
		return made;
	made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	made->key = (struct timed_key){hash, operation};
	HASH_ADD(hh, timed->all, key, sizeof(made->key), made);
	return made;
}

static struct timed_size *timed_operation__size(struct timed_operation *operation, uint64_t bytes)
{
	struct timed_size *others = &operation->sizes[SCREEN_MAX_SIZES];

	for (unsigned int i = 0; i < operation->n; i++)
		if (operation->sizes[i].bytes == bytes)
			return &operation->sizes[i];
	if (operation->n == SCREEN_MAX_SIZES) {
		others->bytes = SCREEN_OTHER_SIZES;
		return others;
	}
	operation->sizes[operation->n].bytes = bytes;
	return &operation->sizes[operation->n++];
}

void screen_timed__launch(struct screen_timed *timed, const struct timing_launch *launch)
{
	struct timed_operation *operation;
	struct timed_size *size;

	if (!launch->duration_ns || launch->after_pause || !launch->complete ||
	    launch->form != TIMING_ONE || !launch->has_bytes || !launch->n_operations ||
	    !launch->comm->hash || launch->operation >= NCCL_OP_MAX)
		return;
	operation = screen_timed__make(timed, launch->comm->hash, launch->operation);
	if (!operation)
		return;
	size = timed_operation__size(operation, launch->bytes / launch->n_operations);
	size->n++;
	if (launch->launch_ns)
		size->last_ns = launch->launch_ns;
	size->weight++;
	size->ns += launch->duration_ns;
	size->bus_bytes += launch->bus_bytes;
}

void screen_timed__fade(struct screen_timed *timed, uint64_t elapsed_ns)
{
	double factor = exp(-(double)elapsed_ns / FADE_NS);
	struct timed_operation *operation, *next;

	HASH_ITER(hh, timed->all, operation, next)
	for (unsigned int i = 0; i <= SCREEN_MAX_SIZES; i++) {
		struct timed_size *size = &operation->sizes[i];

		/* their ratios still hold where nothing new comes for hours */
		if (size->weight < 1e-9)
			continue;
		size->weight *= factor;
		size->ns *= factor;
		size->bus_bytes *= factor;
	}
}

static int compare_sizes(const void *left, const void *right)
{
	const struct screen_timed_size *a = left, *b = right;

	return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

unsigned int screen_timed__sizes(const struct screen_timed *timed, uint64_t hash,
				 enum nccl_operation operation,
				 struct screen_timed_size sizes[SCREEN_MAX_SIZES + 1])
{
	const struct timed_operation *found = screen_timed__find(timed, hash, operation);
	unsigned int n = 0;

	for (unsigned int i = 0; found && i <= SCREEN_MAX_SIZES; i++) {
		const struct timed_size *size = &found->sizes[i];

		if (!size->n)
			continue;
		sizes[n++] = (struct screen_timed_size){
			.bytes = size->bytes,
			.n = size->n,
			.last_ns = size->last_ns,
			.mean_ns = size->ns / size->weight,
			.bus_bytes = size->bus_bytes / size->ns * NSEC_PER_SEC,
		};
	}
	qsort(sizes, n, sizeof(*sizes), compare_sizes);
	return n;
}

void screen_timed__keep(struct screen_timed *timed, uint64_t hash)
{
	for (int i = 0; timed->all && i < NCCL_OP_MAX; i++) {
		struct timed_operation *operation = screen_timed__find(timed, hash, i);

		if (operation)
			operation->keep = true;
	}
}

void screen_timed__sweep(struct screen_timed *timed)
{
	struct timed_operation *operation, *next;

	HASH_ITER(hh, timed->all, operation, next)
	{
		if (!operation->keep)
			screen_timed__drop(timed, operation);
		else
			operation->keep = false;
	}
}
