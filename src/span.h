/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pieces of somebody else's text: read within their bounds, copied whole or not at all. Pure. */
#ifndef SPAN_H
#define SPAN_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A piece of somebody else's buffer; not terminated. */
struct span {
	const char *p;
	size_t len;
};

/* Cuts the text before the first sep off *rest; the last piece ends with the text. */
static inline bool span__next(struct span *rest, char sep, struct span *ret_piece)
{
	const char *end;

	if (!rest->p)
		return false;
	*ret_piece = *rest;
	end = rest->len ? memchr(rest->p, sep, rest->len) : NULL;
	if (!end) {
		*rest = (struct span){NULL, 0};
		return true;
	}
	ret_piece->len = end - rest->p;
	rest->len -= ret_piece->len + 1;
	rest->p = end + 1;
	return true;
}

static inline bool span__skip(struct span *s, const char *prefix)
{
	size_t len = strlen(prefix);

	if (s->len < len || memcmp(s->p, prefix, len))
		return false;
	s->p += len;
	s->len -= len;
	return true;
}

/* Decimal as printf("%u") writes it: two spellings of one number would be two label values. */
static inline bool span__is_u32(struct span s)
{
	uint64_t value = 0;

	if (!s.len || s.len > 10 || (s.len > 1 && s.p[0] == '0'))
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(s.p[i] - '0');
	}
	return value <= UINT32_MAX;
}

static inline bool span__drop_end(struct span *s, const char *suffix)
{
	size_t len = strlen(suffix);

	if (s->len < len || memcmp(s->p + s->len - len, suffix, len))
		return false;
	s->len -= len;
	return true;
}

/* Of lower-case letters, digits and these alone, and not empty. */
static inline bool span__is_made_of(struct span s, const char *also)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = s.p[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && (!c || !strchr(also, c)))
			return false;
	}
	return s.len > 0;
}

static inline bool span__is_hex(struct span s, size_t len)
{
	for (size_t i = 0; i < s.len; i++)
		if (!(s.p[i] >= 'a' && s.p[i] <= 'f') && !(s.p[i] >= '0' && s.p[i] <= '9'))
			return false;
	return s.len == len;
}

typedef bool span_valid_fn(struct span s);

/* Copies whole or not at all: half an id is another job's id. */
static inline int span__copy(struct span s, span_valid_fn *valid, char *ret, size_t size)
{
	if (s.len >= size)
		return -ENAMETOOLONG;
	if (!valid(s))
		return -EINVAL;
	memcpy(ret, s.p, s.len);
	ret[s.len] = '\0';
	return 0;
}

#endif
