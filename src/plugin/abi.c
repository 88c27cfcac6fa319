/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "abi.h"

#include <string.h>

#include "nccl_bpftrace_plugin.h"

/*
 * One macro argument set per layout. The shapes below restate the layouts as C structs, so that
 * each compiler proves the positions against natural alignment.
 */
struct coll_v1 {
	uint8_t type;
	void *parent;
	int rank;
	const char *name;
	uint64_t hash, sequence;
	uint8_t function;
	const void *send, *receive;
	uint64_t count;
	int root;
	uint8_t datatype;
	uint32_t op;
	uint64_t traffic;
	uint8_t channels, warps, algorithm, protocol;
	int is_collnet, is_nvls;
};

struct coll_v2 {
	uint8_t type;
	void *parent;
	int rank;
	const char *name;
	uint64_t hash, sequence;
	const char *function;
	const void *send, *receive;
	uint64_t count;
	int root;
	const char *datatype;
	uint64_t traffic;
	uint8_t channels, warps;
	const char *algorithm, *protocol;
};

struct coll_v3 {
	uint8_t type;
	void *parent;
	int rank;
	const char *name;
	uint64_t hash, sequence;
	const char *function;
	const void *send, *receive;
	uint64_t count;
	int root;
	const char *datatype;
	uint8_t channels, warps;
	const char *algorithm, *protocol;
};

struct coll_v5 { /* v4 is v5 without the last member, and its type has one byte */
	uint64_t type;
	void *parent;
	int rank;
	uint64_t sequence;
	const char *function;
	const void *send, *receive;
	uint64_t count;
	int root;
	const char *datatype;
	uint8_t channels, warps;
	const char *algorithm, *protocol;
	void *parent_group;
};

struct p2p_v1 {
	uint8_t type;
	void *parent;
	int rank;
	const char *name;
	uint64_t hash;
	uint8_t function;
	void *buffer;
	uint8_t datatype;
	uint64_t count;
	int peer;
};

struct p2p_v2 {
	uint8_t type;
	void *parent;
	int rank;
	const char *name;
	uint64_t hash;
	const char *function;
	void *buffer;
	const char *datatype;
	uint64_t count;
	int peer;
};

struct p2p_v5 {
	uint64_t type;
	void *parent;
	int rank;
	const char *function;
	void *buffer;
	const char *datatype;
	uint64_t count;
	int peer;
	uint8_t channels;
	void *parent_group;
};

struct coll_api_v5 {
	uint64_t type;
	void *parent;
	int rank;
	const char *function;
	uint64_t count;
	const char *datatype;
	int root;
	void *stream;
	bool captured;
};

struct p2p_api_v5 {
	uint64_t type;
	void *parent;
	int rank;
	const char *function;
	uint64_t count;
	const char *datatype;
	void *stream;
	bool captured;
};

struct ce_coll_v6 {
	uint64_t type;
	void *parent;
	int rank;
	uint64_t sequence;
	const char *function;
	const void *send, *receive;
	uint64_t count;
	int root;
	const char *datatype, *strategy;
	bool intra;
	uint32_t batch_size, n_batches, ce_sequence;
	void *stream;
};

#define AT(type, member, position)                                                                 \
	_Static_assert(offsetof(struct type, member) == (position), #type "." #member)

_Static_assert(sizeof(struct coll_v1) == 120, "v1");
_Static_assert(sizeof(struct coll_v2) == 128, "v2");
_Static_assert(sizeof(struct coll_v3) == 120, "v3");
_Static_assert(sizeof(struct coll_v5) == 112, "v5, v6");
_Static_assert(sizeof(struct ce_coll_v6) == 112, "v6");
AT(coll_v1, parent, ABI_PARENT);
AT(coll_v1, rank, ABI_RANK);
AT(coll_v1, name, 24);
AT(coll_v1, hash, 32);
AT(coll_v1, sequence, 40);
AT(coll_v1, function, 48);
AT(coll_v1, count, 72);
AT(coll_v1, root, 80);
AT(coll_v1, datatype, 84);
AT(coll_v1, channels, 104);
AT(coll_v1, algorithm, 106);
AT(coll_v1, protocol, 107);
AT(coll_v2, function, 48);
AT(coll_v2, datatype, 88);
AT(coll_v2, channels, 104);
AT(coll_v2, algorithm, 112);
AT(coll_v2, protocol, 120);
AT(coll_v3, channels, 96);
AT(coll_v3, algorithm, 104);
AT(coll_v3, protocol, 112);
AT(coll_v5, sequence, 24);
AT(coll_v5, function, 32);
AT(coll_v5, count, 56);
AT(coll_v5, root, 64);
AT(coll_v5, datatype, 72);
AT(coll_v5, channels, 80);
AT(coll_v5, algorithm, 88);
AT(coll_v5, protocol, 96);
AT(coll_v5, parent_group, 104);
AT(p2p_v1, function, 40);
AT(p2p_v1, datatype, 56);
AT(p2p_v1, count, 64);
AT(p2p_v1, peer, 72);
AT(p2p_v2, function, 40);
AT(p2p_v2, datatype, 56);
AT(p2p_v2, count, 64);
AT(p2p_v2, peer, 72);
AT(p2p_v5, function, 24);
AT(p2p_v5, datatype, 40);
AT(p2p_v5, count, 48);
AT(p2p_v5, peer, 56);
AT(p2p_v5, channels, 60);
AT(p2p_v5, parent_group, 64);
AT(coll_api_v5, function, 24);
AT(coll_api_v5, count, 32);
AT(coll_api_v5, datatype, 40);
AT(coll_api_v5, root, 48);
AT(coll_api_v5, stream, 56);
AT(coll_api_v5, captured, 64);
AT(p2p_api_v5, function, 24);
AT(p2p_api_v5, count, 32);
AT(p2p_api_v5, datatype, 40);
AT(p2p_api_v5, stream, 48);
AT(p2p_api_v5, captured, 56);
AT(ce_coll_v6, sequence, 24);
AT(ce_coll_v6, count, 56);
AT(ce_coll_v6, root, 64);
AT(ce_coll_v6, datatype, 72);
AT(ce_coll_v6, ce_sequence, 100);
AT(ce_coll_v6, stream, 104);

#define NONE_BUT_TASKS                                                                             \
	.coll_api = {-1, -1, -1, -1, -1, -1}, .p2p_api = {-1, -1, -1, -1, -1, -1},                 \
	.group_depth = ABI_NONE, .launch_stream = ABI_NONE, .ce_stream = ABI_NONE

#define COLL_WITH_NAME(type)                                                                       \
	{                                                                                          \
		.hash = offsetof(struct type, hash), .name = offsetof(struct type, name),          \
		.sequence = offsetof(struct type, sequence),                                       \
		.function = offsetof(struct type, function),                                       \
		.count = offsetof(struct type, count), .root = offsetof(struct type, root),        \
		.datatype = offsetof(struct type, datatype),                                       \
		.algorithm = offsetof(struct type, algorithm),                                     \
		.protocol = offsetof(struct type, protocol),                                       \
		.channels = offsetof(struct type, channels), .parent_group = ABI_NONE              \
	}

#define P2P_WITH_NAME(type)                                                                        \
	{                                                                                          \
		.hash = offsetof(struct type, hash), .name = offsetof(struct type, name),          \
		.sequence = ABI_NONE, .function = offsetof(struct type, function),                 \
		.count = offsetof(struct type, count), .root = offsetof(struct type, peer),        \
		.datatype = offsetof(struct type, datatype), .algorithm = ABI_NONE,                \
		.protocol = ABI_NONE, .channels = ABI_NONE, .parent_group = ABI_NONE               \
	}

#define COLL_V4(group)                                                                             \
	{                                                                                          \
		.hash = ABI_NONE, .name = ABI_NONE,                                                \
		.sequence = offsetof(struct coll_v5, sequence),                                    \
		.function = offsetof(struct coll_v5, function),                                    \
		.count = offsetof(struct coll_v5, count), .root = offsetof(struct coll_v5, root),  \
		.datatype = offsetof(struct coll_v5, datatype),                                    \
		.algorithm = offsetof(struct coll_v5, algorithm),                                  \
		.protocol = offsetof(struct coll_v5, protocol),                                    \
		.channels = offsetof(struct coll_v5, channels), .parent_group = (group)            \
	}

/* v4: NCCL >= 2.28 does not fill p2p.nChannels for it, but then it takes v5. */
#define P2P_V4(group)                                                                              \
	{                                                                                          \
		.hash = ABI_NONE, .name = ABI_NONE, .sequence = ABI_NONE,                          \
		.function = offsetof(struct p2p_v5, function),                                     \
		.count = offsetof(struct p2p_v5, count), .root = offsetof(struct p2p_v5, peer),    \
		.datatype = offsetof(struct p2p_v5, datatype), .algorithm = ABI_NONE,              \
		.protocol = ABI_NONE, .channels = offsetof(struct p2p_v5, channels),               \
		.parent_group = (group)                                                            \
	}

#define API_V5                                                                                     \
	.coll_api = {offsetof(struct coll_api_v5, function),                                       \
		     offsetof(struct coll_api_v5, count),                                          \
		     offsetof(struct coll_api_v5, datatype),                                       \
		     offsetof(struct coll_api_v5, root),                                           \
		     offsetof(struct coll_api_v5, stream),                                         \
		     offsetof(struct coll_api_v5, captured)},                                      \
	.p2p_api = {offsetof(struct p2p_api_v5, function), offsetof(struct p2p_api_v5, count),     \
		    offsetof(struct p2p_api_v5, datatype), ABI_NONE,                               \
		    offsetof(struct p2p_api_v5, stream),   offsetof(struct p2p_api_v5, captured)}, \
	.group_depth = 28, .launch_stream = 24

#define TASKS (ABI_GROUP | ABI_COLL | ABI_P2P)
#define CALLS (ABI_COLL_API | ABI_P2P_API | ABI_KERNEL_LAUNCH)

const struct abi_version abi_versions[ABI_MAX_VERSION + 1] = {
	[1] = {1, 120, 1, false, 0x3f, TASKS, COLL_WITH_NAME(coll_v1), P2P_WITH_NAME(p2p_v1),
	       NONE_BUT_TASKS},
	[2] = {2, 128, 1, true, 0x3f, TASKS, COLL_WITH_NAME(coll_v2), P2P_WITH_NAME(p2p_v2),
	       NONE_BUT_TASKS},
	[3] = {3, 120, 1, true, 0xff, TASKS, COLL_WITH_NAME(coll_v3), P2P_WITH_NAME(p2p_v2),
	       NONE_BUT_TASKS},
	[4] = {4, 104, 1, true, 0xff, TASKS, COLL_V4(ABI_NONE), P2P_V4(ABI_NONE), NONE_BUT_TASKS},
	[5] = {5, 112, 8, true, 0xfff, TASKS | CALLS, COLL_V4(104), P2P_V4(64), API_V5,
	       .ce_stream = ABI_NONE},
	[6] = {6, 112, 8, true, 0x7fff, TASKS | CALLS | ABI_CE_COLL, COLL_V4(104), P2P_V4(64),
	       API_V5, .ce_stream = 104},
};

static const char *const function_names[] = {
	"Broadcast", "Reduce",	   "AllGather", "ReduceScatter", "AllReduce",
	"SendRecv",  "Send",	   "Recv",	"AlltoAll",	 "Scatter",
	"Gather",    "AllGatherV", "PutSignal", "Signal",	 "WaitSignal",
};
/* By ncclDataType_t. NCCL itself says "Unknown" for ncclUint8. */
static const char *const datatype_names[] = {
	"ncclInt8",    "ncclUint8",    "ncclInt32",	 "ncclUint32",
	"ncclInt64",   "ncclUint64",   "ncclFloat16",	 "ncclFloat32",
	"ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2",
};
static const char *const algorithm_names[] = {
	"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT",
};
static const char *const protocol_names[] = {"LL", "LL128", "SIMPLE"};

_Static_assert(sizeof(function_names) / sizeof(*function_names) == NBP_FUNCTION_MAX, "functions");
_Static_assert(sizeof(algorithm_names) / sizeof(*algorithm_names) == NBP_COPY_ENGINE, "algorithms");
_Static_assert(sizeof(protocol_names) / sizeof(*protocol_names) == NBP_PROTOCOL_MAX, "protocols");

static uint8_t name__find(const char *const *names, int n, const char *name)
{
	for (int i = 0; name && i < n; i++) {
		if (!strcmp(names[i], name))
			return i;
	}
	return NBP_UNKNOWN_U8;
}

#define FIND(names, name) name__find(names, sizeof(names) / sizeof(*(names)), name)

static uint64_t get_u64(const void *d, int at, uint64_t absent)
{
	uint64_t value = absent;

	if (at >= 0)
		memcpy(&value, (const char *)d + at, sizeof(value));
	return value;
}

static int32_t get_s32(const void *d, int at, int32_t absent)
{
	int32_t value = absent;

	if (at >= 0)
		memcpy(&value, (const char *)d + at, sizeof(value));
	return value;
}

static uint8_t get_u8(const void *d, int at, uint8_t absent)
{
	return at >= 0 ? ((const uint8_t *)d)[at] : absent;
}

static const char *get_string(const void *d, int at)
{
	return (const char *)(uintptr_t)get_u64(d, at, 0);
}

static void names__get(const struct abi_version *v, const void *d, const struct abi_task *at,
		       struct abi_event *e)
{
	if (!v->strings) {
		e->function = get_u8(d, at->function, NBP_UNKNOWN_U8);
		e->datatype = get_u8(d, at->datatype, NBP_UNKNOWN_U8);
		e->algorithm = get_u8(d, at->algorithm, NBP_UNKNOWN_U8);
		e->protocol = get_u8(d, at->protocol, NBP_UNKNOWN_U8);
		return;
	}
	e->function = FIND(function_names, get_string(d, at->function));
	e->datatype = FIND(datatype_names, get_string(d, at->datatype));
	e->algorithm = FIND(algorithm_names, get_string(d, at->algorithm));
	e->protocol = FIND(protocol_names, get_string(d, at->protocol));
}

static void task__get(const struct abi_version *v, const void *d, const struct abi_task *at,
		      struct abi_event *e)
{
	uint8_t channels = get_u8(d, at->channels, NBP_UNKNOWN_U8);

	e->hash = get_u64(d, at->hash, 0);
	e->name = get_string(d, at->name);
	e->sequence = get_u64(d, at->sequence, NBP_NO_NUMBER);
	e->count = get_u64(d, at->count, 0);
	e->root = get_s32(d, at->root, NBP_NO_RANK);
	/* Before v4 it is the most channels that could be used, not those that are. */
	e->channels = v->version < 4 || channels == NBP_UNKNOWN_U8 ? NBP_UNKNOWN : channels;
	names__get(v, d, at, e);
}

void abi__coll(const struct abi_version *v, const void *descriptor, struct abi_event *event)
{
	task__get(v, descriptor, &v->coll, event);
}

void abi__p2p(const struct abi_version *v, const void *descriptor, struct abi_event *event)
{
	task__get(v, descriptor, &v->p2p, event);
}

static void api__get(const void *d, const struct abi_api *at, struct abi_event *e)
{
	e->count = get_u64(d, at->count, 0);
	e->root = get_s32(d, at->root, NBP_NO_RANK);
	e->stream = get_u64(d, at->stream, 0);
	e->captured = get_u8(d, at->captured, 0);
	e->function = FIND(function_names, get_string(d, at->function));
	e->datatype = FIND(datatype_names, get_string(d, at->datatype));
}

void abi__coll_api(const struct abi_version *v, const void *descriptor, struct abi_event *event)
{
	api__get(descriptor, &v->coll_api, event);
}

void abi__p2p_api(const struct abi_version *v, const void *descriptor, struct abi_event *event)
{
	api__get(descriptor, &v->p2p_api, event);
}

/* Shares its first members with Coll; the rest differs. */
void abi__ce_coll(const struct abi_version *v, const void *descriptor, struct abi_event *event)
{
	struct abi_task at = v->coll;

	at.algorithm = at.protocol = at.channels = ABI_NONE;
	task__get(v, descriptor, &at, event);
	event->algorithm = NBP_COPY_ENGINE;
	event->stream = get_u64(descriptor, v->ce_stream, 0);
}

uint32_t abi__implied(const struct abi_version *v, uint32_t mask)
{
	uint32_t proxy = ABI_PROXY_OP | ABI_PROXY_STEP | ABI_NET_PLUGIN;
	uint32_t tasks = proxy | ABI_KERNEL_CH, copies = ABI_CE_COLL | ABI_CE_SYNC | ABI_CE_BATCH;
	uint32_t types = mask;

	mask &= v->known;
	if (mask & proxy)
		types |= ABI_PROXY_OP;
	if (mask & (ABI_PROXY_STEP | ABI_NET_PLUGIN))
		types |= ABI_PROXY_STEP;
	if (v->version < 3 && mask & (ABI_COLL | ABI_P2P | proxy))
		types |= ABI_GROUP | (mask & (ABI_COLL | proxy) ? ABI_COLL | ABI_P2P : 0);
	if (v->version >= 3 && mask & (tasks | ABI_GROUP | ABI_COLL | ABI_P2P))
		types |= ABI_GROUP | (mask & tasks ? ABI_COLL | ABI_P2P : 0);
	if (mask & copies)
		types |= ABI_CE_COLL;
	if (mask & (tasks | copies | ABI_COLL))
		types |= ABI_COLL_API;
	if (mask & (tasks | ABI_P2P))
		types |= ABI_P2P_API;
	if (mask & ~(uint32_t)ABI_PROXY_CTRL)
		types |= ABI_GROUP_API;
	return types & v->known;
}
