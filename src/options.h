/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Commands and options: one table, from which parsing, --help, the configuration file and tests go.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "probe.h"
#include "tracer.h"

enum exit_status {
	EXIT_OK = 0,
	EXIT_ATTENTION = 1, /* diagnose: see verdict_state__exit_status() */
	EXIT_USAGE = 2,
	EXIT_CANNOT_TRACE = 3,
	EXIT_TROUBLE = 4,
};

enum command_id {
	COMMAND_RUN,
	COMMAND_PS,
	COMMAND_DIAGNOSE,
	COMMAND_CHECK,
	COMMAND_RECORD,
	COMMAND_PLUGIN,
	COMMAND_MAX
};

enum record_format { RECORD_JSONL, RECORD_INSPECTOR };

struct options {
	enum command_id command;
	const char *action;	  /* of a command that has some: one of its row's */
	const char *textfile_dir; /* NULL: the default, when it exists */
	const char *cgroup, *cluster, *config, *host_root;
	const char *conf, *plugin; /* NULL: NCCL's own file; this program's own plugin */
	const char *output;	   /* "-": standard output */
	enum record_format format;
	uint64_t interval_s, duration_s; /* duration 0: until a signal */
	uint64_t max_series, ring_bytes;
	uint64_t gpu_budget_ppm;   /* of wall time */
	uint64_t handover_after_s; /* 0: never */
	uint64_t stuck_after_s;
	uint32_t pids[TRACER_MAX_PIDS];
	unsigned int n_pids;
	bool kernel_timer, foreign_plugins, no_ui, fuse, json, chain, verbose, checksum, help,
		version;
	enum probe_method method;
	char why[512]; /* a value was refused */
};

struct option_row {
	const char *name;      /* long, without dashes; also the key in the configuration file */
	char letter;	       /* 0: none */
	const char *metavar;   /* NULL: a flag */
	unsigned int commands; /* bits of enum command_id */
	const char *help;      /* NULL: for tests, not shown */
	int (*parse)(struct options *options, const char *value, const struct option_row *row);
	uint64_t min, max;
	unsigned int offset; /* in struct options */
};

struct command_row {
	const char *name, *help;
	int (*run)(const struct options *options);
	const char *actions;  /* "one two": a word that it needs; NULL: none */
	const char *statuses; /* of its end, but 2 and 3; NULL: 0 alone */
};

extern const struct option_row option_rows[];
extern const unsigned int n_option_rows;
extern const struct command_row command_rows[COMMAND_MAX];

/*
 * Parses a command line, and the configuration file that it names. 0, or -EINVAL after one line on
 * stderr that names the thing and the mend. Strings point into argv or stay for the process's life.
 */
int options__parse(struct options *options, int argc, char **argv);
void options__help(FILE *out, const struct options *options);

#endif
