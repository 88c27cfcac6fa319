/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Characters in text that a job wrote. */
#ifndef UTF8_H
#define UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Reads the character at s, of which len bytes are there: its bytes, and what it is in ret. 0: no
 * UTF-8 (RFC 3629: shortest form only, no surrogate, nothing above U+10FFFF), or not whole. In a
 * string that ends with a NUL len may be SIZE_MAX: no byte past the NUL is read.
 */
size_t utf8__read(const unsigned char *s, size_t len, uint32_t *ret);

/* C0, DEL and C1: what a terminal obeys. */
static inline bool utf8__is_control(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

/* Line breaks of other scripts, and what turns the direction of the text around it. */
static inline bool utf8__is_layout(uint32_t c)
{
	return (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0x200e ||
	       c == 0x200f;
}

#endif
