/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the parts of the module: foreign.c, foreign_order.c, foreign_comm.c, foreign_task.c. */
#ifndef FOREIGN_PRIVATE_H
#define FOREIGN_PRIVATE_H

#include <stdbool.h>
#include <uthash.h>

#include "foreign.h"
#include "plugin/abi.h"

/* What one process can grow. */
#define FOREIGN_MAX_EVENTS   32768 /* that wait to be put in order: 9 MB at most */
#define FOREIGN_MAX_COMMS    1024
#define FOREIGN_MAX_TASKS    16384
#define FOREIGN_MAX_CHANNELS 65536
#define FOREIGN_MAX_CALLERS  1024

#define TASK_CHANNELS 64

#ifndef LOSS_NS		      /* tests have less time */
#define LOSS_NS 1000000000ULL /* an operation that began before a loss is over by then */
#endif

/* A record of the ring, or a call. */
struct event {
	uint64_t time_ns;
	uint64_t number; /* in order of arrival */
	bool is_call;
	union {
		struct nb_foreign_record record; /* as much of it as record.size says */
		struct nb_record call;
	};
};

/* A heap: the earliest is the first. */
struct order {
	struct event **events;
	uint32_t n, room;
	uint64_t arrived;
};

struct foreign_identity {
	uint64_t hash;
	int32_t rank, n_ranks;
};

enum timers {
	TIMERS_UNKNOWN, /* operations wait until it is known */
	TIMERS_NONE,
	TIMERS_COME,
};

struct foreign_comm {
	uint64_t context; /* key */
	uint64_t id;
	struct foreign_identity
		identity; /* hash 0: not known; its rank is NCCL's word all the same */
	uint32_t n_nodes; /* NBP_UNKNOWN */
	char name[28];
	struct foreign_identity candidate; /* whose calls its events followed, so far */
	uint32_t n_agreed, n_against;
	uint64_t heard_ns;     /* the last call that agreed or not */
	uint64_t n_operations; /* told of */
	uint64_t n_started;
	int64_t offset_ns; /* the host's clock less the GPU's, when a time came without delay */
	uint64_t seen_ns, shortest_ns; /* the last time came; of the last operations */
	enum timers timers;
	uint64_t told_ns;
	bool is_told;
	UT_hash_handle hh;
};

struct foreign_task {
	uint64_t handle; /* key; 0: it is in no table */
	uint64_t lost;	 /* records, when it began */
	uint64_t number; /* of those that its communicator has started */
	struct foreign_comm *comm;
	uint64_t started_ns;	    /* host: NCCL asked for its handle */
	uint64_t returned_ns;	    /* host: it surely had it */
	uint64_t ends_ns;	    /* host: the last that was heard of it */
	uint64_t first_ns, last_ns; /* GPU */
	uint64_t seen_ns;	    /* host: when the last channel stopped */
	uint64_t started;	    /* bit for each channel */
	uint32_t n_started, n_stopped;
	uint32_t n_expected; /* NBP_UNKNOWN */
	bool is_told, is_timed;
	struct nbp_record operation;
	struct foreign_channel *channels; /* that have not stopped */
	struct foreign_task *prev, *next; /* in order of start */
	struct foreign_task *before;	  /* what its handle meant until it had it; NULL */
	UT_hash_handle hh;
};

struct foreign_channel {
	struct channel_key {
		uint64_t handle, tid;
	} key;
	struct foreign_task *task;
	struct foreign_channel *prev, *next;
	UT_hash_handle hh;
};

/* A thread: the communicator that it has called since its last event. */
struct caller {
	uint64_t tid;
	uint64_t called_ns;
	struct foreign_identity identity;
	uint16_t function;
	bool is_used;	/* an event has come since: the next call begins anew */
	bool is_mixed;	/* calls of several communicators, or of one not known */
	bool has_ranks; /* calls of several ranks of one */
	UT_hash_handle hh;
};

/* An init() whose context is not known yet. */
struct init {
	uint64_t time_ns;
	struct foreign_identity identity;
	uint32_t n_nodes;
	char name[28];
};

/* A process whose plugin is attached to. */
struct followed {
	uint32_t tgid, abi;
	int32_t nccl_version;
	struct foreign *owner;
	uint64_t since_ns;
	uint64_t lost; /* events that found no place here: as if they had never come */
	uint64_t lost_seen, loss_ns; /* records lost, as far as events were taken; and when */
	uint64_t n_comms_made;
	struct order order;
	struct foreign_comm *comms;
	struct foreign_task *by_handle, *tasks;
	struct foreign_channel *channels;
	struct caller *callers;
	struct init inits[NB_FOREIGN_INITS];
	uint32_t n_inits, n_tasks;
	UT_hash_handle hh;
};

struct foreign {
	foreign_record_fn *fn;
	void *ctx;
	struct followed *all;
	uint64_t lost[FOREIGN_LOST_MAX];
};

/* foreign_order.c. 0 or -ENOMEM; the event is copied. NULL: none. */
int order__add(struct order *order, const struct event *event);
const struct event *order__first(const struct order *order);
void order__drop_first(struct order *order);
void order__free(struct order *order);

/* foreign_comm.c */
void followed__call(struct followed *f, const struct nb_record *call);
void followed__init(struct followed *f, const struct nb_foreign_record *record);
void followed__context(struct followed *f, const struct nb_foreign_record *record);
void followed__finalize(struct followed *f, const struct nb_foreign_record *record);
/* The communicator of an event that begins; NULL: no room. hash: 0 where the ABI does not say. */
struct foreign_comm *followed__comm(struct followed *f, const struct nb_foreign_record *record,
				    uint64_t hash, uint8_t function);
struct foreign_comm *followed__find_comm(struct followed *f, uint64_t context); /* NULL */
void foreign_comm__tell(struct followed *f, struct foreign_comm *comm, uint64_t time_ns);
void followed__forget_comms(struct followed *f);
struct nbp_record foreign_comm__record(const struct foreign_comm *comm, enum nbp_kind kind,
				       uint32_t tid, uint64_t time_ns);

/* foreign_decode.c. False: no function that is known. */
bool foreign_record__decode(const struct nb_foreign_record *record, struct abi_event *event);

/* foreign_late.c. All of its channels have stopped. */
bool foreign_comm__is_late(struct foreign_comm *comm, const struct foreign_task *task);

/* foreign_task.c */
void followed__start(struct followed *f, const struct nb_foreign_record *record);
void followed__channel(struct followed *f, const struct nb_foreign_record *record);
void followed__channel_stop(struct followed *f, const struct nb_foreign_record *record);
void followed__settle_tasks(struct followed *f, uint64_t now_ns);
void followed__close_tasks(struct followed *f, const struct foreign_comm *comm); /* NULL: of all */

static inline void followed__lose(struct followed *f, enum foreign_loss reason)
{
	f->owner->lost[reason]++;
}

static inline void followed__send(struct followed *f, const struct nbp_record *record)
{
	f->owner->fn(f->owner->ctx, f->tgid, record);
}

#endif
