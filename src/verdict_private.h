/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shared by the parts of the judge.
 *
 * verdict.c           communicators; who comes, who goes, what is lost
 * verdict_member.c    the ranks of one
 * verdict_query.c     what others ask
 * verdict_call.c      what ranks call, and the numbers they reach
 * verdict_arrival.c   who came when to a number
 * verdict_mismatch.c  who calls with other arguments at one number
 * verdict_order.c     who calls in another order
 * verdict_missing.c   who has not called what its peers have called
 * verdict_peer.c      the same for Send and Recv
 * verdict_replay.c    the same for what CUDA graphs run
 * verdict_end.c       who is gone while others wait; errors
 * verdict_gpu.c       whose GPU does not start or does not get done
 * verdict_late.c      who comes last again and again: what is gathered
 * verdict_slices.c    what that says of one rank
 * verdict_straggler.c what follows from that
 * verdict_waited.c    whether the others wait for the late one; chance
 * verdict_timed.c     the same by GPU times; transfers slower than they were
 * verdict_chain.c     who does not call because it waits in another communicator
 * verdict_acquit.c    who comes late because of another communicator
 * verdict_judge.c     from findings to the state that holds
 * verdict_text.c      names
 * verdict_words.c     what sentences are made of
 * verdict_why.c       sentences
 * verdict_evidence.c  figures
 */
#ifndef VERDICT_PRIVATE_H
#define VERDICT_PRIVATE_H

#include <uthash.h>

#include "util.h"
#include "verdict.h"

/* What jobs can grow; together less than 100 MB when every cap is reached. */
#define MAX_COMMS	4096
#define MAX_MEMBERS	1024	  /* of one communicator on this node */
#define MAX_ALL_MEMBERS 16384	  /* of all communicators */
#define MAX_CELLS	(4 << 20) /* 8-byte words of history, all together */
#define MAX_PAIRS	4096	  /* of sender and receiver, in one communicator */
#define RING_ENTRIES	128	  /* numbers of one operation that are remembered */
#define LOG_CALLS	32	  /* of a rank */
#define LATE_NUMBERS	512
#define LATE_SLICES	128
#define TIMED_ENTRIES	256 /* numbers whose GPU times may be told rank by rank */
#define SLOW_CLASSES	16  /* operation and size */
#define SLOW_BUCKETS	16
#define N_COLLECTIVES	NCCL_OP_Send /* the operations before it have one number on all ranks */

/* The threshold of a job without habits: named well within 10 s. */
#define MIN_THRESHOLD_NS (3 * NSEC_PER_SEC)
/* Of what is no wait as long as every rank does alike: GPUs busy before the operation. */
#define MIN_FLIGHT_NS  (10 * NSEC_PER_SEC)
#define MIN_IDLE_NS    (10 * NSEC_PER_SEC)
#define MIN_KNOWN_NS   (5 * NSEC_PER_SEC)
#define MIN_COMPARED   3
#define LATE_NS	       NSEC_PER_MSEC
#define AGREEMENT_NS   (300 * NSEC_PER_SEC)
#define ORDER_DELAY_NS (NSEC_PER_SEC / 2) /* records come in order of time within that */
#define CONFIRMATIONS  3		  /* settles in a row */

static inline uint64_t since(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

static inline uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* What a job does again and again, and not only once. */
#define HABIT_EVENTS 16
#define HABIT_NS     (600 * NSEC_PER_SEC)
struct habit {
	uint64_t time_ns[HABIT_EVENTS], value_ns[HABIT_EVENTS];
	uint32_t n;
};

/* A set of ranks: bits are indices in ranks[], or columns where that is said. */
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

static inline void rank_set__subtract(struct rank_set *set, const struct rank_set *other)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(set->bits); i++)
		set->bits[i] &= ~other->bits[i];
}

static inline void rank_set__unite(struct rank_set *set, const struct rank_set *other)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(set->bits); i++)
		set->bits[i] |= other->bits[i];
}

/* A numbered call. */
struct step {
	uint64_t sequence, time_ns;
	enum nccl_operation operation;
	bool is_first; /* nothing is known of what was called before it */
};

/* Recent lateness of a rank: the bucket that is filled, and the one before it. */
struct lateness {
	uint64_t sum_ns[2], most_ns[2];
	uint32_t n[2], n_last[2];
};

/* Where lateness is seen: at the call, or at the start on the GPU. */
enum late_sight { LATE_ON_HOST, LATE_ON_GPU, LATE_SIGHTS };

/* What the judge keeps of a rank beside what it shows. */
struct member {
	uint32_t column; /* of everything that is kept by columns; stays as ranks come and go */
	bool whole, has_left;
	bool is_blamed; /* that its end left others waiting was confirmed */
	enum verdict_end how;
	uint64_t left_ns;
	uint64_t active_ns;  /* it last called or moved; 0: never seen */
	uint64_t excused_ns; /* it last waited in another communicator */
	uint64_t gaps_ns[4]; /* the last between its calls, of a second and more */
	uint32_t n_gaps;
	uint64_t acquitted_ns;		   /* it was last late for what happens in another one */
	uint64_t told_ns;		   /* anything at all was last told of it */
	uint64_t reached[NCCL_OP_MAX];	   /* VERDICT_NO_SEQUENCE: not known */
	uint64_t reached_ns[NCCL_OP_MAX];  /* since when it stands there */
	uint64_t numbered_ns[NCCL_OP_MAX]; /* when it was last told, changed or not */
	uint64_t called[NCCL_OP_MAX];	   /* number of the last call told of */
	uint64_t done[N_COLLECTIVES];	/* greatest number that its GPU is known to be done with */
	uint64_t behind[N_COLLECTIVES]; /* the number at which it was seen behind others, */
	uint64_t behind_ns[N_COLLECTIVES]; /* and when first */
	struct verdict_replays replays;
	uint64_t left_behind_at, left_behind_ns; /* by peers that replay more; 0: it is not */
	struct step log[LOG_CALLS];
	uint64_t n_logged, n_linked; /* calls; of them, those whose order was looked at */
	bool is_disordered;	     /* its calls were once told of out of order */
	bool is_gap;		     /* the next call's predecessor is not known */
	uint64_t lost_ns;	     /* what follows a call of up to then is not known */
	bool peers_unsure;	     /* Sends or Recvs may have been lost */
	struct lateness lateness;
	struct {
		enum nccl_operation operation;
		uint64_t sequence;
	} late[LATE_SIGHTS];	 /* where it was last the last; NCCL_OP_MAX: nowhere */
	uint64_t gpu_since_ns;	 /* since when its oldest launch is the oldest */
	uint64_t gpu_started_ns; /* when that was first known to run; 0: it is not */
	char error[32];		 /* "": none */
	uint64_t error_ns;
};

/* One number of one operation. */
struct entry {
	uint64_t sequence; /* 0: none */
	uint64_t first_ns, last_ns;
	uint64_t count;
	uint32_t datatype, redop; /* ~0U: not known */
	int32_t root;		  /* -1: not known */
	uint32_t n_came, n_against;
	enum verdict_mismatch kind;	    /* of those against */
	enum nccl_operation next_operation; /* what the first rank called next */
	uint64_t next_sequence;		    /* 0: not known */
};

/* An arrival, for whom it is kept, is a time with this bit: it differs from the first to come. */
#define ARRIVAL_AGAINST (1ULL << 63)
#define ARRIVAL_TIME(a) ((a) & ~ARRIVAL_AGAINST)

/* One operation of a communicator. */
struct track {
	struct entry entries[RING_ENTRIES];
	uint64_t *arrivals; /* [RING_ENTRIES][n_columns]; 0: did not come */
	uint32_t n_columns;
	struct habit lateness;
};

/* What one look finds, before anything is confirmed. Sets by index. */
struct finding {
	enum verdict_state state;
	enum verdict_cause cause;
	enum verdict_mismatch mismatch;
	uint64_t since_ns;
	enum nccl_operation operation;
	uint64_t sequence;
	struct rank_set culprits, waiting;
	bool in_queue; /* whether any GPU has begun is not known, or none has */
};

/* The disagreement that is remembered. */
struct disagreement {
	bool is_there;
	bool is_crossing; /* known only by where ranks stand, not by what they called before */
	enum verdict_mismatch kind;
	enum nccl_operation operation, other_operation; /* the other: another order only */
	uint64_t sequence, other_sequence;
	enum nccl_operation after; /* NCCL_OP_MAX: the first call of all, or not known */
	uint64_t after_sequence;
	uint64_t since_ns, last_ns, agreed_ns;
	uint64_t value, other;	       /* of the first to come; of the first that differs */
	uint64_t n;		       /* numbers at which ranks disagreed */
	struct rank_set with, against; /* columns */
};

/*
 * Who keeps whom waiting. Numbers whose arrivals overlap in time are one burst: within it, lateness
 * is counted once. Slices add up the bursts of a step, or of half a second when steps are shorter.
 */
struct slice {
	uint64_t start_ns, end_ns;
	uint32_t n_numbers;
};

struct late {
	uint32_t n_columns;
	uint64_t start_ns, end_ns; /* of the burst under way; 0: none */
	uint64_t n_numbers, n_slices, n_evaluated;
	uint64_t slice_ns;  /* a step, but no less than half a second */
	uint64_t *numbers;  /* [LATE_NUMBERS][n_columns] when each rank came */
	uint32_t *burst_us; /* [n_columns] lateness in the burst under way */
	uint32_t *waste_us; /* [LATE_SLICES][n_columns] */
	uint64_t *
		late_us; /* [LATE_SLICES][n_columns] sum over the numbers, from the first to come */
	struct slice slices[LATE_SLICES];
	struct rank_set culprits;   /* columns; of the last evaluation */
	struct rank_set suspects;   /* columns; late in many slices, be it for what it may */
	struct rank_set unpunctual; /* columns; late in some */
	float *shares;		    /* [n_columns] of the time that is lost to it */
	uint32_t scale;		    /* slices taken together, where the culprits were found */
	double blamed_share;	    /* of the time, lost to the first of them then */
	uint64_t since_ns;
	double share, waste; /* of the slices that the first culprit is late in; of the time */
};

/* A launch of one number on the GPUs of all ranks. */
struct timed_entry {
	enum nccl_operation operation;
	uint64_t sequence; /* 0: none */
	uint64_t bytes;
	uint32_t n_came;
};

/* The transfer times of one operation and size. */
struct transfer {
	enum nccl_operation operation;
	uint32_t size; /* log2 of the bytes */
	uint64_t used_ns;
	double usual_ns; /* 0: not known */
	uint64_t n_usual;
	double bucket_ns[SLOW_BUCKETS];
	uint64_t bucket_end_ns[SLOW_BUCKETS];
	uint64_t n_buckets, started_ns, first_ns;
	double sum_ns; /* of the bucket that is filled */
	uint32_t n_sum;
	bool is_slow;
};

struct timed_rank {
	uint64_t start_ns, duration_ns; /* 0: not known; did not come */
};

struct timed {
	uint32_t n_columns;
	struct timed_entry entries[TIMED_ENTRIES];
	struct timed_rank *ranks; /* [TIMED_ENTRIES][n_columns] */
	struct transfer transfers[SLOW_CLASSES];
	uint64_t last_sequence[NCCL_OP_MAX];
};

/* What one rank has sent to another, and what that has received from it: calls. */
struct pair {
	struct pair_key {
		int32_t from, to;
	} key;
	uint64_t n_sent, n_received;
	uint64_t wanted_ns; /* the first call of Recv without its Send */
	UT_hash_handle hh;
};

/* A rank waits in another communicator. */
struct chain {
	uint64_t hash; /* 0: it does not */
	enum nccl_operation operation;
	uint64_t sequence;
	int32_t rank, culprit, culprit_tgid;
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
	bool is_refused;   /* counted as one that found no room */
	uint64_t known_ns, active_ns;
	uint64_t lost_ns;    /* 0: nothing, or seen at one number since */
	uint64_t loss_ns;    /* the last loss */
	uint32_t unsure;     /* bit per operation: not seen at one number since */
	uint64_t n_compared; /* numbers at which all came */
	struct track *tracks[N_COLLECTIVES];
	enum nccl_operation first_operation; /* of all that were seen from the creation on */
	uint64_t first_sequence;	     /* 0: not known */
	struct habit pauses, flights, runs, sends;
	struct disagreement mismatch;
	struct late *late[LATE_SIGHTS];
	struct timed *timed;
	struct pair *pairs;
	bool pairs_blind; /* there were too many */
	struct chain chain;
	struct finding finding, unchained; /* of the last look; see verdict_chain.c */
	enum verdict_state activity;	   /* what it is but for faults */
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
	struct verdict_comm *first, *last, *recent;
	uint32_t n_comms, n_members, n_cells;
	uint64_t refused;
	uint64_t now_ns;     /* of the last settle */
	uint64_t replays_ns; /* what is known of replays is as of then; 0: as of now */
	verdict_lateness_fn *lateness_fn;
	void *ctx;
};

#include "verdict_parts.h"

#endif
