/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the parts of the tracer: tracer.c, tracer_find.c, tracer_read.c. */
#ifndef TRACER_PRIVATE_H
#define TRACER_PRIVATE_H

#include "discover.h"
#include "handover.h"
#include "helper.h"
#include "tracer.h"
#include "util.h"

#define TRACER_MAX_STRANGERS 64

/*
 * A process that is heard of before it is known: it forked, or was quicker than its discovery.
 */
struct stranger {
	uint32_t tgid;
	uint64_t control, heard_ns; /* of its plugin, as in struct process; 0: not heard */
};

/* Can a link be made for one process, while others go without? */
enum links {
	LINKS_UNTRIED,
	LINKS_ON_TRIAL,
	LINKS_FOR_ALL,
	LINKS_FOR_ONE,
};

struct tracer {
	struct tracer_options options;
	struct loop *loop;
	struct helpers *helpers;
	struct probe *probe;
	struct discover *discover;
	struct libraries *libraries;
	struct processes *processes;
	struct comms *comms;
	struct gpu_table *gpus;
	struct loop_source *ring, *tick;
	uint64_t refreshed_ns; /* when the last refresh began, CLOCK_MONOTONIC */
	bool tick_runs, started, settled;
	bool rescan; /* a file turned out to be NCCL: who maps it? */
	loop_fn *on_settled;
	void *settled_ctx;
	uint32_t cgroup_pid; /* the last process asked about, and the answer: good for one scan */
	uint64_t cgroup_scan;
	bool cgroup_in;
	struct timings *timings;
	struct foreign *foreign; /* NULL: such plugins are not followed */
	tracer_foreign_fn *on_foreign;
	void *foreign_ctx;
	tracer_process_fn *on_timer_refused;
	void *timer_ctx;
	struct launch_listener {
		timing_launch_fn *fn;
		void *ctx;
	} listeners[TRACER_MAX_LISTENERS];
	unsigned int n_listeners;
	struct call_listener {
		tracer_call_fn *fn;
		void *ctx;
	} call_listeners[TRACER_MAX_LISTENERS];
	unsigned int n_call_listeners;
	loop_fn *on_tick;
	void *tick_ctx;
	struct stranger strangers[TRACER_MAX_STRANGERS];
	unsigned int n_strangers;
	struct handovers *handovers;
	enum links scoped_links;
	bool is_arranged;	  /* links are not as where nobody is handed over */
	uint32_t last_link;	  /* number of the newest link, see NB_COOKIE() */
	uint64_t overlap_ns;	  /* since when a call may be seen by two links; 0: by one */
	uint64_t lost_read_ns;	  /* last reading of the counters for the hand-over alone */
	uint64_t unresolved_past; /* struct process.unresolved of those that are no more */
	uint64_t refused;	  /* records of plugins of more strangers than that */
};

/* tracer_find.c */
int tracer__open_discover(struct tracer *tracer);
void tracer__rescan_if_due(struct tracer *tracer);
void tracer__check_settled(struct tracer *tracer);
void tracer__retry_looks(struct tracer *tracer, uint64_t now);
void tracer__detach_unused(struct tracer *tracer, uint64_t now);
bool tracer__may_probe_library(const struct tracer *tracer, const struct library *library);

/* tracer_process.c */
/* The one of that number, a new one if need be; NULL: it has ended already, or no memory. */
struct process *tracer__add_process(struct tracer *tracer, uint32_t tgid);
/* What is in the ring by now is still taken for its own, unless that tells of its end itself. */
void tracer__process_ended(struct tracer *tracer, struct process *process, uint64_t at_ns);
void tracer__take_end(void *ctx, const struct nb_end *end);
/* One counter of it is no more. */
void tracer__uncharge(struct tracer *tracer, uint32_t tgid);
/* Those that ended before. */
void tracer__drop_processes(struct tracer *tracer, uint64_t before_ns);

/* tracer_read.c */
void tracer__ask_info(struct tracer *tracer, struct process *process);
void tracer__scan_later(struct process *process, uint64_t delay_ns, unsigned int tries);
void tracer__run_scans(struct tracer *tracer, uint64_t now);

/* tracer_plugin.c */
int tracer__open_plugins(struct tracer *tracer);
/* Its place among the strangers, a new one if need be; NULL: there are too many. */
struct stranger *tracer__meet(struct tracer *tracer, uint32_t tgid);
void tracer__take_plugin_record(void *ctx, const struct nb_plugin_record *record);
void tracer__serve_plugins(struct tracer *tracer, uint64_t now);
void tracer__restore_knobs(struct tracer *tracer);

/* tracer_foreign.c */
int tracer__open_foreign(struct tracer *tracer);
void tracer__take_foreign_record(void *ctx, const struct nb_foreign_record *record);
void tracer__serve_foreign(struct tracer *tracer, uint64_t now);
void tracer__foreign_gone(struct tracer *tracer, struct process *process);
void tracer__release_foreign(struct tracer *tracer);

/* tracer_handover.c */
void tracer__serve_handovers(struct tracer *tracer, uint64_t now);
/* Makes and ends links as those who need them come and go. */
void tracer__arrange_calls(struct tracer *tracer, uint64_t now);
/* After a reading of all counters that began at read_ns. */
void tracer__decide_handovers(struct tracer *tracer, uint64_t read_ns);
bool tracer__take_unprobed(void *ctx, const struct handover_calls *calls);

/* tracer_links.c */
struct process_mapping *process__mapping_of(struct process *process, const struct library *library);
/* A link on what can be handed over: for that process and its mapping, or for all (NULL, 0). */
void tracer__ask_calls(struct tracer *tracer, struct library *library,
		       struct process_mapping *mapping, uint32_t tgid);
/* Asks once whether links can be for one process: scoped_links. */
void tracer__try_links(struct tracer *tracer);
void tracer__close(struct tracer *tracer, int *link); /* where that may take its time */
void tracer__drop_calls(struct tracer *tracer, struct process *process);
void tracer__drop_all_calls(struct tracer *tracer);

/* tracer_graph.c */
int tracer__read_graphs(struct tracer *tracer);
/* Before the process is dropped. */
void tracer__forget_graphs(struct tracer *tracer, const struct process *process);

/* tracer.c: the 100 ms tick runs while something is attached or due. */
void tracer__need_tick(struct tracer *tracer);

#endif
