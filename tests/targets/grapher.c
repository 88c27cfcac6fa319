/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Captures, instantiates and launches as the lines on standard input say, on the threads that they
 * say, over a stand-in CUDA driver that is given as the argument. A line is `[@THREAD] WORD ...`,
 * answered with `ok`. Streams are numbers; graphs and executables are numbered places in memory.
 *
 *   comm                      a communicator of one rank, used by all calls
 *   call N COUNT              N AllReduce of COUNT floats
 *   symbol NAME               for the next line alone: the function to call, instead of the usual
 *   begin STREAM              a capture begins
 *   into STREAM GRAPH         a capture into a graph that exists
 *   end STREAM GRAPH          it ends; the graph's handle goes to that place
 *   create GRAPH              a graph made by hand
 *   make EXEC GRAPH           instantiates
 *   local EXEC GRAPH          instantiates into a variable on the stack, copied and overwritten
 *   launch EXEC N             N times
 *   drop GRAPH, free EXEC     destroys
 *   child GRAPH CHILD         adds CHILD to GRAPH
 *   stream STREAM             destroys the stream
 *   fail                      the next call that makes something fails
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_sim.h"

#define N_THREADS 4
#define N_PLACES  64

typedef uint64_t handle;

static struct {
	void *driver;
	ncclComm_t comm;
	handle places[N_PLACES];
	char symbol[64];
	char line[256];
	int turn; /* the thread whose turn it is; -1: the reader's */
	bool ok;
	pthread_mutex_t lock;
	pthread_cond_t changed;
} job = {.turn = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *function(const char *usual)
{
	void *found = dlsym(job.driver, job.symbol[0] ? job.symbol : usual);

	job.symbol[0] = 0;
	if (!found)
		fprintf(stderr, "no such function: %s\n", usual);
	return found;
}

#define CALL(name, type, ...) (((int(*) type)function(name))(__VA_ARGS__))

static __attribute__((noinline)) int instantiate_here(handle *ret, handle graph)
{
	volatile handle local = 0;
	int result = CALL("cuGraphInstantiateWithFlags", (handle *, handle, uint64_t),
			  (handle *)&local, graph, 0);

	*ret = local;
	local = 0xdead;
	return result;
}

static void make_comm(void)
{
	ncclUniqueId id;

	nccl_sim_attach(NULL, 0, 1, 0);
	ncclGetUniqueId(&id);
	ncclCommInitRank(&job.comm, 1, id, 0);
}

static bool obey(const char *word, unsigned long a, unsigned long b)
{
	handle *at = &job.places[a % N_PLACES], *from = &job.places[b % N_PLACES];
	void *stream = (void *)(a > 2 ? 0x5000 + 0x100 * a : a);

	if (!strcmp(word, "comm"))
		make_comm();
	else if (!strcmp(word, "call"))
		for (unsigned long i = 0; i < a; i++)
			ncclAllReduce(NULL, NULL, b, ncclFloat32, ncclSum, job.comm, NULL);
	else if (!strcmp(word, "begin"))
		CALL("cuStreamBeginCapture_v2", (void *, int), stream, 0);
	else if (!strcmp(word, "into"))
		CALL("cuStreamBeginCaptureToGraph", (void *, handle, void *, void *, uint64_t, int),
		     stream, *from, NULL, NULL, 0, 0);
	else if (!strcmp(word, "end"))
		CALL("cuStreamEndCapture", (void *, handle *), stream, from);
	else if (!strcmp(word, "create"))
		CALL("cuGraphCreate", (handle *, unsigned int), at, 0);
	else if (!strcmp(word, "make"))
		CALL("cuGraphInstantiateWithFlags", (handle *, handle, uint64_t), at, *from, 0);
	else if (!strcmp(word, "local"))
		instantiate_here(at, *from);
	else if (!strcmp(word, "drop"))
		CALL("cuGraphDestroy", (handle), *at);
	else if (!strcmp(word, "free"))
		CALL("cuGraphExecDestroy", (handle), *at);
	else if (!strcmp(word, "child"))
		CALL("cuGraphAddChildGraphNode", (handle *, handle, void *, uint64_t, handle), NULL,
		     *at, NULL, 0, *from);
	else if (!strcmp(word, "stream"))
		CALL("cuStreamDestroy_v2", (void *), stream);
	else if (!strcmp(word, "fail"))
		*(int *)dlsym(job.driver, "graph_driver_fails") = 1;
	else
		return false;
	return true;
}

static bool obey_line(void)
{
	char word[64] = "", name[64] = "";
	unsigned long a = 0, b = 0;

	if (sscanf(job.line, "symbol %63s", name) == 1) {
		strcpy(job.symbol, name);
		return true;
	}
	if (sscanf(job.line, "%63s %lu %lu", word, &a, &b) < 1)
		return false;
	if (strcmp(word, "launch"))
		return obey(word, a, b);
	for (unsigned long i = 0; i < b; i++) {
		char symbol[64];

		strcpy(symbol, job.symbol);
		CALL("cuGraphLaunch", (handle, void *), job.places[a % N_PLACES], NULL);
		if (i + 1 < b)
			strcpy(job.symbol, symbol);
	}
	return true;
}

static void *thread_main(void *arg)
{
	int me = (intptr_t)arg;

	pthread_mutex_lock(&job.lock);
	for (;;) {
		while (job.turn != me)
			pthread_cond_wait(&job.changed, &job.lock);
		job.ok = obey_line();
		job.turn = -1;
		pthread_cond_broadcast(&job.changed);
	}
	return NULL;
}

static void run_on(int thread)
{
	pthread_mutex_lock(&job.lock);
	job.turn = thread;
	pthread_cond_broadcast(&job.changed);
	while (job.turn != -1)
		pthread_cond_wait(&job.changed, &job.lock);
	pthread_mutex_unlock(&job.lock);
}

int main(int argc, char **argv)
{
	char line[256];

	job.driver = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!job.driver)
		return 2;
	for (intptr_t i = 0; i < N_THREADS; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, thread_main, (void *)i))
			return 1;
	}
	printf("ok\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		int thread = 0, at = 0;

		if (sscanf(line, "@%d %n", &thread, &at) < 1 || thread < 0 || thread >= N_THREADS)
			thread = at = 0;
		snprintf(job.line, sizeof(job.line), "%s", line + at);
		run_on(thread);
		printf(job.ok ? "ok\n" : "failed\n");
		fflush(stdout);
	}
	return 0;
}
