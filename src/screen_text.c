/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "screen_text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "util.h"

char *screen_text__sanitise(char *buf, size_t size, const char *text)
{
	size_t len = 0;

	for (const unsigned char *c = (const unsigned char *)text; *c && len + 1 < size; c++) {
		bool continues = (*c & 0xc0) == 0x80 && (const char *)c != text && c[-1] >= 0x80;

		if (!continues)
			buf[len++] = *c >= 0x20 && *c < 0x7f ? *c : '?';
	}
	buf[len] = 0;
	return buf;
}

char *screen_text__amount(char buf[SCREEN_TEXT_SIZE], double value)
{
	static const char *const units[] = {"", " k", " M", " G", " T", " P", " E"};
	unsigned int unit = 0, decimals;

	/* 999.5 would be printed as 1000 */
	while (value >= 999.5 && unit + 1 < ARRAY_SIZE(units)) {
		value /= 1000;
		unit++;
	}
	decimals = value < 9.995 && unit ? 2 : value < 99.95 ? 1 : 0;
	if (!unit && !(value >= 0.05))
		value = decimals = 0;
	snprintf(buf, SCREEN_TEXT_SIZE, "%.*f%s", decimals, value, units[unit]);
	return buf;
}

char *screen_text__bytes(char buf[SCREEN_TEXT_SIZE], double value)
{
	size_t len = strlen(screen_text__amount(buf, value));
	bool has_unit = buf[len - 1] > '9';

	snprintf(buf + len, SCREEN_TEXT_SIZE - len, "%s", has_unit ? "B" : " B");
	return buf;
}

char *screen_text__age(char buf[SCREEN_TEXT_SIZE], uint64_t age_ns)
{
	uint64_t seconds = age_ns / NSEC_PER_SEC;

	if (seconds < 10)
		snprintf(buf, SCREEN_TEXT_SIZE, "%" PRIu64 ".%us", seconds,
			 (unsigned int)(age_ns / (100 * NSEC_PER_MSEC) % 10));
	else if (seconds < 120)
		snprintf(buf, SCREEN_TEXT_SIZE, "%" PRIu64 "s", seconds);
	else if (seconds < 2 * 3600)
		snprintf(buf, SCREEN_TEXT_SIZE, "%" PRIu64 "m", seconds / 60);
	else if (seconds < 48 * 3600)
		snprintf(buf, SCREEN_TEXT_SIZE, "%" PRIu64 "h", seconds / 3600);
	else
		snprintf(buf, SCREEN_TEXT_SIZE, "%" PRIu64 "d", seconds / 86400);
	return buf;
}

char *screen_text__duration(char buf[SCREEN_TEXT_SIZE], uint64_t ns)
{
	static const char *const units[] = {"us", "ms", "s"};
	double value = ns / 1000.0;
	unsigned int unit = 0;

	while (value >= 999.5 && unit + 1 < ARRAY_SIZE(units)) {
		value /= 1000;
		unit++;
	}
	snprintf(buf, SCREEN_TEXT_SIZE, "%.*f%s", value < 99.95 ? 1 : 0, value, units[unit]);
	return buf;
}

char *screen_text__ranks(char *buf, size_t size, const int32_t *ranks, unsigned int n,
			 unsigned int n_all)
{
	size_t len = 0;

	buf[0] = 0;
	for (unsigned int i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && ranks[end] == ranks[end - 1] + 1;)
			end++;
		len += snprintf(buf + len, size - len, "%s%d", i ? "," : "", ranks[i]);
		if (len < size && end - i > 1)
			len += snprintf(buf + len, size - len, "%c%d", end - i > 2 ? '-' : ',',
					ranks[end - 1]);
		if (len >= size)
			return buf;
	}
	if (n_all > n)
		snprintf(buf + len, size - len, ",+%u", n_all - n);
	return buf;
}
