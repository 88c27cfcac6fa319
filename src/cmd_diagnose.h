/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shared by the parts of `diagnose`. A diagnosis is a copy: what is in it stays while the processes
 * that it is about are looked at. What a job wrote is in it as it was written.
 */
#ifndef CMD_DIAGNOSE_H
#define CMD_DIAGNOSE_H

#include <stdio.h>
#include <uthash.h>

#include "procstate.h"
#include "tracer.h"
#include "verdict.h"
#include "wrapped.h"

#define DIAGNOSIS_MAX_LOOKS 256 /* processes that are looked at; of others /proc is not asked */

/* What /proc says of one process. */
struct diagnosis_look {
	uint32_t tgid;
	int status; /* 0, or why there is no state: -ESRCH, -ETIMEDOUT, ... */
	struct procstate state;
	UT_hash_handle hh;
};

struct diagnosis_rank {
	int32_t rank; /* -1: not known */
	uint32_t tgid;
	char command[16]; /* "": not known */
	char uuid[48];	  /* of its GPU, "": not known */
	int gpu;	  /* index as nvidia-smi counts; -1: not known */
	bool is_culprit, is_waiting;
	bool ended;			    /* its process is no more */
	enum nccl_operation last_operation; /* NCCL_OP_MAX: no call seen */
	uint64_t last_sequence;		    /* VERDICT_NO_SEQUENCE: not known */
	uint64_t last_ns;		    /* CLOCK_MONOTONIC; 0: no call seen */
	struct verdict_gpu in_flight;	    /* n_in_flight 0: none, or not known */
	struct diagnosis_look *look;	    /* NULL: not looked at */
};

struct diagnosis_comm {
	uint64_t hash; /* 0: not known */
	char label[32], name[64];
	int32_t n_ranks;	/* 0: not known */
	struct verdict verdict; /* the worst one */
	enum verdict_state now;
	bool ended;	  /* none of its ranks here lives */
	uint64_t over_ns; /* when that state ended; 0: it holds */
	struct diagnosis_rank *ranks;
	uint32_t n_local;
};

/* A process of which NCCL is known to be there, and too little else. */
struct diagnosis_unseen {
	uint32_t tgid;
	char command[16];
	const char *why;
};

struct diagnosis {
	char host[65];
	uint64_t begun_ns, settled_ns, now_ns; /* CLOCK_MONOTONIC: the watch */
	int64_t wall_offset_ns;
	uint64_t lost,
		refused; /* records; communicators and ranks that the judge had no room for */
	unsigned int n_processes;
	struct diagnosis_comm *comms; /* the worst first */
	size_t n_comms;
	struct diagnosis_unseen *unseen;
	size_t n_unseen;
	struct diagnosis_look *looks; /* by tgid */
};

/* cmd_diagnose_take.c; the head is the caller's. 0 or -ENOMEM. */
int diagnosis__take(struct diagnosis *d, struct tracer *tracer, struct verdicts *verdicts);
void diagnosis__clear(struct diagnosis *d);
/* The state that counts, and contract.md's exit status. */
enum verdict_state diagnosis__state(const struct diagnosis *d);
int diagnosis__exit_status(const struct diagnosis *d);

/* Has this one something that an admin should know? */
bool diagnosis_comm__is_fine(const struct diagnosis_comm *c);
/* Is the rank one to be told of: a culprit, or any where none is named? */
bool diagnosis_comm__tells_of(const struct diagnosis_comm *c, const struct diagnosis_rank *r);
/* For how long the state has held, or held. */
uint64_t diagnosis_comm__lasted_ns(const struct diagnosis *d, const struct diagnosis_comm *c);
/* The watch began amidst it: it has lasted longer than is known. */
bool diagnosis_comm__began_before(const struct diagnosis *d, const struct diagnosis_comm *c);
/*
 * The one to look at next: the first of those that are told of and whose process lives, and where
 * that one itself waits in another communicator, the one there; NULL: there is none.
 */
const struct diagnosis_rank *diagnosis_comm__next(const struct diagnosis *d,
						  const struct diagnosis_comm *c);

/* cmd_diagnose_look.c: which thread of a process called last, and what its threads do. */
struct callers;
int callers__new(struct callers **ret);
void callers__free(struct callers *callers);
void callers__call(void *ctx, const struct nb_record *record); /* a tracer_call_fn */
/* Returns when all that is to be looked at has answered, or has not in time. 0 or -errno. */
int diagnosis__look(struct diagnosis *d, const struct callers *callers);

/* cmd_diagnose_rank.c: the lines below a communicator's. */
#define DIAGNOSIS_INDENT  10
#define DIAGNOSIS_COLUMNS 80
void diagnosis__print_line(FILE *out, const char *text);
void diagnosis__add_operation(struct wrapped *line, enum nccl_operation operation,
			      uint64_t sequence);
void diagnosis_rank__print(const struct diagnosis *d, const struct diagnosis_comm *c,
			   const struct diagnosis_rank *r, FILE *out);
void diagnosis_comm__print_next(const struct diagnosis *d, const struct diagnosis_comm *c,
				FILE *out);

/* cmd_diagnose_text.c, cmd_diagnose_json.c; nowhere: "on this node", where no process is found */
void diagnosis__print(const struct diagnosis *d, FILE *out, const char *nowhere);
void diagnosis__print_json(const struct diagnosis *d, FILE *out);

#endif
