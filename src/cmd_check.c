/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "commands.h"
#include "job_names.h"
#include "pid_namespace.h"
#include "plugin_conf.h"
#include "sanitize.h"
#include "util.h"

#define MAX_ITEMS 64

struct item {
	const char *name, *mend;
	bool ok;
	char found[512];
};

struct check {
	const struct options *options;
	struct item items[MAX_ITEMS];
	unsigned int n;
	bool able;
};

static void __attribute__((format(printf, 5, 6)))
check__item(struct check *check, const char *name, bool ok, const char *mend, const char *format,
	    ...)
{
	struct item *item;
	va_list args;

	if (check->n == MAX_ITEMS)
		return;
	item = &check->items[check->n++];
	item->name = name;
	item->ok = ok;
	item->mend = ok ? "" : mend;
	va_start(args, format);
	vsnprintf(item->found, sizeof(item->found), format, args);
	va_end(args);
	check->able &= ok;
}

/*
 * What each is for: bpf(); perf events and probes; other users' /proc/PID/mem; map_files, and that
 * directory's mode. The last of each row gives the first, too.
 */
static void check__privilege(struct check *check)
{
	static const struct {
		const char *name;
		cap_value_t capability, or_else;
	} needed[] = {
		{"CAP_BPF", CAP_BPF, CAP_SYS_ADMIN},
		{"CAP_PERFMON", CAP_PERFMON, CAP_SYS_ADMIN},
		{"CAP_SYS_PTRACE", CAP_SYS_PTRACE, CAP_SYS_PTRACE},
		{"CAP_CHECKPOINT_RESTORE", CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN},
		{"CAP_DAC_READ_SEARCH", CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE},
	};
	cap_t caps = cap_get_proc();
	char missing[128] = "";

	for (unsigned int i = 0; caps && i < ARRAY_SIZE(needed); i++) {
		if (!command__has_capability(caps, needed[i].capability) &&
		    !command__has_capability(caps, needed[i].or_else))
			snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing),
				 " %s", needed[i].name);
	}
	cap_free(caps);
	check__item(check, "privilege", !missing[0], "run it with sudo, or grant what is missing",
		    missing[0] ? "missing:%s" : "all capabilities that are needed", missing);
}

static void check__kernel(struct check *check)
{
	unsigned int major = 0, minor = 0;
	struct utsname kernel;

	uname(&kernel);
	sscanf(kernel.release, "%u.%u", &major, &minor);
	check__item(check, "kernel", major > 5 || (major == 5 && minor >= 15),
		    "Linux 5.15 or later is needed (attach cookies)", "Linux %s", kernel.release);
	check__item(check, "btf", !access("/sys/kernel/btf/vmlinux", R_OK),
		    "use a kernel built with CONFIG_DEBUG_INFO_BTF=y", "/sys/kernel/btf/vmlinux");
}

/* Nothing more can be tried where it is another one. */
static bool check__pid_namespace(struct check *check)
{
	bool is_host = pid_namespace__is_host();

	check__item(
		check, "PID namespace", is_host, PID_NAMESPACE_MEND,
		is_host ? "the host's"
			: "not the host's, or /proc is another's: process numbers do not match");
	return is_host;
}

/* Without them the host can be traced no less. */
static void check__pod_names(struct check *check)
{
	const char *root = check->options->host_root;
	int err = job_names__look_for_pods(root);

	check__item(check, "names of pods", true, "", "%svar/log/pods below %s%s%s",
		    err ? "none: " : "from ", root ?: JOB_NAMES_ROOT " or /", err ? ": " : "",
		    err ? strerror(-err) : "");
}

static void check__textfile_dir(struct check *check)
{
	const char *dir = check->options->textfile_dir ?: DEFAULT_TEXTFILE_DIR;
	struct stat st;
	bool exists = !stat(dir, &st) && S_ISDIR(st.st_mode);

	if (!exists && !check->options->textfile_dir)
		check__item(check, "textfile directory", true, "",
			    "none: %s is not there, so no textfile without --textfile-dir", dir);
	else
		check__item(check, "textfile directory", exists && !access(dir, W_OK),
			    exists ? "let this user write to it"
				   : "create it, writable by root alone",
			    "%s%s", dir,
			    !exists		? " is not there"
			    : access(dir, W_OK) ? " cannot be written to"
						: "");
}

static void check__library(struct check *check, const struct library *library)
{
	const struct nccl_image *image = &library->image;
	char version[16], path[256], unknown[64] = "";
	unsigned int n = 0;

	sanitize__text(library->path[0] ? library->path : library->name, path, sizeof(path));
	if (library->state == LIBRARY_UNSUPPORTED) {
		/* Nothing is wrong with this host for it. */
		check__item(check, "library", true, "", "%s cannot be traced: %s", path,
			    library->reason);
		return;
	}
	for (unsigned int i = 0; i < NCCL_FN_PROBED; i++)
		n += image->entry[i] != 0;
	if (image->n_unknown)
		snprintf(unknown, sizeof(unknown),
			 "; %u exported functions unknown to this release", image->n_unknown);
	check__item(check, "library", true, "",
		    "%s: NCCL %s, %u functions to probe, identity %s, list of communicators %s%s",
		    path, nccl_version__format(image->version, version), n,
		    image->layout.source == NCCL_LAYOUT_TABLE  ? "by table"
		    : image->layout.source == NCCL_LAYOUT_CODE ? "by machine code"
							       : "not known",
		    image->comms_vaddr ? "found" : "not found", unknown);
}

static void check__libraries(struct check *check, struct tracer *tracer)
{
	bool any = false;

	for (struct library *l = libraries__first(tracer__libraries(tracer)); l; l = l->hh.next) {
		if ((l->state != LIBRARY_SEEN && l->state != LIBRARY_UNSUPPORTED) ||
		    !library__may_be_nccl(l))
			continue;
		check__library(check, l);
		any = true;
	}
	if (!any)
		check__item(check, "library", true, "", "no process has NCCL loaded now");
}

/* Which jobs can be timed: not a question of whether this host is able. */
static void check__plugin(struct check *check, struct tracer *tracer)
{
	unsigned int n = 0, with = 0, awake = 0;
	char without[48] = "";

	for (struct process *p = processes__first(tracer__processes(tracer)); p; p = p->hh.next) {
		if (p->gone_ns || !process__nccl(p) || p->is_fork_copy)
			continue;
		n++;
		with += process__plugin(p) != PLUGIN_ABSENT;
		awake += process__plugin(p) == PLUGIN_ACTIVE;
		if (process__plugin(p) == PLUGIN_ABSENT)
			snprintf(without, sizeof(without), "; not in process %u", p->tgid);
	}
	check__item(check, "plugin in jobs", true, "", "in %u of %u NCCL processes, %u awake%s%s",
		    with, n, awake, without, n - with > 1 ? " and others" : "");
}

/* They give GPU time only where --foreign-plugins asks for it. */
static void check__foreign(struct check *check, struct tracer *tracer)
{
	const struct process *first = NULL;
	unsigned int n = 0;
	const char *why;
	char path[256];

	for (struct process *p = processes__first(tracer__processes(tracer)); p; p = p->hh.next) {
		if (p->gone_ns || !process__nccl(p) || p->is_fork_copy ||
		    !process__foreign_mapping(p, 0) || process__plugin(p) != PLUGIN_ABSENT)
			continue;
		first = first ?: p;
		n++;
	}
	if (first)
		check__item(
			check, "another profiler plugin", true, "",
			"in %u NCCL processes; in process %u: %s (ABI v%d)", n, first->tgid,
			sanitize__text(library__shown(process__foreign_mapping(first, 0)->library),
				       path, sizeof(path)),
			process__foreign_version(first, &why));
}

/* For jobs that start from now on: what NCCL's configuration file says. */
static void check__plugin_conf(struct check *check)
{
	struct plugin_conf conf;
	char value[256], file[PLUGIN_VALUE_MAX + 32];
	int err = plugin_conf__status(PLUGIN_CONF_PATH, &conf);
	const char *what = "";

	if (err) {
		check__item(check, "plugin for the node", true, "", PLUGIN_CONF_PATH ": %s",
			    strerror(-err));
		return;
	}
	sanitize__text(conf.plugin, value, sizeof(value));
	plugin_conf__library(conf.plugin, file, sizeof(file));
	if (conf.state == PLUGIN_CONF_NONE)
		what = PLUGIN_CONF_PATH
			" names none: `nccl-bpftrace plugin enable` gives it to every job";
	else if (conf.state == PLUGIN_CONF_OTHER)
		what = "another's, by " PLUGIN_CONF_PATH ": ";
	else if (file[0] == '/' && access(file, R_OK))
		what = PLUGIN_CONF_PATH " names a file that is not there: ";
	else
		what = "by " PLUGIN_CONF_PATH ": ";
	check__item(check, "plugin for the node", true, "", "%s%s", what, value);
}

static void on_settled(void *ctx)
{
	loop__stop(ctx, 0);
}

/* Is there anything to tell of processes? An item of its own where they could not be looked at. */
static bool check__look(struct check *check, const struct tracer *tracer)
{
	const char *why;
	int err = command__looked(tracer, &why);

	if (err)
		check__item(check, "look at processes", false, why, "%s", strerror(-err));
	return !err;
}

/* Loads the programs, listens for mappings and looks at what runs: the whole way, but no probe. */
static void check__tracing(struct check *check)
{
	struct tracer_options options = command__tracer_options(check->options);
	const char *why = "";
	struct tracer *tracer = NULL;
	struct loop *loop = NULL;
	int err;

	options.watch = true;
	err = loop__new(&loop) ?: tracer__new(&tracer, loop, &options, &why);
	check__item(check, "bpf programs", !err, why, err ? "refused: %s" : "loaded%s",
		    err ? strerror(-err) : "");
	if (!err) {
		bool may = !probe__may_attach(tracer__probe(tracer), &why);

		check__item(check, "attaching", may, why, "%s",
			    probe__uses_multi(tracer__probe(tracer))
				    ? "uprobe_multi links"
				    : "perf event links (Linux 6.6 detaches faster)");
		err = tracer__start(tracer, on_settled, loop);
		check__item(check, "notice of new processes", !err,
			    "CAP_PERFMON, or kernel.perf_event_paranoid below 3, is needed", "%s",
			    err ? strerror(-err) : "perf events");
	}
	if (!err && !loop__run(loop) && check__look(check, tracer)) {
		check__libraries(check, tracer);
		check__plugin(check, tracer);
		check__foreign(check, tracer);
	}
	tracer__free(tracer);
	loop__free(loop);
}

static void check__print_json(const struct check *check)
{
	json_t *items = json_array(), *root;

	for (unsigned int i = 0; i < check->n; i++) {
		const struct item *item = &check->items[i];

		json_array_append_new(items, json_pack("{s:s, s:b, s:s, s:s}", "name", item->name,
						       "ok", item->ok, "found", item->found, "mend",
						       item->mend));
	}
	root = json_pack("{s:s, s:o}", "schema", "nccl-bpftrace/check/1", "items", items);
	json_dumpf(root, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(root);
}

static void check__print_text(const struct check *check)
{
	for (unsigned int i = 0; i < check->n; i++) {
		const struct item *item = &check->items[i];

		printf("%s  %-24s %s\n", item->ok ? "ok  " : "FAIL", item->name, item->found);
		if (!item->ok)
			printf("      %-24s mend: %s\n", "", item->mend);
	}
}

int cmd_check(const struct options *options)
{
	struct check check = {.options = options, .able = true};

	check__kernel(&check);
	check__privilege(&check);
	if (check__pid_namespace(&check))
		check__tracing(&check);
	check__pod_names(&check);
	check__plugin_conf(&check);
	check__textfile_dir(&check);
	if (options->json)
		check__print_json(&check);
	else
		check__print_text(&check);
	return check.able ? EXIT_OK : EXIT_CANNOT_TRACE;
}
