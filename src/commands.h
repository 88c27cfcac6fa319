/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One function per command; each returns the exit status and prints what there is to print. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include <sys/capability.h>

#include "options.h"

struct tracer;

/* Where Debian's prometheus-node-exporter looks for textfiles. */
#define DEFAULT_TEXTFILE_DIR "/var/lib/prometheus/node-exporter"

int cmd_run(const struct options *options);
int cmd_ps(const struct options *options);
int cmd_diagnose(const struct options *options);
int cmd_check(const struct options *options);
int cmd_record(const struct options *options);
int cmd_plugin(const struct options *options);

/* What run and ps have in common: the tracer's options, and one line when it cannot start. */
struct tracer_options command__tracer_options(const struct options *options);
int command__cannot_trace(int err, const char *why);
void command__raise_limits(void);

/*
 * 0; or -errno, and ret_why in words, where the processes that run could not be looked at: that
 * none is known says nothing.
 */
int command__looked(const struct tracer *tracer, const char **ret_why);
/* One line of that on stderr, for who goes on: jobs are found later. */
void command__tell_of_look(const struct tracer *tracer);

/* Why nothing, or not all, is known of an NCCL process's communicators; NULL: all is. */
const char *command__not_known(const struct process *process);
/* "on this node", or among those that the options name. */
const char *command__where(const struct options *options);

/* One line on stderr for each profiler plugin that is followed, or not, and why; and for each
 * process whose NCCL is not to use its kernel timer. */
void command__tell_of_plugins(struct tracer *tracer);

/* In the effective set. */
bool command__has_capability(cap_t caps, cap_value_t capability);

/* One line on stderr for each kind of options that ask for more than this privilege can do. */
void command__tell_of_privilege(const struct options *options);

/* Ends the loop on SIGINT, SIGTERM and SIGHUP. 0 or -errno. */
int command__stop_on_signals(struct loop *loop);

#endif
