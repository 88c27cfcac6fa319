/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One process that calls NCCL as the lines on its stdin say, one answer a line: what a script of
 * nccl-sim cannot. V is a variable of the program's, 0 to 63.
 *
 *   init|config|scalable V N RANK       all V N            N communicators, into V and on
 *   split V PARENT    shrink V PARENT RANK-LEFT-OUT        destroy|abort|view V
 *   call NAME V COUNT TYPE TIMES        NAME as nccl.h has it, pncclAllReduce too
 *   churn TIMES       create, call once, destroy; answers how many addresses there were
 *   bogus N           N addresses that are no communicator, one call each
 *   hammer THREADS PAUSE-US   pauses after each 64 calls, until the next line, which is answered by
 *                     the number of calls made; `comm`: meanwhile a communicator comes and goes
 *   many THREADS N    N calls in each thread
 *
 * The answer to what makes a communicator: `ok ADDRESS HASH RANK NRANKS`.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl_sim.h"

#define N_VARIABLES 64
#define MAX_THREADS 64
#define STREAM	    ((cudaStream_t)0x57)

static ncclComm_t comm[N_VARIABLES];
static volatile bool stop;
static uint64_t calls_each; /* 0: until stop */
static unsigned int pause_us;

static void *function(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	if (!found) {
		printf("lacks %s\n", name);
		exit(1);
	}
	return found;
}

static void answer(ncclResult_t result, unsigned int v)
{
	struct nccl_sim_view view;

	if (result != ncclSuccess) {
		printf("failed %d\n", result);
		return;
	}
	nccl_sim_view(comm[v], &view);
	printf("ok %p %016" PRIx64 " %d %d\n", (void *)comm[v], view.comm_hash, view.rank,
	       view.n_ranks);
}

typedef ncclResult_t scalable_fn(ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig_t *);
typedef ncclResult_t shrink_fn(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int);

static ncclResult_t make(const char *how, unsigned int v, int n, int rank)
{
	ncclConfig_t config = {.size = sizeof(config),
			       .magic = NCCL_CONFIG_MAGIC,
			       .version = 22809,
			       .blocking = 1};
	ncclUniqueId id;

	ncclGetUniqueId(&id);
	if (!strcmp(how, "init"))
		return ncclCommInitRank(&comm[v], n, id, rank);
	if (!strcmp(how, "config"))
		return ncclCommInitRankConfig(&comm[v], n, id, rank, &config);
	if (!strcmp(how, "scalable"))
		return ((scalable_fn *)function("ncclCommInitRankScalable"))(&comm[v], n, rank, 1,
									     &id, NULL);
	if (!strcmp(how, "all"))
		return ncclCommInitAll(&comm[v], n, NULL);
	if (!strcmp(how, "split"))
		return ncclCommSplit(comm[n], 0, 0, &comm[v], NULL);
	return ((shrink_fn *)function("ncclCommShrink"))(comm[n], &rank, 1, &comm[v], NULL, 0);
}

typedef ncclResult_t reduce_to_all_fn(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
				      ncclComm_t, cudaStream_t);
typedef ncclResult_t move_fn(const void *, void *, size_t, ncclDataType_t, ncclComm_t,
			     cudaStream_t);
typedef ncclResult_t rooted_fn(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
			       cudaStream_t);
typedef ncclResult_t reduce_fn(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int,
			       ncclComm_t, cudaStream_t);
typedef ncclResult_t one_buffer_fn(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);

static void call(const char *name, ncclComm_t c, size_t n, ncclDataType_t type)
{
	const char *plain = name + (name[0] == 'p');
	void *fn = function(name);

	if (!strcmp(plain, "ncclAllReduce") || !strcmp(plain, "ncclReduceScatter"))
		((reduce_to_all_fn *)fn)(NULL, NULL, n, type, ncclMax, c, STREAM);
	else if (!strcmp(plain, "ncclAllGather") || !strcmp(plain, "ncclAlltoAll"))
		((move_fn *)fn)(NULL, NULL, n, type, c, STREAM);
	else if (!strcmp(plain, "ncclBroadcast") || !strcmp(plain, "ncclGather") ||
		 !strcmp(plain, "ncclScatter"))
		((rooted_fn *)fn)(NULL, NULL, n, type, 0, c, STREAM);
	else if (!strcmp(plain, "ncclReduce"))
		((reduce_fn *)fn)(NULL, NULL, n, type, ncclMax, 0, c, STREAM);
	else
		((one_buffer_fn *)fn)(NULL, n, type, 0, c, STREAM);
}

static unsigned int churn(unsigned int times)
{
	uintptr_t *seen = calloc(times, sizeof(*seen));
	unsigned int n_seen = 0;

	for (unsigned int i = 0; i < times; i++) {
		unsigned int k = 0;

		if (make("init", 0, 8, i % 8))
			exit(1);
		while (k < n_seen && seen[k] != (uintptr_t)comm[0])
			k++;
		if (k == n_seen)
			seen[n_seen++] = (uintptr_t)comm[0];
		ncclAllReduce(NULL, NULL, 1000, ncclFloat32, ncclSum, comm[0], STREAM);
		ncclCommDestroy(comm[0]);
	}
	comm[0] = NULL;
	free(seen);
	return n_seen;
}

/* Zeroed memory larger than any ncclComm: readable, and refused by the library for its magic. */
static void bogus(unsigned int n)
{
	static char memory[4 << 20];

	for (unsigned int i = 0; i < n; i++)
		ncclAllReduce(NULL, NULL, 1, ncclInt8, ncclSum, (ncclComm_t)(memory + 16 * i),
			      STREAM);
}

static uint64_t hammer_calls[MAX_THREADS][8]; /* a cache line each */
static unsigned int n_hammers;

/* One of several threads keeps to a communicator, as NCCL wants it; one alone uses both in turn. */
static void *hammer_thread(void *arg)
{
	uint64_t me = (uint64_t(*)[8])arg - hammer_calls, *calls = arg;

	while (calls_each ? *calls < calls_each : !stop) {
		ncclAllReduce(NULL, NULL, 1 + *calls % 1000, ncclFloat32, ncclSum,
			      comm[(n_hammers > 1 ? me : *calls) % 2], STREAM);
		if (++*calls % 64 == 0 && pause_us)
			usleep(pause_us);
	}
	return NULL;
}

/* Until a line says something else. */
static void come_and_go(void)
{
	char line[16];

	while (fgets(line, sizeof(line), stdin) && !strcmp(line, "comm\n")) {
		if (make("init", N_VARIABLES - 1, 8, 3))
			exit(1);
		ncclCommDestroy(comm[N_VARIABLES - 1]);
		puts("ok");
		fflush(stdout);
	}
}

static void hammer(unsigned int n, uint64_t each)
{
	pthread_t threads[MAX_THREADS];
	uint64_t total = 0;

	memset(hammer_calls, 0, sizeof(hammer_calls));
	n_hammers = n;
	stop = false;
	calls_each = each;
	for (unsigned int i = 0; i < n; i++)
		pthread_create(&threads[i], NULL, hammer_thread, hammer_calls[i]);
	puts("ok");
	fflush(stdout);
	if (!each)
		come_and_go();
	stop = true;
	for (unsigned int i = 0; i < n; i++) {
		pthread_join(threads[i], NULL);
		total += hammer_calls[i][0];
	}
	printf("ok %" PRIu64 "\n", total);
}

static void obey(const char *line)
{
	unsigned long long n = 0, times = 0;
	unsigned int v = 0, type = 0;
	char verb[16], name[32];
	int parent = 0, rank = 0;

	if (sscanf(line, "call %31s %u %llu %u %llu", name, &v, &n, &type, &times) == 5) {
		while (times--)
			call(name, comm[v % N_VARIABLES], n, type);
		puts("ok");
		return;
	}
	if (sscanf(line, "%15s %u %d %d", verb, &v, &parent, &rank) < 2)
		exit(2);
	if (!strcmp(verb, "churn"))
		printf("ok %u\n", churn(v));
	else if (!strcmp(verb, "bogus"))
		bogus(v), puts("ok");
	else if (!strcmp(verb, "hammer"))
		pause_us = parent, hammer(v, 0);
	else if (!strcmp(verb, "many"))
		hammer(v, parent);
	else if (!strcmp(verb, "destroy"))
		printf("ok %d\n", ncclCommDestroy(comm[v % N_VARIABLES]));
	else if (!strcmp(verb, "abort"))
		printf("ok %d\n", ncclCommAbort(comm[v % N_VARIABLES]));
	else if (!strcmp(verb, "view"))
		answer(ncclSuccess, v % N_VARIABLES);
	else
		answer(make(verb, v % N_VARIABLES, parent, rank), v % N_VARIABLES);
}

int main(void)
{
	char line[128];

	printf("ok\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		obey(line);
		fflush(stdout);
	}
	return 0;
}
