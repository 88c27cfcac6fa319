/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Stands for NCCL's cost model: small goes by tree and LL, large by ring and SIMPLE. */
#include "plan.h"

#define KIB UINT64_C(1024)
#define BYTES_PER_CHANNEL (64 * KIB)
#define MAX_CHANNELS 16
#define P2P_CHANNELS 2

enum { TREE, RING };
enum { LL, LL128, SIMPLE };

void plan_tune(struct sim_task *task)
{
	uint64_t channels = task->bytes / BYTES_PER_CHANNEL + 1;

	if (task->func == FUNC_SEND || task->func == FUNC_RECV)
		channels = P2P_CHANNELS;
	task->n_channels = (uint8_t)(channels < MAX_CHANNELS ? channels : MAX_CHANNELS);
	task->algorithm = task->func == FUNC_ALLREDUCE && task->bytes <= 256 * KIB ? TREE : RING;
	task->protocol = task->bytes <= 32 * KIB ? LL : task->bytes <= 1024 * KIB ? LL128 : SIMPLE;
}
