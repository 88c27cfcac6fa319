/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Processes, their communicators, the operations on them: what the records, counters and
 * identities add up to. Pure: no I/O, no clock of its own, no BPF.
 */
#ifndef COMM_H
#define COMM_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "nccl_api.h"
#include "nccl_bpftrace_record.h"
#include "nccl_layout.h"

enum comm_identity {
	COMM_UNKNOWN,	/* rank not known */
	COMM_RECOVERED, /* read from the process; made before we looked */
	COMM_OBSERVED,	/* its creation was seen */
};

enum comm_ending {
	COMM_NOT_ENDED,
	COMM_DESTROYED, /* or another has its address */
	COMM_ABORTED,
	COMM_DIED, /* with its process */
};

/* How an operation comes to run; what a call does. */
enum comm_mode {
	COMM_LAUNCHED, /* called, and launched by that */
	COMM_CAPTURED, /* called on a stream under capture: into a CUDA graph */
	COMM_REPLAYED, /* run by the launch of such a graph */
	COMM_MODES,
};

struct comm_operation {
	struct nb_tally tally[COMM_MODES];
	struct nb_tally past; /* of COMM_REPLAYED: by graphs that are no more */
	uint64_t lost;	      /* calls whose record was lost */
	uint64_t last_ns;     /* CLOCK_MONOTONIC of the last call; 0: none seen */
	uint64_t sequence;    /* absolute number of the last call, NB_NO_SEQUENCE: not known */
	uint64_t last_count;
	uint32_t last_datatype, last_redop;
	int32_t last_root;
	bool last_unprobed; /* so its reduction is not known */
};

/* What tells one communicator of one process from every other. */
struct comm_key {
	uint64_t address; /* NB_COMM_OVERFLOW: what found no place of its own */
	uint64_t hash;	  /* 0: not known */
	uint32_t tgid;
	int32_t rank; /* -1: not known */
};

struct comm {
	struct comm_key key;
	enum comm_identity identity;
	int32_t rank;		    /* -1: not known */
	int32_t n_ranks;	    /* 0: not known */
	int32_t node, n_nodes;	    /* -1, 0: not known */
	int64_t bus_id;		    /* -1: not known */
	uint64_t known_ns;	    /* since when we know of it */
	uint64_t read_ns;	    /* when its struct was last read; 0: never */
	uint64_t first_ns, last_ns; /* of calls; 0: none seen */
	uint64_t replayed_ns;	    /* last launch of a graph with its operations; 0: none seen */
	uint64_t dead_ns;	    /* when its end was seen; 0: alive as far as known */
	enum comm_ending ending;    /* how, with dead_ns */
	uint64_t finalized_ns;	    /* ncclCommFinalize was called: its end is near; 0: not */
	bool learnt;		    /* its struct was read */
	bool is_mixed;		    /* several in succession that nothing tells apart */
	bool scan_asked;	    /* the tracer's note: it asked for that once */
	bool owner_asked;	    /* likewise: who makes these calls? */
	bool listed;		    /* NCCL's own list had it */
	bool is_double;		 /* another process holds the same rank of the same communicator */
	bool has_read_sequences; /* as of read_ns; async_result, too */
	uint64_t read_sequences[NCCL_N_SEQUENCES];
	int32_t async_result; /* ncclResult_t; -1: not known */
	uint64_t lost_told;   /* the watch's note: calls whose loss was told of */
	int8_t shown_state;   /* the textfile's note: enum verdict_state in it; -1: none */
	char name[64];	      /* "" : none */
	char label[32];	      /* value of the label `comm` */
	struct comm_operation operations[NCCL_OP_MAX];
	UT_hash_handle hh;
};

/* When an operation was last called, or run by a graph; 0: never seen. */
static inline uint64_t comm__last_ns(const struct comm *comm)
{
	return comm->replayed_ns > comm->last_ns ? comm->replayed_ns : comm->last_ns;
}

struct comms;

int comms__new(struct comms **ret);
void comms__free(struct comms *comms);

/* A ring record: creations and ends of communicators are noted, calls only date the last one. */
void comms__record(struct comms *comms, const struct nb_record *record);

/*
 * The communicator of a call that has just been seen, as its counter will name it; NULL: it has no
 * name, or there is no memory. For who cannot wait for the counter.
 */
struct comm *comms__meet(struct comms *comms, const struct nb_record *call);

/*
 * Takes in all counters: comms__begin(), comms__count() for each, and the sums stand. Counters are
 * cumulative, so this can be done at any time. NULL: no memory.
 */
void comms__begin(struct comms *comms);
struct comm *comms__count(struct comms *comms, const struct nb_key *key,
			  const struct nb_counter *counter);

/*
 * What one capture holds of one function of a communicator, and how often it was launched, since
 * comms__begin(). The captured calls themselves are told by comms__count(). is_past: it cannot be
 * launched any more, and is told for the last time.
 */
void comms__replay(struct comms *comms, const struct nb_key *key, const struct nb_tally *captured,
		   const struct nb_capture *capture, bool is_past);

/* Calls of one operation that no probe saw, told by the process's plugin. */
struct comm_calls {
	uint32_t tgid;
	int32_t rank, n_ranks;
	uint64_t hash;
	enum nccl_operation operation;
	struct nb_tally launched, captured;
	uint64_t last_ns, last_count, sequence; /* as in struct comm_operation */
	uint32_t last_datatype;
	int32_t last_root; /* -1: none, or not known */
};

/*
 * After all counters: adds them to the communicator of that name in that process. NULL: there is
 * none, and `make` is false or there is no memory.
 */
struct comm *comms__add_calls(struct comms *comms, const struct comm_calls *calls, bool make);

/* Probes on all functions of the process were there only from then on. */
void comms__probed_since(struct comms *comms, uint32_t tgid, uint64_t since_ns);

/* Does any communicator of the process live, as far as known? */
bool comms__any_of(const struct comms *comms, uint32_t tgid);

/* An identity read from the process at that address; now_ns: before the reading began. */
void comms__learn(struct comms *comms, uint32_t tgid, uint64_t address, bool listed,
		  uint64_t now_ns, const struct nccl_identity *identity);

/* All communicators that the process had at that time are known: others are made after it. */
void comms__complete(struct comms *comms, uint32_t tgid, uint64_t since_ns);

/*
 * The variable that a creation was to fill holds this address. Gives rank and size by the call's
 * own arguments where the library's layout is not known.
 */
void comms__made(struct comms *comms, uint32_t tgid, uint64_t pointer, uint64_t address);

/* Creations of a process not yet matched with a communicator: up to max variables, newest first. */
unsigned int comms__pending(const struct comms *comms, uint32_t tgid, uint64_t *pointers,
			    unsigned int max);
/* Addresses of live communicators whose struct was not read yet. */
unsigned int comms__unlearnt(const struct comms *comms, uint32_t tgid, uint64_t *addresses,
			     unsigned int max);

/* Those whose struct was read: to read it again. */
unsigned int comms__learnt(const struct comms *comms, uint32_t tgid, uint64_t *addresses,
			   unsigned int max);

/* What is known of it since after gone_ns is another's, under the same number. */
void comms__process_gone(struct comms *comms, uint32_t tgid, uint64_t gone_ns);

/* Drops what ended before `before_ns`. Its counters must have been deleted, or will be new. */
void comms__expire(struct comms *comms, uint64_t before_ns);
bool comms__any_expired(const struct comms *comms, uint64_t before_ns);
static inline bool comm__expired(const struct comm *comm, uint64_t before_ns)
{
	return comm->dead_ns && comm->dead_ns < before_ns;
}

/* The one that is known to the world by hash and rank, when it is of this process; NULL. */
struct comm *comms__named(const struct comms *comms, uint32_t tgid, uint64_t hash, int32_t rank);

struct comm *comms__first(struct comms *comms); /* next: comm->hh.next */
unsigned int comms__count_of(const struct comms *comms);

/*
 * Bytes of an operation in the sense of nccl-tests' size column (contract: AllReduce, Broadcast,
 * Reduce, Send, Recv count x size; the others x ranks). False: the size is not known.
 */
bool comm__bytes(const struct comm *comm, enum nccl_operation operation, enum comm_mode mode,
		 uint64_t *ret);

/* The same of the last call alone. False: not known, or none was seen. */
bool comm__last_bytes(const struct comm *comm, enum nccl_operation operation, uint64_t *ret);

/* Operations that ran: launched or replayed. */
uint64_t comm__ran(const struct comm *comm, enum nccl_operation operation);

/*
 * The sequence number to export, false when there is none: NCCL's own, or our count when NCCL
 * keeps none and the communicator was seen from its creation.
 */
bool comm__sequence(const struct comm *comm, enum nccl_operation operation, uint64_t *ret);

/* Hash of count, type, op and root of the last call; false for Send, Recv and where none was. */
bool comm__signature(const struct comm *comm, enum nccl_operation operation, uint32_t *ret);

#endif
