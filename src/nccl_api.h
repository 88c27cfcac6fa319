/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of NCCL's public functions, and where each argument lies at a function's entry. */
#ifndef NCCL_API_H
#define NCCL_API_H

#include <stdbool.h>
#include <stdint.h>

/* What one parameter of an NCCL function is; the C type of each is in tests/unit/api_prototypes.h.
 */
enum nccl_param {
	NCCL_PARAM_END,
	NCCL_PARAM_SENDBUF,
	NCCL_PARAM_RECVBUF,
	NCCL_PARAM_COUNT,
	NCCL_PARAM_DATATYPE,
	NCCL_PARAM_REDOP,
	NCCL_PARAM_ROOT,
	NCCL_PARAM_PEER,
	NCCL_PARAM_COMM,
	NCCL_PARAM_STREAM,
	NCCL_PARAM_NEWCOMM,
	NCCL_PARAM_NRANKS,
	NCCL_PARAM_RANK,
	NCCL_PARAM_UNIQUEID, /* 128 bytes by value: see nccl_api__slot() */
	NCCL_PARAM_UNIQUEIDS,
	NCCL_PARAM_CONST_UNIQUEIDS,
	NCCL_PARAM_CONFIG,
	NCCL_PARAM_COLLCONFIG,
	NCCL_PARAM_WINDOW,
	NCCL_PARAM_WAITDESCS,
	NCCL_PARAM_SIZE,
	NCCL_PARAM_INT,
	NCCL_PARAM_UINT,
	NCCL_PARAM_INTS,
	NCCL_PARAM_CONST_INTS,
};

#define NCCL_MAX_PARAMS 12

enum nccl_family {
	NCCL_FAMILY_OPERATION, /* moves data: a record and a count per call */
	NCCL_FAMILY_LIFECYCLE, /* makes or ends communicators: a record per call */
	NCCL_FAMILY_UNPROBED,
};

enum nccl_meaning {
	NCCL_MEANS_OPERATION,
	NCCL_MEANS_CREATES,
	NCCL_MEANS_CREATES_MANY, /* one communicator a device, ranks 0.. in this process */
	NCCL_MEANS_FINALIZES,
	NCCL_MEANS_ENDS,
};

/* How a call's bytes, in the sense of nccl-tests' size column, follow from count and type. */
enum nccl_factor {
	NCCL_FACTOR_PER_RANK,	 /* count x size of the type */
	NCCL_FACTOR_TIMES_RANKS, /* count x size of the type x ranks */
};

#define NCCL_NO_SEQUENCE -1

/* The operations, NCCL's own names; several functions can be one operation. */
enum nccl_operation {
	NCCL_OP_AllReduce,
	NCCL_OP_AllGather,
	NCCL_OP_ReduceScatter,
	NCCL_OP_Broadcast,
	NCCL_OP_Reduce,
	NCCL_OP_AlltoAll,
	NCCL_OP_Gather,
	NCCL_OP_Scatter,
	NCCL_OP_Send,
	NCCL_OP_Recv,
	NCCL_OP_PutSignal,
	NCCL_OP_Signal,
	NCCL_OP_WaitSignal,
	NCCL_OP_MAX,
};

/* Index of a probed function in nccl_functions[]; the unprobed ones follow behind. */
enum nccl_function_id {
#define NCCL_OPERATION(id, ...) NCCL_FN_##id,
#define NCCL_LIFECYCLE(id, ...) NCCL_FN_##id,
#include "nccl_api.def"
	NCCL_FN_PROBED,
};

struct nccl_function {
	const char *symbol;
	enum nccl_family family;
	enum nccl_meaning meaning;
	enum nccl_operation operation; /* NCCL_OP_MAX: none */
	enum nccl_factor factor;
	int32_t since;	 /* 10000 * major + 100 * minor + patch, first release seen to have it */
	int8_t sequence; /* index in ncclComm.seqNumber[], or NCCL_NO_SEQUENCE */
	const char *why_unprobed;
	uint8_t params[NCCL_MAX_PARAMS]; /* enum nccl_param, NCCL_PARAM_END ends */
};

extern const struct nccl_function nccl_functions[];
extern const unsigned int nccl_n_functions;

/* Name of an operation as NCCL spells it, "AllReduce"; never NULL. */
const char *nccl_operation__name(enum nccl_operation operation);

/* Where NCCL counts it: index in ncclComm.seqNumber[], or NCCL_NO_SEQUENCE. */
int nccl_operation__sequence(enum nccl_operation operation);

/* Is its size in nccl-tests' sense count x size of the type x ranks, not without the ranks? */
bool nccl_operation__times_ranks(enum nccl_operation operation);

/* The row of an exported symbol ("ncclAllReduce"; "pnccl..." is the same function), or NULL. */
const struct nccl_function *nccl_api__by_symbol(const char *symbol);

enum nccl_arch { NCCL_ARCH_X86_64, NCCL_ARCH_ARM64 };

/* A place of an argument at a function's entry: a register, or an 8-byte word of the stack. */
#define NCCL_SLOT_NONE	0xff
#define NCCL_SLOT_STACK 0x10 /* NCCL_SLOT_STACK + n: n-th word above the return address/at sp */

/*
 * Where a parameter lies at entry, by the System V x86-64 psABI (6 integer registers; a 128-byte
 * struct by value lies in memory and takes none) or AAPCS64 (8; such a struct is passed as a
 * pointer in a register). Returns a register's index (0: rdi or x0), NCCL_SLOT_STACK + word, or
 * NCCL_SLOT_NONE when the function has no such parameter.
 */
uint8_t nccl_api__slot(const struct nccl_function *fn, enum nccl_param param, enum nccl_arch arch);

/* ncclDataType_t: bytes of one element, 0 for a value no release up to 2.32 defines. */
unsigned int nccl_datatype__size(uint32_t datatype);
#define NCCL_N_DATATYPES 12

/* ncclResult_t (2.30): its name as nccl.h spells it; "ncclResult" for a value without one. */
#define NCCL_RESULT_SUCCESS	0
#define NCCL_RESULT_IN_PROGRESS 7
#define NCCL_N_RESULTS		9
const char *nccl_result__name(int32_t result);

/* As NCCL names them, without the prefix: "float32". Never NULL. */
const char *nccl_datatype__name(uint32_t datatype);

/* ncclRedOp_t: greater ones are handles that the job's own rank has made. */
#define NCCL_N_REDOPS 5
const char *nccl_redop__name(uint32_t redop); /* "sum"; never NULL */

/* "2.28.9" of 22809; buf holds at least 16 bytes. "unknown" for 0. Returns buf. */
const char *nccl_version__format(int32_t code, char *buf);

#endif
