/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "screen_keys.h"

#include <string.h>

#include "util.h"

const struct screen_key_help screen_key_helps[] = {
	{"Up Down k j", "one row up or down"},
	{"PgUp PgDn", "a page up or down"},
	{"Home End g G", "the first or the last row"},
	{"Enter", "opens the communicator: its ranks, operations, events"},
	{"Tab", "in it: keys and room go to the next of these three parts"},
	{"Esc Backspace", "back; takes the filter off"},
	{"s", "sorts by the next of trouble, name, rate, age"},
	{"r", "turns the order round"},
	{"/", "shows only those with this text in job, name, hash or state"},
	{"f Space", "freezes the picture, and lets it go; tracing goes on"},
	{"Ctrl-L", "draws the whole screen anew"},
	{"h ?", "this help"},
	{"q Ctrl-C", "ends the tracer (q in this help: back)"},
};
const unsigned int screen_n_key_helps = ARRAY_SIZE(screen_key_helps);

/*
 * What xterm, its kin, tmux, screen, the Linux console and VT100 send, in both of the modes that
 * cursor keys have. Terminals of other families have the letters.
 */
static const struct {
	const char *bytes; /* behind Esc */
	int key;
} sequences[] = {
	{"[A", KEY_CURSOR_UP},	 {"[B", KEY_CURSOR_DOWN}, {"OA", KEY_CURSOR_UP},
	{"OB", KEY_CURSOR_DOWN}, {"[5~", KEY_PAGE_UP},	  {"[6~", KEY_PAGE_DOWN},
	{"[H", KEY_TO_FIRST},	 {"[F", KEY_TO_LAST},	  {"OH", KEY_TO_FIRST},
	{"OF", KEY_TO_LAST},	 {"[1~", KEY_TO_FIRST},	  {"[4~", KEY_TO_LAST},
	{"[7~", KEY_TO_FIRST},	 {"[8~", KEY_TO_LAST},
};

static int sequence__key(const char *bytes)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(sequences); i++)
		if (!strcmp(sequences[i].bytes, bytes))
			return sequences[i].key;
	return KEY_UNKNOWN;
}

/* ECMA-48: CSI ends with a byte from 0x40 on; SS3 has one byte behind it. */
static bool is_complete(const struct screen_decoder *decoder)
{
	return decoder->len > 2 &&
	       (decoder->sequence[1] == 'O' || decoder->sequence[decoder->len - 1] >= 0x40);
}

static int plain_key(char byte)
{
	return byte == '\n' ? KEY_RETURN : byte == '\b' ? KEY_ERASE : (unsigned char)byte;
}

unsigned int screen_decoder__feed(struct screen_decoder *decoder, char byte, int keys[2])
{
	unsigned int n = 0;

	/* what follows an Esc but begins no sequence was typed after it, or with Alt held down */
	if (byte == KEY_ESCAPE || (decoder->len == 1 && byte != '[' && byte != 'O')) {
		keys[0] = screen_decoder__timeout(decoder);
		n = keys[0] != KEY_NONE_YET;
	}
	if (!decoder->len && byte != KEY_ESCAPE) {
		keys[n++] = plain_key(byte);
		return n;
	}
	if (decoder->len == sizeof(decoder->sequence) - 1)
		decoder->len--; /* none of ours is so long: only its end is of interest */
	decoder->sequence[decoder->len++] = byte;
	if (!is_complete(decoder))
		return n;
	decoder->sequence[decoder->len] = 0;
	decoder->len = 0;
	keys[n++] = sequence__key(decoder->sequence + 1);
	return n;
}

int screen_decoder__timeout(struct screen_decoder *decoder)
{
	int key = decoder->len == 1 ? KEY_ESCAPE : decoder->len ? KEY_UNKNOWN : KEY_NONE_YET;

	decoder->len = 0;
	return key;
}
