/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* NCCL's configuration file: what is read out of it, and what is written into it. */
#include "unit.h"

#include "../../src/plugin_conf.c"

#define OURS  "/usr/local/lib/nccl-bpftrace/libnccl-profiler-bpftrace.so"
#define LINE  "NCCL_PROFILER_PLUGIN=" OURS "\n"
#define OTHER "NCCL_PROFILER_PLUGIN=inspector\n"
#define CHAIN "NCCL_BPFTRACE_CHAIN=libnccl-profiler-inspector.so\n"

static enum plugin_conf_state state_of(const char *text)
{
	return plugin_conf__parse(text, strlen(text)).state;
}

/* Checks the text after enabling; NULL: it is refused. */
static void expect_enabled(const char *text, bool chain, const char *want)
{
	char *got = NULL;
	size_t len = 0;
	int err = plugin_conf__enable(text, strlen(text), OURS, chain, &got, &len);

	if (!want) {
		CHECK_INT(err, -EEXIST);
		return;
	}
	CHECK_INT(err, 0);
	CHECK_STR(got, want);
	CHECK_INT(len, strlen(want));
	free(got);
}

static void expect_disabled(const char *text, const char *want)
{
	char *got = NULL;
	size_t len = 0;

	CHECK_INT(plugin_conf__disable(text, strlen(text), &got, &len), 0);
	CHECK_STR(got, want);
	CHECK_INT(len, strlen(want));
	free(got);
}

TEST(reads_as_nccl_does)
{
	CHECK_INT(state_of(""), PLUGIN_CONF_NONE);
	CHECK_INT(state_of("# NCCL_PROFILER_PLUGIN=x\nNCCL_DEBUG=INFO"), PLUGIN_CONF_NONE);
	CHECK_INT(state_of(LINE), PLUGIN_CONF_OURS);
	CHECK_INT(state_of("NCCL_DEBUG=INFO\r\nNCCL_PROFILER_PLUGIN=bpftrace\r\n"),
		  PLUGIN_CONF_OURS);
	CHECK_INT(state_of("NCCL_PROFILER_PLUGIN=libnccl-profiler-bpftrace.so"), PLUGIN_CONF_OURS);
	CHECK_INT(state_of(OTHER), PLUGIN_CONF_OTHER);
	/* the first line of a name holds */
	CHECK_INT(state_of(LINE OTHER), PLUGIN_CONF_OURS);
	CHECK_INT(state_of(OTHER LINE), PLUGIN_CONF_OTHER);
	/* another name, and another's file */
	CHECK_INT(state_of(" NCCL_PROFILER_PLUGIN=x\nXNCCL_PROFILER_PLUGIN=x\n"), PLUGIN_CONF_NONE);
	CHECK_INT(state_of("NCCL_PROFILER_PLUGIN=/x/notlibnccl-profiler-bpftrace.so"),
		  PLUGIN_CONF_OTHER);
	CHECK_INT(state_of("NCCL_PROFILER_PLUGIN=\n" LINE), PLUGIN_CONF_OTHER);
}

TEST(values)
{
	const char text[] = LINE CHAIN OTHER "NCCL_BPFTRACE_CHAIN=second\n";
	struct plugin_conf conf = plugin_conf__parse(text, strlen(text));

	CHECK_STR(conf.plugin, OURS);
	CHECK_STR(conf.chain, "libnccl-profiler-inspector.so");
	CHECK_STR(conf.other, "inspector");
}

TEST(a_value_without_end_is_cut)
{
	static char text[5000] = "NCCL_PROFILER_PLUGIN=";
	struct plugin_conf conf;

	memset(text + strlen(text), 'x', sizeof(text) - strlen(text) - 1);
	conf = plugin_conf__parse(text, strlen(text));
	CHECK_INT(strlen(conf.plugin), PLUGIN_VALUE_MAX - 1);
	CHECK_INT(conf.state, PLUGIN_CONF_OTHER);
}

TEST(enable)
{
	expect_enabled("", false, LINE);
	expect_enabled("# site\nNCCL_DEBUG=WARN", false, LINE "# site\nNCCL_DEBUG=WARN");
	expect_enabled("A=1\r\n\r\n", false, LINE "A=1\r\n\r\n");
	/* already there, wherever it stands: not a byte changes */
	expect_enabled(LINE, false, LINE);
	expect_enabled("A=1\n" LINE "B=2", false, "A=1\n" LINE "B=2");
	/* an older place of ours */
	expect_enabled("A=1\nNCCL_PROFILER_PLUGIN=/opt/libnccl-profiler-bpftrace.so\nB=2", false,
		       LINE "A=1\nB=2");
	expect_enabled("NCCL_PROFILER_PLUGIN=bpftrace\n", false, LINE);
}

TEST(enable_with_another_s_plugin)
{
	expect_enabled(OTHER, false, NULL);
	expect_enabled("A=1\n" OTHER, true, LINE CHAIN "A=1\n" OTHER);
	/* again, with and without */
	expect_enabled(LINE CHAIN "A=1\n" OTHER, true, LINE CHAIN "A=1\n" OTHER);
	expect_enabled(LINE CHAIN "A=1\n" OTHER, false, LINE CHAIN "A=1\n" OTHER);
	/* ours stands first, but somebody named another since */
	expect_enabled(LINE OTHER, false, NULL);
	expect_enabled(LINE OTHER, true, LINE CHAIN OTHER);
	/* another place of ours keeps what is chained */
	expect_enabled("NCCL_PROFILER_PLUGIN=bpftrace\n" CHAIN, false, LINE CHAIN);
	/* nothing to hand on to */
	expect_enabled("NCCL_PROFILER_PLUGIN=none\n", true, LINE "NCCL_PROFILER_PLUGIN=none\n");
	expect_enabled("NCCL_PROFILER_PLUGIN=/x/y.so\n", true,
		       LINE "NCCL_BPFTRACE_CHAIN=/x/y.so\nNCCL_PROFILER_PLUGIN=/x/y.so\n");
}

TEST(enable_refuses_paths_that_no_line_holds)
{
	static char path[PLUGIN_VALUE_MAX + 1] = "/";
	char *text = NULL;
	size_t len;

	memset(path + 1, 'x', sizeof(path) - 2);
	CHECK_INT(plugin_conf__enable("", 0, path, false, &text, &len), -EINVAL);
	CHECK_INT(plugin_conf__enable("", 0, "lib.so", false, &text, &len), -EINVAL);
	CHECK_INT(plugin_conf__enable("", 0, "/a\nB=1", false, &text, &len), -EINVAL);
	CHECK(!text);
}

TEST(disable_undoes_enable)
{
	static const char *const texts[] = {
		"", "A=1", "A=1\n", "# x\n\n\nB = 2\r\n#end", "A=1\n" OTHER "B=2", "\xff\xfe=\n",
	};

	for (unsigned int i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char *text = NULL;
		size_t len;

		CHECK_INT(plugin_conf__enable(texts[i], strlen(texts[i]), OURS, true, &text, &len),
			  0);
		expect_disabled(text, texts[i]);
		free(text);
		expect_disabled(texts[i], texts[i]);
	}
	expect_disabled("A=1\nNCCL_PROFILER_PLUGIN=bpftrace", "A=1\n");
}

TEST(nul_bytes_are_bytes)
{
	static const char text[] = "A=\0x\n" LINE "B=\0";
	char *got = NULL;
	size_t len = 0;

	CHECK_INT(plugin_conf__disable(text, sizeof(text) - 1, &got, &len), 0);
	CHECK_INT(len, 8);
	CHECK(!memcmp(got, "A=\0x\nB=\0", 8));
	free(got);
}

UNIT_MAIN()
