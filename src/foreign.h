/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A profiler plugin that is not ours, as the probes on its functions tell of it, turned into what
 * our plugin would have told: communicators, operations, and GPU times of NCCL's kernel timer.
 * Pure: no I/O, no clock, no BPF. Records are a process's own word: every field is checked, what
 * cannot be is counted.
 *
 * A plugin's handles and contexts are addresses that it uses again. A handle means the event that
 * was last started under it, a channel's only on the thread that started it. Records of several
 * threads are brought into the order of their time first. An operation that was open when a record
 * was lost gets no time: a handle could mean something else since.
 */
#ifndef FOREIGN_H
#define FOREIGN_H

#include <stdint.h>

#include "nccl_bpftrace_record.h"

struct foreign;

/* Records as the cooperating plugin makes them; with numbers of their own, see FOREIGN_COMM_ID. */
typedef void foreign_record_fn(void *ctx, uint32_t tgid, const struct nbp_record *record);

#define FOREIGN_COMM_ID (1ULL << 63) /* in every comm_id: never one of our plugin's */

/* 0 or -ENOMEM. */
int foreign__new(struct foreign **ret, foreign_record_fn *fn, void *ctx);
void foreign__free(struct foreign *foreign); /* tells no more */

/*
 * The plugin of this process is attached to, and NCCL of that version (nccl_image.version) calls
 * it. 0, -ENOSPC past NB_FOREIGN_PROCESSES, or -ENOMEM.
 */
int foreign__add_process(struct foreign *foreign, uint32_t tgid, int32_t nccl_version,
			 uint64_t now_ns);
void foreign__process_gone(struct foreign *foreign, uint32_t tgid);

/* Times: CLOCK_MONOTONIC. Of processes that were not added: nothing. */
void foreign__record(struct foreign *foreign, const struct nb_foreign_record *record);
/* A call of NCCL: its communicator tells whose the next event of that thread is. */
void foreign__call(struct foreign *foreign, const struct nb_record *call);

/* Takes what must be in order by now. Some ten times a second. */
void foreign__settle(struct foreign *foreign, uint64_t now_ns);

enum foreign_loss {
	FOREIGN_LOST_BAD_RECORD, /* fields that cannot be, or names that nobody knows */
	FOREIGN_LOST_ORPHAN,	 /* channels of an operation that is not known, or no more */
	FOREIGN_LOST_NO_ROOM,	 /* more than a process may have */
	FOREIGN_LOST_LATE,	 /* GPU times that NCCL may have read too late */
	FOREIGN_LOST_MAX,
};
uint64_t foreign__lost(const struct foreign *foreign, enum foreign_loss reason);
const char *foreign_loss__name(enum foreign_loss reason);

#endif
