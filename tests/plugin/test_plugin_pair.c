/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a pair of events adds to the time of a launch, and what is taken off for it. Each test has a
 * context of its own, as what is measured in one stays.
 */
#include "awake.h"

static struct job {
	uint64_t hash;
	void *context;
	struct fake_stream *stream;
	int mask;
} job;

static void events_take(uint32_t ns, uint32_t slow_ns)
{
	atomic_store(&fake_cuda.event_ns, ns);
	atomic_store(&fake_cuda.slow_ns, slow_ns);
}

static void job_begin(uint64_t number)
{
	cuda_context = (void *)(number << 12);
	job.hash = 0x9000 + number;
	job.stream = new_stream();
	job.context = awake_comm(6, &job.mask, job.hash, job.stream);
	set_budget(1000000);
}

static void job_end(void)
{
	events_take(0, 0);
	tables[6]->finalize(job.context);
	to_sleep();
}

static uint64_t time_of(void (*launch)(void *))
{
	struct nbp_record r = {0};

	forget_records();
	one_collective(6, job.context, job.stream, 1, 0, launch);
	CHECK_INT(wait_finished(job.hash, 1, &r), 1);
	CHECK_INT(r.launch.gpu_end_ns - r.launch.gpu_start_ns, r.launch.duration_ns);
	return r.launch.duration_ns;
}

/* The shortest of ten: what holds up the host between two calls is in the others. */
static uint64_t time_of_1ms(void)
{
	uint64_t shortest = UINT64_MAX;

	for (int i = 0; i < 10; i++) {
		uint64_t ns = time_of(launch_1ms);

		if (ns < shortest)
			shortest = ns;
	}
	return shortest;
}

/* Two readings are cut to nanoseconds. */
static bool is_about(uint64_t ns, uint64_t expected)
{
	printf("     %llu ns, %llu expected\n", (unsigned long long)ns,
	       (unsigned long long)expected);
	return ns + 2 >= expected && ns <= expected + 2;
}

static void wait_compared(void)
{
	ms_sleep(1200);
}

TEST(half_of_an_empty_pair_is_taken_off)
{
	events_take(60000, 0);
	job_begin(1);
	CHECK(is_about(time_of_1ms(), 1030000));
	job_end();
}

/* Of five tries two at most are slow ones. */
TEST(slow_tries_do_not_count)
{
	events_take(60000, 300000);
	job_begin(2);
	CHECK(is_about(time_of_1ms(), 1030000));
	wait_compared();
	CHECK(is_about(time_of_1ms(), 1030000));
	job_end();
}

/* Where others are at work on the GPU all tries are slow. */
TEST(the_least_measured_counts)
{
	events_take(60000, 0);
	job_begin(3);
	events_take(40000, 0);
	wait_compared();
	CHECK(is_about(time_of_1ms(), 1020000));
	events_take(90000, 0);
	wait_compared();
	CHECK(is_about(time_of_1ms(), 1070000));
	job_end();
}

/* Half of what was read is the middle of what it can have been. */
TEST(a_pair_adds_no_more_than_it_reads)
{
	events_take(200000, 0);
	job_begin(4);
	atomic_store(&job.stream->quick, 1);
	fake_launch(job.stream, 20000000); /* the host is ahead of the GPU */
	CHECK(is_about(time_of(launch_20us), 10000));
	job_end();
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	load_plugin(PLUGIN_FILE);
	return unit_main();
}
