/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process with the real plugin in it, driven as NCCL >= 2.30 drives it, over a stand-in CUDA
 * driver. Does what the lines on standard input say and answers each with `ok ...`:
 *
 *   plugin PATH      dlopen: the plugin
 *   load PATH        dlopen: anything else (NCCL, so that the process counts as one of its)
 *   comm HASH        the plugin's init
 *   mask             what the plugin wants of NCCL: `ok N`
 *   launch N         so many collectives, a kernel of 20 us each, on the last communicator
 *   busy             the same for ever, on a second thread
 *   calm             until here: `ok N`, all collectives so far
 *   end              the plugin's finalize
 *   hook ADDRESS     where the plugin's hook is, for what follows
 *   batch N KIND SIZE   the hook with N records of that kind that say to be of that size
 *   control ADDRESS  the hook with a record that says struct nbp_control lies there; `scratch`: at
 *                    a place of zeros
 *   scratch          whether that place is still so: `ok untouched`
 *   absent N         the hook with N records at an address where nothing is
 *   half N           the hook with N records of which only the first lies in memory
 */
#include <sys/mman.h>

#include "../plugin/driver.h"
#include "../plugin/fake_cuda.h"

#define VERSION	 6
#define PAUSE_US 100 /* after each collective: the plugin's ring holds them all */

typedef void hook_fn(const struct nbp_record *batch, uint32_t n);

static struct {
	void *context;
	int mask;
	struct fake_stream *stream;
	atomic_ullong n; /* collectives, their sequence numbers */
	hook_fn *hook;
	pthread_t thread;
	atomic_bool busy;
} job;

static void launch_20us(void *stream)
{
	fake_launch(stream, 20000);
}

static void collectives(unsigned long n)
{
	while (n--) {
		one_collective(VERSION, job.context, job.stream, atomic_fetch_add(&job.n, 1), 0,
			       launch_20us);
		usleep(PAUSE_US);
	}
}

static void *busy_main(void *unused)
{
	(void)unused;
	cuCtxSetCurrent((void *)0x1000);
	while (atomic_load(&job.busy))
		collectives(1);
	return NULL;
}

static void *map_two_pages(void)
{
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(pages, 0, 8192);
	munmap(pages + 4096, 4096);
	return pages;
}

static void fire(uint32_t n, int kind, int size)
{
	struct nbp_record *batch = calloc(NBP_MAX_BATCH, sizeof(*batch));

	for (int i = 0; i < NBP_MAX_BATCH; i++) {
		batch[i].kind = kind;
		batch[i].size = size;
		memset(batch[i].bytes, 0xff, sizeof(batch[i].bytes));
	}
	job.hook(batch, n);
	free(batch);
}

static void fire_half(uint32_t n)
{
	struct nbp_record *batch =
		(void *)((char *)map_two_pages() + 4096 - sizeof(struct nbp_record));

	batch->kind = NBP_KIND_API;
	batch->size = sizeof(*batch);
	job.hook(batch, n);
}

static uint64_t scratch[sizeof(struct nbp_control) / 8];

static void tell_control(uint64_t address)
{
	struct nbp_record record = {
		.kind = NBP_KIND_COMM,
		.size = sizeof(record),
		.comm_id = 1000,
		.comm.control = address,
	};

	job.hook(&record, 1);
}

static const char *scratch_state(void)
{
	for (size_t i = 0; i < sizeof(scratch) / 8; i++)
		if (scratch[i])
			return "touched";
	return "untouched";
}

static void make_comm(uint64_t hash)
{
	cuCtxSetCurrent((void *)0x1000);
	if (!job.stream)
		cuStreamCreate((void **)&job.stream, 1);
	job.context = init(VERSION, &job.mask, hash, "plugged");
}

static bool open_library(const char *path, bool is_plugin)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (library && is_plugin)
		tables[VERSION] = dlsym(library, "ncclProfiler_v6");
	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	return library && (!is_plugin || tables[VERSION]);
}

static bool obey(const char *word, const char *rest)
{
	unsigned long number = strtoul(rest, NULL, 0);
	int kind = 0, size = 0;

	if (!strcmp(word, "plugin") || !strcmp(word, "load")) {
		return open_library(rest, word[0] == 'p');
	} else if (!strcmp(word, "comm")) {
		make_comm(number);
	} else if (!strcmp(word, "launch")) {
		collectives(number);
	} else if (!strcmp(word, "busy")) {
		job.busy = true;
		return !pthread_create(&job.thread, NULL, busy_main, NULL);
	} else if (!strcmp(word, "calm")) {
		job.busy = false;
		return !pthread_join(job.thread, NULL);
	} else if (!strcmp(word, "end")) {
		tables[VERSION]->finalize(job.context);
	} else if (!strcmp(word, "hook")) {
		job.hook = (hook_fn *)number;
	} else if (!strcmp(word, "batch") &&
		   sscanf(rest, "%lu %d %d", &number, &kind, &size) == 3) {
		fire(number, kind, size);
	} else if (!strcmp(word, "control")) {
		tell_control(strcmp(rest, "scratch") ? number : (uintptr_t)scratch);
	} else if (!strcmp(word, "absent")) {
		job.hook((void *)0x1000, number);
	} else if (!strcmp(word, "half")) {
		fire_half(number);
	} else {
		return !strcmp(word, "mask") || !strcmp(word, "scratch");
	}
	return true;
}

int main(void)
{
	char line[4200];

	while (fgets(line, sizeof(line), stdin)) {
		char *rest;

		line[strcspn(line, "\n")] = 0;
		rest = line + strcspn(line, " ");
		if (*rest)
			*rest++ = 0;
		if (!obey(line, rest))
			printf("failed\n");
		else if (!strcmp(line, "mask"))
			printf("ok %d\n", mask_of(&job.mask));
		else if (!strcmp(line, "scratch"))
			printf("ok %s\n", scratch_state());
		else
			printf("ok %llu\n", (unsigned long long)job.n);
		fflush(stdout);
	}
	return 0;
}
