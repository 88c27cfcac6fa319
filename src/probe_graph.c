/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps that tell of CUDA graphs. */
#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "probe_private.h"
#include "util.h"

#define READ_BATCH	512
#define MAX_KEY_BYTES	sizeof(struct nb_captured_key)
#define MAX_VALUE_BYTES sizeof(struct nb_capturer)

typedef void entry_fn(void *ctx, const void *key, const void *value);

/* All entries of a hash map, in batches. */
static int each_entry(const struct bpf_map *map, entry_fn *fn, void *ctx)
{
	_cleanup_free_ char *keys = malloc(READ_BATCH * MAX_KEY_BYTES);
	_cleanup_free_ char *values = malloc(READ_BATCH * MAX_VALUE_BYTES);
	size_t key_size = bpf_map__key_size(map), value_size = bpf_map__value_size(map);
	uint64_t next = 0; /* opaque to us: a bucket number */
	bool first = true;
	int err;

	if (!keys || !values)
		return -ENOMEM;
	do {
		uint32_t n = READ_BATCH;

		err = bpf_map_lookup_batch(bpf_map__fd(map), first ? NULL : &next, &next, keys,
					   values, &n, NULL);
		if (err && err != -ENOENT)
			return err;
		first = false;
		for (uint32_t i = 0; i < n; i++)
			fn(ctx, keys + i * key_size, values + i * value_size);
	} while (!err);
	return 0;
}

void probe__with_graphs(struct probe *probe)
{
	probe->skel->bss->with_graphs = true;
}

struct reader {
	probe_capture_fn *capture;
	probe_captured_fn *captured;
	void *ctx;
};

static void on_capture(void *ctx, const void *key, const void *value)
{
	const struct reader *reader = ctx;

	reader->capture(reader->ctx, *(const uint64_t *)key, value);
}

static void on_captured(void *ctx, const void *key, const void *value)
{
	const struct reader *reader = ctx;

	reader->captured(reader->ctx, key, value);
}

int probe__each_capture(struct probe *probe, probe_capture_fn *fn, void *ctx)
{
	struct reader reader = {.capture = fn, .ctx = ctx};

	if (!probe->skel->bss->with_graphs)
		return 0;
	return each_entry(probe->skel->maps.captures, on_capture, &reader);
}

int probe__each_captured(struct probe *probe, probe_captured_fn *fn, void *ctx)
{
	struct reader reader = {.captured = fn, .ctx = ctx};

	if (!probe->skel->bss->with_graphs)
		return 0;
	return each_entry(probe->skel->maps.captured, on_captured, &reader);
}

static void drop(struct probe *probe, const struct bpf_map *map, const void *key, uint32_t tgid)
{
	if (!bpf_map_delete_elem(bpf_map__fd(map), key))
		probe__uncharge_process(probe, tgid);
}

void probe__drop_capture(struct probe *probe, uint64_t capture, uint32_t tgid)
{
	drop(probe, probe->skel->maps.captures, &capture, tgid);
}

void probe__drop_captured(struct probe *probe, const struct nb_captured_key *key)
{
	drop(probe, probe->skel->maps.captured, key, key->key.tgid);
}

/* Keys of one process, to be deleted once the walk is over. */
struct doomed {
	uint32_t tgid;
	size_t key_size, n, room;
	uint32_t (*tgid_of)(const void *key, const void *value);
	char *keys;
};

static void doomed__note(void *ctx, const void *key, const void *value)
{
	struct doomed *d = ctx;

	if (d->tgid_of(key, value) != d->tgid)
		return;
	if (d->n == d->room) {
		size_t room = d->room ? d->room * 2 : 64;
		char *keys = realloc(d->keys, room * d->key_size);

		if (!keys)
			return; /* a process of that number finds them, another time */
		d->keys = keys;
		d->room = room;
	}
	memcpy(d->keys + d->n++ * d->key_size, key, d->key_size);
}

static uint32_t tgid_of_capture(const void *key, const void *value)
{
	(void)key;
	return ((const struct nb_capture *)value)->tgid;
}

static uint32_t tgid_of_captured(const void *key, const void *value)
{
	(void)value;
	return ((const struct nb_captured_key *)key)->key.tgid;
}

static uint32_t tgid_of_handle(const void *key, const void *value)
{
	(void)value;
	return ((const struct nb_handle_key *)key)->tgid;
}

static uint32_t tgid_of_capturer(const void *key, const void *value)
{
	(void)value;
	return *(const uint64_t *)key >> 32;
}

void probe__forget_graphs(struct probe *probe, uint32_t tgid)
{
	const struct {
		const struct bpf_map *map;
		uint32_t (*tgid_of)(const void *key, const void *value);
	} maps[] = {
		{probe->skel->maps.captures, tgid_of_capture},
		{probe->skel->maps.captured, tgid_of_captured},
		{probe->skel->maps.handles, tgid_of_handle},
		{probe->skel->maps.capturers, tgid_of_capturer},
	};

	for (size_t i = 0; probe->skel->bss->with_graphs && i < ARRAY_SIZE(maps); i++) {
		struct doomed d = {
			.tgid = tgid,
			.key_size = bpf_map__key_size(maps[i].map),
			.tgid_of = maps[i].tgid_of,
		};

		each_entry(maps[i].map, doomed__note, &d);
		while (d.n)
			bpf_map_delete_elem(bpf_map__fd(maps[i].map), d.keys + --d.n * d.key_size);
		free(d.keys);
	}
}

void probe__set_unprobed(struct probe *probe, uint32_t tgid, bool unprobed)
{
	int fd = bpf_map__fd(probe->skel->maps.unprobed);
	uint32_t no = 0;

	if (unprobed)
		bpf_map_update_elem(fd, &tgid, &no, BPF_ANY);
	else
		bpf_map_delete_elem(fd, &tgid);
}

bool probe__captures_unprobed(const struct probe *probe, uint32_t tgid)
{
	uint32_t captures = 0;

	return !bpf_map_lookup_elem(bpf_map__fd(probe->skel->maps.unprobed), &tgid, &captures) &&
	       captures;
}
