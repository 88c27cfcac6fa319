/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "plugin_conf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PLUGIN_KEY "NCCL_PROFILER_PLUGIN"
#define CHAIN_KEY  "NCCL_BPFTRACE_CHAIN"

/* One line, its end included. */
struct line {
	const char *start, *value; /* value: NULL when it is not NAME=VALUE */
	size_t len, value_len;
};

static bool line__next(const char **text, const char *end, struct line *ret)
{
	const char *newline, *stop, *equals;

	if (*text == end)
		return false;
	newline = memchr(*text, '\n', end - *text);
	stop = newline ? newline : end;
	*ret = (struct line){.start = *text, .len = stop - *text + (newline != NULL)};
	*text += ret->len;
	if (stop > ret->start && stop[-1] == '\r')
		stop--;
	equals = memchr(ret->start, '=', stop - ret->start);
	if (equals && ret->start[0] != '#') {
		ret->value = equals + 1;
		ret->value_len = stop - ret->value;
	}
	return true;
}

static bool line__is(const struct line *line, const char *key)
{
	size_t len = strlen(key);

	return line->value && line->value == line->start + len + 1 &&
	       !memcmp(line->start, key, len);
}

/* By name or by path, whichever build of ours. */
static bool value__is_ours(const char *value, size_t len)
{
	static const char name[] = PLUGIN_FILE_NAME;
	size_t name_len = sizeof(name) - 1;

	if (len == strlen("bpftrace") && !memcmp(value, "bpftrace", len))
		return true;
	return len >= name_len && !memcmp(value + len - name_len, name, name_len) &&
	       (len == name_len || value[len - name_len - 1] == '/');
}

/* The first one holds, even an empty one: NCCL then looks for its default name. */
static void value__keep(char ret[PLUGIN_VALUE_MAX], bool *has, const struct line *line)
{
	size_t len = line->value_len < PLUGIN_VALUE_MAX ? line->value_len : PLUGIN_VALUE_MAX - 1;

	if (*has)
		return;
	*has = true;
	memcpy(ret, line->value, len);
	ret[len] = 0;
}

struct plugin_conf plugin_conf__parse(const char *text, size_t len)
{
	bool has_plugin = false, has_chain = false, has_other = false;
	const char *end = text + len;
	struct plugin_conf conf = {};
	struct line line;

	while (line__next(&text, end, &line)) {
		if (line__is(&line, CHAIN_KEY))
			value__keep(conf.chain, &has_chain, &line);
		if (!line__is(&line, PLUGIN_KEY))
			continue;
		value__keep(conf.plugin, &has_plugin, &line);
		if (line.value_len && !value__is_ours(line.value, line.value_len))
			value__keep(conf.other, &has_other, &line);
	}
	if (value__is_ours(conf.plugin, strlen(conf.plugin)))
		conf.state = PLUGIN_CONF_OURS;
	else if (has_plugin)
		conf.state = PLUGIN_CONF_OTHER;
	return conf;
}

/* Our lines: the plugin's, and with it what it is told to hand on to. */
static bool line__is_ours(const struct line *line)
{
	return line__is(line, CHAIN_KEY) ||
	       (line__is(line, PLUGIN_KEY) && value__is_ours(line->value, line->value_len));
}

static size_t copy_others(char *to, const char *text, size_t len)
{
	const char *end = text + len;
	struct line line;
	size_t n = 0;

	while (line__next(&text, end, &line)) {
		if (line__is_ours(&line))
			continue;
		memcpy(to + n, line.start, line.len);
		n += line.len;
	}
	to[n] = 0;
	return n;
}

const char *plugin_conf__library(const char *value, char *buf, size_t size)
{
	size_t len = strlen(value);
	bool is_file = strchr(value, '/') ||
		       (!strncmp(value, "lib", 3) && len > 3 && !strcmp(value + len - 3, ".so"));

	if (!strcasecmp(value, "none"))
		snprintf(buf, size, "%s", "");
	else
		snprintf(buf, size, is_file ? "%s" : "libnccl-profiler-%s.so", value);
	return buf;
}

int plugin_conf__enable(const char *text, size_t len, const char *path, bool chain, char **ret,
			size_t *ret_len)
{
	struct plugin_conf conf = plugin_conf__parse(text, len);
	char library[PLUGIN_VALUE_MAX + 32];
	size_t n = 0;
	char *new;

	if (path[0] != '/' || strlen(path) >= PLUGIN_VALUE_MAX || strpbrk(path, "\r\n"))
		return -EINVAL;
	if (conf.other[0] && !chain && !conf.chain[0])
		return -EEXIST;
	new = malloc(len + sizeof(library) + strlen(path) + 64);
	if (!new)
		return -ENOMEM;
	*ret = new;
	if (conf.state == PLUGIN_CONF_OURS && !strcmp(conf.plugin, path) &&
	    (!conf.other[0] || conf.chain[0])) {
		memcpy(new, text, len);
		new[ *ret_len = len] = 0;
		return 0;
	}
	n += sprintf(new, PLUGIN_KEY "=%s\n", path);
	/* What was chained stays so, when it is only our path that is new. */
	plugin_conf__library(conf.chain[0] ? conf.chain : conf.other, library, sizeof(library));
	if ((conf.other[0] || conf.chain[0]) && library[0])
		n += sprintf(new + n, CHAIN_KEY "=%s\n", library);
	*ret_len = n + copy_others(new + n, text, len);
	return 0;
}

int plugin_conf__disable(const char *text, size_t len, char **ret, size_t *ret_len)
{
	char *new = malloc(len + 1);

	if (!new)
		return -ENOMEM;
	*ret_len = copy_others(new, text, len);
	*ret = new;
	return 0;
}
