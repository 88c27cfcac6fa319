/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The six tables that NCCL looks up; it takes the highest that it knows. */
#include "plugin.h"

#define PLUGIN_NAME "nccl-bpftrace"

#define ENTRY(N)                                                                                   \
	static int start_v##N(void *context, void **handle, void *descriptor)                      \
	{                                                                                          \
		return (N >= 5 ? callback__start_v5 : callback__start)(&abi_versions[N], context,  \
								       handle, descriptor);        \
	}                                                                                          \
	static int stop_v##N(void *handle)                                                         \
	{                                                                                          \
		return callback__stop(&abi_versions[N], handle);                                   \
	}                                                                                          \
	static int record_v##N(void *handle, int state, void *arguments)                           \
	{                                                                                          \
		return callback__record(&abi_versions[N], handle, state, arguments);               \
	}                                                                                          \
	static int finalize_v##N(void *context)                                                    \
	{                                                                                          \
		return callback__finalize(&abi_versions[N], context);                              \
	}                                                                                          \
	extern const struct abi_profiler ncclProfiler_v##N;                                        \
	ABI_EXPORT const struct abi_profiler ncclProfiler_v##N = {                                 \
		PLUGIN_NAME,   (void (*)(void))init_v##N, start_v##N, stop_v##N, record_v##N,      \
		finalize_v##N,                                                                     \
	}

#define INIT_V1(N)                                                                                 \
	static int init_v##N(void **context, int *mask)                                            \
	{                                                                                          \
		struct init_arguments a = {                                                        \
			.n_nodes = -1,                                                             \
			.n_ranks = 0,                                                              \
			.rank = NBP_NO_RANK,                                                       \
		};                                                                                 \
                                                                                                   \
		return callback__init(&abi_versions[N], context, mask, &a);                        \
	}

#define INIT_V5(N)                                                                                 \
	static int init_v##N(void **context, uint64_t hash, int *mask, const char *name,           \
			     int n_nodes, int n_ranks, int rank, abi_logger logger)                \
	{                                                                                          \
		struct init_arguments a = {name, hash, n_nodes, n_ranks, rank, logger};            \
                                                                                                   \
		return callback__init(&abi_versions[N], context, mask, &a);                        \
	}

INIT_V1(1)
INIT_V1(2)
INIT_V1(3)

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int n_nodes,
		   int n_ranks, int rank, abi_logger logger)
{
	struct init_arguments a = {name, hash, n_nodes, n_ranks, rank, logger};

	return callback__init(&abi_versions[4], context, mask, &a);
}

INIT_V5(5)
INIT_V5(6)

ENTRY(1);
ENTRY(2);
ENTRY(3);
ENTRY(4);
ENTRY(5);
ENTRY(6);
