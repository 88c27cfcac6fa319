/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "event.h"

#include <string.h>

#include "lib.h"
#include "names.h"

#define N_WARPS 16
#define NONE (-1)

/* Byte offsets in the descriptor of one version. */
struct task_at {
	int name, hash, sequence, func, send, recv, count, root, datatype;
	int redop, traffic, n_channels, n_warps, algorithm, protocol, group;
};

struct version {
	uint64_t known; /* event types */
	int type_size;
	bool enums; /* bytes instead of strings */
	struct task_at coll, p2p;
	int channel, timer; /* of KernelCh */
};

/* clang-format off */
#define P2P_NAMED { 24, 32, NONE, 40, NONE, 48, 64, 72, 56, \
			       NONE, NONE, NONE, NONE, NONE, NONE, NONE }
#define COLL_V4(group) { NONE, NONE, 24, 32, 40, 48, 56, 64, 72, \
			 NONE, NONE, 80, 81, 88, 96, group }
#define P2P_V4(channels, group) { NONE, NONE, NONE, 24, NONE, 32, 48, 56, 40, \
				  NONE, NONE, channels, NONE, NONE, NONE, group }
/* NCCL 2.27 fills it; the adapter to v4 of later ones does not. */
#define P2P_CHANNELS_V4 (SIM_HAS_API_EVENTS ? NONE : 60)

static const struct version versions[ABI_MAX_VERSION + 1] = {
	[1] = { 0x3f, 1, true,
		{ 24, 32, 40, 48, 56, 64, 72, 80, 84, 88, 96, 104, 105, 106, 107, NONE },
		P2P_NAMED, NONE, NONE },
	[2] = { 0x3f, 1, false,
		{ 24, 32, 40, 48, 56, 64, 72, 80, 88, NONE, 96, 104, 105, 112, 120, NONE },
		P2P_NAMED, NONE, NONE },
	[3] = { 0xff, 1, false,
		{ 24, 32, 40, 48, 56, 64, 72, 80, 88, NONE, NONE, 96, 97, 104, 112, NONE },
		P2P_NAMED, 24, NONE },
	[4] = { 0xff, 1, false, COLL_V4(NONE), P2P_V4(P2P_CHANNELS_V4, NONE), 24, 32 },
	[5] = { 0xfff, 8, false, COLL_V4(104), P2P_V4(60, 64), 24, 32 },
	[6] = { 0x7fff, 8, false, COLL_V4(104), P2P_V4(60, 64), 24, 32 },
};
/* clang-format on */

static void put(void *descriptor, int at, const void *value, size_t size)
{
	if (at != NONE)
		memcpy((char *)descriptor + at, value, size);
}

static void put_u8(void *descriptor, int at, uint8_t value)
{
	put(descriptor, at, &value, sizeof(value));
}

static void put_u32(void *descriptor, int at, uint32_t value)
{
	put(descriptor, at, &value, sizeof(value));
}

static void put_u64(void *descriptor, int at, uint64_t value)
{
	put(descriptor, at, &value, sizeof(value));
}

static void put_pointer(void *descriptor, int at, const void *value)
{
	put(descriptor, at, &value, sizeof(value));
}

static void put_word(void *descriptor, int at, bool enums, int number, const char *text)
{
	if (enums)
		put_u8(descriptor, at, (uint8_t)number);
	else
		put_pointer(descriptor, at, text);
}

static void describe_task(const struct sim_event *e, const struct version *v,
			  const struct task_at *at, void *d)
{
	put_pointer(d, at->name, e->name);
	put_u64(d, at->hash, e->hash);
	put_u64(d, at->sequence, e->sequence);
	put_word(d, at->func, v->enums, e->func, sim_func_name(e->func));
	put_pointer(d, at->send, e->send);
	put_pointer(d, at->recv, e->recv);
	put_u64(d, at->count, e->count);
	put_u32(d, at->root, (uint32_t)e->root);
	put_word(d, at->datatype, v->enums, e->datatype, sim_datatype_name(e->datatype));
	put_u32(d, at->redop, e->redop);
	put_u64(d, at->traffic, e->traffic);
	put_u8(d, at->n_channels, e->n_channels);
	put_u8(d, at->n_warps, N_WARPS);
	put_word(d, at->algorithm, v->enums, e->algorithm, sim_algorithm_name(e->algorithm));
	put_word(d, at->protocol, v->enums, e->protocol, sim_protocol_name(e->protocol));
	put_pointer(d, at->group, e->parent_group);
}

/* v5 and v6 have them at the same places; a send's has no root, so what follows lies higher up. */
static void describe_api(const struct sim_event *e, void *d)
{
	int stream = e->type == ABI_COLL_API ? 56 : 48;

	put_pointer(d, 24, sim_func_name(e->func));
	put_u64(d, 32, e->count);
	put_pointer(d, 40, sim_datatype_name(e->datatype));
	if (e->type == ABI_COLL_API)
		put_u32(d, 48, (uint32_t)e->root);
	put_pointer(d, stream, e->stream);
	put_u8(d, stream + 8, e->captured);
}

/* NCCL's own adapters make the group the parent for a plugin that knows no API events. */
static void *parent_of(const struct sim_event *e, int version)
{
	bool task = e->type == ABI_COLL || e->type == ABI_P2P;

	return task && version < 5 ? e->parent_group : e->parent;
}

bool event_describe(const struct sim_event *e, int version, void *d)
{
	const struct version *v = &versions[version];

	if (!(v->known & e->type))
		return false;
	memset(d, 0, EVENT_BYTES);
	if (v->type_size == 1)
		put_u8(d, 0, (uint8_t)e->type);
	else
		put_u64(d, 0, e->type);
	put_pointer(d, ABI_PARENT, parent_of(e, version));
	put_u32(d, ABI_RANK, (uint32_t)e->rank);
	if (e->type == ABI_COLL)
		describe_task(e, v, &v->coll, d);
	if (e->type == ABI_P2P)
		describe_task(e, v, &v->p2p, d);
	if (e->type == ABI_COLL_API || e->type == ABI_P2P_API)
		describe_api(e, d);
	if (e->type == ABI_GROUP_API) {
		put_u8(d, 24, e->captured);
		put_u32(d, 28, (uint32_t)e->depth);
	}
	if (e->type == ABI_KERNEL_LAUNCH)
		put_pointer(d, 24, e->stream);
	if (e->type == ABI_KERNEL_CH) {
		put_u8(d, v->channel, e->channel);
		put_u64(d, v->timer, e->timer);
	}
	return true;
}
