/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What others ask of the judge. */
#include "verdict_private.h"

struct verdict_comm *verdicts__first(struct verdicts *verdicts)
{
	return verdicts->first;
}

struct verdict_comm *verdict_comm__next(struct verdict_comm *comm)
{
	return comm->next;
}

struct verdict_comm *verdicts__find(struct verdicts *verdicts, uint64_t hash)
{
	struct verdict_comm *comm;

	HASH_FIND(hh, verdicts->by_hash, &hash, sizeof(hash), comm);
	return comm;
}

uint64_t verdict_comm__hash(const struct verdict_comm *comm)
{
	return comm->hash;
}

int32_t verdict_comm__n_ranks(const struct verdict_comm *comm)
{
	return comm->n_ranks;
}

const struct verdict_rank *verdict_comm__ranks(const struct verdict_comm *comm, uint32_t *ret_n)
{
	*ret_n = comm->n_members;
	return comm->ranks;
}

const struct verdict *verdict_comm__now(const struct verdict_comm *comm)
{
	return &comm->now;
}

const struct verdict *verdict_comm__worst(const struct verdict_comm *comm)
{
	return &comm->worst;
}

void verdicts__forget_worst(struct verdicts *verdicts)
{
	for (struct verdict_comm *comm = verdicts->first; comm; comm = comm->next)
		comm->worst = comm->now;
}

uint32_t verdict_comm__events(const struct verdict_comm *comm, struct verdict_event *events,
			      uint32_t max)
{
	uint32_t n = comm->n_events < VERDICT_MAX_EVENTS ? comm->n_events : VERDICT_MAX_EVENTS;

	if (n > max)
		n = max;
	for (uint32_t i = 0; i < n; i++)
		events[i] = comm->events[(comm->n_events - 1 - i) % VERDICT_MAX_EVENTS];
	return n;
}

const struct verdict_rank *verdicts__rank(struct verdicts *verdicts,
					  const struct verdict_member *member)
{
	struct verdict_comm *comm = verdicts__comm(verdicts, member->hash, member->n_ranks);
	int32_t i = comm ? verdict_comm__index(comm, member) : -1;

	return i < 0 ? NULL : &comm->ranks[i];
}

void verdicts__on_lateness(struct verdicts *verdicts, verdict_lateness_fn *fn, void *ctx)
{
	verdicts->lateness_fn = fn;
	verdicts->ctx = ctx;
}

uint64_t verdicts__refused(const struct verdicts *verdicts)
{
	return verdicts->refused;
}
