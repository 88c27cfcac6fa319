/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "../../src/nccl_api.c"
#include "../../src/timing_form.c"
#include "../../src/timing_stats.c"

#define US 1000ULL

static const struct timing_comm comm = {.n_ranks = 8, .rank = 1};

/* One AllReduce of that many bytes, as it is handed out. */
struct one {
	struct timing_operation operation;
	struct timing_launch launch;
};

static const struct timing_launch *one(struct one *one, uint64_t bytes, uint64_t duration_ns)
{
	one->operation = (struct timing_operation){
		.operation = NCCL_OP_AllReduce,
		.count = bytes,
		.type_bytes = 1,
		.algorithm = NBP_RING,
		.protocol = NBP_LL,
	};
	one->launch = (struct timing_launch){
		.comm = &comm,
		.number = 1,
		.duration_ns = duration_ns,
		.clock_error_ns = NBP_UNKNOWN,
		.timing = NBP_TIMED,
		.n_operations = 1,
		.n_described = 1,
		.operations = &one->operation,
		.complete = true,
	};
	launch__judge(&one->launch);
	return &one->launch;
}

static struct timing_stats *stats_new(void)
{
	struct timing_stats *stats = NULL;

	CHECK_INT(timing_stats__new(&stats), 0);
	return stats;
}

static struct timing_job *job_of(struct timing_stats *stats, const char *id, uint32_t tgid)
{
	return timing_stats__job(stats, id, "GPU-x", "", tgid);
}

TEST(sizes_by_bytes)
{
	static const struct {
		uint64_t bytes;
		const char *name;
	} cases[] = {
		{0, "lt64KiB"},		 {65535, "lt64KiB"},
		{65536, "lt1MiB"},	 {(1 << 20) - 1, "lt1MiB"},
		{1 << 20, "lt16MiB"},	 {16 << 20, "lt256MiB"},
		{256 << 20, "ge256MiB"}, {UINT64_MAX, "ge256MiB"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct timing_stats *stats = stats_new();
		struct timing_job *job = job_of(stats, "1", 1);
		struct one o;

		timing_stats__add(stats, job, one(&o, cases[i].bytes, US), 1);
		CHECK_INT(job->n_series, 1);
		CHECK_STR(timing_size__name(job->series[0]->size), cases[i].name);
		timing_stats__free(stats);
	}
}

TEST(bounds_are_upper_ones)
{
	struct timing_stats *stats = stats_new();
	struct timing_job *job = job_of(stats, "1", 1);
	struct one o;

	timing_stats__add(stats, job, one(&o, 1, 10 * US), 1);
	timing_stats__add(stats, job, one(&o, 1, 10 * US + 1), 1);
	timing_stats__add(stats, job, one(&o, 1, 3600000000ULL * US), 1);
	CHECK_INT(job->series[0]->duration.buckets[0], 1);
	CHECK_INT(job->series[0]->duration.buckets[1], 1);
	CHECK_INT(job->series[0]->duration.buckets[TIMING_N_BOUNDS], 1);
	timing_stats__free(stats);
}

TEST(what_is_not_known_has_empty_labels)
{
	struct timing_stats *stats = stats_new();
	struct timing_job *job = job_of(stats, "1", 1);
	struct one o;

	one(&o, 1000, US);
	o.operation.type_bytes = 0;
	o.operation.algorithm = o.operation.protocol = NBP_UNKNOWN_U8;
	launch__judge(&o.launch);
	timing_stats__add(stats, job, &o.launch, 0);
	CHECK_STR(timing_size__name(job->series[0]->size), "");
	CHECK_STR(timing_scope__name(job->series[0]->scope), "");
	CHECK_STR(nbp_algorithm__name(job->series[0]->rates[0].algorithm), "");
	CHECK(job->series[0]->rates[0].bus_bytes == 0);
	timing_stats__free(stats);
}

TEST(what_is_refused_or_captured_is_in_no_sum)
{
	struct timing_stats *stats = stats_new();
	struct timing_job *job = job_of(stats, "1", 1);
	double ratio = 0;
	struct one o;

	one(&o, 1, US);
	o.launch.complete = false;
	timing_stats__add(stats, job, &o.launch, 1);
	timing_stats__add(stats, job, one(&o, 1, 0), 1);
	one(&o, 1, US);
	o.launch.capture = NBP_CAPTURED_YES;
	timing_stats__add(stats, job, &o.launch, 1);
	timing_stats__add(stats, job, one(&o, 1, US), 1);
	CHECK_INT(job->n_series, 1);
	CHECK_INT(histogram__count(&job->series[0]->duration), 1);
	job__close_interval(job);
	CHECK(timing_job__sample_ratio(job, &ratio));
	CHECK(ratio > 0.33 && ratio < 0.34); /* of three that ran */
	timing_stats__free(stats);
}

/* A launch that was timed only because it came after a pause is none of what is usual. */
TEST(what_came_after_a_pause_is_timed_and_in_no_sum)
{
	struct timing_stats *stats = stats_new();
	struct timing_job *job = job_of(stats, "1", 1);
	double ratio = 0;
	struct one o;

	one(&o, 1, 900 * US);
	o.launch.after_pause = true;
	timing_stats__add(stats, job, &o.launch, 1);
	CHECK_INT(job->n_series, 0);
	timing_stats__add(stats, job, one(&o, 1, US), 1);
	CHECK_INT(job->n_series, 1);
	CHECK_INT(histogram__count(&job->series[0]->duration), 1);
	CHECK_INT(job->series[0]->rates[0].ns, US);
	job__close_interval(job);
	CHECK(timing_job__sample_ratio(job, &ratio) && ratio == 0.5);
	timing_stats__free(stats);
}

TEST(a_queue_delay_needs_a_call_and_a_good_clock)
{
	static const struct {
		uint64_t call_ns, start_ns;
		uint32_t error_ns;
		unsigned int n;
	} cases[] = {
		{1000, 41000, 2000, 1},
		{1000, 41000, 10000, 1},
		{1000, 41000, 10001, 0},
		{0, 41000, 0, 0},
		{1000, 0, 0, 0},
		{50000, 41000, 0, 0},
		{1000, 41000, NBP_UNKNOWN, 0},
		{40000, 41000, 2500, 1},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct timing_stats *stats = stats_new();
		struct timing_job *job = job_of(stats, "1", 1);
		struct one o;

		one(&o, 1, US);
		o.operation.call_ns = cases[i].call_ns;
		o.launch.gpu_start_ns = cases[i].start_ns;
		o.launch.clock_error_ns = cases[i].error_ns;
		timing_stats__add(stats, job, &o.launch, 1);
		CHECK_INT(histogram__count(&job->queue), cases[i].n);
		timing_stats__free(stats);
	}
}

static bool is_alive(void *ctx, uint32_t tgid)
{
	return tgid == *(uint32_t *)ctx;
}

TEST(a_job_goes_with_its_last_process)
{
	struct timing_stats *stats = stats_new();
	uint32_t alive = 2;

	job_of(stats, "a", 1);
	job_of(stats, "a", 2);
	job_of(stats, "b", 1);
	CHECK(job_of(stats, "a", 2) == job_of(stats, "a", 1));
	timing_stats__sweep(stats, is_alive, &alive);
	CHECK_INT(HASH_COUNT(stats->jobs), 2); /* b is shown once more */
	timing_stats__sweep(stats, is_alive, &alive);
	CHECK_INT(HASH_COUNT(stats->jobs), 1);
	CHECK_STR(timing_stats__first(stats)->key.job_id, "a");
	alive = 0;
	timing_stats__sweep(stats, is_alive, &alive);
	job_of(stats, "a", 3); /* a process of it again: it goes on */
	alive = 3;
	timing_stats__sweep(stats, is_alive, &alive);
	timing_stats__sweep(stats, is_alive, &alive);
	CHECK_INT(HASH_COUNT(stats->jobs), 1);
	timing_stats__free(stats);
}

TEST(everything_is_bounded)
{
	struct timing_stats *stats = stats_new();
	struct timing_job *job;
	struct one o;
	char id[16];
	int n = 0;

	for (int i = 0; i < TIMING_MAX_JOBS + 100; i++) {
		snprintf(id, sizeof(id), "%d", i);
		job = job_of(stats, id, i);
		n += !job;
		timing_stats__add(stats, job, one(&o, 1, US), 1);
	}
	CHECK_INT(n, 100);
	CHECK_INT(timing_stats__overflow(stats), 100);
	job = job_of(stats, "0", 0);
	for (int op = 0; op < NCCL_OP_MAX; op++)
		for (int size = 0; size < TIMING_N_SIZES; size++)
			for (int n_nodes = 0; n_nodes < TIMING_N_SCOPES; n_nodes++) {
				static const int shifts[] = {0, 16, 20, 24, 28};

				one(&o, 1ULL << shifts[size], US);
				o.launch.operation = op;
				timing_stats__add(stats, job, &o.launch, n_nodes);
			}
	CHECK_INT(job->n_series, TIMING_MAX_SERIES);
	CHECK_INT(timing_stats__overflow(stats), 100 + 13 * 5 * 3 - TIMING_MAX_SERIES);
	for (int algorithm = 0; algorithm < NBP_ALGORITHM_MAX; algorithm++)
		for (int protocol = 0; protocol < NBP_PROTOCOL_MAX; protocol++) {
			one(&o, 1, US);
			o.operation.algorithm = algorithm;
			o.operation.protocol = protocol;
			timing_stats__add(stats, job, &o.launch, 1);
		}
	CHECK_INT(job->series[0]->n_rates, TIMING_MAX_RATES + 1);
	CHECK_STR(nbp_algorithm__name(job->series[0]->rates[TIMING_MAX_RATES].algorithm), "");
	timing_stats__free(stats);
}

UNIT_MAIN()
