/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who comes late to one communicator because of what happens in another one, in which it is not
 * late itself: it is no straggler, only next in line.
 */
#include <stdlib.h>

#include "verdict_private.h"

/* Lateness leaves the recent slices only after a while, in one communicator before the other. */
#define ACQUITTAL_NS (20 * NSEC_PER_SEC)

static uint64_t late__acquittal_ns(const struct late *late)
{
	return ACQUITTAL_NS + 40 * late->slice_ns;
}

/* It comes late there, and loses others that share of the time at least. */
static bool verdict_comm__suspects(const struct verdict_comm *comm, enum late_sight sight,
				   uint32_t i, float share)
{
	const struct late *late = comm->late[sight];
	uint32_t column = comm->members[i].column;

	return !comm->members[i].has_left && late__is_recent(late, comm->owner->now_ns) &&
	       rank_set__has(&late->suspects, column) && late->shares[column] >= share;
}

/* Of what it loses others here: as much as explains that, or is explained by it. */
static float verdict_comm__share(const struct verdict_comm *comm, enum late_sight sight,
				 uint32_t index)
{
	return comm->late[sight]->shares[comm->members[index].column] / 4;
}

/* ---- who waits for one who is late elsewhere ---- */

/* Somebody else there is late, and enough to make it late by this share. */
static bool verdict_comm__has_late_peer(const struct verdict_comm *comm, enum late_sight sight,
					uint32_t index, float share)
{
	const struct late *late = comm->late[sight];

	if (!late__is_recent(late, comm->owner->now_ns) ||
	    verdict_comm__suspects(comm, sight, index, share))
		return false;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint32_t column = comm->members[i].column;

		if (i != index && !comm->members[i].has_left &&
		    rank_set__has(&late->unpunctual, column) && late->shares[column] >= share)
			return true;
	}
	return false;
}

static bool verdict_comm__is_victim(const struct verdict_comm *comm, enum late_sight sight,
				    uint32_t index)
{
	float share = verdict_comm__share(comm, sight, index);
	uint32_t tgid = comm->ranks[index].member.tgid;

	for (struct verdict_comm *other = comm->owner->first; other; other = other->next) {
		for (uint32_t i = 0; other != comm && i < other->n_members; i++) {
			if (other->ranks[i].member.tgid == tgid && !other->members[i].has_left &&
			    (verdict_comm__has_late_peer(other, LATE_ON_HOST, i, share) ||
			     verdict_comm__has_late_peer(other, LATE_ON_GPU, i, share)))
				return true;
		}
	}
	return false;
}

/* ---- what several of one communicator have in common ---- */

/* A process that comes late by its host calls, in how many communicators; the last of them. */
struct suspect {
	uint32_t tgid;
	const struct verdict_comm *comm;
	uint32_t n;
	UT_hash_handle hh;
};

static void suspects__gather(struct suspect **suspects, const struct verdict_comm *comm)
{
	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint32_t tgid = comm->ranks[i].member.tgid;
		struct suspect *suspect;

		if (!verdict_comm__suspects(comm, LATE_ON_HOST, i, 0))
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

/* Somebody of `shared` other than that process is late in a third communicator, or in several. */
static bool verdict_comm__has_other_suspect(const struct verdict_comm *shared,
					    const struct verdict_comm *comm, uint32_t tgid,
					    struct suspect *suspects)
{
	for (uint32_t i = 0; i < shared->n_members; i++) {
		uint32_t other = shared->ranks[i].member.tgid;
		struct suspect *suspect;

		HASH_FIND(hh, suspects, &other, sizeof(other), suspect);
		if (suspect && other != tgid &&
		    (suspect->n > 1 || (suspect->comm != comm && suspect->comm != shared)))
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
	float share = verdict_comm__share(comm, LATE_ON_HOST, index);
	uint32_t tgid = comm->ranks[index].member.tgid;
	struct verdict_comm *shared;

	for (shared = comm->owner->first; shared; shared = shared->next) {
		for (uint32_t i = 0; shared != comm && i < shared->n_members; i++) {
			if (shared->ranks[i].member.tgid == tgid &&
			    !verdict_comm__suspects(shared, LATE_ON_HOST, i, share) &&
			    (verdict_comm__is_overrun(shared) ||
			     verdict_comm__has_other_suspect(shared, comm, tgid, suspects)))
				return true;
		}
	}
	return false;
}

static void verdict_comm__acquit(struct verdict_comm *comm, struct suspect *suspects)
{
	struct finding *f = &comm->finding;
	enum late_sight sight = f->cause == VERDICT_LATE_ON_GPU ? LATE_ON_GPU : LATE_ON_HOST;
	uint64_t now_ns = comm->owner->now_ns;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!rank_set__has(&f->culprits, i))
			continue;
		if (verdict_comm__is_victim(comm, sight, i) ||
		    (sight == LATE_ON_HOST && verdict_comm__shares_cause(comm, i, suspects)))
			comm->members[i].acquitted_ns = now_ns;
		if (since(now_ns, comm->members[i].acquitted_ns) >=
		    late__acquittal_ns(comm->late[sight]))
			continue;
		rank_set__drop(&f->culprits, i);
		rank_set__add(&f->waiting, i);
	}
	if (!rank_set__count(&f->culprits))
		*f = verdict_comm__nothing(comm);
}

void verdicts__acquit(struct verdicts *verdicts)
{
	struct suspect *suspects = NULL, *suspect, *next;
	struct verdict_comm *comm;
	bool any_late = false;

	for (comm = verdicts->first; comm; comm = comm->next)
		any_late |= comm->finding.state == VERDICT_STRAGGLER;
	for (comm = verdicts->first; comm && any_late; comm = comm->next)
		suspects__gather(&suspects, comm);
	for (comm = verdicts->first; comm && any_late; comm = comm->next) {
		if (comm->finding.state == VERDICT_STRAGGLER)
			verdict_comm__acquit(comm, suspects);
	}
	HASH_ITER(hh, suspects, suspect, next)
	{
		HASH_DEL(suspects, suspect);
		free(suspect);
	}
}
