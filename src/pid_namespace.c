/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "pid_namespace.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOST_PID_NAMESPACE 0xEFFFFFFCU /* its inode: PROC_PID_INIT_INO, linux/proc_ns.h */

/* /proc may have been mounted in another namespace: then it has another number for us, or none. */
static bool proc_is_ours(void)
{
	char target[16];
	ssize_t n = readlink("/proc/self", target, sizeof(target) - 1);

	if (n < 0)
		return false;
	target[n] = 0;
	return strtol(target, NULL, 10) == getpid();
}

bool pid_namespace__is_host(void)
{
	struct stat st;

	return !stat("/proc/self/ns/pid", &st) && st.st_ino == HOST_PID_NAMESPACE && proc_is_ours();
}
