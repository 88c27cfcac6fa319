/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of options, and what reads the value of each kind. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "cgroup.h"
#include "options_private.h"
#include "util.h"

#define LASTING	    (BIT(RUN) | BIT(RECORD))
#define TRACING	    (LASTING | BIT(DIAGNOSE))
#define EVERY	    (TRACING | BIT(PS) | BIT(CHECK) | BIT(PLUGIN))
#define FIELD(name) offsetof(struct options, name)

static void *field(struct options *options, const struct option_row *row)
{
	return (char *)options + row->offset;
}

/* Why a value is refused: whoever knows where it stands prints it. */
int options__refuse(struct options *options, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(options->why, sizeof(options->why), format, args);
	va_end(args);
	return -EINVAL;
}

static int parse_flag(struct options *options, const char *value, const struct option_row *row)
{
	bool *flag = field(options, row);

	/* The command line gives no value, the configuration file must. */
	if (value && strcmp(value, "yes") && strcmp(value, "no"))
		return options__refuse(options, "%s: '%s' is neither yes nor no", row->name, value);
	*flag = !value || !strcmp(value, "yes");
	return 0;
}

static int parse_text(struct options *options, const char *value, const struct option_row *row)
{
	if (!*value)
		return options__refuse(options, "--%s is empty: give a %s", row->name,
				       row->metavar);
	*(const char **)field(options, row) = value;
	return 0;
}

/* Digits only: no sign, no space, no base but ten. */
static int parse_digits(const char *text, uint64_t *ret)
{
	uint64_t n = 0;

	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (!isdigit((unsigned char)*text) || n > (UINT64_MAX - 9) / 10)
			return -EINVAL;
		n = n * 10 + (*text - '0');
	}
	*ret = n;
	return 0;
}

static int bad_number(struct options *options, const char *value, const struct option_row *row)
{
	return options__refuse(options, "--%s: '%s' is not a whole number from %llu to %llu",
			       row->name, value, (unsigned long long)row->min,
			       (unsigned long long)row->max);
}

static int parse_number(struct options *options, const char *value, const struct option_row *row)
{
	uint64_t n;

	if (parse_digits(value, &n) || n < row->min || n > row->max)
		return bad_number(options, value, row);
	*(uint64_t *)field(options, row) = n;
	return 0;
}

static int parse_pid(struct options *options, const char *value, const struct option_row *row)
{
	uint64_t n;

	if (parse_digits(value, &n) || n < row->min || n > row->max)
		return bad_number(options, value, row);
	if (options->n_pids == TRACER_MAX_PIDS)
		return options__refuse(options, "--pid: at most %d; use --cgroup for more",
				       TRACER_MAX_PIDS);
	options->pids[options->n_pids++] = n;
	return 0;
}

static int parse_method(struct options *options, const char *value, const struct option_row *row)
{
	static const char *const names[] = {
		[PROBE_AUTO] = "auto", [PROBE_MULTI] = "multi", [PROBE_PERF] = "perf"};

	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(names[i], value))
			continue;
		options->method = i;
		return 0;
	}
	return options__refuse(options, "--%s: '%s' is none of auto, multi, perf", row->name,
			       value);
}

static int parse_format(struct options *options, const char *value, const struct option_row *row)
{
	bool ours = !strcmp(value, "jsonl");

	if (!ours && strcmp(value, "inspector"))
		return options__refuse(options, "--%s: '%s' is neither jsonl nor inspector",
				       row->name, value);
	options->format = ours ? RECORD_JSONL : RECORD_INSPECTOR;
	return 0;
}

static int parse_size(struct options *options, const char *value, const struct option_row *row)
{
	size_t digits = strspn(value, "0123456789");
	char number[24], unit = value[digits];
	uint64_t n, shift = unit == 'K' ? 10 : unit == 'M' ? 20 : 0;

	if (digits < sizeof(number) && (!unit || (shift && !value[digits + 1]))) {
		memcpy(number, value, digits);
		number[digits] = 0;
		if (!parse_digits(number, &n) && n <= row->max >> shift && n << shift >= row->min) {
			*(uint64_t *)field(options, row) = n << shift;
			return 0;
		}
	}
	return options__refuse(options, "--%s: '%s' is not a size from 4K to 1024M", row->name,
			       value);
}

/* Of 100, up to four decimals; kept as parts of a million. */
static int parse_percent(struct options *options, const char *value, const struct option_row *row)
{
	size_t whole = strspn(value, "0123456789"), decimals = 0;
	uint64_t ppm = 0;

	if (value[whole] == '.')
		decimals = strspn(value + whole + 1, "0123456789");
	if (!whole || whole > 3 || decimals > 4 || (value[whole] == '.') != (decimals > 0) ||
	    value[whole + (decimals ? decimals + 1 : 0)])
		return options__refuse(
			options,
			"--%s: '%s' is not a percentage from 0 to 100, with at most four "
			"decimals",
			row->name, value);
	for (size_t i = 0; i < whole; i++)
		ppm = ppm * 10 + (value[i] - '0');
	for (size_t i = 0; i < 4; i++)
		ppm = ppm * 10 + (i < decimals ? value[whole + 1 + i] - '0' : 0);
	if (ppm > row->max)
		return options__refuse(options, "--%s: '%s' is more than 100 percent", row->name,
				       value);
	*(uint64_t *)field(options, row) = ppm;
	return 0;
}

static int parse_cgroup(struct options *options, const char *value, const struct option_row *row)
{
	char *name;

	if (cgroup__resolve(value, &name))
		return options__refuse(options,
				       "--%s: there is no cgroup '%s': give its directory below "
				       "/sys/fs/cgroup",
				       row->name, value);
	*(const char **)field(options, row) = name;
	return 0;
}

static int parse_directory(struct options *options, const char *value, const struct option_row *row)
{
	struct stat st;

	if (stat(value, &st))
		return options__refuse(options, "--%s: '%s': %s: give a directory", row->name,
				       value, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return options__refuse(options, "--%s: '%s' is not a directory: give one that is",
				       row->name, value);
	*(const char **)field(options, row) = value;
	return 0;
}

const struct option_row option_rows[] = {
	{"textfile-dir", 0, "DIR", BIT(RUN) | BIT(CHECK),
	 "write nccl_bpftrace.prom there (default: /var/lib/prometheus/node-exporter if it exists)",
	 parse_text, .offset = FIELD(textfile_dir)},
	{"interval", 0, "SEC", BIT(RUN), "seconds between two textfiles or log lines (15)",
	 parse_number, 1, 86400, FIELD(interval_s)},
	{"output", 'o', "FILE", BIT(RECORD), "the new file to record to; - is standard output",
	 parse_text, .offset = FIELD(output)},
	{"format", 0, "FORMAT", BIT(RECORD),
	 "jsonl (the default), all that is known; inspector, NVIDIA Inspector's JSON lines",
	 parse_format, 0, 0, 0},
	{"duration", 0, "SEC", TRACING,
	 "end after so many seconds (default: until a signal; diagnose: 10)", parse_number, 1,
	 31536000, FIELD(duration_s)},
	{"pid", 0, "PID", TRACING | BIT(PS), "only this process; can be given more than once",
	 parse_pid, 1, 4194304, 0},
	{"cgroup", 0, "PATH", TRACING | BIT(PS),
	 "only processes in this cgroup (as in /proc/PID/cgroup) or below it", parse_cgroup,
	 .offset = FIELD(cgroup)},
	{"host-root", 0, "DIR", LASTING | BIT(PS) | BIT(CHECK),
	 "the host's root, where names of pods and containers are (/proc/1/root)", parse_directory,
	 .offset = FIELD(host_root)},
	{"no-ui", 0, NULL, BIT(RUN), "log lines, even on a terminal", parse_flag,
	 .offset = FIELD(no_ui)},
	{"cluster", 0, "NAME", BIT(RUN),
	 "add a label `cluster` to every series (a job's SLURM_CLUSTER_NAME)", parse_text,
	 .offset = FIELD(cluster)},
	{"max-series", 0, "N", BIT(RUN), "at most so many series of jobs in the textfile (5000)",
	 parse_number, 1, 1000000, FIELD(max_series)},
	{"ring-size", 0, "SIZE", TRACING, "ring buffer for records, 4K to 1024M (4M)", parse_size,
	 4096, 1ULL << 30, FIELD(ring_bytes)},
	{"attach", 0, "METHOD", TRACING,
	 "auto (the default), multi (uprobe_multi, Linux 6.6) or perf (perf events)", parse_method,
	 0, 0, 0},
	{"fuse", 0, NULL, TRACING,
	 "probe files on FUSE mounts too: one that hangs can then stop every fork here", parse_flag,
	 .offset = FIELD(fuse)},
	{"gpu-timing-budget", 0, "PCT", TRACING,
	 "percent of wall time that timing launches may cost a process; 0: none, 100: every one (1)",
	 parse_percent, 0, 1000000, FIELD(gpu_budget_ppm)},
	{"handover-after", 0, "SEC", LASTING,
	 "a process whose plugin told of all its collectives so long loses the probes on them; 0: never (10)",
	 parse_number, 0, 86400, FIELD(handover_after_s)},
	{"stuck-after", 0, "SEC", BIT(RUN) | BIT(DIAGNOSE),
	 "a communicator that waits so long is stuck (60; diagnose: 10)", parse_number, 1, 86400,
	 FIELD(stuck_after_s)},
	{"kernel-timer", 0, NULL, LASTING,
	 "also NCCL's own timer on the GPU, for graph replays: costs small operations up to twice",
	 parse_flag, .offset = FIELD(kernel_timer)},
	{"foreign-plugins", 0, NULL, LASTING,
	 "GPU time from profiler plugins that are not ours, too: costs each of their events a trap",
	 parse_flag, .offset = FIELD(foreign_plugins)},
	{"config", 0, "FILE", BIT(RUN),
	 "read `option = value` lines from it; the command line wins", parse_text,
	 .offset = FIELD(config)},
	{"chain", 0, NULL, BIT(PLUGIN),
	 "enable: keep another's plugin that is named there behind ours", parse_flag,
	 .offset = FIELD(chain)},
	{"plugin", 0, "FILE", BIT(PLUGIN), "enable this file (default: the one that came with it)",
	 parse_text, .offset = FIELD(plugin)},
	{"conf", 0, "FILE", BIT(PLUGIN), "NCCL's configuration file (default: /etc/nccl.conf)",
	 parse_text, .offset = FIELD(conf)},
	{"json", 0, NULL, BIT(PS) | BIT(DIAGNOSE) | BIT(CHECK) | BIT(PLUGIN),
	 "print one JSON object", parse_flag, .offset = FIELD(json)},
	{"verify-records", 0, NULL, BIT(RUN), NULL, parse_flag, .offset = FIELD(checksum)},
	{"verbose", 'v', NULL, EVERY, "show libbpf's messages too", parse_flag,
	 .offset = FIELD(verbose)},
	{"help", 'h', NULL, EVERY, "this text", parse_flag, .offset = FIELD(help)},
	{"version", 'V', NULL, EVERY, "versions of this program, libbpf and the kernel", parse_flag,
	 .offset = FIELD(version)},
};
const unsigned int n_option_rows = ARRAY_SIZE(option_rows);
