/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who calls with other arguments than its peers at one number. */
#include "verdict_private.h"

/* A job's own reductions are handles, which may differ from rank to rank: one class. */
static uint32_t redop__class(uint32_t redop)
{
	return redop > NCCL_N_REDOPS ? NCCL_N_REDOPS : redop;
}

/*
 * As many bytes by another type are the same to an operation that only moves them. Those that
 * reduce are the others.
 */
static bool entry__moves_alike(const struct entry *entry, const struct verdict_call *call)
{
	uint64_t size = nccl_datatype__size(entry->datatype);
	uint64_t other = nccl_datatype__size(call->datatype);

	switch (call->operation) {
	case NCCL_OP_AllReduce:
	case NCCL_OP_Reduce:
	case NCCL_OP_ReduceScatter:
		return false;
	default:
		return size && other && entry->count * size == call->count * other &&
		       (entry->root < 0 || call->root < 0 || entry->root == call->root);
	}
}

/* False: they agree as far as known. */
static bool entry__differs(const struct entry *entry, const struct verdict_call *call,
			   struct disagreement *ret)
{
	if (entry__moves_alike(entry, call))
		return false;
	if (entry->datatype != ~0U && call->datatype != ~0U && entry->datatype != call->datatype) {
		ret->kind = VERDICT_MISMATCH_DATATYPE;
		ret->value = entry->datatype;
		ret->other = call->datatype;
	} else if (entry->count != call->count) {
		ret->kind = VERDICT_MISMATCH_COUNT;
		ret->value = entry->count;
		ret->other = call->count;
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

/* Those that came before and did not differ. */
static void disagreement__begin(struct disagreement *d, const struct verdict_comm *comm,
				const struct entry *entry)
{
	const struct track *track = comm->tracks[d->operation];

	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint32_t column = comm->members[i].column;
		uint64_t arrival = track__arrived(track, entry, column);

		if (arrival && !(arrival & ARRIVAL_AGAINST))
			rank_set__add(&d->with, column);
	}
}

/* About arguments, at the number of that call. */
static bool disagreement__is_at(const struct disagreement *d, const struct verdict_call *call)
{
	return d->kind != VERDICT_MISMATCH_OPERATION && d->operation == call->operation &&
	       d->sequence == call->sequence;
}

static void disagreement__agreed(struct disagreement *d, const struct entry *entry,
				 const struct verdict_call *call, uint32_t column)
{
	if (disagreement__is_at(d, call))
		rank_set__add(&d->with, column);
	else if (entry->n_came > 1 && !entry->n_against)
		d->agreed_ns = call->time_ns;
}

bool entry__compare(struct verdict_comm *comm, struct entry *entry, const struct verdict_call *call,
		    uint32_t index)
{
	uint32_t column = comm->members[index].column;
	struct disagreement d = {.is_there = true, .after = NCCL_OP_MAX}, *known = &comm->mismatch;

	if (entry->datatype == ~0U)
		entry->datatype = call->datatype;
	if (entry->redop == ~0U)
		entry->redop = call->redop;
	if (entry->root < 0)
		entry->root = call->root;
	if (!entry__differs(entry, call, &d)) {
		if (known->is_there)
			disagreement__agreed(known, entry, call, column);
		return false;
	}
	if (!known->is_there) {
		d.operation = d.other_operation = call->operation;
		d.sequence = d.other_sequence = call->sequence;
		d.since_ns = entry->first_ns;
		disagreement__begin(&d, comm, entry);
		rank_set__drop(&d.with, column); /* its arrival is not marked yet */
		*known = d;
	}
	if (disagreement__is_at(known, call))
		rank_set__add(&known->against, column);
	known->last_ns = later(known->last_ns, call->time_ns);
	known->n += !entry->n_against++;
	entry->kind = d.kind;
	return true;
}

void entry__count_mismatch(struct verdict_comm *comm, enum nccl_operation operation,
			   struct entry *entry)
{
	uint32_t n_with = entry->n_came - entry->n_against;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint64_t arrival =
			track__arrived(comm->tracks[operation], entry, comm->members[i].column);
		bool is_against = arrival & ARRIVAL_AGAINST;

		if (!arrival)
			continue;
		if (is_against ? entry->n_against <= n_with : n_with <= entry->n_against)
			comm->ranks[i].mismatches[entry->kind]++;
	}
	entry->n_against = 0; /* counted */
}

/* A mismatch that hangs the job is counted too, though not all ranks will come to its number. */
static void verdict_comm__count_known(struct verdict_comm *comm, uint64_t now_ns)
{
	const struct disagreement *d = &comm->mismatch;
	struct entry *entry = verdict_comm__entry(comm, d->operation, d->sequence);

	if (entry && entry->n_against && since(now_ns, d->last_ns) > NSEC_PER_SEC)
		entry__count_mismatch(comm, d->operation, entry);
}

bool verdict_comm__find_mismatch(struct verdict_comm *comm, uint64_t now_ns, struct finding *ret)
{
	struct disagreement *d = &comm->mismatch;
	uint32_t n_with, n_against;

	if (d->is_there && d->agreed_ns > d->last_ns + AGREEMENT_NS)
		*d = (struct disagreement){.after = NCCL_OP_MAX};
	if (!d->is_there || !comm->n_living)
		return false;
	n_with = rank_set__count(&d->with);
	n_against = rank_set__count(&d->against);
	/* those who have yet to come tell which side is the majority */
	if (n_with + n_against < comm->n_living && since(now_ns, d->since_ns) < 2 * NSEC_PER_SEC &&
	    comm->now.state != VERDICT_MISMATCH)
		return false;
	verdict_comm__count_known(comm, now_ns);
	*ret = (struct finding){
		.state = VERDICT_MISMATCH,
		.cause = VERDICT_DISAGREE,
		.mismatch = d->kind,
		.since_ns = d->since_ns,
		.operation = d->operation,
		.sequence = d->sequence,
	};
	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint32_t column = comm->members[i].column;
		bool is_against = rank_set__has(&d->against, column);

		if (!is_against && !rank_set__has(&d->with, column))
			continue;
		/* of two halves nobody can tell which one is wrong: all are named */
		if (is_against ? n_against <= n_with : n_with <= n_against)
			rank_set__add(&ret->culprits, i);
	}
	return true;
}
