/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process is in several communicators. One that is behind in the first because it waits in the
 * second is not who is to blame: whoever it waits for there is.
 */
#include <stdlib.h>

#include "verdict_private.h"

/* A process that waits for others, in the first two communicators found. */
struct waiter {
	uint32_t tgid;
	struct verdict_comm *comms[2]; /* NULL: no more */
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
	if (!waiter) {
		waiter = calloc(1, sizeof(*waiter));
		if (!waiter)
			return;
		waiter->tgid = tgid;
		HASH_ADD(hh, *waiters, tgid, sizeof(tgid), waiter);
	}
	if (!waiter->comms[0])
		waiter->comms[0] = comm;
	else if (!waiter->comms[1] && waiter->comms[0] != comm)
		waiter->comms[1] = comm;
}

/* It has called there, for a while, what others have not. */
static bool verdict_comm__is_ahead(const struct verdict_comm *comm, const struct member *m,
				   uint64_t now_ns)
{
	for (int op = 0; op < N_COLLECTIVES; op++) {
		struct range range = verdict_comm__range(comm, op);

		if (range.n_known > 1 && m->reached[op] != VERDICT_NO_SEQUENCE &&
		    m->reached[op] > range.least &&
		    since(now_ns, m->reached_ns[op]) >= NSEC_PER_SEC)
			return true;
	}
	return false;
}

/* How sure it is that a process waits. */
enum sureness {
	WAITS_AS_FOUND, /* the communicator is known to wait, and it among its ranks */
	WAITS_ON_GPU,	/* its launch does not get done, for whatever reason */
	WAITS_AHEAD,	/* it may */
	SURENESSES,
};

static bool verdict_comm__waits(const struct verdict_comm *comm, uint32_t i, enum sureness how,
				uint64_t now_ns)
{
	const struct member *m = &comm->members[i];

	if (m->has_left)
		return false;
	switch (how) {
	case WAITS_AS_FOUND:
		return finding__has_victims(&comm->finding) &&
		       rank_set__has(&comm->finding.waiting, i);
	case WAITS_ON_GPU:
		return m->gpu_since_ns && since(now_ns, m->gpu_since_ns) >= MIN_THRESHOLD_NS;
	default:
		return !finding__has_victims(&comm->finding) &&
		       verdict_comm__is_ahead(comm, m, now_ns);
	}
}

static void waiters__gather(struct waiter **waiters, struct verdicts *verdicts, enum sureness how)
{
	for (struct verdict_comm *comm = verdicts->first; comm; comm = comm->next) {
		for (uint32_t i = 0; i < comm->n_members; i++) {
			if (verdict_comm__waits(comm, i, how, verdicts->now_ns))
				waiters__add(waiters, comm, i);
		}
	}
}

/* In which other communicator the rank waits; NULL: in none. */
static struct verdict_comm *verdict_comm__excuse(struct verdict_comm *comm, struct waiter *waiters,
						 uint32_t index)
{
	uint32_t tgid = comm->ranks[index].member.tgid;
	struct waiter *waiter;

	HASH_FIND(hh, waiters, &tgid, sizeof(tgid), waiter);
	if (!waiter)
		return NULL;
	/* a process that holds several of the ranks: which of them waits is not known */
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (i != index && comm->ranks[i].member.tgid == tgid && !comm->members[i].has_left)
			return NULL;
	}
	return waiter->comms[0] == comm ? waiter->comms[1] : waiter->comms[0];
}

static struct chain chain__of(const struct verdict_comm *comm, uint32_t index,
			      const struct verdict_comm *other)
{
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
		struct verdict_comm *other;

		if (f.in_queue && !comm->chain.hash && rank_set__has(&f.waiting, i)) {
			other = verdict_comm__excuse(comm, waiters, i);
			if (other && !other->finding.in_queue)
				comm->chain = chain__of(comm, i, other);
		}
		if (!rank_set__has(&comm->finding.culprits, i))
			continue;
		other = verdict_comm__excuse(comm, waiters, i);
		if (!other && !verdict_comm__was_excused(comm, i))
			continue;
		if (other) {
			comm->chain = chain__of(comm, i, other);
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
	for (int how = 0; how < SURENESSES; how++)
		waiters__gather(&waiters, verdicts, how);
	verdicts__excuse(verdicts, waiters);
	HASH_ITER(hh, waiters, waiter, next)
	{
		HASH_DEL(waiters, waiter);
		free(waiter);
	}
}
