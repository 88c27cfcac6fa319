/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What sentences and figures are made of. */
#include <stdarg.h>
#include <stdio.h>

#include "verdict_private.h"

void text__add(struct text *text, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text->at, text->left, format, args);
	va_end(args);
	if (n < 0)
		return;
	if ((size_t)n >= text->left)
		n = text->left ? text->left - 1 : 0;
	text->at += n;
	text->left -= n;
}

/* "rank 3", "ranks 0-2, 5 and 40 more" */
void text__add_ranks(struct text *text, const struct verdict_named *named, const char *one,
		     const char *many)
{
	uint32_t n = named->n < VERDICT_MAX_NAMED ? named->n : VERDICT_MAX_NAMED, n_parts = 0;

	text__add(text, "%s ", named->n == 1 ? one : many);
	for (uint32_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && named->ranks[end] == named->ranks[end - 1] + 1; end++)
			;
		if (n_parts == 5) {
			text__add(text, " and %u more", named->n - i);
			return;
		}
		text__add(text, "%s%d", n_parts++ ? ", " : "", named->ranks[i]);
		if (end > i + 1)
			text__add(text, "%s%d", end > i + 2 ? "-" : ", ", named->ranks[end - 1]);
	}
	if (named->n > n)
		text__add(text, " and %u more", named->n - n);
}

void text__add_age(struct text *text, uint64_t age_ns)
{
	uint64_t s = age_ns / NSEC_PER_SEC;

	if (age_ns < 10 * NSEC_PER_SEC)
		text__add(text, "%.1f s", (double)age_ns / NSEC_PER_SEC);
	else if (s < 600)
		text__add(text, "%llu s", (unsigned long long)s);
	else if (s < 36000)
		text__add(text, "%llu min", (unsigned long long)s / 60);
	else
		text__add(text, "%llu h", (unsigned long long)s / 3600);
}

void text__add_call(struct text *text, enum nccl_operation operation, uint64_t sequence)
{
	if ((unsigned int)operation >= NCCL_OP_MAX)
		text__add(text, "an operation");
	else if (sequence == VERDICT_NO_SEQUENCE)
		text__add(text, "%s", nccl_operation__name(operation));
	else
		text__add(text, "%s %llu", nccl_operation__name(operation),
			  (unsigned long long)sequence);
}
