/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process is in several communicators. One that is behind in the first because it waits in the
 * second is not who is to blame: whoever it waits for there is.
 */
#include <stdlib.h>

#include "verdict_private.h"

#define EXCUSE_NS (30 * NSEC_PER_SEC)

/* A process that waits for another in a communicator: the first one found. */
struct waiter {
	struct waiter_key {
		uint32_t tgid;
		enum verdict_state state; /* waiting (stuck, too), or straggler */
	} key;
	struct verdict_comm *comm;
	uint32_t index;
	UT_hash_handle hh;
};

/* Its culprits may be victims themselves. */
static bool finding__chains(const struct finding *f)
{
	return f->cause == VERDICT_MISSING_CALL || f->cause == VERDICT_GPU_NOT_STARTED ||
	       f->state == VERDICT_STRAGGLER;
}

static bool finding__has_victims(const struct finding *f)
{
	return f->state == VERDICT_WAITING || f->state == VERDICT_STUCK ||
	       f->state == VERDICT_STRAGGLER || f->state == VERDICT_ABORTED;
}

static struct waiter_key waiter_key__of(const struct verdict_comm *comm, uint32_t index)
{
	return (struct waiter_key){
		.tgid = comm->ranks[index].member.tgid,
		.state = comm->finding.state == VERDICT_STRAGGLER ? VERDICT_STRAGGLER
								  : VERDICT_WAITING,
	};
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
	struct waiter_key key = waiter_key__of(comm, i);
	struct waiter *waiter;

	if (verdict_comm__blames(comm, key.tgid))
		return;
	HASH_FIND(hh, *waiters, &key, sizeof(key), waiter);
	if (waiter)
		return;
	waiter = calloc(1, sizeof(*waiter));
	if (!waiter)
		return;
	waiter->key = key;
	waiter->comm = comm;
	waiter->index = i;
	HASH_ADD(hh, *waiters, key, sizeof(key), waiter);
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

/* Somebody it waits for there waits for it here: then both are to blame. */
static bool verdict_comm__is_circle(const struct verdict_comm *comm,
				    const struct verdict_comm *other)
{
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (rank_set__has(&comm->finding.waiting, i) &&
		    verdict_comm__blames(other, comm->ranks[i].member.tgid))
			return true;
	}
	return false;
}

static struct waiter *verdict_comm__excuse(struct verdict_comm *comm, struct waiter *waiters,
					   uint32_t index)
{
	struct waiter_key key = waiter_key__of(comm, index);
	struct waiter *waiter;

	HASH_FIND(hh, waiters, &key, sizeof(key), waiter);
	if (!waiter || waiter->comm == comm)
		return NULL;
	/* a process that holds several of the ranks: which of them waits is not known */
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (i != index && comm->ranks[i].member.tgid == key.tgid &&
		    !comm->members[i].has_left)
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

/*
 * Until a moment ago it waited elsewhere, and still has to do what it does before its next call; or
 * it was late for that reason, and the lateness has not left the recent numbers yet.
 */
static bool verdict_comm__was_excused(const struct verdict_comm *comm, uint32_t i)
{
	uint64_t now_ns = comm->owner->now_ns, usual_ns = habit__nth(&comm->pauses, 2, now_ns);
	uint64_t least_ns = comm->finding.state == VERDICT_STRAGGLER ? EXCUSE_NS : MIN_THRESHOLD_NS;

	return since(now_ns, comm->members[i].excused_ns) <
	       later(least_ns, usual_ns + usual_ns / 4);
}

static struct finding verdict_comm__nothing(const struct verdict_comm *comm)
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
	bool is_straggler = f.state == VERDICT_STRAGGLER;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		struct waiter *waiter;

		if (!rank_set__has(&comm->finding.culprits, i))
			continue;
		waiter = verdict_comm__excuse(comm, waiters, i);
		if (waiter && is_straggler && verdict_comm__is_circle(comm, waiter->comm))
			continue;
		if (!waiter && !verdict_comm__was_excused(comm, i))
			continue;
		if (waiter) {
			comm->chain = chain__of(comm, i, waiter);
			comm->members[i].excused_ns = comm->owner->now_ns;
		}
		rank_set__drop(&f.culprits, i);
		rank_set__add(&f.waiting, i);
	}
	if (rank_set__count(&f.culprits)) {
		comm->chain = (struct chain){};
		return f;
	}
	/* all wait elsewhere: who keeps this communicator waiting is named, with what for */
	return !is_straggler && comm->chain.hash ? comm->finding : verdict_comm__nothing(comm);
}

/* ---- a cause that several share ---- */

/* A process that comes late by its host calls, in how many communicators; the last of them. */
struct suspect {
	uint32_t tgid;
	const struct verdict_comm *comm;
	uint32_t n;
	UT_hash_handle hh;
};

static bool verdict_comm__suspects(const struct verdict_comm *comm, uint32_t i)
{
	const struct late *late = comm->late[LATE_ON_HOST];

	return late && !comm->members[i].has_left && late__is_recent(late, comm->owner->now_ns) &&
	       rank_set__has(&late->suspects, comm->members[i].column);
}

static void suspects__gather(struct suspect **suspects, const struct verdict_comm *comm)
{
	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint32_t tgid = comm->ranks[i].member.tgid;
		struct suspect *suspect;

		if (!verdict_comm__suspects(comm, i))
			continue;
		HASH_FIND(hh, *suspects, &tgid, sizeof(tgid), suspect);
		if (!suspect) {
			suspect = calloc(1, sizeof(*suspect));
			if (!suspect)
				return;
			suspect->tgid = tgid;
			HASH_ADD(hh, *suspects, tgid, sizeof(tgid), suspect);
		}
		suspect->comm = comm;
		suspect->n++;
	}
}

/* Somebody of `shared` other than that process is late in a communicator other than `comm`. */
static bool verdict_comm__has_other_suspect(const struct verdict_comm *shared,
					    const struct verdict_comm *comm, uint32_t tgid,
					    struct suspect *suspects)
{
	for (uint32_t i = 0; i < shared->n_members; i++) {
		uint32_t other = shared->ranks[i].member.tgid;
		struct suspect *suspect;

		HASH_FIND(hh, suspects, &other, sizeof(other), suspect);
		if (suspect && other != tgid && (suspect->n > 1 || suspect->comm != comm))
			return true;
	}
	return false;
}

/*
 * It is in a communicator in which it is not late, but others of which are late elsewhere, too:
 * what happens in there (a slow GPU, a slow link) makes them all late, and host calls do not tell
 * whose fault that is.
 */
/* Its ranks are so far apart that no pause is left between its numbers: their hosts run ahead. */
static bool verdict_comm__is_overrun(const struct verdict_comm *comm)
{
	const struct late *late = comm->late[LATE_ON_HOST];

	return late && late->end_ns - late->start_ns > MIN_KNOWN_NS &&
	       since(comm->owner->now_ns, late->end_ns) < MIN_IDLE_NS;
}

static bool verdict_comm__shares_cause(const struct verdict_comm *comm, uint32_t index,
				       struct suspect *suspects)
{
	uint32_t tgid = comm->ranks[index].member.tgid;
	struct verdict_comm *shared;

	for (shared = comm->owner->first; shared; shared = shared->next) {
		for (uint32_t i = 0; shared != comm && i < shared->n_members; i++) {
			if (shared->ranks[i].member.tgid == tgid &&
			    !verdict_comm__suspects(shared, i) &&
			    (verdict_comm__is_overrun(shared) ||
			     verdict_comm__has_other_suspect(shared, comm, tgid, suspects)))
				return true;
		}
	}
	return false;
}

static void verdict_comm__drop_shared(struct verdict_comm *comm, struct suspect *suspects)
{
	struct finding *f = &comm->finding;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!rank_set__has(&f->culprits, i) ||
		    !verdict_comm__shares_cause(comm, i, suspects))
			continue;
		rank_set__drop(&f->culprits, i);
		rank_set__add(&f->waiting, i);
	}
	if (!rank_set__count(&f->culprits))
		*f = verdict_comm__nothing(comm);
}

static void verdicts__drop_shared(struct verdicts *verdicts)
{
	struct suspect *suspects = NULL, *suspect, *next;
	struct verdict_comm *comm;
	bool any_late = false;

	for (comm = verdicts->first; comm; comm = comm->next)
		any_late |= comm->finding.cause == VERDICT_LATE;
	for (comm = verdicts->first; comm && any_late; comm = comm->next)
		suspects__gather(&suspects, comm);
	for (comm = verdicts->first; comm && any_late; comm = comm->next) {
		if (comm->finding.cause == VERDICT_LATE)
			verdict_comm__drop_shared(comm, suspects);
	}
	HASH_ITER(hh, suspects, suspect, next)
	{
		HASH_DEL(suspects, suspect);
		free(suspect);
	}
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
	verdicts__drop_shared(verdicts);
	HASH_ITER(hh, waiters, waiter, next)
	{
		HASH_DEL(waiters, waiter);
		free(waiter);
	}
}
