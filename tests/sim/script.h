/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A script as a tree of instructions, and the table of operations. */
#ifndef SIM_SCRIPT_H
#define SIM_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

#include "shared.h"

#define SCRIPT_MAX_INSTRUCTIONS 1024
#define SCRIPT_MAX_COMMS 16
#define SCRIPT_MAX_GRAPHS 16
#define SCRIPT_MAX_STREAMS 4
#define SCRIPT_NAME_SIZE 32
#define SCRIPT_NULL_COMM (-1) /* the name `null`: calls are made with no communicator */
#define SCRIPT_FOREVER UINT64_MAX

/* In the order in which they are reported. */
enum operation {
	OP_ALLGATHER, OP_ALLREDUCE, OP_ALLTOALL, OP_BROADCAST, OP_GATHER, OP_RECV, OP_REDUCE,
	OP_REDUCESCATTER, OP_SCATTER, OP_SEND, OP_COUNT,
	OP_BCAST = OP_COUNT, /* a second way to call Broadcast */
	OP_WORDS,
};

struct operation_info {
	const char *word; /* in scripts */
	const char *nccl_name;
	enum operation counted_as;
	int sequence; /* index in NCCL's seqNumber, -1 where NCCL does not count */
	bool times_ranks; /* bytes in the sense of nccl-tests' size column */
};

extern const struct operation_info operations[OP_WORDS];

/* Bytes of one element, 0 for a type NCCL does not know. */
uint64_t datatype_bytes(int datatype);

enum instruction_kind {
	DO_COMM, DO_SPLIT, DO_DESTROY, DO_ABORT, DO_FINALIZE, DO_OPERATION, DO_GROUP, DO_LOOP,
	DO_THREADS, DO_PAUSE, DO_BARRIER, DO_STOP, DO_KILL, DO_EXIT, DO_PRINT, DO_RATE, DO_WAIT,
	DO_ENV, DO_STAMP, DO_LOAD, DO_ERROR, DO_SYNCHRONIZE, DO_COMPUTE, DO_GPU, DO_CAPTURE, DO_REPLAY, DO_DROP,
};

/* Of a rank's own GPU. */
enum gpu_fault { FAULT_NONE, FAULT_HANG, FAULT_SLOW, FAULT_LINK };

enum comm_init { INIT_PLAIN, INIT_CONFIG, INIT_SCALABLE };

struct rank_set {
	uint64_t bits[SIM_MAX_RANKS / 64];
};

#define COMPUTE_FOREVER (-1)

struct instruction {
	enum instruction_kind kind;
	int line;
	int index; /* its number in the script */
	struct rank_set ranks; /* own prefix and all enclosing ones */
	int comm, parent; /* index of the name */
	enum comm_init init;
	enum operation operation;
	uint64_t count;
	int datatype, redop, root;
	int peer; /* -1: the next or the previous rank */
	uint64_t times; /* of an operation, loop or threads; divisor of the colour */
	int64_t ns; /* pause, compute (COMPUTE_FOREVER: until gpu ok), or the period of a rate */
	int64_t more_ns; /* pause, compute: so much longer at most, by chance */
	int result; /* error: an ncclResult_t */
	int stream, graph;
	enum gpu_fault fault;
	uint32_t permille; /* of FAULT_SLOW and FAULT_LINK */
	char *text;
	struct instruction *body, *next;
};

struct script {
	int n_ranks;
	int n_instructions;
	int n_comms;
	bool has_wait;
	int n_graphs;
	bool needs_gpu;
	char comm_name[SCRIPT_MAX_COMMS][SCRIPT_NAME_SIZE];
	char graph_name[SCRIPT_MAX_GRAPHS][SCRIPT_NAME_SIZE];
	struct instruction *first;
};

struct script_error {
	int line;
	char word[64];
	const char *why;
};

/* -EINVAL with *ret_error filled, or -ENOMEM; script_free() is due in every case. */
int script_parse(struct script *script, const char *text, int n_ranks,
		 struct script_error *ret_error);
void script_free(struct script *script);

bool rank_set_has(const struct rank_set *set, int rank);
int rank_set_count(const struct rank_set *set);
/* Members below rank. */
int rank_set_index(const struct rank_set *set, int rank);

/* script.c, for the parser: -1 and false when there is none of that name. */
int operation_find(const char *word);
int datatype_find(const char *word);
int redop_find(const char *word);
int result_find(const char *word); /* NCCL's own name of it */
bool parse_u64(const char *word, uint64_t max, uint64_t *ret_value);
bool parse_positive(const char *word, double max, double *ret_value);
bool parse_ranks(const char *word, int n_ranks, struct rank_set *ret_set);

#endif
