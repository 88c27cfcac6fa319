/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/utsname.h>

#include "commands.h"
#include "util.h"
#include "version.h"

const struct command_row command_rows[COMMAND_MAX] = {
	[COMMAND_RUN] = {"run",
			 "trace until a signal: live screen or log lines, textfile (default)",
			 cmd_run},
	[COMMAND_PS] = {"ps", "list NCCL processes, their communicators and ranks, once", cmd_ps},
	[COMMAND_DIAGNOSE] = {"diagnose",
			      "watch for 10 seconds, then say who is stuck, slow or at odds",
			      cmd_diagnose, .statuses = "0 all well, 1 worth a look, 4 trouble"},
	[COMMAND_CHECK] = {"check", "say whether this host can be traced, and what to mend if not",
			   cmd_check},
	[COMMAND_RECORD] = {"record", "write every operation to a file, until a signal",
			    cmd_record},
	[COMMAND_PLUGIN] = {"plugin", "the plugin that times on GPUs, for every job of this node",
			    cmd_plugin, "enable disable status"},
};

static bool verbose;

static int print_libbpf(enum libbpf_print_level level, const char *format, va_list args)
{
	return verbose && level <= LIBBPF_INFO ? vfprintf(stderr, format, args) : 0;
}

static int print_version(void)
{
	struct utsname kernel;

	uname(&kernel);
	printf("nccl-bpftrace %s (libbpf %s, kernel %s, built %s)\n", NCCL_BPFTRACE_VERSION,
	       libbpf_version_string(), kernel.release, NCCL_BPFTRACE_BUILD);
	return EXIT_OK;
}

/*
 * A stream that was closed must not be a BPF map or a socket that is opened next. Its place is
 * taken by what cannot be written to, so that what is printed there is an error still.
 */
static void occupy_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

static int print_help(const struct options *options)
{
	options__help(stdout, options);
	return EXIT_OK;
}

static int run_command(const struct options *options)
{
	if (options->help)
		return print_help(options);
	if (options->version)
		return print_version();
	verbose = options->verbose;
	libbpf_set_print(print_libbpf);
	command__raise_limits();
	return command_rows[options->command].run(options);
}

/* Half an answer is none; but what `run` logs is not what it is for. */
static bool is_answered(const struct options *options)
{
	bool written = !fflush(stdout) && !ferror(stdout);

	return written || (options->command == COMMAND_RUN && !options->help && !options->version);
}

int main(int argc, char **argv)
{
	struct options options;
	int status;

	occupy_streams();
	if (options__parse(&options, argc, argv))
		return EXIT_USAGE;
	status = run_command(&options);
	if (is_answered(&options))
		return status;
	fprintf(stderr, "nccl-bpftrace: standard output cannot be written to: give it a file, pipe "
			"or terminal that takes all\n");
	return status ?: EXIT_USAGE;
}
