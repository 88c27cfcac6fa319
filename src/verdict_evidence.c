/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The figures that a verdict rests on: a line a rank, those to blame first. */
#include "verdict_private.h"

static void text__add_gpu(struct text *text, const struct verdict_gpu *gpu, uint64_t now_ns)
{
	if (!gpu->n_in_flight) {
		text__add(text, "; GPU: nothing in flight");
		return;
	}
	text__add(text, "; GPU: %u in flight, ", gpu->n_in_flight);
	text__add_call(text, gpu->operation, gpu->sequence);
	text__add(text, " launched ");
	text__add_age(text, since(now_ns, gpu->launch_ns));
	text__add(text, " ago, %s",
		  gpu->started	     ? "started"
		  : gpu->start_known ? "not started"
				     : "not known whether started");
}

static void text__add_last_call(struct text *text, const struct verdict_rank *rank,
				const struct member *m, uint64_t now_ns)
{
	if (rank->last_ns) {
		text__add(text, "last call ");
		text__add_call(text, rank->last_operation, rank->last_sequence);
		text__add(text, ", ");
		text__add_age(text, since(now_ns, rank->last_ns));
		text__add(text, " ago");
		return;
	}
	text__add(text, "no call seen");
	for (int op = 0; op < N_COLLECTIVES; op++) {
		if (!m->reached[op] || m->reached[op] == VERDICT_NO_SEQUENCE)
			continue;
		text__add(text, "; stands at ");
		text__add_call(text, op, m->reached[op]);
	}
}

/* After a loss the exact counters tell where a rank stands, though nobody is accused. */
static void text__add_counters(struct text *text, const struct verdict_rank *rank,
			       const struct member *m)
{
	for (int op = 0; op < N_COLLECTIVES; op++) {
		if (!m->reached[op] || m->reached[op] == VERDICT_NO_SEQUENCE ||
		    (op == (int)rank->last_operation && m->reached[op] == rank->last_sequence))
			continue;
		text__add(text, "; %s counted to %llu", nccl_operation__name(op),
			  (unsigned long long)m->reached[op]);
	}
}

static void verdict_comm__add_rank(const struct verdict_comm *comm, struct verdict *v, uint32_t i,
				   uint64_t now_ns)
{
	const struct verdict_rank *rank = &comm->ranks[i];
	const struct member *m = &comm->members[i];
	struct text text = {v->evidence[v->n_evidence], VERDICT_TEXT};

	v->n_evidence++;
	text__add(&text, "Rank %d (pid %u): ", rank->member.rank, rank->member.tgid);
	text__add_last_call(&text, rank, m, now_ns);
	if (v->state == VERDICT_DEGRADED_SIGHT && rank->last_ns)
		text__add_counters(&text, rank, m);
	if (v->cause == VERDICT_MISSING_LAUNCH)
		text__add(&text, "; %llu operations replayed", (unsigned long long)m->replays.n);
	if (m->has_left) {
		text__add(&text, "; ended ");
		text__add_age(&text, since(now_ns, m->left_ns));
		text__add(&text, " ago");
	} else if (rank->gpu_told_ns) {
		text__add_gpu(&text, &rank->gpu, now_ns);
	}
	if (rank->n_compared && v->state == VERDICT_STRAGGLER)
		text__add(&text, "; late by %.1f ms (most %.1f), last at %u of %u numbers",
			  rank->lateness_ns / 1e6, rank->lateness_max_ns / 1e6, rank->n_last,
			  rank->n_compared);
}

static void verdict_comm__add_chain(const struct verdict_comm *comm, struct verdict *v)
{
	const struct chain *chain = &comm->chain;
	struct text text = {v->evidence[v->n_evidence], VERDICT_TEXT};

	if (!chain->hash)
		return;
	v->n_evidence++;
	text__add(&text, "Rank %d waits in communicator %016llx, in ", chain->rank,
		  (unsigned long long)chain->hash);
	text__add_call(&text, chain->operation, chain->sequence);
	if (chain->culprit >= 0)
		text__add(&text, ", for rank %d there (pid %d)", chain->culprit,
			  chain->culprit_tgid);
}

/* It goes on somewhere else: which tells a program's fault from a stopped process. */
static void verdict_comm__add_elsewhere(const struct verdict_comm *comm, struct verdict *v)
{
	struct text text = {v->evidence[v->n_evidence], VERDICT_TEXT};
	uint32_t culprit = 0;

	while (culprit < comm->n_members && !rank_set__has(&comm->finding.culprits, culprit))
		culprit++;
	if (v->cause != VERDICT_MISSING_CALL || culprit == comm->n_members)
		return;
	for (const struct verdict_comm *other = comm->owner->first; other; other = other->next) {
		for (uint32_t i = 0; other != comm && i < other->n_members; i++) {
			const struct member *m = &other->members[i];

			if (other->ranks[i].member.tgid != comm->ranks[culprit].member.tgid ||
			    m->has_left || m->active_ns <= v->since_ns + MIN_THRESHOLD_NS)
				continue;
			v->n_evidence++;
			text__add(&text, "Rank %d goes on in communicator %016llx",
				  comm->ranks[culprit].member.rank,
				  (unsigned long long)other->hash);
			return;
		}
	}
}

static void verdict_comm__add_ranks(const struct verdict_comm *comm, struct verdict *v,
				    const struct rank_set *set, bool is_in, uint64_t now_ns)
{
	for (uint32_t i = 0; i < comm->n_members && v->n_evidence < VERDICT_MAX_EVIDENCE; i++) {
		if (set == &comm->finding.waiting && rank_set__has(&comm->finding.culprits, i))
			continue;
		if (rank_set__has(set, i) == is_in)
			verdict_comm__add_rank(comm, v, i, now_ns);
	}
}

void verdict_comm__add_evidence(const struct verdict_comm *comm, struct verdict *v, uint64_t now_ns)
{
	const struct finding *f = &comm->finding;

	verdict_comm__add_chain(comm, v);
	verdict_comm__add_elsewhere(comm, v);
	verdict_comm__add_ranks(comm, v, &f->culprits, true, now_ns);
	verdict_comm__add_ranks(comm, v, &f->waiting, true, now_ns);
	verdict_comm__add_ranks(comm, v, &f->waiting, false, now_ns);
}
