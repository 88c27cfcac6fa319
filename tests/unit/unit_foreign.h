/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* NCCL's calls of a foreign plugin, as the BPF side tells of them; and what foreign.c makes of it.
 */
#ifndef UNIT_FOREIGN_H
#define UNIT_FOREIGN_H

#include <stdlib.h>

#include "unit.h"
#include "../../src/foreign.c"
#include "../../src/foreign_comm.c"
#include "../../src/foreign_decode.c"
#include "../../src/foreign_late.c"
#include "../../src/foreign_order.c"
#include "../../src/foreign_task.c"
#include "../../src/nccl_api.c"
#include "../../src/plugin/abi.c"
#include "../../src/plugin/abi_layout.c"

#define TGID	  77
#define CONTEXT	  0xc0
#define HASH	  0xabcdef
#define MS	  1000000ULL
#define BEGIN_NS  (1000 * MS)
#define GPU_CLOCK 5000000000000ULL /* ahead of the host's */

static struct nbp_record *told;
static size_t n_told, told_room;

static void on_told(void *ctx, uint32_t tgid, const struct nbp_record *record)
{
	(void)ctx;
	CHECK_INT(tgid, TGID);
	CHECK_INT(record->size, sizeof(*record));
	CHECK(record->comm_id & FOREIGN_COMM_ID);
	if (n_told == told_room) {
		told_room = told_room ? told_room * 2 : 256;
		told = realloc(told, told_room * sizeof(*told));
	}
	told[n_told++] = *record;
}

static struct foreign *new_foreign(int32_t nccl_version)
{
	struct foreign *foreign = NULL;

	n_told = 0;
	CHECK_INT(foreign__new(&foreign, on_told, NULL), 0);
	CHECK_INT(foreign__add_process(foreign, TGID, nccl_version, BEGIN_NS - 10 * MS), 0);
	return foreign;
}

/* Those of a kind; the last one is copied. */
static int count_told(enum nbp_kind kind, struct nbp_record *ret)
{
	int n = 0;

	for (size_t i = 0; i < n_told; i++) {
		if (told[i].kind != kind)
			continue;
		n++;
		if (ret)
			*ret = told[i];
	}
	return n;
}

static struct nb_foreign_record of_plugin(enum nb_foreign_callback callback, int abi, uint32_t tid,
					  uint64_t time_ns)
{
	bool is_long = callback == NB_FOREIGN_START || callback == NB_FOREIGN_INIT;

	return (struct nb_foreign_record){
		.kind = NB_KIND_FOREIGN,
		.size = is_long ? sizeof(struct nb_foreign_record) : NB_FOREIGN_SHORT,
		.tgid = TGID,
		.tid = tid,
		.time_ns = time_ns,
		.callback = callback,
		.abi = abi,
		.rank = -1,
	};
}

static void put(struct nb_foreign_record *r, int at, const void *value, size_t size)
{
	if (at >= 0)
		memcpy(r->task.descriptor + at, value, size);
}

/* An AllReduce of floats. */
static struct nb_foreign_record a_task(int abi, uint32_t tid, uint64_t time_ns, uint64_t context,
				       uint64_t handle, int rank, uint64_t sequence,
				       uint8_t n_channels)
{
	struct nb_foreign_record r = of_plugin(NB_FOREIGN_START, abi, tid, time_ns);
	const struct abi_task *at = &abi_versions[abi].coll;
	uint64_t count = 1000 + sequence;
	uint8_t numbers[4] = {NBP_ALLREDUCE, 7, NBP_RING, NBP_SIMPLE};
	static const char text[4][16] = {"AllReduce", "ncclFloat32", "RING", "SIMPLE"};

	r.type = ABI_COLL;
	r.timer_ns = time_ns + 1;
	r.context = context;
	r.handle = handle;
	r.rank = rank;
	put(&r, at->sequence, &sequence, 8);
	put(&r, at->count, &count, 8);
	put(&r, at->channels, &n_channels, 1);
	if (abi == 1) {
		put(&r, at->function, &numbers[0], 1);
		put(&r, at->datatype, &numbers[1], 1);
		put(&r, at->algorithm, &numbers[2], 1);
		put(&r, at->protocol, &numbers[3], 1);
	}
	for (int i = 0; abi > 1 && i < 4; i++)
		memcpy(r.task.text[i], text[i], sizeof(text[i]));
	return r;
}

static struct nb_foreign_record a_channel(uint32_t tid, uint64_t time_ns, uint64_t context,
					  uint64_t handle, uint64_t parent, uint8_t channel,
					  uint64_t gpu_ns)
{
	struct nb_foreign_record r = of_plugin(NB_FOREIGN_CHANNEL, 5, tid, time_ns);

	r.context = context;
	r.type = ABI_KERNEL_CH;
	r.handle = handle;
	r.parent = parent;
	r.channel = channel;
	r.timer_ns = gpu_ns;
	return r;
}

static struct nb_foreign_record a_stop(uint32_t tid, uint64_t time_ns, uint64_t handle,
				       uint64_t gpu_ns)
{
	struct nb_foreign_record r = of_plugin(NB_FOREIGN_STATE, 5, tid, time_ns);

	r.handle = handle;
	r.timer_ns = gpu_ns;
	return r;
}

static struct nb_record a_call(uint32_t tid, uint64_t time_ns, uint64_t hash, int rank, int n_ranks)
{
	return (struct nb_record){
		.kind = NB_KIND_CALL,
		.size = sizeof(struct nb_record),
		.tgid = TGID,
		.tid = tid,
		.time_ns = time_ns,
		.function = NCCL_FN_AllReduce,
		.comm_hash = hash,
		.rank = rank,
		.n_ranks = n_ranks,
	};
}

static void give(struct foreign *foreign, struct nb_foreign_record record)
{
	foreign__record(foreign, &record);
}

#endif
