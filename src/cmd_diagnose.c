/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Attaches, watches for a while, says for each communicator the worst that was confirmed. */
#include <errno.h>
#include <string.h>
#include <sys/utsname.h>

#include "cmd_diagnose.h"
#include "commands.h"
#include "util.h"
#include "watch.h"

#define TICK_NS	   (250 * NSEC_PER_MSEC)
#define MOMENT_NS  (2 * NSEC_PER_SEC)
#define KEPT_COMMS 4096 /* those that ended are forgotten only where there are more */

struct diagnose {
	const struct options *options;
	struct loop *loop;
	struct tracer *tracer;
	struct watch *watch;
	struct callers *callers;
	struct loop_source *tick, *end;
	struct diagnosis found;
	const char *why; /* it could not begin; NULL: it could, or has not tried */
	bool is_progress_shown;
};

static void diagnose__settle(struct diagnose *d)
{
	tracer__refresh(d->tracer);
	watch__settle(d->watch, now_ns());
}

/* What ended stays to be told of, but not any number. */
static void diagnose__expire(struct diagnose *d)
{
	if (comms__count_of(tracer__comms(d->tracer)) < KEPT_COMMS)
		return;
	tracer__expire(d->tracer);
	verdicts__expire(watch__verdicts(d->watch), now_ns());
}

static void diagnose__show_progress(struct diagnose *d)
{
	uint64_t watched_s = (now_ns() - d->found.settled_ns) / NSEC_PER_SEC;
	uint64_t duration_s = d->options->duration_s;

	if (!isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r\033[Kwatching %u NCCL processes: %llu s left",
		tracer__census(d->tracer).traced,
		(unsigned long long)(duration_s > watched_s ? duration_s - watched_s : 0));
	d->is_progress_shown = true;
}

static void on_tick(void *ctx)
{
	struct diagnose *d = ctx;

	diagnose__settle(d);
	diagnose__expire(d);
	diagnose__show_progress(d);
}

/*
 * How much longer until all that waits has waited for --stuck-after; 0: it has, or it takes more
 * than a moment. By default the watch is just as long, and what hung before it began was found so
 * when its process was first read, which may be a little later.
 */
static uint64_t diagnose__moment_left(struct diagnose *d)
{
	uint64_t stuck_after_ns = d->options->stuck_after_s * NSEC_PER_SEC, left_ns = 0;
	struct verdict_comm *c = verdicts__first(watch__verdicts(d->watch));

	for (; c; c = verdict_comm__next(c)) {
		const struct verdict *now = verdict_comm__now(c);
		uint64_t stuck_ns = now->since_ns + stuck_after_ns;

		if (now->state == VERDICT_WAITING && stuck_ns > d->found.now_ns &&
		    stuck_ns <= d->found.now_ns + MOMENT_NS && stuck_ns - d->found.now_ns > left_ns)
			left_ns = stuck_ns - d->found.now_ns;
	}
	return left_ns;
}

static void on_end(void *ctx)
{
	struct diagnose *d = ctx;
	bool is_first = !d->found.now_ns;
	uint64_t left_ns;

	diagnose__settle(d);
	d->found.now_ns = now_ns();
	left_ns = is_first ? diagnose__moment_left(d) : 0;
	if (left_ns)
		loop_source__set_timer(d->end, left_ns, 0);
	else
		loop__stop(d->loop, 0);
}

/* What ran before is attached: the window begins. */
static void on_settled(void *ctx)
{
	struct diagnose *d = ctx;
	int err = command__looked(d->tracer, &d->why);

	if (err) {
		loop__stop(d->loop, err);
		return;
	}
	diagnose__settle(d);
	d->found.settled_ns = now_ns();
	verdicts__forget_worst(watch__verdicts(d->watch));
	loop_source__set_timer(d->tick, TICK_NS, TICK_NS);
	loop_source__set_timer(d->end, d->options->duration_s * NSEC_PER_SEC, 0);
	diagnose__show_progress(d);
}

static int diagnose__open(struct diagnose *d, const char **ret_why)
{
	const struct verdict_options verdict_options = {
		.stuck_after_ns = d->options->stuck_after_s * NSEC_PER_SEC,
	};
	struct tracer_options options = command__tracer_options(d->options);
	int err;

	options.attach = options.watch = true;
	options.handover_after_ns = 0; /* too short a watch for links to come and go */
	err = loop__new(&d->loop) ?: tracer__new(&d->tracer, d->loop, &options, ret_why);
	if (err)
		return err;
	*ret_why = "out of memory or file descriptors";
	err = callers__new(&d->callers);
	err = err ?: watch__new(&d->watch, d->tracer, &verdict_options);
	err = err ?: tracer__on_call(d->tracer, callers__call, d->callers);
	err = err ?: loop__add_timer(d->loop, 0, 0, on_tick, d, &d->tick);
	err = err ?: loop__add_timer(d->loop, 0, 0, on_end, d, &d->end);
	return err ?: command__stop_on_signals(d->loop);
}

static int diagnose__watch(struct diagnose *d, const char **ret_why)
{
	int err = diagnose__open(d, ret_why);

	if (err)
		return err;
	*ret_why = "the kernel gives no notice of mappings (perf events): see nccl-bpftrace check";
	command__tell_of_privilege(d->options);
	err = tracer__start(d->tracer, on_settled, d) ?: loop__run(d->loop);
	if (d->why)
		*ret_why = d->why;
	if (d->is_progress_shown)
		fprintf(stderr, "\r\033[K");
	return err;
}

static int diagnose__conclude(struct diagnose *d, const char **ret_why)
{
	struct diagnosis *found = &d->found;
	struct timespec wall;
	struct utsname host;
	int err;

	*ret_why = "out of memory or file descriptors";
	diagnose__settle(d);
	found->now_ns = now_ns();
	if (!found->settled_ns) /* ended by a signal before it began */
		found->settled_ns = found->now_ns;
	wall_offset__update(&found->wall_offset_ns, &wall);
	uname(&host);
	snprintf(found->host, sizeof(found->host), "%s", host.nodename);
	err = diagnosis__take(found, d->tracer, watch__verdicts(d->watch));
	return err ?: diagnosis__look(found, d->callers);
}

int cmd_diagnose(const struct options *options)
{
	struct diagnose d = {.options = options};
	const char *why = "out of memory or file descriptors";
	int err = diagnose__watch(&d, &why) ?: diagnose__conclude(&d, &why);
	int status = diagnosis__exit_status(&d.found);

	if (!err && options->json)
		diagnosis__print_json(&d.found, stdout);
	else if (!err)
		diagnosis__print(&d.found, stdout, command__where(options));
	watch__free(d.watch);
	tracer__free(d.tracer);
	callers__free(d.callers);
	diagnosis__clear(&d.found);
	loop__free(d.loop);
	return err ? command__cannot_trace(err, why) : status;
}
