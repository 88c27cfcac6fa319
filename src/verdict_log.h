/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One line when a communicator's trouble begins, turns into another, or is over:
 *
 * 2026-11-29T12:00:00Z verdict=stuck cause=missing_call comm=0123456789abcdef nranks=8 culprits=3
 *	waiting=0-2,4-7 operation=AllReduce sequence=61 for=12.3s why="..."
 *
 * (in one line). ASCII; every key is always there and in this order, "-" where there is nothing;
 * why stands last, without a quotation mark in it. healthy, idle and unknown are told only where
 * they end a trouble.
 */
#ifndef VERDICT_LOG_H
#define VERDICT_LOG_H

#include <stdint.h>
#include <stdio.h>

#include "verdict.h"

#define VERDICT_LOG_BURST 64 /* lines of one call; what is left is told by the next */

struct verdict_log;

/* The stream stays the caller's. 0 or -ENOMEM. */
int verdict_log__new(struct verdict_log **ret, FILE *out);
void verdict_log__free(struct verdict_log *log); /* NULL is fine */

/* Writes and flushes what has changed since the last call. now_ns: CLOCK_MONOTONIC. 0 or -errno. */
int verdict_log__write(struct verdict_log *log, struct verdicts *verdicts, uint64_t now_ns);

#endif
