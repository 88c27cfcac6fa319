/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "json_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

static bool json_text__grow(struct json_text *json, size_t more)
{
	size_t size = json->size ?: 4096;
	char *data;

	if (json->failed || more <= json->size - json->len)
		return !json->failed;
	while (size - json->len < more)
		size *= 2;
	data = realloc(json->data, size);
	json->failed = !data;
	if (!data)
		return false;
	json->data = data;
	json->size = size;
	return true;
}

static void json_text__put(struct json_text *json, const char *text, size_t len)
{
	if (!json_text__grow(json, len))
		return;
	memcpy(json->data + json->len, text, len);
	json->len += len;
}

static void json_text__putc(struct json_text *json, char c)
{
	json_text__put(json, &c, 1);
}

void json_text__free(struct json_text *json)
{
	free(json->data);
	*json = (struct json_text){};
}

void json_text__reset(struct json_text *json)
{
	json->len = 0;
	json->needs_comma = json->failed = false;
}

/* Keys come from the code: nothing in them is to be escaped. */
static void json_text__key(struct json_text *json, const char *key)
{
	size_t len = key ? strlen(key) : 0;
	char *at;

	if (!json_text__grow(json, len + 4))
		return;
	at = json->data + json->len;
	if (json->needs_comma)
		*at++ = ',';
	json->needs_comma = true;
	if (key) {
		*at++ = '"';
		memcpy(at, key, len);
		at += len;
		*at++ = '"';
		*at++ = ':';
	}
	json->len = at - json->data;
}

void json_text__open(struct json_text *json, const char *key, char bracket)
{
	json_text__key(json, key);
	json_text__putc(json, bracket);
	json->needs_comma = false;
}

void json_text__close(struct json_text *json, char bracket)
{
	json_text__putc(json, bracket);
	json->needs_comma = true;
}

void json_text__end_line(struct json_text *json)
{
	json_text__putc(json, '\n');
	json->needs_comma = false;
}

/* How many bytes can stand as they are. */
static size_t plain_length(const char *text)
{
	size_t n = 0;

	while ((unsigned char)text[n] >= 0x20 && (unsigned char)text[n] < 0x7f && text[n] != '"' &&
	       text[n] != '\\')
		n++;
	return n;
}

/* The character at text, which is not plain; how long it is. */
static size_t json_text__special(struct json_text *json, const char *text)
{
	uint32_t c = 0;
	size_t n = utf8__read((const unsigned char *)text, SIZE_MAX, &c);
	char escape[8] = {'\\', text[0]};

	if (!n) {
		json_text__put(json, REPLACEMENT, strlen(REPLACEMENT));
		return 1;
	}
	if (c == '"' || c == '\\')
		json_text__put(json, escape, 2);
	else if (utf8__is_control(c))
		json_text__put(json, escape, snprintf(escape, sizeof(escape), "\\u%04x", c));
	else
		json_text__put(json, text, n);
	return n;
}

void json_text__string(struct json_text *json, const char *key, const char *value)
{
	if (!value) {
		json_text__null(json, key);
		return;
	}
	json_text__key(json, key);
	json_text__putc(json, '"');
	while (*value) {
		size_t n = plain_length(value);

		json_text__put(json, value, n);
		value += n;
		if (*value)
			value += json_text__special(json, value);
	}
	json_text__putc(json, '"');
}

static void json_text__digits(struct json_text *json, uint64_t value)
{
	char digits[20], *end = digits + sizeof(digits), *at = end;

	do {
		*--at = '0' + value % 10;
		value /= 10;
	} while (value);
	json_text__put(json, at, end - at);
}

void json_text__u64(struct json_text *json, const char *key, uint64_t value)
{
	json_text__key(json, key);
	json_text__digits(json, value);
}

void json_text__i64(struct json_text *json, const char *key, int64_t value)
{
	json_text__key(json, key);
	if (value < 0)
		json_text__putc(json, '-');
	json_text__digits(json, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

void json_text__hex(struct json_text *json, const char *key, const char *prefix, uint64_t value,
		    int n_digits)
{
	char digits[16], *end = digits + sizeof(digits), *at = end;

	json_text__key(json, key);
	json_text__putc(json, '"');
	json_text__put(json, prefix, strlen(prefix));
	do {
		*--at = "0123456789abcdef"[value & 15];
		value >>= 4;
	} while (value || end - at < n_digits);
	json_text__put(json, at, end - at);
	json_text__putc(json, '"');
}

void json_text__fixed(struct json_text *json, const char *key, double value)
{
	char text[350]; /* DBL_MAX has 309 digits */

	if (!isfinite(value)) {
		json_text__null(json, key);
		return;
	}
	json_text__key(json, key);
	json_text__put(json, text, snprintf(text, sizeof(text), "%.6f", value));
}

void json_text__bool(struct json_text *json, const char *key, bool value)
{
	json_text__key(json, key);
	json_text__put(json, value ? "true" : "false", value ? 4 : 5);
}

void json_text__null(struct json_text *json, const char *key)
{
	json_text__key(json, key);
	json_text__put(json, "null", 4);
}
