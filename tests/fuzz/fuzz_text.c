/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names that a job chose, on their way to a terminal. */
#include "../../src/sanitize.c"

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
	for (const unsigned char *s = (unsigned char *)out; *s; s++)
		if (is_control(s) || !utf8_length(s))
			if ((*s & 0xc0) != 0x80)
				abort();
	return 0;
}
