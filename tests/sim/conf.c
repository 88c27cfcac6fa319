/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* NCCL's configuration files: lines NAME=VALUE that fill in what the environment lacks. */
#include "conf.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_SIZE 4096
#define WORD_SIZE 1024 /* NCCL cuts names and values here */

static void set_from_line(char *line)
{
	char *value = strchr(line, '=');

	line[strcspn(line, "\n")] = '\0';
	if (line[0] == '#' || !value)
		return;
	*value++ = '\0';
	if (strlen(line) >= WORD_SIZE)
		line[WORD_SIZE - 1] = '\0';
	if (strlen(value) >= WORD_SIZE)
		value[WORD_SIZE - 1] = '\0';
	setenv(line, value, 0);
}

static void read_file(const char *path)
{
	FILE *file = fopen(path, "re");
	char line[LINE_SIZE];

	if (!file)
		return;
	while (fgets(line, sizeof(line), file))
		set_from_line(line);
	fclose(file);
}

/* The user's file first, hence it wins over the node's. */
static void read_files(void)
{
	const char *file = getenv("NCCL_CONF_FILE"), *home = getenv("HOME");
	char path[WORD_SIZE];

	if (file && *file) {
		read_file(file);
	} else if (home && (size_t)snprintf(path, sizeof(path), "%s/.nccl.conf", home) <
				   sizeof(path)) {
		read_file(path);
	}
	read_file("/etc/nccl.conf");
}

const char *sim_env(const char *name)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_files);
	return getenv(name);
}
