/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The C type behind each parameter name of nccl_api.def, and one static assertion a row: NVIDIA's
 * nccl.h, included before, declares the function just so. Rows newer than that header are left out.
 */
#ifndef API_PROTOTYPES_H
#define API_PROTOTYPES_H

#define TYPE_SENDBUF	     const void *
#define TYPE_RECVBUF	     void *
#define TYPE_COUNT	     size_t
#define TYPE_DATATYPE	     ncclDataType_t
#define TYPE_REDOP	     ncclRedOp_t
#define TYPE_ROOT	     int
#define TYPE_PEER	     int
#define TYPE_COMM	     ncclComm_t
#define TYPE_STREAM	     cudaStream_t
#define TYPE_NEWCOMM	     ncclComm_t *
#define TYPE_NRANKS	     int
#define TYPE_RANK	     int
#define TYPE_UNIQUEID	     ncclUniqueId
#define TYPE_UNIQUEIDS	     ncclUniqueId *
#define TYPE_CONST_UNIQUEIDS const ncclUniqueId *
#define TYPE_CONFIG	     ncclConfig_t *
#define TYPE_COLLCONFIG	     const ncclCollConfig_t *
#define TYPE_WINDOW	     ncclWindow_t
#define TYPE_WAITDESCS	     ncclWaitSignalDesc_t *
#define TYPE_SIZE	     size_t
#define TYPE_INT	     int
#define TYPE_UINT	     unsigned int
#define TYPE_INTS	     int *
#define TYPE_CONST_INTS	     const int *

#define TYPES_1(a)	 TYPE_##a
#define TYPES_2(a, ...)	 TYPE_##a, TYPES_1(__VA_ARGS__)
#define TYPES_3(a, ...)	 TYPE_##a, TYPES_2(__VA_ARGS__)
#define TYPES_4(a, ...)	 TYPE_##a, TYPES_3(__VA_ARGS__)
#define TYPES_5(a, ...)	 TYPE_##a, TYPES_4(__VA_ARGS__)
#define TYPES_6(a, ...)	 TYPE_##a, TYPES_5(__VA_ARGS__)
#define TYPES_7(a, ...)	 TYPE_##a, TYPES_6(__VA_ARGS__)
#define TYPES_8(a, ...)	 TYPE_##a, TYPES_7(__VA_ARGS__)
#define TYPES_9(a, ...)	 TYPE_##a, TYPES_8(__VA_ARGS__)
#define TYPES_10(a, ...) TYPE_##a, TYPES_9(__VA_ARGS__)
#define TYPES_11(a, ...) TYPE_##a, TYPES_10(__VA_ARGS__)
#define TYPES_12(a, ...) TYPE_##a, TYPES_11(__VA_ARGS__)

#define TYPES_N(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, n, ...) TYPES_##n
#define TYPES(...)							   TYPES_N(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)(__VA_ARGS__)

#define CHECK_PROTOTYPE(symbol, ...)                                                               \
	_Static_assert(__builtin_types_compatible_p(__typeof__(symbol),                            \
						    ncclResult_t(TYPES(__VA_ARGS__))),             \
		       "nccl_api.def has other parameters for " #symbol " than nccl.h");

/* A row's own release decides, and the preprocessor cannot compare inside a macro: one a release.
 */
#define SINCE_20906(...) __VA_ARGS__
#define SINCE_21403(...) __VA_ARGS__
#define SINCE_21801(...) __VA_ARGS__
#if NCCL_VERSION_CODE >= 22304
#define SINCE_22304(...) __VA_ARGS__
#else
#define SINCE_22304(...)
#endif
#if NCCL_VERSION_CODE >= 22703
#define SINCE_22703(...) __VA_ARGS__
#else
#define SINCE_22703(...)
#endif
#if NCCL_VERSION_CODE >= 22803
#define SINCE_22803(...) __VA_ARGS__
#else
#define SINCE_22803(...)
#endif
#if NCCL_VERSION_CODE >= 22902
#define SINCE_22902(...) __VA_ARGS__
#else
#define SINCE_22902(...)
#endif
#if NCCL_VERSION_CODE >= 23102
#define SINCE_23102(...) __VA_ARGS__
#else
#define SINCE_23102(...)
#endif

#define NCCL_OPERATION(id, symbol, since, operation, sequence, factor, ...)                        \
	SINCE_##since(CHECK_PROTOTYPE(symbol, __VA_ARGS__))
#define NCCL_LIFECYCLE(id, symbol, since, meaning, ...)                                            \
	SINCE_##since(CHECK_PROTOTYPE(symbol, __VA_ARGS__))
#include "../../src/nccl_api.def"

#endif
