/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The functions of NCCL that a script can call, looked up in the library that was asked for. */
#ifndef SIM_API_H
#define SIM_API_H

#include <stddef.h>

#include "cuda_sim.h"
#include "nccl_sim.h"

#define API_FUNCTIONS(X) \
	X(nccl_sim_attach) X(nccl_sim_view) X(nccl_sim_set_error) X(ncclGetErrorString) X(ncclGetLastError) \
	X(ncclGetUniqueId) X(ncclCommInitRank) X(ncclCommInitRankConfig) \
	X(ncclCommInitRankScalable) X(ncclCommSplit) X(ncclCommFinalize) X(ncclCommDestroy) \
	X(ncclCommAbort) X(ncclGroupStart) X(ncclGroupEnd) X(ncclAllReduce) X(ncclAllGather) \
	X(ncclReduceScatter) X(ncclBroadcast) X(ncclBcast) X(ncclReduce) X(ncclAlltoAll) \
	X(ncclGather) X(ncclScatter) X(ncclSend) X(ncclRecv)

/* A member is NULL where this version of NCCL lacks the function. */
struct api {
#define API_MEMBER(function) __typeof__(function) *function;
	API_FUNCTIONS(API_MEMBER)
#undef API_MEMBER
};

/* What programs call of the CUDA driver here. */
#define CUDA_FUNCTIONS(X) \
	X(cuda_sim_attach) X(cuda_sim_compute) X(cuInit) X(cuDevicePrimaryCtxRetain) \
	X(cuCtxSetCurrent) X(cuStreamCreate) X(cuStreamSynchronize) X(cuStreamBeginCapture_v2) \
	X(cuStreamEndCapture) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) \
	X(cuGraphExecDestroy) X(cuGraphDestroy)

struct cuda_api {
#define CUDA_MEMBER(function) __typeof__(function) *function;
	CUDA_FUNCTIONS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

/* As api_load(), for the stand-in libcuda.so.1. */
const char *cuda_api_load(struct cuda_api *ret_api, const char *path);

/* Loads the library for the rest of the process's life. path is ignored when the library is
 * linked in. Returns NULL, or what went wrong. */
const char *api_load(struct api *ret_api, const char *path);

/* Path of the library: a path is taken as it is, a version is looked for beside this program.
 * -errno when it does not fit or this program cannot be found. */
int api_find(const char *path_or_version, char *ret_path, size_t size);
/* Of the stand-in libcuda.so.1, beside this program. */
int cuda_api_find(char *ret_path, size_t size);

#endif
