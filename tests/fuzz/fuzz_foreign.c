/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a tenant's plugin and NCCL may be called with: any events in any order make records of the
 * form that ours makes, a GPU time only where every channel has come, and nothing that stays
 * behind. Steps of 32 bytes; times, handles and contexts are few, so that events meet.
 */
#include "../../src/foreign.c"
#include "../../src/foreign_comm.c"
#include "../../src/foreign_decode.c"
#include "../../src/foreign_late.c"
#include "../../src/foreign_order.c"
#include "../../src/foreign_task.c"
#include "../../src/nccl_api.c"
#include "../../src/plugin/abi.c"
#include "../../src/plugin/abi_layout.c"

#include <stdlib.h>

struct step {
	uint8_t what, abi, channel, context, handle, parent, tid, lost;
	uint16_t time, later;
	uint32_t type;
	int32_t rank;
	uint8_t text[4], channels, sequence, n_ranks, pad;
	uint32_t timer;
};

_Static_assert(sizeof(struct step) == 32, "step");

static void on_told(void *ctx, uint32_t tgid, const struct nbp_record *record)
{
	(void)ctx;
	if (tgid != 1 || record->size != sizeof(*record) || !record->kind ||
	    record->kind >= NBP_KIND_MAX || !(record->comm_id & FOREIGN_COMM_ID))
		abort();
	if (record->kind == NBP_KIND_OPERATION &&
	    (record->operation.function >= NBP_FUNCTION_MAX || !record->operation.operation))
		abort();
	if (record->kind == NBP_KIND_TIMER &&
	    (!record->timer.operation || record->timer.n_expected == NBP_UNKNOWN ||
	     record->timer.n_channels > record->timer.n_expected))
		abort();
}

static void give(struct foreign *foreign, const struct step *s, uint64_t now_ns)
{
	static const char *const texts[] = {"AllReduce", "Send", "ncclFloat32", "RING", "LL", ""};
	struct nb_foreign_record r = {
		.kind = NB_KIND_FOREIGN,
		.tgid = 1,
		.time_ns = now_ns - s->time * 1000,
		.tid = s->tid % 4,
		.callback = s->what % (NB_FOREIGN_MAX + 1),
		.abi = s->abi % 9,
		.channel = s->channel,
		.type = 1U << s->type % 16,
		.rank = s->rank,
		.lost = s->lost / 64,
		.context = s->context % 4,
		.handle = s->handle % 8,
		.parent = s->parent % 8,
		.timer_ns = s->what % (NB_FOREIGN_MAX + 1) ? s->timer : now_ns - s->later,
	};
	bool is_long = r.callback == NB_FOREIGN_START || r.callback == NB_FOREIGN_INIT;

	r.size = is_long ? sizeof(r) : NB_FOREIGN_SHORT;
	memset(r.task.descriptor, s->sequence, sizeof(r.task.descriptor));
	r.task.descriptor[80] = r.task.descriptor[60] = s->channels % 4;
	for (int i = 0; i < 4; i++)
		strncpy(r.task.text[i], texts[s->text[i] % 6], NB_FOREIGN_TEXT);
	if (r.callback == NB_FOREIGN_INIT)
		r.init.n_ranks = s->n_ranks;
	foreign__record(foreign, &r);
}

static void call(struct foreign *foreign, const struct step *s, uint64_t now_ns)
{
	struct nb_record r = {
		.kind = NB_KIND_CALL,
		.tgid = 1,
		.time_ns = now_ns,
		.tid = s->tid % 4,
		.function = s->channel,
		.comm_hash = s->handle % 3,
		.rank = s->rank,
		.n_ranks = s->n_ranks,
	};

	foreign__call(foreign, &r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t now_ns = 100000 * NSEC_PER_SEC;
	struct foreign *foreign;

	if (foreign__new(&foreign, on_told, NULL))
		abort();
	foreign__add_process(foreign, 1, 22809, now_ns - 10 * NSEC_PER_SEC);
	for (; size >= sizeof(struct step);
	     data += sizeof(struct step), size -= sizeof(struct step)) {
		struct step s;

		memcpy(&s, data, sizeof(s));
		now_ns += s.later * 1000;
		if (s.pad == 1)
			foreign__settle(foreign, now_ns + s.timer * 1000ULL);
		else if (s.pad == 2)
			call(foreign, &s, now_ns);
		else
			give(foreign, &s, now_ns);
	}
	if (now_ns & 1)
		foreign__process_gone(foreign, 1);
	foreign__free(foreign);
	return 0;
}
