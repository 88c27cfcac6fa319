/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From the judge's verdicts and the tracer's picture to what is said. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_diagnose.h"
#include "commands.h"
#include "shown.h"
#include "util.h"

bool diagnosis_comm__is_fine(const struct diagnosis_comm *c)
{
	return !verdict_state__exit_status(c->verdict.state);
}

bool diagnosis_comm__tells_of(const struct diagnosis_comm *c, const struct diagnosis_rank *r)
{
	if (diagnosis_comm__is_fine(c) || c->verdict.state == VERDICT_DEGRADED_SIGHT)
		return false;
	return !c->verdict.culprits.n || r->is_culprit;
}

uint64_t diagnosis_comm__lasted_ns(const struct diagnosis *d, const struct diagnosis_comm *c)
{
	uint64_t until_ns = c->over_ns ?: d->now_ns, since_ns = c->verdict.since_ns;

	return since_ns && until_ns > since_ns ? until_ns - since_ns : 0;
}

/* Who waits, and was not seen to call, has called before: its process may be read a little later.
 */
static bool only_waits(const struct diagnosis_comm *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_local; i++) {
		if (!c->ranks[i].is_waiting)
			continue;
		if (c->ranks[i].last_ns)
			return false;
		n++;
	}
	return n;
}

bool diagnosis_comm__began_before(const struct diagnosis *d, const struct diagnosis_comm *c)
{
	return c->verdict.since_ns && (c->verdict.since_ns <= d->settled_ns || only_waits(c));
}

static const struct diagnosis_rank *first_told_of(const struct diagnosis_comm *c)
{
	for (uint32_t i = 0; i < c->n_local; i++)
		if (diagnosis_comm__tells_of(c, &c->ranks[i]) && !c->ranks[i].ended)
			return &c->ranks[i];
	return NULL;
}

/* Where a process waits for a rank that is named there; NULL: it does not. */
static const struct diagnosis_comm *waits_in(const struct diagnosis *d, uint32_t tgid)
{
	for (size_t i = 0; i < d->n_comms; i++) {
		const struct diagnosis_comm *c = &d->comms[i];

		for (uint32_t r = 0; c->verdict.culprits.n && r < c->n_local; r++)
			if (c->ranks[r].tgid == tgid && c->ranks[r].is_waiting && first_told_of(c))
				return c;
	}
	return NULL;
}

/* Those that wait for one another in a circle are all to be looked at: the first will do. */
const struct diagnosis_rank *diagnosis_comm__next(const struct diagnosis *d,
						  const struct diagnosis_comm *c)
{
	const struct diagnosis_rank *first = first_told_of(c), *r = first;

	for (size_t hops = 0; r && hops < d->n_comms; hops++) {
		c = c->verdict.cause == VERDICT_MISSING_CALL ? waits_in(d, r->tgid) : NULL;
		if (!c)
			return r;
		r = first_told_of(c);
	}
	return first;
}

enum verdict_state diagnosis__state(const struct diagnosis *d)
{
	bool is_unknown = d->n_unseen || d->refused;
	enum verdict_state state = is_unknown ? VERDICT_UNKNOWN : VERDICT_IDLE;

	for (size_t i = 0; i < d->n_comms; i++) {
		enum verdict_state s = d->comms[i].verdict.state;

		if (verdict_state__severity(s) > verdict_state__severity(state) ||
		    (s == VERDICT_HEALTHY && state == VERDICT_IDLE))
			state = s;
	}
	return state;
}

int diagnosis__exit_status(const struct diagnosis *d)
{
	return verdict_state__exit_status(diagnosis__state(d));
}

static bool is_named(const struct verdict_named *named, int32_t rank)
{
	uint32_t n = named->n < VERDICT_MAX_NAMED ? named->n : VERDICT_MAX_NAMED;

	for (uint32_t i = 0; i < n; i++)
		if (named->ranks[i] == rank)
			return true;
	return false;
}

static struct process *find_process(struct tracer *tracer, uint32_t tgid)
{
	return processes__find(tracer__processes(tracer), tgid);
}

static void take_process(struct diagnosis_rank *r, struct tracer *tracer)
{
	const struct process *process = find_process(tracer, r->tgid);

	r->ended = !process || process->gone_ns;
	if (process)
		memcpy(r->command, process->info.command, sizeof(r->command));
}

static void take_gpu(struct diagnosis_rank *r, const struct gpu *gpu)
{
	r->gpu = gpu ? (int)gpu->index : -1;
	if (gpu)
		memcpy(r->uuid, gpu->uuid, sizeof(r->uuid));
}

static void take_rank(struct diagnosis_comm *c, struct diagnosis_rank *r,
		      const struct verdict_rank *from, struct tracer *tracer)
{
	const struct comm *comm = comms__named(tracer__comms(tracer), from->member.tgid,
					       from->member.hash, from->member.rank);

	*r = (struct diagnosis_rank){
		.rank = from->member.rank,
		.tgid = from->member.tgid,
		.is_culprit = is_named(&c->verdict.culprits, from->member.rank),
		.is_waiting = is_named(&c->verdict.waiting, from->member.rank),
		.last_operation = from->last_operation,
		.last_sequence = from->last_sequence,
		.last_ns = from->last_ns,
	};
	if (from->gpu_told_ns)
		r->in_flight = from->gpu;
	take_process(r, tracer);
	take_gpu(r, comm ? tracer__gpu_of(tracer, comm) : NULL);
	c->ended &= r->ended || !comm || comm->dead_ns;
	if (comm && !c->name[0])
		memcpy(c->name, comm->name, sizeof(c->name));
}

/* When the state that was worst gave way to another; 0: it has not. */
static uint64_t find_end(const struct verdict_comm *from, const struct verdict *worst)
{
	struct verdict_event events[VERDICT_MAX_EVENTS];
	uint32_t n = verdict_comm__events(from, events, VERDICT_MAX_EVENTS), i = 0;

	if (verdict_comm__now(from)->state == worst->state)
		return 0;
	while (i < n && events[i].time_ns > worst->confirmed_ns)
		i++;
	return i ? events[i - 1].time_ns : 0;
}

static int take_judged(struct diagnosis *d, struct verdict_comm *from, struct tracer *tracer)
{
	const struct verdict *now = verdict_comm__now(from), *worst = verdict_comm__worst(from);
	struct diagnosis_comm *c = &d->comms[d->n_comms];
	const struct verdict_rank *ranks;

	*c = (struct diagnosis_comm){
		.hash = verdict_comm__hash(from),
		.n_ranks = verdict_comm__n_ranks(from),
		.verdict = *worst,
		.now = now->state,
		.ended = true, /* until one is found that has not */
		.over_ns = find_end(from, worst),
	};
	snprintf(c->label, sizeof(c->label), "%016" PRIx64, c->hash);
	ranks = verdict_comm__ranks(from, &c->n_local);
	c->ranks = calloc(c->n_local ?: 1, sizeof(*c->ranks));
	if (!c->ranks)
		return -ENOMEM;
	d->n_comms++;
	for (uint32_t i = 0; i < c->n_local; i++)
		take_rank(c, &c->ranks[i], &ranks[i], tracer);
	return 0;
}

static bool is_shown(struct tracer *tracer, const struct comm *comm)
{
	const struct process *process = find_process(tracer, comm->key.tgid);

	return !comm->dead_ns && process__is_shown(process) && !(process && process->gone_ns);
}

static bool is_judged(const struct comm *comm)
{
	return comm->key.hash && comm->rank >= 0 && !comm->is_double;
}

/* One that nobody can judge: whose rank in what is not known. */
static int take_unjudged(struct diagnosis *d, const struct comm *comm, struct tracer *tracer)
{
	struct diagnosis_comm *c = &d->comms[d->n_comms];
	struct verdict *v = &c->verdict;

	*c = (struct diagnosis_comm){
		.n_ranks = comm->n_ranks, .n_local = 1, .now = VERDICT_UNKNOWN};
	v->state = VERDICT_UNKNOWN;
	v->operation = NCCL_OP_MAX;
	v->sequence = VERDICT_NO_SEQUENCE;
	snprintf(v->why, sizeof(v->why), "%s",
		 comm->is_double       ? "another process has the same rank of a communicator of "
					 "the same hash"
		 : comm->key.hash == 0 ? "its hash is not known, so it cannot be told which ranks "
					 "belong together"
				       : "its rank is not known");
	memcpy(c->label, comm->label, sizeof(c->label));
	memcpy(c->name, comm->name, sizeof(c->name));
	c->ranks = calloc(1, sizeof(*c->ranks));
	if (!c->ranks)
		return -ENOMEM;
	d->n_comms++;
	*c->ranks = (struct diagnosis_rank){
		.rank = comm->rank,
		.tgid = comm->key.tgid,
		.last_operation = NCCL_OP_MAX,
		.last_sequence = VERDICT_NO_SEQUENCE,
		.last_ns = comm__last_ns(comm),
	};
	take_process(c->ranks, tracer);
	take_gpu(c->ranks, tracer__gpu_of(tracer, comm));
	return 0;
}

static int take_comms(struct diagnosis *d, struct tracer *tracer, struct verdicts *verdicts)
{
	struct comms *comms = tracer__comms(tracer);
	struct verdict_comm *v;
	size_t n = comms__count_of(comms);
	int err = 0;

	for (v = verdicts__first(verdicts); v; v = verdict_comm__next(v))
		n++;
	d->comms = calloc(n ?: 1, sizeof(*d->comms));
	if (!d->comms)
		return -ENOMEM;
	for (v = verdicts__first(verdicts); v && !err; v = verdict_comm__next(v))
		err = take_judged(d, v, tracer);
	for (struct comm *c = comms__first(comms); c && !err; c = c->hh.next)
		if (is_shown(tracer, c) && !is_judged(c))
			err = take_unjudged(d, c, tracer);
	return err;
}

static bool has_communicators(const struct diagnosis *d, uint32_t tgid)
{
	for (size_t i = 0; i < d->n_comms; i++)
		for (uint32_t r = 0; r < d->comms[i].n_local; r++)
			if (d->comms[i].ranks[r].tgid == tgid)
				return true;
	return false;
}

static int take_processes(struct diagnosis *d, struct tracer *tracer)
{
	struct process *first = processes__first(tracer__processes(tracer)), *p;
	size_t n = 0;

	for (p = first; p; p = p->hh.next)
		n++;
	d->unseen = calloc(n ?: 1, sizeof(*d->unseen));
	if (!d->unseen)
		return -ENOMEM;
	for (p = first; p; p = p->hh.next) {
		struct diagnosis_unseen *unseen = &d->unseen[d->n_unseen];

		if (!process__nccl(p) || p->gone_ns || !process__is_shown(p))
			continue;
		d->n_processes++;
		unseen->why = command__not_known(p);
		if (!unseen->why || has_communicators(d, p->tgid))
			continue;
		unseen->tgid = p->tgid;
		memcpy(unseen->command, p->info.command, sizeof(unseen->command));
		d->n_unseen++;
	}
	return 0;
}

static int compare_comms(const void *a, const void *b)
{
	const struct diagnosis_comm *x = a, *y = b;
	unsigned int severity_x = verdict_state__severity(x->verdict.state);
	unsigned int severity_y = verdict_state__severity(y->verdict.state);

	if (severity_x != severity_y)
		return severity_x < severity_y ? 1 : -1;
	if (x->verdict.state != y->verdict.state)
		return x->verdict.state > y->verdict.state ? 1 : -1;
	return strcmp(x->label, y->label);
}

int diagnosis__take(struct diagnosis *d, struct tracer *tracer, struct verdicts *verdicts)
{
	int err = take_comms(d, tracer, verdicts) ?: take_processes(d, tracer);

	if (err)
		return err;
	qsort(d->comms, d->n_comms, sizeof(*d->comms), compare_comms);
	d->lost = tracer__all_lost(tracer);
	d->refused = verdicts__refused(verdicts);
	return 0;
}

void diagnosis__clear(struct diagnosis *d)
{
	struct diagnosis_look *look, *next;

	for (size_t i = 0; i < d->n_comms; i++)
		free(d->comms[i].ranks);
	free(d->comms);
	free(d->unseen);
	HASH_ITER(hh, d->looks, look, next)
	{
		HASH_DEL(d->looks, look);
		free(look);
	}
}
