/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names that a job chose, on their way to a terminal. */
#include "../../src/sanitize.c"
#include "../../src/utf8.c"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[300], out[64];

	size = size < sizeof(text) - 1 ? size : sizeof(text) - 1;
	memcpy(text, data, size);
	text[size] = 0;
	sanitize__text(text, out, sizeof(out));
	for (const unsigned char *s = (unsigned char *)out; *s;) {
		uint32_t c = 0;
		size_t n = utf8__read(s, SIZE_MAX, &c);

		if (!n || utf8__is_control(c))
			abort();
		s += n;
	}
	return 0;
}
