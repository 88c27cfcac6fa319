/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "inspector.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT 1024

static const char *const function_names[INSPECTOR_FUNCTION_MAX] = {
	[INSPECTOR_BROADCAST] = "Broadcast", [INSPECTOR_REDUCE] = "Reduce",
	[INSPECTOR_ALLGATHER] = "AllGather", [INSPECTOR_REDUCESCATTER] = "ReduceScatter",
	[INSPECTOR_ALLREDUCE] = "AllReduce", [INSPECTOR_SENDRECV] = "SendRecv",
	[INSPECTOR_SEND] = "Send",	     [INSPECTOR_RECV] = "Recv",
	[INSPECTOR_ALLTOALL] = "All2All",
};

const char *inspector_function__name(enum inspector_function function)
{
	return function_names[function];
}

static bool function__of(enum nccl_operation operation, enum inspector_function *ret)
{
	switch (operation) {
	case NCCL_OP_Broadcast:
		*ret = INSPECTOR_BROADCAST;
		return true;
	case NCCL_OP_Reduce:
		*ret = INSPECTOR_REDUCE;
		return true;
	case NCCL_OP_AllGather:
		*ret = INSPECTOR_ALLGATHER;
		return true;
	case NCCL_OP_ReduceScatter:
		*ret = INSPECTOR_REDUCESCATTER;
		return true;
	case NCCL_OP_AllReduce:
		*ret = INSPECTOR_ALLREDUCE;
		return true;
	case NCCL_OP_Send:
		*ret = INSPECTOR_SEND;
		return true;
	case NCCL_OP_Recv:
		*ret = INSPECTOR_RECV;
		return true;
	case NCCL_OP_AlltoAll:
		*ret = INSPECTOR_ALLTOALL;
		return true;
	default:
		return false;
	}
}

/*
 * Bytes that all ranks together hold, and the share of them that crosses the bus. Both are those of
 * nccl-tests' PERFORMANCE.md, too. For All2All Inspector itself has 0; this is nccl-tests' value.
 */
static double traffic_bytes(const struct inspector_operation *op, double n)
{
	switch (op->function) {
	case INSPECTOR_ALLGATHER:
	case INSPECTOR_REDUCESCATTER:
	case INSPECTOR_ALLTOALL:
		return op->message_bytes * n;
	default:
		return op->message_bytes;
	}
}

static double bus_factor(enum inspector_function function, double n)
{
	switch (function) {
	case INSPECTOR_ALLREDUCE:
		return 2 * (n - 1) / n;
	case INSPECTOR_ALLGATHER:
	case INSPECTOR_REDUCESCATTER:
	case INSPECTOR_ALLTOALL:
		return (n - 1) / n;
	default:
		return 1;
	}
}

static bool operation__tell(const struct timing_launch *launch,
			    const struct timing_operation *operation, enum nccl_operation name,
			    struct inspector_operation *ret, enum inspector_omission *ret_why)
{
	struct inspector_operation op = {
		.comm = launch->comm,
		.operation = operation,
		.message_bytes = timing_operation__message_bytes(operation),
		.duration_ns = launch->duration_ns,
	};
	double n = launch->comm->n_ranks;

	*ret_why = INSPECTOR_UNNAMED;
	if (!function__of(name, &op.function))
		return false;
	*ret_why = INSPECTOR_UNSIZED;
	if (!operation->type_bytes || n <= 0)
		return false;
	*ret_why = INSPECTOR_SMALL;
	if (op.message_bytes < INSPECTOR_MIN_BYTES)
		return false;
	op.is_p2p = op.function == INSPECTOR_SEND || op.function == INSPECTOR_RECV;
	op.algorithm_gbs = traffic_bytes(&op, n) / launch->duration_ns; /* bytes a ns: 1e9 a s */
	op.bus_gbs = op.algorithm_gbs * bus_factor(op.function, n);
	*ret = op;
	return true;
}

/* Sends and receives that together are one: its time is known, theirs are not. */
static bool launch__is_exchange(const struct timing_launch *launch)
{
	return launch->complete && launch->form == TIMING_ONE &&
	       launch->operation == NCCL_OP_AlltoAll;
}

/* Whether the launch's time is that of each of its operations. */
static bool launch__is_single(const struct timing_launch *launch)
{
	if (!launch->complete || launch->n_described != launch->n_operations)
		return false;
	return launch->n_operations == 1 ||
	       (launch->form == TIMING_PAIR && launch->n_operations == INSPECTOR_MAX_OPERATIONS);
}

unsigned int inspector__operations(const struct timing_launch *launch,
				   struct inspector_operation ret[INSPECTOR_MAX_OPERATIONS],
				   uint64_t omitted[INSPECTOR_OMISSION_MAX])
{
	bool is_exchange = launch__is_exchange(launch);
	enum inspector_omission why;
	unsigned int n = 0;

	if (launch->timing != NBP_TIMED || !launch->duration_ns || launch->after_pause) {
		omitted[INSPECTOR_NOT_TIMED]++;
		return 0;
	}
	if (!is_exchange && !launch__is_single(launch)) {
		omitted[INSPECTOR_SEVERAL]++;
		return 0;
	}
	for (unsigned int i = 0; i < (is_exchange ? 1 : launch->n_operations); i++) {
		const struct timing_operation *operation = &launch->operations[i];

		if (operation__tell(launch, operation,
				    is_exchange ? NCCL_OP_AlltoAll : operation->operation, &ret[n],
				    &why))
			n++;
		else
			omitted[why]++;
	}
	return n;
}

static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};

/* The unit's index and size in bytes. */
static unsigned int size__unit(uint64_t bytes, uint64_t *ret_unit)
{
	unsigned int i = 0;
	uint64_t unit = 1;

	while (i + 1 < sizeof(units) / sizeof(units[0]) && bytes / unit >= UNIT) {
		unit *= UNIT;
		i++;
	}
	*ret_unit = unit;
	return i;
}

uint64_t inspector__size_floor(uint64_t bytes)
{
	uint64_t unit;

	size__unit(bytes, &unit);
	return bytes / unit * unit;
}

const char *inspector__size_text(uint64_t bytes, char *buf, size_t size)
{
	uint64_t unit;
	unsigned int i = size__unit(bytes, &unit);

	if (bytes)
		snprintf(buf, size, "%" PRIu64 "-%" PRIu64 "%s", bytes / unit, bytes / unit + 1,
			 units[i]);
	else
		snprintf(buf, size, "0B");
	return buf;
}

const char *inspector__algo_proto(const struct timing_operation *operation, char *buf, size_t size)
{
	const char *algorithm = nbp_algorithm__name(operation->algorithm);
	const char *protocol = nbp_protocol__name(operation->protocol);

	snprintf(buf, size, "%s_%s", algorithm[0] ? algorithm : "unknown",
		 protocol[0] ? protocol : "unknown");
	return buf;
}

/* The first of a name holds, as with getenv(). Its last byte may be cut off, but is no NUL then. */
static bool environment__is_on(const char *text, size_t len, const char *name)
{
	const char *end = text + len, *stop;
	size_t name_len = strlen(name);

	for (; text < end && (stop = memchr(text, 0, end - text)); text = stop + 1)
		if (!strncmp(text, name, name_len) && text[name_len] == '=')
			return atoi(text + name_len + 1) != 0;
	return false;
}

bool inspector__writes_files(const char *environment, size_t len)
{
	return environment__is_on(environment, len, "NCCL_INSPECTOR_ENABLE") &&
	       environment__is_on(environment, len, "NCCL_INSPECTOR_PROM_DUMP");
}
