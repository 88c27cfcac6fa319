/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Launches that do not end: what the plugin tells of them, in hours of a clock that the test sets
 * forward for plugin and stand-in driver alike.
 */
#include "awake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>

#define MS     1000000ULL
#define SECOND 1000000000ULL
#define HOUR   (3600 * SECOND)

static _Atomic uint64_t ahead_ns;

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int error = syscall(SYS_clock_gettime, clock, ret);
	uint64_t ns = atomic_load(&ahead_ns) + ret->tv_nsec;

	if (error || clock != CLOCK_MONOTONIC)
		return error;
	ret->tv_sec += ns / SECOND;
	ret->tv_nsec = ns % SECOND;
	return 0;
}

/* Nor does the plugin learn that the processor's counter, which goes on, would do for the clock. */
int open(const char *path, int flags, ...)
{
	va_list arguments;
	mode_t mode;

	if (strstr(path, "current_clocksource")) {
		errno = ENOENT;
		return -1;
	}
	va_start(arguments, flags);
	mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static void pass(uint64_t ns)
{
	atomic_fetch_add(&ahead_ns, ns);
}

/* What comes here stands on the stream before the launch. */
static void launch_hour(void *stream)
{
	fake_launch(stream, HOUR);
}

/* A launch that NCCL makes of one AllReduce, timed. */
static void collective(int version, void *context, struct fake_stream *stream, uint64_t sequence,
		       void (*launch)(void *))
{
	set_budget(1000000);
	one_collective(version, context, stream, sequence, 0, launch);
}

static bool wait_phase(uint64_t hash, int phase, int wanted, struct nbp_record *last)
{
	for (int i = 0; i < 10000; i++) {
		if (count_phase(hash, phase, last) >= wanted)
			return true;
		ms_sleep(2);
	}
	return false;
}

/* The clocks must have been compared a moment ago for a start on the host's. */
static bool wait_started(uint64_t hash, uint64_t not_before, struct nbp_record *ret)
{
	for (int n = 1; wait_phase(hash, NBP_STARTED, n, ret); n++) {
		if (ret->launch.launch && ret->time_ns >= not_before)
			return true;
	}
	return false;
}

static void end(int version, void *context, uint64_t hash)
{
	tables[version]->finalize(context);
	pass(5 * SECOND); /* no more is waited for */
	CHECK(wait_records(NBP_KIND_END, hash, 1, NULL) >= 1);
	to_sleep();
}

static void queued_then_started(int version)
{
	int mask;
	struct fake_stream *stream = new_stream();
	uint64_t hash = 0x8000 + version, launched;
	void *context = awake_comm(version, &mask, hash, stream);
	struct nbp_record r = {0};
	int n;

	fake_launch(stream, 10 * SECOND); /* another kernel spins */
	launched = clock_ns();
	collective(version, context, stream, 41, launch_hour);
	CHECK(wait_phase(hash, NBP_QUEUED, 1, &r));
	CHECK(clock_ns() - launched >= 200 * MS);
	CHECK_INT(count_phase(hash, NBP_STARTED, NULL), 0);
	CHECK(r.time_ns >= launched && r.time_ns - launched < 100 * MS);
	CHECK_INT(r.launch.timing, NBP_TIMED);
	CHECK_INT(r.launch.function, NBP_ALLREDUCE);
	CHECK_INT(r.launch.sequence, 41);
	CHECK(r.launch.done && r.launch.done < r.launch.launch);
	CHECK_INT(r.launch.gpu_start_ns, 0);
	CHECK_INT(r.launch.duration_ns, 0);
	n = count_phase(hash, NBP_QUEUED, NULL);
	pass(SECOND);
	CHECK(wait_phase(hash, NBP_QUEUED, n + 1, &r)); /* again */
	pass(12 * SECOND);
	CHECK(wait_phase(hash, NBP_STARTED, 1, &r));
	CHECK_INT(r.launch.sequence, 41);
	CHECK_INT(count_finished(hash, NULL), 0);
	n = count_phase(hash, NBP_STARTED, NULL);
	pass(SECOND);
	CHECK(wait_phase(hash, NBP_STARTED, n + 1, NULL));
	CHECK_INT(atomic_load(&fake_cuda.n_captures_broken), 0);
	CHECK_INT(atomic_load(&fake_cuda.n_wrong_context), 0);
	end(version, context, hash);
}

TEST(one_behind_something_else)
{
	for (int version = 5; version <= 6; version++)
		queued_then_started(version);
}

/* Its start was seen when the clocks were compared; its end comes hours later. */
TEST(an_end_after_hours)
{
	int mask;
	struct fake_stream *stream = new_stream();
	void *context = awake_comm(6, &mask, 0x8100, stream);
	struct nbp_record started = {0}, r = {0};
	uint64_t launched = clock_ns(), start_ns;

	collective(6, context, stream, 7, launch_hour);
	fake_launch(stream, 0);
	CHECK(wait_started(0x8100, launched, &started));
	start_ns = started.launch.gpu_start_ns;
	CHECK(start_ns + MS >= launched && start_ns < launched + 100 * MS);
	CHECK(started.launch.clock_error_ns < MS);
	for (int i = 0; i < 59; i++) {
		pass(60 * SECOND);
		ms_sleep(10);
		CHECK_INT(count_finished(0x8100, NULL), 0);
	}
	CHECK(wait_phase(0x8100, NBP_STARTED, 10, &r));
	CHECK_INT(r.launch.gpu_start_ns, start_ns); /* as it was found out at first */
	pass(120 * SECOND);
	CHECK_INT(wait_finished(0x8100, 1, &r), 1);
	CHECK_INT(r.launch.timing, NBP_TIMED);
	CHECK(r.launch.duration_ns > HOUR - MS && r.launch.duration_ns < HOUR + 100 * MS);
	CHECK_INT(r.launch.gpu_start_ns, start_ns);
	CHECK_INT(r.launch.gpu_end_ns, start_ns + r.launch.duration_ns);
	end(6, context, 0x8100);
}

static void launch_day(void *stream)
{
	fake_launch(stream, 30 * HOUR);
}

/* Milliseconds in a float: 8 of them are one step at that length. */
TEST(an_end_after_more_than_a_day)
{
	int mask;
	struct fake_stream *stream = new_stream();
	void *context = awake_comm(6, &mask, 0x8200, stream);
	struct nbp_record r = {0};

	collective(6, context, stream, 7, launch_day);
	CHECK(wait_phase(0x8200, NBP_STARTED, 1, NULL));
	pass(30 * HOUR);
	CHECK_INT(wait_finished(0x8200, 1, &r), 1);
	CHECK_INT(r.launch.timing, NBP_TIMED);
	CHECK(r.launch.duration_ns > 30 * HOUR - 20 * MS &&
	      r.launch.duration_ns < 30 * HOUR + 100 * MS);
	end(6, context, 0x8200);
}

/* What is behind it waits for it, and says nothing new until it is the oldest itself. */
TEST(of_several_only_the_oldest)
{
	int mask;
	struct fake_stream *stream = new_stream();
	void *context = awake_comm(6, &mask, 0x8300, stream);
	struct nbp_record first = {0}, r = {0};

	for (uint64_t i = 0; i < 10; i++)
		collective(6, context, stream, 100 + i, launch_hour);
	CHECK(wait_phase(0x8300, NBP_STARTED, 1, &first));
	CHECK_INT(first.launch.sequence, 100);
	pass(SECOND);
	CHECK(wait_phase(0x8300, NBP_STARTED, 2, &r));
	CHECK_INT(r.launch.launch, first.launch.launch);
	CHECK_INT(count_phase(0x8300, NBP_QUEUED, NULL), 0);
	pass(HOUR);
	CHECK_INT(wait_finished(0x8300, 1, NULL), 1);
	forget_records();
	CHECK(wait_phase(0x8300, NBP_STARTED, 1, &r));
	CHECK_INT(r.launch.launch, first.launch.launch + 1);
	CHECK_INT(r.launch.sequence, 101);
	CHECK_INT(r.launch.done, first.launch.launch);
	end(6, context, 0x8300);
}

/* The tracer goes, and another comes: it is told of what still hangs, and not of what ended. */
TEST(who_comes_late_is_told)
{
	int mask;
	struct fake_stream *stream = new_stream();
	void *context = awake_comm(6, &mask, 0x8400, stream);
	struct nbp_record first = {0}, r = {0};
	int queries;

	collective(6, context, stream, 5, launch_hour);
	collective(6, context, stream, 6, launch_hour);
	CHECK(wait_phase(0x8400, NBP_STARTED, 1, &first));
	to_sleep();
	pass(10 * SECOND);
	ms_sleep(300);
	queries = atomic_load(&fake_cuda.n_event_queries);
	ms_sleep(1000);
	queries = atomic_load(&fake_cuda.n_event_queries) - queries;
	printf("     asleep: %d looks at events in a second\n", queries);
	CHECK(queries >= 2 && queries <= 10);
	CHECK_INT(n_records, 0);
	raise_semaphore(1);
	CHECK(wait_phase(0x8400, NBP_STARTED, 1, &r));
	CHECK_INT(r.launch.launch, first.launch.launch);
	CHECK_INT(r.launch.gpu_start_ns, first.launch.gpu_start_ns);
	CHECK_INT(r.time_ns, first.time_ns);
	CHECK(count_records(NBP_KIND_COMM, 0x8400, NULL) >= 1);
	to_sleep();
	pass(HOUR); /* the first ends while nobody listens */
	ms_sleep(600);
	raise_semaphore(1);
	CHECK(wait_phase(0x8400, NBP_STARTED, 1, &r));
	CHECK_INT(r.launch.launch, first.launch.launch + 1);
	CHECK_INT(r.launch.done, first.launch.launch);
	CHECK_INT(count_finished(0x8400, NULL), 0);
	end(6, context, 0x8400);
}

/* Launches that were not timed are done when one behind them on the same stream has started. */
TEST(what_was_before_it_is_done)
{
	int mask;
	struct fake_stream *stream = new_stream(), *other = new_stream();
	void *context = awake_comm(6, &mask, 0x8480, stream);
	struct nbp_record r = {0};

	set_budget(0);
	for (uint64_t i = 0; i < 3; i++)
		one_collective(6, context, stream, i, 0, launch_20us);
	fake_launch(stream, HOUR);
	collective(6, context, stream, 5, launch_hour);
	CHECK(wait_phase(0x8480, NBP_QUEUED, 1, &r));
	CHECK_INT(r.launch.done, r.launch.launch - 4);
	pass(HOUR + SECOND);
	CHECK(wait_phase(0x8480, NBP_STARTED, 1, &r));
	CHECK_INT(r.launch.done, r.launch.launch - 1);
	pass(HOUR + SECOND);
	CHECK_INT(wait_finished(0x8480, 1, NULL), 1);
	forget_records();
	set_budget(0);
	one_collective(6, context, other, 6, 0, launch_20us);
	collective(6, context, stream, 7, launch_hour);
	CHECK(wait_phase(0x8480, NBP_STARTED, 1, &r));
	CHECK_INT(r.launch.done, r.launch.launch - 2);
	end(6, context, 0x8480);
}

TEST(what_ends_soon_is_not_looked_at)
{
	int mask;
	struct fake_stream *stream = new_stream();
	void *context = awake_comm(6, &mask, 0x8500, stream);

	for (uint64_t i = 0; i < 500; i++) {
		collective(6, context, stream, i, launch_20us);
		ms_sleep(1);
	}
	CHECK(wait_finished(0x8500, 200, NULL) >= 200);
	CHECK_INT(count_phase(0x8500, NBP_QUEUED, NULL), 0);
	CHECK_INT(count_phase(0x8500, NBP_STARTED, NULL), 0);
	end(6, context, 0x8500);
}

/* A thread captures in global mode, which a look at an event must not break. */
TEST(during_a_capture)
{
	int mask;
	struct fake_stream *stream = new_stream(), *other = new_stream();
	void *context = awake_comm(6, &mask, 0x8600, stream);

	fake_launch(stream, HOUR);
	collective(6, context, stream, 5, launch_hour);
	fake_capture_begin(other);
	CHECK(wait_phase(0x8600, NBP_QUEUED, 1, NULL));
	pass(HOUR + SECOND);
	CHECK(wait_phase(0x8600, NBP_STARTED, 1, NULL));
	fake_capture_end(other);
	CHECK_INT(atomic_load(&fake_cuda.n_captures_broken), 0);
	end(6, context, 0x8600);
}

/* As after a kernel's fault: what is under way is given up at once, and told to be. */
TEST(the_driver_fails_meanwhile)
{
	int mask;
	struct fake_stream *stream;
	struct nbp_record r = {0};
	void *context, *kept = cuda_context;

	cuda_context = (void *)0x2000; /* it will be timed no more */
	stream = new_stream();
	context = awake_comm(6, &mask, 0x8700, stream);
	fake_launch(stream, HOUR);
	collective(6, context, stream, 5, launch_hour);
	CHECK(wait_phase(0x8700, NBP_QUEUED, 1, NULL));
	atomic_store(&fake_cuda.fail_query, 719);
	CHECK_INT(wait_finished(0x8700, 1, &r), 1);
	CHECK_INT(r.launch.timing, NBP_ABANDONED);
	atomic_store(&fake_cuda.fail_query, 0);
	end(6, context, 0x8700);
	cuda_context = kept;
	cuCtxSetCurrent(kept);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	load_plugin(PLUGIN_FILE);
	return unit_main();
}
