/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What CUDA graphs add to the picture: operations that run without any call. */
#include "comm_private.h"

void comms__replay(struct comms *comms, const struct nb_key *key, const struct nb_tally *captured,
		   const struct nb_capture *capture, bool is_past)
{
	const struct comm_key comm_key = comm_key__of(key);
	struct comm *comm = comms__find(comms, &comm_key);
	struct comm_operation *op;

	if (!comm || key->function >= NCCL_FN_PROBED ||
	    nccl_functions[key->function].operation >= NCCL_OP_MAX)
		return;
	op = &comm->operations[nccl_functions[key->function].operation];
	tally__add(&op->tally[COMM_REPLAYED], captured, capture->launches);
	if (is_past)
		tally__add(&op->past, captured, capture->launches);
	if (capture->last_ns > comm->replayed_ns)
		comm->replayed_ns = capture->last_ns;
}
