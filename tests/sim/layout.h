/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * struct ncclComm of one NCCL release (SIM_VERSION = 10000 * X + 100 * Y + Z), by the offsets
 * that release has in memory. Everything that is not named here stays zero.
 */
#ifndef SIM_LAYOUT_H
#define SIM_LAYOUT_H

#include <stdint.h>

#include "nccl_sim.h"

#if SIM_VERSION == 21903
#define SIM_VERSION_TEXT "2.19.3"
enum {
	AT_SIZEOF = 11600, AT_MAGIC = 9416, AT_RANK = 9432, AT_NODE = 9604, AT_OP_COUNT = 9664,
	AT_ASYNC_RESULT = 10836, AT_ABORT_FLAG = 10840, AT_CONFIG = 11488, AT_INIT_STATE = 11536,
};
#elif SIM_VERSION == 22304
#define SIM_VERSION_TEXT "2.23.4"
enum {
	AT_SIZEOF = 253152, AT_MAGIC = 246928, AT_RANK = 246952, AT_NODE = 247132,
	AT_OP_COUNT = 247216, AT_ASYNC_RESULT = 248552, AT_ABORT_FLAG = 248560,
	AT_CONFIG = 252464, AT_INIT_STATE = 252512,
};
#elif SIM_VERSION == 22501
#define SIM_VERSION_TEXT "2.25.1"
enum {
	AT_SIZEOF = 501072, AT_MAGIC = 492688, AT_RANK = 492712, AT_NODE = 492892,
	AT_OP_COUNT = 492976, AT_ASYNC_RESULT = 494388, AT_ABORT_FLAG = 494392,
	AT_CONFIG = 500880, AT_INIT_STATE = 500928,
};
#elif SIM_VERSION == 22605
#define SIM_VERSION_TEXT "2.26.5"
enum {
	AT_SIZEOF = 506752, AT_MAGIC = 492704, AT_RANK = 492728, AT_NODE = 492908,
	AT_OP_COUNT = 492992, AT_ASYNC_RESULT = 494404, AT_ABORT_FLAG = 494408,
	AT_CONFIG = 500904, AT_INIT_STATE = 500952, AT_SEQ_NUMBER = 501008,
};
#elif SIM_VERSION == 22707
#define SIM_VERSION_TEXT "2.27.7"
enum {
	AT_SIZEOF = 1080320, AT_MAGIC = 1066152, AT_RANK = 1066168, AT_NODE = 1066348,
	AT_OP_COUNT = 1066432, AT_ASYNC_RESULT = 1067844, AT_ABORT_FLAG = 1067848,
	AT_CONFIG = 1074384, AT_INIT_STATE = 1074456, AT_SEQ_NUMBER = 1074512,
};
#elif SIM_VERSION == 22809
#define SIM_VERSION_TEXT "2.28.9"
enum {
	AT_SIZEOF = 1082968, AT_MAGIC = 1066176, AT_RANK = 1066192, AT_NODE = 1066372,
	AT_OP_COUNT = 1066480, AT_ASYNC_RESULT = 1069044, AT_ABORT_FLAG = 1069048,
	AT_CONFIG = 1075592, AT_INIT_STATE = 1075672, AT_SEQ_NUMBER = 1075728,
};
#elif SIM_VERSION == 23007
#define SIM_VERSION_TEXT "2.30.7"
#ifdef __aarch64__
#define SIM_MUTEX_EXTRA 8 /* a pthread_mutex_t near the end is larger there */
#else
#define SIM_MUTEX_EXTRA 0
#endif
enum {
	AT_SIZEOF = 1199744 + SIM_MUTEX_EXTRA, AT_MAGIC = 1181408, AT_RANK = 1181424,
	AT_NODE = 1181604, AT_OP_COUNT = 1181712, AT_ASYNC_RESULT = 1184292,
	AT_ABORT_FLAG = 1184296, AT_CONFIG = 1191424, AT_INIT_STATE = 1191520,
	AT_SEQ_NUMBER = 1191576,
};
#elif SIM_VERSION == 29901
/* No such release: the shape around rank is that of 2.28 to 2.30, in a place nobody knows. */
#define SIM_VERSION_TEXT "2.99.1"
enum {
	AT_SIZEOF = 1312664, AT_MAGIC = 1290688, AT_RANK = 1290704, AT_NODE = 1290884,
	AT_OP_COUNT = 1290992, AT_ASYNC_RESULT = 1293660, AT_ABORT_FLAG = 1293664,
	AT_CONFIG = 1301000, AT_INIT_STATE = 1301096, AT_SEQ_NUMBER = 1301152,
};
#else
#error "SIM_VERSION is none of those that are simulated"
#endif

#define SIM_HAS_COMM_MAGIC (SIM_VERSION >= 22105)
#define SIM_HAS_COMM_LIST (SIM_VERSION >= 22403)
#define SIM_HAS_SEQ_NUMBER (SIM_VERSION >= 22602)
#define SIM_HAS_COMM_NAME (SIM_VERSION >= 22703)
#define SIM_HAS_PROFILER (SIM_VERSION >= 22304)
#define SIM_HAS_API_EVENTS (SIM_VERSION >= 22803)
#define SIM_NUM_TYPES (SIM_VERSION >= 22403 ? ncclNumTypes : 10)
#define NCCL_MAGIC UINT64_C(0x0280028002800280)

#define SIM_PASTE2(a, b) a##b
#define SIM_PASTE(a, b) SIM_PASTE2(a, b)
#define FIELD(offset, declaration) \
	struct { char SIM_PASTE(before_, __LINE__)[offset]; declaration; }

struct ncclComm {
	union {
		char whole[AT_SIZEOF];
#if SIM_HAS_COMM_MAGIC
		uint64_t startMagic;
		FIELD(AT_SIZEOF - 8, uint64_t endMagic);
#endif
		FIELD(AT_MAGIC, uint64_t magic);
		FIELD(AT_RANK - 8, uint64_t commHash);
		FIELD(AT_RANK, int rank);
		FIELD(AT_RANK + 4, int nRanks);
		FIELD(AT_RANK + 8, int cudaDev);
		FIELD(AT_RANK + 12, int nvmlDev);
		FIELD(AT_RANK + 16, int compCap);
		FIELD(AT_RANK + 32, int64_t busId);
		FIELD(AT_NODE, int node);
		FIELD(AT_NODE + 4, int nNodes);
		FIELD(AT_NODE + 8, int localRank);
		FIELD(AT_NODE + 12, int localRanks);
		FIELD(AT_NODE + 16, int maxLocalRanks);
		FIELD(AT_OP_COUNT, uint64_t opCount);
		FIELD(AT_ASYNC_RESULT, ncclResult_t asyncResult);
		FIELD(AT_ABORT_FLAG, uint32_t *abortFlag);
		FIELD(AT_CONFIG + 16, int configBlocking);
		FIELD(AT_INIT_STATE, ncclResult_t initState);
		FIELD(AT_INIT_STATE + 4, char finalizeCalled);
#if SIM_HAS_COMM_LIST
		FIELD(AT_OP_COUNT + 8, uint64_t collOpCount);
#endif
#if SIM_HAS_COMM_NAME
		FIELD(AT_CONFIG + 48, const char *configCommName);
#endif
#if SIM_HAS_SEQ_NUMBER
		FIELD(AT_SEQ_NUMBER, uint64_t seqNumber[SIM_SEQ_COUNT]);
#endif
	};
};

_Static_assert(sizeof(struct ncclComm) == AT_SIZEOF, "size of struct ncclComm");
_Static_assert(offsetof(struct ncclComm, rank) == AT_RANK, "offset of rank");
_Static_assert(offsetof(struct ncclComm, busId) == AT_RANK + 32, "offset of busId");
_Static_assert(offsetof(struct ncclComm, abortFlag) == AT_ABORT_FLAG, "offset of abortFlag");
_Static_assert(offsetof(struct ncclComm, localRanks) == AT_NODE + 12, "offset of localRanks");
#if SIM_HAS_SEQ_NUMBER
_Static_assert(offsetof(struct ncclComm, seqNumber) == AT_SEQ_NUMBER, "offset of seqNumber");
_Static_assert(offsetof(struct ncclComm, endMagic) == AT_SIZEOF - 8, "offset of endMagic");
#endif

#endif
