/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "../../src/metrics.c"
#include "../../src/prom.c"
#include "../../src/utf8.c"
#include "../../src/prom_file.c"

#include "unit_prom.h"

/* The text after the first '"', up to the one that ends the line's only label. */
static void label_of(const char *value, char *ret, size_t size)
{
	const char *const labels[] = {value};
	struct prom *p = prom_new(BIG_CAP);
	const char *start, *end;

	prom__begin(p, METRIC_PROCESSES);
	CHECK_INT(prom__sample_u64(p, labels, 1), 0);
	start = strstr(text_of(p), "{state=\"") + strlen("{state=\"");
	end = strstr(start, "\"} 1\n");
	CHECK(end && (size_t)(end - start) < size);
	snprintf(ret, size, "%.*s", (int)(end - start), start);
	prom__free(p);
}

static void expect_label(const char *value, const char *want)
{
	char got[1024];

	label_of(value, got, sizeof(got));
	CHECK_STR(got, want);
}

static void expect_number(double value, const char *want)
{
	struct prom *p = prom_new(BIG_CAP);
	char line[128];

	prom__begin(p, METRIC_HEARTBEAT);
	CHECK_INT(prom__sample(p, NULL, value), 0);
	snprintf(line, sizeof(line), "\nnccl_bpftrace_heartbeat_timestamp_seconds %s\n", want);
	if (!strstr(text_of(p), line))
		CHECK_STR(text_of(p), line);
	prom__free(p);
}

TEST(families_are_sound)
{
	for (int i = 0; i < METRIC_COUNT; i++) {
		const struct prom_family *f = &prom_families[i];
		size_t len = f->name ? strlen(f->name) : 0;
		bool total = len > 6 && !strcmp(f->name + len - 6, "_total");

		CHECK(f->name && f->type && f->help && f->labels);
		CHECK(!strncmp(f->name, "nccl_", 5));
		CHECK(strspn(f->name, "abcdefghijklmnopqrstuvwxyz_") == len);
		CHECK(total == !strcmp(f->type, "counter"));
		CHECK(!strpbrk(f->help, "\\\n") && f->help[strlen(f->help) - 1] == '.');
		for (int j = 0; f->labels[j]; j++) {
			CHECK(strncmp(f->labels[j], "__", 2));
			CHECK(strcmp(f->labels[j], "job") && strcmp(f->labels[j], "instance"));
			CHECK(strcmp(f->labels[j], "cluster"));
		}
		CHECK(f->capped == (f->labels[0] && !strcmp(f->labels[0], "job_id")));
		for (int j = 0; j < i; j++)
			CHECK(strcmp(f->name, prom_families[j].name));
	}
}

TEST(format_is_exact)
{
	const char *const info[] = {"1.0", NULL, "6.1"};
	const char *const lost[][1] = {{"ring_full"}, {"bad_record"}};
	struct prom *p = prom_new(BIG_CAP);

	prom__begin(p, METRIC_BUILD_INFO);
	prom__sample_u64(p, info, 1);
	prom__begin(p, METRIC_PROCESSES); /* no sample: nothing of it */
	prom__begin(p, METRIC_EVENTS_LOST);
	prom__sample_u64(p, lost[0], 0);
	prom__sample_u64(p, lost[1], 5);
	CHECK_STR(text_of(p),
		  "# HELP nccl_bpftrace_build_info A constant 1, labelled with the versions of "
		  "nccl-bpftrace, of libbpf and of the kernel it runs on.\n"
		  "# TYPE nccl_bpftrace_build_info gauge\n"
		  "nccl_bpftrace_build_info{version=\"1.0\",libbpf=\"\",kernel=\"6.1\"} 1\n"
		  "# HELP nccl_bpftrace_events_lost_total Records lost before they were taken into "
		  "account, by reason.\n"
		  "# TYPE nccl_bpftrace_events_lost_total counter\n"
		  "nccl_bpftrace_events_lost_total{reason=\"ring_full\"} 0\n"
		  "nccl_bpftrace_events_lost_total{reason=\"bad_record\"} 5\n");
	prom__free(p);
}

TEST(histograms)
{
	static const double bounds[] = {1e-5, 0.5};
	static const uint64_t buckets[] = {3, 0, 4};
	const char *const labels[] = {"7", "GPU-x"};
	struct prom *p = prom_new(5);

	prom__begin(p, METRIC_QUEUE);
	CHECK_INT(prom__histogram(p, labels, bounds, 2, buckets, 1.5), 0);
	CHECK_INT(prom__histogram(p, labels, bounds, 2, buckets, NAN), -EINVAL);
	CHECK(strstr(
		text_of(p),
		"# TYPE nccl_operation_queue_seconds histogram\n"
		"nccl_operation_queue_seconds_bucket{job_id=\"7\",UUID=\"GPU-x\",le=\"1e-05\"} 3\n"
		"nccl_operation_queue_seconds_bucket{job_id=\"7\",UUID=\"GPU-x\",le=\"0.5\"} 3\n"
		"nccl_operation_queue_seconds_bucket{job_id=\"7\",UUID=\"GPU-x\",le=\"+Inf\"} 7\n"
		"nccl_operation_queue_seconds_sum{job_id=\"7\",UUID=\"GPU-x\"} 1.5\n"
		"nccl_operation_queue_seconds_count{job_id=\"7\",UUID=\"GPU-x\"} 7\n"));
	CHECK_INT(prom__suppressed(p), 0);
	/* all of it or nothing */
	CHECK_INT(prom__histogram(p, labels, bounds, 2, buckets, 1.5), 0);
	CHECK_INT(prom__suppressed(p), 5);
	CHECK_INT(count_of(text_of(p), "_sum"), 1);
	prom__free(p);
}

TEST(cluster_label_comes_first)
{
	struct prom *p = prom_new(BIG_CAP);
	const char *text;

	prom__set_cluster(p, "c\"1");
	prom__begin(p, METRIC_EVENTS);
	prom__sample_u64(p, NULL, 3);
	prom__begin(p, METRIC_LAST_OPERATION);
	prom__sample(p, comm_labels, 1.5);
	prom__set_cluster(p, "");
	prom__begin(p, METRIC_CPU_SECONDS);
	prom__sample(p, NULL, 2);
	text = text_of(p);
	CHECK(strstr(text, "\nnccl_bpftrace_events_total{cluster=\"c\\\"1\"} 3\n"));
	CHECK(strstr(text,
		     "{cluster=\"c\\\"1\",job_id=\"7\",UUID=\"GPU-x\",comm=\"00c0ffee00c0ffee\","
		     "rank=\"0\"} 1.5\n"));
	CHECK(strstr(text, "\nnccl_bpftrace_cpu_seconds_total 2\n"));
	prom__free(p);
}

TEST(numbers_are_exact)
{
	struct prom *p = prom_new(BIG_CAP);

	prom__begin(p, METRIC_EVENTS);
	CHECK_INT(prom__sample_u64(p, NULL, UINT64_MAX), 0);
	CHECK(strstr(text_of(p), "\nnccl_bpftrace_events_total 18446744073709551615\n"));
	prom__free(p);
	expect_number(0.1, "0.1");
	expect_number(0.1 + 0.2, "0.30000000000000004");
	expect_number(1764442800, "1764442800");
	expect_number(1764442800.125, "1764442800.125");
	expect_number(4294967295., "4294967295");
	expect_number(-0.5, "-0.5");
	expect_number(1e308, "1e+308");
	expect_number(9007199254740993., "9007199254740992");
}

TEST(nan_and_infinity_are_refused)
{
	struct prom *p = prom_new(BIG_CAP);

	prom__begin(p, METRIC_HEARTBEAT);
	CHECK_INT(prom__sample(p, NULL, NAN), -EINVAL);
	CHECK_INT(prom__sample(p, NULL, INFINITY), -EINVAL);
	CHECK_INT(prom__sample(p, NULL, -INFINITY), -EINVAL);
	CHECK_STR(text_of(p), "");
	prom__free(p);
}

TEST(family_is_not_taken_up_twice)
{
	struct prom *p = prom_new(BIG_CAP);

	CHECK_INT(prom__sample_u64(p, NULL, 1), -EINVAL);
	CHECK_INT(prom__begin(p, METRIC_EVENTS), 0);
	CHECK_INT(prom__begin(p, METRIC_EVENTS), 0);
	prom__sample_u64(p, NULL, 1);
	CHECK_INT(prom__begin(p, METRIC_HEARTBEAT), 0);
	CHECK_INT(prom__begin(p, METRIC_EVENTS), -EALREADY);
	CHECK_INT(prom__sample_u64(p, NULL, 2), -EINVAL);
	CHECK_INT(count_of(text_of(p), "# TYPE"), 1);
	prom__reset(p);
	CHECK_STR(text_of(p), "");
	CHECK_INT(prom__begin(p, METRIC_EVENTS), 0);
	CHECK_INT(prom__sample_u64(p, NULL, 2), 0);
	CHECK_INT(count_of(text_of(p), "# TYPE"), 1);
	prom__free(p);
}

TEST(values_are_escaped)
{
	expect_label("", "");
	expect_label(NULL, "");
	expect_label("plain", "plain");
	expect_label("a\"b\\c\nd", "a\\\"b\\\\c\\nd");
	expect_label("\\n", "\\\\n");
	expect_label("a{b}=c,d #", "a{b}=c,d #");
}

TEST(values_are_valid_utf8)
{
	expect_label("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
		     "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
	expect_label("a\xff"
		     "b",
		     "a" REPLACEMENT "b");
	expect_label("\x80", REPLACEMENT); /* a tail without a head */
	expect_label("\xc3", REPLACEMENT); /* cut by the end */
	expect_label("\xe2\x82", REPLACEMENT REPLACEMENT);
	expect_label("\xc3(", REPLACEMENT "(");
	expect_label("\xc0\xaf", REPLACEMENT REPLACEMENT); /* '/' in two bytes */
	expect_label("\xe0\x80\xaf", REPLACEMENT REPLACEMENT REPLACEMENT);
	expect_label("\xed\xa0\x80", REPLACEMENT REPLACEMENT REPLACEMENT); /* surrogate */
	expect_label("\xf4\x90\x80\x80", REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT);
	expect_label("\xf0\x80\x80\x80", REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT);
	expect_label("\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf",
		     "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf");
}

TEST(control_characters_are_replaced)
{
	expect_label("a\x1b[31m\tb\r\x7f",
		     "a" REPLACEMENT "[31m" REPLACEMENT "b" REPLACEMENT REPLACEMENT);
	expect_label("\xc2\x9b\xc2\xa0", REPLACEMENT "\xc2\xa0");
}

TEST(long_values_are_cut_on_a_boundary)
{
	char value[4097], want[512];

	memset(value, 'x', 128);
	value[128] = '\0';
	expect_label(value, value);
	memset(value, 'x', 4096);
	value[4096] = '\0';
	snprintf(want, sizeof(want), "%.125s" ELLIPSIS, value);
	expect_label(value, want);
	/* two bytes each, so that 125 falls within one: 62 of them and the ellipsis */
	for (int i = 0; i < 4096; i += 2)
		memcpy(value + i, "\xc3\xa9", 2);
	snprintf(want, sizeof(want), "%.124s" ELLIPSIS, value);
	expect_label(value, want);
	/* the bound is before escaping, which doubles */
	memset(value, '"', 128);
	value[128] = '\0';
	for (int i = 0; i < 256; i += 2)
		memcpy(want + i, "\\\"", 2);
	want[256] = '\0';
	expect_label(value, want);
	memset(value, 0xff, 4096);
	label_of(value, want, sizeof(want));
	CHECK_INT(strlen(want), 41 * 3 + 3);
}

TEST(cap_counts_what_it_leaves_out)
{
	struct prom *p = prom_new(5000);

	for (int round = 1; round <= 2; round++) {
		prom__reset(p);
		prom__begin(p, METRIC_LAST_OPERATION);
		for (int i = 0; i < 10000; i++)
			CHECK_INT(prom__sample_u64(p, comm_labels, 1), 0);
		prom__begin(p, METRIC_EVENTS); /* the agent's own are never refused */
		prom__sample_u64(p, NULL, 9);
		prom__begin(p, METRIC_OPERATION_SEQUENCE);
		CHECK_INT(prom__sample_u64(p, comm_labels, 1), 0);
		CHECK_INT(count_of(text_of(p), "\nnccl_last_operation_timestamp_seconds{"), 5000);
		CHECK(strstr(text_of(p), "\nnccl_bpftrace_events_total 9\n"));
		CHECK(!strstr(text_of(p), "nccl_operation_sequence"));
		CHECK_INT(prom__suppressed(p), 5001 * round);
	}
	prom__free(p);
}

TEST(admission_is_whole_or_not_at_all)
{
	struct prom *p = prom_new(10);

	CHECK(prom__admit(p, 6));
	CHECK(!prom__admit(p, 5));
	CHECK(prom__admit(p, 4));
	CHECK(prom__admit(p, 0));
	CHECK(!prom__admit(p, 1));
	CHECK_INT(prom__suppressed(p), 6);
	prom__reset(p);
	CHECK(prom__admit(p, 10));
	CHECK(!prom__admit(p, SIZE_MAX / 2));
	prom__free(p);
}

TEST(lack_of_memory_is_kept)
{
	struct prom *p = prom_new(BIG_CAP);
	const char *text;
	size_t len;

	p->error = -ENOMEM;
	prom__begin(p, METRIC_EVENTS);
	CHECK_INT(prom__sample_u64(p, NULL, 1), -ENOMEM);
	CHECK_INT(prom__text(p, &text, &len), -ENOMEM);
	CHECK_INT(prom__publish(p, AT_FDCWD, "never.prom"), -ENOMEM);
	prom__reset(p);
	CHECK_INT(prom__sample_u64(p, NULL, 1), -EINVAL);
	CHECK_STR(text_of(p), "");
	prom__free(p);
}

UNIT_MAIN()
