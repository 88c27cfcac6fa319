/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where NCCL keeps what a communicator is: the offsets in its private struct ncclComm, by release
 * or recovered, and the reading of one communicator with them. No I/O: bytes come from a callback.
 */
#ifndef NCCL_LAYOUT_H
#define NCCL_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "nccl_api.h"

#if defined(__aarch64__)
#define NCCL_ARCH_HOST NCCL_ARCH_ARM64
#else
#define NCCL_ARCH_HOST NCCL_ARCH_X86_64
#endif

enum nccl_layout_source {
	NCCL_LAYOUT_NONE,
	NCCL_LAYOUT_TABLE, /* every offset of a release that was looked at */
	NCCL_LAYOUT_CODE,  /* rank from the library's machine code, the rest by its distance from it
			    */
};

/* ncclComm.seqNumber[]: Broadcast, Reduce, AllGather, ReduceScatter, AllReduce (2.23 to 2.32). */
#define NCCL_N_SEQUENCES 5

/* Offsets of fields in struct ncclComm, in bytes; -1: none in this release, or not known. A POD. */
struct nccl_layout {
	int32_t source;	 /* enum nccl_layout_source */
	int32_t version; /* that the offsets were taken from, or 0 */
	int32_t size;	 /* of the struct */
	int32_t start_magic;
	int32_t end_magic;
	int32_t comm_hash;
	int32_t rank;
	int32_t n_ranks;
	int32_t cuda_dev; /* after CUDA_VISIBLE_DEVICES */
	int32_t nvml_dev; /* the physical index */
	int32_t bus_id;
	int32_t node;
	int32_t n_nodes;
	int32_t local_rank;
	int32_t local_ranks;
	int32_t init_state;
	int32_t async_result;
	int32_t abort_flag; /* uint32_t *, in host memory */
	int32_t seq_number;
	int32_t n_seq;	       /* elements of seqNumber[]; 0: not there or not to be trusted */
	int32_t comm_name_ptr; /* const char *: config.commName, the user's own pointer */
	int32_t proxy_state;   /* struct ncclProxyState * */
	int32_t proxy_result;  /* asyncResult in that struct */
};

/* The layout of a release on one architecture. -ENOENT: not in the table. */
int nccl_layout__by_version_on(enum nccl_arch arch, int32_t version, struct nccl_layout *ret);
/* The same on the architecture that this program was compiled for. */
int nccl_layout__by_version(int32_t version, struct nccl_layout *ret);

/*
 * The layout of a library whose code was seen to have ncclComm.rank at rank_offset and endMagic at
 * end_magic_offset (-1: not seen); version may be 0 or one that nobody knows. What depends on more
 * than these two numbers is filled in only when it is proven: both are a known layout's, or both
 * are off from the version's own by the same distance, so that nothing between them has moved.
 * -EINVAL: no such offset is possible.
 */
int nccl_layout__from_code_on(enum nccl_arch arch, struct nccl_layout *ret, int32_t rank_offset,
			      int32_t end_magic_offset, int32_t version);
int nccl_layout__from_code(struct nccl_layout *ret, int32_t rank_offset, int32_t end_magic_offset,
			   int32_t version);

/* What of an identity is known. */
enum nccl_identity_valid {
	NCCL_IDENTITY_IDENTITY = 1 << 0, /* rank, n_ranks, cuda_dev */
	NCCL_IDENTITY_HASH = 1 << 1,
	NCCL_IDENTITY_BUS_ID = 1 << 2, /* and nvml_dev */
	NCCL_IDENTITY_NODES = 1 << 3,  /* node, n_nodes, local_rank, local_ranks */
	NCCL_IDENTITY_SEQUENCE = 1 << 4,
	NCCL_IDENTITY_NAME = 1 << 5,
	NCCL_IDENTITY_STATE = 1 << 6, /* init_state, async_result */
	NCCL_IDENTITY_ABORT = 1 << 7, /* aborted */
};

#define NCCL_IDENTITY_NAME_SIZE 64

struct nccl_identity {
	uint64_t comm_hash;		     /* the same on every rank */
	int64_t bus_id;			     /* domain << 20 | bus << 12 | device << 4 | function */
	uint64_t sequence[NCCL_N_SEQUENCES]; /* launched so far, captured ones not counted */
	int32_t rank;
	int32_t n_ranks;
	int32_t cuda_dev;
	int32_t nvml_dev; /* -1: unknown */
	int32_t node;
	int32_t n_nodes;
	int32_t local_rank;
	int32_t local_ranks;
	int32_t init_state;		    /* ncclResult_t: 0 ready, 7 being made */
	int32_t async_result;		    /* as ncclCommGetAsyncError() would say it */
	uint32_t aborted;		    /* the abort flag is raised */
	uint32_t valid;			    /* bits of enum nccl_identity_valid */
	char name[NCCL_IDENTITY_NAME_SIZE]; /* printable UTF-8; a longer one is cut at a character
					     */
};

/* Reads len bytes at an address of the process: 0, or -errno when not all of them can be had. */
typedef int (*nccl_read_fn)(void *ctx, uint64_t addr, void *buf, size_t len);

/*
 * Reads the communicator at address comm. -EAGAIN: it is one, but its rank is not set yet; -EINVAL:
 * it is none, or no longer; any other: the reader's error. ret is untouched then.
 */
int nccl_layout__identify(const struct nccl_layout *layout, nccl_read_fn read, void *ctx,
			  uint64_t comm, struct nccl_identity *ret);

#endif
