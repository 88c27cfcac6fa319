/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "foreign.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "foreign_private.h"
#include "util.h"

/* A start is told of at its thread's next event: what other threads tell meanwhile waits so long.
 */
#define HOLD_NS (300 * NSEC_PER_MSEC)

int foreign__new(struct foreign **ret, foreign_record_fn *fn, void *ctx)
{
	struct foreign *foreign = calloc(1, sizeof(*foreign));

	if (!foreign)
		return -ENOMEM;
	foreign->fn = fn;
	foreign->ctx = ctx;
	*ret = foreign;
	return 0;
}

static struct followed *foreign__find(struct foreign *foreign, uint32_t tgid)
{
	struct followed *f;

	HASH_FIND(hh, foreign->all, &tgid, sizeof(tgid), f);
	return f;
}

static void followed__take(struct followed *f, const struct event *event)
{
	if (event->is_call) {
		followed__call(f, &event->call);
		return;
	}
	if (event->record.lost != f->lost_seen) {
		f->lost_seen = event->record.lost;
		f->loss_ns = event->time_ns;
	}
	switch (event->record.callback) {
	case NB_FOREIGN_START:
		followed__start(f, &event->record);
		break;
	case NB_FOREIGN_CHANNEL:
		followed__channel(f, &event->record);
		break;
	case NB_FOREIGN_STATE:
		followed__channel_stop(f, &event->record);
		break;
	case NB_FOREIGN_INIT:
		followed__init(f, &event->record);
		break;
	case NB_FOREIGN_CONTEXT:
		followed__context(f, &event->record);
		break;
	case NB_FOREIGN_FINALIZE:
		followed__finalize(f, &event->record);
		break;
	}
}

static void followed__take_until(struct followed *f, uint64_t time_ns)
{
	const struct event *event;

	while ((event = order__first(&f->order)) && event->time_ns <= time_ns) {
		followed__take(f, event);
		order__drop_first(&f->order);
	}
}

static void followed__add(struct followed *f, const struct event *event)
{
	if (f->order.n == FOREIGN_MAX_EVENTS) { /* in order or not */
		followed__take(f, order__first(&f->order));
		order__drop_first(&f->order);
	}
	if (order__add(&f->order, event)) {
		f->lost++;
		followed__lose(f, FOREIGN_LOST_NO_ROOM);
	}
}

static void foreign__remove(struct foreign *foreign, struct followed *f)
{
	followed__take_until(f, UINT64_MAX);
	followed__close_tasks(f, NULL);
	followed__forget_comms(f);
	order__free(&f->order);
	HASH_DEL(foreign->all, f);
	free(f);
}

/* Whoever listened may be gone before us. */
static void tell_nobody(void *ctx, uint32_t tgid, const struct nbp_record *record)
{
	(void)ctx, (void)tgid, (void)record;
}

void foreign__free(struct foreign *foreign)
{
	if (!foreign)
		return;
	foreign->fn = tell_nobody;
	while (foreign->all)
		foreign__remove(foreign, foreign->all);
	free(foreign);
}

int foreign__add_process(struct foreign *foreign, uint32_t tgid, int32_t nccl_version,
			 uint64_t now_ns)
{
	struct followed *f = foreign__find(foreign, tgid);

	if (f) /* its number is in use again */
		foreign__remove(foreign, f);
	if (HASH_COUNT(foreign->all) == NB_FOREIGN_PROCESSES)
		return -ENOSPC;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->tgid = tgid;
	f->nccl_version = nccl_version;
	f->owner = foreign;
	f->since_ns = now_ns;
	f->loss_ns = now_ns; /* all before was lost on us */
	HASH_ADD(hh, foreign->all, tgid, sizeof(f->tgid), f);
	return 0;
}

void foreign__process_gone(struct foreign *foreign, uint32_t tgid)
{
	struct followed *f = foreign__find(foreign, tgid);

	if (f)
		foreign__remove(foreign, f);
}

static bool record__is_sound(const struct nb_foreign_record *record)
{
	bool is_long = record->callback == NB_FOREIGN_START || record->callback == NB_FOREIGN_INIT;

	if (!record->abi || record->abi > ABI_MAX_VERSION || record->callback >= NB_FOREIGN_MAX ||
	    record->size != (is_long ? sizeof(*record) : NB_FOREIGN_SHORT))
		return false;
	return record->callback != NB_FOREIGN_START || record->type == ABI_COLL ||
	       record->type == ABI_P2P || (record->type == ABI_CE_COLL && record->abi >= 6);
}

void foreign__record(struct foreign *foreign, const struct nb_foreign_record *record)
{
	struct followed *f = foreign__find(foreign, record->tgid);
	struct event event;

	if (!f)
		return;
	if (!record__is_sound(record)) {
		followed__lose(f, FOREIGN_LOST_BAD_RECORD);
		return;
	}
	f->abi = record->abi;
	event.time_ns = record->time_ns;
	event.is_call = false;
	memcpy(&event.record, record, record->size);
	event.record.lost += f->lost;
	followed__add(f, &event);
}

void foreign__call(struct foreign *foreign, const struct nb_record *call)
{
	struct followed *f = foreign__find(foreign, call->tgid);
	struct event event = {.time_ns = call->time_ns, .is_call = true};

	if (!f || call->kind != NB_KIND_CALL)
		return;
	event.call = *call;
	followed__add(f, &event);
}

void foreign__settle(struct foreign *foreign, uint64_t now_ns)
{
	struct followed *f, *next;

	HASH_ITER(hh, foreign->all, f, next)
	{
		followed__take_until(f, now_ns > HOLD_NS ? now_ns - HOLD_NS : 0);
		followed__settle_tasks(f, now_ns);
	}
}

uint64_t foreign__lost(const struct foreign *foreign, enum foreign_loss reason)
{
	return foreign->lost[reason];
}

const char *foreign_loss__name(enum foreign_loss reason)
{
	static const char *const names[FOREIGN_LOST_MAX] = {
		[FOREIGN_LOST_BAD_RECORD] = "foreign_bad_record",
		[FOREIGN_LOST_ORPHAN] = "foreign_orphan",
		[FOREIGN_LOST_NO_ROOM] = "foreign_no_room",
		[FOREIGN_LOST_LATE] = "foreign_late",
	};

	return reason < FOREIGN_LOST_MAX ? names[reason] : "unknown";
}
