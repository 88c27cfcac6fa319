/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the plugin at the end of the chain has seen, exported by libchained.so. */
#ifndef CHAINED_H
#define CHAINED_H

#include <stdint.h>

struct chained {
	int mask;	      /* that init() is to ask for */
	uint64_t handles_for; /* types that get a handle */
	int *mask_given;
	int n_init, n_finalize, n_stop, n_record, n_wrong_context;
	int n_start[64];
	uint64_t hash;
	uint64_t last_stopped, last_recorded;
	int last_state;
	void *last_parent, *last_group_of_coll;
};

extern struct chained chained;

#endif
