/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "nccl_code_arch.h"

#include <errno.h>

/*
 * x86-64. Instructions have no fixed length, so every byte is tried as a beginning; chance matches
 * are what the cross-checks are for.
 */

/* movl $imm32, (%reg): c7 /0 with no displacement; rsp and rip forms excluded. */
int x86__version(struct nccl_code code, int32_t *ret_version)
{
	for (size_t i = 0; i + 6 <= code.len; i++) {
		const uint8_t *p = code.bytes + i;

		if (p[0] != 0xc7 || p[1] > 7 || p[1] == 4 || p[1] == 5 ||
		    !code__is_version(code__u32(p + 2)))
			continue;
		*ret_version = code__u32(p + 2);
		return 0;
	}
	return -ENOENT;
}

/* 32-bit mov disp32(%reg), %r32: 8b /r, mod 10, no REX.W; a SIB byte only for r12, never for rsp.
 */
void x86__loads(struct nccl_code code, struct loads *loads)
{
	for (size_t i = 0; i + 6 <= code.len; i++) {
		const uint8_t *p = code.bytes + i;
		uint8_t before = i ? p[-1] : 0;
		size_t at = 2;

		if (p[0] != 0x8b || p[1] >> 6 != 2 || (before >= 0x48 && before <= 0x4f))
			continue;
		if ((p[1] & 7) == 4) {
			if (p[2] != 0x24 || (before & 0xf1) != 0x41)
				continue;
			at = 3;
		}
		if (i + at + 4 <= code.len)
			loads__add(loads, (int32_t)code__u32(p + at));
	}
}

/*
 * cmp %r64, disp32(%reg) or the other way round, of the register that holds the constant, shortly
 * behind the movabs whose immediate ends at p. Returns the displacement or -1.
 */
static int64_t x86__compared_offset(const uint8_t *p, const uint8_t *end)
{
	/* movabs is REX.W b8+r imm64; the number's fourth bit is REX.B there and REX.R in cmp */
	int rex = p[-10], reg = (p[-9] & 7) | (rex & 1) << 3;

	if ((rex & 0xfe) != 0x48 || (p[-9] & 0xf8) != 0xb8)
		return -1;
	if (end - p > 48)
		end = p + 48;
	for (; p + 7 <= end; p++) {
		int32_t offset = code__u32(p + 3);

		if ((p[0] & 0xf8) == 0x48 && (p[1] == 0x39 || p[1] == 0x3b) && p[2] >> 6 == 2 &&
		    (p[2] & 7) != 4 && ((p[2] >> 3 & 7) | (p[0] >> 2 & 1) << 3) == reg &&
		    code__is_field(offset, 8))
			return offset;
	}
	return -1;
}

int x86__end_magic(struct nccl_code text, int32_t *ret_end_magic)
{
	const uint64_t magic = htole64(NCCL_MAGIC);
	const uint8_t *end = text.bytes + text.len, *p = text.bytes + 2;
	int64_t found = -1;

	while (end - p >= 8 && (p = memchr(p, NCCL_MAGIC & 0xff, end - p - 7))) {
		int64_t offset = memcmp(p, &magic, 8) ? -1 : x86__compared_offset(p + 8, end);

		if (offset >= 0 && found >= 0 && offset != found)
			return -ENOTUNIQ;
		if (offset >= 0)
			found = offset;
		p++;
	}
	if (found < 0)
		return -ENOENT;
	*ret_end_magic = found;
	return 0;
}

/* Target of the rip-relative operand whose ModRM is at p and whose instruction ends behind disp32.
 */
static bool x86__rip_target(struct nccl_code text, const uint8_t *modrm, uint64_t *ret)
{
	if ((modrm[0] & 0xc7) != 0x05)
		return false;
	*ret = text.vaddr + (modrm + 5 - text.bytes) + (int64_t)(int32_t)code__u32(modrm + 1);
	return true;
}

#define X86_COMMS_BYTES 28 /* the longest form of the sequence below */

/* mov n(%rip), %r32; test %r32, %r32; jle; mov comms(%rip), %r64; cmp (%r64), %r64 */
static bool x86__is_comms_loop(struct nccl_code text, const uint8_t *p, uint64_t *ret_comms,
			       uint64_t *ret_n)
{
	if (p[0] != 0x8b || !x86__rip_target(text, p + 1, ret_n))
		return false;
	p += 6;
	p += p[0] == 0x45; /* r8d and up */
	if (p[0] != 0x85 || p[1] >> 6 != 3)
		return false;
	p += 2;
	if (p[0] == 0x7e)
		p += 2;
	else if (p[0] == 0x0f && p[1] == 0x8e)
		p += 6;
	else
		return false;
	if ((p[0] != 0x48 && p[0] != 0x4c) || p[1] != 0x8b ||
	    !x86__rip_target(text, p + 2, ret_comms))
		return false;
	p += 7;
	return (p[0] & 0xf8) == 0x48 && (p[1] == 0x39 || p[1] == 0x3b) && p[2] >> 6 == 0;
}

int x86__comms(struct nccl_code text, uint64_t *ret_comms, uint64_t *ret_n)
{
	uint64_t comms = 0, n_comms = 0, found_comms, found_n;
	const uint8_t *end = text.bytes + text.len, *p = text.bytes;

	while (end - p >= X86_COMMS_BYTES && (p = memchr(p, 0x8b, end - p - X86_COMMS_BYTES))) {
		if (x86__is_comms_loop(text, p++, &found_comms, &found_n)) {
			if (comms && (comms != found_comms || n_comms != found_n))
				return -ENOTUNIQ;
			comms = found_comms;
			n_comms = found_n;
		}
	}
	if (!comms)
		return -ENOENT;
	*ret_comms = comms;
	*ret_n = n_comms;
	return 0;
}
