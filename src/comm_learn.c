/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What was read from processes of their communicators, and what is to be read. */
#include <string.h>

#include "comm_private.h"

static void comm__take_identity(struct comm *comm, const struct nccl_identity *id)
{
	comm->learnt = true;
	comm->n_ranks = id->n_ranks;
	if (id->valid & NCCL_IDENTITY_BUS_ID)
		comm->bus_id = id->bus_id;
	if (id->valid & NCCL_IDENTITY_NODES) {
		comm->node = id->node;
		comm->n_nodes = id->n_nodes;
	}
	if (id->valid & NCCL_IDENTITY_NAME)
		memcpy(comm->name, id->name, sizeof(comm->name));
	comm->name[sizeof(comm->name) - 1] = 0;
	if (id->valid & NCCL_IDENTITY_STATE)
		comm->async_result = id->async_result;
	comm->has_read_sequences = id->valid & NCCL_IDENTITY_SEQUENCE;
	memcpy(comm->read_sequences, id->sequence, sizeof(comm->read_sequences));
}

/* NCCL's own numbers, for operations not called since we look. */
static void comm__take_sequences(struct comm *comm, const struct nccl_identity *id)
{
	if (!(id->valid & NCCL_IDENTITY_SEQUENCE))
		return;
	for (unsigned int i = 0; i < NCCL_FN_PROBED; i++) {
		const struct nccl_function *fn = &nccl_functions[i];

		if (fn->sequence >= 0 && fn->sequence < NCCL_N_SEQUENCES &&
		    !comm->operations[fn->operation].tally[COMM_LAUNCHED].calls)
			comm->operations[fn->operation].sequence = id->sequence[fn->sequence];
	}
}

void comms__learn(struct comms *comms, uint32_t tgid, uint64_t address, bool listed,
		  uint64_t now_ns, const struct nccl_identity *id)
{
	const struct comm_key key = {
		.address = address,
		.hash = id->valid & NCCL_IDENTITY_HASH ? id->comm_hash : 0,
		.tgid = tgid,
		.rank = id->rank,
	};
	struct comm *comm = comms__find(comms, &key) ?: comms__adopt(comms, &key);

	if (!comm)
		comm = comms__add(comms, &key, id->n_ranks, now_ns);
	if (!comm)
		return;
	comm->listed |= listed;
	if (now_ns > comm->read_ns)
		comm->read_ns = now_ns;
	comm__take_identity(comm, id);
	comm__take_sequences(comm, id);
	comms__settle(comms, comm);
	comms__claim_creation(comms, comm);
}

unsigned int comms__unlearnt(const struct comms *comms, uint32_t tgid, uint64_t *addresses,
			     unsigned int max)
{
	unsigned int n = 0;

	for (struct comm *comm = comms->all; comm && n < max; comm = comm->hh.next)
		if (comm->key.tgid == tgid && !comm->learnt && !comm->dead_ns &&
		    comm->key.address && comm->key.address != NB_COMM_OVERFLOW)
			addresses[n++] = comm->key.address;
	return n;
}

unsigned int comms__learnt(const struct comms *comms, uint32_t tgid, uint64_t *addresses,
			   unsigned int max)
{
	unsigned int n = 0;

	for (struct comm *comm = comms->all; comm && n < max; comm = comm->hh.next)
		if (comm->key.tgid == tgid && comm->learnt && !comm->dead_ns)
			addresses[n++] = comm->key.address;
	return n;
}
