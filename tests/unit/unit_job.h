/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the tests of job*.c share. */
#ifndef UNIT_JOB_H
#define UNIT_JOB_H

#include <errno.h>
#include <stdlib.h>

#include "unit.h"

#include "job.h"

#define UID_DASHES "6b8e2f4c-1d3a-4c5b-9e7f-0a1b2c3d4e5f"
#define UID_SLICE  "6b8e2f4c_1d3a_4c5b_9e7f_0a1b2c3d4e5f"
#define STATIC_UID "3d1f8a6b2c9e4f70b5a8d7c6e1f20394"
#define ID	   "8f0c2d1e9b7a6354f0e1d2c3b4a5968778695a4b3c2d1e0f9a8b7c6d5e4f3021"
#define OTHER_ID   "1111111111111111111111111111111111111111111111111111111111111111"

/* From a heap copy of just the right size, so that reading past the end is seen. */
static int parse(int (*fn)(const char *, size_t, struct job_identity *), const char *text,
		 size_t len, struct job_identity *ret)
{
	char *copy = malloc(len ? len : 1);
	int err;

	memcpy(copy, text, len);
	err = fn(copy, len, ret);
	free(copy);
	return err;
}

#endif
