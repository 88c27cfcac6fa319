/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "nccl_code_arch.h"

#include <errno.h>

/* arm64. Every instruction is one little-endian word. */

#define A64_RD(insn) ((insn)&31)
#define A64_RN(insn) ((insn) >> 5 & 31)
#define A64_RM(insn) ((insn) >> 16 & 31)

static size_t a64__n(struct nccl_code code)
{
	return code.len / 4;
}

static uint32_t a64__insn(struct nccl_code code, size_t i)
{
	return code__u32(code.bytes + 4 * i);
}

static bool a64__is_movz(uint32_t insn)
{
	return (insn & 0x7f800000) == 0x52800000;
}

static bool a64__is_movk(uint32_t insn)
{
	return (insn & 0x7f800000) == 0x72800000;
}

static uint64_t a64__imm16(uint32_t insn)
{
	return (uint64_t)(insn >> 5 & 0xffff) << (16 * (insn >> 21 & 3));
}

static bool a64__is_add(uint32_t insn)
{
	return (insn & 0xff800000) == 0x91000000;
}

/*
 * Whether the register that bits 0..4 name is written: not by branches, not by stores. An ldp from
 * the stack does write, but ends a function's early way out, which lies between and is not ours.
 */
static bool a64__writes(uint32_t insn, unsigned int reg)
{
	bool branch = (insn & 0x1c000000) == 0x14000000;
	bool store = (insn & 0x0a000000) == 0x08000000 && !(insn & 0x00c00000);
	bool restore = (insn & 0xfe4003e0) == 0xa84003e0;

	return A64_RD(insn) == reg && !branch && !store && !restore;
}

static uint64_t a64__add_imm(uint32_t insn)
{
	return (uint64_t)(insn >> 10 & 0xfff) << (insn >> 22 & 1 ? 12 : 0);
}

/*
 * The offset a load's address has from some base register, going backwards over add xN, xM, #imm
 * and mov/movk into the index register: compilers emit just these for an offset over 16 KB.
 */
#define A64_BACK 64

/* Sum of the immediates added into reg before instruction i; *ret_reg: where they were added to. */
static uint64_t a64__added(struct nccl_code code, size_t i, unsigned int reg, unsigned int *ret_reg,
			   size_t *ret_i)
{
	uint64_t sum = 0;

	for (size_t back = 0; i > 0 && back < A64_BACK; back++) {
		uint32_t insn = a64__insn(code, --i);

		if (!a64__writes(insn, reg))
			continue;
		if (!a64__is_add(insn)) {
			i++;
			break;
		}
		sum += a64__add_imm(insn);
		reg = A64_RN(insn);
	}
	*ret_reg = reg;
	*ret_i = i;
	return sum;
}

/* Constant that mov and movk have put into reg before instruction i; -1: none. */
static int64_t a64__constant(struct nccl_code code, size_t i, unsigned int reg)
{
	uint64_t value = 0;

	for (size_t back = 0; i > 0 && back < A64_BACK; back++) {
		uint32_t insn = a64__insn(code, --i);

		if (!a64__writes(insn, reg))
			continue;
		if (a64__is_movk(insn))
			value |= a64__imm16(insn);
		else
			return a64__is_movz(insn) ? (int64_t)(value | a64__imm16(insn)) : -1;
	}
	return -1;
}

/* Offset of the load (size: log2 of its bytes) at instruction i, or -1. */
static int64_t a64__load_offset(struct nccl_code code, size_t i, unsigned int size)
{
	uint32_t insn = a64__insn(code, i);
	unsigned int reg;
	size_t at;

	if ((insn & 0xffc00000) == (0x39400000 | size << 30))
		return ((uint64_t)(insn >> 10 & 0xfff) << size) +
		       a64__added(code, i, A64_RN(insn), &reg, &at);
	if ((insn & 0xffe0fc00) == (0x38606800 | size << 30))
		return a64__constant(code, i, A64_RM(insn));
	return -1;
}

int a64__version(struct nccl_code code, int32_t *ret_version)
{
	for (size_t i = 0; i < a64__n(code); i++) {
		uint32_t insn = a64__insn(code, i);
		int64_t value;

		if ((insn & 0xfffffc00) != (0xb9000000 | A64_RN(insn) << 5)) /* str wT, [xN] */
			continue;
		value = a64__constant(code, i, A64_RD(insn));
		if (code__is_version(value)) {
			*ret_version = value;
			return 0;
		}
	}
	return -ENOENT;
}

/* A getter stores what it has loaded: ldr wT, [...] and, soon, str wT, [xN]. */
void a64__loads(struct nccl_code code, struct loads *loads)
{
	for (size_t i = 0; i < a64__n(code); i++) {
		int64_t offset = a64__load_offset(code, i, 2);

		for (size_t j = i + 1; offset >= 0 && j < a64__n(code) && j < i + 8; j++) {
			uint32_t insn = a64__insn(code, j);

			if ((insn & 0xfffffc00) == 0xb9000000 &&
			    A64_RD(insn) == A64_RD(a64__insn(code, i)))
				loads__add(loads, offset);
		}
	}
}

/* cmp xN, xM of the constant with what instruction i - 1 has loaded from a far offset; or -1. */
static int64_t a64__compared_offset(struct nccl_code text, size_t i)
{
	uint32_t compare = a64__insn(text, i), load = a64__insn(text, i - 1);
	int64_t offset;

	if ((compare & 0xffe0fc1f) != 0xeb00001f ||
	    (A64_RN(compare) != A64_RD(load) && A64_RM(compare) != A64_RD(load)))
		return -1;
	offset = a64__load_offset(text, i - 1, 3);
	return code__is_field(offset, 8) ? offset : -1;
}

/* movk xN, #0x280, lsl #48 ends the making of the constant; the compare follows. */
int a64__end_magic(struct nccl_code text, int32_t *ret_end_magic)
{
	int64_t found = -1;

	for (size_t i = 0; i < a64__n(text); i++) {
		if ((a64__insn(text, i) & ~31U) != 0xf2e05000 ||
		    a64__constant(text, i + 1, A64_RD(a64__insn(text, i))) != NCCL_MAGIC)
			continue;
		for (size_t j = i + 2; j < a64__n(text) && j < i + 12; j++) {
			int64_t offset = a64__compared_offset(text, j);

			if (offset >= 0 && found >= 0 && offset != found)
				return -ENOTUNIQ;
			if (offset >= 0)
				found = offset;
		}
	}
	if (found < 0)
		return -ENOENT;
	*ret_end_magic = found;
	return 0;
}

/* Address that instruction i loads from: adrp, any add, and the load's own immediate. */
static uint64_t a64__address(struct nccl_code text, size_t i, unsigned int size)
{
	uint32_t insn = a64__insn(text, i);
	uint64_t offset = (uint64_t)(insn >> 10 & 0xfff) << size;
	unsigned int reg;
	int64_t page;
	size_t at;

	offset += a64__added(text, i, A64_RN(insn), &reg, &at);
	if (!at)
		return 0;
	insn = a64__insn(text, at - 1);
	if ((insn & 0x9f00001f) != (0x90000000 | reg))
		return 0;
	page = (int64_t)((uint64_t)(insn >> 5 & 0x7ffff) << 45) >> 43 | (insn >> 29 & 3);
	return ((text.vaddr + 4 * (at - 1)) & ~0xfffULL) + ((uint64_t)page << 12) + offset;
}

/* ldr wN, [n]; cmp wN, #0; b.le; ldr xC, [comms]; ldr xE, [xC]; cmp */
static bool a64__is_comms_loop(struct nccl_code text, size_t i)
{
	uint32_t n = a64__insn(text, i), comms = a64__insn(text, i + 3);

	return (n & 0xffc00000) == 0xb9400000 &&
	       a64__insn(text, i + 1) == (0x7100001f | A64_RD(n) << 5) &&
	       (a64__insn(text, i + 2) & 0xff00001f) == 0x5400000d &&
	       (comms & 0xffc00000) == 0xf9400000 && A64_RN(comms) == A64_RN(n) &&
	       (a64__insn(text, i + 4) & ~31U) == (0xf9400000 | A64_RD(comms) << 5) &&
	       (a64__insn(text, i + 5) & 0xffe0fc1f) == 0xeb00001f;
}

int a64__comms(struct nccl_code text, uint64_t *ret_comms, uint64_t *ret_n)
{
	uint64_t comms = 0, n_comms = 0;

	for (size_t i = 0; i + 6 <= a64__n(text); i++) {
		uint64_t at;

		if (!a64__is_comms_loop(text, i))
			continue;
		at = a64__address(text, i + 3, 3);
		if (comms && comms != at)
			return -ENOTUNIQ;
		comms = at;
		n_comms = a64__address(text, i, 2);
	}
	if (!comms || !n_comms)
		return -ENOENT;
	*ret_comms = comms;
	*ret_n = n_comms;
	return 0;
}
