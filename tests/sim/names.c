/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "names.h"

#include <stddef.h>

#include "nccl_sim.h"

const char *sim_func_name(int func)
{
	static const char *const names[] = {
		[FUNC_BROADCAST] = "Broadcast", [FUNC_REDUCE] = "Reduce",
		[FUNC_ALLGATHER] = "AllGather", [FUNC_REDUCESCATTER] = "ReduceScatter",
		[FUNC_ALLREDUCE] = "AllReduce", [FUNC_SEND] = "Send", [FUNC_RECV] = "Recv",
		[FUNC_ALLTOALL] = "AlltoAll", [FUNC_SCATTER] = "Scatter", [FUNC_GATHER] = "Gather",
	};

	return (size_t)func < sizeof(names) / sizeof(*names) && names[func] ? names[func] :
									     "Invalid";
}

/* NCCL has no word for ncclUint8. */
const char *sim_datatype_name(int datatype)
{
	static const char *const names[ncclNumTypes] = {
		[ncclInt8] = "ncclInt8", [ncclUint8] = "Unknown", [ncclInt32] = "ncclInt32",
		[ncclUint32] = "ncclUint32", [ncclInt64] = "ncclInt64",
		[ncclUint64] = "ncclUint64", [ncclFloat16] = "ncclFloat16",
		[ncclFloat32] = "ncclFloat32", [ncclFloat64] = "ncclFloat64",
		[ncclBfloat16] = "ncclBfloat16", [ncclFloat8e4m3] = "ncclFloat8e4m3",
		[ncclFloat8e5m2] = "ncclFloat8e5m2",
	};

	return datatype >= 0 && datatype < ncclNumTypes ? names[datatype] : "Unknown";
}

const char *sim_algorithm_name(uint8_t algorithm)
{
	static const char *const names[] = { "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN",
					     "NVLS", "NVLS_TREE", "PAT" };

	return algorithm < sizeof(names) / sizeof(*names) ? names[algorithm] : "Unknown";
}

const char *sim_protocol_name(uint8_t protocol)
{
	static const char *const names[] = { "LL", "LL128", "SIMPLE" };

	return protocol < sizeof(names) / sizeof(*names) ? names[protocol] : "Unknown";
}
