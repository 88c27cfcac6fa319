/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "engine.h"

#include "names.h"

/* Formulas of nccl-tests' PERFORMANCE.md; of AllGather and ReduceScatter bytes are one rank's. */
double model_bus_bytes(const struct gpu_op *op, int32_t n_ranks)
{
	double bytes = (double)op->bytes, n = n_ranks;

	switch (op->func) {
	case FUNC_ALLREDUCE:
		return 2 * (n - 1) / n * bytes;
	case FUNC_ALLGATHER:
	case FUNC_REDUCESCATTER:
		return (n - 1) * bytes;
	default:
		return bytes;
	}
}

double model_chance(uint64_t seed, uint64_t number)
{
	uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + number;

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	x ^= x >> 31;
	return (double)(x >> 11) / (double)(UINT64_C(1) << 53);
}

uint64_t model_duration_ns(const struct gpu_model *model, const struct kernel_load *load)
{
	double gb_s = load->network ? model->network_bandwidth : model->bandwidth;
	double p2p = load->sent_bytes > load->received_bytes ? load->sent_bytes :
							       load->received_bytes;
	double ns = model->latency_us * 1e3 * load->slow;

	ns += (load->collective_bytes + p2p) / gb_s * load->slow * load->link;
	ns *= 1 + model->jitter * (2 * model_chance(model->seed, load->number) - 1);
	return ns < 1 ? 1 : (uint64_t)ns;
}
