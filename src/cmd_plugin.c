/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>

#include "commands.h"
#include "plugin_conf.h"
#include "sanitize.h"
#include "util.h"

struct plugin_command {
	const struct options *options;
	const char *conf;
	char plugin[PATH_MAX];
	bool is_installed;
	struct plugin_conf found;
};

static int say_error(const char *path, int err)
{
	bool denied = err == -EACCES || err == -EPERM || err == -EROFS;

	fprintf(stderr, "nccl-bpftrace: %s: %s: %s\n", path, strerror(-err),
		denied		? "run it with sudo, where this file can be written"
		: err == -EBUSY ? "it is mounted from elsewhere: change it there"
				: "give a configuration file of NCCL with --conf");
	return denied ? EXIT_CANNOT_TRACE : EXIT_USAGE;
}

static int plugin_command__find(struct plugin_command *c)
{
	int err = 0;

	if (!c->options->plugin)
		err = plugin_conf__find_plugin(c->plugin, sizeof(c->plugin));
	else if (!realpath(c->options->plugin, c->plugin))
		err = -errno;
	c->is_installed = !err;
	return err;
}

/* Every job of the node is going to load this file. */
static int plugin_command__check(const struct plugin_command *c)
{
	const char *unsafe = c->is_installed ? plugin_conf__unsafe(c->plugin) : NULL;

	if (!c->is_installed) {
		fprintf(stderr,
			"nccl-bpftrace: the plugin is not at %s: make install puts it there, or "
			"name it with --plugin\n",
			c->options->plugin ?: c->plugin);
		return EXIT_USAGE;
	}
	if (!unsafe)
		return EXIT_OK;
	fprintf(stderr,
		"nccl-bpftrace: %s: %s: install it where only root can write (make install)\n",
		c->plugin, unsafe);
	return EXIT_USAGE;
}

/* The text after the change. */
static int plugin_command__edit(const struct plugin_command *c, bool enable, const char *text,
				size_t len, char **ret, size_t *ret_len)
{
	int err;

	if (!enable)
		return plugin_conf__disable(text, len, ret, ret_len);
	err = plugin_conf__enable(text, len, c->plugin, c->options->chain, ret, ret_len);
	if (err == -EEXIST) {
		struct plugin_conf conf = plugin_conf__parse(text, len);
		char other[128];

		fprintf(stderr,
			"nccl-bpftrace: %s names another profiler plugin, "
			"NCCL_PROFILER_PLUGIN=%s: --chain keeps it behind ours, or take that line "
			"away\n",
			c->conf, sanitize__text(conf.other, other, sizeof(other)));
	}
	return err;
}

static int plugin_command__change(struct plugin_command *c, bool enable)
{
	_cleanup_free_ char *old = NULL, *new = NULL;
	size_t old_len, new_len;
	int err = plugin_conf__read(c->conf, &old, &old_len);

	if (err && err != -ENOENT)
		return say_error(c->conf, err);
	err = plugin_command__edit(c, enable, old, old_len, &new, &new_len);
	if (err == -EEXIST)
		return EXIT_USAGE;
	if (!err && (old_len != new_len || memcmp(old, new, new_len)))
		err = plugin_conf__write(c->conf, new, new_len);
	return err ? say_error(c->conf, err) : EXIT_OK;
}

static const char *state_name(enum plugin_conf_state state)
{
	static const char *const names[] = {
		[PLUGIN_CONF_NONE] = "disabled",
		[PLUGIN_CONF_OURS] = "enabled",
		[PLUGIN_CONF_OTHER] = "other",
	};

	return names[state];
}

static void print_json(const struct plugin_command *c)
{
	char value[PLUGIN_VALUE_MAX], chain[PLUGIN_VALUE_MAX];
	json_t *root =
		json_pack("{s:s, s:s, s:b, s:s, s:s, s:s, s:s}", "schema", "nccl-bpftrace/plugin/1",
			  "plugin", c->plugin, "installed", c->is_installed, "conf", c->conf,
			  "state", state_name(c->found.state), "value",
			  sanitize__text(c->found.plugin, value, sizeof(value)), "chain",
			  sanitize__text(c->found.chain, chain, sizeof(chain)));

	json_dumpf(root, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
	putchar('\n');
	json_decref(root);
}

static void print_text(const struct plugin_command *c)
{
	char value[PLUGIN_VALUE_MAX], chain[PLUGIN_VALUE_MAX];

	sanitize__text(c->found.plugin, value, sizeof(value));
	printf("plugin   %s%s\n", c->plugin,
	       c->is_installed ? "" : " (not there: make install puts it there)");
	if (c->found.state == PLUGIN_CONF_NONE)
		printf("state    disabled: %s names no profiler plugin\n", c->conf);
	else
		printf("state    %s: %s has NCCL_PROFILER_PLUGIN=%s\n", state_name(c->found.state),
		       c->conf, value);
	if (value[0] == '/' && access(c->found.plugin, R_OK))
		printf("         this file is not there: plugin enable puts it right\n");
	if (c->found.chain[0])
		printf("chain    %s gets every callback, too\n",
		       sanitize__text(c->found.chain, chain, sizeof(chain)));
	printf("note     processes that run keep what they have: nccl-bpftrace ps shows it\n"
	       "note     NCCL_PROFILER_PLUGIN in a job's environment, in its $NCCL_CONF_FILE or "
	       "~/.nccl.conf goes before this file\n"
	       "note     a container has an /etc/nccl.conf of its own\n");
}

int cmd_plugin(const struct options *options)
{
	struct plugin_command c = {.options = options, .conf = options->conf ?: PLUGIN_CONF_PATH};
	bool enable = !strcmp(options->action, "enable");
	int status = EXIT_OK, err;

	plugin_command__find(&c);
	if (enable)
		status = plugin_command__check(&c);
	if (!status && strcmp(options->action, "status"))
		status = plugin_command__change(&c, enable);
	if (status)
		return status;
	err = plugin_conf__status(c.conf, &c.found);
	if (err)
		return say_error(c.conf, err);
	if (options->json)
		print_json(&c);
	else
		print_text(&c);
	return EXIT_OK;
}
