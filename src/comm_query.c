/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the sinks ask of one communicator. */
#include "comm_private.h"

struct comm *comms__named(const struct comms *comms, uint32_t tgid, uint64_t hash, int32_t rank)
{
	struct public_name *name = comms__find_name(comms, hash, rank);

	return name && name->comm->key.tgid == tgid ? name->comm : NULL;
}

bool comm__bytes(const struct comm *comm, enum nccl_operation operation, enum comm_mode mode,
		 uint64_t *ret)
{
	uint64_t bytes = comm->operations[operation].tally[mode].type_bytes;

	if (nccl_operation__times_ranks(operation)) {
		if (!comm->n_ranks)
			return false;
		bytes *= comm->n_ranks;
	}
	*ret = bytes;
	return true;
}

bool comm__last_bytes(const struct comm *comm, enum nccl_operation operation, uint64_t *ret)
{
	const struct comm_operation *op = &comm->operations[operation];
	uint64_t each = nccl_datatype__size(op->last_datatype);

	if (nccl_operation__times_ranks(operation))
		each *= comm->n_ranks;
	if (!each || !op->last_ns || op->last_count > UINT64_MAX / each)
		return false;
	*ret = op->last_count * each;
	return true;
}

uint64_t comm__ran(const struct comm *comm, enum nccl_operation operation)
{
	const struct nb_tally *tally = comm->operations[operation].tally;

	return tally[COMM_LAUNCHED].calls + tally[COMM_REPLAYED].calls;
}

bool comm__sequence(const struct comm *comm, enum nccl_operation operation, uint64_t *ret)
{
	const struct comm_operation *op = &comm->operations[operation];

	if (op->sequence != NB_NO_SEQUENCE)
		*ret = op->sequence;
	else if (comm->identity == COMM_OBSERVED)
		*ret = op->tally[COMM_LAUNCHED].calls;
	else
		return false;
	return true;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0xff51afd7ed558ccdULL;
	return hash ^ hash >> 33;
}

bool comm__signature(const struct comm *comm, enum nccl_operation operation, uint32_t *ret)
{
	const struct comm_operation *op = &comm->operations[operation];
	/* ncclNumOps and above are handles made by the job, each rank's its own */
	uint32_t redop = op->last_redop == ~0U || op->last_redop < 5 ? op->last_redop : 5;
	uint64_t hash = 0;

	if (!op->tally[COMM_LAUNCHED].calls || operation > NCCL_OP_Scatter)
		return false;
	/* a rank whose plugin does not tell the reduction must not seem to disagree */
	if (op->last_unprobed && (operation == NCCL_OP_AllReduce || operation == NCCL_OP_Reduce ||
				  operation == NCCL_OP_ReduceScatter))
		return false;
	hash = mix(hash, op->last_count);
	hash = mix(hash, op->last_datatype);
	hash = mix(hash, redop);
	hash = mix(hash, (uint32_t)op->last_root);
	*ret = hash >> 32;
	return true;
}
