/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How much per second, from what the counters showed at two times. Pure. */
#ifndef RATES_H
#define RATES_H

#include <stdint.h>

#include "comm.h"

struct rate {
	double operations, bytes; /* per second; bytes as comm__bytes() counts, where it can */
	double records;		  /* per second; of all together only */
};

struct rates;

/* start_ns: when the counters were 0. 0 or -ENOMEM. */
int rates__new(struct rates **ret, uint64_t start_ns);
void rates__free(struct rates *rates);

/*
 * Takes in the communicators and the records received so far, as of now_ns (CLOCK_MONOTONIC):
 * rates are from now on those between the last two updates. 0, or -ENOMEM: some are missing.
 */
int rates__update(struct rates *rates, struct comms *comms, uint64_t received, uint64_t now_ns);

/* 0 for a communicator that came after the last update. */
struct rate rates__of(const struct rates *rates, const struct comm *comm);
struct rate rates__of_operation(const struct rates *rates, const struct comm *comm,
				enum nccl_operation operation);
struct rate rates__total(const struct rates *rates);

#endif
