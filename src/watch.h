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
 * of now. */
void watch__settle(struct watch *watch, uint64_t now_ns);

struct verdicts *watch__verdicts(struct watch *watch);

#endif
