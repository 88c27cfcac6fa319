/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process is in several communicators. One that is behind in the first because it waits in the
 * second is not who is to blame: whoever it waits for there is.
 */
#include <stdlib.h>

#include "verdict_private.h"

/* A process that waits for another in a communicator: the first one found. */
struct waiter {
	uint32_t tgid;
	struct verdict_comm *comm;
	uint32_t index;
	UT_hash_handle hh;
};

/* Its culprits may be victims themselves. */
static bool finding__chains(const struct finding *f)
{
	return f->cause == VERDICT_MISSING_CALL || f->cause == VERDICT_GPU_NOT_STARTED ||
	       f->in_queue;
}

static bool finding__has_victims(const struct finding *f)
{
	return f->state == VERDICT_WAITING || f->state == VERDICT_STUCK ||
	       f->state == VERDICT_ABORTED;
}

static bool verdict_comm__blames(const struct verdict_comm *comm, uint32_t tgid)
{
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (comm->ranks[i].member.tgid == tgid && rank_set__has(&comm->finding.culprits, i))
			return true;
	}
	return false;
}

static void waiters__add(struct waiter **waiters, struct verdict_comm *comm, uint32_t i)
{
	uint32_t tgid = comm->ranks[i].member.tgid;
	struct waiter *waiter;

	if (verdict_comm__blames(comm, tgid))
		return;
	HASH_FIND(hh, *waiters, &tgid, sizeof(tgid), waiter);
	if (waiter)
		return;
	waiter = calloc(1, sizeof(*waiter));
	if (!waiter)
		return;
	waiter->tgid = tgid;
	waiter->comm = comm;
	waiter->index = i;
	HASH_ADD(hh, *waiters, tgid, sizeof(tgid), waiter);
}

/* Who waits there by what was found, or has a launch that does not get done, for whatever reason.
 */
static void waiters__gather(struct waiter **waiters, struct verdict_comm *comm, uint64_t now_ns)
{
	bool has_victims = finding__has_victims(&comm->finding);

	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];

		if (m->has_left)
			continue;
		if ((has_victims && rank_set__has(&comm->finding.waiting, i)) ||
		    (m->gpu_since_ns && since(now_ns, m->gpu_since_ns) >= MIN_THRESHOLD_NS))
			waiters__add(waiters, comm, i);
	}
}

static struct waiter *verdict_comm__excuse(struct verdict_comm *comm, struct waiter *waiters,
					   uint32_t index)
{
	uint32_t tgid = comm->ranks[index].member.tgid;
	struct waiter *waiter;

	HASH_FIND(hh, waiters, &tgid, sizeof(tgid), waiter);
	if (!waiter || waiter->comm == comm)
		return NULL;
	/* a process that holds several of the ranks: which of them waits is not known */
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (i != index && comm->ranks[i].member.tgid == tgid && !comm->members[i].has_left)
			return NULL;
	}
	return waiter;
}

static struct chain chain__of(const struct verdict_comm *comm, uint32_t index,
			      const struct waiter *waiter)
{
	const struct verdict_comm *other = waiter->comm;
	struct chain chain = {
		.hash = other->hash,
		.operation = other->finding.operation,
		.sequence = other->finding.sequence,
		.rank = comm->ranks[index].member.rank,
		.culprit = -1,
	};

	for (uint32_t i = 0; i < other->n_members && chain.culprit < 0; i++) {
		if (!rank_set__has(&other->finding.culprits, i))
			continue;
		chain.culprit = other->ranks[i].member.rank;
		chain.culprit_tgid = other->ranks[i].member.tgid;
	}
	return chain;
}

/* Until a moment ago it waited elsewhere, and still has to do what it does before its next call. */
static bool verdict_comm__was_excused(const struct verdict_comm *comm, uint32_t i)
{
	uint64_t now_ns = comm->owner->now_ns, usual_ns = habit__nth(&comm->pauses, 2, now_ns);

	return since(now_ns, comm->members[i].excused_ns) <
	       later(MIN_THRESHOLD_NS, usual_ns + usual_ns / 4);
}

struct finding verdict_comm__nothing(const struct verdict_comm *comm)
{
	return (struct finding){
		.state = comm->activity,
		.since_ns = comm->active_ns,
		.operation = NCCL_OP_MAX,
		.sequence = VERDICT_NO_SEQUENCE,
	};
}

static struct finding verdict_comm__without_excused(struct verdict_comm *comm,
						    struct waiter *waiters)
{
	struct finding f = comm->finding;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		struct waiter *waiter;

		if (f.in_queue && !comm->chain.hash && rank_set__has(&f.waiting, i)) {
			waiter = verdict_comm__excuse(comm, waiters, i);
			if (waiter && !waiter->comm->finding.in_queue)
				comm->chain = chain__of(comm, i, waiter);
		}
		if (!rank_set__has(&comm->finding.culprits, i))
			continue;
		waiter = verdict_comm__excuse(comm, waiters, i);
		if (!waiter && !verdict_comm__was_excused(comm, i))
			continue;
		if (waiter) {
			comm->chain = chain__of(comm, i, waiter);
			comm->members[i].excused_ns = comm->owner->now_ns;
		}
		rank_set__drop(&f.culprits, i);
		rank_set__add(&f.waiting, i);
	}
	if (!rank_set__count(&comm->finding.culprits))
		return f;
	if (rank_set__count(&f.culprits)) {
		comm->chain = (struct chain){};
		return f;
	}
	/* all wait elsewhere: who keeps this communicator waiting is named, with what for */
	return comm->chain.hash ? comm->finding : verdict_comm__nothing(comm);
}

static void verdicts__excuse(struct verdicts *verdicts, struct waiter *waiters)
{
	struct verdict_comm *comm;

	for (comm = verdicts->first; comm; comm = comm->next) {
		if (finding__chains(&comm->finding))
			comm->unchained = verdict_comm__without_excused(comm, waiters);
	}
	/* only now, so that all are judged by the same findings */
	for (comm = verdicts->first; comm; comm = comm->next) {
		if (finding__chains(&comm->finding))
			comm->finding = comm->unchained;
	}
}

void verdicts__chain(struct verdicts *verdicts)
{
	struct waiter *waiters = NULL, *waiter, *next;
	bool any_chains = false;

	for (struct verdict_comm *comm = verdicts->first; comm; comm = comm->next)
		any_chains |= finding__chains(&comm->finding);
	if (!any_chains)
		return;
	for (struct verdict_comm *comm = verdicts->first; comm; comm = comm->next)
		waiters__gather(&waiters, comm, verdicts->now_ns);
	verdicts__excuse(verdicts, waiters);
	HASH_ITER(hh, waiters, waiter, next)
	{
		HASH_DEL(waiters, waiter);
		free(waiter);
	}
}
