/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <inttypes.h>

#include "engine.h"
#include "names.h"

/*
 * start_ns, end_ns and duration_ns are the kernel's; first_ns and last_ns the operation's own part
 * of it. sequence is "-" where NCCL counts none. bytes: count times type.
 */
void truth_print(FILE *file, pid_t pid, const struct gpu_command *command,
		 const struct gpu_op *ops, const struct kernel_times *times)
{
	for (uint32_t i = 0; i < command->n_ops; i++) {
		const struct gpu_op *op = &ops[i];
		uint64_t part[2];

		gpu_op_share(ops, command->n_ops, i, times->start_ns, times->end_ns, part);
		fprintf(file, "pid=%d rank=%d nranks=%d nodes=%d comm=%016" PRIx64 " launch=%" PRIu64
			" replay=%d operations=%u operation=%s", (int)pid, command->rank,
			command->n_ranks, command->n_nodes, command->comm_hash, times->launch,
			times->replay, command->n_ops, sim_func_name(op->func));
		if (op->sequence == GPU_NO_SEQUENCE)
			fputs(" sequence=-", file);
		else
			fprintf(file, " sequence=%" PRIu64, op->sequence);
		fprintf(file, " count=%" PRIu64 " bytes=%" PRIu64 " bus_bytes=%.0f root=%d "
			"algorithm=%s protocol=%s channels=%u host_ns=%" PRIu64 " start_ns=%" PRIu64
			" end_ns=%" PRIu64 " duration_ns=%" PRIu64 " first_ns=%" PRIu64
			" last_ns=%" PRIu64 "\n", op->count, op->bytes,
			model_bus_bytes(op, command->n_ranks), op->root,
			gpu_op_is_p2p(op) ? "" : sim_algorithm_name(op->algorithm),
			gpu_op_is_p2p(op) ? "" : sim_protocol_name(op->protocol), op->n_channels,
			times->host_ns, times->start_ns, times->end_ns,
			times->end_ns - times->start_ns, part[0], part[1]);
	}
}
