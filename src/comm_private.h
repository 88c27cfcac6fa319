/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the parts of the picture of communicators: comm.c, comm_learn.c, comm_owner.c. */
#ifndef COMM_PRIVATE_H
#define COMM_PRIVATE_H

#include "comm.h"
#include "util.h"

#define MAX_CREATIONS 32   /* unmatched ones remembered per process; the oldest is overwritten */
#define MAX_OWNERS    8192 /* processes remembered */
/* In which no communicator of more than one rank is made. */
#define INIT_NS	   (50 * NSEC_PER_MSEC)
#define MAX_PLACES (2 * NB_MAX_COUNTERS)

/* A communicator being made, as the call's arguments tell. */
struct creation {
	uint64_t time_ns, pointer; /* pointer 0: none, or matched */
	int32_t n_ranks, rank;	   /* 0, -1: the call does not say */
	unsigned int left;	   /* communicators that it can still account for */
};

/* What is remembered per process. */
struct owner {
	uint32_t tgid;
	unsigned int next_unknown, next_creation;
	uint64_t probed_ns;   /* not all its functions were probed before; 0: they were */
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

/* An address of a process, where communicators stand one after the other. */
struct place {
	struct place_key {
		uint64_t address, tgid;
	} key;
	struct comm *living; /* NULL: none known */
	uint64_t ended_ns;   /* the last end told of here, 0: none */
	enum comm_ending ending;
	UT_hash_handle hh;
};

struct comms {
	struct comm *all;
	struct place *places;
	struct owner *owners;
	struct public_name *names;
};

/* When it was last known to stand. */
static inline uint64_t comm__alive_ns(const struct comm *comm)
{
	return comm->last_ns > comm->read_ns ? comm->last_ns : comm->read_ns;
}

/* What tells the communicator of a counter. */
static inline struct comm_key comm_key__of(const struct nb_key *key)
{
	return (struct comm_key){
		.address = key->comm,
		.hash = key->comm_hash,
		.tgid = key->tgid,
		.rank = key->rank,
	};
}

static inline void tally__add(struct nb_tally *sum, const struct nb_tally *tally, uint64_t times)
{
	sum->calls += tally->calls * times;
	sum->type_bytes += tally->type_bytes * times;
	sum->unknown_types += tally->unknown_types * times;
}

/* comm_owner.c: what is remembered per process, the creations seen there above all. */
struct owner *comms__find_owner(const struct comms *comms, uint32_t tgid);
/* Makes it; NULL: no memory. */
struct owner *comms__owner(struct comms *comms, uint32_t tgid);
void comms__drop_owner(struct comms *comms, struct owner *owner);
void comms__note_creation(struct comms *comms, const struct nb_record *r,
			  enum nccl_meaning meaning);
/* Marks the communicator as observed when its creation was seen. */
void comms__claim_creation(struct comms *comms, struct comm *comm);

/* comm_plugin.c: one that only its plugin told of until now has that key from now on. NULL: none.
 */
struct comm *comms__adopt(struct comms *comms, const struct comm_key *key);

/* comm.c: that very one, or NULL. */
struct comm *comms__find(const struct comms *comms, const struct comm_key *key);
struct comm *comms__add(struct comms *comms, const struct comm_key *key, int32_t n_ranks,
			uint64_t now_ns);

/* comm.c: of all that had its address, is it the one that lives? */
void comms__settle(struct comms *comms, struct comm *comm);

/* comm.c: the living communicator at an address, or NULL. */
struct place *comms__find_place(const struct comms *comms, uint32_t tgid, uint64_t address);
/* comm.c: who bears it, or NULL. */
struct public_name *comms__find_name(const struct comms *comms, uint64_t hash, int64_t rank);

#endif
