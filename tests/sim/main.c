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
"  --sync              collectives wait for all ranks of their communicator\n"
"  --arm               print 'armed pids=...' and wait for a line on stdin before the script\n"
"  --hold              at the end print 'done' and keep the ranks until a line on stdin\n"
"  --expect FILE       write there what was called\n"
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
"  pause MS   rate HZ   barrier   print TEXT   wait (for a line on stdin)\n"
"  stop (SIGSTOP)   kill (SIGKILL)   exit\n"
"SIGTERM and SIGINT end the job. A rank that is gone is waited for, as with NCCL.\n"
"Exit status: 0 ended; 1 a rank failed or died unordered; 2 bad usage or script.\n";

enum option_code {
	OPT_RANKS = 256, OPT_GPUS, OPT_NCCL, OPT_SCRIPT, OPT_SYNC, OPT_ARM, OPT_HOLD, OPT_EXPECT,
	OPT_HELP,
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
		return -EINVAL; /* getopt has told why */
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
	struct arguments args = { .job = { .n_ranks = 8 } };
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
