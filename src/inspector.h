/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An operation as NVIDIA's NCCL Inspector tells of it (its names, sizes and bandwidths as of NCCL
 * 2.30: plugins/profiler/inspector), out of a launch that was timed. Pure.
 *
 * Inspector times each operation by the channels that work on it. A launch timed as a whole says
 * the same only when it holds one operation, or a Send and a Recv that run side by side; of
 * launches with more nothing is told here.
 */
#ifndef INSPECTOR_H
#define INSPECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "timing.h"

/* Inspector's default for the smallest message that it looks at
 * (NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES). */
#define INSPECTOR_MIN_BYTES 8192

/* Inspector's ncclFunc_t: its files are sorted by it. */
enum inspector_function {
	INSPECTOR_BROADCAST,
	INSPECTOR_REDUCE,
	INSPECTOR_ALLGATHER,
	INSPECTOR_REDUCESCATTER,
	INSPECTOR_ALLREDUCE,
	INSPECTOR_SENDRECV, /* no NCCL sends it */
	INSPECTOR_SEND,
	INSPECTOR_RECV,
	INSPECTOR_ALLTOALL,
	INSPECTOR_FUNCTION_MAX,
};

struct inspector_operation {
	const struct timing_comm *comm;
	const struct timing_operation *operation;
	enum inspector_function function;
	bool is_p2p;
	uint64_t message_bytes; /* of one rank: AllGather and ReduceScatter count x size */
	uint64_t duration_ns;
	double algorithm_gbs, bus_gbs; /* GB = 1e9 */
};

/* Why a launch, or an operation of it, is not told of. */
enum inspector_omission {
	INSPECTOR_NOT_TIMED,
	INSPECTOR_SEVERAL, /* operations in one launch */
	INSPECTOR_SMALL,   /* below INSPECTOR_MIN_BYTES */
	INSPECTOR_UNNAMED, /* Inspector has no name for it: Gather, Scatter, signals */
	INSPECTOR_UNSIZED, /* type or number of ranks not known */
	INSPECTOR_OMISSION_MAX,
};

#define INSPECTOR_MAX_OPERATIONS 2 /* of one launch */

/*
 * The operations of a launch that Inspector would tell of; how many there are. What is left out is
 * counted in omitted[]. They point into the launch.
 */
unsigned int inspector__operations(const struct timing_launch *launch,
				   struct inspector_operation ret[INSPECTOR_MAX_OPERATIONS],
				   uint64_t omitted[INSPECTOR_OMISSION_MAX]);

const char *inspector_function__name(enum inspector_function function);

/*
 * Sizes fall into ranges of one unit of the power of 1024 that they reach, up to 1024 TB and more:
 * "8-9KB", "1-2MB"; 0 is "0B". The range's lower end, and its text.
 */
uint64_t inspector__size_floor(uint64_t bytes);
const char *inspector__size_text(uint64_t bytes, char *buf, size_t size);

/*
 * Whether a process with this environment (the text of /proc/PID/environ) has Inspector write its
 * Prometheus files: NCCL_INSPECTOR_ENABLE and NCCL_INSPECTOR_PROM_DUMP are numbers other than 0.
 * One that has them from NCCL's configuration file cannot be told.
 */
bool inspector__writes_files(const char *environment, size_t len);

/* "RING_LL128"; what is not known is "unknown": "RING_unknown". */
const char *inspector__algo_proto(const struct timing_operation *operation, char *buf, size_t size);

#endif
