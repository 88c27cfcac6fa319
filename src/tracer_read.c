/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What has to be read from a process itself: who it is, and its communicators. In helpers. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "commscan.h"
#include "tracer_private.h"

#define FIRST_RETRY_NS (50 * NSEC_PER_MSEC)
#define LAST_RETRY_NS  (10 * NSEC_PER_SEC)
#define MAX_TRIES      10

/* A helper's answer names its process by number: it may be gone when the answer comes. */
struct question {
	struct tracer *tracer;
	uint32_t tgid;
	uint64_t asked_ns;
	bool has_list;	 /* NCCL's own list is read: afterwards all communicators are known */
	bool unfinished; /* a communicator was still being made */
};

static struct question *question__new(struct tracer *tracer, uint32_t tgid)
{
	struct question *q = calloc(1, sizeof(*q));

	if (q)
		*q = (struct question){.tracer = tracer, .tgid = tgid, .asked_ns = now_ns()};
	return q;
}

void tracer__scan_later(struct process *process, uint64_t delay_ns, unsigned int tries)
{
	uint64_t due = now_ns() + delay_ns;

	if (!process->scan_due_ns || due < process->scan_due_ns)
		process->scan_due_ns = due;
	if (process->scans_left < tries)
		process->scans_left = tries;
	tracer__need_tick(process->owner);
}

/*
 * A child forked after NCCL was loaded (a data loader) maps the file where its parent does, and
 * holds a dead copy of its parent's communicators. They are not its own unless it calls.
 */
static bool is_fork_copy(struct tracer *tracer, const struct process *process)
{
	const struct process *parent = processes__find(tracer->processes, process->info.ppid);
	const struct process_mapping *ours = process__nccl_mapping(process);
	const struct process_mapping *theirs = parent ? process__nccl_mapping(parent) : NULL;

	return ours && theirs && ours->library == theirs->library && ours->start == theirs->start;
}

static void on_info_message(void *ctx, const void *data, size_t len, const int *fds, int n_fds)
{
	struct question *q = ctx;
	struct process *process = processes__find(q->tracer->processes, q->tgid);
	const struct procinfo *info = data;

	(void)fds;
	(void)n_fds;
	if (!process || len != sizeof(*info) || !procinfo__valid(info))
		return;
	process->info = *info;
}

static void on_info_done(void *ctx, int status)
{
	struct question *q = ctx;
	struct process *process = processes__find(q->tracer->processes, q->tgid);

	(void)status; /* who it is stays unknown; that it is traced does not hang on it */
	if (process) {
		process->has_info = true;
		process->is_fork_copy = is_fork_copy(q->tracer, process);
		if (process->n_mappings && !process->is_fork_copy && !process->gone_ns)
			tracer__scan_later(process, 0, 1);
	}
	free(q);
}

void tracer__ask_info(struct tracer *tracer, struct process *process)
{
	struct question *q = question__new(tracer, process->tgid);
	struct procinfo_question asked = {process->tgid, tracer->options.host_root};
	const struct helper_job job = {
		.work = procinfo__work,
		.arg = &asked,
		.arg_size = sizeof(asked),
		.message = on_info_message,
		.done = on_info_done,
		.ctx = q,
		.urgent = true,
		.keep_fds = {-1, -1, -1, -1},
	};

	if (!q || helper__run(tracer->helpers, &job))
		free(q);
}

static void take_entry(struct question *q, const struct commscan_entry *e)
{
	struct comms *comms = q->tracer->comms;

	if (e->err == -EAGAIN)
		q->unfinished = true;
	if (!e->err)
		comms__learn(comms, q->tgid, e->address, e->listed, q->asked_ns, &e->identity);
	if (e->pointer && e->err != -EAGAIN)
		comms__made(comms, q->tgid, e->pointer, e->address);
}

static void on_scan_message(void *ctx, const void *data, size_t len, const int *fds, int n_fds)
{
	const struct commscan_reply *reply = data;
	struct question *q = ctx;
	struct process *process = processes__find(q->tracer->processes, q->tgid);

	(void)fds;
	(void)n_fds;
	if (len < offsetof(struct commscan_reply, entries) || reply->n > COMMSCAN_PER_MESSAGE ||
	    len != offsetof(struct commscan_reply, entries[reply->n]))
		return;
	if (process && reply->semaphore)
		process->plugin_raised = true;
	for (uint32_t i = 0; i < reply->n; i++)
		take_entry(q, &reply->entries[i]);
}

static uint64_t retry_delay(unsigned int tries_left)
{
	unsigned int tried = MAX_TRIES > tries_left ? MAX_TRIES - tries_left : 0;
	uint64_t delay = FIRST_RETRY_NS << tried;

	return delay < LAST_RETRY_NS ? delay : LAST_RETRY_NS;
}

static bool still_open(struct tracer *tracer, const struct question *q)
{
	uint64_t one;

	return q->unfinished || comms__pending(tracer->comms, q->tgid, &one, 1) ||
	       comms__unlearnt(tracer->comms, q->tgid, &one, 1);
}

static void on_scan_done(void *ctx, int status)
{
	struct question *q = ctx;
	struct tracer *tracer = q->tracer;
	struct process *process = processes__find(tracer->processes, q->tgid);

	if (!status && q->has_list)
		comms__complete(tracer->comms, q->tgid, q->asked_ns);
	if (process) {
		process->has_all |= !status && q->has_list;
		process->scan_running = false;
		process->scan_err = status;
		if (process->scans_left)
			process->scans_left--;
		if (process->scans_left && !process->gone_ns && still_open(tracer, q))
			tracer__scan_later(process, retry_delay(process->scans_left),
					   process->scans_left);
	}
	free(q);
	tracer__check_settled(tracer);
}

static void fill_request(struct tracer *tracer, const struct process *process,
			 const struct process_mapping *m, struct commscan_request *request)
{
	const struct nccl_image *image = &m->library->image;
	const struct process_mapping *plugin = process__plugin_mapping(process);

	*request = (struct commscan_request){
		.pid = process->tgid,
		.layout = image->layout,
	};
	if (image->comms_vaddr && image->n_comms_vaddr) {
		request->list =
			commscan__address(image, m->start, m->file_offset, image->comms_vaddr);
		request->n_list =
			commscan__address(image, m->start, m->file_offset, image->n_comms_vaddr);
	}
	if (plugin && !tracer->options.attach) /* else we have raised it ourselves */
		request->semaphore =
			plugin->start - plugin->file_offset + plugin->library->semaphore;
	request->n_addresses = comms__unlearnt(tracer->comms, process->tgid, request->addresses,
					       COMMSCAN_MAX_ADDRESSES);
	if (!request->list)
		request->n_addresses += comms__learnt(
			tracer->comms, process->tgid, request->addresses + request->n_addresses,
			COMMSCAN_MAX_ADDRESSES - request->n_addresses);
	request->n_pointers = comms__pending(tracer->comms, process->tgid, request->pointers,
					     COMMSCAN_MAX_ADDRESSES);
}

static void tracer__scan(struct tracer *tracer, struct process *process)
{
	const struct process_mapping *mapping = process__nccl_mapping(process);
	struct question *q = question__new(tracer, process->tgid);
	struct commscan_request request;
	const struct helper_job job = {
		.work = commscan__work,
		.arg = &request,
		.arg_size = sizeof(request),
		.message = on_scan_message,
		.done = on_scan_done,
		.ctx = q,
		.doubtful = process->scan_err == -ETIMEDOUT,
		.keep_fds = {-1, -1, -1, -1},
	};

	if (!q || !mapping || mapping->library->image.status != NCCL_IMAGE_OK) {
		free(q);
		return;
	}
	fill_request(tracer, process, mapping, &request);
	q->has_list = request.list && request.layout.source != NCCL_LAYOUT_NONE;
	process->scan_running = true;
	if (helper__run(tracer->helpers, &job)) {
		process->scan_running = false;
		free(q);
	}
}

void tracer__run_scans(struct tracer *tracer, uint64_t now)
{
	struct process *process, *next;

	for (process = processes__first(tracer->processes); process; process = next) {
		next = process->hh.next;
		if (!process->scan_due_ns || process->scan_due_ns > now || process->scan_running)
			continue;
		process->scan_due_ns = 0;
		if (!process->gone_ns && (!process->is_fork_copy || process->has_called))
			tracer__scan(tracer, process);
	}
}

bool tracer__read_again(struct tracer *tracer, uint32_t tgid)
{
	struct process *process = processes__find(tracer->processes, tgid);

	if (!process || process->gone_ns || process->scan_running || process->scan_due_ns ||
	    !tracer->settled)
		return false;
	process->scan_due_ns = now_ns();
	return true;
}
