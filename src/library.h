/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The files that were found mapped: what they are, and the probes on those of a kind to probe. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "attach.h"
#include "nccl_bpftrace_record.h"

enum library_state {
	LIBRARY_WAITING, /* a helper looks at it */
	LIBRARY_PLAIN,	 /* of no kind that is probed */
	LIBRARY_TRACED,
	LIBRARY_SEEN,	     /* of a kind, not attached: not yet, or only looked at (ps) */
	LIBRARY_UNSUPPORTED, /* of a kind, or called like NCCL, but cannot be traced: see reason */
	LIBRARY_UNREADABLE,  /* nobody knows; not called like NCCL */
};

/* The inode below any overlay. Its kernel address tells apart what number and device do not. */
struct inode_key {
	uint64_t inode, ino;
	uint32_t dev, generation;
};

/* The link on what can be handed over, which comes and goes: see tracer_handover.c. */
struct library_calls {
	uint32_t n; /* 0: it has none of its own, and no process is handed over */
	uint64_t offsets[IMAGE_MAX_SITES];
	uint32_t functions[IMAGE_MAX_SITES]; /* enum nccl_function_id */
	int file;			     /* to attach to again, -1: none */
	int link;			     /* for all processes, -1: none */
	uint64_t link_ns;		     /* when it was made */
	bool asked;			     /* it is being made */
	bool unscoped;			     /* links for single processes were refused */
	uint64_t retry_ns;		     /* after a failure */
	unsigned int n_handed_over, n_probed, n_uncovered, n_links; /* processes, as last counted */
};

struct library {
	struct inode_key key;
	int index; /* in the BPF map, -1: none */
	enum library_state state;
	enum image_kind kind;	      /* IMAGE_NONE: not known either */
	uint64_t traced_ns;	      /* all probes are there since, CLOCK_MONOTONIC */
	struct nccl_image image;      /* of IMAGE_NCCL */
	uint64_t semaphore;	      /* of IMAGE_PLUGIN, see struct image */
	struct foreign_tables tables; /* of IMAGE_FOREIGN */
	char name[32];		      /* last component of the path */
	char path[256];		      /* as a process saw it */
	char reason[128];
	int *links, n_links;
	struct library_calls calls; /* of IMAGE_NCCL */
	unsigned int n_processes;
	uint64_t unused_since_ns;  /* 0: in use */
	struct nb_mapping mapping; /* the last one told of: through it the file is opened */
	uint64_t retry_ns;	   /* when to look once more, CLOCK_MONOTONIC; 0: not */
	unsigned int n_tries;
	UT_hash_handle hh;
};

struct libraries;

int libraries__new(struct libraries **ret);
/* Closes all links; what the kernel must then do can take seconds (perf events). */
void libraries__free(struct libraries *libraries);

struct inode_key inode_key__of(const struct nb_mapping *mapping);
struct library *libraries__find(struct libraries *libraries, const struct inode_key *key);

/* A new one, LIBRARY_WAITING, without an index. NULL: no memory. */
struct library *libraries__add(struct libraries *libraries, const struct nb_mapping *mapping);

/* Gives it a place in the BPF map. 0 or -ENOSPC. */
int libraries__take_index(struct libraries *libraries, struct library *library);
/* One that is not to be traced, and why. */
void library__refuse(struct library *library, const char *why);
/* Its path as a process saw it, else its name. */
const char *library__shown(const struct library *library);
bool library__called_like_nccl(const struct library *library);
/* It is NCCL, or nobody could see what it is and it is called so. */
bool library__may_be_nccl(const struct library *library);
void libraries__remove(struct libraries *libraries, struct library *library);

/* Takes over a helper's verdict and its fds. */
void library__settle(struct libraries *libraries, struct library *library,
		     const struct attach_reply *reply, const int *fds, int n_fds);
/* The helper brought no verdict: err is its status. */
void library__fail(struct libraries *libraries, struct library *library, int err);

/* Hands the links to the caller, who closes them where that may take its time. */
int library__take_links(struct library *library, int **ret_links);

struct library *libraries__first(struct libraries *libraries); /* next: library->hh.next */

#endif
