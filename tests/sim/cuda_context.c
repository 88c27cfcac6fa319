/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Devices and contexts: a process has the one GPU of its rank, and that GPU one context. */
#include "cuda_private.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DRIVER_VERSION 13000
#define UUID_PREFIX "\0\0\0\0\x11\x11\x22\x22\x33\x33"
#define FIRST_GPU "NCCL_SIM_FIRST_GPU" /* environment: the number of this node's first one in UUIDs */

static struct cuda_device device;
static __thread CUcontext current;
static __thread int capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

struct cuda_device *cuda_device(void)
{
	return &device;
}

bool cuda_has_context(void)
{
	return current != NULL;
}

uint64_t cuda_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

CUresult cuda_unsafe_call(void)
{
	if (!__atomic_load_n(&device.n_global_captures, __ATOMIC_ACQUIRE) ||
	    capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (int i = 0; i < GPU_MAX_STREAMS; i++)
		if (device.stream[i].capture &&
		    device.stream[i].mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
			cuda_break_capture(&device.stream[i]);
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUDA_EXPORT void cuda_sim_attach(struct gpu_shared *shared, int world_rank, int gpus_per_node)
{
	device.shared = shared;
	device.rank = &shared->rank[world_rank];
	device.world_rank = world_rank;
	device.gpus_per_node = gpus_per_node;
	device.context.device = world_rank % gpus_per_node;
	for (int i = 0; i < GPU_MAX_STREAMS; i++) {
		pthread_mutex_init(&device.stream[i].lock, NULL);
		device.stream[i].queue = &device.rank->stream[i];
	}
	device.stream[0].used = true;
	__atomic_store_n(&device.rank->n_streams, GPU_MAX_STREAMS, __ATOMIC_RELEASE);
}

CUDA_EXPORT uint64_t cuda_sim_clock(uint64_t host_ns)
{
	return gpu_clock(device.world_rank, host_ns);
}

CUDA_EXPORT CUresult cuInit(unsigned int flags)
{
	(void)flags;
	return device.shared ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUDA_EXPORT CUresult cuDriverGetVersion(int *version)
{
	*version = DRIVER_VERSION;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuDeviceGetCount(int *count)
{
	*count = device.gpus_per_node;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuDeviceGet(CUdevice *ret_device, int ordinal)
{
	if (ordinal < 0 || ordinal >= device.gpus_per_node)
		return CUDA_ERROR_INVALID_DEVICE;
	*ret_device = ordinal;
	return CUDA_SUCCESS;
}

/* GPU-00000000-1111-2222-3333-<ordinal in 12 digits>, as the tests' tree of GPUs has it. */
CUDA_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal)
{
	const char *first = getenv(FIRST_GPU);
	unsigned long number = (unsigned long)ordinal + (first ? strtoul(first, NULL, 10) : 0);

	memset(uuid, 0, sizeof(*uuid));
	memcpy(uuid->bytes, UUID_PREFIX, sizeof(UUID_PREFIX) - 1);
	uuid->bytes[14] = (char)(number >> 8);
	uuid->bytes[15] = (char)number;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice ordinal)
{
	return cuDeviceGetUuid_v2(uuid, ordinal);
}

CUDA_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
	if (!device.shared || ordinal != device.context.device)
		return CUDA_ERROR_INVALID_DEVICE;
	*context = &device.context;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
	*context = current;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
	if (context && context != &device.context)
		return CUDA_ERROR_INVALID_CONTEXT;
	current = context;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuCtxGetDevice(CUdevice *ret_device)
{
	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	*ret_device = current->device;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
	int old = capture_mode;

	if (*mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	capture_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
