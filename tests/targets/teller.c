/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process whose plugin says what the test says: made-up communicators and launches with made-up
 * GPU times, told through the real plugin's hook. Does what the lines on standard input say and
 * answers each with `ok`:
 *
 *   load PATH        dlopen: NCCL, so that the process counts as one of its; the plugin
 *   hook ADDRESS     where the plugin's hook is
 *   comm ID HASH RANK NRANKS NNODES UUID [NAME]
 *                    UUID: 32 hex digits; communicators are told again every second by `one` and so
 * on one ID FUNCTION COUNT DATATYPE ALGORITHM PROTOCOL NS TIMES so many launches of one operation
 * each; the four in the numbers of the contract. NS 0: not timed, for the budget's sake pair ID
 * COUNT DATATYPE PEER NS one launch of a Send to and a Recv from the peer many ID FUNCTION COUNT N
 * NS one launch of N equal operations
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nccl_bpftrace_plugin.h"

#define MAX_COMMS 64

static struct teller_comm {
	struct nbp_record who; /* the NBP_KIND_COMM record */
	uint64_t api, launch, operation, group;
	uint64_t sequence[NBP_FUNCTION_MAX];
} comms[MAX_COMMS];

static void (*hook)(const struct nbp_record *batch, uint32_t n);
static struct nbp_record batch[NBP_MAX_BATCH];
static uint32_t n_batch;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static void flush(void)
{
	if (n_batch)
		hook(batch, n_batch);
	n_batch = 0;
}

static struct nbp_record *add(const struct teller_comm *comm, enum nbp_kind kind)
{
	struct nbp_record *r;

	if (n_batch == NBP_MAX_BATCH)
		flush();
	r = &batch[n_batch++];
	*r = comm->who;
	memset(r->bytes, 0, sizeof(r->bytes));
	r->kind = kind;
	r->tid = getpid();
	r->time_ns = now_ns();
	return r;
}

static void tell_comm(struct teller_comm *comm)
{
	struct nbp_record *r = add(comm, NBP_KIND_COMM);

	r->comm = comm->who.comm;
	r->comm.api_number = comm->api;
	r->comm.launch = comm->launch;
	r->comm.operation = comm->operation;
	flush();
}

static struct nbp_launch launch_of(const struct teller_comm *comm, uint8_t phase, uint64_t ns)
{
	return (struct nbp_launch){
		.launch = comm->launch,
		.stream = 0x5000,
		.clock_error_ns = NBP_UNKNOWN,
		.n_operations = NBP_UNKNOWN,
		.phase = phase,
		.timing = ns ? NBP_TIMED : NBP_NOT_TIMED_BUDGET,
		.source = ns ? NBP_SOURCE_CUDA_EVENT : NBP_SOURCE_NONE,
	};
}

static void tell_call(struct teller_comm *comm, uint8_t function, uint64_t count, uint8_t datatype)
{
	struct nbp_record *r = add(comm, NBP_KIND_API);

	r->api = (struct nbp_api){
		.api_number = ++comm->api,
		.count = count,
		.stream = 0x5000,
		.group = comm->group,
		.root = NBP_NO_RANK,
		.group_depth = 1,
		.function = function,
		.datatype = datatype,
		.redop = NBP_UNKNOWN_U8,
	};
}

static void tell_launched(struct teller_comm *comm, uint64_t ns)
{
	struct nbp_record *r = add(comm, NBP_KIND_LAUNCH);

	comm->launch++;
	r->launch = launch_of(comm, NBP_LAUNCHED, ns);
}

static void tell_operation(struct teller_comm *comm, const struct nbp_operation *like)
{
	struct nbp_record *r = add(comm, NBP_KIND_OPERATION);
	int is_p2p = like->function == NBP_SEND || like->function == NBP_RECV;

	r->operation = *like;
	r->operation.launch = comm->launch;
	r->operation.group = comm->group;
	r->operation.operation = ++comm->operation;
	r->operation.sequence = is_p2p ? NBP_NO_NUMBER : comm->sequence[like->function]++;
	r->operation.n_channels = 16;
	r->operation.redop = NBP_UNKNOWN_U8;
}

static void tell_finished(struct teller_comm *comm, uint64_t ns, uint32_t n_operations)
{
	struct nbp_record *r;

	if (!ns)
		return;
	r = add(comm, NBP_KIND_LAUNCH);
	r->launch = launch_of(comm, NBP_FINISHED, ns);
	r->launch.n_operations = n_operations;
	r->launch.duration_ns = ns;
	/* It began with the launch: the host has waited for its end, as the plugin does. */
	r->launch.gpu_end_ns = now_ns();
	r->launch.gpu_start_ns = r->launch.gpu_end_ns - ns;
	r->launch.clock_error_ns = 500;
}

static void spend(uint64_t ns)
{
	uint64_t until = now_ns() + ns;

	while (now_ns() < until)
		;
}

static int tell(struct teller_comm *comm, const struct nbp_operation *operations, unsigned int n,
		uint64_t ns)
{
	comm->group++;
	for (unsigned int i = 0; i < n; i++)
		tell_call(comm, operations[i].function, operations[i].count,
			  operations[i].datatype);
	tell_launched(comm, ns);
	for (unsigned int i = 0; i < n; i++)
		tell_operation(comm, &operations[i]);
	spend(ns);
	tell_finished(comm, ns, n);
	return 1;
}

static int do_comm(const char *rest)
{
	unsigned int id, rank, n_ranks, n_nodes;
	unsigned long long hash;
	char uuid[33], name[40] = "";
	struct teller_comm *comm;

	if (sscanf(rest, "%u %llx %u %u %u %32s %39[^\n]", &id, &hash, &rank, &n_ranks, &n_nodes,
		   uuid, name) < 6 ||
	    id >= MAX_COMMS)
		return 0;
	comm = &comms[id];
	comm->who = (struct nbp_record){
		.kind = NBP_KIND_COMM,
		.size = sizeof(struct nbp_record),
		.comm_hash = hash,
		.rank = rank,
		.n_ranks = n_ranks,
		.comm_id = id + 1,
		.comm = {.n_nodes = n_nodes, .abi = 5},
	};
	for (int i = 0; i < 16; i++)
		sscanf(uuid + 2 * i, "%2hhx", &comm->who.comm.gpu_uuid[i]);
	memcpy(comm->who.comm.name, name, sizeof(name));
	tell_comm(comm);
	return 1;
}

static int do_one(const char *rest)
{
	unsigned int id, function, datatype, algorithm, protocol, times;
	unsigned long long count, ns;
	struct nbp_operation operation;

	if (sscanf(rest, "%u %u %llu %u %u %u %llu %u", &id, &function, &count, &datatype,
		   &algorithm, &protocol, &ns, &times) != 8)
		return 0;
	operation = (struct nbp_operation){
		.count = count,
		.root = NBP_NO_RANK,
		.function = function,
		.datatype = datatype,
		.algorithm = algorithm,
		.protocol = protocol,
	};
	while (times--)
		tell(&comms[id], &operation, 1, ns);
	flush();
	return 1;
}

static int do_several(const char *rest, int is_pair)
{
	unsigned int id, third, fourth, n = 2;
	unsigned long long count, ns;
	static struct nbp_operation operations[64];
	unsigned int function = NBP_SEND;

	if (is_pair ? sscanf(rest, "%u %llu %u %u %llu", &id, &count, &third, &fourth, &ns) != 5
		    : sscanf(rest, "%u %u %llu %u %llu", &id, &function, &count, &n, &ns) != 5)
		return 0;
	for (unsigned int i = 0; i < n && i < 64; i++)
		operations[i] = (struct nbp_operation){
			.count = count,
			.root = is_pair ? (int)fourth : NBP_NO_RANK,
			.function = is_pair && i ? NBP_RECV : function,
			.datatype = is_pair ? third : 7,
			.algorithm = is_pair ? NBP_UNKNOWN_U8 : NBP_RING,
			.protocol = is_pair ? NBP_UNKNOWN_U8 : NBP_SIMPLE,
		};
	tell(&comms[id], operations, n, ns);
	flush();
	return 1;
}

static int obey(const char *word, const char *rest)
{
	if (!strcmp(word, "load"))
		return dlopen(rest, RTLD_NOW | RTLD_LOCAL) != NULL;
	if (!strcmp(word, "hook"))
		return (hook = (void *)strtoul(rest, NULL, 0)) != NULL;
	if (!hook)
		return 0;
	if (!strcmp(word, "comm"))
		return do_comm(rest);
	if (!strcmp(word, "one"))
		return do_one(rest);
	if (!strcmp(word, "pair") || !strcmp(word, "many"))
		return do_several(rest, word[0] == 'p');
	return 0;
}

int main(void)
{
	char line[4200];

	while (fgets(line, sizeof(line), stdin)) {
		char *rest;

		line[strcspn(line, "\n")] = 0;
		rest = line + strcspn(line, " ");
		if (*rest)
			*rest++ = 0;
		printf("%s\n", obey(line, rest) ? "ok" : "failed");
		fflush(stdout);
	}
	return 0;
}
