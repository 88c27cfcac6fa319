/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "config_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

static char *trim(char *text)
{
	size_t len;

	while (isspace((unsigned char)*text))
		text++;
	len = strlen(text);
	while (len && isspace((unsigned char)text[len - 1]))
		text[--len] = 0;
	return text;
}

static int complain(const char *path, unsigned int number, const char *key, const char *why)
{
	fprintf(stderr, "nccl-bpftrace: %s:%u: %s%s\n", path, number, key, why);
	return -EINVAL;
}

/* The value stays for the process's life: options point into it. */
static int read_setting(const char *path, unsigned int number, char *line,
			config_setting_fn *setting, void *ctx)
{
	const char *why = "";
	char *equals, *key, *value;

	line[strcspn(line, "#")] = 0;
	key = trim(line);
	if (!*key)
		return 0;
	equals = strchr(key, '=');
	if (!equals)
		return complain(path, number, key, " has no value: expected `option = value`");
	*equals = 0;
	value = strdup(trim(equals + 1));
	if (!value)
		return -ENOMEM;
	key = trim(key);
	return setting(ctx, key, value, &why) ? complain(path, number, "", why) : 0;
}

static int cannot_read(const char *path)
{
	fprintf(stderr, "nccl-bpftrace: --config %s: %s: give a file that can be read\n", path,
		strerror(errno));
	return -EINVAL;
}

int config_file__read(const char *path, config_setting_fn *setting, void *ctx)
{
	_cleanup_fclose_ FILE *file = fopen(path, "re");
	_cleanup_free_ char *line = NULL;
	unsigned int number = 0;
	size_t size = 0;

	if (!file)
		return cannot_read(path);
	while (getline(&line, &size, file) >= 0) {
		int err = read_setting(path, ++number, line, setting, ctx);

		if (err)
			return err;
	}
	return ferror(file) ? cannot_read(path) : 0;
}
