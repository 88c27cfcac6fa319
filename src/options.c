/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "config_file.h"
#include "options_private.h"

static const struct option_row *find_option(const char *name, size_t len, char letter)
{
	for (unsigned int i = 0; i < n_option_rows; i++) {
		const struct option_row *row = &option_rows[i];

		if (letter ? row->letter == letter
			   : strlen(row->name) == len && !memcmp(row->name, name, len))
			return row;
	}
	return NULL;
}

static int unknown_option(const struct options *options, const char *arg)
{
	fprintf(stderr, "nccl-bpftrace: unknown option '%s': see nccl-bpftrace %s --help\n", arg,
		command_rows[options->command].name);
	return -EINVAL;
}

/* One option of the command line; *at moves past a value that stands alone. */
static int parse_option(struct options *options, char **argv, int *at)
{
	const char *arg = argv[*at], *value = NULL;
	bool is_long = arg[1] == '-';
	const char *equals = is_long ? strchr(arg, '=') : NULL;
	size_t len = equals ? (size_t)(equals - arg - 2) : strlen(arg + 1 + is_long);
	const struct option_row *row =
		is_long || len == 1 ? find_option(arg + 2, len, is_long ? 0 : arg[1]) : NULL;

	if (!row)
		return unknown_option(options, arg);
	if (!(row->commands & 1U << options->command)) {
		fprintf(stderr, "nccl-bpftrace: %s takes no --%s: see nccl-bpftrace %s --help\n",
			command_rows[options->command].name, row->name,
			command_rows[options->command].name);
		return -EINVAL;
	}
	if (equals && !row->metavar) {
		fprintf(stderr, "nccl-bpftrace: --%s takes no value\n", row->name);
		return -EINVAL;
	}
	if (row->metavar)
		value = equals ? equals + 1 : argv[++*at];
	if (row->metavar && !value) {
		fprintf(stderr, "nccl-bpftrace: --%s needs a value: --%s %s\n", row->name,
			row->name, row->metavar);
		return -EINVAL;
	}
	if (!row->parse(options, value, row))
		return 0;
	fprintf(stderr, "nccl-bpftrace: %s\n", options->why);
	return -EINVAL;
}

static int parse_command(struct options *options, const char *name)
{
	for (int i = 0; i < COMMAND_MAX; i++) {
		if (strcmp(command_rows[i].name, name))
			continue;
		options->command = i;
		return 0;
	}
	fprintf(stderr, "nccl-bpftrace: unknown command '%s': see nccl-bpftrace --help\n", name);
	return -EINVAL;
}

static bool is_action(const char *actions, const char *word)
{
	size_t len = strchr(word, ' ') ? 0 : strlen(word);

	for (const char *at = len ? actions : NULL; at && (at = strstr(at, word)); at += len)
		if ((at == actions || at[-1] == ' ') && (!at[len] || at[len] == ' '))
			return len;
	return false;
}

static int parse_action(struct options *options, const char *word)
{
	const struct command_row *command = &command_rows[options->command];

	if (!is_action(command->actions, word) || (options->action && options->action != word)) {
		fprintf(stderr,
			"nccl-bpftrace: unexpected argument '%s': see nccl-bpftrace %s --help\n",
			word, command->name);
		return -EINVAL;
	}
	options->action = word;
	return 0;
}

/* What a command cannot do without. */
static int check_whole(const struct options *options, const struct command_row *command)
{
	if (command->actions && !options->action) {
		fprintf(stderr, "nccl-bpftrace: %s needs one of: %s\n", command->name,
			command->actions);
		return -EINVAL;
	}
	if (options->command == COMMAND_RECORD && !options->output) {
		fprintf(stderr, "nccl-bpftrace: record needs a file: -o FILE\n");
		return -EINVAL;
	}
	return 0;
}

static int parse_line(struct options *options, int argc, char **argv, int at)
{
	const struct command_row *command = &command_rows[options->command];

	for (; at < argc; at++) {
		bool is_option = argv[at][0] == '-' && argv[at][1];
		int err = is_option ? parse_option(options, argv, &at)
				    : parse_action(options, argv[at]);

		if (err)
			return err;
	}
	return options->help || options->version ? 0 : check_whole(options, command);
}

static int parse_setting(void *ctx, const char *key, const char *value, const char **ret_why)
{
	struct options *options = ctx;
	const struct option_row *row = find_option(key, strlen(key), 0);

	*ret_why = options->why;
	if (!row || !(row->commands & BIT(RUN)))
		return options__refuse(
			options, "'%s' is not an option of `run`: see nccl-bpftrace run --help",
			key);
	if (!strcmp(key, "config") || !strcmp(key, "help") || !strcmp(key, "version"))
		return options__refuse(options, "only the command line takes '%s'", key);
	return row->parse(options, value, row);
}

int options__parse(struct options *options, int argc, char **argv)
{
	int err, at = 1;

	*options = (struct options){
		.interval_s = 15,
		.max_series = 5000,
		.ring_bytes = PROBE_DEFAULT_RING_BYTES,
		.gpu_budget_ppm = NBP_DEFAULT_BUDGET_PPM,
		.handover_after_s = 10,
		.stuck_after_s = 60,
	};
	if (argc > 1 && argv[1][0] != '-' && (err = parse_command(options, argv[at++])))
		return err;
	if (options->command == COMMAND_DIAGNOSE)
		options->duration_s = options->stuck_after_s = 10;
	err = parse_line(options, argc, argv, at);
	if (err || !options->config || options->help)
		return err;
	/* The file first, the command line over it. */
	options->n_pids = 0;
	err = config_file__read(options->config, parse_setting, options);
	return err ?: parse_line(options, argc, argv, at);
}

static void help_commands(FILE *out)
{
	fprintf(out, "Usage: nccl-bpftrace [COMMAND] [OPTION]...\n"
		     "Traces every NCCL call on this node from outside the jobs.\n\nCommands:\n");
	for (int i = 0; i < COMMAND_MAX; i++)
		fprintf(out, "  %-8s %s\n", command_rows[i].name, command_rows[i].help);
	fprintf(out, "\nOptions of run (other commands: nccl-bpftrace COMMAND --help):\n");
}

static void help_option(FILE *out, const struct option_row *row)
{
	char left[40];

	snprintf(left, sizeof(left), "%s%c%s--%s%s%s", row->letter ? "-" : "  ", row->letter ?: ' ',
		 row->letter ? ", " : " ", row->name, row->metavar ? " " : "", row->metavar ?: "");
	fprintf(out, "  %-28s %s\n", left, row->help);
}

/* "enable disable" as "enable|disable" */
static void help_actions(FILE *out, const char *actions)
{
	fputc(' ', out);
	for (const char *c = actions; *c; c++)
		fputc(*c == ' ' ? '|' : *c, out);
}

static void help_usage(FILE *out, const struct command_row *command)
{
	fprintf(out, "Usage: nccl-bpftrace %s", command->name);
	if (command->actions)
		help_actions(out, command->actions);
	fprintf(out, " [OPTION]...\n%s\n\nOptions:\n", command->help);
}

void options__help(FILE *out, const struct options *options)
{
	const struct command_row *command = &command_rows[options->command];

	if (options->command == COMMAND_RUN)
		help_commands(out);
	else
		help_usage(out, command);
	for (unsigned int i = 0; i < n_option_rows; i++)
		if (option_rows[i].help && option_rows[i].commands & 1U << options->command)
			help_option(out, &option_rows[i]);
	fprintf(out,
		"\nExit status: %s, 2 usage, 3 this host cannot be traced (see nccl-bpftrace "
		"check).\n",
		command->statuses ?: "0 as asked");
}
