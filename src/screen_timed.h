/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * GPU times by communicator, operation and exact size, as means that forget: what is older than
 * some ten seconds hardly counts. Pure.
 */
#ifndef SCREEN_TIMED_H
#define SCREEN_TIMED_H

#include <stdint.h>

#include "timing.h"

#define SCREEN_MAX_SIZES   8	 /* of one operation of one communicator; the rest is in one more */
#define SCREEN_MAX_TIMED   16384 /* in all */
#define SCREEN_OTHER_SIZES ~0ULL

struct screen_timed_size {
	uint64_t bytes;	  /* of one operation, nccl-tests' size column; SCREEN_OTHER_SIZES */
	uint64_t n;	  /* timed since the start */
	uint64_t last_ns; /* CLOCK_MONOTONIC of the last one's launch; 0: not known */
	double mean_ns;	  /* of a launch */
	double bus_bytes; /* per second */
};

struct screen_timed;

/* 0 or -ENOMEM. */
int screen_timed__new(struct screen_timed **ret);
void screen_timed__free(struct screen_timed *timed); /* NULL is fine */

/* A launch as the tracer hands it out; what is not timed, or of several kinds, is passed over. */
void screen_timed__launch(struct screen_timed *timed, const struct timing_launch *launch);

/* Lets what is there count less, for so long a time. */
void screen_timed__fade(struct screen_timed *timed, uint64_t elapsed_ns);

/* Ascending by size, the others last; returns how many, at most SCREEN_MAX_SIZES + 1. */
unsigned int screen_timed__sizes(const struct screen_timed *timed, uint64_t hash,
				 enum nccl_operation operation,
				 struct screen_timed_size sizes[SCREEN_MAX_SIZES + 1]);

/* Forgets all communicators but those that were to be kept since the last sweep. */
void screen_timed__keep(struct screen_timed *timed, uint64_t hash);
void screen_timed__sweep(struct screen_timed *timed);

#endif
