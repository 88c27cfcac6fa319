/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads one mapped file and puts entry probes where its kind has them; runs in a helper. */
#ifndef ATTACH_H
#define ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include "image.h"

#define ATTACH_TRACE_UPROBE_MULTI 48 /* BPF_TRACE_UPROBE_MULTI, Linux 6.6 */

/* True when the kernel makes uprobe_multi links for this program (loaded for them). */
bool attach__multi_works(int program_fd);

/*
 * True when this process may set probes by perf events. Those need CAP_SYS_ADMIN, since the
 * kernel's commit "perf: Revert to requiring CAP_SYS_ADMIN for uprobes" (July 2025, in older stable
 * releases, too).
 */
bool attach__perf_is_permitted(void);

struct attach_request {
	uint32_t pid;
	uint64_t start, end; /* of a mapping: names the file as /proc/PID/map_files/<start>-<end> */
	int32_t kind;	     /* attach if it is of this kind; IMAGE_NONE: only look */
	int32_t library;     /* index in the map `libraries` */
	int program_fd;	     /* for this kind */
	int libraries_fd;
	uint32_t link; /* number of the links made, see NB_COOKIE() */
	bool multi;
};

/* POD: crosses the helper's socket. With it come the links' fds, if it is of the kind asked for. */
struct attach_reply {
	int32_t err;	   /* 0; -errno of attaching or of reading */
	int32_t has_calls; /* fds: a link on what handover__covers() says, one on the rest, the file
			    */
	struct image image;
	uint64_t made_ns; /* by then the links were there, CLOCK_MONOTONIC */
	char path[256];	  /* as the process sees it; for people */
};

/* A helper_work_fn: arg is a struct attach_request, the reply a struct attach_reply. */
int attach__work(void *arg, int reply_fd);

/*
 * One probe, in this process alone: a perf event even where there is uprobe_multi, whose links of
 * one process heard its first thread only in Linux 6.6 to 6.9. An fd or -errno.
 */
int attach__in_process(int program_fd, uint32_t pid, const char *path, uint64_t offset,
		       uint64_t cookie);

/* One link more on the functions of NCCL that can be handed over. */
struct attach_calls_request {
	int program_fd, file_fd;
	uint32_t library, link;
	uint32_t pid; /* only in that process; 0: in all */
	uint32_t n;
	uint64_t offsets[IMAGE_MAX_SITES];
	uint32_t functions[IMAGE_MAX_SITES];
};

/*
 * A helper_work_fn: arg is a struct attach_calls_request, the reply the time by which the link was
 * there, a uint64_t of CLOCK_MONOTONIC, and the link.
 */
int attach__calls_work(void *arg, int reply_fd);

/*
 * A helper_work_fn: arg is a struct attach_trial_request. Its status is 0 where a link can be made
 * for one process, all its threads, and a function's links are run newest first.
 */
struct attach_trial_request {
	int program_fd;
	const volatile uint64_t *trial; /* what the links saw, see bpf/links.bpf.h */
};
int attach__trial_work(void *arg, int reply_fd);

/* Copies what the BPF side needs of a layout. */
struct nb_library;
void attach__describe(const struct nccl_layout *layout, struct nb_library *ret);

#endif
