/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The byte sequences are those of the shipped 2.28.9 and 2.32.3 (x86-64) and 2.32.3 (arm64). */
#include <errno.h>
#include <stdlib.h>

#include "unit.h"

#include "../../src/nccl_code.c"
#include "../../src/nccl_code_arm64.c"
#include "../../src/nccl_code_x86.c"

#define X86 NCCL_ARCH_X86_64
#define ARM NCCL_ARCH_ARM64

#define CODE(bytes) ((struct nccl_code){(const uint8_t *)(bytes), sizeof(bytes) - 1, 0})

/* One arm64 instruction as the bytes of a string are too hard to read: arrays of words there. */
#define WORDS(words) ((struct nccl_code){(const uint8_t *)(words), sizeof(words), 0})

static const char x86_get_version[] =
	"\x48\x85\xff\x74\x09\xc7\x07\x19\x59\x00\x00\x31\xc0\xc3\xb8\x04\x00\x00\x00\xc3";

/* mov 0x1044d0(%r13),%eax; xor %ebx,%ebx; mov %eax,(%r14), and its two neighbours */
static const char x86_rank[] = "\x41\x8b\x85\xd0\x44\x10\x00\x31\xdb\x41\x89\x06";
static const char x86_count[] = "\x41\x8b\x85\xd4\x44\x10\x00\x31\xdb\x41\x89\x06";
static const char x86_device[] = "\x41\x8b\x85\xd8\x44\x10\x00\x31\xdb\x41\x89\x06";

/* CommCheck(): movabs $magic,%rdx; cmp %rdx,(%rdi); jne; xor %eax,%eax; cmp %rdx,0x1241f0(%rdi) */
static const char x86_comm_check[] =
	"\x48\x85\xff\x74\x67\x48\xba\x80\x02\x80\x02\x80\x02\x80\x02\x48\x39\x17\x75\x18\x31\xc0"
	"\x48\x39\x97\xf0\x41\x12\x00\x75\x0b\x48\x83\xc4\x08\xc3";

/* ncclRasCommFini() at 0x23a3a5 of 2.32.3 */
static const char x86_ras_fini[] =
	"\x8b\x0d\x59\xb4\xf5\x18\x85\xc9\x7e\x33\x48\x8b\x15\x52\xb4\xf5\x18\x48\x3b\x1a\x74\x4d"
	"\x48\x8d\x42\x08\x8d\x51\xff\x48";

TEST(x86_version)
{
	int32_t version = -7;

	CHECK_INT(nccl_code__version(X86, CODE(x86_get_version), &version), 0);
	CHECK_INT(version, 22809);
	/* unoptimised: movl $22809,(%rax) */
	CHECK_INT(
		nccl_code__version(X86, CODE("\x48\x8b\x45\xf8\xc7\x00\x19\x59\x00\x00"), &version),
		0);
	CHECK_INT(version, 22809);
}

TEST(no_version_leaves_the_result_alone)
{
	int32_t version = -7;

	CHECK_INT(nccl_code__version(X86, CODE("\xc3"), &version), -ENOENT);
	CHECK_INT(nccl_code__version(X86, CODE(""), &version), -ENOENT);
	/* a number that is no version, and one stored to the stack */
	CHECK_INT(nccl_code__version(X86, CODE("\xc7\x07\x01\x00\x00\x00"), &version), -ENOENT);
	CHECK_INT(nccl_code__version(X86, CODE("\xc7\x04\x24\x19\x59\x00\x00"), &version), -ENOENT);
	CHECK_INT(version, -7);
}

TEST(x86_rank_by_three_getters)
{
	int32_t rank = -7;

	CHECK_INT(nccl_code__rank(X86, CODE(x86_rank), CODE(x86_count), CODE(x86_device), &rank),
		  0);
	CHECK_INT(rank, 1066192);
}

TEST(x86_base_register_with_sib_byte)
{
	/* mov 0x2000(%r12),%eax and so on */
	int32_t rank = -7;

	CHECK_INT(nccl_code__rank(X86, CODE("\x41\x8b\x84\x24\x00\x20\x00\x00"),
				  CODE("\x41\x8b\x84\x24\x04\x20\x00\x00"),
				  CODE("\x41\x8b\x84\x24\x08\x20\x00\x00"), &rank),
		  0);
	CHECK_INT(rank, 0x2000);
}

TEST(getters_that_do_not_agree_give_nothing)
{
	int32_t rank = -7;

	CHECK_INT(nccl_code__rank(X86, CODE(x86_rank), CODE(x86_rank), CODE(x86_device), &rank),
		  -ENOENT);
	CHECK_INT(nccl_code__rank(X86, CODE(x86_rank), CODE(""), CODE(x86_device), &rank), -ENOENT);
	/* 64-bit loads are no int fields */
	CHECK_INT(nccl_code__rank(X86, CODE("\x48\x8b\x85\xd0\x44\x10\x00"),
				  CODE("\x48\x8b\x85\xd4\x44\x10\x00"),
				  CODE("\x48\x8b\x85\xd8\x44\x10\x00"), &rank),
		  -ENOENT);
	CHECK_INT(rank, -7);
}

TEST(two_ranks_that_fit_give_nothing)
{
	int32_t rank = -7;

	CHECK_INT(nccl_code__rank(X86, CODE("\x8b\x87\x00\x20\x00\x00\x8b\x87\x00\x30\x00\x00"),
				  CODE("\x8b\x87\x04\x20\x00\x00\x8b\x87\x04\x30\x00\x00"),
				  CODE("\x8b\x87\x08\x20\x00\x00\x8b\x87\x08\x30\x00\x00"), &rank),
		  -ENOTUNIQ);
	CHECK_INT(rank, -7);
}

TEST(x86_end_magic)
{
	int32_t end_magic = -7;

	CHECK_INT(nccl_code__end_magic(X86, CODE(x86_comm_check), &end_magic), 0);
	CHECK_INT(end_magic, 1196528);
	/* the constant alone, first and last in the text; and a compare of another register */
	end_magic = -7;
	CHECK_INT(nccl_code__end_magic(X86, CODE("\x80\x02\x80\x02\x80\x02\x80\x02"), &end_magic),
		  -ENOENT);
	CHECK_INT(nccl_code__end_magic(X86,
				       CODE("\x48\xba\x80\x02\x80\x02\x80\x02\x80\x02\x48\x39"
					    "\x87\xf0\x41\x12\x00"),
				       &end_magic),
		  -ENOENT);
	CHECK_INT(end_magic, -7);
}

TEST(x86_comms)
{
	struct nccl_code text = CODE(x86_ras_fini);
	uint64_t comms = 7, n_comms = 7;

	text.vaddr = 0x23a3a5;
	CHECK_INT(nccl_code__comms(X86, text, &comms, &n_comms), 0);
	CHECK_INT(comms, 0x19195808);
	CHECK_INT(n_comms, 0x19195804);
}

TEST(two_lists_of_communicators_give_none)
{
	char twice[2 * sizeof(x86_ras_fini)];
	uint64_t comms = 7, n_comms = 7;

	memcpy(twice, x86_ras_fini, sizeof(x86_ras_fini));
	memcpy(twice + sizeof(x86_ras_fini), x86_ras_fini, sizeof(x86_ras_fini));
	/* the same displacements from another place are other addresses */
	CHECK_INT(nccl_code__comms(X86, CODE(twice), &comms, &n_comms), -ENOTUNIQ);
	CHECK_INT(comms, 7);
	CHECK_INT(n_comms, 7);
}

/* mov w1, #0x5aa3; str w1, [x0] */
static const uint32_t arm_get_version[] = {0xb4000080, 0x528b5461, 0xb9000001, 0xd65f03c0};

/* add x0, x20, #0x120, lsl #12; ldr w0, [x0, #1768 + n]; str w0, [x19] */
static const uint32_t arm_rank[] = {0x91448280, 0xb946e800, 0xb9000260};
static const uint32_t arm_count[] = {0x91448280, 0xb946ec00, 0xb9000260};
/* mov w1, #0x6f0; movk w1, #0x12, lsl #16; ldr w0, [x20, x1]; str w0, [x19] */
static const uint32_t arm_device[] = {0x5280de01, 0x72a00241, 0xb8616a80, 0xb9000260};

TEST(arm64_version)
{
	int32_t version = -7;

	CHECK_INT(nccl_code__version(ARM, WORDS(arm_get_version), &version), 0);
	CHECK_INT(version, 23203);
}

TEST(arm64_rank_by_three_getters)
{
	int32_t rank = -7;

	CHECK_INT(nccl_code__rank(ARM, WORDS(arm_rank), WORDS(arm_count), WORDS(arm_device), &rank),
		  0);
	CHECK_INT(rank, 1181416);
	CHECK_INT(nccl_code__rank(ARM, WORDS(arm_rank), WORDS(arm_rank), WORDS(arm_device), &rank),
		  -ENOENT);
}

/* CommCheck() of 2.32.3 */
static const uint32_t arm_comm_check[] = {0xd2805001, 0xf9400002, 0xf2a05001, 0xf2c05001,
					  0xf2e05001, 0xeb01005f, 0x54000121, 0x91448001,
					  0x52800000, 0xf960fc21, 0xeb02003f, 0x54000081};

TEST(arm64_end_magic)
{
	int32_t end_magic = -7;

	CHECK_INT(nccl_code__end_magic(ARM, WORDS(arm_comm_check), &end_magic), 0);
	CHECK_INT(end_magic, 1196536);
}

/* ncclRasCommFini() of 2.32.3 from its adrp at 0x23f2ec on, with the early way out between */
static const uint32_t arm_ras_fini[] = {0xf00c6b73, 0x39544261, 0x350000a1, 0x52800000, 0xa94153f3,
					0xa8c37bfd, 0xd65f03c0, 0x91144260, 0xb9453803, 0x7100007f,
					0x540001ed, 0xf942a000, 0xf9400001, 0xeb01029f, 0x54000360};

TEST(arm64_comms)
{
	struct nccl_code text = WORDS(arm_ras_fini);
	uint64_t comms = 7, n_comms = 7;

	text.vaddr = 0x23f2ec;
	CHECK_INT(nccl_code__comms(ARM, text, &comms, &n_comms), 0);
	CHECK_INT(comms, 0x18faea50);
	CHECK_INT(n_comms, 0x18faea48);
}

/* Every beginning and every end of a code, in heap blocks of just that size: no read outside. */
static void decode_all(const uint8_t *bytes, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	struct nccl_code code = {copy, len, 0x1000};
	uint64_t comms, n_comms;
	int32_t number;

	memcpy(copy, bytes, len);
	for (int arch = X86; arch <= ARM; arch++) {
		nccl_code__version(arch, code, &number);
		nccl_code__rank(arch, code, code, code, &number);
		nccl_code__end_magic(arch, code, &number);
		nccl_code__comms(arch, code, &comms, &n_comms);
	}
	free(copy);
}

static void decode_parts(struct nccl_code code)
{
	for (size_t i = 0; i <= code.len; i++) {
		decode_all(code.bytes, i);
		decode_all(code.bytes + i, code.len - i);
	}
}

TEST(truncated_code_is_not_read_beyond)
{
	decode_parts(CODE(x86_get_version));
	decode_parts(CODE(x86_rank));
	decode_parts(CODE(x86_comm_check));
	decode_parts(CODE(x86_ras_fini));
	decode_parts(WORDS(arm_device));
	decode_parts(WORDS(arm_comm_check));
	decode_parts(WORDS(arm_ras_fini));
	CHECK(true);
}

TEST(random_code_gives_no_address)
{
	uint8_t bytes[4096];
	uint64_t comms, n_comms;

	srand(1);
	for (int round = 0; round < 200; round++) {
		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = rand();
		decode_all(bytes, sizeof(bytes));
		CHECK(nccl_code__comms(X86, (struct nccl_code){bytes, sizeof(bytes), 0}, &comms,
				       &n_comms));
	}
}

UNIT_MAIN()
