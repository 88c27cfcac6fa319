/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Graphs: commands that were captured, put on a stream again at each launch. */
#include "cuda_private.h"

#include <stdlib.h>
#include <string.h>

struct node {
	struct node *next;
	struct gpu_command command;
	struct gpu_op *ops;
	cuda_sim_function *function; /* NULL: the node is a command */
	void (*release)(void *argument);
	void *argument;
};

/* Held by the capture or its caller, by what was instantiated, and by functions yet to be called. */
struct CUgraph_st {
	uint32_t users;
	struct node *first, **last;
};

struct CUgraphExec_st {
	CUgraph graph;
};

/* A function due in CUDA's callback thread. */
struct callback {
	struct callback *next;
	CUgraph graph;
	const struct node *node;
	uint64_t launch;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	pthread_cond_t none;
	struct callback *first, **last;
	int n_pending;
	bool running;
} callbacks = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER,
		.none = PTHREAD_COND_INITIALIZER };

CUgraph graph_new(void)
{
	CUgraph graph = calloc(1, sizeof(*graph));

	if (!graph)
		return NULL;
	graph->users = 1;
	graph->last = &graph->first;
	return graph;
}

static void graph_ref(CUgraph graph)
{
	__atomic_add_fetch(&graph->users, 1, __ATOMIC_RELAXED);
}

void graph_unref(CUgraph graph)
{
	if (__atomic_sub_fetch(&graph->users, 1, __ATOMIC_ACQ_REL))
		return;
	while (graph->first) {
		struct node *node = graph->first;

		graph->first = node->next;
		if (node->release)
			node->release(node->argument);
		free(node->ops);
		free(node);
	}
	free(graph);
}

static CUresult add(CUgraph graph, struct node *node)
{
	if (!node)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*graph->last = node;
	graph->last = &node->next;
	return CUDA_SUCCESS;
}

CUresult graph_add(CUgraph graph, const struct gpu_command *command, const struct gpu_op *ops)
{
	struct node *node = calloc(1, sizeof(*node));

	if (!node)
		return CUDA_ERROR_OUT_OF_MEMORY;
	node->command = *command;
	node->command.replay = true;
	if (command->n_ops)
		node->ops = calloc(command->n_ops, sizeof(*ops));
	if (command->n_ops && !node->ops) {
		free(node);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (uint32_t i = 0; i < command->n_ops; i++)
		node->ops[i] = ops[i];
	return add(graph, node);
}

CUresult graph_add_function(CUgraph graph, cuda_sim_function *function,
			    void (*release)(void *argument), void *argument)
{
	struct node *node = calloc(1, sizeof(*node));

	if (node) {
		node->function = function;
		node->release = release;
		node->argument = argument;
	}
	return add(graph, node);
}

static void *callback_main(void *unused)
{
	(void)unused;
	pthread_setname_np(pthread_self(), "cuda-callbacks");
	for (;;) {
		struct callback *callback;

		pthread_mutex_lock(&callbacks.lock);
		while (!callbacks.first)
			pthread_cond_wait(&callbacks.more, &callbacks.lock);
		callback = callbacks.first;
		callbacks.first = callback->next;
		if (!callbacks.first)
			callbacks.last = &callbacks.first;
		pthread_mutex_unlock(&callbacks.lock);
		callback->node->function(callback->node->argument, callback->launch);
		graph_unref(callback->graph);
		free(callback);
		pthread_mutex_lock(&callbacks.lock);
		if (--callbacks.n_pending == 0)
			pthread_cond_broadcast(&callbacks.none);
		pthread_mutex_unlock(&callbacks.lock);
	}
	return NULL;
}

void graph_wait_functions(void)
{
	pthread_mutex_lock(&callbacks.lock);
	while (callbacks.n_pending)
		pthread_cond_wait(&callbacks.none, &callbacks.lock);
	pthread_mutex_unlock(&callbacks.lock);
}

static void callback_add(CUgraph graph, const struct node *node, uint64_t launch)
{
	struct callback *callback = calloc(1, sizeof(*callback));
	pthread_t id;

	if (!callback)
		return;
	*callback = (struct callback){ .graph = graph, .node = node, .launch = launch };
	graph_ref(graph);
	pthread_mutex_lock(&callbacks.lock);
	if (!callbacks.running && !pthread_create(&id, NULL, callback_main, NULL)) {
		pthread_detach(id);
		callbacks.running = true;
		callbacks.last = &callbacks.first;
	}
	callbacks.n_pending++;
	*callbacks.last = callback;
	callbacks.last = &callback->next;
	pthread_cond_signal(&callbacks.more);
	pthread_mutex_unlock(&callbacks.lock);
}

/* With the stream's lock. A function is told of the kernel behind it. */
static CUresult launch_nodes(CUgraph graph, struct CUstream_st *stream)
{
	const struct node *function = NULL;
	CUresult error = CUDA_SUCCESS;

	for (const struct node *node = graph->first; node && !error; node = node->next) {
		uint64_t launch = 0;

		if (node->function) {
			function = node;
			continue;
		}
		error = cuda_submit(stream, &node->command, node->ops, &launch);
		if (!error && function)
			callback_add(graph, function, launch);
		function = NULL;
	}
	return error;
}

CUDA_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
						 unsigned long long flags)
{
	CUgraphExec made = calloc(1, sizeof(*made));

	(void)flags;
	if (!graph || !made) {
		free(made);
		return graph ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	}
	graph_ref(graph);
	made->graph = graph;
	*exec = made;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
	struct CUstream_st *stream = cuda_stream(handle);
	CUresult error;

	if (!exec || !stream)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&stream->lock);
	error = stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED :
				  launch_nodes(exec->graph, stream);
	pthread_mutex_unlock(&stream->lock);
	return error;
}

CUDA_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	graph_unref(exec->graph);
	free(exec);
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	graph_unref(graph);
	return CUDA_SUCCESS;
}
