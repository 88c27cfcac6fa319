/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's notices of new mappings and new programs. */
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <time.h>

#include "discover_private.h"
#include "util.h"

#define RING_PAGES 16
#define QUIET_NS   (20 * NSEC_PER_MSEC) /* after a wake-up, before the next */

/* PERF_RECORD_MMAP2 up to the file name (linux/perf_event.h). */
struct mmap2_notice {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t addr, len, pgoff;
	uint32_t major, minor;
	uint64_t ino, generation;
	uint32_t prot, flags;
};

/* After the name of each: sample_id_all with PERF_SAMPLE_TIME alone. */
struct notice_end {
	uint64_t time_ns; /* CLOCK_MONOTONIC */
};

/* PERF_RECORD_COMM up to the name. */
struct comm_notice {
	struct perf_event_header header;
	uint32_t pid, tid;
};

static uint64_t notice__time_ns(const struct perf_event_header *header)
{
	struct notice_end end;

	memcpy(&end, (const char *)header + header->size - sizeof(end), sizeof(end));
	return end.time_ns;
}

static void discover__on_mmap(struct discover *d, const struct mmap2_notice *notice)
{
	struct shown_key key = {};
	enum discover_interest interest = DISCOVER_UNKNOWN;
	struct shown *s;
	struct due due;

	key.major = notice->major;
	key.minor = notice->minor;
	key.ino = notice->ino;
	key.generation = notice->generation;
	s = discover__find_shown(d, &key) ?: discover__remember(d, &key);
	if (s && s->resolved)
		interest = d->listener.interest(d->listener.ctx, &s->file);
	if (interest == DISCOVER_NONE || !d->listener.wants(d->listener.ctx, notice->pid))
		return;
	due = (struct due){
		.pid = notice->pid,
		.addr = notice->addr,
		.time_ns = notice__time_ns(&notice->header),
		.key = key,
	};
	if (s && interest == DISCOVER_UNKNOWN)
		discover__note_unresolved(d, s, &due);
	else
		discover__note_due(d, &due);
}

/* Whatever the process had mapped is gone; what it has now may have been told of already. */
static void discover__on_exec(struct discover *d, const struct comm_notice *notice)
{
	const struct due due = {.pid = notice->pid, .time_ns = notice__time_ns(&notice->header)};

	if (d->listener.executed(d->listener.ctx, due.pid, due.time_ns))
		discover__note_due(d, &due);
}

static enum bpf_perf_event_ret on_notice(void *ctx, int cpu, struct perf_event_header *header)
{
	struct discover *d = ctx;
	const struct mmap2_notice *notice = (const void *)header;
	const struct comm_notice *comm = (const void *)header;

	(void)cpu;
	if (header->type == PERF_RECORD_LOST) {
		d->scan_all = true;
	} else if (header->type == PERF_RECORD_MMAP2 &&
		   header->size >= sizeof(*notice) + sizeof(struct notice_end) && notice->ino) {
		discover__on_mmap(d, notice);
	} else if (header->type == PERF_RECORD_COMM &&
		   header->size >= sizeof(*comm) + sizeof(struct notice_end) &&
		   header->misc & PERF_RECORD_MISC_COMM_EXEC) {
		discover__on_exec(d, comm);
	}
	return LIBBPF_PERF_EVENT_CONT;
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
		.sample_type = PERF_SAMPLE_TIME,
		.sample_id_all = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
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
