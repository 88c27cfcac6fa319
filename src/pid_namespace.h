/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel tells of processes by their numbers on the host: only there are they those of /proc.
 */
#ifndef PID_NAMESPACE_H
#define PID_NAMESPACE_H

#include <stdbool.h>

/* Are this process, and /proc as it sees it, in the host's PID namespace? */
bool pid_namespace__is_host(void);

#define PID_NAMESPACE_MEND                                                                         \
	"run it in the host's PID namespace (hostPID: true, or docker run --pid=host)"

#endif
