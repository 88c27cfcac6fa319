/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The processes that map a file which holds, or may hold, NCCL. */
#ifndef PROCESS_H
#define PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "library.h"
#include "loop.h"
#include "procinfo.h"

#define PROCESS_MAX_MAPPINGS 8

struct process_mapping {
	struct library *library;
	uint64_t start, end, file_offset; /* of the first executable mapping of that file */
	uint64_t since_ns;		  /* it was not there before; 0: nobody knows */
	int link;	  /* on what can be handed over, for this process alone; -1: none */
	uint64_t link_ns; /* when it was made, CLOCK_MONOTONIC */
	bool asked;	  /* it is being made */
};

/* What the cooperating plugin does in a process. */
enum plugin_state {
	PLUGIN_ABSENT,
	PLUGIN_IDLE,   /* there, nothing heard of it since we attached */
	PLUGIN_ACTIVE, /* its records came; where we only look (ps): a tracer is attached to it */
};

/* The plugin's knobs in one process. */
struct process_knobs {
	uint64_t control; /* address of its struct nbp_control, as it told; 0: it has not */
	uint64_t checked_ns, due_ns; /* last looked at; to be looked at; 0: not */
	bool running;		     /* a helper looks */
	int err;		     /* of the last look: -ETIMEDOUT, say */
	bool changed;		     /* we wrote to it */
	bool is_timer_refused;	     /* asked for, and not in this NCCL */
};

/* Another profiler plugin in the process, where such are followed. */
#define PROCESS_FOREIGN_LINKS 5

struct process_foreign {
	enum {
		PROCESS_FOREIGN_DUE, /* to be looked at when it is there; first, so that 0 is it */
		PROCESS_FOREIGN_ASKED,
		PROCESS_FOREIGN_FOLLOWED, /* has links */
		PROCESS_FOREIGN_REFUSED,
		PROCESS_FOREIGN_GONE,
	} state;
	uint64_t due_ns; /* not before */
	unsigned int n_tries;
	int links[PROCESS_FOREIGN_LINKS], n_links;
	const char *why; /* of REFUSED: one phrase */
};

struct process {
	uint32_t tgid;
	int pidfd;
	struct loop_source *exit; /* readable pidfd: the whole thread group has ended */
	struct process_mapping mappings[PROCESS_MAX_MAPPINGS];
	unsigned int n_mappings;
	struct procinfo info;
	bool has_info;
	bool is_fork_copy; /* forked after NCCL was loaded: its memory shows its parent's
			      communicators */
	bool has_called;
	uint64_t seen_ns, gone_ns; /* CLOCK_MONOTONIC; gone_ns 0: alive */
	uint64_t scan_due_ns;	   /* when its communicators are to be read next; 0: not */
	unsigned int scans_left;   /* further tries for communicators that are being made */
	bool scan_running;
	uint64_t plugin_heard_ns; /* last record of its plugin; 0: none */
	uint64_t unresolved;	  /* launches of CUDA graphs, of which not all is known */
	bool plugin_raised;	  /* another tracer is attached to it */
	struct process_knobs knobs;
	struct process_foreign foreign;
	bool has_all;	     /* its communicators were all read, once */
	bool wants_calls;    /* handed over, and to be probed again */
	bool captures;	     /* into CUDA graphs: keeps its probes, so that all in them is known */
	bool is_undated;     /* since when probes see all its calls is to be asked */
	uint64_t covered_ns; /* since when probes see all its calls; 0: they do not */
	int scan_err;	     /* why its communicators could not be read, 0: they were */
	void *owner;	     /* the tracer */
	UT_hash_handle hh;
};

struct processes;

int processes__new(struct processes **ret, struct loop *loop);
void processes__free(struct processes *processes);

struct process *processes__find(struct processes *processes, uint32_t tgid);
struct process *processes__first(struct processes *processes); /* next: process->hh.next */

/* A new one; on_exit is called with the process once it has ended. NULL: gone already, or no
 * memory. */
struct process *processes__add(struct processes *processes, uint32_t tgid, uint64_t now_ns,
			       loop_fn *on_exit);
void processes__remove(struct processes *processes, struct process *process);

/* Has it, by the kernel's word? It may not have been told yet. */
bool process__has_ended(const struct process *process);

/*
 * Notes that the process maps the library, and did not before since_ns (0: nobody knows); false
 * when it was known, or there is no room.
 */
bool process__map(struct process *process, struct library *library,
		  const struct nb_mapping *mapping, uint64_t since_ns);

/* The cooperating plugin in the process; NULL: it has none. */
const struct process_mapping *process__plugin_mapping(const struct process *process);
/* The n-th plugin in the process that is not ours; NULL: there are not so many. */
const struct process_mapping *process__foreign_mapping(const struct process *process,
						       unsigned int n);
/* N of its ncclProfiler_vN that this NCCL takes; 0: none, or not known, and why. */
int process__foreign_version(const struct process *process, const char **ret_why);
enum plugin_state process__plugin(const struct process *process);
const char *plugin_state__name(enum plugin_state state);

/* The library whose NCCL the process uses: a traced one before any other. NULL: none is NCCL. */
struct library *process__nccl(const struct process *process);
const struct process_mapping *process__nccl_mapping(const struct process *process);

#endif
