/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The two decoders behind nccl_code.h, and what they share. */
#ifndef NCCL_CODE_ARCH_H
#define NCCL_CODE_ARCH_H

#include <endian.h>
#include <stdbool.h>
#include <string.h>

#include "nccl_code.h"

#define NCCL_MAGIC 0x0280028002800280ULL

/* Displacements below belong to other structs: ncclComm's fields of interest begin at 5 KB. */
#define FIELD_MIN 0x200
#define FIELD_MAX 0x1000000

/* Offsets that one function loads ints from; a getter has one to three. */
#define MAX_LOADS 16

struct loads {
	unsigned int n;
	int32_t offset[MAX_LOADS];
};

static inline uint32_t code__u32(const uint8_t *p)
{
	uint32_t value;

	memcpy(&value, p, sizeof(value));
	return le32toh(value);
}

static inline bool code__is_version(int64_t value)
{
	return value >= 20900 && value < 200000;
}

static inline bool code__is_field(int64_t offset, unsigned int alignment)
{
	return offset >= FIELD_MIN && offset < FIELD_MAX && offset % alignment == 0;
}

/* Notes an offset, once; what cannot be an int field's is dropped. */
void loads__add(struct loads *loads, int64_t offset);

int x86__version(struct nccl_code code, int32_t *ret_version);
void x86__loads(struct nccl_code code, struct loads *loads);
int x86__end_magic(struct nccl_code text, int32_t *ret_end_magic);
int x86__comms(struct nccl_code text, uint64_t *ret_comms, uint64_t *ret_n);

int a64__version(struct nccl_code code, int32_t *ret_version);
void a64__loads(struct nccl_code code, struct loads *loads);
int a64__end_magic(struct nccl_code text, int32_t *ret_end_magic);
int a64__comms(struct nccl_code text, uint64_t *ret_comms, uint64_t *ret_n);

#endif
