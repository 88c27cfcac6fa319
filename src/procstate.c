/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The reading of /proc, in a helper. */
#include "procstate.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "helper.h"
#include "proc_file.h"
#include "util.h"

/* The name behind a descriptor: a path, "socket:[123]". Following the link would touch the file. */
static void read_fd(uint32_t pid, uint64_t fd, struct procstate_task *task)
{
	char path[64];

	if (fd > INT32_MAX)
		return;
	snprintf(path, sizeof(path), "/proc/%u/fd/%" PRIu64, pid, fd);
	if (readlink(path, task->file, sizeof(task->file) - 1) < 0)
		task->file[0] = 0;
}

/* state: of the whole process, to be filled with its first thread; else NULL. */
static int read_task(uint32_t pid, uint32_t tid, struct procstate_task *task,
		     struct procstate *state)
{
	char name[48], text[1024];
	uint64_t first = 0;
	ssize_t n;

	task->syscall = PROCSTATE_SYSCALL_UNKNOWN;
	snprintf(name, sizeof(name), "task/%u/stat", tid);
	n = proc_file__read(pid, name, text, sizeof(text));
	if (n < 0)
		return n == -ENOENT ? -ESRCH : n;
	if (procstate__parse_stat(text, n, task, state))
		return -EBADMSG;
	task->tid = tid;
	snprintf(name, sizeof(name), "task/%u/wchan", tid);
	n = proc_file__read(pid, name, text, sizeof(text));
	if (n >= 0)
		procstate__parse_wchan(text, n, task);
	snprintf(name, sizeof(name), "task/%u/syscall", tid);
	n = proc_file__read(pid, name, text, sizeof(text));
	if (n >= 0 && !procstate__parse_syscall(text, n, task, &first) &&
	    procstate__syscall_takes_fd(task->syscall))
		read_fd(pid, first, task);
	return 0;
}

static uint32_t read_tracer(uint32_t pid)
{
	static const char key[] = "\nTracerPid:";
	char text[4096], *at;

	if (proc_file__read(pid, "status", text, sizeof(text)) < 0)
		return 0;
	at = strstr(text, key); /* the name in the first line has its newlines escaped */
	return at ? strtoul(at + strlen(key), NULL, 10) : 0;
}

static uint32_t count_uninterruptible(uint32_t pid)
{
	struct procstate_task task;
	char name[300], text[1024];
	struct dirent *entry;
	uint32_t n = 0;
	ssize_t len;
	DIR *dir;

	snprintf(name, sizeof(name), "/proc/%u/task", pid);
	dir = opendir(name);
	if (!dir)
		return 0;
	for (unsigned int i = 0; i < PROCSTATE_MAX_THREADS && (entry = readdir(dir));) {
		if (entry->d_name[0] == '.')
			continue;
		i++;
		snprintf(name, sizeof(name), "task/%s/stat", entry->d_name);
		len = proc_file__read(pid, name, text, sizeof(text));
		if (len > 0 && !procstate__parse_stat(text, len, &task, NULL))
			n += task.state == 'D';
	}
	closedir(dir);
	return n;
}

/* Does a file of the cgroup hold that line? */
static bool cgroup_says(const char *root, const char *path, const char *file, const char *line)
{
	_cleanup_fclose_ FILE *stream = NULL;
	char name[4200], found[64];

	snprintf(name, sizeof(name), "%s%s/%s", root, path, file);
	stream = fopen(name, "re");
	while (stream && fgets(found, sizeof(found), stream))
		if (!strcmp(found, line))
			return true;
	return false;
}

/* Where cgroups are usually mounted: version 2 alone, and beside version 1. */
static bool read_frozen(uint32_t pid)
{
	char text[8192], *line, *rest = text;

	if (proc_file__read(pid, "cgroup", text, sizeof(text)) < 0)
		return false;
	while ((line = strsep(&rest, "\n"))) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = 0;
		if (!strcmp(controllers, ":freezer") &&
		    cgroup_says("/sys/fs/cgroup/freezer", path, "freezer.state", "FROZEN\n"))
			return true;
		if (!strcmp(controllers, ":") &&
		    (cgroup_says("/sys/fs/cgroup", path, "cgroup.events", "frozen 1\n") ||
		     cgroup_says("/sys/fs/cgroup/unified", path, "cgroup.events", "frozen 1\n")))
			return true;
	}
	return false;
}

int procstate__work(void *arg, int reply_fd)
{
	const struct procstate_request *request = arg;
	struct procstate state = {};
	int err = read_task(request->pid, request->pid, &state.main, &state);

	if (err)
		return err;
	if (request->caller && request->caller != request->pid)
		read_task(request->pid, request->caller, &state.caller, NULL);
	state.tracer_pid = read_tracer(request->pid);
	state.n_uninterruptible = count_uninterruptible(request->pid);
	state.is_frozen = read_frozen(request->pid);
	return helper__reply(reply_fd, &state, sizeof(state), NULL, 0);
}
