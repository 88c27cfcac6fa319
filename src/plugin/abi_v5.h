/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the versions that today's NCCL takes put into a descriptor, as the structs that it is read
 * by; those of tasks are v4's too, whose type has one byte and which lacks the last member. Written
 * from measured offsets, which the compiler is made to prove.
 */
#ifndef NCCL_BPFTRACE_PLUGIN_ABI_V5_H
#define NCCL_BPFTRACE_PLUGIN_ABI_V5_H

#include "abi.h"

#define ABI_SHAPE __attribute__((may_alias)) /* the agent reads them out of bytes */

struct head_v5 { /* of each */
	uint64_t type;
	void *parent;
	int rank;
} ABI_SHAPE;

struct collective_v5 { /* by a kernel or by copy engines */
	struct head_v5 head;
	uint64_t sequence;
	const char *function;
	const void *send, *receive;
	uint64_t count;
	int root;
	const char *datatype;
} ABI_SHAPE;

struct coll_v5 {
	struct collective_v5 call;
	uint8_t channels, warps;
	const char *algorithm, *protocol;
	void *parent_group;
} ABI_SHAPE;

struct p2p_v5 {
	struct head_v5 head;
	const char *function;
	void *buffer;
	const char *datatype;
	uint64_t count;
	int peer;
	uint8_t channels;
	void *parent_group;
} ABI_SHAPE;

struct group_api_v5 {
	struct head_v5 head;
	uint8_t captured; /* bool, as all of that name */
	int depth;
} ABI_SHAPE;

struct api_v5 {
	struct head_v5 head;
	const char *function;
	uint64_t count;
	const char *datatype;
} ABI_SHAPE;

struct coll_api_v5 {
	struct api_v5 call;
	int root;
	void *stream;
	uint8_t captured;
} ABI_SHAPE;

struct p2p_api_v5 {
	struct api_v5 call;
	void *stream;
	uint8_t captured;
} ABI_SHAPE;

struct kernel_launch_v5 {
	struct head_v5 head;
	void *stream;
} ABI_SHAPE;

struct ce_coll_v6 {
	struct collective_v5 call;
	const char *strategy;
	uint8_t intra; /* bool */
	uint32_t batch_size, n_batches, ce_sequence;
	void *stream;
} ABI_SHAPE;

#define ABI_AT(type, member, position)                                                             \
	_Static_assert(offsetof(struct type, member) == (position), #type "." #member)

ABI_AT(head_v5, parent, ABI_PARENT);
ABI_AT(head_v5, rank, ABI_RANK);
ABI_AT(collective_v5, sequence, 24);
ABI_AT(collective_v5, function, 32);
ABI_AT(collective_v5, count, 56);
ABI_AT(collective_v5, root, 64);
ABI_AT(collective_v5, datatype, 72);
ABI_AT(api_v5, function, 24);
ABI_AT(api_v5, count, 32);
ABI_AT(api_v5, datatype, 40);
_Static_assert(sizeof(struct coll_v5) == 112, "v5, v6");
ABI_AT(coll_v5, channels, 80);
ABI_AT(coll_v5, algorithm, 88);
ABI_AT(coll_v5, protocol, 96);
ABI_AT(coll_v5, parent_group, 104);
ABI_AT(p2p_v5, function, 24);
ABI_AT(p2p_v5, datatype, 40);
ABI_AT(p2p_v5, count, 48);
ABI_AT(p2p_v5, peer, 56);
ABI_AT(p2p_v5, channels, 60);
ABI_AT(p2p_v5, parent_group, 64);
ABI_AT(coll_api_v5, root, 48);
ABI_AT(coll_api_v5, stream, 56);
ABI_AT(coll_api_v5, captured, 64);
ABI_AT(p2p_api_v5, stream, 48);
ABI_AT(p2p_api_v5, captured, 56);
_Static_assert(sizeof(struct ce_coll_v6) == 112, "v6");
ABI_AT(ce_coll_v6, ce_sequence, 100);
ABI_AT(ce_coll_v6, stream, 104);
ABI_AT(group_api_v5, captured, 24);
ABI_AT(group_api_v5, depth, 28);
ABI_AT(kernel_launch_v5, stream, 24);

#endif
