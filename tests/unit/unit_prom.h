/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the tests of prom.c and of prom_file.c share; included after both. */
#ifndef NCCL_BPFTRACE_TESTS_UNIT_PROM_H
#define NCCL_BPFTRACE_TESTS_UNIT_PROM_H

#define BIG_CAP 1000000

static const char *const comm_labels[] = {"7", "GPU-x", "00c0ffee00c0ffee", "0"};

static inline struct prom *prom_new(size_t max_series)
{
	struct prom *p = NULL;

	CHECK_INT(prom__new(&p, max_series), 0);
	return p;
}

static inline const char *text_of(const struct prom *p)
{
	const char *text = NULL;
	size_t len = 0;

	CHECK_INT(prom__text(p, &text, &len), 0);
	CHECK_INT(strlen(text), len);
	return text;
}

static inline size_t count_of(const char *text, const char *what)
{
	size_t n = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		n++;
	return n;
}

#endif
