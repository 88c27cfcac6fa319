/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where kernels of different ranks meet: the k-th kernel with collectives of a communicator on each
 * of its ranks, the m-th send from one rank to another with the m-th receive there.
 */
#ifndef SIM_RENDEZVOUS_H
#define SIM_RENDEZVOUS_H

#include "engine.h"

struct rendezvous;
struct meeting;

struct rank_speed {
	double slow, link; /* 1: as ever */
};

/* Those that one kernel takes part in. */
struct meeting_set {
	uint32_t n;
	struct meeting **meeting;
};

struct rendezvous *rendezvous_new(void); /* NULL: out of memory */
void rendezvous_free(struct rendezvous *rendezvous);

/* This rank's kernel stands ready from start_ns on. Ends the simulation when out of memory. */
void rendezvous_post(struct rendezvous *rendezvous, const struct gpu_command *command,
		    const struct gpu_op *ops, uint64_t start_ns, struct rank_speed speed,
		    struct meeting_set *ret_set);

/*
 * True with the end of the kernel when all whom it needs have come; the set is given back then.
 * Ranks that meet over different collectives never part: their kernels hang.
 */
bool rendezvous_end(struct rendezvous *rendezvous, struct meeting_set *set,
		    const struct gpu_command *command, const struct gpu_op *ops,
		    const struct gpu_model *model, uint64_t *ret_end_ns);

#endif
