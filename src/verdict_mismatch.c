/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who calls something else than its peers at one number. */
#include <string.h>

#include "verdict_private.h"

/* Built-in reductions have the same number everywhere; a job's own ones are handles of a rank. */
static uint32_t redop__class(uint32_t redop)
{
	return redop > 5 ? 5 : redop;
}

/* False: they agree as far as known. */
static bool entry__differs(const struct entry *entry, const struct verdict_call *call,
			   struct disagreement *ret)
{
	if (entry->count != call->count) {
		ret->kind = VERDICT_MISMATCH_COUNT;
		ret->value = entry->count;
		ret->other = call->count;
	} else if (entry->datatype != call->datatype) {
		ret->kind = VERDICT_MISMATCH_DATATYPE;
		ret->value = entry->datatype;
		ret->other = call->datatype;
	} else if (entry->redop != ~0U && call->redop != ~0U &&
		   redop__class(entry->redop) != redop__class(call->redop)) {
		ret->kind = VERDICT_MISMATCH_REDOP;
		ret->value = entry->redop;
		ret->other = call->redop;
	} else if (entry->root >= 0 && call->root >= 0 && entry->root != call->root) {
		ret->kind = VERDICT_MISMATCH_ROOT;
		ret->value = entry->root;
		ret->other = call->root;
	} else {
		return false;
	}
	return true;
}

/* Those that came before, but for the one that differs. */
static void disagreement__sides(struct disagreement *d, const struct verdict_comm *comm,
				const struct entry *entry, uint32_t against)
{
	const struct track *track = comm->tracks[d->operation];

	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint32_t column = comm->members[i].column;

		if (column != against && *track__arrival(track, entry, column))
			rank_set__add(&d->with, column);
	}
	rank_set__add(&d->against, against);
}

void entry__compare(struct verdict_comm *comm, struct entry *entry, const struct verdict_call *call,
		    uint32_t index)
{
	uint32_t column = comm->members[index].column;
	struct disagreement d = {.is_there = true}, *known = &comm->mismatch;
	bool is_known = known->is_there && known->operation == call->operation &&
			known->sequence == call->sequence;

	if (entry->redop == ~0U)
		entry->redop = call->redop;
	if (entry->root < 0)
		entry->root = call->root;
	if (!entry__differs(entry, call, &d)) {
		if (is_known)
			rank_set__add(&known->with, column);
		else if (known->is_there && entry->n_came > 1)
			known->agreed_ns = call->time_ns;
		return;
	}
	comm->ranks[index].mismatches[d.kind]++;
	if (known->is_there) {
		known->last_ns = call->time_ns;
		if (is_known)
			rank_set__add(&known->against, column);
		return;
	}
	d.operation = call->operation;
	d.sequence = call->sequence;
	d.since_ns = entry->first_ns;
	d.last_ns = call->time_ns;
	disagreement__sides(&d, comm, entry, column);
	*known = d;
}

void verdict_comm__find_mismatch(struct verdict_comm *comm, uint64_t now_ns)
{
	struct disagreement *d = &comm->mismatch;
	struct finding *f = &comm->finding;
	uint32_t n_with = rank_set__count(&d->with), n_against = rank_set__count(&d->against);

	(void)now_ns;
	if (d->agreed_ns > d->last_ns + AGREEMENT_NS)
		*d = (struct disagreement){};
	if (!d->is_there)
		return;
	*f = (struct finding){
		.state = VERDICT_MISMATCH,
		.cause = VERDICT_DISAGREE,
		.mismatch = d->kind,
		.since_ns = d->since_ns,
		.operation = d->operation,
		.sequence = d->sequence,
	};
	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint32_t column = comm->members[i].column;

		if ((n_against <= n_with && rank_set__has(&d->against, column)) ||
		    (n_with <= n_against && rank_set__has(&d->with, column)))
			rank_set__add(&f->culprits, i);
	}
}
