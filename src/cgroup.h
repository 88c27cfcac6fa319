/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names of cgroups: by directory, as people give them, and as /proc/PID/cgroup tells them. */
#ifndef CGROUP_H
#define CGROUP_H

/*
 * The cgroup of a directory of a mounted cgroup file system, or of a name that starts at the root
 * of one, as /proc/PID/cgroup has it, without a slash at the end. 0 with a string to be freed;
 * -ENOENT: there is no such cgroup; -ENOMEM.
 */
int cgroup__resolve(const char *path, char **ret);

#endif
