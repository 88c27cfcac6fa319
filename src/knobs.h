/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Writes the knobs of a process's plugin (struct nbp_control), in a helper. */
#ifndef KNOBS_H
#define KNOBS_H

#include <stdint.h>

struct knobs {
	uint32_t budget_ppm; /* share of wall time that GPU timing may cost */
	uint32_t wants;	     /* NBP_WANT_* */
};

#define KNOBS_DEFAULT ((struct knobs){.budget_ppm = NBP_DEFAULT_BUDGET_PPM})

struct knobs_request {
	uint32_t pid;
	struct knobs knobs;
	uint64_t control; /* address that the process told: its own word */
};

/* POD: crosses the helper's socket. */
struct knobs_reply {
	int32_t err;	  /* -EPROTO: no struct nbp_control lies there */
	uint32_t written; /* words that differed */
};

/* 0 or -errno, as in the reply. Touches the process's memory: not in the loop. */
int knobs__write(const struct knobs_request *request, uint32_t *ret_written);

/* A helper_work_fn: arg is a struct knobs_request, the reply a struct knobs_reply. */
int knobs__work(void *arg, int reply_fd);

#endif
