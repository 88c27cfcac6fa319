/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Creations of communicators, seen as calls, and the communicators that came of them. */
#include <stdlib.h>

#include "comm_private.h"

void comms__drop_owner(struct comms *comms, struct owner *owner)
{
	HASH_DEL(comms->owners, owner);
	free(owner);
}

struct owner *comms__find_owner(const struct comms *comms, uint32_t tgid)
{
	struct owner *owner;

	HASH_FIND(hh, comms->owners, &tgid, sizeof(tgid), owner);
	return owner;
}

struct owner *comms__owner(struct comms *comms, uint32_t tgid)
{
	struct owner *owner = comms__find_owner(comms, tgid);

	if (owner)
		return owner;
	if (HASH_COUNT(comms->owners) >= MAX_OWNERS)
		comms__drop_owner(comms, comms->owners);
	owner = calloc(1, sizeof(*owner));
	if (!owner)
		return NULL;
	owner->tgid = tgid;
	HASH_ADD(hh, comms->owners, tgid, sizeof(tgid), owner);
	return owner;
}

void comms__note_creation(struct comms *comms, const struct nb_record *r, enum nccl_meaning meaning)
{
	struct owner *owner = comms__owner(comms, r->tgid);

	if (!owner)
		return;
	owner->creations[owner->next_creation++ % MAX_CREATIONS] = (struct creation){
		.time_ns = r->time_ns,
		.pointer = r->count,
		.n_ranks = r->n_ranks,
		.rank = meaning == NCCL_MEANS_CREATES_MANY ? -1 : r->rank,
		.left = meaning == NCCL_MEANS_CREATES_MANY && r->n_ranks > 0 ? r->n_ranks : 1,
	};
}

static bool creation__fits(const struct creation *c, const struct comm *comm)
{
	return c->left && c->time_ns <= comm->known_ns &&
	       (!c->n_ranks || c->n_ranks == comm->n_ranks) &&
	       (c->rank < 0 || c->rank == comm->key.rank);
}

/* It may have been done, and in use, before all was probed: what is counted may not be all. */
static bool creation__was_missed(const struct owner *owner, const struct creation *c)
{
	return owner->probed_ns && c->time_ns + INIT_NS < owner->probed_ns;
}

/*
 * The creation that this communicator can have come of, whichever it is of several; NULL when it
 * may as well be an older one, or come of one that does not count.
 */
static struct creation *owner__find_fitting(struct owner *owner, const struct comm *comm)
{
	struct creation *found = NULL;

	for (int i = 0; i < MAX_CREATIONS; i++) {
		struct creation *c = &owner->creations[i];

		if (!creation__fits(c, comm))
			continue;
		if (c->time_ns < owner->complete_ns || creation__was_missed(owner, c))
			return NULL;
		found = found ?: c;
	}
	return found;
}

/*
 * Was this communicator's creation seen? Told by its arguments only when that is beyond doubt;
 * otherwise comms__made() tells by the address.
 */
void comms__claim_creation(struct comms *comms, struct comm *comm)
{
	struct owner *owner = comms__find_owner(comms, comm->key.tgid);
	struct creation *creation;

	if (!owner || !owner->complete_ns || comm->key.rank < 0 || comm->identity == COMM_OBSERVED)
		return;
	creation = owner__find_fitting(owner, comm);
	if (!creation)
		return;
	comm->identity = COMM_OBSERVED;
	creation->left--;
}

void comms__complete(struct comms *comms, uint32_t tgid, uint64_t since_ns)
{
	struct owner *owner = comms__owner(comms, tgid);

	if (owner && !owner->complete_ns)
		owner->complete_ns = since_ns;
}

static struct creation *owner__find_pointer(struct owner *owner, uint64_t pointer)
{
	for (int i = 0; owner && i < MAX_CREATIONS; i++)
		if (owner->creations[i].pointer == pointer && owner->creations[i].left)
			return &owner->creations[i];
	return NULL;
}

void comms__made(struct comms *comms, uint32_t tgid, uint64_t pointer, uint64_t address)
{
	struct owner *owner = comms__find_owner(comms, tgid);
	struct creation *c = owner__find_pointer(owner, pointer);
	const struct place *place = comms__find_place(comms, tgid, address);
	struct comm *comm = place ? place->living : NULL;

	if (!c || !comm || comm->is_mixed || comm__alive_ns(comm) < c->time_ns)
		return;
	c->pointer = 0;
	if (comm->identity != COMM_OBSERVED)
		c->left--;
	if (comm->identity == COMM_UNKNOWN && c->rank >= 0) {
		comm->rank = c->rank;
		comm->n_ranks = c->n_ranks;
	}
	comm->identity = creation__was_missed(owner, c) ? COMM_RECOVERED : COMM_OBSERVED;
}

unsigned int comms__pending(const struct comms *comms, uint32_t tgid, uint64_t *pointers,
			    unsigned int max)
{
	const struct owner *owner = comms__find_owner(comms, tgid);
	unsigned int n = 0;

	for (unsigned int i = 1; owner && i <= MAX_CREATIONS && n < max; i++) {
		const struct creation *c =
			&owner->creations[(owner->next_creation - i) % MAX_CREATIONS];

		if (c->pointer && c->left)
			pointers[n++] = c->pointer;
	}
	return n;
}

void comms__probed_since(struct comms *comms, uint32_t tgid, uint64_t since_ns)
{
	struct owner *owner = comms__owner(comms, tgid);

	if (owner)
		owner->probed_ns = since_ns;
	for (struct comm *comm = comms->all; comm; comm = comm->hh.next)
		if (comm->key.tgid == tgid && comm->identity == COMM_OBSERVED &&
		    comm->known_ns < since_ns)
			comm->identity = COMM_RECOVERED;
}
