/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The cooperating plugins: their records, on to the timings; and their knobs. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tracer_private.h"

#define KNOBS_NS     (60 * NSEC_PER_SEC) /* before the same place is looked at again */
#define KNOBS_MIN_NS NSEC_PER_SEC	 /* before another place in the same process is */
#define MAX_RESTORED 4096		 /* processes that are set back at the end */
#define RESTORE_NS   NSEC_PER_SEC

static void on_launch(void *ctx, const struct timing_launch *launch)
{
	struct tracer *tracer = ctx;

	for (unsigned int i = 0; i < tracer->n_listeners; i++)
		tracer->listeners[i].fn(tracer->listeners[i].ctx, launch);
}

int tracer__open_plugins(struct tracer *tracer)
{
	return timings__new(&tracer->timings, on_launch, tracer);
}

/* ---- records ---- */

struct stranger *tracer__meet(struct tracer *tracer, uint32_t tgid)
{
	struct stranger *stranger;

	for (unsigned int i = 0; i < tracer->n_strangers; i++)
		if (tracer->strangers[i].tgid == tgid)
			return &tracer->strangers[i];
	if (tracer->n_strangers == TRACER_MAX_STRANGERS)
		return NULL;
	stranger = &tracer->strangers[tracer->n_strangers++];
	*stranger = (struct stranger){.tgid = tgid};
	discover__scan(tracer->discover, tgid, false);
	tracer__need_tick(tracer);
	return stranger;
}

static void process__heard(struct process *process, uint64_t control, uint64_t now)
{
	struct process_knobs *knobs = &process->knobs;

	process->plugin_heard_ns = now;
	if (!control || knobs->due_ns ||
	    (control == knobs->control && now - knobs->checked_ns < KNOBS_NS))
		return;
	knobs->control = control;
	knobs->due_ns =
		now > knobs->checked_ns + KNOBS_MIN_NS ? now : knobs->checked_ns + KNOBS_MIN_NS;
}

void tracer__take_plugin_record(void *ctx, const struct nb_plugin_record *record)
{
	const struct nbp_record *r = &record->record;
	uint64_t control = r->kind == NBP_KIND_COMM ? r->comm.control : 0, now = now_ns();
	struct tracer *tracer = ctx;
	struct process *process = processes__find(tracer->processes, record->tgid);
	struct stranger *stranger;

	if (process && !process->gone_ns) {
		process__heard(process, control, now);
	} else {
		stranger = tracer__meet(tracer, record->tgid);
		if (!stranger) {
			tracer->refused++;
			return;
		}
		stranger->heard_ns = now;
		stranger->control = control ?: stranger->control;
	}
	handovers__plugin_record(tracer->handovers, record->tgid, r, now);
	timings__record(tracer->timings, record->tgid, r, now);
}

/* They are known by now, or have ended. */
static void tracer__settle_strangers(struct tracer *tracer, uint64_t now)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < tracer->n_strangers; i++) {
		struct stranger *stranger = &tracer->strangers[i];
		struct process *process = processes__find(tracer->processes, stranger->tgid);

		if (process && !process->gone_ns) {
			if (stranger->heard_ns)
				process__heard(process, stranger->control, stranger->heard_ns);
		} else if (kill(stranger->tgid, 0) && errno == ESRCH) {
			timings__process_gone(tracer->timings, stranger->tgid, now);
			handovers__process_gone(tracer->handovers, stranger->tgid, now);
		} else {
			tracer->strangers[n++] = *stranger;
		}
	}
	tracer->n_strangers = n;
}

/* ---- knobs ---- */

struct knobs_question {
	struct tracer *tracer;
	uint32_t tgid;
};

static void on_knobs_message(void *ctx, const void *data, size_t len, const int *fds, int n_fds)
{
	struct knobs_question *q = ctx;
	struct process *process = processes__find(q->tracer->processes, q->tgid);
	const struct knobs_reply *reply = data;

	(void)fds;
	(void)n_fds;
	if (process && len == sizeof(*reply))
		process->knobs.changed |= reply->written > 0;
}

static void on_knobs_done(void *ctx, int status)
{
	struct knobs_question *q = ctx;
	struct process *process = processes__find(q->tracer->processes, q->tgid);

	if (process) { /* on failure it goes on as it was; the next look is a minute away */
		process->knobs.running = false;
		process->knobs.err = status;
	}
	free(q);
}

/*
 * NCCL's kernel timer keeps its times under a running number that host and GPU each count for
 * themselves. In 2.32.3 the host counts only what is timed: switched on in a job that runs, it
 * tells of each operation the times of another (seen on two H200, all of 2.27.7's and 2.30.7's were
 * right; NCCL's pull request 2368 tells of it for Broadcast). 2.31 was not seen.
 */
#define TIMER_UNTIL 23100

static struct knobs tracer__knobs(struct tracer *tracer, struct process *process)
{
	const struct library *nccl = process__nccl(process);
	struct knobs knobs = tracer->options.knobs;

	if (!(knobs.wants & NBP_WANT_KERNEL_TIMER) || !nccl || nccl->image.version < TIMER_UNTIL)
		return knobs;
	knobs.wants &= ~NBP_WANT_KERNEL_TIMER;
	if (!process->knobs.is_timer_refused && tracer->on_timer_refused)
		tracer->on_timer_refused(tracer->timer_ctx, process);
	process->knobs.is_timer_refused = true;
	return knobs;
}

void tracer__on_timer_refused(struct tracer *tracer, tracer_process_fn *fn, void *ctx)
{
	tracer->on_timer_refused = fn;
	tracer->timer_ctx = ctx;
}

static void tracer__write_knobs(struct tracer *tracer, struct process *process, uint64_t now)
{
	struct knobs_question *q = calloc(1, sizeof(*q));
	const struct knobs_request request = {
		.pid = process->tgid,
		.knobs = tracer__knobs(tracer, process),
		.control = process->knobs.control,
	};
	const struct helper_job job = {
		.work = knobs__work,
		.arg = (void *)&request,
		.arg_size = sizeof(request),
		.message = on_knobs_message,
		.done = on_knobs_done,
		.ctx = q,
		.doubtful = process->knobs.err == -ETIMEDOUT,
		.keep_fds = {-1, -1, -1, -1},
	};

	if (!q)
		return;
	*q = (struct knobs_question){.tracer = tracer, .tgid = process->tgid};
	process->knobs.due_ns = 0;
	process->knobs.checked_ns = now;
	process->knobs.running = true;
	if (helper__run(tracer->helpers, &job)) {
		process->knobs.running = false;
		free(q);
	}
}

void tracer__serve_plugins(struct tracer *tracer, uint64_t now)
{
	tracer__settle_strangers(tracer, now);
	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next)
		if (p->knobs.due_ns && p->knobs.due_ns <= now && !p->knobs.running && !p->gone_ns)
			tracer__write_knobs(tracer, p, now);
	timings__settle(tracer->timings, now);
}

/* What is to be set back, for a child. */
struct restore {
	unsigned int n;
	struct knobs_request requests[MAX_RESTORED];
};

static int restore__work(void *arg, int reply_fd)
{
	const struct restore *restore = arg;
	uint32_t written;

	(void)reply_fd;
	for (unsigned int i = 0; i < restore->n; i++)
		knobs__write(&restore->requests[i], &written);
	return 0;
}

/* Nobody pays for what no agent asks for any more. */
void tracer__restore_knobs(struct tracer *tracer)
{
	struct restore *restore = calloc(1, sizeof(*restore));

	for (struct process *p = processes__first(tracer->processes); restore && p; p = p->hh.next)
		if (p->knobs.changed && !p->gone_ns && restore->n < MAX_RESTORED)
			restore->requests[restore->n++] = (struct knobs_request){
				.pid = p->tgid,
				.knobs = KNOBS_DEFAULT,
				.control = p->knobs.control,
			};
	if (restore && restore->n)
		helpers__run_last(tracer->helpers, restore__work, restore, RESTORE_NS);
	free(restore);
}
