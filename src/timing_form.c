/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a launch is, how many bytes it moves, and NCCL's names. */
#include "timing_private.h"

#include "util.h"

/* ncclFuncSendRecv is a kernel's name and ncclFuncAllGatherV's tasks are not told of. */
bool nbp_function__operation(uint8_t function, enum nccl_operation *ret)
{
	static const enum nccl_operation operations[NBP_FUNCTION_MAX] = {
		[NBP_BROADCAST] = NCCL_OP_Broadcast,
		[NBP_REDUCE] = NCCL_OP_Reduce,
		[NBP_ALLGATHER] = NCCL_OP_AllGather,
		[NBP_REDUCESCATTER] = NCCL_OP_ReduceScatter,
		[NBP_ALLREDUCE] = NCCL_OP_AllReduce,
		[NBP_SENDRECV] = NCCL_OP_MAX,
		[NBP_SEND] = NCCL_OP_Send,
		[NBP_RECV] = NCCL_OP_Recv,
		[NBP_ALLTOALL] = NCCL_OP_AlltoAll,
		[NBP_SCATTER] = NCCL_OP_Scatter,
		[NBP_GATHER] = NCCL_OP_Gather,
		[NBP_ALLGATHERV] = NCCL_OP_MAX,
		[NBP_PUTSIGNAL] = NCCL_OP_PutSignal,
		[NBP_SIGNAL] = NCCL_OP_Signal,
		[NBP_WAITSIGNAL] = NCCL_OP_WaitSignal,
	};

	if (function >= NBP_FUNCTION_MAX || operations[function] == NCCL_OP_MAX)
		return false;
	*ret = operations[function];
	return true;
}

/* ---- bytes ---- */

static uint64_t multiply(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static bool operation__has_bytes(const struct timing_operation *operation, int32_t n_ranks)
{
	bool needs_ranks = nccl_operation__times_ranks(operation->operation) ||
			   operation->operation == NCCL_OP_AllReduce;

	return operation->type_bytes && (n_ranks > 0 || !needs_ranks);
}

uint64_t timing_operation__message_bytes(const struct timing_operation *operation)
{
	return multiply(operation->count, operation->type_bytes);
}

uint64_t timing_operation__bytes(const struct timing_operation *operation, int32_t n_ranks)
{
	uint64_t bytes = timing_operation__message_bytes(operation);

	if (!nccl_operation__times_ranks(operation->operation))
		return bytes;
	return n_ranks > 0 ? multiply(bytes, n_ranks) : 0;
}

/* The factors of nccl-tests' PERFORMANCE.md. */
double timing_operation__bus_bytes(const struct timing_operation *operation, int32_t n_ranks)
{
	double bytes = (double)timing_operation__bytes(operation, n_ranks), n = n_ranks;

	if (operation->operation == NCCL_OP_AllReduce)
		return n_ranks > 0 ? bytes * 2 * (n - 1) / n : 0;
	if (nccl_operation__times_ranks(operation->operation))
		return n_ranks > 0 ? bytes * (n - 1) / n : 0;
	return bytes;
}

/* ---- form ---- */

/* The peers of all sends, or of all receives. */
struct peers {
	uint64_t seen[TIMING_MAX_OPERATIONS / 64];
	uint32_t n;
	int64_t sum;
	bool is_uneven; /* one twice, none of the communicator's, or another size */
};

static void peers__add(struct peers *peers, const struct timing_operation *operation,
		       const struct timing_operation *like, int32_t n_ranks)
{
	int32_t peer = operation->root;

	if (peer < 0 || peer >= n_ranks || operation->count != like->count ||
	    operation->type_bytes != like->type_bytes || peers->seen[peer / 64] >> peer % 64 & 1) {
		peers->is_uneven = true;
		return;
	}
	peers->seen[peer / 64] |= 1ULL << peer % 64;
	peers->n++;
	peers->sum += peer;
}

/*
 * From NCCL 2.28 on AlltoAll is a send to and a receive from every rank; in place, without the pair
 * to itself, which NCCL then leaves out. Before, programs make theirs in the same way. With two
 * ranks the pair to itself is all that tells it from a send beside a receive.
 */
static bool launch__is_all_to_all(const struct timing_launch *launch)
{
	const int32_t n = launch->comm->n_ranks, rank = launch->comm->rank;
	struct peers sends = {}, receives = {};
	const int64_t sum = (int64_t)n * (n - 1) / 2;

	if (n < 2 || n > TIMING_MAX_OPERATIONS / 2 ||
	    (launch->n_described != 2 * (uint32_t)n && launch->n_described != 2 * (uint32_t)n - 2))
		return false;
	for (uint32_t i = 0; i < launch->n_described; i++) {
		const struct timing_operation *operation = &launch->operations[i];

		if (operation->operation != NCCL_OP_Send && operation->operation != NCCL_OP_Recv)
			return false;
		peers__add(operation->operation == NCCL_OP_Send ? &sends : &receives, operation,
			   launch->operations, n);
	}
	if (sends.is_uneven || receives.is_uneven || sends.n != receives.n)
		return false;
	if (sends.n == (uint32_t)n)
		return true;
	return n > 2 && sends.sum == receives.sum && (rank < 0 || sum - sends.sum == rank);
}

static bool launch__is_of_one_kind(const struct timing_launch *launch)
{
	for (uint32_t i = 1; i < launch->n_described; i++)
		if (launch->operations[i].operation != launch->operations[0].operation)
			return false;
	return true;
}

static bool launch__is_pair(const struct timing_launch *launch)
{
	const struct timing_operation *o = launch->operations;

	return launch->n_described == 2 &&
	       ((o[0].operation == NCCL_OP_Send && o[1].operation == NCCL_OP_Recv) ||
		(o[0].operation == NCCL_OP_Recv && o[1].operation == NCCL_OP_Send));
}

static void launch__sum(struct timing_launch *launch)
{
	const int32_t n_ranks = launch->comm->n_ranks;

	launch->bytes = 0;
	launch->bus_bytes = 0;
	launch->has_bytes = true;
	for (uint32_t i = 0; i < launch->n_described; i++) {
		const struct timing_operation *operation = &launch->operations[i];
		uint64_t bytes = timing_operation__bytes(operation, n_ranks);

		if (__builtin_add_overflow(launch->bytes, bytes, &launch->bytes))
			launch->bytes = UINT64_MAX;
		launch->bus_bytes += timing_operation__bus_bytes(operation, n_ranks);
		launch->has_bytes &= operation__has_bytes(operation, n_ranks);
	}
}

/* Every operation is described. */
void launch__judge(struct timing_launch *launch)
{
	struct timing_operation whole;

	launch__sum(launch);
	launch->operation = launch->operations[0].operation;
	if (launch->n_described > 1 && launch__is_all_to_all(launch)) {
		whole = launch->operations[0];
		whole.operation = NCCL_OP_AlltoAll;
		launch->form = TIMING_ONE;
		launch->operation = NCCL_OP_AlltoAll;
		launch->bytes = timing_operation__bytes(&whole, launch->comm->n_ranks);
		launch->bus_bytes = timing_operation__bus_bytes(&whole, launch->comm->n_ranks);
	} else if (launch__is_of_one_kind(launch)) {
		launch->form = TIMING_ONE;
	} else {
		launch->form = launch__is_pair(launch) ? TIMING_PAIR : TIMING_MIXED;
	}
}

/* ---- names ---- */

const char *nbp_algorithm__name(uint8_t algorithm)
{
	static const char *const names[NBP_ALGORITHM_MAX] = {
		"TREE",	     "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS",
		"NVLS_TREE", "PAT",  "COPY_ENGINE",
	};

	return algorithm < NBP_ALGORITHM_MAX ? names[algorithm] : "";
}

const char *nbp_protocol__name(uint8_t protocol)
{
	static const char *const names[NBP_PROTOCOL_MAX] = {"LL", "LL128", "SIMPLE"};

	return protocol < NBP_PROTOCOL_MAX ? names[protocol] : "";
}

const char *timing_invalid__name(enum timing_invalid reason)
{
	static const char *const names[TIMING_INVALID_MAX] = {
		"zero",	     "backwards", "absurd", "duplicate",  "incomplete",
		"abandoned", "plugin",	  "driver", "timer_full", "timer_refused",
	};

	return reason < TIMING_INVALID_MAX ? names[reason] : "unknown";
}

const char *timing_lost__name(int reason)
{
	static const char *const names[TIMING_LOST_MAX] = {
		[NBP_LOSS_RING_FULL] = "plugin_notes_full",
		[NBP_LOSS_CONTENTION] = "plugin_contention",
		[NBP_LOSS_NOT_READY] = "plugin_not_ready",
		[NBP_LOSS_NO_COMM] = "plugin_no_comm",
		[NBP_LOSS_STALE] = "plugin_stale",
		[NBP_LOSS_UNKNOWN_TYPE] = "plugin_unknown_type",
		[NBP_LOSS_BAD_CALLBACK] = "plugin_bad_callback",
		[NBP_LOSS_UNKNOWN_STOP] = "plugin_unknown_stop",
		[NBP_LOSS_UNKNOWN_STATE] = "plugin_unknown_state",
		[NBP_LOSS_TIMING_ERROR] = "plugin_timing_error",
		[NBP_LOSS_TIMING_ABANDONED] = "plugin_timing_abandoned",
		[NBP_LOSS_TIMING_INVALID] = "plugin_timing_invalid",
		[NBP_LOSS_TIMER_FULL] = "plugin_timer_full",
		[NBP_LOSS_TIMER_REFUSED] = "plugin_timer_refused",
		[TIMING_LOST_BAD_RECORD] = "plugin_bad_record",
		[TIMING_LOST_NO_ROOM] = "plugin_no_room",
		[TIMING_LOST_GAP] = "plugin_gap",
	};

	return reason >= 0 && reason < TIMING_LOST_MAX ? names[reason] : "unknown";
}
