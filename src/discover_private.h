/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the parts of discovery: discover.c looks, discover_watch.c listens. */
#ifndef DISCOVER_PRIVATE_H
#define DISCOVER_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "discover.h"

#define MAX_DUE 1024 /* notices to look into; past it, scan all */

/* Between looks at a file through processes that end: first, and doubled so often, to a second. */
#define FIRST_LOOK_NS	(31 * NSEC_PER_MSEC)
#define MAX_LOOKS_SHIFT 5

/* After a look that could not be made: first, and doubled so often, to a minute. */
#define FIRST_AGAIN_NS	(100 * NSEC_PER_MSEC)
#define MAX_AGAIN_SHIFT 9
#define SOON_TIMES	4 /* in a row, and who waits for a first look waits no longer */

/* A file as a notice shows it: an overlay's number, not the inode below. */
struct shown_key {
	uint32_t major, minor;
	uint64_t ino, generation;
};

struct shown {
	struct shown_key key;
	bool resolved;
	struct nb_mapping file; /* once resolved: the inode that it really is */
	unsigned int n_looks;	/* while it is not: its processes end before they are looked at */
	uint64_t next_look_ns;
	UT_hash_handle hh;
};

/* A mapping whose process is to be scanned. */
struct due {
	uint32_t pid;
	bool started;  /* its scan */
	uint64_t addr; /* 0: the process runs another program since */
	uint64_t time_ns, not_before_ns;
	struct shown_key key;
};

/* A helper's look at one process, or at all. */
struct scan {
	struct discover *discover;
	uint32_t pid;
};

struct discover {
	struct probe *probe;
	struct loop *loop;
	struct helpers *helpers;
	struct discover_listener listener;
	struct perf_buffer *notices;
	struct loop_source *readable, *quiet_timer, *due_timer;
	struct shown *shown; /* files told already */
	struct due due[MAX_DUE];
	unsigned int n_due;
	bool scan_all, all_running;
	int failed;	       /* -errno of the last look that could not be made, 0: made since */
	unsigned int n_failed; /* in a row */
	uint64_t again_ns;     /* when all are looked at for it, 0: not to be */
	uint64_t n_scans;
};

struct shown *discover__find_shown(struct discover *d, const struct shown_key *key);
struct shown *discover__remember(struct discover *d, const struct shown_key *key);
void discover__note_due(struct discover *d, const struct due *due);
void discover__note_unresolved(struct discover *d, struct shown *s, const struct due *due);
void discover__scan_due(struct discover *d);
void discover__on_due(void *ctx); /* a loop_fn: what had to wait need not any more */

#endif
