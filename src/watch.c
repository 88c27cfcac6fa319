/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ranks that are watched, and their calls as probes tell of them. */
#include "watch_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REFRESH_NS     NSEC_PER_SEC
#define MAX_REFRESH_NS (15 * NSEC_PER_SEC) /* between two, however long they take */
#define KEEP_NS	       (60 * NSEC_PER_SEC) /* what has ended */

/* ---- members ---- */

static uint32_t key__slot(const struct watch_key *key)
{
	return ((key->hash ^ key->tgid ^ (uint64_t)key->rank << 32) * 0x9e3779b97f4a7c15ULL) >> 54;
}

_Static_assert(WATCH_RECENT == 1 << (64 - 54), "key__slot");

struct watch_member *watch__find(struct watch *w, uint64_t hash, uint32_t tgid, int32_t rank)
{
	const struct watch_key key = {hash, tgid, rank};
	struct watch_member **recent = &w->recent[key__slot(&key)], *m = *recent;

	if (m && !memcmp(&m->key, &key, sizeof(key)))
		return m;
	HASH_FIND(hh, w->members, &key, sizeof(key), m);
	if (m)
		*recent = m;
	return m;
}

static struct watch_member *watch__add(struct watch *w, const struct comm *comm, uint64_t now_ns)
{
	struct watch_member *m = NULL;

	if (HASH_COUNT(w->members) < WATCH_MAX_MEMBERS)
		m = calloc(1, sizeof(*m));
	if (!m) {
		w->refused++;
		return NULL;
	}
	m->key = (struct watch_key){comm->key.hash, comm->key.tgid, comm->key.rank};
	m->name = (struct verdict_member){
		.hash = comm->key.hash,
		.rank = comm->key.rank,
		.n_ranks = comm->n_ranks,
		.tgid = comm->key.tgid,
	};
	m->met_ns = m->asked_ns = now_ns;
	m->left = true; /* not joined yet */
	HASH_ADD(hh, w->members, key, sizeof(m->key), m);
	return m;
}

static void watch__drop(struct watch *w, struct watch_member *m)
{
	struct watch_member **recent = &w->recent[key__slot(&m->key)];

	if (*recent == m)
		*recent = NULL;
	watch__drop_held(w, m);
	HASH_DEL(w->members, m);
	free(m);
}

/* That all its calls were seen is often known only after the first ones. */
static void watch__make_whole(struct watch *w, struct watch_member *m, uint64_t now_ns)
{
	m->whole = true;
	for (int i = 0; i < NCCL_OP_MAX; i++) {
		uint64_t own = watch_number__own(&m->numbers[i]);

		if (own != VERDICT_NO_SEQUENCE && watch_number__reached(&m->numbers[i], own))
			verdicts__reached(w->verdicts, &m->name, i, own, now_ns);
	}
}

/* Tells the judge where anything is new. */
static void watch__join(struct watch *w, struct watch_member *m, const struct comm *comm,
			uint64_t now_ns)
{
	bool whole = comm->identity == COMM_OBSERVED, was_whole = m->whole;

	if (!m->left && was_whole == whole && m->n_nodes == comm->n_nodes)
		return;
	if (!m->left && whole && !was_whole)
		watch__make_whole(w, m, now_ns);
	m->whole = whole;
	m->n_nodes = comm->n_nodes;
	m->left = false;
	verdicts__join(w->verdicts, &m->name, whole, m->n_nodes, now_ns);
}

struct watch_member *watch__member(struct watch *w, const struct comm *comm, uint64_t now_ns)
{
	struct watch_member *m;

	/* Who bears another's name is not taken for it. */
	if (!comm->key.hash || comm->key.rank < 0 || comm->n_ranks <= comm->key.rank ||
	    comm->is_double)
		return NULL;
	m = watch__find(w, comm->key.hash, comm->key.tgid, comm->key.rank);
	m = m ?: watch__add(w, comm, now_ns);
	if (m)
		watch__join(w, m, comm, now_ns);
	return m;
}

void watch__leave(struct watch *w, struct watch_member *m, enum verdict_end how, uint64_t time_ns)
{
	if (m->left)
		return;
	m->left = true;
	m->errors[WATCH_ABORTED] += how == VERDICT_END_ABORTED;
	w->left_ns[w->n_left++ % WATCH_KEPT] = time_ns;
	watch__drop_held(w, m);
	verdicts__leave(w->verdicts, &m->name, how, time_ns);
}

/* Those that the last round did not find have no communicator any more. */
static void watch__sweep(struct watch *w, uint64_t now_ns)
{
	struct watch_member *m, *next;

	HASH_ITER(hh, w->members, m, next)
	{
		if (m->round == w->round)
			continue;
		watch__leave(w, m, VERDICT_END_DESTROYED, now_ns);
		watch__drop(w, m);
	}
}

/* What ended is kept for a while; of very many, the last ones. */
static void watch__expire(struct watch *w, uint64_t now)
{
	uint64_t before_ns = now > KEEP_NS ? now - KEEP_NS : 0;
	uint64_t kept_ns = w->left_ns[w->n_left % WATCH_KEPT]; /* 0: there were fewer */

	verdicts__expire(w->verdicts, kept_ns > before_ns ? kept_ns : before_ns);
}

/* Whoever makes and ends communicators all the time does not make us hold all of them. */
static void watch__make_room(struct watch *w, uint64_t now)
{
	if (++w->n_new < WATCH_KEPT)
		return;
	w->n_new = 0;
	watch__take_comms(w, now);
	watch__expire(w, now);
}

/* ---- calls ---- */

static struct watch_member *watch__caller(struct watch *w, const struct nb_record *r)
{
	struct watch_member *m = watch__find(w, r->comm_hash, r->tgid, r->rank);
	const struct comm *comm;

	if (m && !m->left)
		return m;
	watch__make_room(w, r->time_ns);
	comm = comms__meet(tracer__comms(w->tracer), r);
	return comm && !comm->dead_ns && !comm->finalized_ns ? watch__member(w, comm, r->time_ns)
							     : NULL;
}

static bool operation__is_one_sided(enum nccl_operation operation)
{
	return operation == NCCL_OP_PutSignal || operation == NCCL_OP_Signal ||
	       operation == NCCL_OP_WaitSignal;
}

static void on_call(void *ctx, const struct nb_record *r)
{
	const enum nccl_operation operation = nccl_functions[r->function].operation;
	struct watch *w = ctx;
	struct verdict_call call;
	struct watch_member *m;

	if (!r->comm_hash || r->rank < 0)
		return;
	m = watch__caller(w, r);
	if (!m)
		return;
	m->heard_ns = r->time_ns;
	if (operation__is_one_sided(operation)) {
		verdicts__moved(w->verdicts, &m->name, r->time_ns);
		return;
	}
	call = (struct verdict_call){
		.member = m->name,
		.operation = operation,
		.sequence = watch_number__call(&m->numbers[operation], r, m->whole),
		.time_ns = r->time_ns,
		.count = r->count,
		.datatype = r->datatype,
		.redop = r->redop == ~0U || r->redop < NCCL_N_REDOPS ? r->redop : NCCL_N_REDOPS,
		.root = r->root,
		.captured = r->pending == NB_PENDING_CAPTURED,
	};
	m->blind |= !call.captured && call.sequence == VERDICT_NO_SEQUENCE &&
		    r->sequence != NB_NO_SEQUENCE;
	verdicts__call(w->verdicts, &call);
}

/* ---- the whole ---- */

int watch__new(struct watch **ret, struct tracer *tracer, const struct verdict_options *options)
{
	struct watch *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	w->tracer = tracer;
	err = verdicts__new(&w->verdicts, options) ?: tracer__on_call(tracer, on_call, w)
						   ?: watch__listen_to_plugins(w);
	if (err) {
		watch__free(w);
		return err;
	}
	*ret = w;
	return 0;
}

void watch__free(struct watch *w)
{
	if (!w)
		return;
	while (w->members)
		watch__drop(w, w->members);
	verdicts__free(w->verdicts);
	free(w);
}

/*
 * So often that graphs and counters tell in time, sooner where records were lost, and never so that
 * it costs much.
 */
static void watch__refresh(struct watch *w, uint64_t now)
{
	uint64_t due_ns = w->refresh_ns * 100, start;

	due_ns = due_ns < REFRESH_NS	   ? REFRESH_NS
		 : due_ns > MAX_REFRESH_NS ? MAX_REFRESH_NS
					   : due_ns;
	if (watch__has_new_losses(w))
		due_ns /= 10;
	if (now < tracer__refreshed_ns(w->tracer) + due_ns)
		return;
	start = now_ns();
	tracer__refresh(w->tracer);
	w->refresh_ns = now_ns() - start;
}

void watch__settle(struct watch *w, uint64_t now_ns)
{
	w->round++;
	w->n_new = 0;
	watch__refresh(w, now_ns);
	verdicts__replays_as_of(w->verdicts, tracer__refreshed_ns(w->tracer));
	watch__take_losses(w, now_ns);
	watch__take_comms(w, now_ns);
	watch__release_held(w, now_ns);
	watch__sweep(w, now_ns);
	verdicts__settle(w->verdicts, now_ns);
	watch__expire(w, now_ns);
	watch__read_again(w, now_ns);
}

struct verdicts *watch__verdicts(struct watch *w)
{
	return w->verdicts;
}

const uint64_t *watch__errors(const struct watch *w, const struct verdict_member *member)
{
	const struct watch_key key = {member->hash, member->tgid, member->rank};
	const struct watch_member *m;

	HASH_FIND(hh, w->members, &key, sizeof(key), m);
	return m ? m->errors : NULL;
}

const char *watch_error__name(int error)
{
	return error == WATCH_ABORTED ? "ncclCommAbort" : nccl_result__name(error);
}

uint64_t watch__refused(const struct watch *w)
{
	return w->refused + verdicts__refused(w->verdicts);
}
