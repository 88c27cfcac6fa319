/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the pure parts of textfile.h: textfile_fill.c, textfile_timed.c. */
#ifndef TEXTFILE_PRIVATE_H
#define TEXTFILE_PRIVATE_H

#include "textfile.h"

#define SERIES_MAX_LABELS 12 /* of nccl_communicator_info */

/* Label values of one series; the first four are those of every series of a communicator. */
struct series {
	const char *labels[SERIES_MAX_LABELS];
	char rank[12], n_ranks[12], n_nodes[12], pid[12], gpu[12], version[16];
};

/* textfile_fill.c */
void series__of_comm(struct series *series, struct prom *prom, const struct textfile_source *source,
		     const struct textfile_comm *row);
void fill_timestamp(struct prom *prom, const struct textfile_source *source,
		    const struct textfile_comm *row, uint64_t time_ns);

/* textfile_timed.c: what is in flight, and the families of jobs' GPU times. */
const char *row__timing_name(const struct textfile_comm *row);
bool row__in_flight(const struct textfile_comm *row, uint32_t *ret_n, uint64_t *ret_start_ns);
void fill_in_flight(struct prom *prom, const struct textfile_source *source,
		    const struct textfile_comm *row);
void fill_oldest_in_flight(struct prom *prom, const struct textfile_source *source,
			   const struct textfile_comm *row);
/* textfile_verdict.c: what the judge finds. */
unsigned int row__n_verdicts(const struct textfile_comm *row);
void fill_verdicts(struct prom *prom, const struct textfile_source *source);
void textfile_comm__judge(struct textfile_comm *row, struct watch *watch);
/* The file is out: what it says of states is remembered. */
void source__remember_states(const struct textfile_source *source);

void source__admit_timed(struct textfile_source *source, struct prom *prom);
void fill_timed(struct prom *prom, const struct textfile_source *source);

#endif
