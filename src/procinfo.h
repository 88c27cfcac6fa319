/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What /proc says of one process, read in a helper (environ is the tenant's memory). */
#ifndef PROCINFO_H
#define PROCINFO_H

#include <stdbool.h>
#include <stdint.h>

#include "job.h"

/* POD: crosses the helper's socket. */
struct procinfo {
	char command[16]; /* the task name */
	int32_t ppid;
	uint32_t inspector_files; /* 1: NVIDIA's Inspector writes files for Prometheus in it */
	struct job_identity job;
};

struct procinfo_question {
	uint32_t pid;
	const char *host_root; /* see job_names__find() */
};

/*
 * A helper_work_fn: arg is a struct procinfo_question, the reply a struct procinfo; of a process in
 * a container a second one follows, with names: a disk on which they stand may be slow.
 */
int procinfo__work(void *arg, int reply_fd);

/* A reply is foreign input: true when every text ends inside its field. */
bool procinfo__valid(const struct procinfo *info);

/* Is the process in the cgroup, or below it? path as cgroup__resolve() makes it. */
bool procinfo__in_cgroup(uint32_t pid, const char *path);

#endif
