/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "../../src/cgroup.c"
#include "../../src/config_file.c"
#include "../../src/options.c"
#include "../../src/options_table.c"

const struct command_row command_rows[COMMAND_MAX] = {
	[COMMAND_RUN] = {"run", "", NULL},
	[COMMAND_PS] = {"ps", "", NULL},
	[COMMAND_DIAGNOSE] = {"diagnose", "", NULL},
	[COMMAND_CHECK] = {"check", "", NULL},
	[COMMAND_RECORD] = {"record", "", NULL},
	[COMMAND_PLUGIN] = {"plugin", "", NULL, "enable disable status"},
};

/* Values of a configuration file live as long as the process, by contract. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:read_setting";
}

/* Parses the words; what it says goes to `said`. */
static char said[512];

static int parse(struct options *options, int argc, char **argv)
{
	FILE *old = stderr, *memory = fmemopen(said, sizeof(said), "w");
	int err;

	memset(said, 0, sizeof(said));
	stderr = memory;
	err = options__parse(options, argc, argv);
	fclose(memory);
	stderr = old;
	return err;
}

#define PARSE(options, ...)                                                                        \
	parse(options, ARRAY_SIZE(((char *[]){"nccl-bpftrace", __VA_ARGS__})),                     \
	      (char *[]){"nccl-bpftrace", __VA_ARGS__, NULL})

TEST(defaults)
{
	struct options o;

	CHECK(!parse(&o, 1, (char *[]){"nccl-bpftrace", NULL}));
	CHECK_INT(o.command, COMMAND_RUN);
	CHECK_INT(o.interval_s, 15);
	CHECK_INT(o.max_series, 5000);
	CHECK_INT(o.duration_s, 0);
	CHECK(!o.textfile_dir);
}

TEST(defaults_of_diagnose)
{
	struct options o;

	CHECK(!PARSE(&o, "run"));
	CHECK_INT(o.stuck_after_s, 60);
	CHECK(!PARSE(&o, "diagnose"));
	CHECK_INT(o.duration_s, 10);
	CHECK_INT(o.stuck_after_s, 10);
	CHECK(!PARSE(&o, "diagnose", "--duration", "30", "--stuck-after=20"));
	CHECK_INT(o.duration_s, 30);
	CHECK_INT(o.stuck_after_s, 20);
}

TEST(values_by_space_or_equals_sign)
{
	struct options o;

	CHECK(!PARSE(&o, "run", "--interval", "5", "--pid=12", "--pid", "13", "--no-ui", "-v"));
	CHECK_INT(o.interval_s, 5);
	CHECK_INT(o.n_pids, 2);
	CHECK_INT(o.pids[1], 13);
	CHECK(o.no_ui && o.verbose);
}

TEST(bad_numbers_are_refused)
{
	static const char *const bad[] = {"",	 "0",	"-1",	 "+1",
					  " 1",	 "1 ",	"1s",	 "0x10",
					  "1.5", "1e3", "86401", "99999999999999999999",
					  "nan"};
	struct options o;

	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK_INT(PARSE(&o, "run", "--interval", (char *)bad[i]), -EINVAL);
		CHECK(strstr(said, "--interval") && strchr(said, '\n') == said + strlen(said) - 1);
	}
}

TEST(a_word_that_a_command_needs)
{
	static const char *const bad[] = {"", "on", "able", "enable disable", "enabled", "-"};
	struct options o;

	CHECK(!PARSE(&o, "plugin", "--json", "enable"));
	CHECK_STR(o.action, "enable");
	CHECK(!PARSE(&o, "plugin", "status", "--conf", "/x"));
	CHECK_STR(o.action, "status");
	CHECK_INT(PARSE(&o, "plugin"), -EINVAL);
	CHECK(strstr(said, "enable disable status"));
	CHECK(!PARSE(&o, "plugin", "--help"));
	CHECK_INT(PARSE(&o, "plugin", "enable", "disable"), -EINVAL);
	CHECK_INT(PARSE(&o, "ps", "enable"), -EINVAL);
	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK_INT(PARSE(&o, "plugin", (char *)bad[i]), -EINVAL);
}

TEST(record)
{
	struct options o;

	CHECK(!PARSE(&o, "record", "-o", "-", "--format", "inspector", "--pid", "3"));
	CHECK_STR(o.output, "-");
	CHECK_INT(o.format, RECORD_INSPECTOR);
	CHECK(!PARSE(&o, "record", "--output=x"));
	CHECK_INT(o.format, RECORD_JSONL);
	CHECK_INT(PARSE(&o, "record"), -EINVAL);
	CHECK(strstr(said, "-o FILE"));
	CHECK(!PARSE(&o, "record", "--help"));
	CHECK_INT(PARSE(&o, "record", "-o"), -EINVAL);
	CHECK_INT(PARSE(&o, "record", "-o", ""), -EINVAL);
	CHECK_INT(PARSE(&o, "record", "-o", "x", "--format", "chrome"), -EINVAL);
	CHECK(strstr(said, "jsonl nor inspector"));
	CHECK_INT(PARSE(&o, "run", "-o", "x"), -EINVAL);
	CHECK_INT(PARSE(&o, "record", "-o", "x", "--interval", "5"), -EINVAL);
}

TEST(sizes)
{
	struct options o;

	CHECK(!PARSE(&o, "--ring-size", "4K"));
	CHECK_INT(o.ring_bytes, 4096);
	CHECK(!PARSE(&o, "--ring-size", "16M"));
	CHECK_INT(o.ring_bytes, 16 << 20);
	CHECK_INT(PARSE(&o, "--ring-size", "3K"), -EINVAL);
	CHECK_INT(PARSE(&o, "--ring-size", "2048M"), -EINVAL);
	CHECK_INT(PARSE(&o, "--ring-size", "M"), -EINVAL);
	CHECK_INT(PARSE(&o, "--ring-size", "1MB"), -EINVAL);
	CHECK_INT(PARSE(&o, "--ring-size", "99999999999999999999999999M"), -EINVAL);
}

TEST(what_is_wrong_is_named)
{
	struct options o;

	CHECK_INT(PARSE(&o, "--bogus"), -EINVAL);
	CHECK(strstr(said, "--bogus"));
	CHECK_INT(PARSE(&o, "trace"), -EINVAL);
	CHECK(strstr(said, "trace"));
	CHECK_INT(PARSE(&o, "ps", "--interval", "3"), -EINVAL);
	CHECK(strstr(said, "ps") && strstr(said, "--interval"));
	CHECK_INT(PARSE(&o, "run", "--interval"), -EINVAL);
	CHECK(strstr(said, "needs a value"));
	CHECK_INT(PARSE(&o, "run", "--no-ui=1"), -EINVAL);
	CHECK_INT(PARSE(&o, "run", "extra"), -EINVAL);
	CHECK(strstr(said, "extra"));
	CHECK_INT(PARSE(&o, "run", "-"), -EINVAL);
	CHECK_INT(PARSE(&o, "run", "--attach", "magic"), -EINVAL);
	CHECK(strstr(said, "magic"));
}

TEST(percent)
{
	static const struct {
		const char *text;
		uint64_t ppm;
	} good[] = {{"0", 0},	     {"1", 10000},  {"0.5", 5000},	   {"100", 1000000},
		    {"2.25", 22500}, {"0.0001", 1}, {"100.0000", 1000000}, {"007", 70000}};
	static const char *const bad[] = {"",	 "-1",	"101", "100.0001", "1.",      ".5",  "1e1",
					  "0x1", "1,5", " 1",  "1%",	   "1.00001", "9999"};
	struct options o;

	CHECK(!PARSE(&o, "run"));
	CHECK_INT(o.gpu_budget_ppm, 10000);
	CHECK(!o.kernel_timer);
	for (unsigned int i = 0; i < ARRAY_SIZE(good); i++) {
		CHECK(!PARSE(&o, "run", "--kernel-timer", "--gpu-timing-budget",
			     (char *)good[i].text));
		CHECK_INT(o.gpu_budget_ppm, good[i].ppm);
		CHECK(o.kernel_timer);
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		CHECK_INT(PARSE(&o, "run", "--gpu-timing-budget", (char *)bad[i]), -EINVAL);
		CHECK(strstr(said, "--gpu-timing-budget"));
	}
}

static const char *write_config(const char *text)
{
	static char path[] = "/tmp/nccl-bpftrace-unit.conf.XXXXXX";
	FILE *file;

	strcpy(path + strlen(path) - 6, "XXXXXX");
	file = fdopen(mkstemp(path), "w");
	fputs(text, file);
	fclose(file);
	return path;
}

TEST(the_command_line_wins_over_the_file)
{
	const char *path = write_config("# a comment\ninterval = 30 # why\n\nmax-series=7\n");
	struct options o;

	CHECK(!PARSE(&o, "run", "--config", (char *)path, "--interval", "5"));
	CHECK_INT(o.interval_s, 5);
	CHECK_INT(o.max_series, 7);
	unlink(path);
}

TEST(a_bad_file_is_named_with_its_line)
{
	static const char *const bad[] = {"interval = 30\nbogus = 1\n", "interval = 30\ninterval\n",
					  "interval = 30\ninterval = x\n",
					  "interval = 30\nconfig = /etc/x\n"};
	struct options o;

	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
		const char *path = write_config(bad[i]);

		CHECK_INT(PARSE(&o, "run", "--config", (char *)path), -EINVAL);
		CHECK(strstr(said, ":2:") != NULL);
		unlink(path);
	}
	CHECK_INT(PARSE(&o, "run", "--config", "/nonexistent/x"), -EINVAL);
	CHECK(strstr(said, "/nonexistent/x"));
}

UNIT_MAIN()
