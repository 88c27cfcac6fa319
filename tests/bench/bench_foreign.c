/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What following another profiler plugin costs its job: bench_foreign LIBNCCL PLUGIN calls the
 * plugin's v5 as NCCL does and answers each line on standard input with nanoseconds: of one
 * collective's calls on the job's own thread, of one channel's, and of an average call.
 */
#include <dlfcn.h>
#include <stdint.h>

#include "../../src/plugin/abi.h"
#include "bench.h"

#define ROUNDS	 15
#define N	 200
#define CHANNELS 16

static const struct abi_profiler *table;
static void *context;

static uint64_t start(uint64_t type, void *parent, void **handle)
{
	_Alignas(8) char d[128] = {};
	const char *text[] = {"AllReduce", "ncclFloat32", "RING", "SIMPLE"};
	uint64_t timer = 1;

	memcpy(d, &type, sizeof(type));
	memcpy(d + ABI_PARENT, &parent, sizeof(parent));
	if (type == ABI_COLL) {
		memcpy(d + 32, &text[0], 8);
		memcpy(d + 72, &text[1], 8);
		d[80] = CHANNELS;
		memcpy(d + 88, &text[2], 8);
		memcpy(d + 96, &text[3], 8);
	}
	if (type == ABI_KERNEL_CH)
		memcpy(d + 32, &timer, sizeof(timer));
	return table->start(context, handle, d);
}

/* GroupApi with its two states, CollApi, Group, Coll. */
static void *collective(void)
{
	void *group_api, *coll_api, *group, *coll = NULL;

	start(ABI_GROUP_API, NULL, &group_api);
	table->record(group_api, 23, NULL);
	start(ABI_COLL_API, group_api, &coll_api);
	table->stop(coll_api);
	table->record(group_api, 24, NULL);
	start(ABI_GROUP, NULL, &group);
	start(ABI_COLL, coll_api, &coll);
	if (coll)
		table->stop(coll);
	table->stop(group);
	table->stop(group_api);
	return coll;
}

static void channel(void *parent)
{
	uint64_t timer = 2;
	void *handle = NULL;

	start(ABI_KERNEL_CH, parent, &handle);
	if (!handle)
		return;
	table->record(handle, ABI_KERNEL_CH_STOP, &timer);
	table->stop(handle);
}

static void measure(void)
{
	struct rounds job = {}, channels = {};

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t in_job = 0, in_channels = 0;

		for (int k = 0; k < N; k++) {
			uint64_t begin = now_ns(), middle;
			void *coll = collective();

			middle = now_ns();
			for (int c = 0; c < CHANNELS; c++)
				channel(coll);
			in_job += middle - begin;
			in_channels += now_ns() - middle;
		}
		rounds__add(&job, (double)in_job / N);
		rounds__add(&channels, (double)in_channels / N / CHANNELS);
	}
	rounds__print(&job, "collective_ns");
	rounds__print(&channels, "channel_ns");
	printf(".\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	void *nccl = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
	void *plugin = nccl ? dlopen(argv[2], RTLD_NOW) : NULL;
	char line[16];
	int mask;

	table = plugin ? dlsym(plugin, "ncclProfiler_v5") : NULL;
	if (!table)
		die("usage: bench_foreign LIBNCCL PLUGIN", 0);
	((abi_init_v5)table->init)(&context, 1, &mask, NULL, 1, 2, 0, NULL);
	while (fgets(line, sizeof(line), stdin))
		measure();
	return 0;
}
