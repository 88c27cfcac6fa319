/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "sanitize.h"

#include <stdbool.h>
#include <string.h>

/* Bytes of the UTF-8 character at s, 0 when it is none (RFC 3629: no overlong form, no surrogate).
 */
static size_t utf8_length(const unsigned char *s)
{
	size_t n = s[0] < 0x80	 ? 1
		   : s[0] < 0xc2 ? 0
		   : s[0] < 0xe0 ? 2
		   : s[0] < 0xf0 ? 3
		   : s[0] < 0xf5 ? 4
				 : 0;

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

/* C0, DEL, and C1, which some terminals obey too. */
static bool is_control(const unsigned char *s)
{
	return s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && s[1] < 0xa0);
}

const char *sanitize__text(const char *text, char *buf, size_t size)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t out = 0;

	while (*s) {
		size_t n = utf8_length(s);
		bool bad = !n || is_control(s);

		if (out + (bad ? 1 : n) >= size)
			break;
		if (bad)
			buf[out++] = '?';
		else
			memcpy(buf + out, s, n);
		out += bad ? 0 : n;
		s += n ?: 1;
	}
	buf[out] = 0;
	return buf;
}
