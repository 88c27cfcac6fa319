/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Processes come and go. */
#include "tracer_private.h"

static void on_process_exit(void *ctx)
{
	struct process *process = ctx;

	tracer__process_ended(process->owner, process);
}

void tracer__process_ended(struct tracer *tracer, struct process *process)
{
	if (process->gone_ns)
		return;
	probe__consume(tracer->probe); /* its last records */
	process->gone_ns = now_ns();   /* its counters stay in the kernel until it expires */
	comms__process_gone(tracer->comms, process->tgid, process->gone_ns);
	tracer__foreign_gone(tracer, process);
	timings__process_gone(tracer->timings, process->tgid, process->gone_ns);
	handovers__process_gone(tracer->handovers, process->tgid, process->gone_ns);
	tracer__drop_calls(tracer, process);
	loop__remove(tracer->loop, process->exit);
	process->exit = NULL;
	if (!tracer->options.watch)
		return;
	tracer__need_tick(tracer);
}

struct process *tracer__add_process(struct tracer *tracer, uint32_t tgid)
{
	struct process *process = processes__find(tracer->processes, tgid);

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
	if (tracer->options.probe.only_listed)
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
