/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* All that nccl.h wants of CUDA's own header, for machines without it. */
#ifndef STUB_CUDA_RUNTIME_H
#define STUB_CUDA_RUNTIME_H

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#endif
