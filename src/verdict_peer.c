/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Send and Recv: ranks make different numbers of them, so nothing is compared but each pair of
 * sender and receiver, and only where both are of this node and every call of both was seen. A Recv
 * without its Send waits. A Send without its Recv may lie in a buffer: nothing is said of it.
 */
#include <stdlib.h>

#include "verdict_private.h"

#define PAIR_CELLS ((sizeof(struct pair) + 7) / 8)

void verdict_comm__free_pairs(struct verdict_comm *comm)
{
	struct pair *pair, *next;

	HASH_ITER(hh, comm->pairs, pair, next)
	{
		HASH_DEL(comm->pairs, pair);
		free(pair);
		verdict_comm__discharge(comm, PAIR_CELLS);
	}
}

static struct pair *verdict_comm__pair(struct verdict_comm *comm, int32_t from, int32_t to)
{
	struct pair_key key = {from, to};
	struct pair *pair;

	HASH_FIND(hh, comm->pairs, &key, sizeof(key), pair);
	if (pair || comm->pairs_blind)
		return pair;
	if (HASH_COUNT(comm->pairs) == MAX_PAIRS || !verdict_comm__charge(comm, PAIR_CELLS)) {
		comm->pairs_blind = true;
		return NULL;
	}
	pair = calloc(1, sizeof(*pair));
	if (!pair) {
		verdict_comm__discharge(comm, PAIR_CELLS);
		comm->pairs_blind = true;
		return NULL;
	}
	pair->key = key;
	HASH_ADD(hh, comm->pairs, key, sizeof(key), pair);
	return pair;
}

void verdict_comm__peer_call(struct verdict_comm *comm, uint32_t index,
			     const struct verdict_call *call, bool follows)
{
	struct member *m = &comm->members[index];
	int32_t rank = comm->ranks[index].member.rank;
	bool is_send = call->operation == NCCL_OP_Send;
	struct pair *pair;

	/* with calls missed, the pairs of that rank can never be counted again */
	m->whole &= follows;
	m->peers_unsure = false;
	if (!m->whole || call->root < 0 || call->root >= comm->n_ranks)
		return;
	pair = is_send ? verdict_comm__pair(comm, rank, call->root)
		       : verdict_comm__pair(comm, call->root, rank);
	if (!pair)
		return;
	if (is_send)
		pair->n_sent++;
	else
		pair->n_received++;
	if (pair->n_received <= pair->n_sent) {
		if (pair->wanted_ns && since(call->time_ns, pair->wanted_ns) > NSEC_PER_SEC)
			habit__add(&comm->sends, call->time_ns - pair->wanted_ns, call->time_ns);
		pair->wanted_ns = 0;
	} else if (!pair->wanted_ns) {
		pair->wanted_ns = call->time_ns;
	}
}

/* Index of the sender of which a living rank waits for a message; -1. */
static int32_t verdict_comm__debtor(const struct verdict_comm *comm, const struct pair *pair,
				    uint64_t threshold_ns, uint64_t now_ns)
{
	int32_t from = verdict_comm__living(comm, pair->key.from);
	int32_t to = verdict_comm__living(comm, pair->key.to);
	const struct member *m;

	if (!pair->wanted_ns || from < 0 || to < 0 || from == to ||
	    since(now_ns, pair->wanted_ns) < threshold_ns)
		return -1;
	m = &comm->members[from];
	if (!m->whole || m->peers_unsure || !comm->members[to].whole ||
	    since(now_ns, m->active_ns) < threshold_ns)
		return -1;
	return from;
}

bool verdict_comm__find_unsent(struct verdict_comm *comm, uint64_t now_ns, struct finding *ret)
{
	uint64_t threshold_ns =
		verdict_comm__threshold(comm, &comm->sends, MIN_THRESHOLD_NS, now_ns);
	struct rank_set owing = {};
	struct pair *pair, *next;

	*ret = (struct finding){.cause = VERDICT_MISSING_CALL, .since_ns = ~0ULL};
	if (comm->pairs_blind)
		return false;
	HASH_ITER(hh, comm->pairs, pair, next)
	{
		int32_t from = verdict_comm__debtor(comm, pair, threshold_ns, now_ns);

		if (from < 0)
			continue;
		rank_set__add(&owing, from);
		rank_set__add(&ret->waiting, verdict_comm__living(comm, pair->key.to));
		if (pair->wanted_ns < ret->since_ns)
			ret->since_ns = pair->wanted_ns;
	}
	if (ret->since_ns == ~0ULL)
		return false;
	ret->operation = NCCL_OP_Send;
	ret->sequence = VERDICT_NO_SEQUENCE;
	/* who waits itself does not send for that reason; where all do, all are to blame */
	ret->culprits = owing;
	for (uint32_t i = 0; i < ARRAY_SIZE(owing.bits); i++)
		ret->culprits.bits[i] &= ~ret->waiting.bits[i];
	if (!rank_set__count(&ret->culprits))
		ret->culprits = owing;
	for (uint32_t i = 0; i < ARRAY_SIZE(owing.bits); i++)
		ret->waiting.bits[i] &= ~ret->culprits.bits[i];
	return true;
}

bool verdict_comm__owes(struct verdict_comm *comm, uint32_t index, uint64_t now_ns)
{
	const struct member *m = &comm->members[index];
	struct pair *pair, *next;

	HASH_ITER(hh, comm->pairs, pair, next)
	{
		if (pair->key.from == comm->ranks[index].member.rank && pair->wanted_ns &&
		    since(now_ns, pair->wanted_ns) >= MIN_THRESHOLD_NS && m->whole &&
		    !m->peers_unsure && verdict_comm__living(comm, pair->key.to) >= 0)
			return true;
	}
	return false;
}
