/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the files of the stand-in CUDA driver share. */
#ifndef CUDA_PRIVATE_H
#define CUDA_PRIVATE_H

#include <pthread.h>

#include "cuda_sim.h"

#define CUDA_EXPORT __attribute__((visibility("default")))

struct CUctx_st {
	CUdevice device;
};

struct CUstream_st {
	bool used;
	pthread_mutex_t lock; /* around submissions and the capture */
	struct gpu_stream *queue;
	CUgraph capture; /* NULL: none under way */
	int status, mode; /* of the capture */
};

struct CUevent_st {
	bool used;
	uint32_t index;
	uint64_t recorded; /* so many times */
};

/* This process's GPU. */
struct cuda_device {
	struct gpu_shared *shared;
	struct gpu_rank *rank;
	int world_rank, gpus_per_node;
	struct CUctx_st context;
	uint32_t n_captures, n_global_captures;
	struct CUstream_st stream[GPU_MAX_STREAMS];
};

/* cuda_context.c */
struct cuda_device *cuda_device(void);
bool cuda_has_context(void);
uint64_t cuda_now_ns(void);
/* What CUDA forbids while a capture in global mode is under way: it is broken, and counted. */
CUresult cuda_unsafe_call(void);

/* cuda_stream.c. NULL: not a stream. */
struct CUstream_st *cuda_stream(CUstream stream);
/* False: the job is being stopped. */
bool cuda_wait_progress(uint32_t seen);
CUresult cuda_submit(struct CUstream_st *stream, const struct gpu_command *command,
		     const struct gpu_op *ops, uint64_t *ret_launch);
void cuda_break_capture(struct CUstream_st *stream);

/* cuda_graph.c */
CUgraph graph_new(void);
void graph_unref(CUgraph graph);
CUresult graph_add(CUgraph graph, const struct gpu_command *command, const struct gpu_op *ops);
CUresult graph_add_function(CUgraph graph, cuda_sim_function *function,
			    void (*release)(void *argument), void *argument);
void graph_wait_functions(void); /* until all that are due have been called */

#endif
