/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NCCL's configuration file, as far as it switches the cooperating plugin on for the whole node.
 *
 * How NCCL reads it (src/misc/param.cc, 2.12 to 2.30): each line NAME=VALUE goes to setenv()
 * without overwriting, so the job's environment comes first, then the user's file ($NCCL_CONF_FILE
 * from 2.23 on, else ~/.nccl.conf), then /etc/nccl.conf, and in each the first line of a name.
 * Nothing is trimmed. The plugin's own setting, NCCL_BPFTRACE_CHAIN, gets into the environment in
 * this way, too.
 *
 * So switching on puts lines at the file's beginning, and switching off takes these away: what else
 * stands there, even another's NCCL_PROFILER_PLUGIN, stays as it is, byte for byte.
 */
#ifndef PLUGIN_CONF_H
#define PLUGIN_CONF_H

#include <stdbool.h>
#include <stddef.h>

#define PLUGIN_CONF_PATH "/etc/nccl.conf"
#define PLUGIN_FILE_NAME "libnccl-profiler-bpftrace.so"
#define PLUGIN_VALUE_MAX 1024	       /* NCCL cuts values to 1023 bytes */
#define PLUGIN_CONF_MAX	 (1024 * 1024) /* a longer file is not touched */

enum plugin_conf_state {
	PLUGIN_CONF_NONE, /* no profiler plugin named */
	PLUGIN_CONF_OURS,
	PLUGIN_CONF_OTHER, /* somebody else's is what NCCL takes */
};

struct plugin_conf {
	enum plugin_conf_state state;
	char plugin[PLUGIN_VALUE_MAX]; /* NCCL_PROFILER_PLUGIN that holds, "" when NONE */
	char chain[PLUGIN_VALUE_MAX];  /* NCCL_BPFTRACE_CHAIN that holds, "" when there is none */
	char other[PLUGIN_VALUE_MAX];  /* the first NCCL_PROFILER_PLUGIN not ours, "": none */
};

/* The pure part. */

struct plugin_conf plugin_conf__parse(const char *text, size_t len);

/*
 * The text that switches on the plugin at path (absolute), in place of what is ours in it. With
 * chain another's plugin is handed everything; without, one that is named there is refused.
 * 0, and memory to be freed in ret (NUL-terminated); -EEXIST: another's, and no chain; -ENOMEM;
 * -EINVAL: path is not absolute, too long or holds a line break.
 */
int plugin_conf__enable(const char *text, size_t len, const char *path, bool chain, char **ret,
			size_t *ret_len);

/* The text without our lines. 0 or -ENOMEM. */
int plugin_conf__disable(const char *text, size_t len, char **ret, size_t *ret_len);

/* What NCCL opens for a value of NCCL_PROFILER_PLUGIN, for dlopen(); "" for "none". Returns buf. */
const char *plugin_conf__library(const char *value, char *buf, size_t size);

/* The file's part, in plugin_file.c. */

/*
 * Reads the file. 0, and memory to be freed; -ENOENT and an empty text when there is none; -EFBIG,
 * -errno.
 */
int plugin_conf__read(const char *path, char **ret, size_t *ret_len);

/*
 * Replaces the file's content, whole or not at all; mode, owner and extended attributes (SELinux,
 * ACLs) are kept. An empty text removes the file, a new one is 0644. A symbolic link is followed.
 * 0 or -errno.
 */
int plugin_conf__write(const char *path, const char *text, size_t len);

/* What the file says; of one that is not there, nothing. 0 or -errno. */
int plugin_conf__status(const char *path, struct plugin_conf *ret);

/*
 * Where the plugin of this program lies: beside it (a build), else in ../lib/nccl-bpftrace/ (as
 * make install puts it). 0, -ENOENT (ret then holds the latter place all the same), or -errno.
 */
int plugin_conf__find_plugin(char *ret, size_t size);

/*
 * Why a plugin file must not be given to every job of the node: others than its owner and root may
 * change what they all run. NULL: it may.
 */
const char *plugin_conf__unsafe(const char *path);

#endif
