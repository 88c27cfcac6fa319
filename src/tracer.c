/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tracer.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "pid_namespace.h"
#include "tracer_private.h"

#define TICK_NS	       (100 * NSEC_PER_MSEC) /* the ring's oldest record waits no longer */
#define DEADLINE_NS    (3 * NSEC_PER_SEC)    /* of a helper */
#define NEW_COMM_TRIES 10

static void on_record(void *ctx, const struct nb_record *record)
{
	struct tracer *tracer = ctx;
	struct process *process;

	if (tracer->foreign)
		foreign__call(tracer->foreign, record);
	handovers__probe_record(tracer->handovers, record);
	if (record->kind != NB_KIND_LIFECYCLE) {
		for (unsigned int i = 0; i < tracer->n_call_listeners; i++)
			tracer->call_listeners[i].fn(tracer->call_listeners[i].ctx, record);
		return;
	}
	comms__record(tracer->comms, record);
	process = processes__find(tracer->processes, record->tgid);
	if (!process || process->gone_ns) { /* one that forked maps nothing anew */
		tracer__meet(tracer, record->tgid);
		return;
	}
	process->has_called = true;
	tracer__scan_later(process, 50 * NSEC_PER_MSEC, NEW_COMM_TRIES);
	tracer__arrange_calls(tracer, now_ns());
}

static void on_ring(void *ctx)
{
	struct tracer *tracer = ctx;

	probe__consume(tracer->probe);
}

static bool anything_attached(struct tracer *tracer)
{
	for (struct library *l = libraries__first(tracer->libraries); l; l = l->hh.next)
		if (l->state == LIBRARY_TRACED || l->retry_ns)
			return true;
	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next)
		if (process__nccl(p) || process__plugin_mapping(p) || p->scan_due_ns || p->gone_ns)
			return true;
	return tracer->n_strangers > 0;
}

static void on_tick(void *ctx)
{
	struct tracer *tracer = ctx;
	uint64_t now;

	probe__consume(tracer->probe);
	tracer__serve_foreign(tracer, now_ns());
	now = now_ns();
	tracer__serve_plugins(tracer, now);
	tracer__serve_handovers(tracer, now);
	tracer__run_scans(tracer, now);
	tracer__detach_unused(tracer, now);
	tracer__retry_looks(tracer, now);
	tracer__check_settled(tracer);
	if (tracer->on_tick)
		tracer->on_tick(tracer->tick_ctx);
	if (!anything_attached(tracer)) {
		loop_source__set_timer(tracer->tick, 0, 0);
		tracer->tick_runs = false;
	}
}

void tracer__need_tick(struct tracer *tracer)
{
	if (tracer->tick_runs)
		return;
	tracer->tick_runs = true;
	loop_source__set_timer(tracer->tick, 1, TICK_NS);
}

static int tracer__open(struct tracer *tracer, const char **ret_why)
{
	int err;

	*ret_why = "processes have other numbers here: " PID_NAMESPACE_MEND;
	if (!pid_namespace__is_host())
		return -ENOTSUP;
	err = probe__new(&tracer->probe, &tracer->options.probe, ret_why);
	if (!err && tracer->options.attach)
		err = probe__may_attach(tracer->probe, ret_why);
	if (err)
		return err;
	*ret_why = "the kernel refused to tell of the ends of processes";
	if (tracer->options.attach)
		err = probe__watch_ends(tracer->probe);
	if (err)
		return err;
	*ret_why = "out of memory or file descriptors";
	err = helpers__new(&tracer->helpers, tracer->loop, DEADLINE_NS);
	err = err ?: libraries__new(&tracer->libraries);
	err = err ?: processes__new(&tracer->processes, tracer->loop);
	err = err ?: comms__new(&tracer->comms);
	err = err ?: handovers__new(&tracer->handovers, tracer->options.handover_after_ns);
	err = err ?: tracer__open_plugins(tracer);
	err = err ?: tracer__open_foreign(tracer);
	err = err ?: gpu_table__load(&tracer->gpus, tracer->options.gpu_root ?: GPU_PROC_ROOT);
	err = err ?: tracer__open_discover(tracer);
	err = err
		      ?: loop__add_fd(tracer->loop, probe__ring_fd(tracer->probe), on_ring, tracer,
				      &tracer->ring);
	return err ?: loop__add_timer(tracer->loop, 0, 0, on_tick, tracer, &tracer->tick);
}

int tracer__new(struct tracer **ret, struct loop *loop, const struct tracer_options *options,
		const char **ret_why)
{
	struct tracer *tracer = calloc(1, sizeof(*tracer));
	int err;

	if (!tracer)
		return -ENOMEM;
	tracer->options = *options;
	tracer->options.probe.only_listed |= options->n_pids || options->cgroup;
	tracer->loop = loop;
	err = tracer__open(tracer, ret_why);
	if (err) {
		tracer__free(tracer);
		return err;
	}
	probe__listen(tracer->probe,
		      &(struct probe_listener){
			      .call = on_record,
			      .plugin = tracer__take_plugin_record,
			      .foreign = tracer->foreign ? tracer__take_foreign_record : NULL,
			      .end = tracer__take_end,
			      .ctx = tracer,
		      });
	*ret = tracer;
	return 0;
}

/* Perf links take seconds to undo: that must not hold up our own end. */
static void tracer__release_links(struct tracer *tracer)
{
	for (struct library *l = libraries__first(tracer->libraries); l; l = l->hh.next) {
		int *links, n = library__take_links(l, &links);

		if (n)
			helpers__close_elsewhere(tracer->helpers, links, n);
		free(links);
	}
}

void tracer__free(struct tracer *tracer)
{
	if (!tracer)
		return;
	tracer->n_listeners = tracer->n_call_listeners =
		0; /* what is handed out last comes when half of this is gone */
	if (tracer->processes && tracer->helpers) {
		tracer__restore_knobs(tracer);
		tracer__release_foreign(tracer);
	}
	if (tracer->libraries && tracer->helpers && !probe__uses_multi(tracer->probe))
		tracer__release_links(tracer);
	if (tracer->processes && tracer->helpers)
		tracer__drop_all_calls(tracer);
	loop__remove(tracer->loop, tracer->ring);
	loop__remove(tracer->loop, tracer->tick);
	discover__free(tracer->discover);
	helpers__free(tracer->helpers);
	processes__free(tracer->processes);
	libraries__free(tracer->libraries);
	comms__free(tracer->comms);
	foreign__free(tracer->foreign);
	timings__free(tracer->timings);
	handovers__free(tracer->handovers);
	gpu_table__free(tracer->gpus);
	probe__free(tracer->probe);
	free(tracer);
}

int tracer__start(struct tracer *tracer, loop_fn *on_settled, void *ctx)
{
	int err = 0;

	tracer->on_settled = on_settled;
	tracer->settled_ctx = ctx;
	/* Watch first: what is mapped during the scan is told by one of the two. */
	if (tracer->options.watch)
		err = discover__watch(tracer->discover);
	err = err ?: discover__scan(tracer->discover, 0, false);
	tracer->started = true;
	tracer__need_tick(tracer);
	return err;
}

/* One that forked after the library was loaded maps nothing anew, so nothing told of it. */
static void tracer__find_caller(struct tracer *tracer, struct comm *comm)
{
	if (kill(comm->key.tgid, 0) && errno == ESRCH) {
		comms__process_gone(tracer->comms, comm->key.tgid, now_ns());
		return;
	}
	if (!comm->owner_asked)
		discover__scan(tracer->discover, comm->key.tgid, false);
	comm->owner_asked = true;
}

static void on_counter(void *ctx, const struct nb_key *key, const struct nb_counter *counter)
{
	struct tracer *tracer = ctx;
	struct comm *comm = comms__count(tracer->comms, key, counter);
	struct process *process = processes__find(tracer->processes, key->tgid);

	if (process && process->gone_ns && comm && comm->known_ns > process->gone_ns)
		process = NULL; /* of another, which has its number now */
	handovers__count(tracer->handovers, key, counter);
	if (process && !process->has_called) {
		process->has_called = true;
		if (process->is_fork_copy)
			tracer__scan_later(process, 0, 1);
	}
	if (process && process->gone_ns && comm && !comm->dead_ns) {
		comm->dead_ns = process->gone_ns;
		comm->ending = COMM_DIED;
	}
	if (!process && comm && !comm->dead_ns)
		tracer__find_caller(tracer, comm);
	if (process && comm && !comm->learnt && !comm->dead_ns && !process->scans_left &&
	    !process->gone_ns && !comm->scan_asked) {
		comm->scan_asked = true;
		tracer__scan_later(process, 0, 3);
	}
}

int tracer__refresh(struct tracer *tracer)
{
	int err;

	tracer->refreshed_ns = now_ns();
	err = probe__consume(tracer->probe);
	comms__begin(tracer->comms);
	handovers__begin(tracer->handovers);
	err = probe__read_counters(tracer->probe, on_counter, tracer) ?: err;
	handovers__end(tracer->handovers);
	handovers__each(tracer->handovers, tracer__take_unprobed, tracer);
	err = tracer__read_graphs(tracer) ?: err;
	if (!err)
		tracer__decide_handovers(tracer, tracer->refreshed_ns);
	return err;
}

uint64_t tracer__refreshed_ns(const struct tracer *tracer)
{
	return tracer->refreshed_ns;
}

/* Keys of what has expired, and what each process keeps. */
struct sweep {
	struct tracer *tracer;
	uint64_t before_ns;
	struct nb_key *keys;
	size_t n, room;
};

static void on_sweep_counter(void *ctx, const struct nb_key *key, const struct nb_counter *counter)
{
	struct sweep *sweep = ctx;
	struct comm *comm = comms__count(sweep->tracer->comms, key, counter);

	if (comm && !comm__expired(comm, sweep->before_ns))
		return;
	if (sweep->n == sweep->room) {
		size_t room = sweep->room ? sweep->room * 2 : 256;
		struct nb_key *keys = realloc(sweep->keys, room * sizeof(*keys));

		if (!keys)
			return; /* another time */
		sweep->keys = keys;
		sweep->room = room;
	}
	sweep->keys[sweep->n++] = *key;
}

static void tracer__drop_comms(struct tracer *tracer, uint64_t before_ns)
{
	struct sweep sweep = {.tracer = tracer, .before_ns = before_ns};

	comms__begin(tracer->comms);
	probe__read_counters(tracer->probe, on_sweep_counter, &sweep);
	for (size_t i = 0; i < sweep.n; i++)
		if (!probe__delete_counter(tracer->probe, &sweep.keys[i]))
			tracer__uncharge(tracer, sweep.keys[i].tgid);
	free(sweep.keys);
	comms__expire(tracer->comms, before_ns);
	handovers__each(tracer->handovers, tracer__take_unprobed, tracer);
	tracer__read_graphs(tracer);
}

void tracer__expire(struct tracer *tracer)
{
	uint64_t before_ns = tracer->refreshed_ns;

	/* Every counter has a communicator since the refresh: no need to read them all again. */
	if (comms__any_expired(tracer->comms, before_ns))
		tracer__drop_comms(tracer, before_ns);
	timings__expire(tracer->timings, before_ns);
	handovers__expire(tracer->handovers, before_ns);
	tracer__drop_processes(tracer, before_ns);
}

struct comms *tracer__comms(struct tracer *tracer)
{
	return tracer->comms;
}

struct processes *tracer__processes(struct tracer *tracer)
{
	return tracer->processes;
}

struct libraries *tracer__libraries(struct tracer *tracer)
{
	return tracer->libraries;
}

struct probe *tracer__probe(struct tracer *tracer)
{
	return tracer->probe;
}

struct timings *tracer__timings(struct tracer *tracer)
{
	return tracer->timings;
}

const struct gpu *tracer__gpu_of(struct tracer *tracer, const struct comm *comm)
{
	return comm->bus_id < 0 ? NULL : gpu_table__by_bus_id(tracer->gpus, comm->bus_id);
}

const struct gpu *tracer__gpu_by_uuid(struct tracer *tracer, const char *uuid)
{
	return gpu_table__by_uuid(tracer->gpus, uuid);
}

struct tracer_census tracer__census(struct tracer *tracer)
{
	struct tracer_census census = {};

	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next) {
		const struct library *library = process__nccl(p);

		if (p->gone_ns || !library || (p->is_fork_copy && !p->has_called))
			continue;
		if (library->state == LIBRARY_UNSUPPORTED)
			census.unsupported++;
		else
			census.traced++;
		census.plugin += process__plugin(p) != PLUGIN_ABSENT;
	}
	return census;
}

uint64_t tracer__lost(struct tracer *tracer, int reason)
{
	if (reason == TRACER_LOST_BAD_RECORD)
		return probe__bad_records(tracer->probe) + tracer->refused;
	if (reason == TRACER_LOST_HANDOVER)
		return handovers__uncertain(tracer->handovers);
	if (reason >= TRACER_LOST_FOREIGN)
		return tracer->foreign
			       ? foreign__lost(tracer->foreign, reason - TRACER_LOST_FOREIGN)
			       : 0;
	return probe__lost(tracer->probe, reason);
}

const char *tracer__lost_name(int reason)
{
	if (reason >= TRACER_LOST_FOREIGN)
		return foreign_loss__name(reason - TRACER_LOST_FOREIGN);
	switch (reason) {
	case TRACER_LOST_BAD_RECORD:
		return "bad_record";
	case TRACER_LOST_HANDOVER:
		return "handover";
	default:
		return nb_lost__name(reason);
	}
}
