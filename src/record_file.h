/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The file of a recording: whole lines only. What is given is kept until there is much of it, or
 * record_file__flush(); when the disk is full, or the reader of a pipe is gone, what stands there
 * ends with the last line that was written whole.
 */
#ifndef RECORD_FILE_H
#define RECORD_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct record_file;

/*
 * Makes a new file, mode 0644 less the umask; "-": standard output. One that is there, a link too,
 * is never opened: root may be asked to record into a directory of anybody. 0 or -errno (-EEXIST,
 * ...).
 */
int record_file__new(struct record_file **ret, const char *path);

/* The lines of len bytes, the last one ended. 0, or -errno, the same one from then on. */
int record_file__write(struct record_file *file, const char *lines, size_t len);

/*
 * To the kernel; nothing is lost then if this program dies. To a pipe nobody reads it waits, until
 * a signal that is blocked is pending: -EINTR.
 */
int record_file__flush(struct record_file *file);

uint64_t record_file__bytes(const struct record_file *file); /* given, and not lost */

/*
 * Flushes and closes, takes NULL. A file in which not one line stands is removed, and so is one
 * that is not to be kept. 0 or -errno.
 */
int record_file__close(struct record_file *file, bool keep);

#endif
