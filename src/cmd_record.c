/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/utsname.h>

#include "commands.h"
#include "record_file.h"
#include "record_text.h"
#include "util.h"
#include "version.h"

#define FLUSH_NS     NSEC_PER_SEC
#define EXPIRE_TICKS 5 /* what has ended is forgotten so often */

struct record {
	const struct options *options;
	struct loop *loop;
	struct tracer *tracer;
	struct record_file *file;
	struct loop_source *tick, *end;
	struct json_text line;
	struct record_origin origin;
	struct record_totals totals;
	struct utsname host;
	uint64_t begun_ns;
	unsigned int n_ticks;
	int err; /* of the file */
	bool is_progress_shown;
};

static const char *record__path(const struct record *r)
{
	return strcmp(r->options->output, "-") ? r->options->output : "standard output";
}

/* What is in r->line goes to the file; the first failure ends the recording. */
static void record__put(struct record *r)
{
	int err = r->line.failed ? -ENOMEM : record_file__write(r->file, r->line.data, r->line.len);

	json_text__reset(&r->line);
	if (!err || r->err)
		return;
	r->err = err;
	loop__stop(r->loop, 0);
}

static const char *record__job(struct record *r, uint32_t tgid)
{
	struct process *process = processes__find(tracer__processes(r->tracer), tgid);

	return process && process->has_info ? process->info.job.job_id : NULL;
}

static void on_launch(void *ctx, const struct timing_launch *launch)
{
	struct record *r = ctx;

	if (r->err)
		return;
	r->origin.now_ns = now_ns();
	r->totals.launches++;
	r->totals.timed += launch->timing == NBP_TIMED && launch->duration_ns;
	if (r->options->format == RECORD_INSPECTOR) {
		r->totals.operations +=
			record_inspector__launch(&r->line, launch, &r->origin, r->totals.omitted);
	} else {
		r->totals.operations += launch->n_operations;
		record_jsonl__launch(&r->line, launch, record__job(r, launch->comm->key.tgid));
	}
	record__put(r);
}

/* A process whose plugin tells of its launches has them in the recording already. */
static void on_call(void *ctx, const struct nb_record *call)
{
	struct record *r = ctx;
	struct process *process = processes__find(tracer__processes(r->tracer), call->tgid);

	if (r->err || (process && process->plugin_heard_ns))
		return;
	r->totals.calls++;
	record_jsonl__call(&r->line, call, record__job(r, call->tgid));
	record__put(r);
}

/* True when the wall clock was set since the last look. */
static bool record__read_clocks(struct record *r)
{
	struct timespec wall;

	r->origin.now_ns = now_ns();
	return wall_offset__update(&r->origin.wall_offset_ns, &wall);
}

static uint64_t record__lost(struct record *r)
{
	uint64_t lost = 0;

	for (int i = 0; i < TRACER_LOST_MAX; i++)
		lost += tracer__lost(r->tracer, i);
	for (int i = 0; i < TIMING_LOST_MAX; i++)
		if (!timing_lost__is_time(i)) /* that is an invalid timing */
			lost += timings__lost(tracer__timings(r->tracer), i);
	return lost;
}

static void record__print_counts(struct record *r, const char *end)
{
	fprintf(stderr,
		"%llu launches (%llu timed), %llu operations, %llu calls, %llu bytes, %llu lost%s",
		(unsigned long long)r->totals.launches, (unsigned long long)r->totals.timed,
		(unsigned long long)r->totals.operations, (unsigned long long)r->totals.calls,
		(unsigned long long)record_file__bytes(r->file),
		(unsigned long long)record__lost(r), end);
}

static void record__show_progress(struct record *r)
{
	if (!isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r\033[K%llu s: ",
		(unsigned long long)((r->origin.now_ns - r->begun_ns) / NSEC_PER_SEC));
	record__print_counts(r, "");
	r->is_progress_shown = true;
}

static void on_tick(void *ctx)
{
	struct record *r = ctx;
	bool ours = r->options->format == RECORD_JSONL;

	if (record__read_clocks(r) && ours) {
		record_jsonl__clock(&r->line, &r->origin);
		record__put(r);
	}
	if (!r->err)
		r->err = record_file__flush(r->file);
	if (r->err)
		loop__stop(r->loop, 0);
	record__show_progress(r);
	if (++r->n_ticks % EXPIRE_TICKS)
		return;
	tracer__refresh(r->tracer);
	tracer__expire(r->tracer);
}

static void on_end(void *ctx)
{
	struct record *r = ctx;

	loop__stop(r->loop, 0);
}

static void on_settled(void *ctx)
{
	struct record *r = ctx;

	command__tell_of_look(r->tracer);
	fprintf(stderr, "nccl-bpftrace: recording to %s\n", record__path(r));
	on_tick(r);
}

static int record__start(struct record *r)
{
	struct utsname *host = &r->host;
	uint64_t duration_ns = r->options->duration_s * NSEC_PER_SEC;
	int err = 0;

	uname(host);
	r->begun_ns = now_ns();
	r->origin.host = host->nodename;
	r->origin.kernel = host->release;
	r->origin.version = "nccl-bpftrace " NCCL_BPFTRACE_VERSION;
	record__read_clocks(r);
	if (r->options->format == RECORD_JSONL) {
		record_jsonl__begin(&r->line, &r->origin);
		record__put(r);
		err = tracer__on_call(r->tracer, on_call, r);
	}
	command__tell_of_plugins(r->tracer);
	command__tell_of_privilege(r->options);
	err = err ?: tracer__on_launch(r->tracer, on_launch, r);
	err = err ?: loop__add_timer(r->loop, FLUSH_NS, FLUSH_NS, on_tick, r, &r->tick);
	if (!err && duration_ns)
		err = loop__add_timer(r->loop, duration_ns, 0, on_end, r, &r->end);
	err = err ?: command__stop_on_signals(r->loop);
	return err ?: tracer__start(r->tracer, on_settled, r);
}

/* Launches that are not known to be done belong to the recording, too. */
static void record__take_open_launches(struct record *r)
{
	struct timings *timings = tracer__timings(r->tracer);

	tracer__refresh(r->tracer);
	for (struct timing_comm *c = timings__first(timings); c; c = c->hh.next)
		if (!c->ended_ns)
			timings__process_gone(timings, c->key.tgid, now_ns());
}

/* The last line: what is missing, by reason. */
static void record__end(struct record *r)
{
	struct record_count lost[TRACER_LOST_MAX + TIMING_LOST_MAX + 1] = {};
	struct record_count invalid[TIMING_INVALID_MAX + 1] = {};
	struct timings *timings = tracer__timings(r->tracer);
	unsigned int n = 0;

	record__take_open_launches(r);
	for (int i = 0; i < TRACER_LOST_MAX; i++)
		lost[n++] = (struct record_count){tracer__lost_name(i), tracer__lost(r->tracer, i)};
	for (int i = 0; i < TIMING_LOST_MAX; i++)
		if (!timing_lost__is_time(i))
			lost[n++] = (struct record_count){timing_lost__name(i),
							  timings__lost(timings, i)};
	for (int i = 0; i < TIMING_INVALID_MAX; i++)
		invalid[i] = (struct record_count){timing_invalid__name(i),
						   timings__invalid(timings, i)};
	if (r->options->format != RECORD_JSONL)
		return;
	r->totals.lost = lost;
	r->totals.invalid = invalid;
	record__read_clocks(r);
	record_jsonl__end(&r->line, &r->origin, &r->totals);
	record__put(r);
}

static void record__print_summary(struct record *r)
{
	static const char *const omissions[INSPECTOR_OMISSION_MAX] = {
		[INSPECTOR_NOT_TIMED] = "launches not timed",
		[INSPECTOR_SEVERAL] = "launches of several operations",
		[INSPECTOR_SMALL] = "operations below 8192 bytes",
		[INSPECTOR_UNNAMED] = "operations without a name in Inspector",
		[INSPECTOR_UNSIZED] = "operations of unknown size",
	};

	if (r->is_progress_shown)
		fputc('\n', stderr);
	fprintf(stderr, "nccl-bpftrace: recorded to %s: ", record__path(r));
	record__print_counts(r, "\n");
	for (int i = 0; i < INSPECTOR_OMISSION_MAX; i++)
		if (r->totals.omitted[i])
			fprintf(stderr, "nccl-bpftrace: left out: %llu %s\n",
				(unsigned long long)r->totals.omitted[i], omissions[i]);
}

static int say_file_error(const struct record *r, int err)
{
	fprintf(stderr, "nccl-bpftrace: -o %s: %s: %s\n", r->options->output, strerror(-err),
		err == -EEXIST ? "give another name; what is there is not overwritten"
		: err == -EPIPE || err == -EINTR ? "its reader did not take all"
		: err == -ENOSPC || err == -EDQUOT || err == -EFBIG || err == -EIO
			? "what it holds ends with its last whole line"
			: "give a file in a directory that exists and can be written to");
	return EXIT_USAGE;
}

static int record__run(struct record *r, const char **ret_why)
{
	int err;

	*ret_why = "the kernel gives no notice of mappings (perf events): see nccl-bpftrace check";
	err = record__start(r) ?: loop__run(r->loop);
	if (!err)
		record__end(r);
	if (!err && !r->err)
		record__print_summary(r);
	return err;
}

int cmd_record(const struct options *options)
{
	struct tracer_options tracer_options = command__tracer_options(options);
	const char *why = "out of memory or file descriptors";
	struct record r = {.options = options};
	int err, file_err = 0;

	tracer_options.attach = tracer_options.watch = true;
	signal(SIGPIPE, SIG_IGN);
	err = loop__new(&r.loop) ?: tracer__new(&r.tracer, r.loop, &tracer_options, &why);
	if (!err) /* without privilege the file would be to blame for it: the tracer comes first */
		file_err = record_file__new(&r.file, options->output);
	if (!err && !file_err)
		err = record__run(&r, &why);
	tracer__free(r.tracer);
	loop__free(r.loop);
	file_err = file_err ?: r.err ?: record_file__close(r.file, !err);
	if (r.err)
		record_file__close(r.file, true);
	json_text__free(&r.line);
	if (err)
		return command__cannot_trace(err, why);
	return file_err ? say_file_error(&r, file_err) : EXIT_OK;
}
