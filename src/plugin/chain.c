/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NCCL_BPFTRACE_CHAIN=PATH: another profiler plugin behind this one. It gets its own context, a
 * mask word of its own, and the callbacks that NCCL would make for that mask, unchanged. A handle
 * that it returns is what NCCL holds, so nothing is wrapped and nothing of it has to be kept; only
 * where it returns none may this plugin put one of its own, and those never reach it.
 */
#include "plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_WARN 2
#define LOG_INIT 1UL

static struct {
	pthread_once_t once;
	const struct abi_profiler *profiler[ABI_MAX_VERSION + 1];
	const char *failure; /* dlopen's own words, or ours */
	atomic_bool told;
	int mask[ABI_MAX_VERSION + 1]; /* by the version: one word per NCCL, as NCCL has it */
} chain = {.once = PTHREAD_ONCE_INIT};

static void chain__load(void)
{
	const char *path = secure_getenv("NCCL_BPFTRACE_CHAIN");
	void *library;
	char symbol[32];

	if (!path || !*path)
		return;
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		chain.failure = dlerror();
		return;
	}
	for (int i = 1; i <= ABI_MAX_VERSION; i++) {
		Dl_info other, self;

		snprintf(symbol, sizeof(symbol), "ncclProfiler_v%d", i);
		chain.profiler[i] = dlsym(library, symbol);
		if (chain.profiler[i] && dladdr(chain.profiler[i], &other) &&
		    dladdr(abi_versions, &self) && other.dli_fbase == self.dli_fbase) {
			chain.profiler[i] = NULL;
			chain.failure = "it is this plugin itself";
		}
	}
}

static void chain__complain(const struct abi_version *v, abi_logger logger)
{
	const char *path = secure_getenv("NCCL_BPFTRACE_CHAIN");

	if (!path || !*path || !logger || atomic_exchange(&chain.told, true))
		return;
	if (chain.failure)
		logger(LOG_WARN, LOG_INIT, "nccl-bpftrace", 0, "NCCL_BPFTRACE_CHAIN=%s: %s", path,
		       chain.failure);
	else
		logger(LOG_WARN, LOG_INIT, "nccl-bpftrace", 0,
		       "NCCL_BPFTRACE_CHAIN=%s: has no ncclProfiler_v%d", path, v->version);
}

static int init__call(const struct abi_profiler *p, const struct abi_version *v, void **context,
		      const struct init_arguments *a)
{
	int *mask = &chain.mask[v->version];

	if (v->version <= 3)
		return ((abi_init_v1)p->init)(context, mask);
	if (v->version == 4)
		return ((abi_init_v4)p->init)(context, mask, a->name, a->hash, a->n_nodes,
					      a->n_ranks, a->rank, a->logger);
	return ((abi_init_v5)p->init)(context, a->hash, mask, a->name, a->n_nodes, a->n_ranks,
				      a->rank, a->logger);
}

bool chain__init(struct comm *comm, const struct init_arguments *a)
{
	const struct abi_version *v = comm->abi;

	pthread_once(&chain.once, chain__load);
	if (!chain.profiler[v->version]) {
		chain__complain(v, a->logger);
		return false;
	}
	comm->chain_context = NULL;
	return !init__call(chain.profiler[v->version], v, &comm->chain_context, a);
}

int chain__mask(const struct abi_version *v)
{
	return __atomic_load_n(&chain.mask[v->version], __ATOMIC_RELAXED);
}

/* Parents that only this plugin knows are none for the other. */
static void *parents__hide(const struct abi_version *v, uint64_t type, void *descriptor, char *copy)
{
	int16_t group = type == ABI_COLL  ? v->coll.parent_group
			: type == ABI_P2P ? v->p2p.parent_group
					  : ABI_NONE;
	void *parent = *(void **)((char *)descriptor + ABI_PARENT);
	void *of_group = group >= 0 ? *(void **)((char *)descriptor + group) : NULL;

	if (!token__is_ours(parent) && !token__is_ours(of_group))
		return descriptor;
	memcpy(copy, descriptor, v->descriptor_size);
	if (token__is_ours(parent))
		memset(copy + ABI_PARENT, 0, sizeof(void *));
	if (token__is_ours(of_group))
		memset(copy + group, 0, sizeof(void *));
	return copy;
}

int chain__start(struct comm *comm, void **handle, void *descriptor, uint64_t type, void *ours)
{
	const struct abi_version *v = comm->abi;
	_Alignas(8) char copy[128];
	int result;

	if (!comm->chained || !(abi__implied(v, chain__mask(v)) & type)) {
		*handle = ours;
		return 0;
	}
	if (token__is_ours(*handle))
		*handle = NULL;
	result = chain.profiler[v->version]->start(comm->chain_context, handle,
						   parents__hide(v, type, descriptor, copy));
	if (!*handle)
		*handle = ours;
	return result;
}

int chain__stop(const struct abi_version *v, void *handle)
{
	return chain.profiler[v->version] ? chain.profiler[v->version]->stop(handle) : -1;
}

int chain__record(const struct abi_version *v, void *handle, int state, void *arguments)
{
	const struct abi_profiler *p = chain.profiler[v->version];

	return p ? p->record(handle, state, arguments) : -1;
}

/* NCCL >= 2.28 finalises no context that is NULL; before that it does. */
void chain__finalize(const struct abi_version *v, void *context)
{
	if (chain.profiler[v->version] && (context || v->version <= 4))
		chain.profiler[v->version]->finalize(context);
}
