/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Small files of /proc. Those of a tenant's process may block: read them in a helper. */
#ifndef PROC_FILE_H
#define PROC_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Reads a file below /proc/PID whole, or its beginning, and ends it with a NUL; returns its length,
 * or -errno.
 */
ssize_t proc_file__read(uint32_t pid, const char *name, char *buf, size_t size);

#endif
