/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A sentence that is put together piece by piece, and broken at spaces. */
#ifndef WRAPPED_H
#define WRAPPED_H

#include <stddef.h>
#include <stdio.h>

/* Begins as {}; what finds no room is left out. */
struct wrapped {
	char text[1600];
	size_t len;
};

void __attribute__((format(printf, 2, 3)))
wrapped__add(struct wrapped *wrapped, const char *format, ...);

/* In lines of so many columns, all but the first set in by two more; a word is never broken. */
void wrapped__print(FILE *out, const char *text, size_t indent, size_t columns);

#endif
