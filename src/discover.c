/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Looks at processes, and what is due to be looked at. */
#include <bpf/libbpf.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "discover_private.h"
#include "mapscan.h"
#include "util.h"

#define MAX_SHOWN 65536 /* files remembered; the oldest goes first */

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
	return loop__add_timer(loop, 0, 0, discover__on_due, d, &d->due_timer);
}

void discover__free(struct discover *d)
{
	struct shown *s, *next;

	if (!d)
		return;
	loop__remove(d->loop, d->readable);
	loop__remove(d->loop, d->quiet_timer);
	loop__remove(d->loop, d->due_timer);
	perf_buffer__free(d->notices);
	HASH_ITER(hh, d->shown, s, next)
	{
		HASH_DEL(d->shown, s);
		free(s);
	}
	free(d);
}

struct shown *discover__find_shown(struct discover *d, const struct shown_key *key)
{
	struct shown *s;

	HASH_FIND(hh, d->shown, key, sizeof(*key), s);
	return s;
}

/*
 * A notice named an address; here is the mapping around it, so here is the real inode. Gives the
 * time of the last notice that it follows, 0: there was none.
 */
static uint64_t discover__resolve(struct discover *d, const struct nb_mapping *m)
{
	uint64_t since_ns = 0;

	for (unsigned int i = 0; i < d->n_due; i++) {
		const struct due *due = &d->due[i];
		struct shown *s;

		if (due->pid != m->tgid ||
		    (due->addr && (due->addr < m->start || due->addr >= m->end)))
			continue;
		if (due->time_ns > since_ns)
			since_ns = due->time_ns;
		s = due->addr ? discover__find_shown(d, &due->key) : NULL;
		if (!s)
			continue;
		s->file = *m;
		s->resolved = true;
	}
	return since_ns;
}

static void on_scan_message(void *ctx, const void *data, size_t len, const int *fds, int n_fds)
{
	const struct nb_mapping *mappings = data;
	const struct scan *scan = ctx;
	struct discover *d = scan->discover;

	(void)fds;
	(void)n_fds;
	for (size_t i = 0; i < len / sizeof(*mappings); i++) {
		uint64_t since_ns = discover__resolve(d, &mappings[i]);

		d->listener.mapping(d->listener.ctx, &mappings[i], since_ns);
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

/* What is mapped was not told, and nothing would tell it later: all are looked at once more. */
static void discover__scan_again(struct discover *d, int err)
{
	unsigned int shift = d->n_failed < MAX_AGAIN_SHIFT ? d->n_failed : MAX_AGAIN_SHIFT;

	d->failed = err;
	if (d->again_ns)
		return;
	d->n_failed++;
	d->again_ns = now_ns() + (FIRST_AGAIN_NS << shift);
	loop_source__set_timer(d->due_timer, FIRST_AGAIN_NS << shift, 0);
}

/* One process in which the kernel waits must not hide all others: ask for each by itself. */
static void discover__scan_each(struct discover *d)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	while (proc && (entry = readdir(proc)))
		if (isdigit((unsigned char)entry->d_name[0]))
			discover__scan(d, strtoul(entry->d_name, NULL, 10), false);
	if (proc)
		closedir(proc);
}

/* A process in which the kernel waits gives no answer; that is no failure of the look. */
static void discover__note_outcome(struct discover *d, uint32_t pid, int status)
{
	if (status && status != -ETIMEDOUT) {
		discover__scan_again(d, status);
	} else if (!pid && !d->again_ns) {
		d->failed = 0;
		d->n_failed = 0;
	}
}

static void on_scan_done(void *ctx, int status)
{
	struct scan *scan = ctx;
	struct discover *d = scan->discover;
	uint32_t pid = scan->pid;

	free(scan);
	d->all_running &= pid != 0;
	discover__forget_due(d, pid);
	discover__note_outcome(d, pid, status);
	if (status == -ETIMEDOUT && !pid)
		discover__scan_each(d);
	discover__scan_due(d);
	d->listener.scanned(d->listener.ctx);
}

int discover__scan(struct discover *d, uint32_t pid, bool urgent)
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
		.urgent = urgent,
		.keep_fds = {request.program_fd, -1, -1, -1},
	};
	int err;

	if (!scan)
		return -ENOMEM;
	*scan = (struct scan){.discover = d, .pid = pid};
	d->n_scans++;
	d->all_running |= pid == 0;
	err = helper__run(d->helpers, &job);
	if (err) {
		free(scan);
		d->all_running &= pid != 0;
		discover__scan_again(d, err);
	}
	return err;
}

struct shown *discover__remember(struct discover *d, const struct shown_key *key)
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

void discover__note_due(struct discover *d, const struct due *due)
{
	if (d->n_due == MAX_DUE)
		d->scan_all = true;
	else
		d->due[d->n_due++] = *due;
}

/* The one that waits for a look at this file, NULL: none. */
static struct due *discover__find_waiting(struct discover *d, const struct shown_key *key)
{
	for (unsigned int i = 0; i < d->n_due; i++)
		if (!d->due[i].started && !memcmp(&d->due[i].key, key, sizeof(*key)))
			return &d->due[i];
	return NULL;
}

/*
 * A program that is started again and again and ends at once is not looked at each time: less and
 * less often, down to once a second, through the process that was the last to map the file.
 */
void discover__note_unresolved(struct discover *d, struct shown *s, const struct due *due)
{
	struct due later = *due;
	struct due *waiting = s->n_looks ? discover__find_waiting(d, &s->key) : NULL;

	if (waiting) {
		waiting->pid = due->pid;
		waiting->addr = due->addr;
		waiting->time_ns = due->time_ns;
		return;
	}
	later.not_before_ns = s->next_look_ns;
	discover__note_due(d, &later);
	if (s->n_looks < MAX_LOOKS_SHIFT)
		s->n_looks++;
	s->next_look_ns = now_ns() + (FIRST_LOOK_NS << s->n_looks);
}

/* One scan per process, however many of its mappings are new. */
void discover__scan_due(struct discover *d)
{
	uint64_t now = now_ns();
	bool waiting = false;

	if (d->again_ns && d->again_ns <= now) {
		d->again_ns = 0;
		d->scan_all = true;
	}
	for (unsigned int i = 0; i < d->n_due && !d->scan_all; i++) {
		if (d->due[i].started)
			continue;
		if (d->due[i].not_before_ns > now) {
			waiting = true;
			continue;
		}
		for (unsigned int j = i; j < d->n_due; j++)
			d->due[j].started |= d->due[j].pid == d->due[i].pid;
		discover__scan(d, d->due[i].pid, true);
	}
	if (waiting || d->again_ns)
		loop_source__set_timer(d->due_timer, waiting ? FIRST_LOOK_NS : d->again_ns - now,
				       0);
	if (!d->scan_all || d->all_running)
		return;
	d->scan_all = false;
	for (unsigned int i = 0; i < d->n_due; i++)
		d->due[i].started = true;
	discover__scan(d, 0, false);
}

void discover__on_due(void *ctx)
{
	discover__scan_due(ctx);
}

int discover__failed(const struct discover *d)
{
	return d->failed;
}

bool discover__retries_soon(const struct discover *d)
{
	return d->again_ns && d->n_failed <= SOON_TIMES;
}

uint64_t discover__scans(const struct discover *d)
{
	return d->n_scans;
}
