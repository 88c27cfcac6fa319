/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "discover.h"

#include <bpf/libbpf.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uthash.h>

#include "mapscan.h"
#include "util.h"

#define RING_PAGES 16
#define QUIET_NS   (20 * NSEC_PER_MSEC) /* after a wake-up, before the next */
#define MAX_SHOWN  65536		/* files remembered; the oldest goes first */
#define MAX_DUE	   1024			/* notices to look into; past it, scan all */

/* A file as a notice shows it: an overlay's number, not the inode below. */
struct shown_key {
	uint32_t major, minor;
	uint64_t ino, generation;
};

struct shown {
	struct shown_key key;
	bool resolved;
	struct nb_mapping file; /* once resolved: the inode that it really is */
	UT_hash_handle hh;
};

/* A mapping whose process is to be scanned. */
struct due {
	uint32_t pid;
	bool started; /* its scan */
	uint64_t addr;
	struct shown_key key;
};

/* A helper's look at one process, or at all. */
struct scan {
	struct discover *discover;
	uint32_t pid;
	bool late;
};

struct discover {
	struct probe *probe;
	struct loop *loop;
	struct helpers *helpers;
	struct discover_listener listener;
	struct perf_buffer *notices;
	struct loop_source *readable, *quiet_timer;
	struct shown *shown; /* files told already */
	struct due due[MAX_DUE];
	unsigned int n_due;
	bool scan_all, all_running;
	uint64_t overflows, n_scans;
};

/* PERF_RECORD_MMAP2 up to the file name (linux/perf_event.h). */
struct mmap2_notice {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t addr, len, pgoff;
	uint32_t major, minor;
	uint64_t ino, generation;
	uint32_t prot, flags;
};

/* PERF_RECORD_COMM up to the name. */
struct comm_notice {
	struct perf_event_header header;
	uint32_t pid, tid;
};

int discover__new(struct discover **ret, struct probe *probe, struct loop *loop,
		  struct helpers *helpers, const struct discover_listener *listener)
{
	struct discover *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->probe = probe;
	d->loop = loop;
	d->helpers = helpers;
	d->listener = *listener;
	*ret = d;
	return 0;
}

void discover__free(struct discover *d)
{
	struct shown *s, *next;

	if (!d)
		return;
	loop__remove(d->loop, d->readable);
	loop__remove(d->loop, d->quiet_timer);
	perf_buffer__free(d->notices);
	HASH_ITER(hh, d->shown, s, next)
	{
		HASH_DEL(d->shown, s);
		free(s);
	}
	free(d);
}

static struct shown *discover__find_shown(struct discover *d, const struct shown_key *key)
{
	struct shown *s;

	HASH_FIND(hh, d->shown, key, sizeof(*key), s);
	return s;
}

/* A notice named an address; here is the mapping around it, so here is the real inode. */
static void discover__resolve(struct discover *d, const struct nb_mapping *m)
{
	for (unsigned int i = 0; i < d->n_due; i++) {
		const struct due *due = &d->due[i];
		struct shown *s;

		if (due->pid != m->tgid || due->addr < m->start || due->addr >= m->end)
			continue;
		s = discover__find_shown(d, &due->key);
		if (!s)
			continue;
		s->file = *m;
		s->resolved = true;
	}
}

static void on_scan_message(void *ctx, const void *data, size_t len, const int *fds, int n_fds)
{
	const struct nb_mapping *mappings = data;
	const struct scan *scan = ctx;
	struct discover *d = scan->discover;

	(void)fds;
	(void)n_fds;
	for (size_t i = 0; i < len / sizeof(*mappings); i++) {
		discover__resolve(d, &mappings[i]);
		d->listener.mapping(d->listener.ctx, &mappings[i], scan->late);
	}
}

/* What was due because of this scan is done with; what came since is not. */
static void discover__forget_due(struct discover *d, uint32_t pid)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < d->n_due; i++)
		if (!d->due[i].started || (pid && d->due[i].pid != pid))
			d->due[kept++] = d->due[i];
	d->n_due = kept;
}

/* One process in which the kernel waits must not hide all others: ask for each by itself. */
static void discover__scan_each(struct discover *d)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	while (proc && (entry = readdir(proc)))
		if (isdigit((unsigned char)entry->d_name[0]))
			discover__scan(d, strtoul(entry->d_name, NULL, 10), true);
	if (proc)
		closedir(proc);
}

static void discover__scan_due(struct discover *d);

static void on_scan_done(void *ctx, int status)
{
	struct scan *scan = ctx;
	struct discover *d = scan->discover;
	uint32_t pid = scan->pid;

	free(scan);
	d->all_running &= pid != 0;
	discover__forget_due(d, pid);
	if (status == -ETIMEDOUT && !pid)
		discover__scan_each(d);
	discover__scan_due(d);
	d->listener.scanned(d->listener.ctx);
}

int discover__scan(struct discover *d, uint32_t pid, bool late)
{
	struct mapscan_request request = {.program_fd = probe__iterator_fd(d->probe), .pid = pid};
	struct scan *scan = calloc(1, sizeof(*scan));
	const struct helper_job job = {
		.work = mapscan__work,
		.arg = &request,
		.arg_size = sizeof(request),
		.message = on_scan_message,
		.done = on_scan_done,
		.ctx = scan,
		.urgent = !late,
		.keep_fds = {request.program_fd, -1, -1, -1},
	};
	int err;

	if (!scan)
		return -ENOMEM;
	*scan = (struct scan){.discover = d, .pid = pid, .late = late};
	d->n_scans++;
	d->all_running |= pid == 0;
	err = helper__run(d->helpers, &job);
	if (err)
		free(scan);
	return err;
}

static struct shown *discover__remember(struct discover *d, const struct shown_key *key)
{
	struct shown *s;

	if (HASH_COUNT(d->shown) >= MAX_SHOWN) {
		s = d->shown; /* in order of insertion: the oldest */
		HASH_DEL(d->shown, s);
		free(s);
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->key = *key;
	HASH_ADD(hh, d->shown, key, sizeof(s->key), s);
	return s;
}

static void discover__note_due(struct discover *d, uint32_t pid, uint64_t addr,
			       const struct shown_key *key)
{
	if (d->n_due == MAX_DUE) {
		d->scan_all = true;
		return;
	}
	d->due[d->n_due++] = (struct due){.pid = pid, .addr = addr, .key = *key};
}

static void discover__on_mmap(struct discover *d, const struct mmap2_notice *notice)
{
	struct shown_key key = {};
	struct shown *s;

	key.major = notice->major;
	key.minor = notice->minor;
	key.ino = notice->ino;
	key.generation = notice->generation;
	s = discover__find_shown(d, &key) ?: discover__remember(d, &key);
	if (s && s->resolved && !d->listener.wants(d->listener.ctx, &s->file))
		return;
	discover__note_due(d, notice->pid, notice->addr, &key);
}

/* Whatever the process had mapped is gone; what it has now may have been told of already. */
static void discover__on_exec(struct discover *d, const struct comm_notice *notice)
{
	const struct shown_key none = {};

	if (d->listener.executed(d->listener.ctx, notice->pid))
		discover__note_due(d, notice->pid, 0, &none);
}

static enum bpf_perf_event_ret on_notice(void *ctx, int cpu, struct perf_event_header *header)
{
	struct discover *d = ctx;
	const struct mmap2_notice *notice = (const void *)header;
	const struct comm_notice *comm = (const void *)header;

	(void)cpu;
	if (header->type == PERF_RECORD_LOST) {
		d->overflows++;
		d->scan_all = true;
	} else if (header->type == PERF_RECORD_MMAP2 && header->size >= sizeof(*notice) &&
		   notice->ino) {
		discover__on_mmap(d, notice);
	} else if (header->type == PERF_RECORD_COMM && header->size >= sizeof(*comm) &&
		   header->misc & PERF_RECORD_MISC_COMM_EXEC) {
		discover__on_exec(d, comm);
	}
	return LIBBPF_PERF_EVENT_CONT;
}

/* One scan per process, however many of its mappings are new. */
static void discover__scan_due(struct discover *d)
{
	for (unsigned int i = 0; i < d->n_due && !d->scan_all; i++) {
		if (d->due[i].started)
			continue;
		for (unsigned int j = i; j < d->n_due; j++)
			d->due[j].started |= d->due[j].pid == d->due[i].pid;
		discover__scan(d, d->due[i].pid, false);
	}
	if (!d->scan_all || d->all_running)
		return;
	d->scan_all = false;
	for (unsigned int i = 0; i < d->n_due; i++)
		d->due[i].started = true;
	discover__scan(d, 0, true);
}

static void discover__drain(void *ctx)
{
	struct discover *d = ctx;

	perf_buffer__consume(d->notices);
	discover__scan_due(d);
}

static void discover__on_quiet_over(void *ctx);

/*
 * At once when it is quiet; under a storm of new mappings at most every QUIET_NS. Listening comes
 * before the look at what is there: a perf event says once that it is readable, and says it to
 * whoever asks first, so what came before epoll was asked would never be told of.
 */
static void discover__listen(struct discover *d)
{
	loop__add_fd(d->loop, perf_buffer__epoll_fd(d->notices), discover__on_quiet_over, d,
		     &d->readable);
	discover__drain(d);
}

static void discover__on_quiet_over(void *ctx)
{
	struct discover *d = ctx;

	if (d->readable) {
		loop__remove(d->loop, d->readable);
		d->readable = NULL;
		discover__drain(d);
		loop_source__set_timer(d->quiet_timer, QUIET_NS, 0);
		return;
	}
	discover__listen(d);
}

int discover__watch(struct discover *d)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.sample_period = 1,
		.watermark = 1, /* wakeup_events would count samples, of which there are none */
		.wakeup_watermark = 1,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.comm_exec = 1,
	};
	int err;

	d->notices = perf_buffer__new_raw(probe__new_mappings_fd(d->probe), RING_PAGES, &attr,
					  on_notice, d, NULL);
	if (!d->notices)
		return -errno;
	err = loop__add_timer(d->loop, 0, 0, discover__on_quiet_over, d, &d->quiet_timer);
	return err
		       ?: loop__add_fd(d->loop, perf_buffer__epoll_fd(d->notices),
				       discover__on_quiet_over, d, &d->readable);
}

uint64_t discover__overflows(const struct discover *d)
{
	return d->overflows;
}

uint64_t discover__scans(const struct discover *d)
{
	return d->n_scans;
}
