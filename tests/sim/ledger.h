/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the ranks have called, in shared memory, so that it is right for killed ranks as well.
 * A call is entered just before it is made, as a probe at the function's entry sees it.
 */
#ifndef SIM_LEDGER_H
#define SIM_LEDGER_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "nccl_sim.h"
#include "script.h"

#define LEDGER_MAX_RECORDS 16384

/* Calls that went into a graph, which calls counts, too; executions of them by its launches. */
enum ledger_mode { LEDGER_CAPTURED, LEDGER_REPLAYED, LEDGER_MODES };

/* One communicator of one rank. */
struct ledger_record {
	uint64_t comm_hash;
	int name, rank, n_ranks, has_seq;
	uint64_t calls[OP_COUNT], bytes[OP_COUNT], unknown_type_calls[OP_COUNT];
	uint64_t mode[LEDGER_MODES][OP_COUNT];
	uint64_t seq[SIM_SEQ_COUNT];
};

struct ledger {
	uint32_t n_records;
	struct ledger_record record[LEDGER_MAX_RECORDS];
};

/* A new record, NULL when there is no room. Only the rank's first thread adds. */
struct ledger_record *ledger_add(struct ledger *ledger, int name, const struct nccl_sim_view *view);
void ledger_count(struct ledger_record *record, const struct instruction *operation);
void ledger_add_mode(struct ledger_record *record, const struct instruction *operation,
		     enum ledger_mode mode, uint64_t n);
/* Keeps the highest numbers seen: several threads may look at once. */
void ledger_sequence(struct ledger_record *record, const struct nccl_sim_view *view);
/* Lines sorted by communicator and operation. */
void ledger_print(const struct ledger *ledger, const struct script *script, pid_t pid, FILE *out);

#endif
