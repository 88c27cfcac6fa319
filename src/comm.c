/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "comm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

#define MAX_CREATIONS 32   /* unmatched ones remembered per process; the oldest is overwritten */
#define MAX_OWNERS    8192 /* processes remembered */

/* A communicator being made, as the call's arguments tell. */
struct creation {
	uint64_t time_ns, pointer; /* pointer 0: none, or matched */
	int32_t n_ranks, rank;	   /* 0, -1: the call does not say */
	enum nccl_meaning meaning;
	bool claimed;
};

/* What is remembered per process. */
struct owner {
	uint32_t tgid;
	unsigned int next_unknown, next_creation;
	uint64_t complete_ns; /* every communicator made before it is known; 0: maybe not */
	struct creation creations[MAX_CREATIONS];
	UT_hash_handle hh;
};

/* The label pair under which a communicator is known to the world. */
struct public_name {
	uint64_t hash;
	int64_t rank;
	struct comm *comm;
	UT_hash_handle hh;
};

struct comms {
	struct comm *all;
	struct comm *places; /* the newest of each address in each process */
	struct owner *owners;
	struct public_name *names;
};

int comms__new(struct comms **ret)
{
	struct comms *comms = calloc(1, sizeof(*comms));

	if (!comms)
		return -ENOMEM;
	*ret = comms;
	return 0;
}

static struct public_name *comms__find_name(const struct comms *comms, uint64_t hash, int64_t rank)
{
	const struct {
		uint64_t hash;
		int64_t rank;
	} key = {hash, rank};
	struct public_name *name;

	HASH_FIND(hh, comms->names, &key, sizeof(key), name);
	return name;
}

#define PLACE_SIZE (offsetof(struct comm_key, rank) - offsetof(struct comm_key, address))

/* The newest communicator at an address of a process; the others follow as ->older. */
static struct comm *comms__at(const struct comms *comms, uint32_t tgid, uint64_t address)
{
	const struct comm_key key = {.address = address, .tgid = tgid};
	struct comm *comm;

	HASH_FIND(place_hh, comms->places, &key, PLACE_SIZE, comm);
	return comm;
}

static void comms__place(struct comms *comms, struct comm *comm)
{
	comm->older = comms__at(comms, comm->key.tgid, comm->key.address);
	if (comm->older)
		HASH_DELETE(place_hh, comms->places, comm->older);
	HASH_ADD(place_hh, comms->places, key, PLACE_SIZE, comm);
}

static void comms__unplace(struct comms *comms, struct comm *comm)
{
	struct comm *newer = comms__at(comms, comm->key.tgid, comm->key.address);

	if (newer == comm) {
		HASH_DELETE(place_hh, comms->places, comm);
		if (comm->older)
			HASH_ADD(place_hh, comms->places, key, PLACE_SIZE, comm->older);
		return;
	}
	while (newer->older != comm)
		newer = newer->older;
	newer->older = comm->older;
}

static void comms__drop(struct comms *comms, struct comm *comm)
{
	struct public_name *name = comms__find_name(comms, comm->key.hash, comm->key.rank);

	if (name && name->comm == comm) {
		HASH_DEL(comms->names, name);
		free(name);
	}
	comms__unplace(comms, comm);
	HASH_DEL(comms->all, comm);
	free(comm);
}

static void comms__drop_owner(struct comms *comms, struct owner *owner)
{
	HASH_DEL(comms->owners, owner);
	free(owner);
}

void comms__free(struct comms *comms)
{
	if (!comms)
		return;
	while (comms->all)
		comms__drop(comms, comms->all);
	while (comms->owners)
		comms__drop_owner(comms, comms->owners);
	free(comms);
}

static struct owner *comms__find_owner(const struct comms *comms, uint32_t tgid)
{
	struct owner *owner;

	HASH_FIND(hh, comms->owners, &tgid, sizeof(tgid), owner);
	return owner;
}

static struct owner *comms__owner(struct comms *comms, uint32_t tgid)
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

static struct comm *comms__find(struct comms *comms, const struct comm_key *key)
{
	struct comm *comm;

	HASH_FIND(hh, comms->all, key, sizeof(*key), comm);
	return comm;
}

/* An address belongs to one communicator: a new one there is the end of the old. */
static void comms__supersede(struct comms *comms, const struct comm *by, uint64_t now_ns)
{
	struct comm *comm = comms__at(comms, by->key.tgid, by->key.address);

	for (; comm; comm = comm->older)
		if (comm != by && !comm->dead_ns)
			comm->dead_ns = now_ns;
}

static struct comm *comms__add(struct comms *comms, const struct comm_key *key, int32_t n_ranks,
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
	comm->identity = key->rank >= 0 ? COMM_RECOVERED : COMM_UNKNOWN;
	for (int i = 0; i < NCCL_OP_MAX; i++)
		comm->operations[i].sequence = NB_NO_SEQUENCE;
	HASH_ADD(hh, comms->all, key, sizeof(comm->key), comm);
	comms__place(comms, comm);
	comms__name(comms, comm);
	return comm;
}

static void comms__note_creation(struct comms *comms, const struct nb_record *r,
				 enum nccl_meaning meaning)
{
	struct owner *owner = comms__owner(comms, r->tgid);

	if (!owner)
		return;
	owner->creations[owner->next_creation++ % MAX_CREATIONS] = (struct creation){
		.time_ns = r->time_ns,
		.pointer = r->count,
		.n_ranks = r->n_ranks,
		.rank = meaning == NCCL_MEANS_CREATES_MANY ? -1 : r->rank,
		.meaning = meaning,
	};
}

static void comms__note_end(struct comms *comms, const struct nb_record *r)
{
	for (struct comm *comm = comms__at(comms, r->tgid, r->comm); comm; comm = comm->older)
		if (!comm->dead_ns && comm->first_ns <= r->time_ns)
			comm->dead_ns = r->time_ns;
}

void comms__record(struct comms *comms, const struct nb_record *record)
{
	enum nccl_meaning meaning = nccl_functions[record->function].meaning;

	if (meaning == NCCL_MEANS_CREATES || meaning == NCCL_MEANS_CREATES_MANY)
		comms__note_creation(comms, record, meaning);
	else if (meaning == NCCL_MEANS_ENDS)
		comms__note_end(comms, record);
}

static bool creation__fits(const struct creation *c, const struct comm *comm)
{
	return c->time_ns && !c->claimed && c->time_ns <= comm->known_ns &&
	       (!c->n_ranks || c->n_ranks == comm->n_ranks) &&
	       (c->rank < 0 || c->rank == comm->key.rank);
}

/*
 * Was this communicator's creation seen? Told by its arguments only when it cannot be an older one
 * that was not known yet; otherwise comms__made() tells by the address.
 */
static void comms__claim_creation(struct comms *comms, struct comm *comm)
{
	struct owner *owner = comms__find_owner(comms, comm->key.tgid);

	if (!owner || !owner->complete_ns || comm->key.rank < 0 || comm->identity == COMM_OBSERVED)
		return;
	for (int i = 0; i < MAX_CREATIONS; i++) {
		struct creation *c = &owner->creations[i];

		if (!creation__fits(c, comm) || c->time_ns < owner->complete_ns)
			continue;
		comm->identity = COMM_OBSERVED;
		c->claimed = c->meaning != NCCL_MEANS_CREATES_MANY;
		return;
	}
}

void comms__complete(struct comms *comms, uint32_t tgid, uint64_t since_ns)
{
	struct owner *owner = comms__owner(comms, tgid);

	if (owner && !owner->complete_ns)
		owner->complete_ns = since_ns;
}

void comms__begin(struct comms *comms)
{
	for (struct comm *comm = comms->all; comm; comm = comm->hh.next)
		for (int i = 0; i < NCCL_OP_MAX; i++) {
			struct comm_operation *op = &comm->operations[i];

			op->calls = op->type_bytes = op->unknown_types = op->lost = 0;
			op->last_ns = 0;
		}
}

static void operation__take_last(struct comm_operation *op, const struct nb_counter *c)
{
	op->last_ns = c->last_ns;
	op->last_count = c->last_count;
	op->last_datatype = c->last_datatype;
	op->last_redop = c->last_redop;
	op->last_root = c->last_root;
	op->sequence = c->sequence == NB_NO_SEQUENCE ? NB_NO_SEQUENCE : c->sequence + c->pending;
}

static void comm__date(struct comm *comm, const struct nb_counter *c)
{
	if (!comm->first_ns || c->first_ns < comm->first_ns)
		comm->first_ns = c->first_ns;
	if (c->last_ns > comm->last_ns)
		comm->last_ns = c->last_ns;
	if (!comm->key.hash && comm->dead_ns && c->first_ns < comm->dead_ns &&
	    c->last_ns > comm->dead_ns)
		comm->dead_ns = 0; /* without a hash the address alone tells: in use again */
}

struct comm *comms__count(struct comms *comms, const struct nb_key *key, const struct nb_counter *c)
{
	const struct comm_key comm_key = {
		.address = key->comm,
		.hash = key->comm_hash,
		.tgid = key->tgid,
		.rank = key->rank,
	};
	struct comm *comm = comms__find(comms, &comm_key);
	struct comm_operation *op;
	bool is_new = !comm;

	if (key->function >= NCCL_FN_PROBED ||
	    nccl_functions[key->function].operation >= NCCL_OP_MAX)
		return comm;
	comm = comm ?: comms__add(comms, &comm_key, key->n_ranks, c->first_ns);
	if (!comm)
		return NULL;
	comm__date(comm, c);
	if (is_new) {
		comms__supersede(comms, comm, c->first_ns);
		comms__claim_creation(comms, comm);
	}
	op = &comm->operations[nccl_functions[key->function].operation];
	op->calls += c->calls;
	op->type_bytes += c->type_bytes;
	op->unknown_types += c->unknown_types;
	op->lost += c->lost;
	if (c->last_ns >= op->last_ns)
		operation__take_last(op, c);
	return comm;
}

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
}

/* NCCL's own numbers, for operations not called since we look. */
static void comm__take_sequences(struct comm *comm, const struct nccl_identity *id)
{
	if (!(id->valid & NCCL_IDENTITY_SEQUENCE))
		return;
	for (unsigned int i = 0; i < NCCL_FN_PROBED; i++) {
		const struct nccl_function *fn = &nccl_functions[i];

		if (fn->sequence >= 0 && fn->sequence < NCCL_N_SEQUENCES &&
		    !comm->operations[fn->operation].calls)
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
	struct comm *comm = comms__find(comms, &key);

	if (!comm)
		comm = comms__add(comms, &key, id->n_ranks, now_ns);
	if (!comm)
		return;
	comm->listed |= listed;
	comm__take_identity(comm, id);
	comm__take_sequences(comm, id);
	comms__claim_creation(comms, comm);
}

static struct creation *owner__find_pointer(struct owner *owner, uint64_t pointer)
{
	for (int i = 0; owner && i < MAX_CREATIONS; i++)
		if (owner->creations[i].pointer == pointer && owner->creations[i].time_ns)
			return &owner->creations[i];
	return NULL;
}

void comms__made(struct comms *comms, uint32_t tgid, uint64_t pointer, uint64_t address)
{
	struct creation *c = owner__find_pointer(comms__find_owner(comms, tgid), pointer);

	if (!c)
		return;
	for (struct comm *comm = comms__at(comms, tgid, address); comm; comm = comm->older) {
		if (comm->dead_ns)
			continue;
		c->pointer = 0;
		c->claimed = true;
		if (comm->identity == COMM_UNKNOWN && c->rank >= 0) {
			comm->rank = c->rank;
			comm->n_ranks = c->n_ranks;
		}
		comm->identity = COMM_OBSERVED;
	}
}

unsigned int comms__pending(const struct comms *comms, uint32_t tgid, uint64_t *pointers,
			    unsigned int max)
{
	const struct owner *owner = comms__find_owner(comms, tgid);
	unsigned int n = 0;

	for (unsigned int i = 1; owner && i <= MAX_CREATIONS && n < max; i++) {
		const struct creation *c =
			&owner->creations[(owner->next_creation - i) % MAX_CREATIONS];

		if (c->time_ns && c->pointer && !c->claimed)
			pointers[n++] = c->pointer;
	}
	return n;
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

void comms__process_gone(struct comms *comms, uint32_t tgid, uint64_t now_ns)
{
	struct owner *owner = comms__find_owner(comms, tgid);

	for (struct comm *comm = comms->all; comm; comm = comm->hh.next)
		if (comm->key.tgid == tgid && !comm->dead_ns)
			comm->dead_ns = now_ns;
	if (owner)
		comms__drop_owner(comms, owner);
}

void comms__expire(struct comms *comms, uint64_t before_ns)
{
	struct comm *comm, *next;

	HASH_ITER(hh, comms->all, comm, next)
	if (comm__expired(comm, before_ns))
		comms__drop(comms, comm);
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

static bool times_ranks(enum nccl_operation operation)
{
	for (unsigned int i = 0; i < NCCL_FN_PROBED; i++)
		if (nccl_functions[i].operation == operation)
			return nccl_functions[i].factor == NCCL_FACTOR_TIMES_RANKS;
	return false;
}

bool comm__bytes(const struct comm *comm, enum nccl_operation operation, uint64_t *ret)
{
	uint64_t bytes = comm->operations[operation].type_bytes;

	if (times_ranks(operation)) {
		if (!comm->n_ranks)
			return false;
		bytes *= comm->n_ranks;
	}
	*ret = bytes;
	return true;
}

bool comm__sequence(const struct comm *comm, enum nccl_operation operation, uint64_t *ret)
{
	const struct comm_operation *op = &comm->operations[operation];

	if (op->sequence != NB_NO_SEQUENCE)
		*ret = op->sequence;
	else if (comm->identity == COMM_OBSERVED)
		*ret = op->calls;
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

	if (!op->last_ns || operation > NCCL_OP_Scatter)
		return false;
	hash = mix(hash, op->last_count);
	hash = mix(hash, op->last_datatype);
	hash = mix(hash, redop);
	hash = mix(hash, (uint32_t)op->last_root);
	*ret = hash >> 32;
	return true;
}
