/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the tests of the textfile share: the sink with a stub tracer, and the file that it makes. */
#ifndef NCCL_BPFTRACE_TESTS_TEXTFILE_FILE_H
#define NCCL_BPFTRACE_TESTS_TEXTFILE_FILE_H

#include "../bench/textfile_files.h"

#include <ctype.h>
#include <fcntl.h>
#include <sys/wait.h>

#include "stub_tracer.h"
#include "stub_watch.h"
#include "unit_prom.h"

int uname(struct utsname *host)
{
	*host = (struct utsname){.nodename = "node17", .release = "6.1"};
	return 0;
}

const char *libbpf_version_string(void)
{
	return "v1.1";
}

static char dir[64], text[1 << 20];

static void hand_out(void *ctx, const struct timing_launch *launch)
{
	struct tracer *tracer = ctx;

	if (tracer->on_launch)
		tracer->on_launch(tracer->on_launch_ctx, launch);
}

static inline struct tracer *tracer_new(void)
{
	struct tracer *tracer = stub_new();

	tracer->refreshed_ns = now_ns();
	timings__new(&tracer->timings, hand_out, tracer);
	return tracer;
}

static inline void tracer_free(struct tracer *tracer)
{
	timings__free(tracer->timings);
	stub_free(tracer);
}

static inline void make_dir(void)
{
	strcpy(dir, "/tmp/test_textfile.XXXXXX");
	CHECK(mkdtemp(dir) == dir);
}

static inline const char *file_name(void)
{
	static char name[128];

	snprintf(name, sizeof(name), "%s/%s", dir, PROM_FILE_NAME);
	return name;
}

static inline void remove_dir(void)
{
	char lock[128];

	snprintf(lock, sizeof(lock), "%s/%s", dir, LOCK_NAME);
	unlink(lock);
	unlink(file_name());
	CHECK_INT(rmdir(dir), 0);
}

static inline size_t read_file(void)
{
	FILE *file = fopen(file_name(), "re");
	size_t len = file ? fread(text, 1, sizeof(text) - 1, file) : 0;

	if (file)
		fclose(file);
	text[len] = 0;
	return len;
}

/* What a write gives, in text. */
static inline void write_once(struct tracer *tracer, size_t max_series, const char *cluster)
{
	struct textfile *tf = NULL;

	make_dir();
	CHECK_INT(textfile__new(&tf, dir, max_series, cluster), 0);
	CHECK_INT(textfile__write(tf, tracer), 0);
	CHECK(read_file() > 0);
	textfile__free(tf);
	remove_dir();
}

static inline int compare_lines(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Series of capped families; no series may be there twice. Destroys text. */
static inline size_t count_series(void)
{
	static char *lines[100000];
	size_t n = 0, n_capped = 0;

	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (line[0] != '#' && n < ARRAY_SIZE(lines)) {
			*strrchr(line, ' ') = 0;
			lines[n++] = line;
			n_capped += strstr(line, "UUID=") != NULL;
		}
	qsort(lines, n, sizeof(*lines), compare_lines);
	for (size_t i = 1; i < n; i++)
		if (!strcmp(lines[i - 1], lines[i]))
			CHECK_STR(lines[i], "a series that is there once");
	return n_capped;
}

static inline bool has(const char *line)
{
	if (strstr(text, line))
		return true;
	printf("lacks: %s\n", line);
	return false;
}

/* The text of the last write; where there is no promtool the test is skipped. */
#define check_with_promtool()                                                                      \
	do {                                                                                       \
		if (access("/usr/bin/promtool", X_OK))                                             \
			unit_skipped = "no promtool";                                              \
		else                                                                               \
			CHECK_INT(promtool_status(), 0);                                           \
	} while (0)

static inline int promtool_status(void)
{
	FILE *pipe = popen("/usr/bin/promtool check metrics", "we");

	if (!pipe)
		return -1;
	fwrite(text, 1, strlen(text), pipe);
	return pclose(pipe);
}

#endif
