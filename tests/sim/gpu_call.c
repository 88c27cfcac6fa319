/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Instructions for a rank's GPU, by the calls that real programs make to the CUDA driver. */
#include "rank.h"

#define NO_GPU_STREAM ((cudaStream_t)0x5500c0de0000) /* nothing ever follows it */

static enum flow checked(const struct rank *rank, const struct instruction *i, CUresult error)
{
	if (!error)
		return FLOW_ON;
	if (error == CUDA_ERROR_DEINITIALIZED || rank_stopped(rank))
		return FLOW_EXIT;
	return rank_fail(rank, i, "the CUDA driver says %d", (int)error);
}

const char *gpu_open(struct rank *rank)
{
	const struct job_options *options = rank->job->options;
	const char *error = cuda_api_load(&rank->cuda, options->cuda);
	int device = rank->number % options->gpus_per_node;

	if (error)
		return error;
	rank->cuda.cuda_sim_attach(rank->job->gpus, rank->number, options->gpus_per_node);
	if (rank->cuda.cuInit(0) || rank->cuda.cuDevicePrimaryCtxRetain(&rank->context, device) ||
	    rank->cuda.cuCtxSetCurrent(rank->context))
		return "the CUDA driver has no context for this rank";
	for (int i = 0; i < SCRIPT_MAX_STREAMS; i++)
		if (rank->cuda.cuStreamCreate(&rank->stream[i], 0))
			return "the CUDA driver has too few streams";
	return NULL;
}

cudaStream_t gpu_stream_of(const struct rank *rank, int stream)
{
	return rank->context ? rank->stream[stream] : NO_GPU_STREAM;
}

static bool lacks_gpu(const struct rank *rank, const struct instruction *i, enum flow *ret_flow)
{
	if (rank->context)
		return false;
	*ret_flow = rank_fail(rank, i, "the job has no GPUs (--gpu)");
	return true;
}

/* What the script left on the GPU is done before the process ends, as programs take care. */
enum flow gpu_synchronize_all(const struct rank *rank)
{
	enum flow flow = FLOW_ON;

	for (int i = 0; rank->context && i < SCRIPT_MAX_STREAMS && flow == FLOW_ON; i++)
		flow = checked(rank, NULL, rank->cuda.cuStreamSynchronize(rank->stream[i]));
	return flow;
}

enum flow call_synchronize(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;
	enum flow flow;

	if (lacks_gpu(rank, i, &flow))
		return flow;
	return checked(rank, i, rank->cuda.cuStreamSynchronize(rank->stream[i->stream]));
}

enum flow call_compute(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;
	enum flow flow;
	uint64_t ns;

	if (lacks_gpu(rank, i, &flow))
		return flow;
	ns = i->ns == COMPUTE_FOREVER ? GPU_FOREVER :
					  (uint64_t)line_span_ns(line, i);
	return checked(rank, i, rank->cuda.cuda_sim_compute(rank->stream[i->stream], ns));
}

static void set_word(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

enum flow call_gpu(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;
	struct gpu_rank *gpu;
	enum flow flow;

	if (lacks_gpu(rank, i, &flow))
		return flow;
	gpu = &rank->job->gpus->rank[rank->number];
	if (i->fault == FAULT_HANG || i->fault == FAULT_NONE)
		set_word(&gpu->hang, i->fault == FAULT_HANG);
	if (i->fault == FAULT_SLOW || i->fault == FAULT_NONE)
		set_word(&gpu->slow_permille, i->permille);
	if (i->fault == FAULT_LINK || i->fault == FAULT_NONE)
		set_word(&gpu->link_permille, i->permille);
	if (i->fault == FAULT_NONE)
		__atomic_store_n(&gpu->well_ns, (uint64_t)rank_now_ns(), __ATOMIC_RELAXED);
	gpu_ring(rank->job->gpus);
	return FLOW_ON;
}

/* In global mode, PyTorch's default: a careless call anywhere in the process would break it. */
enum flow call_capture_begin(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;
	enum flow flow;

	if (lacks_gpu(rank, i, &flow))
		return flow;
	if (rank->graph[i->graph])
		return rank_fail(rank, i, "%s exists already", rank->job->script->graph_name[i->graph]);
	line->capture = i->graph + 1;
	rank->captured[i->graph].n = 0;
	return checked(rank, i, rank->cuda.cuStreamBeginCapture_v2(rank->stream[0],
								   CU_STREAM_CAPTURE_MODE_GLOBAL));
}

void call_captured(struct line_state *line, struct ledger_record *record,
		   const struct instruction *operation)
{
	struct captured_list *list = &line->rank->captured[line->capture - 1];

	ledger_add_mode(record, operation, LEDGER_CAPTURED, 1);
	if (list->n == RANK_MAX_CAPTURED)
		return;
	list->record[list->n] = record;
	list->operation[list->n++] = operation;
}

static void count_replay(const struct captured_list *list)
{
	for (int i = 0; i < list->n; i++)
		ledger_add_mode(list->record[i], list->operation[i], LEDGER_REPLAYED, 1);
}

enum flow call_capture_end(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;
	CUgraph graph = NULL;
	CUresult error;

	line->capture = 0;
	error = rank->cuda.cuStreamEndCapture(rank->stream[0], &graph);
	if (!error)
		error = rank->cuda.cuGraphInstantiateWithFlags(&rank->graph[i->graph], graph, 0);
	if (graph)
		rank->cuda.cuGraphDestroy(graph);
	return checked(rank, i, error);
}

enum flow call_replay(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;
	enum flow flow = FLOW_ON;

	if (lacks_gpu(rank, i, &flow))
		return flow;
	if (!rank->graph[i->graph])
		return rank_fail(rank, i, "%s was not captured here",
				 rank->job->script->graph_name[i->graph]);
	for (uint64_t n = 0; n < i->times && flow == FLOW_ON && !rank_stopped(rank); n++) {
		count_replay(&rank->captured[i->graph]);
		flow = checked(rank, i, rank->cuda.cuGraphLaunch(rank->graph[i->graph],
								 rank->stream[i->stream]));
	}
	return flow;
}

enum flow call_drop(struct line_state *line, const struct instruction *i)
{
	struct rank *rank = line->rank;
	CUgraphExec graph = rank->graph[i->graph];

	rank->graph[i->graph] = NULL;
	return graph ? checked(rank, i, rank->cuda.cuGraphExecDestroy(graph)) : FLOW_ON;
}
