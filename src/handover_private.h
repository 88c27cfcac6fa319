/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the parts of the hand-over: handover.c and handover_*.c. */
#ifndef HANDOVER_PRIVATE_H
#define HANDOVER_PRIVATE_H

#include <uthash.h>

#include "handover.h"
#include "util.h"

#define MAX_PLUGIN_PROCESSES 8192
/* From a function's entry to the plugin's callback. More is possible, in a call that is held up. */
#define MAX_CALL_NS	  NSEC_PER_SEC
#define MAX_PROCESS_COMMS 4096 /* as many as a plugin has place for */
#define MAX_PLUGIN_COMMS  16384
#define MAX_MISSING	  4
#define MAX_WAITING	  65536	  /* probed calls of one function that no plugin has told of yet */
#define MAX_ALL_WAITING	  2097152 /* 32 MiB */

/* Probed calls that wait for the plugin's word of them, by time. */
struct waiting_call {
	uint64_t time_ns;
	uint32_t arguments; /* hash */
	uint32_t skip;	    /* 0: it waits; answered: so far back lies the next one that may wait */
};

struct waiting {
	struct waiting_call *calls; /* a ring of `room`, a power of two */
	uint32_t first, n, room;
};

/* Records of the plugin that were lost; a probe may have seen the calls. */
struct missing {
	struct nbp_count sum;
	uint64_t from_ns, until_ns; /* when the plugin's sums told so */
	bool counts;		    /* made while probes might be missing */
};

struct handover_operation {
	struct waiting waiting;
	uint64_t kernel_lost;	  /* probes' records lost, by the last reading */
	uint64_t kernel_lost_sum; /* of the reading under way */
	/* While handed over, and until it is again. */
	uint64_t base_lost;   /* kernel_lost when it was */
	uint64_t probed_lost; /* risen since; frozen when taken back */
	uint64_t dropped;     /* probed calls that found no place in `waiting` */
	uint64_t unprobed, unprobed_bytes;
	struct missing missing[MAX_MISSING]; /* oldest first; one of 0 calls is free */
	/* For good. */
	struct nbp_count settled;
	struct nbp_count captured; /* of them */
	uint64_t told_bytes;	   /* the highest that handovers__each() gave */
	uint64_t last_ns, last_count, sequence;
	uint32_t last_datatype;
	int32_t last_root;
};

struct handover_process;

struct handover_comm {
	struct handover_comm_key {
		uint64_t id;   /* the plugin's */
		uint64_t tgid; /* the kernel's word */
	} key;
	struct handover_name { /* how probes name it */
		uint64_t hash;
		uint32_t tgid;
		int32_t rank;
	} name;
	struct handover_process *process;
	int32_t n_ranks;
	uint32_t abi;
	uint64_t ended_ns;
	bool named, listed;
	bool is_taken, was_taken; /* its sums, at the last telling; ever */
	bool has_counts;
	uint64_t counts_ns; /* of the last sums: all calls before it have been told of */
	struct nbp_count sums[NBP_N_COUNTED]; /* the last, and what came since */
	struct handover_operation operations[NBP_N_COUNTED];
	struct handover_comm *next, *prev; /* of its process */
	UT_hash_handle hh, by_name;
};

struct handover_process {
	uint32_t tgid;
	unsigned int n_comms;
	struct handover_comm *comms;
	bool handed_over;
	bool unfit; /* its records cannot be true, or are too many */
	uint64_t handed_over_ns, taken_back_ns;
	uint64_t first_ns, heard_ns; /* of its plugin's records, by our clock */
	uint64_t missed_ns;  /* last time that a record of its plugin was found to be lost */
	uint64_t trouble_ns; /* last time that the plugin did not tell all */
	uint64_t answered;   /* calls since */
	uint64_t gone_ns;
	UT_hash_handle hh;
};

struct handovers {
	struct handover_process *processes;
	struct handover_comm *comms, *names;
	uint64_t n_waiting; /* room of all */
	uint64_t uncertain;
	uint64_t proof_ns;	   /* so long without trouble, before probes may go */
	handover_call_fn *on_call; /* NULL: nobody listens */
	handover_lost_fn *on_lost;
	void *listener_ctx;
};

/* handover.c */
struct handover_process *handovers__find(const struct handovers *handovers, uint32_t tgid);
/* As probes name it; NULL: the plugin has told of none such. */
struct handover_comm *handovers__by_name(const struct handovers *handovers, uint32_t tgid,
					 uint64_t hash, int32_t rank);
void handovers__drop_comm(struct handovers *handovers, struct handover_comm *comm);
void handovers__drop_process(struct handovers *handovers, struct handover_process *process);
/* In enum nbp_function; -1: the plugin does not tell of the function call by call. */
int handover__index(uint16_t function);

/* handover_match.c */

/* Notes a probed call. False: no place, and the oldest had to go. */
bool waiting__put(struct handovers *handovers, struct waiting *waiting, uint64_t time_ns,
		  uint32_t arguments);
/* True when a probed call was waiting for that word of it. */
bool waiting__take(struct waiting *waiting, uint64_t time_ns, uint32_t arguments);
/* So many that are from before that wait in vain: takes them, the oldest first. How many it took.
 */
uint64_t waiting__give_up(struct waiting *waiting, uint64_t before_ns, uint64_t n);
/* Drops what came before that. */
void waiting__expire(struct waiting *waiting, uint64_t before_ns);
/* Anything from before that? */
bool waiting__any(const struct waiting *waiting, uint64_t before_ns);
void waiting__free(struct handovers *handovers, struct waiting *waiting);

/* handover_count.c */
void comm__take_api(struct handovers *handovers, struct handover_comm *comm,
		    const struct nbp_record *record);
void comm__take_counts(struct handovers *handovers, struct handover_comm *comm,
		       const struct nbp_record *record);
void comm__take_operation(struct handover_comm *comm, const struct nbp_record *record);
void comm__take_probe(struct handovers *handovers, struct handover_comm *comm, int function,
		      const struct nb_record *record);
/* Decides on what was told to be missing before that. */
void operation__settle_missing(struct handover_operation *operation, uint64_t before_ns);
void operation__begin_period(struct handover_operation *operation);

/* The plugin did not tell all: what it tells must be proved anew. */
static inline void process__trouble(struct handover_process *process, uint64_t time_ns)
{
	process->answered = 0;
	if (time_ns > process->trouble_ns)
		process->trouble_ns = time_ns;
}

/* Was the call made while probes might be missing? */
static inline bool process__in_period(const struct handover_process *process, uint64_t time_ns)
{
	return process->handed_over_ns && time_ns >= process->handed_over_ns &&
	       (process->handed_over || time_ns < process->taken_back_ns);
}

extern const enum nccl_operation handover_operations[NBP_N_COUNTED];

#endif
