/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One sentence for whoever reads it at 3 a.m. */
#include "verdict_private.h"

static void text__add_culprits(struct text *text, const struct verdict *v)
{
	text__add_ranks(text, &v->culprits, "Rank", "Ranks");
}

static const char *has(const struct verdict_named *named)
{
	return named->n == 1 ? "has" : "have";
}

/* ---- nobody to blame ---- */

static void why__healthy(const struct verdict_comm *comm, struct text *text)
{
	text__add(text, comm->n_living > 1 ? "Its ranks call on, and none keeps the others waiting."
					   : "Its rank on this node calls on.");
	if (comm->n_living > 1 && !comm->n_compared)
		text__add(text, " They cannot be compared: no calls with absolute numbers.");
}

static void why__idle(const struct verdict_comm *comm, struct text *text, uint64_t now_ns)
{
	if (!comm->n_living) {
		text__add(text, "Its ranks on this node have ended.");
		return;
	}
	text__add(text, comm->active_ns ? "Nobody has called for " : "No call was seen in ");
	text__add_age(text, since(now_ns, later(comm->active_ns, comm->known_ns)));
	text__add(text, ", and no rank is known to be behind.");
}

static void why__contested(const struct verdict_comm *comm, struct text *text)
{
	const struct verdict_rank *last = NULL;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct verdict_rank *rank = &comm->ranks[i];

		if (comm->members[i].has_left)
			continue;
		if (last && last->member.rank == rank->member.rank) {
			text__add(text,
				  "Processes %u and %u both claim rank %d: nothing can be said.",
				  last->member.tgid, rank->member.tgid, rank->member.rank);
			return;
		}
		last = rank;
	}
}

/* Of a communicator of this node alone. */
static void why__unseen(const struct verdict_comm *comm, const struct verdict_named *unseen,
			struct text *text, uint64_t now_ns)
{
	text__add(text, comm->active_ns ? "Nobody has called for " : "No call was seen in ");
	text__add_age(text, since(now_ns, later(comm->active_ns, comm->known_ns)));
	text__add(text, ", and ");
	text__add_ranks(text, unseen, "rank", "ranks");
	text__add(text, " of this node %s never seen: ended before, or not traced.",
		  unseen->n == 1 ? "was" : "were");
}

static void why__unknown(const struct verdict_comm *comm, struct text *text, uint64_t now_ns)
{
	struct verdict_named unseen;

	if (comm->is_contested)
		why__contested(comm, text);
	else if (since(now_ns, later(comm->active_ns, comm->known_ns)) >= MIN_KNOWN_NS &&
		 verdict_comm__unseen(comm, &unseen))
		why__unseen(comm, &unseen, text, now_ns);
	else if (comm->active_ns && !comm->n_compared && comm->n_living > 1)
		text__add(text, "Not enough seen: no number yet at which all its ranks called.");
	else
		text__add(text, "Not enough seen yet.");
}

/* ---- who keeps others waiting ---- */

static void why__missing(const struct verdict_comm *comm, const struct verdict *v,
			 struct text *text, uint64_t age_ns)
{
	text__add_culprits(text, v);
	if (v->operation == NCCL_OP_Send) {
		text__add(text, " %s not sent what ", has(&v->culprits));
		text__add_ranks(text, &v->waiting, "rank", "ranks");
		text__add(text, " %s waited to receive for ", has(&v->waiting));
		text__add_age(text, age_ns);
	} else {
		text__add(text, " %s not called ", has(&v->culprits));
		text__add_call(text, v->operation, v->sequence);
		text__add(text, ", in which ");
		text__add_ranks(text, &v->waiting, "rank", "ranks");
		text__add(text, " %s waited for ", has(&v->waiting));
		text__add_age(text, age_ns);
	}
	text__add(text, ".");
	if (comm->chain.hash)
		text__add(text, " Rank %d itself waits in communicator %016llx.", comm->chain.rank,
			  (unsigned long long)comm->chain.hash);
}

static void why__not_launched(const struct verdict *v, struct text *text, uint64_t age_ns)
{
	text__add_culprits(text, v);
	text__add(text, " %s not launched %s CUDA graphs as often as ", has(&v->culprits),
		  v->culprits.n == 1 ? "its" : "their");
	text__add_ranks(text, &v->waiting, "rank", "ranks");
	text__add(text, ", which %s waited for ", has(&v->waiting));
	text__add_age(text, age_ns);
	text__add(text, ".");
}

static void why__not_started(const struct verdict *v, struct text *text, uint64_t age_ns)
{
	text__add(text, "The GPU of ");
	text__add_ranks(text, &v->culprits, "rank", "ranks");
	text__add(text, " has not started ");
	text__add_call(text, v->operation, v->sequence);
	text__add(text, " for ");
	text__add_age(text, age_ns);
	text__add(text, ": it is busy with something before it");
	if (v->waiting.n) {
		text__add(text, ", while ");
		text__add_ranks(text, &v->waiting, "rank", "ranks");
		text__add(text, " %s in it", v->waiting.n == 1 ? "waits" : "wait");
	}
	text__add(text, ".");
}

/* What they called it with is known of all of them, so they agree. */
static bool verdict_comm__saw_all(const struct verdict_comm *comm, const struct verdict *v)
{
	const struct entry *entry = v->operation < N_COLLECTIVES
					    ? verdict_comm__entry(comm, v->operation, v->sequence)
					    : NULL;

	return entry && entry->n_came >= comm->n_living;
}

static void why__not_done(const struct verdict_comm *comm, const struct verdict *v,
			  struct text *text, uint64_t age_ns)
{
	text__add(text, "All ranks have called ");
	text__add_call(text, v->operation, v->sequence);
	if (v->culprits.n) {
		text__add(text, ", and only the GPU of ");
		text__add_ranks(text, &v->culprits, "rank", "ranks");
		text__add(text, " has not got it done for ");
	} else {
		text__add(text, ", and no GPU gets it done for ");
	}
	text__add_age(text, age_ns);
	text__add(text, v->culprits.n		 ? "."
			: comm->finding.in_queue ? "; whether they have begun is not known."
			: verdict_comm__saw_all(comm, v)
				? ": look at link and network."
				: ": look at link and network, and whether they call it alike, as "
				  "not all of their calls were seen.");
}

static void why__elsewhere(const struct verdict_comm *comm, const struct verdict *v,
			   struct text *text, uint64_t age_ns)
{
	struct verdict_named unseen;

	text__add(text, "All ranks of this node have been in ");
	text__add_call(text, v->operation, v->sequence);
	text__add(text, " on their GPUs for ");
	text__add_age(text, age_ns);
	text__add(text, ": they wait for ");
	if (verdict_comm__unseen(comm, &unseen)) {
		text__add_ranks(text, &unseen, "rank", "ranks");
		text__add(text, ", never seen here: ended before, or not traced.");
	} else {
		text__add(text, "ranks of other nodes, or for the network.");
	}
}

static void why__ended(const struct verdict_comm *comm, const struct verdict *v, struct text *text,
		       uint64_t age_ns)
{
	text__add_culprits(text, v);
	text__add(text, v->state == VERDICT_ABORTED ? " ended " : " ended the communicator ");
	text__add_age(text, age_ns);
	text__add(text, " ago");
	if (comm->n_living) {
		text__add(text, ", while ");
		text__add_ranks(text, &v->waiting, "rank", "ranks");
		text__add(text, " %s for it in ", v->waiting.n == 1 ? "waits" : "wait");
		text__add_call(text, v->operation, v->sequence);
	}
	text__add(text, ".");
}

static void why__waits(const struct verdict_comm *comm, const struct verdict *v, struct text *text,
		       uint64_t age_ns)
{
	switch (v->cause) {
	case VERDICT_MISSING_LAUNCH:
		why__not_launched(v, text, age_ns);
		break;
	case VERDICT_GPU_NOT_STARTED:
		why__not_started(v, text, age_ns);
		break;
	case VERDICT_GPU_NOT_DONE:
		why__not_done(comm, v, text, age_ns);
		break;
	case VERDICT_ELSEWHERE:
		why__elsewhere(comm, v, text, age_ns);
		break;
	case VERDICT_ENDED:
		why__ended(comm, v, text, age_ns);
		break;
	default:
		why__missing(comm, v, text, age_ns);
	}
}

/* ---- who is late, who disagrees ---- */

static void why__straggler(const struct verdict_comm *comm, const struct verdict *v,
			   struct text *text)
{
	bool is_gpu = v->cause == VERDICT_LATE_ON_GPU;
	const struct late *late = comm->late[is_gpu ? LATE_ON_GPU : LATE_ON_HOST];

	if (is_gpu) {
		text__add(text, "The GPU of ");
		text__add_ranks(text, &v->culprits, "rank", "ranks");
	} else {
		text__add_culprits(text, v);
	}
	text__add(text, is_gpu		     ? " starts last again and again"
			: v->culprits.n == 1 ? " comes last again and again"
					     : " come last again and again");
	if (late)
		text__add(text, ": the others lose %.0f %% of the time to %s", late->waste * 100,
			  v->culprits.n == 1 ? "it" : "them");
	if (v->operation != NCCL_OP_MAX) {
		text__add(text, "; lately at ");
		text__add_call(text, v->operation, v->sequence);
	}
	text__add(text, ".");
}

static void why__slow(const struct verdict_comm *comm, const struct verdict *v, struct text *text)
{
	for (uint32_t i = 0; comm->timed && i < SLOW_CLASSES; i++) {
		const struct transfer *t = &comm->timed->transfers[i];
		uint64_t last = (t->n_buckets + SLOW_BUCKETS - 1) % SLOW_BUCKETS;

		if (!t->is_slow || t->operation != v->operation)
			continue;
		text__add(
			text,
			"%s of %.4g KiB or more takes %.3g ms, %.1f times what it used to (%.3g ms)",
			nccl_operation__name(t->operation), (double)(1ULL << t->size) / 1024,
			t->bucket_ns[last] / 1e6, t->bucket_ns[last] / t->usual_ns,
			t->usual_ns / 1e6);
		break;
	}
	text__add(text, comm->n_living < (uint32_t)comm->n_ranks
				? ": the transfer itself, or ranks of other nodes."
				: ": the transfer itself; no rank is late.");
}

static void text__add_sides(struct text *text, const struct verdict_comm *comm,
			    const struct rank_set *columns, const char *one, const char *many)
{
	struct verdict_named named = {};

	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!rank_set__has(columns, comm->members[i].column))
			continue;
		if (named.n < VERDICT_MAX_NAMED)
			named.ranks[named.n] = comm->ranks[i].member.rank;
		named.n++;
	}
	text__add_ranks(text, &named, "rank", "ranks");
	text__add(text, " %s ", named.n == 1 ? one : many);
}

static void text__add_value(struct text *text, enum verdict_mismatch kind, uint64_t value)
{
	switch (kind) {
	case VERDICT_MISMATCH_DATATYPE:
		text__add(text, "%s", nccl_datatype__name(value));
		break;
	case VERDICT_MISMATCH_REDOP:
		text__add(text, "%s", nccl_redop__name(value));
		break;
	case VERDICT_MISMATCH_ROOT:
		text__add(text, "root %llu", (unsigned long long)value);
		break;
	default:
		text__add(text, "%llu elements", (unsigned long long)value);
	}
}

static void why__order(const struct verdict_comm *comm, struct text *text)
{
	const struct disagreement *d = &comm->mismatch;

	if (d->after != NCCL_OP_MAX) {
		text__add(text, "After ");
		text__add_call(text, d->after, d->after_sequence);
		text__add(text, ", ");
	} else {
		text__add(text, "The order differs: ");
	}
	text__add_sides(text, comm, &d->with, "calls", "call");
	text__add_call(text, d->operation, d->sequence);
	text__add(text, ", but ");
	text__add_sides(text, comm, &d->against, "calls", "call");
	text__add_call(text, d->other_operation, d->other_sequence);
	text__add(text, ".");
}

static void why__mismatch(const struct verdict_comm *comm, struct text *text)
{
	const struct disagreement *d = &comm->mismatch;

	if (d->kind == VERDICT_MISMATCH_OPERATION) {
		why__order(comm, text);
		return;
	}
	text__add_call(text, d->operation, d->sequence);
	text__add(text, ": ");
	text__add_sides(text, comm, &d->with, "calls with", "call with");
	text__add_value(text, d->kind, d->value);
	text__add(text, ", ");
	text__add_sides(text, comm, &d->against, "with", "with");
	text__add_value(text, d->kind, d->other);
	text__add(text, ".");
}

static void why__error(const struct verdict_comm *comm, const struct verdict *v, struct text *text)
{
	text__add_culprits(text, v);
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!comm->members[i].error[0] || comm->members[i].has_left)
			continue;
		text__add(text, v->culprits.n == 1 ? " reports %s." : " report an error: %s.",
			  comm->members[i].error);
		return;
	}
}

static void why__lost(struct text *text, uint64_t age_ns)
{
	text__add(text, "Records were lost ");
	text__add_age(text, age_ns);
	text__add(text, " ago, and its ranks have not been seen at one number since:"
			" nobody is accused.");
}

void verdict_comm__explain(const struct verdict_comm *comm, struct verdict *v, uint64_t now_ns)
{
	struct text text = {v->why, sizeof(v->why)};
	uint64_t age_ns = since(now_ns, v->since_ns);

	v->n_evidence = 0;
	v->why[0] = 0;
	if (v->state == VERDICT_HEALTHY)
		why__healthy(comm, &text);
	else if (v->state == VERDICT_IDLE)
		why__idle(comm, &text, now_ns);
	else if (v->state == VERDICT_UNKNOWN)
		why__unknown(comm, &text, now_ns);
	else if (v->state == VERDICT_DEGRADED_SIGHT)
		why__lost(&text, age_ns);
	else if (v->state == VERDICT_STRAGGLER)
		why__straggler(comm, v, &text);
	else if (v->state == VERDICT_SLOW)
		why__slow(comm, v, &text);
	else if (v->state == VERDICT_MISMATCH)
		why__mismatch(comm, &text);
	else if (v->state == VERDICT_ERROR)
		why__error(comm, v, &text);
	else if (v->state == VERDICT_ABORTED && v->cause != VERDICT_ENDED) {
		text__add_culprits(&text, v);
		text__add(&text, " aborted the communicator ");
		text__add_age(&text, age_ns);
		text__add(&text, " ago.");
	} else {
		why__waits(comm, v, &text, age_ns);
	}
	if (v->state != VERDICT_HEALTHY && v->state != VERDICT_IDLE)
		verdict_comm__add_evidence(comm, v, now_ns);
}
