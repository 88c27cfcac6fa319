/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How the stand-in libnccl uses the stand-in CUDA driver: if the program has brought it along. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "cuda_sim.h"
#include "plan.h"
#include "gpu_use.h"

#define FEW_OPS 8

static struct cuda {
	__typeof__(cuStreamIsCapturing) *is_capturing;
	__typeof__(cuda_sim_launch) *launch;
	__typeof__(cuda_sim_host_function) *host_function;
	__typeof__(cuda_sim_result) *result;
	__typeof__(cuda_sim_clock) *clock;
} cuda;

static void bind(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (!library)
		return;
	cuda.is_capturing = dlsym(library, "cuStreamIsCapturing");
	cuda.host_function = dlsym(library, "cuda_sim_host_function");
	cuda.result = dlsym(library, "cuda_sim_result");
	cuda.clock = dlsym(library, "cuda_sim_clock");
	cuda.launch = dlsym(library, "cuda_sim_launch"); /* NULL: a driver of other make */
}

static bool present(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, bind);
	return cuda.launch != NULL;
}

bool sim_gpu_captures(cudaStream_t stream)
{
	int status = CU_STREAM_CAPTURE_STATUS_NONE;

	return present() && !cuda.is_capturing(stream, &status) &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static struct gpu_op op_of(const struct plan *plan, const struct sim_task *task)
{
	bool counted = task->func < SIM_SEQ_COUNT && !plan->captured;

	return (struct gpu_op){
		.count = task->count, .bytes = task->bytes,
		.sequence = counted ? task->sequence : GPU_NO_SEQUENCE,
		.root = task->root, .func = (uint8_t)task->func,
		.datatype = (uint8_t)task->datatype, .algorithm = task->algorithm,
		.protocol = task->protocol, .n_channels = task->n_channels,
	};
}

ncclResult_t sim_gpu_launch(const struct plan *plan, uint64_t *ret_launch)
{
	struct gpu_op few[FEW_OPS], *ops = plan->n > FEW_OPS ? calloc(plan->n, sizeof(*ops)) : few;
	const struct ncclComm *nccl = &plan->comm->nccl;
	struct gpu_kernel kernel = { .comm_hash = nccl->commHash, .rank = nccl->rank,
				     .n_ranks = nccl->nRanks, .n_nodes = nccl->nNodes,
				     .n_ops = (uint32_t)plan->n, .ops = ops };
	CUresult error = CUDA_SUCCESS;

	*ret_launch = 0;
	if (present() && ops) {
		for (size_t i = 0; i < plan->n; i++)
			ops[i] = op_of(plan, plan->task[i]);
		error = cuda.launch(plan->stream, &kernel, ret_launch);
	}
	if (ops != few)
		free(ops);
	if (error == CUDA_ERROR_DEINITIALIZED)
		return sim_fail(ncclRemoteError, "the job is being stopped");
	return error ? sim_fail(ncclUnhandledCudaError, "the CUDA driver refused a launch") :
		       ncclSuccess;
}

/* A plan that outlives its group: it belongs to the graph. */
struct kept {
	struct plan plan;
	struct sim_task *pointer[SIM_KEPT_TASKS];
	struct sim_task task[];
};

static void replayed(void *argument, uint64_t launch)
{
	struct kept *kept = argument;

	plan_tell(&kept->plan, launch);
}

ncclResult_t sim_gpu_defer(const struct plan *plan)
{
	struct kept *kept;

	if (plan->n > SIM_KEPT_TASKS)
		return sim_fail(ncclInvalidUsage, "too many operations in one captured group");
	kept = calloc(1, sizeof(*kept) + plan->n * sizeof(kept->task[0]));
	if (!kept)
		return sim_fail(ncclSystemError, "out of memory");
	kept->plan = *plan;
	kept->plan.task = kept->pointer;
	for (size_t i = 0; i < plan->n; i++) {
		kept->task[i] = *plan->task[i];
		kept->pointer[i] = &kept->task[i];
	}
	if (!cuda.host_function(plan->stream, replayed, free, kept))
		return ncclSuccess;
	free(kept);
	return sim_fail(ncclUnhandledCudaError, "the CUDA driver refused a host function");
}

bool sim_gpu_result(uint64_t launch, uint64_t ret_ns[2])
{
	struct gpu_result result;

	if (!present())
		return false;
	result = cuda.result(launch);
	ret_ns[0] = result.start_ns;
	ret_ns[1] = result.end_ns;
	return true;
}

uint64_t sim_gpu_clock(uint64_t host_ns)
{
	return cuda.clock(host_ns);
}

void sim_gpu_share(const struct plan *plan, size_t task, uint64_t end_ns, uint64_t ret_ns[2])
{
	struct gpu_op *ops = calloc(plan->n, sizeof(*ops));

	ret_ns[0] = 0;
	ret_ns[1] = end_ns;
	for (size_t i = 0; ops && i < plan->n; i++)
		ops[i] = op_of(plan, plan->task[i]);
	if (ops)
		gpu_op_share(ops, (uint32_t)plan->n, (uint32_t)task, 0, end_ns, ret_ns);
	free(ops);
}
