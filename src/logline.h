/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One line an interval, for where there is no terminal:
 *
 * 2026-11-29T12:00:00Z processes=8 unsupported=0 communicators=24 operations/s=1234.5
 *	bytes/s=1200000000 records/s=1234.5 lost=0 oldest_call=3.2s
 *
 * (in one line). ASCII; every key is always there and in this order, new ones come at the end:
 *
 *	processes	NCCL processes that are traced
 *	unsupported	NCCL processes that cannot be
 *	communicators	ranks of communicators on this node that have not ended, as far as is known
 *	operations/s	calls of NCCL operations, by all of them, since the line before
 *	bytes/s		their bytes in the sense of nccl-tests' size column
 *	records/s	records received from the kernel
 *	lost		records lost since the start
 *	oldest_call	how long the communicator has been silent that is silent longest, of those
 *			that have called; "-": none has
 */
#ifndef LOGLINE_H
#define LOGLINE_H

#include <stdint.h>
#include <stdio.h>

#include "tracer.h"

struct logline;

/* The stream stays the caller's. Make it when the tracer starts: rates are since then. */
int logline__new(struct logline **ret, FILE *out);
void logline__free(struct logline *logline);

/* Writes and flushes the line for the picture of the last refresh. 0 or -errno. */
int logline__write(struct logline *logline, struct tracer *tracer, uint64_t now_ns);

#endif
