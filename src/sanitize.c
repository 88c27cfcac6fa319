/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "sanitize.h"

#include <stdbool.h>
#include <string.h>

#include "utf8.h"

const char *sanitize__text(const char *text, char *buf, size_t size)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t out = 0;

	while (*s) {
		uint32_t c = 0;
		size_t n = utf8__read(s, SIZE_MAX, &c);
		bool bad = !n || utf8__is_control(c);

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
