/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The part of the CUDA driver's interface that the stand-in libcuda.so.1 has, declared anew, and
 * what only the stand-in has: the ways in for the driver of the simulation and for libnccl.
 */
#ifndef CUDA_SIM_H
#define CUDA_SIM_H

#include "gpu.h"

typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef int CUdevice;
typedef struct {
	char bytes[16];
} CUuuid;

typedef enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
	CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
} CUresult;

enum { CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
       CU_STREAM_CAPTURE_MODE_RELAXED };
enum { CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_CAPTURE_STATUS_ACTIVE,
       CU_STREAM_CAPTURE_STATUS_INVALIDATED };

CUresult cuInit(unsigned int flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetDevice(CUdevice *device);

CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamIsCapturing(CUstream stream, int *status);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuThreadExchangeStreamCaptureMode(int *mode);

CUresult cuEventCreate(CUevent *event, unsigned int flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end);
CUresult cuEventDestroy_v2(CUevent event);

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphDestroy(CUgraph graph);

/* This process is rank world_rank; shared outlives it. */
void cuda_sim_attach(struct gpu_shared *shared, int world_rank, int gpus_per_node);

/* ret_launch: the rank's running number; 0 when it went into a graph. */
CUresult cuda_sim_launch(CUstream stream, const struct gpu_kernel *kernel, uint64_t *ret_launch);
CUresult cuda_sim_compute(CUstream stream, uint64_t duration_ns);

/*
 * A function for CUDA's callback thread each time the graph under capture is launched; launch is
 * the number of the kernel that was captured next. release(argument) when the graph is no more.
 */
typedef void cuda_sim_function(void *argument, uint64_t launch);
CUresult cuda_sim_host_function(CUstream stream, cuda_sim_function *function,
				void (*release)(void *argument), void *argument);

/* When a launch of this rank began and ended, as far as it is known. */
struct gpu_result cuda_sim_result(uint64_t launch);

/* The GPU's own clock at a time of the host's. */
uint64_t cuda_sim_clock(uint64_t host_ns);

#endif
