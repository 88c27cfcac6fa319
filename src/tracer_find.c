/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a mapping to a file that holds NCCL, to probes on it, to the processes that use it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tracer_private.h"

#define FUSE_MAGIC 0x65735546	       /* linux/magic.h: whoever mounts it can make a reader wait */
#define UNUSED_NS  (30 * NSEC_PER_SEC) /* a file without processes keeps its probes so long */
#define LOOK_NS	   (15 * NSEC_PER_SEC) /* a library of half a GB on a cold disk */
#define RETRY_NS   (5 * NSEC_PER_SEC)  /* after a look without an answer; then twice as long */
#define MAX_LOOKS  6

static void library__look(struct tracer *tracer, struct library *library,
			  const struct nb_mapping *mapping);

/* What a helper's answer is about: the file may be forgotten, the mapping's process gone. */
struct look {
	struct tracer *tracer;
	struct nb_mapping mapping;
	bool answered;
	bool seen_before; /* what it is was known, and it is to be attached as that */
};

static bool tracer__asks_for(const struct tracer *tracer, uint32_t tgid)
{
	const struct tracer_options *o = &tracer->options;

	for (unsigned int i = 0; i < o->n_pids; i++)
		if (o->pids[i] == tgid)
			return true;
	return !o->n_pids;
}

static bool tracer__wants_process(struct tracer *tracer, uint32_t tgid)
{
	const struct tracer_options *o = &tracer->options;

	if (o->cgroup && (tracer->cgroup_pid != tgid ||
			  tracer->cgroup_scan != discover__scans(tracer->discover))) {
		tracer->cgroup_in = procinfo__in_cgroup(tgid, o->cgroup);
		tracer->cgroup_pid = tgid;
		tracer->cgroup_scan = discover__scans(tracer->discover);
	}
	return (!o->cgroup || tracer->cgroup_in) && tracer__asks_for(tracer, tgid);
}

/*
 * The kernel faults pages of the file in while it holds a lock that every fork on the machine
 * takes; a FUSE server that does not answer then holds up all of them, and nothing ends that.
 */
static bool tracer__may_probe(const struct tracer *tracer, const struct nb_mapping *mapping)
{
	return mapping->fs_magic != FUSE_MAGIC || tracer->options.fuse || !tracer->options.attach;
}

bool tracer__may_probe_library(const struct tracer *tracer, const struct library *library)
{
	return tracer__may_probe(tracer, &library->mapping);
}

/* A machine that is busy, or a disk that is slow, is no verdict: another look comes later. */
static void library__retry_later(struct tracer *tracer, struct library *library)
{
	if (library->n_tries++ < MAX_LOOKS)
		library->retry_ns = now_ns() + (RETRY_NS << library->n_tries);
	tracer__need_tick(tracer);
}

static void on_look_message(void *ctx, const void *data, size_t len, const int *fds, int n_fds)
{
	struct look *look = ctx;
	const struct attach_reply *reply = data;
	const struct inode_key key = inode_key__of(&look->mapping);
	struct library *library = libraries__find(look->tracer->libraries, &key);

	if (!library || len != sizeof(struct attach_reply)) {
		while (n_fds > 0)
			close(fds[--n_fds]);
		return;
	}
	look->answered = true;
	library__settle(look->tracer->libraries, library, data, fds, n_fds);
	if (library->state == LIBRARY_SEEN && !tracer__may_probe(look->tracer, &look->mapping))
		library__refuse(library,
				"on a FUSE mount, and a probe there can stop every fork on "
				"this machine: --fuse takes that risk");
	if (library->state == LIBRARY_SEEN && look->seen_before)
		library__refuse(library, "its contents change while it is read");
	if (library->state == LIBRARY_TRACED && library->kind == IMAGE_CUDA)
		probe__with_graphs(look->tracer->probe);
	if (library->state == LIBRARY_SEEN && look->tracer->options.attach &&
	    library->kind != IMAGE_CUDA && library->kind != IMAGE_FOREIGN)
		library__look(look->tracer, library, &look->mapping);
	else if (library->state != LIBRARY_PLAIN)
		look->tracer->rescan = true;
	if (library->state == LIBRARY_TRACED)
		tracer__need_tick(look->tracer);
	else if (library->state == LIBRARY_UNSUPPORTED && reply->err)
		library__retry_later(look->tracer, library);
}

static void library__unanswered(struct tracer *tracer, struct library *library, int status)
{
	bool gone = status == -ENOENT || status == -ESRCH;

	if (gone && !library->n_processes) {
		/* The process we looked through is: the next that maps the file tells anew. */
		libraries__remove(tracer->libraries, library);
		return;
	}
	library__fail(tracer->libraries, library, status);
	library__retry_later(tracer, library);
	tracer->rescan |= library->state == LIBRARY_UNSUPPORTED;
}

static void on_look_done(void *ctx, int status)
{
	struct look *look = ctx;
	struct tracer *tracer = look->tracer;
	const struct inode_key key = inode_key__of(&look->mapping);
	struct library *library = libraries__find(tracer->libraries, &key);

	if (library && !look->answered)
		library__unanswered(tracer, library, status);
	free(look);
	tracer__rescan_if_due(tracer);
	tracer__check_settled(tracer);
}

/*
 * What to attach the file as, if that is what it is: as what it was seen to be; before that, one
 * called like NCCL as NCCL, so that the common case takes one helper, not two.
 */
static enum image_kind tracer__kind_to_attach(const struct tracer *tracer,
					      const struct library *library,
					      const struct nb_mapping *mapping)
{
	if (!tracer->options.attach || !tracer__may_probe(tracer, mapping))
		return IMAGE_NONE;
	if (library->state == LIBRARY_SEEN)
		return library->kind;
	return library__called_like_nccl(library) ? IMAGE_NCCL : IMAGE_NONE;
}

/* A helper looks at the file, and attaches when it is what is expected. */
static void library__look(struct tracer *tracer, struct library *library,
			  const struct nb_mapping *mapping)
{
	enum image_kind kind = tracer__kind_to_attach(tracer, library, mapping);
	struct attach_request request = {
		.pid = mapping->tgid,
		.start = mapping->start,
		.end = mapping->end,
		.kind = kind,
		.program_fd = probe__program_fd(tracer->probe, kind),
		.libraries_fd = probe__libraries_fd(tracer->probe),
		.link = ++tracer->last_link,
		.multi = probe__uses_multi(tracer->probe),
	};
	struct look *look = calloc(1, sizeof(*look));
	struct helper_job job = {
		.work = attach__work,
		.arg = &request,
		.arg_size = sizeof(request),
		.message = on_look_message,
		.done = on_look_done,
		.ctx = look,
		.urgent = kind != IMAGE_NONE,
		.doubtful = mapping->fs_magic == FUSE_MAGIC || library->n_tries,
		.deadline_ns = mapping->fs_magic == FUSE_MAGIC ? 0 : LOOK_NS,
		.keep_fds = {request.program_fd, request.libraries_fd, -1, -1},
	};

	if (!look)
		return;
	*look = (struct look){
		.tracer = tracer,
		.mapping = *mapping,
		.seen_before = library->state == LIBRARY_SEEN,
	};
	if (kind != IMAGE_NONE && libraries__take_index(tracer->libraries, library)) {
		library__fail(tracer->libraries, library, -ENOSPC);
		free(look);
		return;
	}
	request.library = library->index;
	library->state = LIBRARY_WAITING;
	if (helper__run(tracer->helpers, &job)) {
		library__fail(tracer->libraries, library, -ENOMEM);
		free(look);
	}
}

/*
 * libcuda is in every process that uses a GPU, and a probe on it costs each launch of a graph: only
 * where a process with NCCL maps that very file.
 */
static void tracer__attach_cuda(struct tracer *tracer, const struct process *process)
{
	if (!tracer->options.attach || !process__nccl(process))
		return;
	for (unsigned int i = 0; i < process->n_mappings; i++) {
		struct library *library = process->mappings[i].library;

		if (library->kind == IMAGE_CUDA && library->state == LIBRARY_SEEN)
			library__look(tracer, library, &library->mapping);
	}
}

/*
 * Were all creations of communicators seen that the mapping of this library made possible? Then
 * none came before it.
 */
static bool tracer__saw_all(const struct tracer *tracer, const struct library *library,
			    uint64_t since_ns)
{
	return library->state == LIBRARY_TRACED && library->kind == IMAGE_NCCL &&
	       library->traced_ns < since_ns && !tracer->options.probe.only_listed;
}

static void tracer__use(struct tracer *tracer, struct library *library,
			const struct nb_mapping *mapping, uint64_t since_ns)
{
	struct process *process = tracer__add_process(tracer, mapping->tgid);
	bool is_new;

	if (!process)
		return;
	library->unused_since_ns = 0;
	is_new = process__map(process, library, mapping, since_ns);
	tracer__attach_cuda(tracer, process);
	if (!is_new)
		return;
	if (tracer__saw_all(tracer, library, since_ns))
		comms__complete(tracer->comms, process->tgid, since_ns);
	if (process->has_info)
		tracer__scan_later(process, 0, 1);
	tracer__arrange_calls(tracer, now_ns());
}

static void on_mapping(void *ctx, const struct nb_mapping *mapping, uint64_t since_ns)
{
	struct tracer *tracer = ctx;
	const struct inode_key key = inode_key__of(mapping);
	struct library *library;

	if (!tracer__wants_process(tracer, mapping->tgid))
		return;
	library = libraries__find(tracer->libraries, &key);
	if (library)
		library->mapping = *mapping;
	if (!library) {
		library = libraries__add(tracer->libraries, mapping);
		if (library)
			library__look(tracer, library, mapping);
		return;
	}
	if (library->state == LIBRARY_TRACED || library->state == LIBRARY_SEEN ||
	    library->state == LIBRARY_UNSUPPORTED)
		tracer__use(tracer, library, mapping, since_ns);
}

static enum discover_interest interest_in(void *ctx, const struct nb_mapping *file)
{
	struct tracer *tracer = ctx;
	const struct inode_key key = inode_key__of(file);
	const struct library *library = libraries__find(tracer->libraries, &key);

	if (!library)
		return DISCOVER_UNKNOWN;
	if (library->state == LIBRARY_PLAIN || library->state == LIBRARY_UNREADABLE)
		return DISCOVER_NONE;
	return DISCOVER_WANTED;
}

/* As of now: it may have been moved to another cgroup since its last mapping. */
static bool wants(void *ctx, uint32_t tgid)
{
	const struct tracer *tracer = ctx;
	const char *cgroup = tracer->options.cgroup;

	return tracer__asks_for(tracer, tgid) && (!cgroup || procinfo__in_cgroup(tgid, cgroup));
}

static bool on_exec(void *ctx, uint32_t tgid, uint64_t at_ns)
{
	struct tracer *tracer = ctx;
	struct process *process = processes__find(tracer->processes, tgid);

	if (!process)
		return false;
	for (unsigned int i = 0; !process->gone_ns && i < process->n_mappings; i++)
		if (process->mappings[i].since_ns > at_ns)
			return false; /* it is the new program that was looked at */
	tracer__process_ended(tracer, process, at_ns);
	return true;
}

static void on_scanned(void *ctx)
{
	tracer__check_settled(ctx);
}

int tracer__open_discover(struct tracer *tracer)
{
	const struct discover_listener listener = {
		.mapping = on_mapping,
		.interest = interest_in,
		.wants = wants,
		.executed = on_exec,
		.scanned = on_scanned,
		.ctx = tracer,
	};

	return discover__new(&tracer->discover, tracer->probe, tracer->loop, tracer->helpers,
			     &listener);
}

void tracer__rescan_if_due(struct tracer *tracer)
{
	if (!tracer->rescan)
		return;
	tracer->rescan = false;
	discover__scan(tracer->discover, 0, false);
}

int tracer__look_failed(const struct tracer *tracer)
{
	return discover__failed(tracer->discover);
}

void tracer__check_settled(struct tracer *tracer)
{
	if (!tracer->started || tracer->settled || helpers__pending(tracer->helpers) ||
	    tracer->rescan || discover__retries_soon(tracer->discover))
		return;
	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next)
		if (p->scan_due_ns || p->scan_running)
			return;
	tracer->settled = true;
	if (tracer->on_settled)
		tracer->on_settled(tracer->settled_ctx);
}

void tracer__retry_looks(struct tracer *tracer, uint64_t now)
{
	struct library *library, *next;

	for (library = libraries__first(tracer->libraries); library; library = next) {
		next = library->hh.next;
		if (!library->retry_ns || library->retry_ns > now)
			continue;
		library->retry_ns = 0;
		library__look(tracer, library, &library->mapping);
	}
}

/* Probes cost nobody anything where nothing is mapped, but a file without users need not stay. */
void tracer__detach_unused(struct tracer *tracer, uint64_t now)
{
	struct library *library, *next;

	for (library = libraries__first(tracer->libraries); library; library = next) {
		int n, *links;

		next = library->hh.next;
		if (library->state != LIBRARY_TRACED || library->n_processes)
			continue;
		if (!library->unused_since_ns)
			library->unused_since_ns = now;
		if (now - library->unused_since_ns < UNUSED_NS)
			continue;
		tracer__close(tracer, &library->calls.link);
		n = library__take_links(library, &links);
		helpers__close_elsewhere(tracer->helpers, links, n);
		free(links);
		libraries__remove(tracer->libraries, library);
	}
}
