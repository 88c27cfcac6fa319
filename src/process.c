/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "process.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util.h"

struct processes {
	struct process *all;
	struct loop *loop;
};

int processes__new(struct processes **ret, struct loop *loop)
{
	struct processes *processes = calloc(1, sizeof(*processes));

	if (!processes)
		return -ENOMEM;
	processes->loop = loop;
	*ret = processes;
	return 0;
}

void processes__remove(struct processes *processes, struct process *process)
{
	for (unsigned int i = 0; i < process->n_mappings; i++) {
		process->mappings[i].library->n_processes--;
		if (process->mappings[i].link >= 0)
			close(process->mappings[i].link);
	}
	loop__remove(processes->loop, process->exit);
	if (process->pidfd >= 0)
		close(process->pidfd);
	HASH_DEL(processes->all, process);
	free(process);
}

bool process__has_ended(const struct process *process)
{
	struct pollfd fd = {.fd = process->pidfd, .events = POLLIN};

	return poll(&fd, 1, 0) > 0;
}

void processes__free(struct processes *processes)
{
	if (!processes)
		return;
	while (processes->all)
		processes__remove(processes, processes->all);
	free(processes);
}

struct process *processes__find(struct processes *processes, uint32_t tgid)
{
	struct process *process;

	HASH_FIND(hh, processes->all, &tgid, sizeof(tgid), process);
	return process;
}

struct process *processes__first(struct processes *processes)
{
	return processes->all;
}

struct process *processes__add(struct processes *processes, uint32_t tgid, uint64_t now,
			       loop_fn *on_exit)
{
	struct process *process = calloc(1, sizeof(*process));

	if (!process)
		return NULL;
	process->tgid = tgid;
	process->is_undated = true;
	process->seen_ns = now;
	process->pidfd = syscall(SYS_pidfd_open, tgid, 0);
	if (process->pidfd < 0 ||
	    loop__add_fd(processes->loop, process->pidfd, on_exit, process, &process->exit)) {
		if (process->pidfd >= 0)
			close(process->pidfd);
		free(process);
		return NULL;
	}
	HASH_ADD(hh, processes->all, tgid, sizeof(process->tgid), process);
	return process;
}

bool process__map(struct process *process, struct library *library,
		  const struct nb_mapping *mapping, uint64_t since_ns)
{
	struct process_mapping *m;

	for (unsigned int i = 0; i < process->n_mappings; i++)
		if (process->mappings[i].library == library)
			return false;
	if (process->n_mappings == PROCESS_MAX_MAPPINGS)
		return false;
	m = &process->mappings[process->n_mappings++];
	m->library = library;
	m->link = -1;
	m->start = mapping->start;
	m->end = mapping->end;
	m->file_offset = mapping->file_offset;
	m->since_ns = since_ns;
	library->n_processes++;
	return true;
}

const struct process_mapping *process__plugin_mapping(const struct process *process)
{
	for (unsigned int i = 0; i < process->n_mappings; i++)
		if (process->mappings[i].library->kind == IMAGE_PLUGIN)
			return &process->mappings[i];
	return NULL;
}

const struct process_mapping *process__foreign_mapping(const struct process *process,
						       unsigned int n)
{
	for (unsigned int i = 0; i < process->n_mappings; i++)
		if (process->mappings[i].library->kind == IMAGE_FOREIGN && !n--)
			return &process->mappings[i];
	return NULL;
}

int process__foreign_version(const struct process *process, const char **ret_why)
{
	const struct process_mapping *mapping = process__foreign_mapping(process, 0);
	const struct library *nccl = process__nccl(process);

	if (process__foreign_mapping(process, 1)) {
		*ret_why = "there is a second one, and which NCCL calls is not known";
		return 0;
	}
	return foreign_tables__choose(&mapping->library->tables, nccl ? nccl->image.version : 0,
				      ret_why);
}

enum plugin_state process__plugin(const struct process *process)
{
	if (process->plugin_heard_ns || process->plugin_raised)
		return PLUGIN_ACTIVE;
	return process__plugin_mapping(process) ? PLUGIN_IDLE : PLUGIN_ABSENT;
}

const char *plugin_state__name(enum plugin_state state)
{
	static const char *const names[] = {
		[PLUGIN_ABSENT] = "absent",
		[PLUGIN_IDLE] = "idle",
		[PLUGIN_ACTIVE] = "active",
	};

	return names[state];
}

static int usefulness(const struct library *library)
{
	if (!library__may_be_nccl(library))
		return 0;
	switch (library->state) {
	case LIBRARY_TRACED:
		return 3;
	case LIBRARY_SEEN:
		return 2;
	case LIBRARY_UNSUPPORTED:
		return 1;
	default:
		return 0;
	}
}

const struct process_mapping *process__nccl_mapping(const struct process *process)
{
	const struct process_mapping *best = NULL;

	for (unsigned int i = 0; i < process->n_mappings; i++) {
		const struct process_mapping *m = &process->mappings[i];

		if (usefulness(m->library) > (best ? usefulness(best->library) : 0))
			best = m;
	}
	return best;
}

struct library *process__nccl(const struct process *process)
{
	const struct process_mapping *m = process__nccl_mapping(process);

	return m ? m->library : NULL;
}
