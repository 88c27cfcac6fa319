/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds the job, GPU and scope of each launch that the tracer hands out, and sums it up there. */
#ifndef JOB_TIMING_H
#define JOB_TIMING_H

#include "timing_stats.h"
#include "tracer.h"
#include "verdict.h"

struct job_timing;

/* Listens to the tracer, which must end before this does. 0, -ENOMEM, or -ENOSPC. */
int job_timing__new(struct job_timing **ret, struct tracer *tracer);
void job_timing__free(struct job_timing *timing); /* NULL is fine */

/* Sums up how late ranks come, too: as the judge tells it. NULL is fine. */
void job_timing__watch(struct job_timing *timing, struct verdicts *verdicts);

/* Before each publication: see timing_stats__sweep(). */
void job_timing__sweep(struct job_timing *timing);

struct timing_stats *job_timing__stats(struct job_timing *timing);

#endif
