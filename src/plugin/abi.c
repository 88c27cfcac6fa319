/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "abi_decode.h"

#include <string.h>

#include "nccl_bpftrace_plugin.h"

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

#define NAMES(list)                                                                                \
	{                                                                                          \
		list, sizeof(list) / sizeof(*(list))                                               \
	}

static const struct {
	const char *const *names;
	int n;
} namings[] = {
	[ABI_API_FUNCTION] = NAMES(function_names), [ABI_API_DATATYPE] = NAMES(datatype_names),
	[ABI_FUNCTION] = NAMES(function_names),	    [ABI_DATATYPE] = NAMES(datatype_names),
	[ABI_ALGORITHM] = NAMES(algorithm_names),   [ABI_PROTOCOL] = NAMES(protocol_names),
};

uint8_t abi_name__learn(struct abi_names *known, enum abi_named what, const char *name)
{
	known->name[what] = name;
	known->value[what] = NBP_UNKNOWN_U8;
	for (int i = 0; name && i < namings[what].n; i++) {
		if (!strcmp(namings[what].names[i], name))
			known->value[what] = i;
	}
	return known->value[what];
}

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
		       struct abi_names *names, struct abi_event *e)
{
	if (!v->strings) {
		e->function = get_u8(d, at->function, NBP_UNKNOWN_U8);
		e->datatype = get_u8(d, at->datatype, NBP_UNKNOWN_U8);
		e->algorithm = get_u8(d, at->algorithm, NBP_UNKNOWN_U8);
		e->protocol = get_u8(d, at->protocol, NBP_UNKNOWN_U8);
		return;
	}
	e->function = abi_name__get(names, ABI_FUNCTION, get_string(d, at->function));
	e->datatype = abi_name__get(names, ABI_DATATYPE, get_string(d, at->datatype));
	e->algorithm = abi_name__get(names, ABI_ALGORITHM, get_string(d, at->algorithm));
	e->protocol = abi_name__get(names, ABI_PROTOCOL, get_string(d, at->protocol));
}

void abi__old_task(const struct abi_version *v, uint64_t type, const void *d,
		   struct abi_names *names, struct abi_event *e)
{
	const struct abi_task *at = type == ABI_COLL ? &v->coll : &v->p2p;

	e->hash = get_u64(d, at->hash, 0);
	e->name = get_string(d, at->name);
	e->sequence = get_u64(d, at->sequence, NBP_NO_NUMBER);
	e->count = get_u64(d, at->count, 0);
	e->root = get_s32(d, at->root, NBP_NO_RANK);
	e->channels = NBP_UNKNOWN; /* what there is are the most that could be used */
	names__get(v, d, at, names, e);
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
