/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The keys: what a terminal sends for them, what they are for. Pure. */
#ifndef SCREEN_KEYS_H
#define SCREEN_KEYS_H

#include <stddef.h>

/* A key is its ASCII character, or one of these. */
enum screen_key {
	KEY_NONE_YET,	 /* the beginning of a sequence */
	KEY_REDRAW = 12, /* Ctrl-L */
	KEY_TABULATOR = 9,
	KEY_RETURN = 13,
	KEY_ESCAPE = 27,
	KEY_ERASE = 127,
	KEY_CURSOR_UP = 256,
	KEY_CURSOR_DOWN,
	KEY_PAGE_UP,
	KEY_PAGE_DOWN,
	KEY_TO_FIRST,
	KEY_TO_LAST,
	KEY_UNKNOWN, /* a sequence that is none of these */
};

/* A row of the help: README and man page have the same. */
struct screen_key_help {
	const char *keys, *text;
};
extern const struct screen_key_help screen_key_helps[];
extern const unsigned int screen_n_key_helps;

/* Bytes in, keys out. All zero at first. */
struct screen_decoder {
	char sequence[16];
	unsigned int len;
};

/* One byte more. How many keys it completes: 0, 1, or 2 when it shows that an Esc was a key. */
unsigned int screen_decoder__feed(struct screen_decoder *decoder, char byte, int keys[2]);

/* Nothing followed for a while: an Esc that begins no sequence was the key. KEY_NONE_YET: none. */
int screen_decoder__timeout(struct screen_decoder *decoder);

#endif
