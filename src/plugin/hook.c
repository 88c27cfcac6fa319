/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * USDT probe nccl_bpftrace:batch(address of records, number of records), and its semaphore. The
 * probe sits on a 5-byte nop at a function's entry, which newer kernels turn into a call. Written
 * in assembler so that no compiler moves, clones or inlines it.
 */
#include "plugin.h"

#ifdef PLUGIN_TEST /* not to be found by an agent that runs here */
#define PROVIDER       NBP_PROVIDER "_test"
#define HIDE_SEMAPHORE ""
#else
#define PROVIDER       NBP_PROVIDER
#define HIDE_SEMAPHORE ".hidden nccl_bpftrace_batch_semaphore\n"
#endif

#if defined(__x86_64__)
#define HOOK_NOP  ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"
#define HOOK_TYPE "@"
#define HOOK_ARGS "8@%rdi 4@%esi"
#elif defined(__aarch64__)
#define HOOK_NOP  "nop\n"
#define HOOK_TYPE "%"
#define HOOK_ARGS "8@x0 4@x1"
#else
#error "the hook is written for x86-64 and arm64"
#endif

extern unsigned short nccl_bpftrace_batch_semaphore;
extern void nccl_bpftrace_batch(const void *batch, uint32_t n);

__asm__(".pushsection .probes, \"aw\", " HOOK_TYPE "progbits\n"
	".balign 2\n"
	".globl nccl_bpftrace_batch_semaphore\n" HIDE_SEMAPHORE
	".type nccl_bpftrace_batch_semaphore, " HOOK_TYPE "object\n"
	".size nccl_bpftrace_batch_semaphore, 2\n"
	"nccl_bpftrace_batch_semaphore: .2byte 0\n"
	".popsection\n"

	".pushsection .text.nccl_bpftrace_batch, \"ax\", " HOOK_TYPE "progbits\n"
	".balign 16\n"
	".globl nccl_bpftrace_batch\n"
	".hidden nccl_bpftrace_batch\n"
	".type nccl_bpftrace_batch, " HOOK_TYPE "function\n"
	"nccl_bpftrace_batch:\n" HOOK_NOP "ret\n"
	".size nccl_bpftrace_batch, . - nccl_bpftrace_batch\n"
	".popsection\n"

	".pushsection .stapsdt.base, \"aG\", " HOOK_TYPE "progbits, .stapsdt.base, comdat\n"
	".weak _.stapsdt.base\n"
	".hidden _.stapsdt.base\n"
	"_.stapsdt.base: .space 1\n"
	".size _.stapsdt.base, 1\n"
	".popsection\n"

	".pushsection .note.stapsdt, \"\", \"note\"\n"
	".balign 4\n"
	".4byte 992f - 991f, 994f - 993f, 3\n"
	"991: .asciz \"stapsdt\"\n"
	"992: .balign 4\n"
	"993: .8byte nccl_bpftrace_batch\n"
	".8byte _.stapsdt.base\n"
	".8byte nccl_bpftrace_batch_semaphore\n"
	".asciz \"" PROVIDER "\"\n"
	".asciz \"" NBP_PROBE "\"\n"
	".asciz \"" HOOK_ARGS "\"\n"
	"994: .balign 4\n"
	".popsection\n");

#ifdef PLUGIN_TEST
extern void nccl_bpftrace_test_batch(const struct nbp_record *records, uint32_t n)
	__attribute__((weak));
#endif

/* The kernel raises it for each tracer that attaches. */
bool hook__raised(void)
{
	return __atomic_load_n(&nccl_bpftrace_batch_semaphore, __ATOMIC_RELAXED) != 0;
}

void hook__fire(const struct nbp_record *records, uint32_t n)
{
	nccl_bpftrace_batch(records, n);
#ifdef PLUGIN_TEST
	if (nccl_bpftrace_test_batch)
		nccl_bpftrace_test_batch(records, n);
#endif
	control__add(&nccl_bpftrace_control.n_batches, 1);
	control__add(&nccl_bpftrace_control.n_records, n);
}
