/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "../../src/sanitize.c"
#include "../../src/utf8.c"

static const char *clean(const char *text, size_t size)
{
	static char buf[256];

	return sanitize__text(text, buf, size);
}

TEST(nothing_a_terminal_obeys_passes)
{
	CHECK_STR(clean("\033[2Jx\r\n\t\a\177", 256), "?[2Jx?????");
	CHECK_STR(clean("a\xc2\x9b" "31m", 256), "a?31m"); /* C1: a one-character CSI */
}

TEST(utf8_passes_and_what_is_not_becomes_a_question_mark)
{
	CHECK_STR(clean("grüße €😀", 256), "grüße €😀");
	CHECK_STR(clean("\xff\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80", 256), "??????????");
	CHECK_STR(clean("x\xe2\x82", 256), "x??");
}

TEST(a_cut_falls_between_characters)
{
	CHECK_STR(clean("abcdef", 4), "abc");
	CHECK_STR(clean("ab€", 5), "ab");
	CHECK_STR(clean("ab€", 6), "ab€");
	CHECK_STR(clean("x", 1), "");
}

UNIT_MAIN()
