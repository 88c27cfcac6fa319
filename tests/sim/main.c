/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* nccl-sim: jobs that call a stand-in for NCCL as a script says. No GPU is used. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "job.h"
#include "script.h"

#define EXIT_USAGE 2
#define SCRIPT_MAX_BYTES (1 << 20)

static const char help[] =
"Usage: nccl-sim [OPTION]... (--script FILE | -e TEXT)\n"
"Runs ranks, one process each, that call a stand-in for NCCL as a script says. No GPU is used.\n"
"\n"
"  --ranks N           number of ranks, 1 to 256 (default 8)\n"
"  --gpus-per-node N   ranks on one simulated node (default: all)\n"
"  --nccl PATH|VERSION 2.19.3, 2.28.9 (default), 2.30.7, 2.99.1, stripped, or a file\n"
"  --script FILE       the script; '-e TEXT' gives it on the command line\n"
"  --sync              collectives wait for all ranks of their communicator; else calls return\n"
"                      at once, and ranks wait for one another on the GPU (--gpu) or not at all\n"
"  --arm               print 'armed pids=...' and wait for a line on stdin before the script\n"
"  --hold              at the end print 'done' and keep the ranks until a line on stdin\n"
"  --expect FILE       write there what was called\n"
"  --gpu               each rank has a simulated GPU behind a stand-in CUDA driver\n"
"  --truth FILE        with --gpu: write there when each operation ran on it\n"
"  --gpu-latency US, --gpu-bandwidth GB/S, --gpu-network GB/S, --gpu-jitter PERCENT, --seed N\n"
"                      how long a kernel works (15, 300, 40 and 0; made up, of no real GPU)\n"
"                      --seed (1) is that of random pauses, too\n"
"  --help              this text\n"
"\n"
"Instructions end with a line or ';'; '#' begins a comment. '@0-2,5 INSTRUCTION' is for these\n"
"ranks only.\n"
"  comm NAME [config|scalable]      a communicator of all ranks that execute this\n"
"  split NEW PARENT MOD             colour = rank modulo MOD\n"
"  finalize|destroy|abort NAME\n"
"  allreduce|allgather|reducescatter|broadcast|bcast|reduce|alltoall|gather|scatter|send|recv\n"
"      NAME COUNT TYPE [op=sum] [root=0] [peer=N] [x TIMES]\n"
"      TYPE: int8 uint8 int32 uint32 int64 uint64 fp16 fp32 fp64 bf16 fp8e4m3 fp8e5m2 or a number\n"
"      NAME null: called without a communicator\n"
"  group { ... }   loop N|forever { ... }   threads N { ... }\n"
"  env NAME=VALUE (before the rank's first communicator, for NCCL to see it)\n"
"With --gpu, where operations take stream=N as well (0 to 3):\n"
"  synchronize [stream=N]   compute MS [MAX]|forever [stream=N] (not NCCL's; what follows on the\n"
"      stream has not started; forever: until 'gpu ok')\n"
"  capture NAME { ... }   replay NAME [stream=N] [x TIMES]   drop NAME (a CUDA graph of stream 0)\n"
"  gpu hang|slow=FACTOR|link=FACTOR|ok (the rank's own GPU from its next kernel on; hang: the\n"
"      kernel has started and gets nowhere)\n"
"Also:\n"
"  pause MS [MAX] (by chance between the two)   rate HZ   barrier   wait (for a line on stdin)\n"
"  print TEXT   stamp TEXT (with rank and CLOCK_MONOTONIC)   load FILE (dlopen)\n"
"  error NAME RESULT (an asynchronous error: ncclRemoteError, ncclSystemError,\n"
"      ncclInternalError, ncclUnhandledCudaError; ncclSuccess ends it)\n"
"  stop (SIGSTOP)   kill (SIGKILL)   exit\n"
"SIGTERM and SIGINT end the job. A rank that is gone is waited for, as with NCCL.\n"
"Exit status: 0 ended; 1 a rank failed or died unordered; 2 bad usage or script.\n";

enum option_code {
	OPT_RANKS = 256, OPT_GPUS, OPT_NCCL, OPT_SCRIPT, OPT_SYNC, OPT_ARM, OPT_HOLD, OPT_EXPECT,
	OPT_GPU, OPT_TRUTH, OPT_LATENCY, OPT_BANDWIDTH, OPT_NETWORK, OPT_JITTER, OPT_SEED, OPT_HELP,
};

static const struct option long_options[] = {
	{ "ranks", required_argument, NULL, OPT_RANKS },
	{ "gpus-per-node", required_argument, NULL, OPT_GPUS },
	{ "nccl", required_argument, NULL, OPT_NCCL },
	{ "script", required_argument, NULL, OPT_SCRIPT },
	{ "sync", no_argument, NULL, OPT_SYNC },
	{ "arm", no_argument, NULL, OPT_ARM },
	{ "hold", no_argument, NULL, OPT_HOLD },
	{ "expect", required_argument, NULL, OPT_EXPECT },
	{ "gpu", no_argument, NULL, OPT_GPU },
	{ "truth", required_argument, NULL, OPT_TRUTH },
	{ "gpu-latency", required_argument, NULL, OPT_LATENCY },
	{ "gpu-bandwidth", required_argument, NULL, OPT_BANDWIDTH },
	{ "gpu-network", required_argument, NULL, OPT_NETWORK },
	{ "gpu-jitter", required_argument, NULL, OPT_JITTER },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 },
};

struct arguments {
	struct job_options job;
	const char *nccl, *script_file, *script_text;
	bool help;
};

static int usage(const char *what, const char *why)
{
	fprintf(stderr, "nccl-sim: %s: %s (try --help)\n", what, why);
	return -EINVAL;
}

static int set_number(const char *name, const char *text, int *ret_value)
{
	uint64_t value;

	if (!parse_u64(text, SIM_MAX_RANKS, &value) || !value)
		return usage(name, "not a number from 1 to 256");
	*ret_value = (int)value;
	return 0;
}

static int set_positive(const char *name, double max, double *ret_value)
{
	return parse_positive(optarg, max, ret_value) ? 0 : usage(name, "not a number in range");
}

static int set_gpu_option(struct job_options *job, int code)
{
	switch (code) {
	case OPT_GPU:
		job->gpu = true;
		return 0;
	case OPT_TRUTH:
		job->truth = optarg;
		return 0;
	case OPT_LATENCY:
		return set_positive("--gpu-latency", 1e9, &job->model.latency_us);
	case OPT_BANDWIDTH:
		return set_positive("--gpu-bandwidth", 1e9, &job->model.bandwidth);
	case OPT_NETWORK:
		return set_positive("--gpu-network", 1e9, &job->model.network_bandwidth);
	case OPT_JITTER:
		job->model.jitter = 0;
		return set_positive("--gpu-jitter", 90, &job->model.jitter);
	case OPT_SEED:
		return parse_u64(optarg, UINT64_MAX, &job->model.seed) ? 0 :
		       usage("--seed", "not a whole number");
	default:
		return -EINVAL; /* getopt has told why */
	}
}

static int set_option(struct arguments *args, int code)
{
	switch (code) {
	case OPT_RANKS:
		return set_number("--ranks", optarg, &args->job.n_ranks);
	case OPT_GPUS:
		return set_number("--gpus-per-node", optarg, &args->job.gpus_per_node);
	case OPT_NCCL:
		args->nccl = optarg;
		return 0;
	case OPT_SCRIPT:
		args->script_file = optarg;
		return 0;
	case 'e':
		args->script_text = optarg;
		return 0;
	case OPT_SYNC:
		args->job.sync = true;
		return 0;
	case OPT_ARM:
		args->job.arm = true;
		return 0;
	case OPT_HOLD:
		args->job.hold = true;
		return 0;
	case OPT_EXPECT:
		args->job.expect = optarg;
		return 0;
	case OPT_HELP:
		args->help = true;
		return 0;
	default:
		return set_gpu_option(&args->job, code);
	}
}

static int parse_arguments(int argc, char **argv, struct arguments *args)
{
	int code, err;

	while ((code = getopt_long(argc, argv, "e:", long_options, NULL)) != -1) {
		err = set_option(args, code);
		if (err)
			return err;
	}
	if (args->help)
		return 0;
	if (optind < argc)
		return usage(argv[optind], "unexpected argument");
	if (!args->script_file == !args->script_text)
		return usage("script", "give one of --script FILE and -e TEXT");
	if (args->job.truth && !args->job.gpu)
		return usage("--truth", "needs --gpu");
	args->job.model.jitter /= 100;
	err = args->job.gpu ? cuda_api_find(args->job.cuda, sizeof(args->job.cuda)) : 0;
	if (err)
		return usage("libcuda.so.1", strerror(-err));
	if (!args->job.gpus_per_node)
		args->job.gpus_per_node = args->job.n_ranks;
	err = api_find(args->nccl, args->job.library, sizeof(args->job.library));
	if (err)
		return usage(args->nccl ? args->nccl : "libnccl.so.2", strerror(-err));
	return 0;
}

/* The whole file as a string of the caller's; NULL when it cannot be had, which is told. */
static char *read_file(const char *path)
{
	char *text = calloc(1, SCRIPT_MAX_BYTES + 1);
	FILE *file = fopen(path, "re");
	size_t n = 0;

	if (text && file)
		n = fread(text, 1, SCRIPT_MAX_BYTES + 1, file);
	if (!text || !file || ferror(file) || n > SCRIPT_MAX_BYTES || memchr(text, 0, n)) {
		usage(path, errno ? strerror(errno) : "not a script");
		free(text);
		text = NULL;
	}
	if (file)
		fclose(file);
	return text;
}

static int run(const struct arguments *args, const char *text)
{
	struct script script = { 0 };
	struct script_error error;
	int err = script_parse(&script, text, args->job.n_ranks, &error);
	int status = EXIT_USAGE;

	if (!err) {
		fputs("nccl-sim: simulation: no GPU is used, no data is moved\n", stderr);
		status = job_run(&args->job, &script);
	} else if (err == -EINVAL) {
		fprintf(stderr, "nccl-sim: %s:%d: '%s': %s\n",
			args->script_file ? args->script_file : "-e", error.line, error.word,
			error.why);
	} else {
		fprintf(stderr, "nccl-sim: %s\n", strerror(-err));
	}
	script_free(&script);
	return status;
}

int main(int argc, char **argv)
{
	struct arguments args = { .job = { .n_ranks = 8, .model = { 15, 300, 40, 0, 1 } } };
	char *text;
	int status;

	if (parse_arguments(argc, argv, &args))
		return EXIT_USAGE;
	if (args.help) {
		fputs(help, stdout);
		return EXIT_SUCCESS;
	}
	if (args.script_text)
		return run(&args, args.script_text);
	text = read_file(args.script_file);
	if (!text)
		return EXIT_USAGE;
	status = run(&args, text);
	free(text);
	return status;
}
