/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cgroup.h"
#include "config_file.h"
#include "util.h"

#define BIT(command) (1U << COMMAND_##command)
#define EVERY	     (BIT(RUN) | BIT(PS) | BIT(CHECK))
#define FIELD(name)  offsetof(struct options, name)

static void *field(struct options *options, const struct option_row *row)
{
	return (char *)options + row->offset;
}

/* Why a value is refused: whoever knows where it stands prints it. */
static int __attribute__((format(printf, 2, 3)))
refuse(struct options *options, const char *format, ...)
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
		return refuse(options, "%s: '%s' is neither yes nor no", row->name, value);
	*flag = !value || !strcmp(value, "yes");
	return 0;
}

static int parse_text(struct options *options, const char *value, const struct option_row *row)
{
	if (!*value)
		return refuse(options, "--%s is empty: give a %s", row->name, row->metavar);
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
	return refuse(options, "--%s: '%s' is not a whole number from %llu to %llu", row->name,
		      value, (unsigned long long)row->min, (unsigned long long)row->max);
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
		return refuse(options, "--pid: at most %d; use --cgroup for more", TRACER_MAX_PIDS);
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
	return refuse(options, "--%s: '%s' is none of auto, multi, perf", row->name, value);
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
	return refuse(options, "--%s: '%s' is not a size from 4K to 1024M", row->name, value);
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
		return refuse(options,
			      "--%s: '%s' is not a percentage from 0 to 100, with at most four "
			      "decimals",
			      row->name, value);
	for (size_t i = 0; i < whole; i++)
		ppm = ppm * 10 + (value[i] - '0');
	for (size_t i = 0; i < 4; i++)
		ppm = ppm * 10 + (i < decimals ? value[whole + 1 + i] - '0' : 0);
	if (ppm > row->max)
		return refuse(options, "--%s: '%s' is more than 100 percent", row->name, value);
	*(uint64_t *)field(options, row) = ppm;
	return 0;
}

static int parse_cgroup(struct options *options, const char *value, const struct option_row *row)
{
	char *name;

	if (cgroup__resolve(value, &name))
		return refuse(options,
			      "--%s: there is no cgroup '%s': give its directory below "
			      "/sys/fs/cgroup",
			      row->name, value);
	*(const char **)field(options, row) = name;
	return 0;
}

const struct option_row option_rows[] = {
	{"textfile-dir", 0, "DIR", BIT(RUN) | BIT(CHECK),
	 "write nccl_bpftrace.prom there (default: /var/lib/prometheus/node-exporter if it exists)",
	 parse_text, .offset = FIELD(textfile_dir)},
	{"interval", 0, "SEC", BIT(RUN), "seconds between two textfiles or log lines (15)",
	 parse_number, 1, 86400, FIELD(interval_s)},
	{"duration", 0, "SEC", BIT(RUN),
	 "end after so many seconds (default: until SIGINT or SIGTERM)", parse_number, 1, 31536000,
	 FIELD(duration_s)},
	{"pid", 0, "PID", BIT(RUN) | BIT(PS), "only this process; can be given more than once",
	 parse_pid, 1, 4194304, 0},
	{"cgroup", 0, "PATH", BIT(RUN) | BIT(PS),
	 "only processes in this cgroup (as in /proc/PID/cgroup) or below it", parse_cgroup,
	 .offset = FIELD(cgroup)},
	{"no-ui", 0, NULL, BIT(RUN), "log lines, even on a terminal", parse_flag,
	 .offset = FIELD(no_ui)},
	{"cluster", 0, "NAME", BIT(RUN),
	 "add a label `cluster` to every series (a job's SLURM_CLUSTER_NAME)", parse_text,
	 .offset = FIELD(cluster)},
	{"max-series", 0, "N", BIT(RUN), "at most so many series of jobs in the textfile (5000)",
	 parse_number, 1, 1000000, FIELD(max_series)},
	{"ring-size", 0, "SIZE", BIT(RUN), "ring buffer for records, 4K to 1024M (4M)", parse_size,
	 4096, 1ULL << 30, FIELD(ring_bytes)},
	{"attach", 0, "METHOD", BIT(RUN),
	 "auto (the default), multi (uprobe_multi, Linux 6.6) or perf (perf events)", parse_method,
	 0, 0, 0},
	{"fuse", 0, NULL, BIT(RUN),
	 "probe files on FUSE mounts too: one that hangs can then stop every fork here", parse_flag,
	 .offset = FIELD(fuse)},
	{"gpu-timing-budget", 0, "PCT", BIT(RUN),
	 "percent of wall time that timing launches may cost a GPU; 0: none, 100: time every one (1)",
	 parse_percent, 0, 1000000, FIELD(gpu_budget_ppm)},
	{"kernel-timer", 0, NULL, BIT(RUN),
	 "also NCCL's own timer on the GPU, for graph replays: costs small operations up to twice",
	 parse_flag, .offset = FIELD(kernel_timer)},
	{"config", 0, "FILE", BIT(RUN),
	 "read `option = value` lines from it; the command line wins", parse_text,
	 .offset = FIELD(config)},
	{"json", 0, NULL, BIT(PS) | BIT(CHECK), "print one JSON object", parse_flag,
	 .offset = FIELD(json)},
	{"verify-records", 0, NULL, BIT(RUN), NULL, parse_flag, .offset = FIELD(checksum)},
	{"verbose", 'v', NULL, EVERY, "show libbpf's messages too", parse_flag,
	 .offset = FIELD(verbose)},
	{"help", 'h', NULL, EVERY, "this text", parse_flag, .offset = FIELD(help)},
	{"version", 'V', NULL, EVERY, "versions of this program, libbpf and the kernel", parse_flag,
	 .offset = FIELD(version)},
};
const unsigned int n_option_rows = ARRAY_SIZE(option_rows);

static const struct option_row *find_option(const char *name, size_t len, char letter)
{
	for (unsigned int i = 0; i < n_option_rows; i++) {
		const struct option_row *row = &option_rows[i];

		if (letter ? row->letter == letter
			   : strlen(row->name) == len && !memcmp(row->name, name, len))
			return row;
	}
	return NULL;
}

static int unknown_option(const struct options *options, const char *arg)
{
	fprintf(stderr, "nccl-bpftrace: unknown option '%s': see nccl-bpftrace %s --help\n", arg,
		command_rows[options->command].name);
	return -EINVAL;
}

/* One option of the command line; *at moves past a value that stands alone. */
static int parse_option(struct options *options, char **argv, int *at)
{
	const char *arg = argv[*at], *value = NULL;
	bool is_long = arg[1] == '-';
	const char *equals = is_long ? strchr(arg, '=') : NULL;
	size_t len = equals ? (size_t)(equals - arg - 2) : strlen(arg + 1 + is_long);
	const struct option_row *row =
		is_long || len == 1 ? find_option(arg + 2, len, is_long ? 0 : arg[1]) : NULL;

	if (!row)
		return unknown_option(options, arg);
	if (!(row->commands & 1U << options->command)) {
		fprintf(stderr, "nccl-bpftrace: %s takes no --%s: see nccl-bpftrace %s --help\n",
			command_rows[options->command].name, row->name,
			command_rows[options->command].name);
		return -EINVAL;
	}
	if (equals && !row->metavar) {
		fprintf(stderr, "nccl-bpftrace: --%s takes no value\n", row->name);
		return -EINVAL;
	}
	if (row->metavar)
		value = equals ? equals + 1 : argv[++*at];
	if (row->metavar && !value) {
		fprintf(stderr, "nccl-bpftrace: --%s needs a value: --%s %s\n", row->name,
			row->name, row->metavar);
		return -EINVAL;
	}
	if (!row->parse(options, value, row))
		return 0;
	fprintf(stderr, "nccl-bpftrace: %s\n", options->why);
	return -EINVAL;
}

static int parse_command(struct options *options, const char *name)
{
	for (int i = 0; i < COMMAND_MAX; i++) {
		if (strcmp(command_rows[i].name, name))
			continue;
		options->command = i;
		return 0;
	}
	fprintf(stderr, "nccl-bpftrace: unknown command '%s': see nccl-bpftrace --help\n", name);
	return -EINVAL;
}

static int parse_line(struct options *options, int argc, char **argv, int at)
{
	for (; at < argc; at++) {
		int err;

		if (argv[at][0] != '-' || !argv[at][1]) {
			fprintf(stderr,
				"nccl-bpftrace: unexpected argument '%s': see nccl-bpftrace "
				"%s --help\n",
				argv[at], command_rows[options->command].name);
			return -EINVAL;
		}
		err = parse_option(options, argv, &at);
		if (err)
			return err;
	}
	return 0;
}

static int parse_setting(void *ctx, const char *key, const char *value, const char **ret_why)
{
	struct options *options = ctx;
	const struct option_row *row = find_option(key, strlen(key), 0);

	*ret_why = options->why;
	if (!row || !(row->commands & BIT(RUN)))
		return refuse(options,
			      "'%s' is not an option of `run`: see nccl-bpftrace run --help", key);
	if (!strcmp(key, "config") || !strcmp(key, "help") || !strcmp(key, "version"))
		return refuse(options, "only the command line takes '%s'", key);
	return row->parse(options, value, row);
}

int options__parse(struct options *options, int argc, char **argv)
{
	int err, at = 1;

	*options = (struct options){
		.interval_s = 15,
		.max_series = 5000,
		.ring_bytes = PROBE_DEFAULT_RING_BYTES,
		.gpu_budget_ppm = NBP_DEFAULT_BUDGET_PPM,
	};
	if (argc > 1 && argv[1][0] != '-' && (err = parse_command(options, argv[at++])))
		return err;
	err = parse_line(options, argc, argv, at);
	if (err || !options->config || options->help)
		return err;
	/* The file first, the command line over it. */
	options->n_pids = 0;
	err = config_file__read(options->config, parse_setting, options);
	return err ?: parse_line(options, argc, argv, at);
}

static void help_commands(FILE *out)
{
	fprintf(out, "Usage: nccl-bpftrace [COMMAND] [OPTION]...\n"
		     "Traces every NCCL call on this node from outside the jobs.\n\nCommands:\n");
	for (int i = 0; i < COMMAND_MAX; i++)
		fprintf(out, "  %-8s %s\n", command_rows[i].name, command_rows[i].help);
	fprintf(out, "\nOptions of run (other commands: nccl-bpftrace COMMAND --help):\n");
}

static void help_option(FILE *out, const struct option_row *row)
{
	char left[40];

	snprintf(left, sizeof(left), "%s%c%s--%s%s%s", row->letter ? "-" : "  ", row->letter ?: ' ',
		 row->letter ? ", " : " ", row->name, row->metavar ? " " : "", row->metavar ?: "");
	fprintf(out, "  %-28s %s\n", left, row->help);
}

void options__help(FILE *out, const struct options *options)
{
	if (options->command == COMMAND_RUN)
		help_commands(out);
	else
		fprintf(out, "Usage: nccl-bpftrace %s [OPTION]...\n%s\n\nOptions:\n",
			command_rows[options->command].name, command_rows[options->command].help);
	for (unsigned int i = 0; i < n_option_rows; i++)
		if (option_rows[i].help && option_rows[i].commands & 1U << options->command)
			help_option(out, &option_rows[i]);
	fprintf(out, "\nExit status: 0 as asked, 2 usage, 3 this host cannot be traced "
		     "(see nccl-bpftrace check).\n");
}
