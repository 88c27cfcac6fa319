/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include "attach.h"
#include "commands.h"
#include "nccl_bpftrace_plugin.h"
#include "sanitize.h"
#include "util.h"

struct tracer_options command__tracer_options(const struct options *options)
{
	struct tracer_options t = {
		.probe =
			{
				.method = options->method,
				.ring_bytes = options->ring_bytes,
				.checksum = options->checksum,
				.foreign = options->foreign_plugins,
			},
		.n_pids = options->n_pids,
		.cgroup = options->cgroup,
		.host_root = options->host_root,
		.fuse = options->fuse,
		.handover_after_ns = options->handover_after_s * NSEC_PER_SEC,
		.knobs =
			{
				.budget_ppm = options->gpu_budget_ppm,
				.wants = options->kernel_timer ? NBP_WANT_KERNEL_TIMER : 0,
			},
	};

	memcpy(t.pids, options->pids, sizeof(t.pids));
	return t;
}

/* A descriptor per process and per link: shells give 1024, nodes run more. */
void command__raise_limits(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int command__cannot_trace(int err, const char *why)
{
	fprintf(stderr, "nccl-bpftrace: cannot trace here (%s): %s\n", strerror(-err), why);
	return EXIT_CANNOT_TRACE;
}

int command__looked(const struct tracer *tracer, const char **ret_why)
{
	int err = tracer__look_failed(tracer);

	if (err)
		*ret_why =
			"the processes that run cannot be looked at: that takes a helper process, "
			"see pids.max and memory.max of this cgroup, and ulimit -u";
	return err;
}

void command__tell_of_look(const struct tracer *tracer)
{
	const char *why;
	int err = command__looked(tracer, &why);

	if (err)
		fprintf(stderr, "nccl-bpftrace: %s (%s); tried again\n", why, strerror(-err));
}

const char *command__not_known(const struct process *process)
{
	const struct library *library = process__nccl(process);

	if (library->state == LIBRARY_UNSUPPORTED)
		return library->reason;
	if (process->scan_err == -ETIMEDOUT)
		return "its memory did not answer in time";
	if (process->scan_err)
		return "its memory cannot be read";
	if (library->image.layout.source == NCCL_LAYOUT_NONE)
		return "this NCCL's layout is not known: ranks are learnt only from calls that a tracer sees";
	if (!library->image.comms_vaddr)
		return "this NCCL lists no communicators: they are learnt as they call, from a tracer that is there";
	return NULL;
}

const char *command__where(const struct options *options)
{
	return options->n_pids || options->cgroup ? "among those asked for" : "on this node";
}

static void on_foreign(void *ctx, const struct process *process, int version)
{
	const struct process_mapping *mapping = process__foreign_mapping(process, 0);
	char path[512], outcome[128];

	(void)ctx;
	if (version)
		snprintf(outcome, sizeof(outcome), "followed (ABI v%d)", version);
	else
		snprintf(outcome, sizeof(outcome), "not followed: %s", process->foreign.why);
	fprintf(stderr, "nccl-bpftrace: process %u: profiler plugin %s: %s\n", process->tgid,
		sanitize__text(library__shown(mapping->library), path, sizeof(path)), outcome);
}

bool command__has_capability(cap_t caps, cap_value_t capability)
{
	cap_flag_value_t value = CAP_CLEAR;

	return !cap_get_flag(caps, capability, CAP_EFFECTIVE, &value) && value == CAP_SET;
}

static bool may_write_to_jobs(void)
{
	cap_t caps = cap_get_proc();
	bool may = caps && command__has_capability(caps, CAP_DAC_OVERRIDE);

	cap_free(caps);
	return may;
}

void command__tell_of_privilege(const struct options *options)
{
	bool asked = options->gpu_budget_ppm != NBP_DEFAULT_BUDGET_PPM || options->kernel_timer;

	if (asked && !may_write_to_jobs())
		fprintf(stderr,
			"nccl-bpftrace: --gpu-timing-budget and --kernel-timer have no effect on "
			"other users' jobs: they are written into the plugin's memory, for which "
			"CAP_DAC_OVERRIDE is missing\n");
	if (options->foreign_plugins && !attach__perf_is_permitted())
		fprintf(stderr,
			"nccl-bpftrace: --foreign-plugins has no effect: probes in one process "
			"alone are set by perf events, for which CAP_SYS_ADMIN is missing\n");
}

static void on_timer_refused(void *ctx, const struct process *process)
{
	char version[16];

	(void)ctx;
	fprintf(stderr,
		"nccl-bpftrace: process %u: no --kernel-timer: NCCL %s would tell wrong times\n",
		process->tgid,
		nccl_version__format(process__nccl(process)->image.version, version));
}

void command__tell_of_plugins(struct tracer *tracer)
{
	tracer__on_foreign(tracer, on_foreign, NULL);
	tracer__on_timer_refused(tracer, on_timer_refused, NULL);
}

static void on_signal(void *ctx)
{
	loop__stop(ctx, 0);
}

int command__stop_on_signals(struct loop *loop)
{
	struct loop_source *source;
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return -errno;
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	return fd < 0 ? -errno : loop__add_fd(loop, fd, on_signal, loop, &source);
}
