/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Calls that no probe saw: a process's plugin told of them. */
#include "comm_private.h"

/* A plugin knows a communicator by its name, not by its address. */
#define NO_ADDRESS 0

static bool comm__is(const struct comm *comm, const struct comm_calls *c)
{
	return comm->key.tgid == c->tgid && comm->key.hash == c->hash && comm->key.rank == c->rank;
}

static struct comm *comms__find_named(const struct comms *comms, const struct comm_calls *c)
{
	const struct public_name *name = comms__find_name(comms, c->hash, c->rank);
	struct comm *found = NULL;

	if (name && comm__is(name->comm, c))
		return name->comm;
	for (struct comm *comm = comms->all; comm; comm = comm->hh.next)
		if (comm__is(comm, c) && (!found || !comm->dead_ns))
			found = comm;
	return found;
}

static struct comm *comms__make_named(struct comms *comms, const struct comm_calls *c)
{
	const struct comm_key key = {
		.address = NO_ADDRESS,
		.hash = c->hash,
		.tgid = c->tgid,
		.rank = c->rank,
	};

	return comms__add(comms, &key, c->n_ranks, c->last_ns);
}

struct comm *comms__adopt(struct comms *comms, const struct comm_key *key)
{
	struct comm_key known = *key;
	struct comm *comm;

	known.address = NO_ADDRESS;
	comm = key->hash && key->address != NO_ADDRESS ? comms__find(comms, &known) : NULL;
	if (!comm)
		return NULL;
	HASH_DEL(comms->all, comm);
	comm->key = *key;
	HASH_ADD(hh, comms->all, key, sizeof(comm->key), comm);
	return comm;
}

struct comm *comms__add_calls(struct comms *comms, const struct comm_calls *c, bool make)
{
	struct comm *comm = comms__find_named(comms, c);
	struct comm_operation *op;

	if (!comm && make)
		comm = comms__make_named(comms, c);
	if (!comm)
		return NULL;
	op = &comm->operations[c->operation];
	tally__add(&op->tally[COMM_LAUNCHED], &c->launched, 1);
	tally__add(&op->tally[COMM_CAPTURED], &c->captured, 1);
	if (!comm->first_ns)
		comm->first_ns = c->last_ns;
	if (c->last_ns > comm->last_ns)
		comm->last_ns = c->last_ns;
	if (c->last_ns <= op->last_ns)
		return comm;
	op->last_ns = c->last_ns;
	op->last_count = c->last_count;
	op->last_datatype = c->last_datatype;
	op->last_redop = ~0U;
	op->last_root = c->last_root;
	op->last_unprobed = true;
	op->sequence = c->sequence;
	return comm;
}

bool comms__any_of(const struct comms *comms, uint32_t tgid)
{
	for (const struct comm *comm = comms->all; comm; comm = comm->hh.next)
		if (comm->key.tgid == tgid && !comm->dead_ns)
			return true;
	return false;
}
