/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The processes of ranks that are told of, looked at through helpers. */
#include <errno.h>
#include <stdlib.h>

#include "cmd_diagnose.h"
#include "helper.h"
#include "util.h"

#define LOOK_DEADLINE_NS (2 * NSEC_PER_SEC)
#define ALL_DEADLINE_NS	 (10 * NSEC_PER_SEC)
#define MAX_CALLERS	 4096 /* processes whose last caller is kept */

struct caller {
	uint32_t tgid, tid;
	UT_hash_handle hh;
};

struct callers {
	struct caller *all;
};

int callers__new(struct callers **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

void callers__free(struct callers *callers)
{
	struct caller *caller, *next;

	if (!callers)
		return;
	HASH_ITER(hh, callers->all, caller, next)
	{
		HASH_DEL(callers->all, caller);
		free(caller);
	}
	free(callers);
}

void callers__call(void *ctx, const struct nb_record *record)
{
	struct callers *callers = ctx;
	struct caller *caller;

	HASH_FIND(hh, callers->all, &record->tgid, sizeof(record->tgid), caller);
	if (!caller && HASH_COUNT(callers->all) < MAX_CALLERS) {
		caller = calloc(1, sizeof(*caller));
		if (!caller)
			return;
		caller->tgid = record->tgid;
		HASH_ADD(hh, callers->all, tgid, sizeof(caller->tgid), caller);
	}
	if (caller)
		caller->tid = record->tid;
}

static uint32_t callers__of(const struct callers *callers, uint32_t tgid)
{
	struct caller *caller;

	HASH_FIND(hh, callers->all, &tgid, sizeof(tgid), caller);
	return caller ? caller->tid : 0;
}

/* A helper's question: which look, of which round. */
struct question {
	struct looking *looking;
	struct diagnosis_look *look;
};

/* One round of looks. */
struct looking {
	struct loop *loop;
	struct helpers *helpers;
	struct loop_source *deadline;
	unsigned int n_open, n;
	struct question questions[DIAGNOSIS_MAX_LOOKS];
};

static void on_message(void *ctx, const void *data, size_t len, const int *fds, int n_fds)
{
	struct question *q = ctx;
	const struct procstate *state = data;

	while (n_fds > 0)
		close(fds[--n_fds]);
	if (len == sizeof(*state) && procstate__valid(state))
		q->look->state = *state;
}

static void on_done(void *ctx, int status)
{
	struct question *q = ctx;

	q->look->status = status ?: q->look->state.main.tid ? 0 : -EBADMSG;
	if (!--q->looking->n_open)
		loop__stop(q->looking->loop, 0);
}

static void on_deadline(void *ctx)
{
	struct looking *looking = ctx;

	loop__stop(looking->loop, 0);
}

static void looking__ask(struct looking *looking, struct diagnosis_look *look, uint32_t caller)
{
	struct procstate_request request = {.pid = look->tgid, .caller = caller};
	struct question *q = &looking->questions[looking->n++];
	struct helper_job job = {
		.work = procstate__work,
		.arg = &request,
		.arg_size = sizeof(request),
		.message = on_message,
		.done = on_done,
		.ctx = q,
		.keep_fds = {-1, -1, -1, -1},
	};

	*q = (struct question){.looking = looking, .look = look};
	looking->n_open++;
	if (helper__run(looking->helpers, &job))
		looking->n_open--;
}

static void look_at(struct diagnosis *d, struct diagnosis_rank *r, struct looking *looking,
		    const struct callers *callers)
{
	HASH_FIND(hh, d->looks, &r->tgid, sizeof(r->tgid), r->look);
	if (r->look || HASH_COUNT(d->looks) >= DIAGNOSIS_MAX_LOOKS)
		return;
	r->look = calloc(1, sizeof(*r->look));
	if (!r->look)
		return;
	r->look->tgid = r->tgid;
	r->look->status = -ETIMEDOUT; /* until it has answered */
	HASH_ADD(hh, d->looks, tgid, sizeof(r->look->tgid), r->look);
	looking__ask(looking, r->look, callers__of(callers, r->tgid));
}

static void look_at_all(struct diagnosis *d, struct looking *looking, const struct callers *callers)
{
	for (size_t i = 0; i < d->n_comms; i++)
		for (uint32_t r = 0; r < d->comms[i].n_local; r++)
			if (diagnosis_comm__tells_of(&d->comms[i], &d->comms[i].ranks[r]) &&
			    !d->comms[i].ranks[r].ended)
				look_at(d, &d->comms[i].ranks[r], looking, callers);
}

/* A loop of its own: what else happens comes too late for this diagnosis. */
int diagnosis__look(struct diagnosis *d, const struct callers *callers)
{
	struct looking *looking = calloc(1, sizeof(*looking));
	int err;

	if (!looking)
		return -ENOMEM;
	err = loop__new(&looking->loop);
	err = err ?: helpers__new(&looking->helpers, looking->loop, LOOK_DEADLINE_NS);
	err = err
		      ?: loop__add_timer(looking->loop, ALL_DEADLINE_NS, 0, on_deadline, looking,
					 &looking->deadline);
	if (!err)
		look_at_all(d, looking, callers);
	if (!err && looking->n_open)
		err = loop__run(looking->loop);
	helpers__free(looking->helpers);
	if (looking->loop)
		loop__remove(looking->loop, looking->deadline);
	loop__free(looking->loop);
	free(looking);
	return err;
}
