/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define LOSS_NS 1000000ULL
#include "unit_foreign.h"

/* An operation of two channels, from 100 to 110 and 101 to 115 on the GPU. */
static void give_operation(struct foreign *f, uint64_t at_ns, uint64_t handle, uint64_t sequence)
{
	give(f, a_task(5, 1, at_ns, CONTEXT, handle, 3, sequence, 2));
	give(f, a_channel(2, at_ns + 10, CONTEXT, handle + 1, handle, 0, GPU_CLOCK + 100));
	give(f, a_channel(2, at_ns + 11, CONTEXT, handle + 2, handle, 1, GPU_CLOCK + 101));
	give(f, a_stop(2, at_ns + 20, handle + 1, GPU_CLOCK + 110));
	give(f, a_stop(2, at_ns + 25, handle + 2, GPU_CLOCK + 115));
}

TEST(an_operation_and_its_time)
{
	struct foreign *f = new_foreign(22809);
	struct nbp_record r;

	give_operation(f, BEGIN_NS + 5, 0x1000, 41);
	foreign__settle(f, BEGIN_NS + 100);
	CHECK_INT(n_told, 0); /* another thread could still tell of something earlier */
	foreign__settle(f, BEGIN_NS + 400 * MS);
	CHECK_INT(count_told(NBP_KIND_OPERATION, &r), 1);
	CHECK_INT(r.time_ns, BEGIN_NS + 5);
	CHECK_INT(r.rank, 3);
	CHECK_INT(r.comm_hash, 0);
	CHECK_INT(r.n_ranks, 0);
	CHECK_INT(r.operation.operation, 1);
	CHECK_INT(r.operation.sequence, 41);
	CHECK_INT(r.operation.count, 1041);
	CHECK_INT(r.operation.n_channels, 2);
	CHECK_INT(r.operation.function, NBP_ALLREDUCE);
	CHECK_INT(r.operation.datatype, 7);
	CHECK_INT(r.operation.algorithm, NBP_RING);
	CHECK_INT(r.operation.protocol, NBP_SIMPLE);
	CHECK_INT(r.operation.redop, NBP_UNKNOWN_U8);
	CHECK_INT(r.operation.launch, 0);
	CHECK_INT(count_told(NBP_KIND_TIMER, &r), 1);
	CHECK_INT(r.timer.operation, 1);
	CHECK_INT(r.timer.gpu_last_ns - r.timer.gpu_first_ns, 15);
	CHECK_INT(r.timer.seen_ns, BEGIN_NS + 30);
	CHECK_INT(r.timer.n_channels, 2);
	CHECK_INT(r.timer.n_expected, 2);
	/* before the operation, so that it is kept for its time */
	CHECK_INT(count_told(NBP_KIND_COMM, &r), 2);
	CHECK_INT(r.comm.mask, NBP_MASK_KERNEL_CH);
	CHECK_INT(told[1].kind, NBP_KIND_COMM);
	CHECK_INT(told[2].kind, NBP_KIND_OPERATION);
	foreign__free(f);
	CHECK_INT(count_told(NBP_KIND_TIMER, NULL), 1);
}

TEST(a_channel_that_is_told_before_its_operation)
{
	struct foreign *f = new_foreign(22809);
	struct nbp_record r;

	give(f, a_channel(2, BEGIN_NS + 10, CONTEXT, 0x1001, 0x1000, 0, GPU_CLOCK));
	give(f, a_task(5, 1, BEGIN_NS + 5, CONTEXT, 0x1000, 3, 1, 1));
	give(f, a_stop(2, BEGIN_NS + 20, 0x1001, GPU_CLOCK + 50));
	foreign__settle(f, BEGIN_NS + 400 * MS);
	CHECK_INT(count_told(NBP_KIND_TIMER, &r), 1);
	CHECK_INT(r.timer.gpu_last_ns - r.timer.gpu_first_ns, 50);
	foreign__free(f);
}

TEST(fewer_channels_than_expected_are_no_time)
{
	struct foreign *f = new_foreign(22809);
	struct nbp_record r;

	give(f, a_task(5, 1, BEGIN_NS + 5, CONTEXT, 0x1000, 3, 1, 2));
	give(f, a_channel(2, BEGIN_NS + 10, CONTEXT, 0x1001, 0x1000, 0, GPU_CLOCK));
	give(f, a_channel(2, BEGIN_NS + 11, CONTEXT, 0x1002, 0x1000, 0, GPU_CLOCK)); /* again */
	give(f, a_stop(2, BEGIN_NS + 20, 0x1001, GPU_CLOCK + 50));
	give(f, a_stop(2, BEGIN_NS + 21, 0x1002, GPU_CLOCK + 50));
	foreign__settle(f, BEGIN_NS + 400 * MS);
	CHECK_INT(count_told(NBP_KIND_TIMER, NULL), 0);
	foreign__settle(f, BEGIN_NS + 70 * 1000 * MS);
	CHECK_INT(count_told(NBP_KIND_TIMER, &r), 1);
	CHECK_INT(r.timer.n_channels, 1);
	CHECK_INT(r.timer.n_expected, 2);
	foreign__free(f);
}

TEST(a_handle_that_is_used_again)
{
	struct foreign *f = new_foreign(22809);
	struct nbp_record r;

	give_operation(f, BEGIN_NS + 5, 0x1000, 1);
	give(f, a_task(5, 1, BEGIN_NS + 100, CONTEXT, 0x1000, 3, 2, 2));
	give(f, a_channel(2, BEGIN_NS + 110, CONTEXT, 0x1001, 0x1000, 0, GPU_CLOCK + 200));
	give_operation(f, BEGIN_NS + 200, 0x1000, 3); /* and the one before is left as it is */
	foreign__settle(f, BEGIN_NS + 400 * MS);
	CHECK_INT(count_told(NBP_KIND_OPERATION, NULL), 3);
	CHECK_INT(count_told(NBP_KIND_TIMER, &r), 3);
	CHECK_INT(r.timer.sequence, 3);
	CHECK_INT(r.timer.gpu_last_ns - r.timer.gpu_first_ns, 15);
	for (size_t i = 0; i < n_told; i++)
		if (told[i].kind == NBP_KIND_TIMER && told[i].timer.sequence == 2)
			CHECK_INT(told[i].timer.n_channels, 0);
	foreign__free(f);
}

TEST(what_was_open_at_a_loss_is_given_up)
{
	struct foreign *f = new_foreign(22809);
	struct nb_foreign_record r;

	give(f, a_task(5, 1, BEGIN_NS + 5, CONTEXT, 0x1000, 3, 1, 1));
	/* its channel's stop and the next start of that handle were lost */
	r = a_channel(2, BEGIN_NS + 500, CONTEXT, 0x1001, 0x1000, 0, GPU_CLOCK);
	r.lost = 2;
	give(f, r);
	r = a_stop(2, BEGIN_NS + 600, 0x1001, GPU_CLOCK + 77);
	r.lost = 2;
	give(f, r);
	foreign__settle(f, BEGIN_NS + 400 * MS);
	CHECK_INT(count_told(NBP_KIND_OPERATION, NULL), 1);
	CHECK_INT(count_told(NBP_KIND_TIMER, NULL), 0);
	foreign__free(f);
}

TEST(versions_without_a_timer)
{
	for (int abi = 1; abi <= 3; abi++) {
		struct foreign *f = new_foreign(22304);
		struct nb_foreign_record r =
			a_task(abi, 1, BEGIN_NS + 5, CONTEXT, 0x1000, 3, 41, 2);
		uint64_t hash = HASH;
		struct nbp_record o;

		put(&r, abi_versions[abi].coll.hash, &hash, 8);
		give(f, r);
		foreign__settle(f, BEGIN_NS + 400 * MS);
		CHECK_INT(count_told(NBP_KIND_OPERATION, &o), 1);
		CHECK_INT(o.comm_hash, HASH); /* these tell it themselves */
		CHECK_INT(o.operation.function, NBP_ALLREDUCE);
		CHECK_INT(o.operation.datatype, 7);
		CHECK_INT(o.operation.algorithm, NBP_RING);
		CHECK_INT(o.operation.protocol, NBP_SIMPLE);
		CHECK_INT(o.operation.n_channels, NBP_UNKNOWN);
		CHECK_INT(count_told(NBP_KIND_COMM, &o), 1);
		CHECK_INT(o.comm.abi, abi);
		foreign__free(f);
	}
}

TEST(a_plugin_that_asks_for_no_channels)
{
	struct foreign *f = new_foreign(22809);

	give(f, a_task(5, 1, BEGIN_NS + 5, CONTEXT, 0x1000, 3, 1, 2));
	foreign__settle(f, BEGIN_NS + 1000 * MS);
	CHECK_INT(count_told(NBP_KIND_OPERATION, NULL), 0);
	give(f, a_task(5, 1, BEGIN_NS + 1500 * MS, CONTEXT, 0x2000, 3, 1, 2));
	foreign__settle(f, BEGIN_NS + 2500 * MS);
	CHECK_INT(count_told(NBP_KIND_OPERATION, NULL), 2);
	CHECK_INT(told[n_told - 1].operation.operation, 2);
	give(f, a_task(5, 1, BEGIN_NS + 3000 * MS, CONTEXT, 0, 3, 2, 2)); /* nor a handle */
	give(f, a_task(5, 1, BEGIN_NS + 3001 * MS, CONTEXT, 0x1000, 3, 3, 2));
	foreign__settle(f, BEGIN_NS + 3400 * MS);
	CHECK_INT(count_told(NBP_KIND_OPERATION, NULL), 4);
	CHECK_INT(count_told(NBP_KIND_TIMER, NULL), 0);
	/* until it does */
	give(f, a_channel(2, BEGIN_NS + 3500 * MS, CONTEXT, 0x1001, 0x1000, 0, GPU_CLOCK));
	give_operation(f, BEGIN_NS + 3501 * MS, 0x1000, 4);
	foreign__settle(f, BEGIN_NS + 4000 * MS);
	CHECK_INT(count_told(NBP_KIND_TIMER, NULL), 1);
	foreign__free(f);
}

TEST(a_handle_that_is_given_anew_while_asked_for)
{
	struct foreign *f = new_foreign(22809);
	struct nb_foreign_record slow = a_task(5, 9, BEGIN_NS + 1, CONTEXT, 0x1000, 3, 2, 2);
	struct nbp_record r;

	/* a thread asks, is held up, and gets it when the one that began later is done */
	slow.timer_ns = BEGIN_NS + 1000;
	give(f, slow);
	give_operation(f, BEGIN_NS + 5, 0x1000, 1);
	foreign__settle(f, BEGIN_NS + 400 * MS);
	CHECK_INT(count_told(NBP_KIND_TIMER, &r), 1);
	CHECK_INT(r.timer.sequence, 1);
	give(f, a_channel(2, BEGIN_NS + 2000, CONTEXT, 0x1001, 0x1000, 0, GPU_CLOCK + 300));
	give(f, a_channel(2, BEGIN_NS + 2001, CONTEXT, 0x1002, 0x1000, 1, GPU_CLOCK + 300));
	give(f, a_stop(2, BEGIN_NS + 2002, 0x1001, GPU_CLOCK + 307));
	give(f, a_stop(2, BEGIN_NS + 2003, 0x1002, GPU_CLOCK + 307));
	foreign__settle(f, BEGIN_NS + 400 * MS);
	CHECK_INT(count_told(NBP_KIND_TIMER, &r), 2);
	CHECK_INT(r.timer.sequence, 2);
	CHECK_INT(r.timer.gpu_last_ns - r.timer.gpu_first_ns, 7);
	foreign__free(f);
}

/* A stream of operations, 50 us each, launched at once; the n-th's end is seen so much later. */
static int timed_of_stream(uint64_t behind_ns_per_operation)
{
	struct foreign *f = new_foreign(22809);
	int n = 300;

	for (int i = 0; i < n; i++)
		give(f, a_task(5, 1, BEGIN_NS + 1000 * i, CONTEXT, 0x1000 + 16 * i, 3, i, 1));
	for (int i = 0; i < n; i++) {
		uint64_t gpu_ns = 1000000 + 50000 * i, seen_ns = BEGIN_NS + gpu_ns + 55000;

		seen_ns += behind_ns_per_operation * i;
		give(f, a_channel(2, seen_ns - 100, CONTEXT, 0x1001 + 16 * i, 0x1000 + 16 * i, 0,
				  GPU_CLOCK + gpu_ns));
		give(f, a_stop(2, seen_ns, 0x1001 + 16 * i, GPU_CLOCK + gpu_ns + 50000));
	}
	foreign__settle(f, BEGIN_NS + 10000 * MS);
	n = count_told(NBP_KIND_TIMER, NULL);
	CHECK_INT(n + foreign__lost(f, FOREIGN_LOST_LATE), 300);
	foreign__free(f);
	return n;
}

TEST(times_that_are_read_too_late)
{
	CHECK_INT(timed_of_stream(0), 300);
	CHECK_INT(timed_of_stream(4), 300); /* clocks drift by less than 100 us a second */
	/* falls behind by half an operation each: until that makes 16 operations; and at the end
	 * nothing follows that could have been written over them */
	CHECK_INT(timed_of_stream(25000), 33 + 64);
}

TEST(nothing_is_timed_soon_after_a_loss)
{
	struct foreign *f = new_foreign(22809);
	struct nb_foreign_record r = a_task(5, 1, BEGIN_NS + 5, CONTEXT, 0x1000, 3, 1, 1);

	r.lost = 1;
	give(f, r);
	r = a_channel(2, BEGIN_NS + 6, CONTEXT, 0x1001, 0x1000, 0, GPU_CLOCK);
	r.lost = 1;
	give(f, r);
	r = a_stop(2, BEGIN_NS + 7, 0x1001, GPU_CLOCK + 9);
	r.lost = 1;
	give(f, r);
	foreign__settle(f, BEGIN_NS + 400 * MS);
	CHECK_INT(count_told(NBP_KIND_OPERATION, NULL), 1);
	CHECK_INT(count_told(NBP_KIND_TIMER, NULL), 0);
	foreign__free(f);
}

TEST(the_channels_of_a_send_in_v4)
{
	struct foreign *f = new_foreign(22809);
	struct nb_foreign_record r = of_plugin(NB_FOREIGN_START, 4, 1, BEGIN_NS);
	uint8_t garbage = 9;
	int32_t peer = 5;
	struct nbp_record o;

	r.type = ABI_P2P;
	r.context = CONTEXT;
	r.handle = 0x1000;
	memcpy(r.task.text[0], "Send", 5);
	put(&r, abi_versions[4].p2p.channels, &garbage, 1);
	put(&r, abi_versions[4].p2p.root, &peer, 4);
	give(f, r);
	foreign__settle(f, BEGIN_NS + 400 * MS);
	CHECK_INT(count_told(NBP_KIND_OPERATION, &o), 1);
	CHECK_INT(o.operation.n_channels, NBP_UNKNOWN);
	CHECK_INT(o.operation.root, 5);
	CHECK_INT(o.operation.sequence, NBP_NO_NUMBER);
	CHECK_INT(o.operation.function, NBP_SEND);
	foreign__free(f);
}

/* ---- communicators ---- */

TEST(init_tells_of_a_communicator)
{
	struct foreign *f = new_foreign(22809);
	struct nb_foreign_record r = of_plugin(NB_FOREIGN_INIT, 5, 9, BEGIN_NS + 1);
	struct nbp_record c;

	r.rank = 3;
	r.init.comm_hash = HASH;
	r.init.n_ranks = 8;
	r.init.n_nodes = 2;
	memset(r.init.name, 'n', sizeof(r.init.name)); /* longer than what is kept */
	give(f, r);
	r = of_plugin(NB_FOREIGN_CONTEXT, 5, 1, BEGIN_NS + 3);
	r.handle = BEGIN_NS + 1;
	r.context = CONTEXT;
	give(f, r);
	give_operation(f, BEGIN_NS + 5, 0x1000, 1);
	foreign__settle(f, BEGIN_NS + 400 * MS);
	CHECK_INT(count_told(NBP_KIND_OPERATION, &c), 1);
	CHECK_INT(c.comm_hash, HASH);
	CHECK_INT(c.n_ranks, 8);
	CHECK_INT(count_told(NBP_KIND_COMM, &c), 2);
	CHECK_INT(c.comm_hash, HASH);
	CHECK_INT(c.comm.n_nodes, 2);
	CHECK_INT(strlen(c.comm.name), 27);
	r = of_plugin(NB_FOREIGN_FINALIZE, 5, 1, BEGIN_NS + 500 * MS);
	r.context = CONTEXT;
	give(f, r);
	give_operation(f, BEGIN_NS + 501 * MS, 0x1000, 1);
	foreign__settle(f, BEGIN_NS + 900 * MS);
	CHECK_INT(count_told(NBP_KIND_END, NULL), 1);
	CHECK_INT(count_told(NBP_KIND_OPERATION, &c), 2);
	CHECK_INT(c.comm_hash, 0); /* another one, of which nothing is known */
	foreign__free(f);
}

/* What becomes of the n-th operation's communicator when calls come before it. */
static uint64_t learn(struct foreign *f, int n, const uint64_t *hashes, int n_hashes, int rank)
{
	static uint64_t at_ns = BEGIN_NS;
	struct nbp_record o = {};

	for (int i = 0; i < n; i++) {
		at_ns += MS;
		for (int k = 0; k < n_hashes; k++) {
			struct nb_record call = a_call(1, at_ns + k, hashes[k], 3, 8);

			foreign__call(f, &call);
		}
		give(f, a_task(3, 1, at_ns + 100, CONTEXT, 0x1000, rank, i, 2));
	}
	foreign__settle(f, at_ns + 400 * MS);
	CHECK(count_told(NBP_KIND_OPERATION, &o) >= n);
	return o.comm_hash;
}

TEST(calls_tell_of_a_communicator)
{
	static const uint64_t one[] = {HASH}, other[] = {0x77}, both[] = {HASH, 0x77},
			      unknown[] = {0};
	struct foreign *f = new_foreign(22809);
	struct nbp_record c;

	CHECK_INT(learn(f, 2, one, 1, 3), 0); /* not yet */
	CHECK_INT(learn(f, 1, both, 2, 3), 0);
	CHECK_INT(learn(f, 1, one, 1, 3), HASH);
	CHECK_INT(count_told(NBP_KIND_COMM, &c), 2);
	CHECK_INT(c.n_ranks, 8);
	CHECK_INT(learn(f, 2, other, 1, 3), HASH);
	CHECK_INT(learn(f, 1, one, 1, 3), HASH);
	CHECK_INT(learn(f, 5, other, 1, 3), 0x77); /* its memory is another's now */
	CHECK_INT(count_told(NBP_KIND_END, NULL), 1);
	CHECK_INT(learn(f, 1, other, 1, 2), 0); /* another rank */
	foreign__free(f);
	f = new_foreign(22809);
	CHECK_INT(learn(f, 20, both, 2, 3), 0);
	CHECK_INT(learn(f, 20, unknown, 1, 3), 0);
	CHECK_INT(learn(f, 20, one, 1, 4), 0); /* not that rank's call */
	foreign__free(f);
}

TEST(one_thread_with_several_ranks)
{
	struct foreign *f = new_foreign(22809);
	struct nbp_record o;

	for (uint64_t i = 0; i < 4; i++) {
		uint64_t at_ns = BEGIN_NS + i * MS;

		for (int rank = 0; rank < 4; rank++) {
			struct nb_record call = a_call(1, at_ns + rank, HASH, rank, 8);

			foreign__call(f, &call);
		}
		for (int rank = 0; rank < 4; rank++)
			give(f,
			     a_task(3, 1, at_ns + 100 + rank, CONTEXT + rank, 0x1000, rank, i, 2));
	}
	foreign__settle(f, BEGIN_NS + 400 * MS);
	CHECK_INT(count_told(NBP_KIND_OPERATION, NULL), 16);
	for (int rank = 0; rank < 4; rank++) {
		o = told[n_told - 4 + rank];
		CHECK_INT(o.kind, NBP_KIND_OPERATION);
		CHECK_INT(o.comm_hash, HASH);
		CHECK_INT(o.rank, rank);
		CHECK_INT(o.n_ranks, 8);
	}
	foreign__free(f);
}

/* ---- foreign input ---- */

TEST(what_cannot_be_is_counted)
{
	struct foreign *f = new_foreign(22809);
	struct nb_foreign_record r = a_task(5, 1, BEGIN_NS + 1, CONTEXT, 0x1000, 3, 1, 2);

	memcpy(r.task.text[0], "NoSuchOperation!", 16); /* and no NUL */
	give(f, r);
	r = a_task(5, 1, BEGIN_NS + 1, CONTEXT, 0x1000, 3, 1, 2);
	r.abi = 7;
	give(f, r);
	r.abi = 5;
	r.size = 100;
	give(f, r);
	r.size = sizeof(r);
	r.type = ABI_GROUP;
	give(f, r);
	r.callback = NB_FOREIGN_MAX;
	give(f, r);
	r = of_plugin(NB_FOREIGN_INIT, 5, 9, BEGIN_NS + 1);
	give(f, r);
	foreign__settle(f, BEGIN_NS + 400 * MS);
	CHECK_INT(n_told, 0);
	CHECK_INT(foreign__lost(f, FOREIGN_LOST_BAD_RECORD), 6);
	/* channels of nothing: no loss while operations of before our time may run */
	give(f, a_channel(2, BEGIN_NS + 500 * MS, CONTEXT, 0x1, 0x2, 0, 1));
	give(f, a_stop(2, BEGIN_NS + 501 * MS, 0x1, 2));
	give(f, a_channel(2, BEGIN_NS + 100000 * MS, CONTEXT, 0x1, 0x2, 0, 1));
	give(f, a_channel(2, BEGIN_NS + 100000 * MS, CONTEXT, 0x1, 0, 0, 1));
	foreign__settle(f, BEGIN_NS + 200000 * MS);
	CHECK_INT(foreign__lost(f, FOREIGN_LOST_ORPHAN), 1);
	foreign__process_gone(f, TGID);
	give(f, r);
	foreign__free(f);
}

TEST(a_process_may_have_so_much)
{
	struct foreign *f = new_foreign(22809);

	for (uint64_t i = 0; i < FOREIGN_MAX_COMMS + 100; i++)
		give(f, a_task(5, 1, BEGIN_NS + i, i, 0x1000 + i * 16, 3, 1, 2));
	foreign__settle(f, BEGIN_NS + 400 * MS);
	CHECK_INT(foreign__lost(f, FOREIGN_LOST_NO_ROOM), 100);
	for (uint64_t i = 0; i < 2 * FOREIGN_MAX_TASKS; i++) {
		uint64_t handle = 0x100000 + i * 128, at_ns = BEGIN_NS + 500 * MS + i * 1000;

		give(f, a_task(5, 1, at_ns, 1, handle, 3, 1, 64));
		for (int k = 0; k < 4; k++)
			give(f, a_channel(2, at_ns + 1 + k, 1, handle + k, handle, k, 1));
		for (int k = 0; k < 4; k++) {
			struct nb_record call = a_call(i + k, at_ns, HASH, 3, 8);

			foreign__call(f, &call);
		}
	}
	foreign__settle(f, BEGIN_NS + 1000 * MS);
	CHECK(f->all->n_tasks <= FOREIGN_MAX_TASKS);
	CHECK(HASH_COUNT(f->all->channels) <= FOREIGN_MAX_CHANNELS);
	CHECK_INT(HASH_COUNT(f->all->callers), FOREIGN_MAX_CALLERS);
	foreign__free(f);
}

/* ---- random schedules ---- */

#define COMMS	   4
#define OPERATIONS 400
#define CHANNELS   8

struct truth {
	uint64_t start_ns, taken_ns, stop_ns;	 /* host, on its own thread */
	uint64_t begin[CHANNELS], end[CHANNELS]; /* GPU, on the host's clock */
	uint64_t seen_begin[CHANNELS], seen_end[CHANNELS];
	uint64_t handle, free_ns;
	int n_channels, timed;
};

struct emitted {
	uint64_t at_ns;
	struct nb_foreign_record record;
};

static struct truth truths[COMMS][OPERATIONS];
static struct emitted *schedule;
static size_t n_schedule;
static uint64_t seed;

static uint64_t random_below(uint64_t n)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (seed >> 33) % n;
}

/* Operations of one communicator: called at random, done one after the other. */
static void make_truth(struct truth *t)
{
	uint64_t host = BEGIN_NS + random_below(100000), gpu = host;

	for (int i = 0; i < OPERATIONS; i++, t++) {
		host += 1000 + random_below(30000);
		*t = (struct truth){.start_ns = host, .n_channels = 1 + random_below(CHANNELS)};
		/* the plugin takes its handle; all may be long held up */
		t->taken_ns = host + 100 + random_below(random_below(4) ? 2000 : 100000);
		t->stop_ns = t->taken_ns + 100 + random_below(random_below(10) ? 2000 : 100000);
		host = t->stop_ns;
		gpu = (gpu > t->taken_ns ? gpu : t->taken_ns) + 500;
		for (int k = 0; k < t->n_channels; k++) {
			t->begin[k] = gpu + random_below(1500);
			t->end[k] = t->begin[k] + 2000 + random_below(20000);
			t->seen_begin[k] = t->begin[k] + 100 + random_below(900);
			t->seen_end[k] = t->end[k] + 1000 + random_below(900);
			if (t->seen_end[k] > t->free_ns)
				t->free_ns = t->seen_end[k];
		}
		for (int k = 0; k < t->n_channels; k++)
			gpu = t->end[k] > gpu ? t->end[k] : gpu;
	}
}

static int by_taken(const void *a, const void *b)
{
	uint64_t x = (*(struct truth *const *)a)->taken_ns,
		 y = (*(struct truth *const *)b)->taken_ns;

	return x < y ? -1 : x > y;
}

/* From one pool, the handle that was given back last first. */
static void take_handles(void)
{
	static struct truth *all[COMMS * OPERATIONS];
	static uint64_t free_ns[COMMS * OPERATIONS];
	int n = 0;

	for (int i = 0; i < COMMS * OPERATIONS; i++)
		all[i] = &truths[i / OPERATIONS][i % OPERATIONS];
	qsort(all, COMMS * OPERATIONS, sizeof(*all), by_taken);
	for (int i = 0; i < COMMS * OPERATIONS; i++) {
		int best = n;

		for (int k = 0; k < n; k++)
			if (free_ns[k] + 10 < all[i]->taken_ns &&
			    (best == n || free_ns[k] > free_ns[best]))
				best = k;
		n += best == n;
		free_ns[best] = all[i]->free_ns;
		all[i]->handle = 0x1000 + 0x100 * best;
	}
}

static void emit(uint64_t at_ns, struct nb_foreign_record record)
{
	schedule[n_schedule++] = (struct emitted){at_ns, record};
}

static int by_time(const void *a, const void *b)
{
	const struct emitted *x = a, *y = b;

	return x->at_ns < y->at_ns ? -1 : x->at_ns > y->at_ns;
}

/* The next event of the progress thread after a time: what tells of a start. */
static uint64_t next_seen(const struct truth *of, int i, uint64_t after_ns)
{
	uint64_t next = UINT64_MAX;

	/* the next operation begins behind the end of this one */
	for (int last = i + 1; i <= last && i < OPERATIONS; i++) {
		for (int k = 0; k < of[i].n_channels; k++) {
			if (of[i].seen_begin[k] > after_ns && of[i].seen_begin[k] < next)
				next = of[i].seen_begin[k];
			if (of[i].seen_end[k] > after_ns && of[i].seen_end[k] < next)
				next = of[i].seen_end[k];
		}
	}
	return next;
}

static void emit_operation(int comm, int i)
{
	const struct truth *t = &truths[comm][i];
	uint32_t tid = 100 + comm, progress = 200 + comm;
	struct nb_foreign_record task =
		a_task(5, tid, t->start_ns, CONTEXT + comm, t->handle, comm, i, t->n_channels);

	task.timer_ns = t->stop_ns;
	emit(t->stop_ns, task);
	for (int k = 0; k < t->n_channels; k++) {
		emit(next_seen(truths[comm], i, t->seen_begin[k]),
		     a_channel(progress, t->seen_begin[k], CONTEXT + comm, t->handle + 8 * k,
			       t->handle, k, GPU_CLOCK + t->begin[k]));
		emit(t->seen_end[k],
		     a_stop(progress, t->seen_end[k], t->handle + 8 * k, GPU_CLOCK + t->end[k]));
	}
}

static void make_schedule(uint64_t with_seed)
{
	seed = with_seed;
	n_schedule = 0;
	for (int c = 0; c < COMMS; c++)
		make_truth(truths[c]);
	take_handles();
	for (int c = 0; c < COMMS; c++)
		for (int i = 0; i < OPERATIONS; i++)
			emit_operation(c, i);
	qsort(schedule, n_schedule, sizeof(*schedule), by_time);
}

static void play(struct foreign *f, int lost_per_ten_thousand)
{
	uint64_t settled_ns = BEGIN_NS, *lost_ns = malloc(n_schedule * sizeof(*lost_ns));
	size_t n_lost = 0;

	for (size_t i = 0; i < n_schedule; i++) {
		struct emitted *e = &schedule[i];

		for (; settled_ns + 100 * MS < e->at_ns; settled_ns += 100 * MS)
			foreign__settle(f, settled_ns + 100 * MS);
		if ((int)random_below(10000) < lost_per_ten_thousand) {
			lost_ns[n_lost++] = e->at_ns;
			continue;
		}
		for (e->record.lost = n_lost;
		     e->record.lost && lost_ns[e->record.lost - 1] >= e->record.time_ns;)
			e->record.lost--;
		if (e->record.callback == NB_FOREIGN_START && e->record.lost != n_lost)
			e->record.handle = 0;
		foreign__record(f, &e->record);
	}
	foreign__process_gone(f, TGID);
	foreign__free(f);
	free(lost_ns);
}

/* Of the whole ones; a time that is not the truth fails the test. */
static int count_right_times(void)
{
	int n = 0;

	for (size_t i = 0; i < n_told; i++) {
		const struct nbp_timer *timer = &told[i].timer;
		uint64_t first = UINT64_MAX, last = 0;
		struct truth *t;

		if (told[i].kind != NBP_KIND_TIMER || timer->n_channels != timer->n_expected)
			continue;
		t = &truths[told[i].rank][timer->sequence];
		for (int k = 0; k < t->n_channels; k++) {
			first = t->begin[k] < first ? t->begin[k] : first;
			last = t->end[k] > last ? t->end[k] : last;
		}
		CHECK_INT(timer->n_expected, t->n_channels);
		CHECK_INT(timer->gpu_first_ns, GPU_CLOCK + first);
		CHECK_INT(timer->gpu_last_ns, GPU_CLOCK + last);
		CHECK_INT(t->timed++, 0);
		n++;
	}
	return n;
}

TEST(random_schedules)
{
	schedule = malloc(COMMS * OPERATIONS * (2 * CHANNELS + 1) * sizeof(*schedule));
	for (int i = 0; i < 12; i++) {
		make_schedule(i + 1);
		play(new_foreign(22809), 0);
		CHECK_INT(count_told(NBP_KIND_OPERATION, NULL), COMMS * OPERATIONS);
		CHECK_INT(count_right_times(), COMMS * OPERATIONS);
	}
}

TEST(random_schedules_with_losses)
{
	static const int lost_per_ten_thousand[] = {1, 3, 10, 100};
	int right = 0;

	for (int i = 0; i < 24; i++) {
		make_schedule(i + 100);
		play(new_foreign(22809), lost_per_ten_thousand[i % 4]);
		right += count_right_times();
	}
	CHECK(right > 24 * COMMS * OPERATIONS / 10);
	printf("     %d of %d operations timed\n", right, 24 * COMMS * OPERATIONS);
	free(schedule);
	free(told);
}

UNIT_MAIN()
