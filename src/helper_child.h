/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the two sides of a helper: helper.c, the agent's, and helper_child.c, the child's. */
#ifndef HELPER_CHILD_H
#define HELPER_CHILD_H

#include "helper.h"

/* In front of every message: data for the caller, or the child's last word. */
struct envelope {
	int32_t is_status, status;
};

/*
 * Closes every descriptor but fds (at most HELPER_MAX_FDS, -1 is none) and fd, and takes /dev/null
 * for the standard ones: a child that cannot die must hold nothing of ours.
 */
void helper_child__hold_only(const int *fds, int n_fds, int fd);

/* What a forked child does with its life. */
void helper_child__run(const struct helper_job *job, void *arg, int sock) __attribute__((noreturn));

#endif
