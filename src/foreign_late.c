/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether a time can be another operation's. The GPU writes its times of a channel into SLOTS
 * places in turn (src/device/common.h and src/include/comm.h of NCCL 2.27 and later), and NCCL's
 * progress thread reads them. Where that thread is slow, and each of its calls of a followed plugin
 * traps, the place may have been written anew. How far behind it is follows from the two clocks:
 * least, when it was on time.
 */
#include "foreign_private.h"

#define SLOTS	64
#define CREEP	10000 /* the two clocks drift by less than a part in that many */
#define ON_TIME 16    /* shortest operations in which few places are written */
#define FORGET	64    /* operations after which the shortest counts half as short, or so */

static uint64_t comm__behind_ns(struct foreign_comm *comm, uint64_t seen_ns, uint64_t gpu_ns)
{
	int64_t offset_ns = seen_ns - gpu_ns, behind_ns;

	if (!comm->seen_ns)
		comm->offset_ns = offset_ns;
	else if (seen_ns > comm->seen_ns)
		comm->offset_ns += (seen_ns - comm->seen_ns) / CREEP;
	comm->seen_ns = seen_ns;
	behind_ns = offset_ns - comm->offset_ns;
	if (behind_ns > 0)
		return behind_ns;
	comm->offset_ns = offset_ns;
	return 0;
}

bool foreign_comm__is_late(struct foreign_comm *comm, const struct foreign_task *task)
{
	uint64_t behind_ns = comm__behind_ns(comm, task->seen_ns, task->last_ns);
	uint64_t duration_ns = task->last_ns - task->first_ns;

	comm->shortest_ns += comm->shortest_ns / FORGET;
	if (!comm->shortest_ns || duration_ns < comm->shortest_ns)
		comm->shortest_ns = duration_ns;
	return comm->n_started - task->number >= SLOTS && behind_ns > ON_TIME * comm->shortest_ns;
}
