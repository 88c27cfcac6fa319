/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "nccl_code.h"
#include "nccl_code_arch.h"

#include <errno.h>

void loads__add(struct loads *loads, int64_t offset)
{
	if (!code__is_field(offset, 4))
		return;
	for (unsigned int i = 0; i < loads->n; i++)
		if (loads->offset[i] == offset)
			return;
	if (loads->n < MAX_LOADS)
		loads->offset[loads->n++] = offset;
}

static bool loads__has(const struct loads *loads, int32_t offset)
{
	for (unsigned int i = 0; i < loads->n; i++)
		if (loads->offset[i] == offset)
			return true;
	return false;
}

int nccl_code__version(enum nccl_arch arch, struct nccl_code get_version, int32_t *ret_version)
{
	return arch == NCCL_ARCH_X86_64 ? x86__version(get_version, ret_version)
					: a64__version(get_version, ret_version);
}

static struct loads code__loads(enum nccl_arch arch, struct nccl_code code)
{
	struct loads loads = {0};

	if (arch == NCCL_ARCH_X86_64)
		x86__loads(code, &loads);
	else
		a64__loads(code, &loads);
	return loads;
}

int nccl_code__rank(enum nccl_arch arch, struct nccl_code user_rank, struct nccl_code count,
		    struct nccl_code cu_device, int32_t *ret_rank)
{
	const struct loads ranks = code__loads(arch, user_rank);
	const struct loads counts = code__loads(arch, count);
	const struct loads devices = code__loads(arch, cu_device);
	int32_t found = 0;

	for (unsigned int i = 0; i < ranks.n; i++) {
		if (!loads__has(&counts, ranks.offset[i] + 4) ||
		    !loads__has(&devices, ranks.offset[i] + 8))
			continue;
		if (found)
			return -ENOTUNIQ;
		found = ranks.offset[i];
	}
	if (!found)
		return -ENOENT;
	*ret_rank = found;
	return 0;
}

int nccl_code__end_magic(enum nccl_arch arch, struct nccl_code text, int32_t *ret_end_magic)
{
	return arch == NCCL_ARCH_X86_64 ? x86__end_magic(text, ret_end_magic)
					: a64__end_magic(text, ret_end_magic);
}

int nccl_code__comms(enum nccl_arch arch, struct nccl_code text, uint64_t *ret_comms,
		     uint64_t *ret_n_comms)
{
	return arch == NCCL_ARCH_X86_64 ? x86__comms(text, ret_comms, ret_n_comms)
					: a64__comms(text, ret_comms, ret_n_comms);
}
