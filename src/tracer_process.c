/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Processes come and go. */
#include "tracer_private.h"

static void on_process_exit(void *ctx)
{
	struct process *process = ctx;

	tracer__process_ended(process->owner, process, now_ns());
}

/* Its counters stay in the kernel until it expires. */
static void tracer__end_process(struct tracer *tracer, struct process *process, uint64_t at_ns)
{
	process->gone_ns = at_ns;
	comms__process_gone(tracer->comms, process->tgid, process->gone_ns);
	tracer__foreign_gone(tracer, process);
	timings__process_gone(tracer->timings, process->tgid, process->gone_ns);
	handovers__process_gone(tracer->handovers, process->tgid, process->gone_ns);
	tracer__drop_calls(tracer, process);
	loop__remove(tracer->loop, process->exit);
	process->exit = NULL;
	if (tracer->options.watch)
		tracer__need_tick(tracer);
}

void tracer__process_ended(struct tracer *tracer, struct process *process, uint64_t at_ns)
{
	if (!process->gone_ns)
		probe__consume(tracer->probe);
	if (!process->gone_ns)
		tracer__end_process(tracer, process, at_ns);
}

/*
 * In its place among the records: all before are of the process that has ended, all behind of the
 * one that has its number now. One whose place was lost is noticed by its pidfd, later.
 */
void tracer__take_end(void *ctx, const struct nb_end *end)
{
	struct tracer *tracer = ctx;
	struct process *process = processes__find(tracer->processes, end->tgid);

	if (process && !process->gone_ns) {
		tracer__end_process(tracer, process, end->time_ns);
		return;
	}
	/* One that was over before we knew it. */
	comms__process_gone(tracer->comms, end->tgid, end->time_ns);
	timings__process_gone(tracer->timings, end->tgid, end->time_ns);
	handovers__process_gone(tracer->handovers, end->tgid, end->time_ns);
}

/* Who was never known has nobody else to take it off the list. */
void tracer__uncharge(struct tracer *tracer, uint32_t tgid)
{
	if (!probe__uncharge_process(tracer->probe, tgid) &&
	    !processes__find(tracer->processes, tgid))
		probe__forget_process(tracer->probe, tgid);
}

struct process *tracer__add_process(struct tracer *tracer, uint32_t tgid)
{
	struct process *process = processes__find(tracer->processes, tgid);

	if (process && process__has_ended(process))
		tracer__process_ended(tracer, process, now_ns());
	if (process && !process->gone_ns)
		return process;
	/* Its number is in use again; its communicators expire by themselves. */
	if (process) {
		tracer__forget_graphs(tracer, process);
		processes__remove(tracer->processes, process);
	}
	process = processes__add(tracer->processes, tgid, now_ns(), on_process_exit);
	if (!process)
		return NULL;
	process->owner = tracer;
	probe__list_process(tracer->probe, tgid);
	tracer__ask_info(tracer, process);
	return process;
}

void tracer__drop_processes(struct tracer *tracer, uint64_t before_ns)
{
	struct process *process, *next;

	for (process = processes__first(tracer->processes); process; process = next) {
		next = process->hh.next;
		if (!process->gone_ns || process->gone_ns >= before_ns)
			continue;
		tracer__forget_graphs(tracer, process);
		probe__forget_process(tracer->probe, process->tgid);
		processes__remove(tracer->processes, process);
	}
}
