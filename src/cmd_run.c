/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "commands.h"
#include "inspector_file.h"
#include "logline.h"
#include "screen.h"
#include "service.h"
#include "textfile.h"
#include "util.h"
#include "verdict_log.h"
#include "watch.h"

#define SCREEN_NS NSEC_PER_SEC
#define SETTLE_NS (250 * NSEC_PER_MSEC) /* between verdicts */

struct run {
	const struct options *options;
	struct loop *loop;
	struct tracer *tracer;
	struct watch *watch;
	uint64_t settled_ns; /* its last settle */
	const char *dir;     /* of the textfile, NULL: none */
	struct textfile *textfile;
	struct inspector_files *inspector;
	struct textfile_count omitted[INSPECTOR_OMITTED_MAX]; /* of those */
	struct screen *screen;				      /* one of the two */
	struct logline *logline;
	struct verdict_log *verdict_log; /* beside the line */
	struct service *service;	 /* NULL: no service manager */
	struct loop_source *interval, *redraw, *end;
	int last_write_err;
	uint64_t last_line_ns;
};

/* A failed write is said once, and once more when it works again; the old file stays meanwhile. */
static void run__write_textfile(struct run *run)
{
	int err;

	if (!run->textfile)
		return;
	for (int i = 0; i < INSPECTOR_OMITTED_MAX; i++)
		run->omitted[i] = (struct textfile_count){
			.reason = inspector_omitted__name(i),
			.count = inspector_files__omitted(run->inspector, i),
		};
	textfile__set_omitted(run->textfile, run->omitted, INSPECTOR_OMITTED_MAX);
	err = textfile__write(run->textfile, run->tracer);
	if (err != -EBUSY) /* another agent's directory now */
		err = inspector_files__write(run->inspector, run->tracer) ?: err;
	if (err == run->last_write_err)
		return;
	run->last_write_err = err;
	if (err)
		fprintf(stderr,
			"nccl-bpftrace: cannot write the textfile: %s; trying again every "
			"interval\n",
			strerror(-err));
	else
		fprintf(stderr, "nccl-bpftrace: the textfile is written again\n");
}

/* Rates over a moment tell nothing: the last line of a run may be left out. */
static void run__write_line(struct run *run)
{
	uint64_t now = now_ns();

	if (!run->logline || now - run->last_line_ns < NSEC_PER_SEC / 2)
		return;
	run->last_line_ns = now;
	logline__write(run->logline, run->tracer, now);
}

static void run__settle(struct run *run)
{
	run->settled_ns = now_ns();
	watch__settle(run->watch, run->settled_ns);
	if (run->verdict_log)
		verdict_log__write(run->verdict_log, watch__verdicts(run->watch), run->settled_ns);
}

/* The tracer's tick: it does not run where nothing is traced. */
static void on_tick(void *ctx)
{
	struct run *run = ctx;

	if (now_ns() >= run->settled_ns + SETTLE_NS)
		run__settle(run);
}

/* The picture and what follows from it, as of now. */
static void run__refresh(struct run *run)
{
	tracer__refresh(run->tracer);
	run__settle(run);
}

/* What `systemctl status` shows. */
static void run__tell_status(struct run *run)
{
	struct tracer_census census = tracer__census(run->tracer);

	service__tell(run->service,
		      "STATUS=%u NCCL processes traced, %u cannot be; textfiles: %.200s",
		      census.traced, census.unsupported,
		      !run->dir		    ? "none"
		      : run->last_write_err ? strerror(-run->last_write_err)
					    : run->dir);
}

static void run__publish(struct run *run)
{
	run__refresh(run);
	run__write_textfile(run);
	run__write_line(run);
	run__tell_status(run);
	tracer__expire(run->tracer);
}

static void on_interval(void *ctx)
{
	run__publish(ctx);
}

static void on_redraw(void *ctx)
{
	struct run *run = ctx;

	run__refresh(run);
	screen__draw(run->screen, now_ns());
}

static void on_end(void *ctx)
{
	struct run *run = ctx;

	loop__stop(run->loop, 0);
}

/* What ran at start is attached: the first file is there at once, not after an interval. */
static void on_settled(void *ctx)
{
	struct run *run = ctx;

	command__tell_of_look(run->tracer);
	run__refresh(run);
	run__write_textfile(run);
	run__tell_status(run);
}

static int run__open_textfile(struct run *run)
{
	struct stat st;
	int err;

	run->dir = run->options->textfile_dir;
	if (!run->dir && !stat(DEFAULT_TEXTFILE_DIR, &st) && S_ISDIR(st.st_mode))
		run->dir = DEFAULT_TEXTFILE_DIR;
	if (!run->dir)
		return 0;
	err = textfile__new(&run->textfile, run->dir, run->options->max_series,
			    run->options->cluster);
	if (err == -EBUSY)
		fprintf(stderr,
			"nccl-bpftrace: --textfile-dir %s: another nccl-bpftrace writes there: end "
			"it, or give another directory\n",
			run->dir);
	else if (err)
		fprintf(stderr,
			"nccl-bpftrace: --textfile-dir %s: %s: give a directory that exists and "
			"can be written to\n",
			run->dir, strerror(-err));
	if (err)
		return err;
	err = textfile__listen(run->textfile, run->tracer);
	if (!err)
		textfile__watch(run->textfile, run->watch);
	err = err ?: inspector_files__new(&run->inspector, run->dir, run->options->cluster);
	err = err ?: inspector_files__listen(run->inspector, run->tracer);
	if (err)
		fprintf(stderr, "nccl-bpftrace: no memory for GPU times\n");
	else if (textfile__warning(run->textfile))
		fprintf(stderr, "nccl-bpftrace: --textfile-dir %s: %s\n", run->dir,
			textfile__warning(run->textfile));
	return err;
}

static int run__open_screen(struct run *run)
{
	const struct screen_options options = {
		.loop = run->loop,
		.tracer = run->tracer,
		.verdicts = watch__verdicts(run->watch),
		.textfile_dir = run->dir,
		.on_quit = on_end,
		.ctx = run,
	};
	const char *why = "";
	int err = screen__new(&run->screen, &options, &why);

	if (err)
		fprintf(stderr,
			"nccl-bpftrace: no screen on this terminal (%s): log lines instead\n", why);
	return err;
}

static int run__open_sinks(struct run *run)
{
	if (isatty(STDOUT_FILENO) && !run->options->no_ui && !run__open_screen(run))
		return 0;
	return logline__new(&run->logline, stdout) ?: verdict_log__new(&run->verdict_log, stdout);
}

static int run__add_timers(struct run *run)
{
	uint64_t interval_ns = run->options->interval_s * NSEC_PER_SEC;
	int err = loop__add_timer(run->loop, interval_ns, interval_ns, on_interval, run,
				  &run->interval);

	if (!err && run->screen)
		err = loop__add_timer(run->loop, 1, SCREEN_NS, on_redraw, run, &run->redraw);
	if (!err && run->options->duration_s)
		err = loop__add_timer(run->loop, run->options->duration_s * NSEC_PER_SEC, 0, on_end,
				      run, &run->end);
	return err ?: command__stop_on_signals(run->loop);
}

static int run__open_tracer(struct run *run, const char **ret_why)
{
	struct tracer_options options = command__tracer_options(run->options);

	options.attach = options.watch = true;
	return loop__new(&run->loop) ?: tracer__new(&run->tracer, run->loop, &options, ret_why);
}

static int run__open_service(struct run *run)
{
	int err = service__new(&run->service, run->loop);

	if (err)
		fprintf(stderr,
			"nccl-bpftrace: NOTIFY_SOCKET or WATCHDOG_USEC of the environment is of no "
			"use (%s): unset them, or start it by its service manager\n",
			strerror(-err));
	return err;
}

static int run__open_watch(struct run *run)
{
	const struct verdict_options options = {
		.stuck_after_ns = run->options->stuck_after_s * NSEC_PER_SEC,
	};
	int err = watch__new(&run->watch, run->tracer, &options);

	if (!err)
		tracer__on_tick(run->tracer, on_tick, run);
	return err;
}

static int run__trace(struct run *run, const char **ret_why)
{
	int err;

	*ret_why = "the kernel gives no notice of mappings (perf events): see nccl-bpftrace check";
	err = run__open_sinks(run) ?: run__add_timers(run);
	command__tell_of_plugins(run->tracer);
	command__tell_of_privilege(run->options);
	err = err ?: tracer__start(run->tracer, on_settled, run);
	if (err)
		return err;
	/* Not when all that runs is attached to: a job that is slow to read must not delay it. */
	service__tell(run->service, "READY=1");
	err = loop__run(run->loop);
	service__tell(run->service, "STOPPING=1");
	run__publish(run);
	return err;
}

static void run__close(struct run *run)
{
	screen__give_back(run->screen);
	watch__free(run->watch);
	tracer__free(run->tracer);
	screen__free(run->screen);
	logline__free(run->logline);
	verdict_log__free(run->verdict_log);
	inspector_files__free(run->inspector);
	textfile__free(run->textfile);
	service__free(run->service);
	loop__free(run->loop);
}

int cmd_run(const struct options *options)
{
	struct run run = {.options = options};
	const char *why = "out of memory or file descriptors";
	int err = run__open_tracer(&run, &why) ?: run__open_watch(&run);

	/* Without privilege the directory would be to blame for it: the tracer comes first. */
	if (!err && (run__open_service(&run) || run__open_textfile(&run))) {
		run__close(&run);
		return EXIT_USAGE;
	}
	err = err ?: run__trace(&run, &why);
	run__close(&run);
	return err ? command__cannot_trace(err, why) : EXIT_OK;
}
