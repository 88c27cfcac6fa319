/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Text that a job chose, made fit for an admin's terminal. */
#ifndef SANITIZE_H
#define SANITIZE_H

#include <stddef.h>

/*
 * Copies text to buf (of size bytes, at least 1), cut at a character: control characters (an escape
 * sequence begins with one) and bytes that are not UTF-8 become '?'. Returns buf.
 */
const char *sanitize__text(const char *text, char *buf, size_t size);

#endif
