/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "abi_v5.h"

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

struct kernel_ch_v4 { /* v4's type has one byte */
	struct head_v5 head;
	uint8_t channel;
	uint64_t timer;
};

_Static_assert(sizeof(struct coll_v1) == 120, "v1");
_Static_assert(sizeof(struct coll_v2) == 128, "v2");
_Static_assert(sizeof(struct coll_v3) == 120, "v3");
ABI_AT(coll_v1, parent, ABI_PARENT);
ABI_AT(coll_v1, rank, ABI_RANK);
ABI_AT(coll_v1, name, 24);
ABI_AT(coll_v1, hash, 32);
ABI_AT(coll_v1, sequence, 40);
ABI_AT(coll_v1, function, 48);
ABI_AT(coll_v1, count, 72);
ABI_AT(coll_v1, root, 80);
ABI_AT(coll_v1, datatype, 84);
ABI_AT(coll_v1, channels, 104);
ABI_AT(coll_v1, algorithm, 106);
ABI_AT(coll_v1, protocol, 107);
ABI_AT(coll_v2, function, 48);
ABI_AT(coll_v2, datatype, 88);
ABI_AT(coll_v2, channels, 104);
ABI_AT(coll_v2, algorithm, 112);
ABI_AT(coll_v2, protocol, 120);
ABI_AT(coll_v3, channels, 96);
ABI_AT(coll_v3, algorithm, 104);
ABI_AT(coll_v3, protocol, 112);
ABI_AT(p2p_v1, function, 40);
ABI_AT(p2p_v1, datatype, 56);
ABI_AT(p2p_v1, count, 64);
ABI_AT(p2p_v1, peer, 72);
ABI_AT(p2p_v2, function, 40);
ABI_AT(p2p_v2, datatype, 56);
ABI_AT(p2p_v2, count, 64);
ABI_AT(p2p_v2, peer, 72);
ABI_AT(kernel_ch_v4, channel, ABI_CHANNEL);
ABI_AT(kernel_ch_v4, timer, 32);

#define NO_TIMER .channel_timer = ABI_NONE
#define TIMER	 .channel_timer = offsetof(struct kernel_ch_v4, timer)

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
		.sequence = offsetof(struct coll_v5, call.sequence),                               \
		.function = offsetof(struct coll_v5, call.function),                               \
		.count = offsetof(struct coll_v5, call.count),                                     \
		.root = offsetof(struct coll_v5, call.root),                                       \
		.datatype = offsetof(struct coll_v5, call.datatype),                               \
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

#define TASKS (ABI_GROUP | ABI_COLL | ABI_P2P)
#define CALLS (ABI_COLL_API | ABI_P2P_API | ABI_KERNEL_LAUNCH)

const struct abi_version abi_versions[ABI_MAX_VERSION + 1] = {
	[1] = {1, 120, 1, false, 0x3f, TASKS, COLL_WITH_NAME(coll_v1), P2P_WITH_NAME(p2p_v1),
	       NO_TIMER},
	[2] = {2, 128, 1, true, 0x3f, TASKS, COLL_WITH_NAME(coll_v2), P2P_WITH_NAME(p2p_v2),
	       NO_TIMER},
	[3] = {3, 120, 1, true, 0xff, TASKS, COLL_WITH_NAME(coll_v3), P2P_WITH_NAME(p2p_v2),
	       NO_TIMER},
	[4] = {4, 104, 1, true, 0xff, TASKS, COLL_V4(ABI_NONE), P2P_V4(ABI_NONE), TIMER},
	[5] = {5, 112, 8, true, 0xfff, TASKS | CALLS, COLL_V4(104), P2P_V4(64), TIMER},
	[6] = {6, 112, 8, true, 0x7fff, TASKS | CALLS | ABI_CE_COLL, COLL_V4(104), P2P_V4(64),
	       TIMER},
};
