/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records that were lost, and whose they were as far as that is known. */
#include "watch_private.h"

/* Of whom the record was is not known. */
static const int of_anybody[] = {NB_LOST_BAD_COOKIE, TRACER_LOST_BAD_RECORD, TRACER_LOST_HANDOVER};
/* Told by plugins: only where probes leave the process alone they tell of calls. */
static const int of_plugins[] = {NB_LOST_PLUGIN_RING_FULL, NB_LOST_BAD_BATCH};

bool watch__has_new_losses(const struct watch *w)
{
	return tracer__lost(w->tracer, NB_LOST_RING_FULL) > w->ring_told;
}

static bool watch__has_risen(struct watch *w, int reason)
{
	uint64_t lost = tracer__lost(w->tracer, reason), before = w->lost[reason];

	w->lost[reason] = lost;
	return lost > before;
}

static bool watch__any_risen(struct watch *w, const int *reasons, size_t n)
{
	bool risen = false;

	for (size_t i = 0; i < n; i++)
		risen |= watch__has_risen(w, reasons[i]);
	return risen;
}

/* The kernel counts with each communicator and function what found no place in the ring. */
static void watch__take_counted(struct watch *w, uint64_t now_ns)
{
	struct comm *comm;

	for (comm = comms__first(tracer__comms(w->tracer)); comm; comm = comm->hh.next) {
		uint64_t lost = 0;

		for (int i = 0; i < NCCL_OP_MAX; i++)
			lost += comm->operations[i].lost;
		if (lost <= comm->lost_told)
			continue;
		verdicts__lost(w->verdicts, comm->key.tgid, now_ns);
		w->ring_told += lost - comm->lost_told;
		comm->lost_told = lost;
	}
}

static void watch__take_plugin_losses(struct watch *w, uint64_t now_ns)
{
	struct process *p = processes__first(tracer__processes(w->tracer));

	for (; p; p = p->hh.next)
		if (tracer__is_handed_over(w->tracer, p->tgid))
			verdicts__lost(w->verdicts, p->tgid, now_ns);
}

/* Lost long before the counters were read, and in none of them: a creation, an end. */
static void watch__take_uncounted(struct watch *w, uint64_t now_ns)
{
	if (w->ring_full <= w->ring_told)
		return;
	verdicts__lost(w->verdicts, 0, now_ns);
	w->ring_told = w->ring_full;
}

void watch__take_losses(struct watch *w, uint64_t now_ns)
{
	uint64_t ring_full = tracer__lost(w->tracer, NB_LOST_RING_FULL);

	if (w->refreshed_ns != tracer__refreshed_ns(w->tracer)) {
		watch__take_counted(w, now_ns);
		watch__take_uncounted(w, now_ns);
	}
	w->refreshed_ns = tracer__refreshed_ns(w->tracer);
	w->ring_full = ring_full;
	if (watch__any_risen(w, of_anybody, ARRAY_SIZE(of_anybody)))
		verdicts__lost(w->verdicts, 0, now_ns);
	if (watch__any_risen(w, of_plugins, ARRAY_SIZE(of_plugins)))
		watch__take_plugin_losses(w, now_ns);
}
