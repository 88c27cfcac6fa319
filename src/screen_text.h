/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Values as people read them in a table. All return buf, which is always terminated. */
#ifndef SCREEN_TEXT_H
#define SCREEN_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define SCREEN_TEXT_SIZE 24

/* A job's text: what is not printable ASCII becomes "?", one for each character of UTF-8. */
char *screen_text__sanitise(char *buf, size_t size, const char *text);

/* Powers of 1000: "0", "12.3", "999", "1.23 k", "45.6 G"; at most 6 characters. */
char *screen_text__amount(char buf[SCREEN_TEXT_SIZE], double value);

/* The same of bytes: "0 B", "12.3 GB" */
char *screen_text__bytes(char buf[SCREEN_TEXT_SIZE], double value);

/* "0.1s", "59s", "5m", "3h", "12d" */
char *screen_text__age(char buf[SCREEN_TEXT_SIZE], uint64_t age_ns);

/* "0.0us", "12.3ms", "123s"; at most 6 characters up to 9999 s. */
char *screen_text__duration(char buf[SCREEN_TEXT_SIZE], uint64_t ns);

/* Ascending numbers: "3", "0-6,8", "0,2,4,+60" when there are n_all and only n are given. "": none.
 */
char *screen_text__ranks(char *buf, size_t size, const int32_t *ranks, unsigned int n,
			 unsigned int n_all);

#endif
