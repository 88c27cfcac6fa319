/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "wrapped.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

void wrapped__add(struct wrapped *wrapped, const char *format, ...)
{
	size_t room = sizeof(wrapped->text) - wrapped->len;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(wrapped->text + wrapped->len, room, format, args);
	va_end(args);
	if (n > 0)
		wrapped->len += (size_t)n < room ? (size_t)n : room - 1;
}

/* Characters of UTF-8, not bytes. */
static size_t width_of(const char *text, size_t len)
{
	size_t width = 0;

	for (size_t i = 0; i < len; i++)
		width += (text[i] & 0xc0) != 0x80;
	return width;
}

void wrapped__print(FILE *out, const char *text, size_t indent, size_t columns)
{
	size_t column = 0;
	bool first = true;

	while (*(text += strspn(text, " "))) {
		size_t len = strcspn(text, " "), width = width_of(text, len);

		if (column && column + 1 + width > columns) {
			fputc('\n', out);
			column = 0;
			first = false;
		}
		if (column)
			column += fprintf(out, " ");
		else
			column = fprintf(out, "%*s", (int)(indent + (first ? 0 : 2)), "");
		fprintf(out, "%.*s", (int)len, text);
		column += width;
		text += len;
	}
	fputc('\n', out);
}
