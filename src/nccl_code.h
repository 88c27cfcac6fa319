/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the machine code of a compiled NCCL tells about it, for libraries that are stripped, patched
 * or newer than our table. Pure functions over bytes; nothing is ever executed, and what is not
 * recognised beyond doubt is not found (-ENOENT). Tried on every x86-64 wheel of 2.18.1 to 2.32.3.
 */
#ifndef NCCL_CODE_H
#define NCCL_CODE_H

#include <stddef.h>
#include <stdint.h>

#include "nccl_api.h"

/* Bytes of a function or a whole .text, with the link-time address of the first one. */
struct nccl_code {
	const uint8_t *bytes;
	size_t len;
	uint64_t vaddr;
};

/* The constant that ncclGetVersion() stores: 10000 * major + 100 * minor + patch. */
int nccl_code__version(enum nccl_arch arch, struct nccl_code get_version, int32_t *ret_version);

/*
 * Offset of ncclComm.rank: what ncclCommUserRank() loads. One getter can hold other loads, so the
 * three must agree: ncclCommCount() loads rank + 4 and ncclCommCuDevice() rank + 8, which holds
 * from 2.9 to 2.32. -ENOTUNIQ when more than one offset fits.
 */
int nccl_code__rank(enum nccl_arch arch, struct nccl_code user_rank, struct nccl_code count,
		    struct nccl_code cu_device, int32_t *ret_rank);

/* Offset of ncclComm.endMagic (2.21 on): what CommCheck(), somewhere in text, compares. */
int nccl_code__end_magic(enum nccl_arch arch, struct nccl_code text, int32_t *ret_end_magic);

/*
 * Addresses of `struct ncclComm **ncclComms` and `int nNcclComms` (2.24 on), from the loop over
 * them in ncclRasCommFini(), somewhere in text. -ENOTUNIQ when two loops look like it.
 */
int nccl_code__comms(enum nccl_arch arch, struct nccl_code text, uint64_t *ret_comms,
		     uint64_t *ret_n_comms);

#endif
