/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Another profiler plugin behind this one: it sees what it would see alone. */
#include "chained.h"
#include "driver.h"

#define GROUP	      1
#define COLL	      2
#define KERNEL_LAUNCH 2048
#define OURS_V5	      (7 | 512 | 1024 | 2048)

static struct chained *other;

TEST(its_mask_counts_while_we_sleep)
{
	int mask = 0;
	void *context;

	other->mask = COLL;
	other->handles_for = ~0ULL;
	context = init(5, &mask, 0xc0, "c");
	CHECK_INT(mask_of(&mask), COLL);
	CHECK_INT(other->n_init, 1);
	CHECK_INT(other->hash, 0xc0);
	one_collective(5, context, NULL, 1, 0, NULL);
	CHECK_INT(other->n_start[8], 1); /* GroupApi, CollApi, Group: Coll's implied parents */
	CHECK_INT(other->n_start[9], 1);
	CHECK_INT(other->n_start[0], 1);
	CHECK_INT(other->n_start[1], 1);
	CHECK_INT(other->n_start[11], 0);
	CHECK_INT(other->n_stop, 3);
	CHECK_INT(other->n_record, 1);
	CHECK_INT(other->last_state, 23);
	CHECK_INT(other->n_wrong_context, 0);
	__atomic_store_n(other->mask_given, 0, __ATOMIC_RELAXED); /* it may change its mind */
	CHECK(wait_mask(&mask, 0) >= 0);
	__atomic_store_n(other->mask_given, KERNEL_LAUNCH, __ATOMIC_RELAXED);
	CHECK(wait_mask(&mask, KERNEL_LAUNCH) >= 0);
	tables[5]->finalize(context);
	CHECK_INT(other->n_finalize, 1);
}

TEST(both_awake_each_sees_its_own)
{
	int mask = 0;
	void *context;
	struct nbp_record r;

	memset(other, 0, sizeof(*other));
	other->mask = KERNEL_LAUNCH;
	other->handles_for = KERNEL_LAUNCH;
	context = init(5, &mask, 0xc1, "c");
	raise_semaphore(1);
	CHECK(wait_mask(&mask, OURS_V5) >= 0);
	for (int i = 0; i < 10; i++)
		one_collective(5, context, NULL, i, 0, NULL);
	CHECK_INT(wait_records(NBP_KIND_LAUNCH, 0xc1, 10, &r), 10);
	CHECK_INT(wait_records(NBP_KIND_OPERATION, 0xc1, 10, &r), 10);
	CHECK_INT(r.operation.launch, 1);
	CHECK_INT(other->n_start[11], 10);
	CHECK_INT(other->n_start[1], 0);
	CHECK_INT(other->n_start[9], 0);
	CHECK_INT(other->n_start[8], 10);
	CHECK_INT(other->n_stop, 10);
	CHECK_INT(other->last_stopped, 0x10000 + KERNEL_LAUNCH);
	raise_semaphore(0);
	CHECK(wait_mask(&mask, KERNEL_LAUNCH) >= 0);
	tables[5]->finalize(context);
	forget_records();
}

TEST(it_never_sees_a_handle_of_ours)
{
	int mask = 0;
	void *context, *group;
	struct descriptor d = coll("AllReduce", 1, 1);

	memset(other, 0, sizeof(*other));
	other->mask = GROUP | COLL; /* and no handle for anything */
	context = init(5, &mask, 0xc2, "c");
	raise_semaphore(1);
	CHECK(wait_mask(&mask, OURS_V5) >= 0);
	CHECK(!start(5, context, descriptor(GROUP)));
	/* as with NCCL's own timer: tagged as the context is, and of a kind */
	group = (void *)((uintptr_t)context | 1ULL << 45);
	put(&d, 104, &group, sizeof(group));
	start(5, context, d);
	CHECK(!other->last_group_of_coll);
	tables[5]->stop(group);
	tables[5]->record(group, 23, NULL);
	CHECK_INT(other->n_stop, 0);
	CHECK_INT(other->n_record, 0);
	CHECK(wait_asleep());
	tables[5]->finalize(context);
}

TEST(a_version_it_does_not_have)
{
	int mask = 9;
	void *context = init(6, &mask, 0xc3, "c");

	CHECK(context != NULL);
	CHECK_INT(mask_of(&mask), 0);
	tables[6]->finalize(context);
}

int main(void)
{
	void *library = open_beside("libchained.so", RTLD_NOW | RTLD_LOCAL);
	Dl_info info;

	setvbuf(stdout, NULL, _IOLBF, 0);
	other = dlsym(library, "chained");
	dladdr(other, &info);
	setenv("NCCL_BPFTRACE_CHAIN", info.dli_fname, 1);
	handle_before = NULL;
	load_plugin(PLUGIN_FILE);
	return unit_main();
}
