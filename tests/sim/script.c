/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Words of a script: operations, types, numbers, sets of ranks. */
#include "script.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_sim.h"

const struct operation_info operations[OP_WORDS] = {
	[OP_ALLGATHER] = { "allgather", "AllGather", OP_ALLGATHER, SIM_SEQ_ALLGATHER, true },
	[OP_ALLREDUCE] = { "allreduce", "AllReduce", OP_ALLREDUCE, SIM_SEQ_ALLREDUCE, false },
	[OP_ALLTOALL] = { "alltoall", "AlltoAll", OP_ALLTOALL, -1, true },
	[OP_BROADCAST] = { "broadcast", "Broadcast", OP_BROADCAST, SIM_SEQ_BROADCAST, false },
	[OP_GATHER] = { "gather", "Gather", OP_GATHER, -1, true },
	[OP_RECV] = { "recv", "Recv", OP_RECV, -1, false },
	[OP_REDUCE] = { "reduce", "Reduce", OP_REDUCE, SIM_SEQ_REDUCE, false },
	[OP_REDUCESCATTER] = { "reducescatter", "ReduceScatter", OP_REDUCESCATTER,
			       SIM_SEQ_REDUCESCATTER, true },
	[OP_SCATTER] = { "scatter", "Scatter", OP_SCATTER, -1, true },
	[OP_SEND] = { "send", "Send", OP_SEND, -1, false },
	[OP_BCAST] = { "bcast", "Broadcast", OP_BROADCAST, SIM_SEQ_BROADCAST, false },
};

static const struct {
	const char *word;
	uint64_t bytes;
} datatypes[ncclNumTypes] = {
	[ncclInt8] = { "int8", 1 }, [ncclUint8] = { "uint8", 1 }, [ncclInt32] = { "int32", 4 },
	[ncclUint32] = { "uint32", 4 }, [ncclInt64] = { "int64", 8 },
	[ncclUint64] = { "uint64", 8 }, [ncclFloat16] = { "fp16", 2 },
	[ncclFloat32] = { "fp32", 4 }, [ncclFloat64] = { "fp64", 8 },
	[ncclBfloat16] = { "bf16", 2 }, [ncclFloat8e4m3] = { "fp8e4m3", 1 },
	[ncclFloat8e5m2] = { "fp8e5m2", 1 },
};

/* Those that an asynchronous error can be; ncclSuccess: none any more. */
static const char *const results[ncclNumResults] = {
	[ncclSuccess] = "ncclSuccess",
	[ncclUnhandledCudaError] = "ncclUnhandledCudaError",
	[ncclSystemError] = "ncclSystemError",
	[ncclInternalError] = "ncclInternalError",
	[ncclRemoteError] = "ncclRemoteError",
};

static const char *const redops[ncclNumOps] = { "sum", "prod", "max", "min", "avg" };

uint64_t datatype_bytes(int datatype)
{
	return datatype >= 0 && datatype < ncclNumTypes ? datatypes[datatype].bytes : 0;
}

int operation_find(const char *word)
{
	for (int i = 0; i < OP_WORDS; i++)
		if (!strcmp(word, operations[i].word))
			return i;
	return -1;
}

static int find_number(const char *word)
{
	uint64_t number;

	return parse_u64(word, INT_MAX, &number) ? (int)number : -1;
}

int datatype_find(const char *word)
{
	for (int i = 0; i < ncclNumTypes; i++)
		if (!strcmp(word, datatypes[i].word))
			return i;
	return find_number(word);
}

int redop_find(const char *word)
{
	for (int i = 0; i < ncclNumOps; i++)
		if (!strcmp(word, redops[i]))
			return i;
	return find_number(word);
}

int result_find(const char *word)
{
	for (int i = 0; i < ncclNumResults; i++)
		if (results[i] && !strcmp(word, results[i]))
			return i;
	return -1;
}

bool parse_u64(const char *word, uint64_t max, uint64_t *ret_value)
{
	unsigned long long value;
	char *end;

	if (!isdigit((unsigned char)word[0]))
		return false;
	errno = 0;
	value = strtoull(word, &end, 10);
	if (errno || *end || value > max)
		return false;
	*ret_value = value;
	return true;
}

bool parse_positive(const char *word, double max, double *ret_value)
{
	double value;
	char *end;

	if (strspn(word, "0123456789.") != strlen(word))
		return false;
	value = strtod(word, &end);
	if (end == word || *end || !(value > 0 && value <= max))
		return false;
	*ret_value = value;
	return true;
}

bool rank_set_has(const struct rank_set *set, int rank)
{
	return set->bits[rank / 64] >> (rank % 64) & 1;
}

int rank_set_index(const struct rank_set *set, int rank)
{
	int n = 0;

	for (int i = 0; i < rank; i++)
		n += rank_set_has(set, i);
	return n;
}

int rank_set_count(const struct rank_set *set)
{
	return rank_set_index(set, SIM_MAX_RANKS);
}

/* One of "3" and "0-2"; *text is moved behind it. */
static bool parse_range(const char **text, int n_ranks, struct rank_set *set)
{
	unsigned long first, last;
	char *end;

	if (!isdigit((unsigned char)**text))
		return false;
	first = last = strtoul(*text, &end, 10);
	if (*end == '-') {
		if (!isdigit((unsigned char)end[1]))
			return false;
		last = strtoul(end + 1, &end, 10);
	}
	if (first > last || last >= (unsigned long)n_ranks)
		return false;
	for (unsigned long i = first; i <= last; i++)
		set->bits[i / 64] |= UINT64_C(1) << (i % 64);
	*text = end;
	return true;
}

bool parse_ranks(const char *word, int n_ranks, struct rank_set *ret_set)
{
	struct rank_set set = { 0 };

	while (parse_range(&word, n_ranks, &set)) {
		if (!*word) {
			*ret_set = set;
			return true;
		}
		if (*word++ != ',')
			return false;
	}
	return false;
}
