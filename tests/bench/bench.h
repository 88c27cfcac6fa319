/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs of the bench share. They print lines `name value`, which bench.py reads. */
#ifndef BENCH_H
#define BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util.h"

#define BENCH_MAX_ROUNDS 64

/* Times of one thing, one a round; rounds of what is compared stand next to each other. */
struct rounds {
	double value[BENCH_MAX_ROUNDS];
	int n;
};

static inline void rounds__add(struct rounds *r, double value)
{
	if (r->n < BENCH_MAX_ROUNDS)
		r->value[r->n++] = value;
}

static inline int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static inline void rounds__print(struct rounds *r, const char *name)
{
	qsort(r->value, r->n, sizeof(r->value[0]), compare_doubles);
	if (r->n)
		printf("%s %.2f\n", name, r->value[r->n / 2]);
	else
		printf("%s none\n", name);
}

static inline void die(const char *what, int err)
{
	fprintf(stderr, "bench: %s: %s\n", what, err ? strerror(err < 0 ? -err : err) : "failed");
	exit(1);
}

#endif
