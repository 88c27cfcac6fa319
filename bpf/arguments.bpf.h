/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The arguments of a probed function, by the calling convention of the machine. */
#ifndef NCCL_BPFTRACE_ARGUMENTS_BPF_H
#define NCCL_BPFTRACE_ARGUMENTS_BPF_H

#include "nccl_bpftrace_record.h"

#define N_REGS 8 /* a power of two, so that an index is bounded by a mask */

struct arguments {
	__u64 reg[N_REGS];
	__u64 stack; /* address of the first stack argument */
};

static __always_inline void arguments__load(struct arguments *a, struct pt_regs *ctx)
{
	a->reg[0] = PT_REGS_PARM1(ctx);
	a->reg[1] = PT_REGS_PARM2(ctx);
	a->reg[2] = PT_REGS_PARM3(ctx);
	a->reg[3] = PT_REGS_PARM4(ctx);
	a->reg[4] = PT_REGS_PARM5(ctx);
#if defined(__TARGET_ARCH_x86)
	a->reg[5] = ctx->r9;
	a->reg[6] = a->reg[7] = 0;
	a->stack = PT_REGS_SP(ctx) + 8; /* above the return address */
#elif defined(__TARGET_ARCH_arm64)
	a->reg[5] = ((struct user_pt_regs *)ctx)->regs[5];
	a->reg[6] = ((struct user_pt_regs *)ctx)->regs[6];
	a->reg[7] = ((struct user_pt_regs *)ctx)->regs[7];
	a->stack = PT_REGS_SP(ctx);
#endif
}

static __always_inline __u64 arguments__get(const struct arguments *a, __u8 slot, __u64 absent)
{
	__u64 value = absent;

	if (slot < N_REGS)
		return a->reg[slot & (N_REGS - 1)];
	if (slot != NB_SLOT_NONE)
		bpf_probe_read_user(&value, sizeof(value),
				    (void *)(a->stack + 8 * (slot - NB_SLOT_STACK)));
	return value;
}

#endif
