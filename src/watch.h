/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Feeds the judge (verdict.h) with what the tracer sees: calls of probes and of plugins, numbered;
 * GPU times and what is in flight; ends, aborts, asynchronous errors, losses.
 */
#ifndef WATCH_H
#define WATCH_H

#include <stdint.h>

#include "tracer.h"
#include "verdict.h"

struct watch;

/* Before tracer__start(). The tracer must outlive the watch. 0 or -errno. */
int watch__new(struct watch **ret, struct tracer *tracer, const struct verdict_options *options);
void watch__free(struct watch *watch);

/* Four times a second while something is traced, and before each publication: the verdicts are as
 * of now. Refreshes the tracer where that was not done for a second. */
void watch__settle(struct watch *watch, uint64_t now_ns);

struct verdicts *watch__verdicts(struct watch *watch);

/*
 * What went wrong on a rank since it is known: how often an ncclResult_t other than success and
 * progress has become its asynchronous result; WATCH_ABORTED: ncclCommAbort was called.
 * Communicators whose creation failed are not among them: that is not seen from outside.
 */
#define WATCH_ABORTED  NCCL_N_RESULTS
#define WATCH_N_ERRORS (NCCL_N_RESULTS + 1)
/* WATCH_N_ERRORS of them, valid until the next settle; NULL: no such rank is watched. */
const uint64_t *watch__errors(const struct watch *watch, const struct verdict_member *member);
const char *watch_error__name(int error);

/* Ranks, and calls of such, that found no place: nobody judges them. */
uint64_t watch__refused(const struct watch *watch);

#endif
