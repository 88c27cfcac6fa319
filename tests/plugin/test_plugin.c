/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The plugin as NCCL drives it, with a stand-in CUDA driver; run under ASan+UBSan and under TSan.
 */
#include "awake.h"

#include <sys/wait.h>

TEST(exports_one_table_for_each_version)
{
	for (int i = 1; i <= 6; i++) {
		CHECK(tables[i] != NULL);
		CHECK_STR(tables[i]->name, "nccl-bpftrace");
	}
	CHECK(semaphore && control);
	CHECK(control->magic == NBP_CONTROL_MAGIC);
}

TEST(asleep_it_wants_nothing_and_gives_nothing)
{
	for (int v = 1; v <= 6; v++) {
		int mask = 99;
		void *context = init(v, &mask, 0x1000 + v, "x");
		void *handle = (void *)1;
		struct descriptor d = descriptor(v < 5 ? 1 : 2048);

		CHECK(context != NULL);
		CHECK_INT(mask_of(&mask), 0);
		CHECK_INT(tables[v]->start(context, &handle, &d), 0);
		CHECK(!handle);
		CHECK_INT(tables[v]->finalize(context), 0);
	}
}

TEST(wakes_and_sleeps_within_a_second)
{
	int mask[7];
	void *context[7];

	for (int v = 1; v <= 6; v++)
		context[v] = init(v, &mask[v], 0x2000 + v, "x");
	raise_semaphore(1);
	for (int v = 1; v <= 6; v++)
		CHECK(wait_mask(&mask[v], masks[v]) >= 0);
	/* v1 to v3 have no hash yet */
	for (int v = 4; v <= 6; v++) {
		struct nbp_record r;

		CHECK(wait_records(NBP_KIND_COMM, 0x2000 + v, 1, &r) >= 1);
		CHECK_INT(r.rank, 5);
		CHECK_INT(r.n_ranks, 8);
		CHECK_INT(r.comm.n_nodes, 2);
		CHECK_INT(r.comm.abi, v);
		CHECK_INT(r.comm.cuda_device, -1);
		CHECK_STR(r.comm.name, "x");
		CHECK(r.comm.control == (uintptr_t)control);
	}
	raise_semaphore(0);
	for (int v = 1; v <= 6; v++)
		CHECK(wait_mask(&mask[v], 0) >= 0);
	for (int v = 1; v <= 6; v++)
		tables[v]->finalize(context[v]);
	forget_records();
}

/* ---- every version's own structs ---- */

struct offsets {
	int sequence, function, count, root, datatype, channels, algorithm, protocol, hash;
	int p2p_function, p2p_datatype, p2p_count, p2p_peer, p2p_channels, p2p_hash;
};

static const struct offsets offsets[7] = {
	[1] = {40, 48, 72, 80, 84, -1, 106, 107, 32, 40, 56, 64, 72, -1, 32},
	[2] = {40, 48, 72, 80, 88, -1, 112, 120, 32, 40, 56, 64, 72, -1, 32},
	[3] = {40, 48, 72, 80, 88, -1, 104, 112, 32, 40, 56, 64, 72, -1, 32},
	[4] = {24, 32, 56, 64, 72, 80, 88, 96, -1, 24, 40, 48, 56, 60, -1},
	[5] = {24, 32, 56, 64, 72, 80, 88, 96, -1, 24, 40, 48, 56, 60, -1},
	[6] = {24, 32, 56, 64, 72, 80, 88, 96, -1, 24, 40, 48, 56, 60, -1},
};

static void put_type(struct descriptor *d, int v, int type)
{
	memset(d, 0x5a, sizeof(*d)); /* what an older NCCL leaves unset is not 0 */
	if (v < 5)
		d->bytes[0] = type;
	else
		put_u64(d, 0, type);
	put_u64(d, 8, 0);
	put_s32(d, 16, 5);
}

static struct descriptor coll_of(int v, uint64_t hash)
{
	const struct offsets *o = &offsets[v];
	struct descriptor d;

	put_type(&d, v, 2);
	put_u64(&d, o->sequence, 77);
	put_u64(&d, o->count, 123456789012ULL);
	put_s32(&d, o->root, 3);
	if (o->hash >= 0)
		put_u64(&d, o->hash, hash);
	if (o->channels >= 0)
		d.bytes[o->channels] = 24;
	if (v >= 5) {
		put_u64(&d, 104, 0);
	}
	if (v == 1) {
		d.bytes[o->function] = 3;
		d.bytes[o->datatype] = 9;
		d.bytes[o->algorithm] = 4;
		d.bytes[o->protocol] = 1;
		return d;
	}
	put_string(&d, o->function, "ReduceScatter");
	put_string(&d, o->datatype, "ncclBfloat16");
	put_string(&d, o->algorithm, "NVLS");
	put_string(&d, o->protocol, "LL128");
	return d;
}

static struct descriptor p2p_of(int v, uint64_t hash)
{
	const struct offsets *o = &offsets[v];
	struct descriptor d;

	put_type(&d, v, 4);
	put_u64(&d, o->p2p_count, 42);
	put_s32(&d, o->p2p_peer, 6);
	if (o->p2p_hash >= 0)
		put_u64(&d, o->p2p_hash, hash);
	if (o->p2p_channels >= 0)
		d.bytes[o->p2p_channels] = 2;
	if (v == 1) {
		d.bytes[o->p2p_function] = 7;
		d.bytes[o->p2p_datatype] = 0;
		return d;
	}
	put_string(&d, o->p2p_function, "Recv");
	put_string(&d, o->p2p_datatype, "ncclInt8");
	return d;
}

static void check_coll(int v, const struct nbp_record *r)
{
	CHECK_INT(r->rank, 5);
	CHECK_INT(r->n_ranks, v < 4 ? 0 : 8);
	CHECK_INT(r->operation.sequence, 77);
	CHECK_INT(r->operation.count, 123456789012LL);
	CHECK_INT(r->operation.root, 3);
	CHECK_INT(r->operation.function, NBP_REDUCESCATTER);
	CHECK_INT(r->operation.datatype, 9);
	CHECK_INT(r->operation.algorithm, NBP_NVLS);
	CHECK_INT(r->operation.protocol, NBP_LL128);
	CHECK_INT(r->operation.n_channels, v < 4 ? NBP_UNKNOWN : 24);
	CHECK_INT(r->operation.redop, NBP_UNKNOWN_U8);
	CHECK_INT(r->operation.launch, 0);
}

static void check_p2p(int v, const struct nbp_record *r)
{
	CHECK(r->operation.sequence == NBP_NO_NUMBER);
	CHECK_INT(r->operation.count, 42);
	CHECK_INT(r->operation.root, 6);
	CHECK_INT(r->operation.function, NBP_RECV);
	CHECK_INT(r->operation.datatype, 0);
	CHECK_INT(r->operation.algorithm, NBP_UNKNOWN_U8);
	CHECK_INT(r->operation.protocol, NBP_UNKNOWN_U8);
	CHECK_INT(r->operation.n_channels, v < 4 ? NBP_UNKNOWN : 2);
}

TEST(reads_every_version_s_structs)
{
	for (int v = 1; v <= 6; v++) {
		uint64_t hash = 0x3000 + v;
		int mask;
		void *context = awake_comm(v, &mask, hash, NULL), *group;
		struct nbp_record r;
		struct descriptor d;

		put_type(&d, v, 1);
		group = start(v, context, d);
		CHECK(!group == (v >= 5)); /* NCCL <= 2.27 starts no operation without */
		CHECK(!start(v, context, coll_of(v, hash)));
		CHECK(wait_records(NBP_KIND_OPERATION, hash, 1, &r) == 1);
		check_coll(v, &r);
		forget_records();
		CHECK(!start(v, context, p2p_of(v, hash)));
		if (group)
			CHECK_INT(tables[v]->stop(group), 0);
		CHECK(wait_records(NBP_KIND_OPERATION, hash, 1, &r) == 1);
		check_p2p(v, &r);
		tables[v]->finalize(context);
		CHECK(wait_records(NBP_KIND_END, hash, 1, NULL) == 1);
		to_sleep();
	}
}

TEST(v6_copy_engine_collective)
{
	int mask;
	struct fake_stream *stream = new_stream();
	void *context = awake_comm(6, &mask, 0x3100, stream), *handle;
	struct descriptor d = coll("AllGather", 9, 64);
	struct nbp_record r, launch = {0};

	set_budget(1000000);
	put_u64(&d, 0, 4096);
	put(&d, 104, &stream, sizeof(stream));
	start(6, context, coll_api("AllGather", 64, stream, 0));
	handle = start(6, context, d);
	CHECK(handle != NULL);
	fake_launch(stream, 3000000);
	tables[6]->stop(handle);
	CHECK(wait_records(NBP_KIND_OPERATION, 0x3100, 1, &r) == 1);
	CHECK_INT(r.operation.algorithm, NBP_COPY_ENGINE);
	CHECK_INT(r.operation.protocol, NBP_UNKNOWN_U8);
	CHECK_INT(r.operation.n_channels, NBP_UNKNOWN);
	CHECK_INT(r.operation.sequence, 9);
	CHECK_INT(wait_finished(0x3100, 1, &launch), 1);
	CHECK(launch.launch.launch == r.operation.launch);
	CHECK(launch.launch.duration_ns > 2900000);
	CHECK_INT(launch.launch.n_operations, 1);
	CHECK(launch.launch.stream == (uintptr_t)stream);
	/* and its Group's operations are not the next launch's */
	one_collective(6, context, stream, 10, 0, NULL);
	CHECK_INT(wait_records(NBP_KIND_OPERATION, 0x3100, 2, NULL), 2);
	CHECK(nth_record(NBP_KIND_OPERATION, 0x3100, 1).operation.launch ==
	      launch.launch.launch + 1);
	/* under capture it is left alone */
	fake_capture_begin(stream);
	put_u64(&d, 24, 10);
	start(6, context, coll_api("AllGather", 64, stream, 1));
	handle = start(6, context, d);
	tables[6]->stop(handle);
	fake_capture_end(stream);
	CHECK_INT(wait_records(NBP_KIND_OPERATION, 0x3100, 3, NULL), 3);
	CHECK_INT(atomic_load(&fake_cuda.n_captures_broken), 0);
	set_budget(10000);
	tables[6]->finalize(context);
	to_sleep();
}

/* ---- calls, launches, operations ---- */

TEST(calls_launches_and_operations_belong_together)
{
	int mask;
	struct fake_stream *stream = new_stream();
	void *context = awake_comm(5, &mask, 0x4000, stream);
	struct nbp_record api, launch, operation;
	uint64_t first;

	set_budget(0);
	ms_sleep(50);
	forget_records();
	for (int i = 0; i < 100; i++)
		one_collective(5, context, stream, 500 + i, 0, NULL);
	CHECK_INT(wait_records(NBP_KIND_API, 0x4000, 100, &api), 100);
	CHECK_INT(wait_records(NBP_KIND_LAUNCH, 0x4000, 100, &launch), 100);
	CHECK_INT(wait_records(NBP_KIND_OPERATION, 0x4000, 100, &operation), 100);
	CHECK_INT(api.api.function, NBP_ALLREDUCE);
	CHECK_INT(api.api.count, 1000);
	CHECK_INT(api.api.datatype, 7);
	CHECK_INT(api.api.group_depth, 1);
	CHECK_INT(api.api.capture, NBP_CAPTURED_NO);
	CHECK(api.api.stream == (uintptr_t)stream);
	CHECK_INT(launch.launch.timing, NBP_NOT_TIMED_BUDGET);
	CHECK_INT(launch.launch.capture, NBP_CAPTURED_NO);
	CHECK_INT(launch.launch.duration_ns, 0);
	CHECK(operation.operation.launch == launch.launch.launch);
	CHECK(api.tid == (uint32_t)getpid());
	CHECK(operation.operation.group == api.api.group && api.api.group);
	first = api.api.api_number;
	for (int i = 0; i < 100; i++)
		CHECK(nth_record(NBP_KIND_API, 0x4000, i).api.api_number == first + i);
	first = operation.operation.operation;
	for (int i = 0; i < 100; i++) {
		operation = nth_record(NBP_KIND_OPERATION, 0x4000, i);
		CHECK(operation.operation.operation == first + i);
		CHECK(operation.operation.sequence == 500u + i);
	}
	tables[5]->finalize(context);
	to_sleep();
}

/* A collective, and right after it a call and its launch of which nothing comes. */
static void launch_alone(void *context, void *stream)
{
	one_collective(5, context, stream, 1, 0, NULL);
	start(5, context, group_api(1));
	start(5, context, coll_api("AllReduce", 1000, stream, 0));
	CHECK(!start(5, context, kernel_launch(stream)));
}

struct alone {
	void *context, *stream;
};

static void *thread_that_launches_alone(void *data)
{
	struct alone *alone = data;

	launch_alone(alone->context, alone->stream);
	return NULL;
}

/* Untimed ones, with numbers that follow on one another. */
static void check_launches(uint64_t hash, int n, int n_operations)
{
	struct nbp_record launch, operation;

	CHECK_INT(wait_records(NBP_KIND_LAUNCH, hash, n, &launch), n);
	CHECK_INT(wait_records(NBP_KIND_OPERATION, hash, n_operations, &operation), n_operations);
	for (int i = 0; i < n; i++) {
		struct nbp_record r = nth_record(NBP_KIND_LAUNCH, hash, i);

		CHECK_INT(r.launch.launch, launch.launch.launch + i);
		CHECK_INT(r.launch.timing, NBP_NOT_TIMED_BUDGET);
	}
}

/* A communicator that is timed no more, and nothing told of it yet. */
static void *untimed_comm(uint64_t hash, int *mask, void *stream)
{
	void *context = awake_comm(5, mask, hash, stream);

	set_budget(0);
	for (int i = 0; i < 20; i++) { /* the share is known */
		one_collective(5, context, stream, 1, 0, NULL);
		ms_sleep(5);
	}
	ms_sleep(60);
	forget_records();
	return context;
}

/*
 * Alone on it a launch was owed: its note is not there yet. True: so it is. (Not where the plugin's
 * thread looked around just then.)
 */
static bool is_owed(uint64_t hash)
{
	ms_sleep(60);
	return count_records(NBP_KIND_LAUNCH, hash, NULL) == 1;
}

enum then {
	ANOTHER_COLLECTIVE,
	ANOTHER_S_GROUP,
	ITS_END,
	THE_THREAD_S_END,
	N_THEN,
};

/* True: its launch was owed. */
static bool tell_of_what_is_owed(enum then then, uint64_t hash)
{
	struct fake_stream *stream = new_stream();
	int mask, other_mask, n = 2, n_operations = 1;
	void *other = untimed_comm(hash + 1, &other_mask, stream);
	struct alone alone = {untimed_comm(hash, &mask, stream), stream};
	bool owed = true;
	pthread_t thread;

	if (then == THE_THREAD_S_END) {
		pthread_create(&thread, NULL, thread_that_launches_alone, &alone);
		pthread_join(thread, NULL);
	} else {
		launch_alone(alone.context, stream);
		owed = is_owed(hash);
	}
	if (then == ANOTHER_COLLECTIVE) {
		one_collective(5, alone.context, stream, 2, 0, NULL);
		/* such a communicator's are told of at once */
		launch_alone(alone.context, stream);
		n = 5;
		n_operations = 3;
	} else if (then == ANOTHER_S_GROUP) {
		start(5, other, descriptor(1));
		start(5, other, coll("AllReduce", 3, 1000));
		check_launches(hash + 1, 0, 1);
		CHECK_INT(nth_record(NBP_KIND_OPERATION, hash + 1, 0).operation.launch, 0);
	} else if (then == ITS_END) {
		tables[5]->finalize(alone.context);
	}
	check_launches(hash, n, n_operations);
	if (then != ITS_END)
		tables[5]->finalize(alone.context);
	tables[5]->finalize(other);
	return owed;
}

/* A launch's note goes with its operation's: it is told also where that does not come next. */
TEST(a_launch_whose_operation_does_not_come)
{
	for (int then = 0; then < N_THEN; then++) {
		bool owed = false;

		for (int i = 0; i < 10 && !owed; i++)
			owed = tell_of_what_is_owed(then, 0x40600 + then * 0x100 + i * 2);
		CHECK(owed);
	}
	to_sleep();
}

/* A tracer that comes late must not take for a loss what was before it. */
TEST(the_numbering_is_told_to_who_comes_late)
{
	int mask;
	void *context = awake_comm(5, &mask, 0x4050, NULL);
	struct nbp_record comm, api, operation, counts;

	for (int i = 0; i < 50; i++)
		one_collective(5, context, NULL, i, 0, NULL);
	CHECK_INT(wait_records(NBP_KIND_OPERATION, 0x4050, 50, NULL), 50);
	to_sleep();
	raise_semaphore(1);
	CHECK(wait_mask(&mask, MASK_V5) >= 0);
	CHECK(wait_records(NBP_KIND_COMM, 0x4050, 1, &comm) >= 1);
	CHECK_INT(comm.comm.api_number, 50);
	CHECK_INT(comm.comm.launch, 50);
	CHECK_INT(comm.comm.operation, 50);
	CHECK(wait_counts(0x4050, NBP_ALLREDUCE, 50, &counts));
	one_collective(5, context, NULL, 50, 0, NULL);
	CHECK_INT(wait_records(NBP_KIND_OPERATION, 0x4050, 1, &operation), 1);
	CHECK_INT(wait_records(NBP_KIND_API, 0x4050, 1, &api), 1);
	CHECK_INT(operation.operation.operation, 51);
	CHECK_INT(operation.operation.launch, 51);
	CHECK_INT(api.api.api_number, 51);
	CHECK(wait_counts(0x4050, NBP_ALLREDUCE, 51, &counts));
	/* and to a second one, of which the plugin cannot know */
	forget_records();
	CHECK(wait_records(NBP_KIND_COMM, 0x4050, 1, &comm) >= 1);
	CHECK_INT(comm.comm.operation, 51);
	CHECK(wait_counts(0x4050, NBP_ALLREDUCE, 51, &counts));
	tables[5]->finalize(context);
	to_sleep();
}

TEST(no_handle_is_given_that_nccl_keeps)
{
	int mask;
	void *context = awake_comm(6, &mask, 0x4100, NULL);

	CHECK(!start(6, context, group_api(1)));
	CHECK(!start(6, context, coll_api("AllReduce", 1, NULL, 0)));
	CHECK(!start(6, context, descriptor(1024)));
	CHECK(!start(6, context, coll("AllReduce", 1, 1)));
	tables[6]->finalize(context);
	to_sleep();
}

TEST(a_timed_launch_has_its_times)
{
	int mask;
	struct fake_stream *stream = new_stream();
	void *context = awake_comm(6, &mask, 0x4200, stream);
	struct nbp_record r = {0};
	uint64_t before;

	set_budget(1000000);
	ms_sleep(30);
	forget_records();
	before = clock_ns();
	one_collective(6, context, stream, 1, 0, launch_1ms);
	CHECK_INT(wait_finished(0x4200, 1, &r), 1);
	CHECK_INT(r.launch.source, NBP_SOURCE_CUDA_EVENT);
	CHECK_INT(r.launch.timing, NBP_TIMED);
	CHECK(r.launch.duration_ns > 990000 && r.launch.duration_ns < 2000000);
	CHECK_INT(r.launch.n_operations, 1);
	CHECK_INT(r.launch.capture, NBP_CAPTURED_NO);
	CHECK(r.launch.gpu_start_ns + r.launch.clock_error_ns + 5000 >= before);
	CHECK(r.launch.gpu_start_ns < before + 5000000);
	CHECK_INT(r.launch.gpu_end_ns - r.launch.gpu_start_ns, r.launch.duration_ns);
	CHECK(r.launch.clock_error_ns < 200000);
	tables[6]->finalize(context);
	CHECK(wait_records(NBP_KIND_END, 0x4200, 1, NULL) == 1);
	to_sleep();
}

TEST(the_gpu_is_told_once_known)
{
	int mask;
	struct fake_stream *stream = new_stream();
	void *context = init(6, &mask, 0x4300, "g");
	struct nbp_record r = {0};

	raise_semaphore(1);
	CHECK(wait_mask(&mask, MASK_V6) >= 0);
	one_collective(6, context, stream, 1, 0, NULL);
	for (int i = 0; i < 1000 && !r.comm.gpu_uuid[15]; i++) {
		ms_sleep(2);
		r = nth_record(NBP_KIND_COMM, 0x4300,
			       count_records(NBP_KIND_COMM, 0x4300, NULL) - 1);
	}
	CHECK_INT(r.comm.cuda_device, 3);
	CHECK_INT(r.comm.gpu_uuid[15], 0xa3);
	tables[6]->finalize(context);
	to_sleep();
}

/* Cheap launches without end: the share of time that timing may take holds. */
TEST(timing_keeps_its_budget)
{
	int mask, n = 0;
	struct fake_stream *stream = new_stream();
	void *context = awake_comm(6, &mask, 0x4400, stream);
	uint64_t timed, until, cost = 20000;
	bool held_up;
	double share;

	__atomic_store_n(&control->launch_cost_ns, 20000, __ATOMIC_RELAXED);
	timed = __atomic_load_n(&control->n_timed, __ATOMIC_RELAXED);
	until = clock_ns() + 1000000000;
	for (; clock_ns() < until; n++)
		one_collective(6, context, stream, n, 0, NULL);
	timed = __atomic_load_n(&control->n_timed, __ATOMIC_RELAXED) - timed;
	share = timed * (double)cost / 1e9;
	printf("     %d launches, %d timed: %.2f %% of the time\n", n, (int)timed, share * 100);
	CHECK(share <= 0.0115); /* with what was saved up */
	/* A sanitizer and a busy machine make the calls dear, and what they cost is charged. */
	held_up = n < 10000;
	CHECK(share > 0.001 || held_up);
	/* And dear ones are charged for what they cost. */
	atomic_store(&fake_cuda.record_cost_ns, 500000);
	ms_sleep(20);
	timed = __atomic_load_n(&control->n_timed, __ATOMIC_RELAXED);
	until = clock_ns() + 1000000000;
	for (; clock_ns() < until; n++)
		one_collective(6, context, stream, n, 0, NULL);
	timed = __atomic_load_n(&control->n_timed, __ATOMIC_RELAXED) - timed;
	printf("     at 1 ms each: %d timed in a second\n", (int)timed);
	CHECK((timed >= 1 || held_up) && timed <= 25);
	atomic_store(&fake_cuda.record_cost_ns, 0);
	__atomic_store_n(&control->launch_cost_ns, 10000, __ATOMIC_RELAXED);
	tables[6]->finalize(context);
	to_sleep();
}

TEST(a_capture_is_never_touched)
{
	int mask, n_records_before;
	struct fake_stream *stream = new_stream(), *other = new_stream();
	void *context = awake_comm(6, &mask, 0x4500, stream);
	struct nbp_record r;

	set_budget(1000000);
	/* timed work under way, whose events the thread looks at while others capture */
	one_collective(6, context, other, 0, 0, launch_1ms);
	fake_capture_begin(stream);
	n_records_before = atomic_load(&fake_cuda.n_event_records);
	one_collective(6, context, stream, 1, 1, NULL); /* NCCL says so */
	one_collective(6, context, stream, 2, 0, NULL); /* NCCL does not know */
	one_collective(6, context, NULL, 3, 0, NULL);	/* the legacy stream */
	CHECK_INT(wait_records(NBP_KIND_OPERATION, 0x4500, 4, NULL), 4);
	ms_sleep(1200); /* clocks are compared meanwhile */
	one_collective(6, context, other, 4, 0, launch_1ms);
	CHECK(wait_finished(0x4500, 2, &r) >= 2);
	CHECK_INT(atomic_load(&fake_cuda.n_captures_broken), 0);
	CHECK(atomic_load(&fake_cuda.n_event_records) >= n_records_before + 2);
	fake_capture_end(stream);
	n_records_before = 0;
	for (int i = count_records(NBP_KIND_LAUNCH, 0x4500, NULL) - 1; i >= 0; i--) {
		r = nth_record(NBP_KIND_LAUNCH, 0x4500, i);
		n_records_before += r.launch.timing == NBP_NOT_TIMED_CAPTURING;
	}
	CHECK_INT(n_records_before, 3);
	/* and the legacy stream can be timed again */
	one_collective(6, context, NULL, 5, 0, launch_1ms);
	CHECK(wait_finished(0x4500, 3, &r) >= 3);
	CHECK_INT(atomic_load(&fake_cuda.n_captures_broken), 0);
	CHECK_INT(atomic_load(&fake_cuda.n_wrong_context), 0);
	tables[6]->finalize(context);
	to_sleep();
}

/* ---- oddities ---- */

static uint64_t lost(int reason)
{
	return __atomic_load_n(&control->lost[reason], __ATOMIC_RELAXED);
}

TEST(oddities_are_counted_and_harmless)
{
	for (int v = 1; v <= 6; v++) {
		uint64_t bad = lost(NBP_LOSS_BAD_CALLBACK), stop = lost(NBP_LOSS_UNKNOWN_STOP);
		uint64_t state = lost(NBP_LOSS_UNKNOWN_STATE), type = lost(NBP_LOSS_UNKNOWN_TYPE);
		uint64_t stale = lost(NBP_LOSS_STALE);
		struct table *t = tables[v];
		struct descriptor d;
		int mask;
		void *context = awake_comm(v, &mask, 0x5000 + v, NULL), *group, *handle;

		put_type(&d, v, 1);
		group = start(v, context, d);
		if (group)
			CHECK_INT(t->stop(group), 0);
		else
			group = (void *)0x987654320; /* as bad as one that was stopped */
		CHECK_INT(t->stop(group), 0);
		CHECK_INT(t->record(group, 22, NULL), 0);
		CHECK_INT(t->record(group, 9999, &d), 0);
		CHECK_INT(t->stop(NULL), 0);
		CHECK_INT(t->record(NULL, 1, NULL), 0);
		CHECK_INT(t->stop((void *)0x123456789), 0); /* never started */
		put_type(&d, v, 2); /* an operation: of groups no communicator is looked for */
		CHECK_INT(t->start(NULL, &handle, &d), 0);
		CHECK(!handle);
		CHECK_INT(t->start(context, NULL, &d), 0);
		CHECK_INT(t->start(context, &handle, NULL), 0);
		CHECK_INT(t->start((void *)0x42, &handle, &d), 0);
		for (int bit = 0; bit < (v < 5 ? 8 : 64); bit++) {
			memset(&d, 0, sizeof(d));
			put_u64(&d, 0, 1ULL << bit);
			for (int c = 0; c < 64; c++) {
				d.bytes[24] = c; /* KernelCh's channel */
				if (bit < 3 || (bit >= 8 && bit <= 14))
					c = 64;
				if (bit == 11) /* stopped below */
					continue;
				t->start(context, &handle, &d);
			}
		}
		put_u64(&d, 0, 3); /* two types at once */
		t->start(context, &handle, &d);
		CHECK(!handle);
		t->finalize(context);
		t->start(context, &handle, &d);
		t->finalize(context);
		t->finalize(NULL);
		CHECK(lost(NBP_LOSS_BAD_CALLBACK) >= bad + 6);
		CHECK_INT(lost(NBP_LOSS_UNKNOWN_STOP) - stop, 2);
		CHECK_INT(lost(NBP_LOSS_UNKNOWN_STATE) - state, 2);
		CHECK(lost(NBP_LOSS_UNKNOWN_TYPE) > type);
		CHECK_INT(lost(NBP_LOSS_STALE) - stale, 3);
		to_sleep();
	}
}

TEST(init_with_nulls)
{
	void *context = (void *)1;
	int mask = 5;

	CHECK_INT(((init_v5)tables[6]->init)(NULL, 1, &mask, NULL, 1, 1, 0, NULL), 0);
	CHECK_INT(((init_v5)tables[6]->init)(&context, 1, NULL, NULL, 1, 1, 0, NULL), 0);
	CHECK_INT(((init_v5)tables[6]->init)(&context, 1, &mask, NULL, 1, 1, 0, NULL), 0);
	CHECK_INT(mask_of(&mask), 0);
	tables[6]->finalize(context);
}

TEST(a_launch_left_open_costs_no_events)
{
	int mask;
	struct fake_stream *stream = new_stream();
	void *context = awake_comm(6, &mask, 0x5100, stream), *kernel;
	struct nbp_record r;

	set_budget(1000000);
	for (int i = 0; i < 500; i++) /* more than there are events */
		kernel = start(6, context, kernel_launch(stream));
	tables[6]->stop(kernel);
	tables[6]->stop(kernel);
	CHECK(wait_finished(0x5100, 1, &r) >= 1);
	tables[6]->finalize(context);
	/* and one that is open across finalize */
	context = awake_comm(6, &mask, 0x5101, stream);
	kernel = start(6, context, kernel_launch(stream));
	tables[6]->finalize(context);
	CHECK_INT(tables[6]->stop(kernel), 0);
	to_sleep();
}

/* The highest totals that were told, and how often they were: the smaller of the numbers. */
static uint64_t told_losses(uint64_t hash, int *ret_times)
{
	uint64_t total[NBP_LOSS_MAX] = {0}, sum = 0;
	int times[NBP_LOSS_MAX] = {0};

	for (int i = count_records(NBP_KIND_LOSS, hash, NULL) - 1; i >= 0; i--) {
		struct nbp_record r = nth_record(NBP_KIND_LOSS, hash, i);

		if (r.loss.total > total[r.loss.reason])
			times[r.loss.reason] = 0;
		if (r.loss.total >= total[r.loss.reason]) {
			total[r.loss.reason] = r.loss.total;
			times[r.loss.reason]++;
		}
	}
	*ret_times = 1000;
	for (int i = 0; i < NBP_LOSS_MAX; i++) {
		sum += total[i];
		if (total[i] && times[i] < *ret_times)
			*ret_times = times[i];
	}
	return sum;
}

TEST(what_finds_no_place_is_counted)
{
	int times = 0;
	int mask;
	void *context = awake_comm(6, &mask, 0x5200, NULL);
	uint64_t full = lost(NBP_LOSS_RING_FULL) + lost(NBP_LOSS_CONTENTION), received = 0;
	struct nbp_record counts = {0};
	const int n = 300000;

	for (int i = 0; i < n; i++)
		start(6, context, coll_api("AllReduce", 1, NULL, 0));
	full = lost(NBP_LOSS_RING_FULL) + lost(NBP_LOSS_CONTENTION) - full;
	for (int i = 0; i < 500 && received + full != (uint64_t)n; i++) {
		ms_sleep(10);
		received = count_records(NBP_KIND_API, 0x5200, NULL);
	}
	CHECK(wait_counts(0x5200, NBP_ALLREDUCE, n, &counts));
	CHECK_INT(received + full, n);
	CHECK_INT(told_losses(0x5200, &times), full);
	for (int i = 0; i < 1000 && times < 2; i++) { /* the record itself may be lost */
		ms_sleep(5);
		CHECK_INT(told_losses(0x5200, &times), full);
	}
	CHECK(times >= 2);
	times = count_records(NBP_KIND_LOSS, 0x5200, NULL);
	ms_sleep(2500);
	CHECK(count_records(NBP_KIND_LOSS, 0x5200, NULL) - times <= 1);
	CHECK_INT(counts.counts.function[NBP_ALLREDUCE].calls, n);
	CHECK_INT(counts.counts.function[NBP_ALLREDUCE].bytes, 4 * n);
	CHECK_INT(counts.counts.unseen, full);
	printf("     %d of %d found no place\n", (int)full, n);
	tables[6]->finalize(context);
	to_sleep();
}

TEST(the_driver_refuses)
{
	int mask;
	struct fake_stream *stream;
	void *context, *kept = cuda_context;
	uint64_t errors;

	cuda_context = (void *)0x2000; /* it will be timed no more */
	stream = new_stream();
	context = awake_comm(6, &mask, 0x5300, stream);
	errors = lost(NBP_LOSS_TIMING_ERROR);
	set_budget(1000000);
	atomic_store(&fake_cuda.fails_in, cuda_context);
	atomic_store(&fake_cuda.fail_query, 719);
	one_collective(6, context, stream, 1, 0, launch_20us);
	for (int i = 0; i < 500 && lost(NBP_LOSS_TIMING_ERROR) == errors; i++)
		ms_sleep(2);
	CHECK(lost(NBP_LOSS_TIMING_ERROR) > errors);
	atomic_store(&fake_cuda.fail_query, 0);
	ms_sleep(50);
	forget_records();
	errors = atomic_load(&fake_cuda.n_event_records);
	for (int i = 0; i < 10; i++)
		one_collective(6, context, stream, 1, 0, launch_20us);
	CHECK_INT(wait_records(NBP_KIND_OPERATION, 0x5300, 10, NULL), 10);
	CHECK_INT(count_finished(0x5300, NULL), 0);
	tables[6]->finalize(context);
	to_sleep();
	cuda_context = kept;
	cuCtxSetCurrent(kept);
}

TEST(finalize_with_work_under_way)
{
	struct fake_stream *stream = new_stream();
	int mask;

	for (int i = 0; i < 20; i++) {
		void *context = awake_comm(6, &mask, 0x6000 + i, i ? NULL : stream);
		uint64_t before;

		set_budget(1000000);
		fake_launch(stream, i ? 30000000 : 1500000000);
		for (int k = 0; k < 10; k++)
			one_collective(6, context, stream, k, 0, launch_20us);
		before = clock_ns();
		tables[6]->finalize(context);
		CHECK(clock_ns() - before < 1000000000); /* it does not wait for the GPU */
		CHECK(wait_records(NBP_KIND_END, 0x6000 + i, 1, NULL) == 1);
		CHECK(count_finished(0x6000 + i, NULL) >= 10);
	}
	to_sleep();
}

/* ---- when ---- */

/* An untimed launch has its call's time, unless time has gone by since. */
TEST(an_untimed_launch_is_made_when_it_is_called)
{
	int mask;
	struct fake_stream *stream = new_stream();
	void *context = awake_comm(6, &mask, 0x6100, stream);
	struct nbp_record api, launch;
	bool same = false;

	set_budget(0);
	for (int i = 0; i < 100 && !same; i++) { /* the plugin's thread may look around meanwhile */
		forget_records();
		one_collective(6, context, stream, i, 0, NULL);
		CHECK_INT(wait_records(NBP_KIND_LAUNCH, 0x6100, 1, &launch), 1);
		CHECK_INT(wait_records(NBP_KIND_API, 0x6100, 1, &api), 1);
		CHECK(launch.time_ns >= api.time_ns);
		CHECK_INT(launch.launch.timing, NBP_NOT_TIMED_BUDGET);
		same = launch.time_ns == api.time_ns;
	}
	CHECK(same);
	forget_records();
	start(6, context, group_api(1));
	start(6, context, coll_api("AllReduce", 1000, stream, 0));
	ms_sleep(100);
	start(6, context, kernel_launch(stream));
	CHECK_INT(wait_records(NBP_KIND_LAUNCH, 0x6100, 1, &launch), 1);
	CHECK_INT(wait_records(NBP_KIND_API, 0x6100, 1, &api), 1);
	CHECK(launch.time_ns - api.time_ns >= 100 * 1000000);
	tables[6]->finalize(context);
	to_sleep();
}

/* ---- which ---- */

/* One after the other; the GPU has nothing to do. */
static void launch_in_a_row(void *context, struct fake_stream *stream, int n)
{
	static uint64_t sequence = 100000;

	for (int i = 0; i < n; i++)
		one_collective(5, context, stream, sequence++, 0, NULL);
}

/*
 * What is timed of a busy communicator is chosen by chance; what only a pause made it time is
 * marked, for it is none of what is usual.
 */
TEST(after_a_pause_the_first_is_timed_and_marked)
{
	struct fake_stream *stream = new_stream();
	int mask, n_marked = 0, n_timed = 0, n = 0, n_first = 0;
	void *context = awake_comm(5, &mask, 0x6700, stream);

	for (int i = 0; i < 100; i++) { /* a second: how often it launches is known then */
		launch_in_a_row(context, stream, 200);
		ms_sleep(8);
	}
	ms_sleep(60);
	forget_records();
	for (int i = 0; i < 20; i++) {
		launch_in_a_row(context, stream, 300);
		ms_sleep(12);
	}
	CHECK_INT(wait_records(NBP_KIND_OPERATION, 0x6700, 20 * 300, NULL), 20 * 300);
	pthread_mutex_lock(&records_lock);
	for (int i = 0; i < n_records; i++) {
		const struct nbp_record *r = &records[i];

		if (r->kind != NBP_KIND_LAUNCH || r->comm_hash != 0x6700 ||
		    r->launch.phase != NBP_LAUNCHED)
			continue;
		n_first += n % 300 == 0 && r->launch.timing == NBP_TIMED;
		if (r->launch.after_pause)
			CHECK(n % 300 == 0 && r->launch.timing == NBP_TIMED);
		n_marked += r->launch.after_pause;
		n_timed += r->launch.timing == NBP_TIMED;
		n++;
	}
	pthread_mutex_unlock(&records_lock);
	printf("     of %d launches in 20 rows %d timed, %d of them first ones, %d marked\n", n,
	       n_timed, n_first, n_marked);
	CHECK_INT(n, 20 * 300);
	CHECK(n_first >= 8); /* one that the machine held up is charged to those that follow */
	CHECK(n_marked >= 8 && n_timed < 1000);
	tables[5]->finalize(context);
	to_sleep();
}

/* ---- many threads ---- */

#define N_AT_ONCE 300 /* more than have a place of their own */

static pthread_barrier_t all_are_there;

/* Says who it is, three times, and twice that others are there, too. */
static void *say_who(void *context)
{
	uint64_t tid = gettid();

	for (int i = 0; i < 3; i++) {
		start(6, context, coll_api("AllReduce", tid, NULL, 0));
		if (i < 2)
			pthread_barrier_wait(&all_are_there);
	}
	return NULL;
}

static void many_say_who(void *context, int n)
{
	pthread_t threads[N_AT_ONCE];

	pthread_barrier_init(&all_are_there, NULL, n);
	for (int i = 0; i < n; i++)
		pthread_create(&threads[i], NULL, say_who, context);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&all_are_there);
}

/* Also one that stands where another stood before. */
TEST(threads_are_told_apart)
{
	int mask;
	void *context = awake_comm(6, &mask, 0x6200, NULL);

	many_say_who(context, N_AT_ONCE);
	for (int i = 0; i < 50; i++)
		many_say_who(context, 1);
	many_say_who(context, N_AT_ONCE);
	CHECK_INT(wait_records(NBP_KIND_API, 0x6200, 6 * N_AT_ONCE + 150, NULL),
		  6 * N_AT_ONCE + 150);
	for (int i = 0; i < 6 * N_AT_ONCE + 150; i++) {
		struct nbp_record r = nth_record(NBP_KIND_API, 0x6200, i);

		CHECK_INT(r.tid, r.api.count);
	}
	tables[6]->finalize(context);
	to_sleep();
}

#define N_THREADS 16
#define N_SHARED  4
/* A communicator keeps its slot for a second after its end, and slots are few. */
#define SWAPPED_ONE_IN 2000

static int shared_mask;
static void *_Atomic shared[N_SHARED];
static atomic_bool stop_threads;
static _Atomic uint64_t longest_ns;

static void *hammer(void *argument)
{
	unsigned seed = (uintptr_t)argument;
	struct fake_stream *stream = new_stream();
	int version = 6;

	while (!atomic_load(&stop_threads)) {
		int i = rand_r(&seed) % N_SHARED;
		void *context = atomic_load(&shared[i]);
		uint64_t before = clock_ns(), took;

		if (rand_r(&seed) % SWAPPED_ONE_IN == 0) {
			void *fresh = init(version, &shared_mask, 0x7000 + i, "shared");

			tables[version]->finalize(atomic_exchange(&shared[i], fresh));
			continue;
		}
		one_collective(version, context, stream, 1, 0, launch_20us);
		took = clock_ns() - before;
		if (took > atomic_load(&longest_ns))
			atomic_store(&longest_ns, took);
	}
	return NULL;
}

TEST(sixteen_threads_on_shared_communicators)
{
	pthread_t threads[N_THREADS];

	set_budget(100000);
	for (int i = 0; i < N_SHARED; i++)
		atomic_store(&shared[i], init(6, &shared_mask, 0x7000 + i, "shared"));
	raise_semaphore(1);
	CHECK(wait_mask(&shared_mask, MASK_V6) >= 0);
	for (intptr_t i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, hammer, (void *)(i + 1));
	ms_sleep(1500);
	raise_semaphore(0); /* the tracer goes in the middle of it */
	ms_sleep(500);
	raise_semaphore(1);
	ms_sleep(1000);
	atomic_store(&stop_threads, true);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < N_SHARED; i++)
		tables[6]->finalize(atomic_load(&shared[i]));
	printf("     longest collective of 7 callbacks: %d us\n", (int)(longest_ns / 1000));
	CHECK_INT(atomic_load(&fake_cuda.n_wrong_context), 0);
	CHECK_INT(atomic_load(&fake_cuda.n_captures_broken), 0);
	CHECK(count_records(NBP_KIND_API, 0, NULL) > 0);
	CHECK_INT(__atomic_load_n(&control->n_comms, __ATOMIC_RELAXED), 0);
	to_sleep();
}

TEST(a_forked_child_stays_asleep)
{
	int mask, status = -1;
	void *context = awake_comm(6, &mask, 0x8000, NULL);
	pid_t child = fork();

	if (!child) {
		int other = 9;

		alarm(20); /* it must not outlive the test */
		void *own = init(6, &other, 1, "child");
		int n = atomic_load(&fake_cuda.n_event_records);

		one_collective(6, context, NULL, 1, 0, NULL);
		one_collective(6, own, NULL, 1, 0, NULL);
		tables[6]->finalize(own);
		_exit(other == 0 && n == atomic_load(&fake_cuda.n_event_records) ? 0 : 1);
	}
	waitpid(child, &status, 0);
	CHECK_INT(status, 0);
	tables[6]->finalize(context);
	to_sleep();
}

TEST(many_communicators)
{
	int mask, n = 0;
	void *contexts[200];

	raise_semaphore(1);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 200; i++)
			n += !!(contexts[i] = init(6, &mask, 0x9000 + i, NULL));
		for (int i = 0; i < 200; i++)
			tables[6]->finalize(contexts[i]);
	}
	CHECK_INT(n, 600);
	CHECK_INT(wait_records(NBP_KIND_END, 0x9000, 3, NULL), 3);
	to_sleep();
}

TEST(a_thousand_at_once)
{
	static void *contexts[1000];
	int mask;

	raise_semaphore(1);
	for (int i = 0; i < 1000; i++)
		contexts[i] = init(6, &mask, 0xa000 + i, NULL);
	CHECK(contexts[0] && contexts[999]);
	CHECK(wait_mask(&mask, MASK_V6) >= 0);
	ms_sleep(100);
	forget_records();
	/* later ones have smaller rings, which go round in their turn */
	for (int round = 0; round < 30; round++) {
		for (int k = 0; k < 100; k++) {
			start(6, contexts[0], coll_api("AllReduce", 1, NULL, 0));
			start(6, contexts[999], coll_api("AllReduce", 1, NULL, 0));
		}
		CHECK(wait_records(NBP_KIND_API, 0xa000 + 999, 100 * (round + 1), NULL) > 0);
	}
	CHECK_INT(wait_records(NBP_KIND_API, 0xa000, 3000, NULL), 3000);
	CHECK_INT(wait_records(NBP_KIND_API, 0xa000 + 999, 3000, NULL), 3000);
	for (int i = 0; i < 1000; i++)
		tables[6]->finalize(contexts[i]);
	to_sleep();
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	load_plugin(PLUGIN_FILE);
	return unit_main();
}
