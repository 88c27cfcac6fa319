/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "nccl_api.h"

#include <stdio.h>
#include <string.h>

/* The table's words, spelt out: P1..P12 turn a row's parameter names into enumerators. */
#define P(x) NCCL_PARAM_##x
#define PARAMS_(a, b, c, d, e, f, g, h, i, j, k, l, ...)                                           \
	{                                                                                          \
		P(a), P(b), P(c), P(d), P(e), P(f), P(g), P(h), P(i), P(j), P(k), P(l)             \
	}
#define PARAMS(...)	PARAMS_(__VA_ARGS__, END, END, END, END, END, END, END, END, END, END, END, END)
#define SEQ_NO_SEQUENCE NCCL_NO_SEQUENCE
#define SEQ_0		0
#define SEQ_1		1
#define SEQ_2		2
#define SEQ_3		3
#define SEQ_4		4

const struct nccl_function nccl_functions[] = {
#define NCCL_OPERATION(id, sym, ver, op, seq, fac, ...)                                            \
	{.symbol = #sym,                                                                           \
	 .family = NCCL_FAMILY_OPERATION,                                                          \
	 .meaning = NCCL_MEANS_OPERATION,                                                          \
	 .operation = NCCL_OP_##op,                                                                \
	 .factor = NCCL_FACTOR_##fac,                                                              \
	 .since = ver,                                                                             \
	 .sequence = SEQ_##seq,                                                                    \
	 .params = PARAMS(__VA_ARGS__)},
#define NCCL_LIFECYCLE(id, sym, ver, means, ...)                                                   \
	{.symbol = #sym,                                                                           \
	 .family = NCCL_FAMILY_LIFECYCLE,                                                          \
	 .meaning = NCCL_MEANS_##means,                                                            \
	 .operation = NCCL_OP_MAX,                                                                 \
	 .since = ver,                                                                             \
	 .sequence = NCCL_NO_SEQUENCE,                                                             \
	 .params = PARAMS(__VA_ARGS__)},
#define NCCL_UNPROBED(sym, ver, why)                                                               \
	{.symbol = #sym,                                                                           \
	 .family = NCCL_FAMILY_UNPROBED,                                                           \
	 .operation = NCCL_OP_MAX,                                                                 \
	 .since = ver,                                                                             \
	 .sequence = NCCL_NO_SEQUENCE,                                                             \
	 .why_unprobed = why},
#include "nccl_api.def"
};

const unsigned int nccl_n_functions = sizeof(nccl_functions) / sizeof(nccl_functions[0]);

static const char *const operation_names[NCCL_OP_MAX] = {
	[NCCL_OP_AllReduce] = "AllReduce",
	[NCCL_OP_AllGather] = "AllGather",
	[NCCL_OP_ReduceScatter] = "ReduceScatter",
	[NCCL_OP_Broadcast] = "Broadcast",
	[NCCL_OP_Reduce] = "Reduce",
	[NCCL_OP_AlltoAll] = "AlltoAll",
	[NCCL_OP_Gather] = "Gather",
	[NCCL_OP_Scatter] = "Scatter",
	[NCCL_OP_Send] = "Send",
	[NCCL_OP_Recv] = "Recv",
	[NCCL_OP_PutSignal] = "PutSignal",
	[NCCL_OP_Signal] = "Signal",
	[NCCL_OP_WaitSignal] = "WaitSignal",
};

const char *nccl_operation__name(enum nccl_operation operation)
{
	return operation < NCCL_OP_MAX ? operation_names[operation] : "unknown";
}

/* The first function of an operation: the others are alike. NULL: none is probed. */
static const struct nccl_function *operation__function(enum nccl_operation operation)
{
	for (unsigned int i = 0; i < NCCL_FN_PROBED; i++)
		if (nccl_functions[i].operation == operation)
			return &nccl_functions[i];
	return NULL;
}

int nccl_operation__sequence(enum nccl_operation operation)
{
	const struct nccl_function *fn = operation__function(operation);

	return fn ? fn->sequence : NCCL_NO_SEQUENCE;
}

bool nccl_operation__times_ranks(enum nccl_operation operation)
{
	const struct nccl_function *fn = operation__function(operation);

	return fn && fn->factor == NCCL_FACTOR_TIMES_RANKS;
}

const struct nccl_function *nccl_api__by_symbol(const char *symbol)
{
	if (symbol[0] == 'p')
		symbol++;
	for (unsigned int i = 0; i < nccl_n_functions; i++)
		if (!strcmp(nccl_functions[i].symbol, symbol))
			return &nccl_functions[i];
	return NULL;
}

uint8_t nccl_api__slot(const struct nccl_function *fn, enum nccl_param param, enum nccl_arch arch)
{
	const unsigned int n_regs = arch == NCCL_ARCH_X86_64 ? 6 : 8;
	unsigned int reg = 0, word = 0;

	for (unsigned int i = 0; i < NCCL_MAX_PARAMS && fn->params[i] != NCCL_PARAM_END; i++) {
		bool in_memory = fn->params[i] == NCCL_PARAM_UNIQUEID && arch == NCCL_ARCH_X86_64;
		uint8_t slot = !in_memory && reg < n_regs ? reg++ : NCCL_SLOT_STACK + word;

		if (fn->params[i] == param)
			return slot;
		if (slot >= NCCL_SLOT_STACK)
			word += in_memory ? 16 : 1;
	}
	return NCCL_SLOT_NONE;
}

/* nccl.h: int8 uint8 int32 uint32 int64 uint64 fp16 fp32 fp64 bf16 (2.10) e4m3 e5m2 (2.24) */
static const struct {
	const char *name;
	uint8_t size;
} datatypes[NCCL_N_DATATYPES] = {
	{"int8", 1},	{"uint8", 1},	 {"int32", 4},	    {"uint32", 4},
	{"int64", 8},	{"uint64", 8},	 {"float16", 2},    {"float32", 4},
	{"float64", 8}, {"bfloat16", 2}, {"float8e4m3", 1}, {"float8e5m2", 1},
};

unsigned int nccl_datatype__size(uint32_t datatype)
{
	return datatype < NCCL_N_DATATYPES ? datatypes[datatype].size : 0;
}

const char *nccl_datatype__name(uint32_t datatype)
{
	return datatype < NCCL_N_DATATYPES ? datatypes[datatype].name : "an unknown type";
}

const char *nccl_redop__name(uint32_t redop)
{
	static const char *const names[NCCL_N_REDOPS] = {"sum", "prod", "max", "min", "avg"};

	return redop < NCCL_N_REDOPS ? names[redop] : "a reduction of its own";
}

const char *nccl_result__name(int32_t result)
{
	static const char *const names[NCCL_N_RESULTS] = {
		"ncclSuccess",	     "ncclUnhandledCudaError", "ncclSystemError",
		"ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
		"ncclRemoteError",   "ncclInProgress",	       "ncclTimeout",
	};

	return result >= 0 && result < NCCL_N_RESULTS ? names[result] : "ncclResult";
}

const char *nccl_version__format(int32_t code, char *buf)
{
	if (code <= 0 || code > 999999)
		strcpy(buf, "unknown");
	else
		snprintf(buf, 16, "%d.%d.%d", code / 10000, code / 100 % 100, code % 100);
	return buf;
}
