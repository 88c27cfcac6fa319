/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What writing the textfile costs. usage: bench_picture DIRECTORY */
#include "textfile_files.h"

#include "bench.h"
#include "stub_tracer.h"
#include "stub_watch.h"

#define ROUNDS	    15
#define N_PROCESSES 8
#define N_COMMS	    64 /* of a process */

const char *libbpf_version_string(void)
{
	return "v1";
}

static struct tracer *picture(void)
{
	static const uint16_t functions[] = {
		NCCL_FN_AllReduce, NCCL_FN_AllGather, NCCL_FN_ReduceScatter,
		NCCL_FN_Broadcast, NCCL_FN_Reduce,
	};
	struct tracer *tracer = stub_new();

	timings__new(&tracer->timings, feed_keep, NULL);
	for (int p = 0; p < N_PROCESSES; p++) {
		stub_process(tracer, 1000 + p, "python3");
		for (int c = 0; c < N_COMMS; c++)
			for (size_t f = 0; f < ARRAY_SIZE(functions); f++)
				stub_calls(tracer, 1000 + p, 0x123456789a0000 + c + 1, p,
					   functions[f], 1000 + c)
					->bus_id = p;
	}
	return tracer;
}

static void write_ms(const char *dir, struct tracer *tracer, size_t max_series, const char *name)
{
	struct rounds ms = {};
	struct textfile *tf;
	int err = textfile__new(&tf, dir, max_series, NULL);

	if (err)
		die(dir, err);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t start = now_ns();

		err = textfile__write(tf, tracer);
		rounds__add(&ms, (now_ns() - start) / 1e6);
		if (err)
			die("textfile", err);
	}
	printf("%s_series %zu\n", name, tf->prom->n_series);
	rounds__print(&ms, name);
	textfile__free(tf);
}

int main(int argc, char **argv)
{
	struct tracer *tracer = picture();

	if (argc < 2)
		die("usage: bench_picture DIRECTORY", EINVAL);
	write_ms(argv[1], tracer, 5000, "capped");
	write_ms(argv[1], tracer, 1000000, "whole");
	timings__free(tracer->timings);
	stub_free(tracer);
	return 0;
}
