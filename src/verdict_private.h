/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shared by the parts of the judge.
 *
 * verdict.c           communicators and their ranks: who comes, who goes
 * verdict_call.c      what they call: numbers, arrivals, lateness
 * verdict_mismatch.c  who calls something else
 * verdict_missing.c   who has not called
 * verdict_judge.c     from findings to the state that holds
 * verdict_text.c      words
 */
#ifndef VERDICT_PRIVATE_H
#define VERDICT_PRIVATE_H

#include <uthash.h>

#include "util.h"
#include "verdict.h"

/* What jobs can grow. */
#define MAX_COMMS   4096
#define MAX_MEMBERS 1024      /* of one communicator on this node */
#define MAX_CELLS   (4 << 20) /* arrivals that are remembered, all together: 32 MB */

#define RING_ENTRIES 128 /* numbers of one operation that are remembered */

#define MIN_THRESHOLD_NS (3 * NSEC_PER_SEC)
#define MIN_IDLE_NS	 (10 * NSEC_PER_SEC)
#define LATE_NS		 NSEC_PER_MSEC
#define AGREEMENT_NS	 (300 * NSEC_PER_SEC)
#define CONFIRMATIONS	 3 /* settles in a row */

/* The largest of a few: what a job does again and again, and not only once. */
#define HABIT_EVENTS 16
#define HABIT_NS     (600 * NSEC_PER_SEC)
struct habit {
	uint64_t time_ns[HABIT_EVENTS], value_ns[HABIT_EVENTS];
	uint32_t n;
};

/* A set of ranks: bits are indices in ranks[]. */
struct rank_set {
	uint64_t bits[MAX_MEMBERS / 64];
};

static inline void rank_set__add(struct rank_set *set, uint32_t i)
{
	set->bits[i / 64] |= 1ULL << i % 64;
}

static inline void rank_set__drop(struct rank_set *set, uint32_t i)
{
	set->bits[i / 64] &= ~(1ULL << i % 64);
}

static inline bool rank_set__has(const struct rank_set *set, uint32_t i)
{
	return set->bits[i / 64] >> i % 64 & 1;
}

static inline uint32_t rank_set__count(const struct rank_set *set)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < ARRAY_SIZE(set->bits); i++)
		n += __builtin_popcountll(set->bits[i]);
	return n;
}

/* What the judge keeps of a rank beside what it shows. */
struct member {
	uint32_t column; /* of the arrivals */
	bool whole, has_left;
	enum verdict_end how;
	uint64_t left_ns;
	uint64_t active_ns;		  /* it last called or moved; 0: never seen */
	uint64_t reached[NCCL_OP_MAX];	  /* VERDICT_NO_SEQUENCE: not known */
	uint64_t reached_ns[NCCL_OP_MAX]; /* since when it stands there */
	uint64_t gpu_since_ns;		  /* since when its oldest launch is the oldest */
	uint64_t gpu_started_ns;	  /* when it was first known to run; 0: it is not */
	char error[32];			  /* "": none */
	uint64_t error_ns;
};

/* One number of one operation. */
struct entry {
	uint64_t sequence; /* 0: none */
	uint64_t first_ns, last_ns;
	uint64_t count;
	uint32_t datatype, redop;
	int32_t root;
	uint32_t n_came;
	bool is_complete;
};

/* One operation of a communicator. */
struct track {
	struct entry entries[RING_ENTRIES];
	uint64_t *arrivals; /* [RING_ENTRIES][n_columns]: time, 0: did not come */
	uint32_t n_columns;
	struct habit lateness;
};

/* What one look finds, before anything is confirmed. */
struct finding {
	enum verdict_state state;
	enum verdict_cause cause;
	enum verdict_mismatch mismatch;
	uint64_t since_ns;
	enum nccl_operation operation;
	uint64_t sequence;
	struct rank_set culprits, waiting;
};

/* The disagreement that is remembered. */
struct disagreement {
	bool is_there;
	enum verdict_mismatch kind;
	enum nccl_operation operation;
	uint64_t sequence;
	uint64_t since_ns, last_ns, agreed_ns;
	uint64_t value, other; /* of the first to come; of the first that differs */
	struct rank_set with, against;
};

struct verdict_comm {
	uint64_t hash;
	int32_t n_ranks, n_nodes;
	struct verdicts *owner;
	struct verdict_comm *prev, *next;
	struct verdict_comm *sibling; /* of the same hash, with another number of ranks */
	struct verdict_rank *ranks;   /* by rank */
	struct member *members;	      /* of the same index */
	uint32_t n_members, room, n_columns, n_living;
	bool is_contested; /* two living processes hold one rank */
	bool has_aborted;
	uint64_t known_ns;
	uint64_t active_ns, lost_ns;
	uint64_t n_compared; /* numbers at which all came */
	struct track *tracks[NCCL_OP_MAX];
	struct habit pauses;
	struct disagreement mismatch;
	struct finding finding, held; /* of the last look; the confirmed one, as of the last look */
	enum verdict_state candidate;
	enum verdict_cause candidate_cause;
	uint32_t n_candidate; /* settles in a row */
	struct verdict now, worst;
	struct verdict_event events[VERDICT_MAX_EVENTS];
	uint32_t n_events; /* all of them */
	UT_hash_handle hh;
};

struct verdicts {
	struct verdict_options options;
	struct verdict_comm *by_hash;
	struct verdict_comm *first, *last;
	struct verdict_comm *recent;
	uint32_t n_comms, n_cells;
	uint64_t refused;
	uint64_t now_ns; /* of the last settle */
	verdict_lateness_fn *lateness_fn;
	void *ctx;
};

/* verdict.c */
struct verdict_comm *verdicts__comm(struct verdicts *verdicts, uint64_t hash, int32_t n_ranks);
/* Index of it among the ranks of its communicator; -1: not known. */
int32_t verdict_comm__index(const struct verdict_comm *comm, const struct verdict_member *member);
static inline uint64_t since(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}
void habit__add(struct habit *habit, uint64_t value_ns, uint64_t time_ns);
/* The n-th largest (1: the largest) of those not too old; 0: there are not so many. */
uint64_t habit__nth(const struct habit *habit, uint32_t n, uint64_t now_ns);

/* verdict_call.c */
void verdict_comm__free_tracks(struct verdict_comm *comm);
/* Forgets what stands in `to` and moves what stands in `from` there. */
void verdict_comm__move_column(struct verdict_comm *comm, uint32_t from, uint32_t to);
struct entry *track__entry(struct track *track, uint64_t sequence); /* NULL */
static inline uint64_t *track__arrival(const struct track *track, const struct entry *entry,
				       uint32_t column)
{
	return &track->arrivals[(entry - track->entries) * track->n_columns + column];
}

/* verdict_mismatch.c */
void entry__compare(struct verdict_comm *comm, struct entry *entry, const struct verdict_call *call,
		    uint32_t index);
void verdict_comm__find_mismatch(struct verdict_comm *comm, uint64_t now_ns);

/* verdict_missing.c: true when something was found. */
bool verdict_comm__find_missing(struct verdict_comm *comm, uint64_t now_ns);
bool verdict_comm__find_on_gpu(struct verdict_comm *comm, uint64_t now_ns);

/* verdict_judge.c */
void verdict_comm__judge(struct verdict_comm *comm, uint64_t now_ns);
void verdict_comm__confirm(struct verdict_comm *comm, uint64_t now_ns);

/* verdict_text.c */
void verdict_comm__explain(const struct verdict_comm *comm, struct verdict *verdict,
			   uint64_t now_ns);

#endif
