/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * JSON written straight into a buffer, for lines that are made by the ten thousand a second: no
 * tree, no allocation but the buffer's growth. Who calls it sees to it that what is opened is
 * closed, and that a key is given inside objects and NULL inside arrays. Numbers are printed for
 * the "C" locale.
 *
 * When memory runs out the text is marked as failed until json_text__reset(): what has a hole is
 * never taken for whole.
 */
#ifndef JSON_TEXT_H
#define JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_text {
	char *data; /* not NUL-terminated */
	size_t len, size;
	bool needs_comma, failed;
};

void json_text__free(struct json_text *json); /* what is in it */
void json_text__reset(struct json_text *json);

void json_text__open(struct json_text *json, const char *key, char bracket); /* '{' or '[' */
void json_text__close(struct json_text *json, char bracket);		     /* '}' or ']' */
void json_text__end_line(struct json_text *json);

/* Any bytes: what is no UTF-8 becomes U+FFFD, control characters are escaped. NULL: null. */
void json_text__string(struct json_text *json, const char *key, const char *value);
void json_text__u64(struct json_text *json, const char *key, uint64_t value);
void json_text__i64(struct json_text *json, const char *key, int64_t value);
void json_text__hex(struct json_text *json, const char *key, const char *prefix, uint64_t value,
		    int digits); /* a string; digits: at least so many */
void json_text__fixed(struct json_text *json, const char *key, double value); /* six decimals */
void json_text__bool(struct json_text *json, const char *key, bool value);
void json_text__null(struct json_text *json, const char *key);

#endif
