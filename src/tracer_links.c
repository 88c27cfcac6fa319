/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Links on what can be handed over, for one process or for all: made in helpers, ended elsewhere.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tracer_private.h"

#define RETRY_NS NSEC_PER_SEC

struct calls_question {
	struct tracer *tracer;
	struct inode_key key;
	uint32_t tgid; /* 0: all */
	bool answered;
};

struct process_mapping *process__mapping_of(struct process *process, const struct library *library)
{
	for (unsigned int i = 0; process && i < process->n_mappings; i++)
		if (process->mappings[i].library == library)
			return &process->mappings[i];
	return NULL;
}

static struct process *tracer__living(struct tracer *tracer, uint32_t tgid)
{
	struct process *process = processes__find(tracer->processes, tgid);

	return process && !process->gone_ns ? process : NULL;
}

/* Where the link belongs, NULL: it is wanted no more. */
static int *calls_question__link(const struct calls_question *q, uint64_t **ret_ns)
{
	struct library *library = libraries__find(q->tracer->libraries, &q->key);
	struct process_mapping *m;

	if (library && !q->tgid) {
		*ret_ns = &library->calls.link_ns;
		return &library->calls.link;
	}
	m = library ? process__mapping_of(tracer__living(q->tracer, q->tgid), library) : NULL;
	if (!m)
		return NULL;
	*ret_ns = &m->link_ns;
	return &m->link;
}

static void on_calls_message(void *ctx, const void *data, size_t len, const int *fds, int n_fds)
{
	struct calls_question *q = ctx;
	uint64_t *made_ns;
	int *link = calls_question__link(q, &made_ns);

	for (int i = 0; i < n_fds; i++) {
		if (link && *link < 0 && len == sizeof(*made_ns)) {
			*link = fds[i];
			memcpy(made_ns, data, sizeof(*made_ns));
			q->answered = true;
		} else {
			close(fds[i]);
		}
	}
}

static void on_calls_done(void *ctx, int status)
{
	struct calls_question *q = ctx;
	struct tracer *tracer = q->tracer;
	struct library *library = libraries__find(tracer->libraries, &q->key);
	struct process_mapping *m =
		library ? process__mapping_of(tracer__living(tracer, q->tgid), library) : NULL;

	if (m)
		m->asked = false;
	if (library && !q->tgid)
		library->calls.asked = false;
	if (library && !q->answered && (m || !q->tgid)) {
		library->calls.retry_ns = now_ns() + RETRY_NS;
		/* One that is ending has no place for a link any more. */
		library->calls.unscoped |= q->tgid && status && status != -ESRCH;
	}
	free(q);
	tracer__arrange_calls(tracer, now_ns());
}

void tracer__ask_calls(struct tracer *tracer, struct library *library,
		       struct process_mapping *mapping, uint32_t tgid)
{
	struct library_calls *calls = &library->calls;
	struct attach_calls_request request = {
		.program_fd = probe__program_fd(tracer->probe, IMAGE_NCCL),
		.file_fd = calls->file,
		.library = library->index,
		.link = ++tracer->last_link,
		.pid = tgid,
		.n = calls->n,
	};
	struct calls_question *q = calloc(1, sizeof(*q));
	const struct helper_job job = {
		.work = attach__calls_work,
		.arg = &request,
		.arg_size = sizeof(request),
		.message = on_calls_message,
		.done = on_calls_done,
		.ctx = q,
		.urgent = true,
		.keep_fds = {request.program_fd, request.file_fd, -1, -1},
	};

	if (!q)
		return;
	memcpy(request.offsets, calls->offsets, sizeof(request.offsets));
	memcpy(request.functions, calls->functions, sizeof(request.functions));
	*q = (struct calls_question){.tracer = tracer, .key = library->key, .tgid = tgid};
	if (helper__run(tracer->helpers, &job)) {
		free(q);
		return;
	}
	if (mapping)
		mapping->asked = true;
	else
		calls->asked = true;
}

/* ---- can links be for one process? ---- */

static void on_trial_done(void *ctx, int status)
{
	struct tracer *tracer = ctx;

	tracer->scoped_links = status ? LINKS_FOR_ALL : LINKS_FOR_ONE;
}

void tracer__try_links(struct tracer *tracer)
{
	const struct attach_trial_request request = {
		.program_fd = probe__program_fd(tracer->probe, IMAGE_NCCL),
		.trial = probe__trial(tracer->probe),
	};
	const struct helper_job job = {
		.work = attach__trial_work,
		.arg = (void *)&request,
		.arg_size = sizeof(request),
		.done = on_trial_done,
		.ctx = tracer,
		.keep_fds = {request.program_fd, -1, -1, -1},
	};

	if (tracer->scoped_links == LINKS_UNTRIED && !helper__run(tracer->helpers, &job))
		tracer->scoped_links = LINKS_ON_TRIAL;
}

/* ---- ending them ---- */

void tracer__close(struct tracer *tracer, int *link)
{
	if (*link >= 0)
		helpers__close_elsewhere(tracer->helpers, link, 1);
	*link = -1;
}

void tracer__drop_calls(struct tracer *tracer, struct process *process)
{
	probe__set_unprobed(tracer->probe, process->tgid, false);
	for (unsigned int i = 0; i < process->n_mappings; i++)
		tracer__close(tracer, &process->mappings[i].link);
}

/* At our end: one child for all, some tens of milliseconds for each. */
void tracer__drop_all_calls(struct tracer *tracer)
{
	int links[HELPER_MAX_FDS], n = 0;

	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next)
		for (unsigned int i = 0; i < p->n_mappings; i++) {
			if (p->mappings[i].link < 0)
				continue;
			links[n++] = p->mappings[i].link;
			p->mappings[i].link = -1;
			if (n == HELPER_MAX_FDS) {
				helpers__close_elsewhere(tracer->helpers, links, n);
				n = 0;
			}
		}
	if (n)
		helpers__close_elsewhere(tracer->helpers, links, n);
}
