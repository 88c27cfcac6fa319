/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a communicator comes and goes. */
#include "launch.h"

#include <string.h>

#define LAST_WAIT_NS (100 * NS_PER_MS)

static void comm__name(struct comm *comm, const char *name)
{
	if (name)
		strncpy(comm->name, name, sizeof(comm->name) - 1);
}

int callback__init(const struct abi_version *v, void **context, int *mask, struct init_arguments *a)
{
	struct comm *comm;

	if (!context || !mask) {
		control__lost(NBP_LOSS_BAD_CALLBACK);
		return 0;
	}
	*context = NULL;
	comm = comm__create(v);
	if (!comm)
		return 0;
	atomic_store(&comm->hash, a->hash);
	sample__reset(&comm->sample, a->hash);
	atomic_store(&comm->rank, a->rank);
	comm->n_ranks = a->n_ranks;
	comm->n_nodes = a->n_nodes < 0 ? NBP_UNKNOWN : (uint32_t)a->n_nodes;
	comm__name(comm, a->name);
	comm->chained = chain__init(comm, a);
	if (comm->chained)
		atomic_store(&process.chained, true);
	atomic_store(&comm->mask, mask);
	*context = comm__context(comm);
	comm__publish(comm);
	comm__set_mask(comm);
	thread__need();
	return 0;
}

int callback__finalize(const struct abi_version *v, void *context)
{
	struct comm *comm = comm__get(context);
	void *chain_context;
	bool chained;

	if (!comm || comm->abi != v) {
		control__lost(context ? NBP_LOSS_STALE : NBP_LOSS_BAD_CALLBACK);
		return 0;
	}
	launch__settle(caller__get());
	chained = comm->chained;
	chain_context = comm->chain_context;
	if (!comm__close(comm)) {
		control__lost(NBP_LOSS_STALE);
		return 0;
	}
	if (chained)
		chain__finalize(v, chain_context);
	/* The process may end now, and not by exit(). */
	if (!__atomic_load_n(&nccl_bpftrace_control.n_comms, __ATOMIC_RELAXED))
		thread__catch_up(LAST_WAIT_NS);
	return 0;
}
