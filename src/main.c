/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <bpf/libbpf.h>
#include <stdarg.h>
#include <sys/utsname.h>

#include "commands.h"
#include "util.h"
#include "version.h"

const struct command_row command_rows[COMMAND_MAX] = {
	[COMMAND_RUN] = {"run", "trace until a signal: live table or log lines, textfile (default)",
			 cmd_run},
	[COMMAND_PS] = {"ps", "list NCCL processes, their communicators and ranks, once", cmd_ps},
	[COMMAND_CHECK] = {"check", "say whether this host can be traced, and what to mend if not",
			   cmd_check},
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

int main(int argc, char **argv)
{
	struct options options;

	if (options__parse(&options, argc, argv))
		return EXIT_USAGE;
	if (options.help) {
		options__help(stdout, &options);
		return EXIT_OK;
	}
	if (options.version)
		return print_version();
	verbose = options.verbose;
	libbpf_set_print(print_libbpf);
	command__raise_limits();
	return command_rows[options.command].run(&options);
}
