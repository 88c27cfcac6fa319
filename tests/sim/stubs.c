/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The rest of NCCL's interface: it can be found, probed and called, and does next to nothing. */
#include "lib.h"

#include <stdlib.h>

/* The immediate stored here is what tells a reader of machine code which NCCL this is. */
NCCL_API(ncclResult_t, ncclGetVersion, int *version)
{
	if (!version)
		return ncclInvalidArgument;
	*version = SIM_VERSION;
	return ncclSuccess;
}

NCCL_API(const char *, ncclGetErrorString, ncclResult_t code)
{
	static const char *const text[] = {
		"no error", "unhandled cuda error", "unhandled system error", "internal error",
		"invalid argument", "invalid usage", "remote process exited or network error",
		"NCCL operation in progress",
	};

	return (unsigned int)code < ncclNumResults ? text[code] : "unknown result code";
}

extern char ncclLastError[1024];

NCCL_API(const char *, ncclGetLastError, const ncclComm_t comm)
{
	(void)comm;
	return ncclLastError;
}

NCCL_API(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void *buff, size_t size,
	 void **handle)
{
	ncclResult_t result = sim_comm_check(comm);

	(void)size;
	if (result == ncclSuccess && handle)
		*handle = buff;
	return result;
}

NCCL_API(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void *handle)
{
	(void)handle;
	return sim_comm_check(comm);
}

NCCL_API(ncclResult_t, ncclMemAlloc, void **ptr, size_t size)
{
	if (!ptr)
		return sim_fail(ncclInvalidArgument, "ptr is NULL");
	*ptr = malloc(size);
	return *ptr || !size ? ncclSuccess : ncclSystemError;
}

NCCL_API(ncclResult_t, ncclMemFree, void *ptr)
{
	free(ptr);
	return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t *op, void *scalar,
	 ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm)
{
	ncclResult_t result = sim_comm_ready(comm);

	(void)scalar, (void)datatype, (void)residence;
	if (result == ncclSuccess && op)
		*op = (ncclRedOp_t)(ncclNumOps + ((struct sim_comm *)comm)->n_user_ops++);
	return result;
}

NCCL_API(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm)
{
	(void)op;
	return sim_comm_check(comm);
}

#if SIM_VERSION >= 22403
NCCL_API(void, ncclResetDebugInit, void)
{
}

/* The one exported function without a twin. */
SIM_EXPORT void ncclResetDebugInitInternal(void)
{
}
#endif

/* An entry point that only refuses, so that no program takes the stand-in for the real thing. */
#define UNSUPPORTED(function, ...) \
	NCCL_API(ncclResult_t, function, __VA_ARGS__) \
	{ \
		return sim_fail(ncclInvalidUsage, #function " is not simulated"); \
	} \
	_Static_assert(1, "")

#if SIM_VERSION >= 22703
NCCL_API(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void *buff, size_t size,
	 ncclWindow_t *win, int winFlags)
{
	(void)winFlags;
	return ncclCommRegister(comm, buff, size, (void **)win);
}

NCCL_API(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t win)
{
	return ncclCommDeregister(comm, win);
}
#endif

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

#if SIM_VERSION >= 22803
UNSUPPORTED(ncclDevCommCreate, ncclComm_t comm, ncclDevCommRequirements_t const *reqs,
	    ncclDevComm_t *outDevComm);
UNSUPPORTED(ncclDevCommDestroy, ncclComm_t comm, ncclDevComm_t const *devComm);
UNSUPPORTED(ncclLLA2ACreateRequirement, int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle,
	    ncclDevResourceRequirements_t *outReq);
UNSUPPORTED(ncclLsaBarrierCreateRequirement, ncclTeam_t team, int nBarriers,
	    ncclLsaBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);

NCCL_API(int, ncclLLA2ACalcSlots, int maxElts, int maxEltSize)
{
	return maxElts * ((maxEltSize + 7) / 8);
}

NCCL_API(ncclTeam_t, ncclTeamWorld, ncclComm_t comm)
{
	return (ncclTeam_t){ comm->nRanks, comm->rank, 1 };
}

NCCL_API(ncclTeam_t, ncclTeamLsa, ncclComm_t comm)
{
	return (ncclTeam_t){ comm->localRanks, comm->localRank, 1 };
}

NCCL_API(ncclTeam_t, ncclTeamRail, ncclComm_t comm)
{
	return (ncclTeam_t){ comm->nNodes, comm->node, comm->localRanks };
}

NCCL_API(int, ncclTeamRankToWorld, ncclComm_t comm, ncclTeam_t team, int rank)
{
	return comm->rank + (rank - team.rank) * team.stride;
}

NCCL_API(int, ncclTeamRankToLsa, ncclComm_t comm, ncclTeam_t team, int rank)
{
	return comm->localRank + (rank - team.rank) * team.stride;
}
#endif

#if SIM_VERSION >= 22807
UNSUPPORTED(ncclGinBarrierCreateRequirement, ncclComm_t comm, ncclTeam_t team, int nBarriers,
	    ncclGinBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);
#endif

#if SIM_VERSION >= 22902
UNSUPPORTED(ncclCommGetUniqueId, ncclComm_t comm, ncclUniqueId *uniqueId);
UNSUPPORTED(ncclCommGrow, ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
	    ncclComm_t *newcomm, ncclConfig_t *config);
UNSUPPORTED(ncclCommQueryProperties, ncclComm_t comm, ncclCommProperties_t *properties);
UNSUPPORTED(ncclGetLsaDevicePointer, ncclWindow_t window, size_t offset, int lsaRank,
	    void **outPtr);
UNSUPPORTED(ncclGetLsaMultimemDevicePointer, ncclWindow_t window, size_t offset, void **outPtr);
UNSUPPORTED(ncclGetMultimemDevicePointer, ncclWindow_t window, size_t offset,
	    ncclMultimemHandle multimem, void **outPtr);
UNSUPPORTED(ncclGetPeerDevicePointer, ncclWindow_t window, size_t offset, int peer, void **outPtr);
UNSUPPORTED(ncclWinGetUserPtr, ncclComm_t comm, ncclWindow_t win, void **outUserPtr);
#endif

#if SIM_VERSION >= 22907
UNSUPPORTED(ncclCommResume, ncclComm_t comm);
UNSUPPORTED(ncclCommSuspend, ncclComm_t comm, int flags);
UNSUPPORTED(ncclCommMemStats, ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value);
UNSUPPORTED(ncclGinInboxA2ACreateRequirement, ncclTeam peers, int nBlocks, int size_log2,
	    ncclGinInboxA2AHandle *outHandle, ncclDevResourceRequirements *outReq);
UNSUPPORTED(ncclGinOutboxCreateRequirement, int nBlocks, int size_log2,
	    ncclGinOutboxHandle *outHandle, ncclDevResourceRequirements *outReq);
#endif

#if SIM_VERSION >= 23003
UNSUPPORTED(ncclParamBind, ncclParamHandle_t *out, const char *key);
UNSUPPORTED(ncclParamGet, ncclParamHandle_t h, void *out, int maxLen, int *len);
UNSUPPORTED(ncclParamGetAllParameterKeys, const char ***table, int *tableLen);
UNSUPPORTED(ncclParamGetParameter, const char *key, const char **value, int *valueLen);
UNSUPPORTED(ncclParamGetStr, ncclParamHandle_t h, const char **out);

NCCL_API(void, ncclParamDumpAll, void)
{
}
#endif

#if SIM_VERSION >= 23004
UNSUPPORTED(ncclParamGetI8, ncclParamHandle_t h, int8_t *out);
UNSUPPORTED(ncclParamGetI16, ncclParamHandle_t h, int16_t *out);
UNSUPPORTED(ncclParamGetI32, ncclParamHandle_t h, int32_t *out);
UNSUPPORTED(ncclParamGetI64, ncclParamHandle_t h, int64_t *out);
UNSUPPORTED(ncclParamGetU8, ncclParamHandle_t h, uint8_t *out);
UNSUPPORTED(ncclParamGetU16, ncclParamHandle_t h, uint16_t *out);
UNSUPPORTED(ncclParamGetU32, ncclParamHandle_t h, uint32_t *out);
UNSUPPORTED(ncclParamGetU64, ncclParamHandle_t h, uint64_t *out);
#endif

#pragma GCC diagnostic pop
