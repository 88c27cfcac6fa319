/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the fields of struct job_identity may hold: span_valid_fn for job*.c. */
#ifndef JOB_PRIVATE_H
#define JOB_PRIVATE_H

#include "job.h"
#include "span.h"

bool job_field__slurm_id(struct span s);
bool job_field__step(struct span s);
bool job_field__namespace(struct span s);
bool job_field__pod(struct span s);
bool job_field__container(struct span s);
bool job_field__pod_uid(struct span s);
bool job_field__container_id(struct span s);

#endif
