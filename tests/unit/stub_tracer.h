/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A tracer that only holds a picture: the sinks' tests put into it what they want to be shown.
 * Included after the code under test; comm.c is real.
 */
#ifndef NCCL_BPFTRACE_TESTS_UNIT_STUB_TRACER_H
#define NCCL_BPFTRACE_TESTS_UNIT_STUB_TRACER_H

#include "../../src/tracer.h"

#define STUB_MAX 16

struct tracer {
	struct comms *comms;
	struct process processes[STUB_MAX];
	unsigned int n_processes;
	struct gpu gpus[STUB_MAX]; /* by bus id */
	struct library library;
	struct tracer_census census;
	uint64_t lost[TRACER_LOST_MAX], received, unresolved;
	struct timings *timings; /* NULL: the test gives none */
	timing_launch_fn *on_launch;
	void *on_launch_ctx;
	tracer_call_fn *on_call;
	void *on_call_ctx;
	struct tracer_plugin_listener plugin;
	uint64_t refreshed_ns, refresh_at_ns; /* the next refresh is at that time */
	unsigned int n_refreshes;
	uint32_t handed_over;	  /* tgid */
	uint32_t asked[STUB_MAX]; /* tgids to be read again */
	unsigned int n_asked;
};

int tracer__on_call(struct tracer *tracer, tracer_call_fn *fn, void *ctx)
{
	tracer->on_call = fn;
	tracer->on_call_ctx = ctx;
	return 0;
}

void tracer__on_plugin(struct tracer *tracer, const struct tracer_plugin_listener *listener)
{
	tracer->plugin = *listener;
}

uint64_t tracer__refreshed_ns(const struct tracer *tracer)
{
	return tracer->refreshed_ns;
}

int tracer__refresh(struct tracer *tracer)
{
	tracer->refreshed_ns = tracer->refresh_at_ns;
	tracer->n_refreshes++;
	return 0;
}

bool tracer__is_handed_over(const struct tracer *tracer, uint32_t tgid)
{
	return tracer->handed_over == tgid;
}

bool tracer__read_again(struct tracer *tracer, uint32_t tgid)
{
	if (tracer->n_asked < STUB_MAX)
		tracer->asked[tracer->n_asked++] = tgid;
	return true;
}

struct timings *tracer__timings(struct tracer *tracer)
{
	return tracer->timings;
}

int tracer__on_launch(struct tracer *tracer, timing_launch_fn *fn, void *ctx)
{
	tracer->on_launch = fn;
	tracer->on_launch_ctx = ctx;
	return 0;
}

const struct gpu *tracer__gpu_by_uuid(struct tracer *tracer, const char *uuid)
{
	for (int i = 0; i < STUB_MAX; i++)
		if (!strcmp(tracer->gpus[i].uuid, uuid))
			return &tracer->gpus[i];
	return NULL;
}

struct comms *tracer__comms(struct tracer *tracer)
{
	return tracer->comms;
}

struct processes *tracer__processes(struct tracer *tracer)
{
	return (struct processes *)tracer;
}

struct probe *tracer__probe(struct tracer *tracer)
{
	return (struct probe *)tracer;
}

uint64_t probe__received(const struct probe *probe)
{
	return ((const struct tracer *)probe)->received;
}

struct process *processes__first(struct processes *processes)
{
	struct tracer *tracer = (struct tracer *)processes;

	return tracer->n_processes ? tracer->processes : NULL;
}

struct process *processes__find(struct processes *processes, uint32_t tgid)
{
	struct tracer *tracer = (struct tracer *)processes;

	for (unsigned int i = 0; i < tracer->n_processes; i++)
		if (tracer->processes[i].tgid == tgid)
			return &tracer->processes[i];
	return NULL;
}

struct library *process__nccl(const struct process *process)
{
	return process->n_mappings ? process->mappings[0].library : NULL;
}

enum plugin_state process__plugin(const struct process *process)
{
	return process->plugin_heard_ns ? PLUGIN_ACTIVE : PLUGIN_ABSENT;
}

const char *plugin_state__name(enum plugin_state state)
{
	return state == PLUGIN_ACTIVE ? "active" : "absent";
}

const struct gpu *tracer__gpu_of(struct tracer *tracer, const struct comm *comm)
{
	return comm->bus_id >= 0 && comm->bus_id < STUB_MAX ? &tracer->gpus[comm->bus_id] : NULL;
}

struct tracer_census tracer__census(struct tracer *tracer)
{
	return tracer->census;
}

uint64_t tracer__graphs_unresolved(struct tracer *tracer)
{
	return tracer->unresolved;
}

uint64_t tracer__lost(struct tracer *tracer, int reason)
{
	return tracer->lost[reason];
}

const char *tracer__lost_name(int reason)
{
	static const char *const names[TRACER_LOST_MAX] = {
		"ring_full",	      "counter_full",	"bad_cookie",	  "plugin_ring_full",
		"bad_batch",	      "graph_full",	"bad_record",	  "handover",
		"foreign_bad_record", "foreign_orphan", "foreign_no_room"};

	return names[reason];
}

static inline struct tracer *stub_new(void)
{
	struct tracer *tracer = calloc(1, sizeof(*tracer));

	comms__new(&tracer->comms);
	tracer->library.state = LIBRARY_TRACED;
	tracer->library.image.version = 22809;
	strcpy(tracer->library.name, "libnccl.so.2");
	for (int i = 0; i < STUB_MAX; i++) {
		tracer->gpus[i].index = i;
		snprintf(tracer->gpus[i].uuid, sizeof(tracer->gpus[i].uuid), "GPU-%04d", i);
	}
	return tracer;
}

static inline void stub_free(struct tracer *tracer)
{
	comms__free(tracer->comms);
	free(tracer);
}

static inline struct process *stub_process(struct tracer *tracer, uint32_t tgid,
					   const char *command)
{
	struct process *process = &tracer->processes[tracer->n_processes];

	process->tgid = tgid;
	process->n_mappings = 1;
	process->mappings[0].library = &tracer->library;
	process->has_info = true;
	strncpy(process->info.command, command, sizeof(process->info.command) - 1);
	if (tracer->n_processes++)
		process[-1].hh.next = process;
	return process;
}

/* Calls counted on a communicator; function is also what makes it, when it is new. */
static inline struct comm *stub_calls(struct tracer *tracer, uint32_t tgid, uint64_t hash,
				      int32_t rank, uint16_t function, uint64_t calls)
{
	const struct nb_key key = {
		.comm = 0x1000 + (hash & 0xffff),
		.comm_hash = hash,
		.tgid = tgid,
		.rank = rank,
		.function = function,
		.n_ranks = 8,
	};
	const struct nb_counter counter = {
		.launched = {.calls = calls, .type_bytes = calls * 1000},
		.first_ns = 1000000000,
		.last_ns = 5000000000,
		.sequence = 40,
		.pending = 2,
		.last_count = 250,
		.last_datatype = 7,
		.last_redop = 0,
		.last_root = -1,
	};

	return comms__count(tracer->comms, &key, &counter);
}

#endif
