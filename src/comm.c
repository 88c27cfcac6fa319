/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "comm_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

int comms__new(struct comms **ret)
{
	struct comms *comms = calloc(1, sizeof(*comms));

	if (!comms)
		return -ENOMEM;
	*ret = comms;
	return 0;
}

struct public_name *comms__find_name(const struct comms *comms, uint64_t hash, int64_t rank)
{
	const struct {
		uint64_t hash;
		int64_t rank;
	} key = {hash, rank};
	struct public_name *name;

	HASH_FIND(hh, comms->names, &key, sizeof(key), name);
	return name;
}

struct place *comms__find_place(const struct comms *comms, uint32_t tgid, uint64_t address)
{
	const struct place_key key = {address, tgid};
	struct place *place;

	HASH_FIND(hh, comms->places, &key, sizeof(key), place);
	return place;
}

/* NULL: no memory, or a process names ever new addresses. */
static struct place *comms__place(struct comms *comms, uint32_t tgid, uint64_t address)
{
	struct place *place = comms__find_place(comms, tgid, address);

	if (place || HASH_COUNT(comms->places) >= MAX_PLACES)
		return place;
	place = calloc(1, sizeof(*place));
	if (!place)
		return NULL;
	place->key = (struct place_key){address, tgid};
	HASH_ADD(hh, comms->places, key, sizeof(place->key), place);
	return place;
}

static void comms__drop_place(struct comms *comms, struct place *place)
{
	HASH_DEL(comms->places, place);
	free(place);
}

static void comms__drop(struct comms *comms, struct comm *comm)
{
	struct public_name *name = comms__find_name(comms, comm->key.hash, comm->key.rank);
	struct place *place = comms__find_place(comms, comm->key.tgid, comm->key.address);

	if (place && place->living == comm)
		place->living = NULL;

	if (name && name->comm == comm) {
		HASH_DEL(comms->names, name);
		free(name);
	}
	HASH_DEL(comms->all, comm);
	free(comm);
}

void comms__free(struct comms *comms)
{
	if (!comms)
		return;
	while (comms->all)
		comms__drop(comms, comms->all);
	while (comms->owners)
		comms__drop_owner(comms, comms->owners);
	while (comms->places)
		comms__drop_place(comms, comms->places);
	free(comms);
}

/* The label must be one that no other live communicator has: a job may forge a hash. */
static void comms__name(struct comms *comms, struct comm *comm)
{
	struct owner *owner = comms__owner(comms, comm->key.tgid);
	struct public_name *name;

	comm->is_double = comms__find_name(comms, comm->key.hash, comm->key.rank) != NULL;
	name = comm->key.hash && !comm->is_double ? calloc(1, sizeof(*name)) : NULL;
	if (!name) {
		snprintf(comm->label, sizeof(comm->label), "unknown-%u-%u", comm->key.tgid,
			 comm->key.address == NB_COMM_OVERFLOW || !owner ? 0
									 : ++owner->next_unknown);
		return;
	}
	name->hash = comm->key.hash;
	name->rank = comm->key.rank;
	name->comm = comm;
	HASH_ADD(hh, comms->names, hash, sizeof(name->hash) + sizeof(name->rank), name);
	snprintf(comm->label, sizeof(comm->label), "%016" PRIx64, comm->key.hash);
}

struct comm *comms__find(const struct comms *comms, const struct comm_key *key)
{
	struct comm *comm;

	HASH_FIND(hh, comms->all, key, sizeof(*key), comm);
	return comm;
}

static void comm__die(struct comm *comm, uint64_t at_ns, enum comm_ending how)
{
	uint64_t alive_ns = comm__alive_ns(comm);

	comm->dead_ns = at_ns > alive_ns ? at_ns : alive_ns;
	comm->ending = how;
}

/*
 * An address belongs to one communicator at a time: the one last known to stand. Counters come in
 * any order, and after the records of ends: both are judged by their times.
 */
void comms__settle(struct comms *comms, struct comm *comm)
{
	struct place *place = comms__place(comms, comm->key.tgid, comm->key.address);
	struct comm *other = place ? place->living : NULL;

	if (!place || other == comm)
		return;
	if (place->ended_ns && place->ended_ns >= comm__alive_ns(comm)) {
		comm__die(comm, place->ended_ns, place->ending);
	} else if (other && comm__alive_ns(other) > comm__alive_ns(comm)) {
		comm__die(comm, other->known_ns, COMM_DESTROYED);
	} else {
		if (other)
			comm__die(other, comm->known_ns, COMM_DESTROYED);
		place->living = comm;
		comm->dead_ns = 0;
		comm->ending = COMM_NOT_ENDED;
	}
}

struct comm *comms__add(struct comms *comms, const struct comm_key *key, int32_t n_ranks,
			uint64_t now_ns)
{
	struct comm *comm = calloc(1, sizeof(*comm));

	if (!comm)
		return NULL;
	comm->key = *key;
	comm->rank = key->rank;
	comm->n_ranks = n_ranks;
	comm->known_ns = now_ns;
	comm->node = -1;
	comm->bus_id = -1;
	comm->async_result = -1;
	comm->shown_state = -1;
	comm->identity = key->rank >= 0 ? COMM_RECOVERED : COMM_UNKNOWN;
	for (int i = 0; i < NCCL_OP_MAX; i++)
		comm->operations[i].sequence = NB_NO_SEQUENCE;
	HASH_ADD(hh, comms->all, key, sizeof(comm->key), comm);
	comms__name(comms, comm);
	return comm;
}

/* Its calls may not have been counted yet: the place remembers the end. */
static void comms__note_end(struct comms *comms, const struct nb_record *r)
{
	struct place *place = r->comm ? comms__place(comms, r->tgid, r->comm) : NULL;

	if (!place)
		return;
	place->ended_ns = r->time_ns;
	place->ending = r->function == NCCL_FN_CommAbort ? COMM_ABORTED : COMM_DESTROYED;
	if (!place->living || place->living->known_ns > r->time_ns)
		return;
	comm__die(place->living, r->time_ns, place->ending);
	place->living = NULL;
}

static void comms__note_finalize(struct comms *comms, const struct nb_record *r)
{
	struct place *place = comms__find_place(comms, r->tgid, r->comm);

	if (place && place->living && place->living->known_ns <= r->time_ns)
		place->living->finalized_ns = r->time_ns;
}

void comms__record(struct comms *comms, const struct nb_record *record)
{
	enum nccl_meaning meaning = nccl_functions[record->function].meaning;

	if (meaning == NCCL_MEANS_CREATES || meaning == NCCL_MEANS_CREATES_MANY)
		comms__note_creation(comms, record, meaning);
	else if (meaning == NCCL_MEANS_ENDS)
		comms__note_end(comms, record);
	else if (meaning == NCCL_MEANS_FINALIZES)
		comms__note_finalize(comms, record);
}

void comms__begin(struct comms *comms)
{
	for (struct comm *comm = comms->all; comm; comm = comm->hh.next)
		for (int i = 0; i < NCCL_OP_MAX; i++) {
			struct comm_operation *op = &comm->operations[i];

			memset(op->tally, 0, sizeof(op->tally));
			op->tally[COMM_REPLAYED] = op->past;
			op->lost = op->last_ns = 0;
		}
}

static void operation__take_last(struct comm_operation *op, const struct nb_counter *c)
{
	if (c->last_ns < op->last_ns)
		return;
	op->last_ns = c->last_ns;
	if (!c->launched.calls) /* captured ones say nothing of what is done now */
		return;
	op->last_count = c->last_count;
	op->last_datatype = c->last_datatype;
	op->last_redop = c->last_redop;
	op->last_root = c->last_root;
	op->last_unprobed = false;
	op->sequence = c->sequence == NB_NO_SEQUENCE ? NB_NO_SEQUENCE : c->sequence + c->pending;
}

static void comm__date(struct comm *comm, const struct nb_counter *c)
{
	if (!comm->first_ns || c->first_ns < comm->first_ns)
		comm->first_ns = c->first_ns;
	if (c->last_ns > comm->last_ns)
		comm->last_ns = c->last_ns;
	if (c->first_ns < comm->known_ns)
		comm->known_ns = c->first_ns;
}

/*
 * Known to stand after its end was seen. Without a hash the address alone tells, and it is in use
 * by another: what is counted is both, and whose rank that is cannot be said any more.
 */
static void comms__revive(struct comms *comms, struct comm *comm)
{
	if (!comm->key.hash) {
		comm->identity = COMM_UNKNOWN;
		comm->rank = -1;
		comm->n_ranks = 0;
		comm->is_mixed = true;
	}
	comms__settle(comms, comm);
}

struct comm *comms__meet(struct comms *comms, const struct nb_record *r)
{
	const struct comm_key key = {
		.address = r->comm,
		.hash = r->comm_hash,
		.tgid = r->tgid,
		.rank = r->rank,
	};
	struct comm *comm = comms__find(comms, &key) ?: comms__adopt(comms, &key);

	if (comm || !key.hash || key.rank < 0)
		return comm;
	comm = comms__add(comms, &key, r->n_ranks, r->time_ns);
	if (!comm)
		return NULL;
	comm->first_ns = comm->last_ns = r->time_ns;
	comms__settle(comms, comm);
	comms__claim_creation(comms, comm);
	return comm;
}

struct comm *comms__count(struct comms *comms, const struct nb_key *key, const struct nb_counter *c)
{
	const struct comm_key comm_key = comm_key__of(key);
	struct comm *comm = comms__find(comms, &comm_key);
	struct comm_operation *op;
	bool is_new = !comm;

	if (key->function >= NCCL_FN_PROBED ||
	    nccl_functions[key->function].operation >= NCCL_OP_MAX)
		return comm;
	comm = comm ?: comms__adopt(comms, &comm_key);
	comm = comm ?: comms__add(comms, &comm_key, key->n_ranks, c->first_ns);
	if (!comm)
		return NULL;
	comm__date(comm, c);
	if (is_new) {
		comms__settle(comms, comm);
		comms__claim_creation(comms, comm);
	} else if (comm->dead_ns && comm->last_ns > comm->dead_ns) {
		comms__revive(comms, comm);
	}
	op = &comm->operations[nccl_functions[key->function].operation];
	tally__add(&op->tally[COMM_LAUNCHED], &c->launched, 1);
	tally__add(&op->tally[COMM_CAPTURED], &c->captured, 1);
	op->lost += c->lost;
	operation__take_last(op, c);
	return comm;
}

void comms__process_gone(struct comms *comms, uint32_t tgid, uint64_t gone_ns)
{
	struct owner *owner = comms__find_owner(comms, tgid);

	for (struct comm *comm = comms->all; comm; comm = comm->hh.next) {
		struct place *place;

		if (comm->key.tgid != tgid || comm->dead_ns || comm->known_ns > gone_ns)
			continue;
		comm->dead_ns = gone_ns;
		comm->ending = COMM_DIED;
		place = comms__find_place(comms, tgid, comm->key.address);
		if (place && place->living == comm)
			place->living = NULL;
	}
	if (owner)
		comms__drop_owner(comms, owner);
}

void comms__expire(struct comms *comms, uint64_t before_ns)
{
	struct place *place, *next_place;
	struct comm *comm, *next;

	HASH_ITER(hh, comms->all, comm, next)
	if (comm__expired(comm, before_ns))
		comms__drop(comms, comm);
	HASH_ITER(hh, comms->places, place, next_place)
	if (!place->living && place->ended_ns < before_ns)
		comms__drop_place(comms, place);
}

bool comms__any_expired(const struct comms *comms, uint64_t before_ns)
{
	for (const struct comm *comm = comms->all; comm; comm = comm->hh.next)
		if (comm__expired(comm, before_ns))
			return true;
	return false;
}

struct comm *comms__first(struct comms *comms)
{
	return comms->all;
}

unsigned int comms__count_of(const struct comms *comms)
{
	return HASH_COUNT(comms->all);
}
