/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Profiler plugins that are not ours, where asked for: from a process that maps one to probes on
 * the functions that NCCL calls there, to what they tell. A plugin behind ours is left alone: ours
 * tells all.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "foreign_attach.h"
#include "tracer_private.h"

/* A library is noticed when it is mapped; its tables are filled in a little later. */
#define FIRST_RETRY_NS (20 * NSEC_PER_MSEC)
#define MAX_TRIES      10 /* 20 s in all */

_Static_assert(PROCESS_FOREIGN_LINKS == FOREIGN_N_SITES, "links");

struct foreign_question {
	struct tracer *tracer;
	uint32_t tgid;
	int version;
	bool answered;
};

static void on_foreign_told(void *ctx, uint32_t tgid, const struct nbp_record *record)
{
	struct tracer *tracer = ctx;

	timings__record(tracer->timings, tgid, record, now_ns());
}

int tracer__open_foreign(struct tracer *tracer)
{
	if (!tracer->options.probe.foreign)
		return 0;
	return foreign__new(&tracer->foreign, on_foreign_told, tracer);
}

void tracer__on_foreign(struct tracer *tracer, tracer_foreign_fn *fn, void *ctx)
{
	tracer->on_foreign = fn;
	tracer->foreign_ctx = ctx;
}

void tracer__take_foreign_record(void *ctx, const struct nb_foreign_record *record)
{
	struct tracer *tracer = ctx;

	foreign__record(tracer->foreign, record);
}

/* ---- attaching ---- */

static void tracer__leave(struct tracer *tracer, struct process *process)
{
	probe__leave_foreign(tracer->probe, process->tgid);
	foreign__process_gone(tracer->foreign, process->tgid);
}

static void tracer__tell_foreign(struct tracer *tracer, struct process *process, int version)
{
	if (tracer->on_foreign)
		tracer->on_foreign(tracer->foreign_ctx, process, version);
}

static void tracer__refuse_foreign(struct tracer *tracer, struct process *process, const char *why)
{
	process->foreign.state = PROCESS_FOREIGN_REFUSED;
	process->foreign.why = why;
	tracer__tell_foreign(tracer, process, 0);
}

static void tracer__take_foreign_links(struct tracer *tracer, struct process *process, int version,
				       const int *fds, int n_fds)
{
	memcpy(process->foreign.links, fds, n_fds * sizeof(*fds));
	process->foreign.n_links = n_fds;
	process->foreign.state = PROCESS_FOREIGN_FOLLOWED;
	tracer__tell_foreign(tracer, process, version);
}

/* Nothing yet: once more a little later, or that is the verdict. */
static void tracer__foreign_failed(struct tracer *tracer, struct process *process, const char *why)
{
	struct process_foreign *foreign = &process->foreign;

	tracer__leave(tracer, process);
	if (++foreign->n_tries == MAX_TRIES) {
		tracer__refuse_foreign(tracer, process, why);
		return;
	}
	foreign->state = PROCESS_FOREIGN_DUE;
	foreign->due_ns = now_ns() + (FIRST_RETRY_NS << foreign->n_tries);
}

static void on_foreign_message(void *ctx, const void *data, size_t len, const int *fds, int n_fds)
{
	struct foreign_question *q = ctx;
	struct process *process = processes__find(q->tracer->processes, q->tgid);
	const struct foreign_reply *reply = data;

	if (!process || process->gone_ns || len != sizeof(*reply) || q->answered) {
		while (n_fds > 0)
			close(fds[--n_fds]);
		return;
	}
	q->answered = true;
	if (reply->verdict == FOREIGN_FOUND && n_fds > 0 && n_fds <= PROCESS_FOREIGN_LINKS) {
		tracer__take_foreign_links(q->tracer, process, q->version, fds, n_fds);
		return;
	}
	while (n_fds > 0)
		close(fds[--n_fds]);
	tracer__foreign_failed(q->tracer, process, foreign_verdict__reason(reply->verdict));
}

static void on_foreign_done(void *ctx, int status)
{
	struct foreign_question *q = ctx;
	struct process *process = processes__find(q->tracer->processes, q->tgid);

	if (process && !process->gone_ns && !q->answered)
		tracer__foreign_failed(q->tracer, process,
				       status == -ETIMEDOUT
					       ? "its memory or file did not answer in time"
					       : foreign_verdict__reason(FOREIGN_UNREADABLE));
	free(q);
}

/* The BPF side and the module know of it before the first probe fires. */
static int tracer__follow(struct tracer *tracer, struct process *process, int version)
{
	const struct library *nccl = process__nccl(process);
	int err = probe__follow_foreign(tracer->probe, process->tgid, version);

	return err
		       ?: foreign__add_process(tracer->foreign, process->tgid, nccl->image.version,
					       now_ns());
}

static void tracer__look_at_table(struct tracer *tracer, struct process *process,
				  const struct process_mapping *m, int version)
{
	const struct foreign_request request = {
		.pid = process->tgid,
		.program_fd = probe__foreign_program_fd(tracer->probe),
		.version = version,
		.table = m->start - m->file_offset + m->library->tables.at[version],
		.code = {m->start, m->end, m->file_offset},
		.map_start = m->start,
		.map_end = m->end,
	};
	struct foreign_question *q = calloc(1, sizeof(*q));
	const struct helper_job job = {
		.work = foreign_attach__work,
		.arg = (void *)&request,
		.arg_size = sizeof(request),
		.message = on_foreign_message,
		.done = on_foreign_done,
		.ctx = q,
		.urgent = true,
		.doubtful = process->foreign.n_tries > 1,
		.keep_fds = {request.program_fd, -1, -1, -1},
	};

	if (!q)
		return;
	*q = (struct foreign_question){.tracer = tracer, .tgid = process->tgid, .version = version};
	process->foreign.state = PROCESS_FOREIGN_ASKED;
	if (helper__run(tracer->helpers, &job)) {
		process->foreign.state = PROCESS_FOREIGN_DUE;
		free(q);
	}
}

static void tracer__look_at_foreign(struct tracer *tracer, struct process *process,
				    const struct process_mapping *mapping)
{
	const char *why;
	int version = process__foreign_version(process, &why);

	if (!tracer__may_probe_library(tracer, mapping->library)) {
		tracer__refuse_foreign(tracer, process, "its file is on a FUSE mount: see --fuse");
		return;
	}
	if (!version) {
		tracer__refuse_foreign(tracer, process, why);
		return;
	}
	if (tracer__follow(tracer, process, version)) {
		probe__leave_foreign(tracer->probe, process->tgid);
		tracer__refuse_foreign(tracer, process, "so many processes are followed already");
		return;
	}
	tracer__look_at_table(tracer, process, mapping, version);
}

static bool process__may_be_followed(const struct process *process)
{
	const struct library *nccl = process__nccl(process);

	return !process->gone_ns && process->has_info && !process->is_fork_copy && nccl &&
	       nccl->kind == IMAGE_NCCL && !process__plugin_mapping(process);
}

void tracer__serve_foreign(struct tracer *tracer, uint64_t now)
{
	if (!tracer->foreign)
		return;
	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next) {
		const struct process_mapping *mapping = process__foreign_mapping(p, 0);

		if (mapping && p->foreign.state == PROCESS_FOREIGN_DUE &&
		    p->foreign.due_ns <= now && process__may_be_followed(p))
			tracer__look_at_foreign(tracer, p, mapping);
	}
	foreign__settle(tracer->foreign, now);
}

/* ---- ends ---- */

static void process__close_links(struct tracer *tracer, struct process *process)
{
	if (process->foreign.state == PROCESS_FOREIGN_FOLLOWED)
		helpers__close_elsewhere(tracer->helpers, process->foreign.links,
					 process->foreign.n_links);
	process->foreign.state = PROCESS_FOREIGN_GONE;
}

void tracer__foreign_gone(struct tracer *tracer, struct process *process)
{
	if (!tracer->foreign)
		return;
	tracer__leave(tracer, process);
	process__close_links(tracer, process);
}

void tracer__release_foreign(struct tracer *tracer)
{
	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next)
		process__close_links(tracer, p);
}
