/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* NCCL's own GPU timer through the plugin: when it is on, and callbacks in any order. */
#include "driver.h"

#include <stdatomic.h>
#include <sys/statvfs.h>

#define KERNEL_CH 64
#define MASK_V5	  (7 | 512 | 1024 | 2048)
#define POOL	  (36ULL << 20)

/* What the plugin finds in /dev/shm. */
static _Atomic uint64_t shm_free = 1ULL << 40;
static atomic_int n_looks;

int statvfs(const char *path, struct statvfs *vfs)
{
	memset(vfs, 0, sizeof(*vfs));
	vfs->f_frsize = 4096;
	vfs->f_bavail = atomic_load(&shm_free) / 4096;
	atomic_fetch_add(&n_looks, 1);
	return strcmp(path, "/dev/shm") ? -1 : 0;
}

static void want_timer(bool on)
{
	__atomic_store_n(&control->wants, on ? NBP_WANT_KERNEL_TIMER : 0, __ATOMIC_RELAXED);
}

static bool wait_timer(enum nbp_timer_state wanted)
{
	for (int i = 0; i < 2000; i++) {
		if (__atomic_load_n(&control->timer, __ATOMIC_RELAXED) == wanted)
			return true;
		ms_sleep(2);
	}
	return false;
}

static uint64_t lost(int reason)
{
	return __atomic_load_n(&control->lost[reason], __ATOMIC_RELAXED);
}

static void *timed_comm(int version, int *mask, uint64_t hash)
{
	void *context = init(version, mask, hash, "t");

	raise_semaphore(1);
	want_timer(true);
	CHECK(wait_mask(mask,
			(version < 5 ? 7 : MASK_V5 | (version == 6 ? 4096 : 0)) | KERNEL_CH) >= 0);
	return context;
}

static void to_sleep(void)
{
	want_timer(false);
	CHECK(wait_asleep());
	forget_records();
}

static struct descriptor kernel_ch(void *parent, int channel, uint64_t ns)
{
	struct descriptor d = descriptor(KERNEL_CH);

	put(&d, 8, &parent, 8);
	d.bytes[24] = channel;
	put_u64(&d, 32, ns);
	return d;
}

static struct descriptor coll_of(int n_channels, uint64_t sequence)
{
	struct descriptor d = coll("AllReduce", sequence, 1000);

	d.bytes[80] = n_channels;
	return d;
}

static void channel_ends(int version, void *handle, uint64_t ns)
{
	tables[version]->record(handle, 22, &ns);
	tables[version]->stop(handle);
}

/* ---- on and off ---- */

TEST(off_unless_asked_for)
{
	int mask = 0;
	void *context = init(6, &mask, 0x100, "t");

	raise_semaphore(1);
	CHECK(wait_mask(&mask, MASK_V5 | 4096) >= 0);
	CHECK(!start(6, context, coll_of(2, 1)));
	CHECK(wait_timer(NBP_TIMER_OFF));
	want_timer(true);
	CHECK(wait_mask(&mask, MASK_V5 | 4096 | KERNEL_CH) >= 0);
	CHECK(wait_timer(NBP_TIMER_ON));
	want_timer(false);
	CHECK(wait_mask(&mask, MASK_V5 | 4096) >= 0);
	want_timer(true);
	CHECK(wait_mask(&mask, MASK_V5 | 4096 | KERNEL_CH) >= 0);
	raise_semaphore(0); /* the tracer dies and leaves its wish behind */
	CHECK(wait_mask(&mask, 0) >= 0);
	CHECK(wait_timer(NBP_TIMER_OFF));
	tables[6]->finalize(context);
	to_sleep();
}

TEST(not_where_nccl_has_none)
{
	for (int v = 1; v <= 3; v++) {
		int mask = 0;
		void *context = init(v, &mask, 0, NULL);
		uint64_t refused = lost(NBP_LOSS_TIMER_REFUSED);
		struct nbp_record r = {0};

		raise_semaphore(1);
		want_timer(true);
		CHECK(wait_timer(NBP_TIMER_NO_ABI));
		CHECK(wait_mask(&mask, 7) >= 0);
		CHECK(wait_records(NBP_KIND_LOSS, 0, 1, &r) >= 1);
		CHECK_INT(r.loss.reason, NBP_LOSS_TIMER_REFUSED);
		CHECK_INT(r.loss.detail, NBP_TIMER_NO_ABI);
		ms_sleep(100);
		CHECK_INT(lost(NBP_LOSS_TIMER_REFUSED) - refused, 1); /* told once */
		tables[v]->finalize(context);
		to_sleep();
	}
}

/* init() says 8 ranks on 2 nodes: 4 pools of one communicator come to lie in /dev/shm. */
TEST(not_where_it_does_not_fit)
{
	int mask = 0;
	void *context, *second, *third;

	atomic_store(&shm_free, 64 << 20);
	context = init(6, &mask, 0x300, "t");
	raise_semaphore(1);
	want_timer(true);
	CHECK(wait_timer(NBP_TIMER_NO_SHM));
	CHECK(wait_mask(&mask, MASK_V5 | 4096) >= 0);
	CHECK(!start(6, context, coll_of(1, 1)));
	/* twice what it takes is there: it is looked at again */
	atomic_store(&shm_free, 2 * 4 * POOL);
	CHECK(wait_timer(NBP_TIMER_ON));
	CHECK(wait_mask(&mask, MASK_V5 | 4096 | KERNEL_CH) >= 0);
	/* of another rank in this process, for which there is a pool already */
	second = init(6, &mask, 0x300, "t");
	CHECK(wait_mask(&mask, MASK_V5 | 4096 | KERNEL_CH) >= 0);
	/* one that does not fit besides it switches it off before it can have an operation */
	third = init(6, &mask, 0x301, "t");
	CHECK(!(mask_of(&mask) & KERNEL_CH));
	CHECK(wait_timer(NBP_TIMER_NO_SHM));
	CHECK(!(mask_of(&mask) & KERNEL_CH));
	tables[6]->finalize(third);
	CHECK(wait_timer(NBP_TIMER_ON));
	tables[6]->finalize(second);
	tables[6]->finalize(context);
	atomic_store(&shm_free, 1ULL << 40);
	to_sleep();
}

/* ---- times ---- */

TEST(an_operation_s_first_start_and_last_stop)
{
	for (int v = 4; v <= 6; v++) {
		int mask = 0;
		void *context = timed_comm(v, &mask, 0x400 + v), *group, *task, *channels[3];
		struct nbp_record r = {0}, operation = {0};

		group = start(v, context, descriptor(1));
		task = start(v, context, coll_of(3, 55));
		CHECK(task != NULL);
		/* the proxy thread may be faster than the one that launches */
		channels[1] = start(v, context, kernel_ch(task, 1, 1000));
		tables[v]->stop(task);
		tables[v]->stop(group);
		channels[0] = start(v, context, kernel_ch(task, 0, 900));
		channels[2] = start(v, context, kernel_ch(task, 63, 1100));
		CHECK(channels[0] && channels[1] && channels[2]);
		channel_ends(v, channels[2], 5000);
		channel_ends(v, channels[0], 7000);
		CHECK_INT(count_records(NBP_KIND_TIMER, 0x400 + v, NULL), 0);
		channel_ends(v, channels[1], 6000);
		CHECK_INT(wait_records(NBP_KIND_TIMER, 0x400 + v, 1, &r), 1);
		CHECK_INT(wait_records(NBP_KIND_OPERATION, 0x400 + v, 1, &operation), 1);
		CHECK(r.timer.operation == operation.operation.operation);
		CHECK_INT(r.timer.sequence, 55);
		CHECK_INT(r.timer.gpu_first_ns, 900);
		CHECK_INT(r.timer.gpu_last_ns, 7000);
		CHECK_INT(r.timer.n_channels, 3);
		CHECK_INT(r.timer.n_expected, 3);
		CHECK_INT(r.timer.function, NBP_ALLREDUCE);
		CHECK(r.timer.seen_ns >= operation.time_ns && r.timer.seen_ns <= clock_ns());
		tables[v]->finalize(context);
		to_sleep();
	}
}

TEST(fewer_channels_than_announced)
{
	int mask = 0;
	void *context = timed_comm(6, &mask, 0x500), *task = start(6, context, coll_of(8, 1));
	struct nbp_record r = {0};

	tables[6]->stop(task);
	channel_ends(6, start(6, context, kernel_ch(task, 0, 10)), 20);
	channel_ends(6, start(6, context, kernel_ch(task, 1, 0)), 30); /* a time that is none */
	CHECK_INT(wait_records(NBP_KIND_TIMER, 0x500, 1, &r), 1);
	CHECK_INT(r.timer.n_channels, 1);
	CHECK_INT(r.timer.n_expected, 8);
	CHECK_INT(r.timer.gpu_first_ns, 10);
	tables[6]->finalize(context);
	to_sleep();
}

/* ---- T1: any order, any value ---- */

TEST(oddities_are_counted)
{
	int mask = 0;
	struct table *t = tables[6];
	void *context = timed_comm(6, &mask, 0x600), *task, *channel, *other;
	uint64_t ns = 77, stop = lost(NBP_LOSS_UNKNOWN_STOP), state = lost(NBP_LOSS_UNKNOWN_STATE),
		 bad = lost(NBP_LOSS_BAD_CALLBACK), stale = lost(NBP_LOSS_STALE);

	task = start(6, context, coll_of(2, 1));
	channel = start(6, context, kernel_ch(task, 5, 10));
	CHECK(!start(6, context, kernel_ch(task, 5, 10))); /* twice */
	CHECK(!start(6, context, kernel_ch(task, 64, 10)));
	CHECK(!start(6, context, kernel_ch(task, 255, 10)));
	CHECK(!start(6, context, kernel_ch(NULL, 0, 10)));	     /* of one that had no place */
	CHECK(!start(6, context, kernel_ch(channel, 0, 10)));	     /* no operation */
	CHECK(!start(6, context, kernel_ch((void *)0x1234, 0, 10))); /* nobody's */
	CHECK_INT(lost(NBP_LOSS_BAD_CALLBACK) - bad, 3);
	CHECK_INT(lost(NBP_LOSS_STALE) - stale, 2);
	t->record(channel, 21, &ns);
	t->record(channel, 22, NULL);
	t->record(task, 22, &ns);
	CHECK_INT(lost(NBP_LOSS_UNKNOWN_STATE) - state, 3);
	t->record(channel, 22, &ns);
	t->record(channel, 22, &ns); /* twice */
	t->stop(channel);
	t->record(channel, 22, &ns); /* after its stop */
	CHECK_INT(lost(NBP_LOSS_UNKNOWN_STATE) - state, 5);
	t->stop(channel);
	t->stop(task);
	t->stop(task);
	CHECK_INT(lost(NBP_LOSS_UNKNOWN_STOP) - stop, 2);
	other = start(6, context, kernel_ch(task, 6, 9));
	t->stop(other); /* it never told its time */
	CHECK_INT(wait_records(NBP_KIND_TIMER, 0x600, 1, NULL), 1);
	CHECK(!start(6, context, kernel_ch(task, 7, 9))); /* it is over */
	t->stop(other);
	t->stop(task);
	t->record(other, 22, &ns);
	CHECK_INT(lost(NBP_LOSS_UNKNOWN_STOP) - stop, 4);
	/* handles of places that were never given out */
	for (int kind = 3; kind <= 7; kind++) {
		uint64_t token = 0x6e62ULL << 48 | (uint64_t)kind << 45 | 0x1fff123456789ULL >> 4;

		t->stop((void *)token);
		t->record((void *)token, 22, &ns);
	}
	CHECK_INT(lost(NBP_LOSS_UNKNOWN_STOP) - stop, 9);
	t->finalize(context);
	to_sleep();
}

TEST(no_more_than_there_are_places)
{
	int mask = 0, n = 0, k;
	void *context = timed_comm(6, &mask, 0x700), *tasks[5000];
	uint64_t full = lost(NBP_LOSS_TIMER_FULL);

	for (int i = 0; i < 5000; i++)
		n += !!(tasks[i] = start(6, context, coll_of(1, i)));
	CHECK_INT(n, 4096);
	CHECK_INT(lost(NBP_LOSS_TIMER_FULL) - full, 5000 - 4096);
	for (int i = 0; i < 5000; i++) {
		if (!tasks[i])
			continue;
		tables[6]->stop(tasks[i]);
		channel_ends(6, start(6, context, kernel_ch(tasks[i], 0, 1 + i)), 2 + i);
		if (i % 512 == 0)
			ms_sleep(30); /* the ring is not what is tested */
	}
	k = wait_records(NBP_KIND_TIMER, 0x700, n, NULL);
	CHECK_INT(k + lost(NBP_LOSS_RING_FULL), n);
	CHECK(start(6, context, coll_of(1, 1)) != NULL);
	/* what is under way when the communicator goes is given up */
	tables[6]->finalize(context);
	to_sleep();
}

/* ---- many threads ---- */

#define N_THREADS 4
#define N_TOKENS  256

static atomic_bool stop_threads;
static void *_Atomic tokens[N_TOKENS];
static void *_Atomic shared_context;

/* Callbacks in an order that NCCL would never have. */
static void *fuzz(void *argument)
{
	unsigned seed = (uintptr_t)argument;

	while (!atomic_load(&stop_threads)) {
		void *_Atomic *slot = &tokens[rand_r(&seed) % N_TOKENS];
		void *token = atomic_load(slot), *context = atomic_load(&shared_context);
		uint64_t ns = rand_r(&seed) % 3 ? clock_ns() : 0;

		switch (rand_r(&seed) % 8) {
		case 0:
			atomic_store(slot, start(6, context, coll_of(rand_r(&seed) % 70, 1)));
			break;
		case 1:
		case 2:
		case 3:
			atomic_store(slot,
				     start(6, context, kernel_ch(token, rand_r(&seed) % 66, ns)));
			break;
		case 4:
			tables[6]->record(token, 22, &ns);
			break;
		case 5:
			tables[6]->record(token, rand_r(&seed) % 40, NULL);
			break;
		default:
			tables[6]->stop(token);
		}
	}
	return NULL;
}

/* As NCCL does it: one thread launches, its proxy thread tells of the channels. */
static void *proxy(void *argument)
{
	void *context = argument;
	int n = 0;

	while (!atomic_load(&stop_threads)) {
		void *task = start(6, context, coll_of(4, n)), *channels[4];

		for (int i = 0; i < 4; i++)
			channels[i] = start(6, context, kernel_ch(task, i, 1000 + n));
		if (task)
			tables[6]->stop(task);
		for (int i = 0; i < 4; i++) {
			if (channels[i])
				channel_ends(6, channels[i], 2000 + n);
		}
		n++;
		if (n % 64 == 0)
			ms_sleep(1);
	}
	return NULL;
}

TEST(many_threads_in_any_order)
{
	int mask = 0;
	void *context = timed_comm(6, &mask, 0x800), *good = init(6, &mask, 0x801, "good");
	pthread_t threads[N_THREADS + 1];
	struct nbp_record r = {0};

	CHECK(wait_mask(&mask, MASK_V5 | 4096 | KERNEL_CH) >= 0);
	atomic_store(&shared_context, context);
	for (intptr_t i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, fuzz, (void *)(i + 1));
	pthread_create(&threads[N_THREADS], NULL, proxy, good);
	for (int i = 0; i < 10; i++) {
		ms_sleep(100);
		want_timer(i % 3 != 0);
		tables[6]->finalize(atomic_exchange(&shared_context, init(6, &mask, 0x800, "t")));
	}
	want_timer(true);
	CHECK(wait_timer(NBP_TIMER_ON));
	forget_records();
	CHECK(wait_records(NBP_KIND_TIMER, 0x801, 10, &r) >= 10);
	CHECK_INT(r.timer.gpu_last_ns - r.timer.gpu_first_ns, 1000);
	CHECK_INT(r.timer.n_channels, 4);
	atomic_store(&stop_threads, true);
	for (int i = 0; i <= N_THREADS; i++)
		pthread_join(threads[i], NULL);
	tables[6]->finalize(atomic_load(&shared_context));
	tables[6]->finalize(good);
	to_sleep();
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	load_plugin(PLUGIN_FILE);
	return unit_main();
}
