/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a process and two of its threads are doing, by /proc: running, stopped, waiting, and for
 * what. Read in a helper, because a tenant's files may block; the parsers are pure.
 *
 * Formats: proc(5), and do_task_stat() and proc_pid_syscall() in Linux's fs/proc.
 */
#ifndef PROCSTATE_H
#define PROCSTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROCSTATE_MAX_THREADS 1024 /* looked at in one process; the kernel counts them all */
#define PROCSTATE_TEXT	      256  /* holds what procstate_task__describe() says */

enum {
	PROCSTATE_NOT_IN_SYSCALL = -1,
	PROCSTATE_SYSCALL_UNKNOWN = -2,
};

struct procstate_task {
	uint32_t tid; /* 0: not read, the rest means nothing then */
	int32_t syscall;
	char state; /* letter of /proc/PID/stat */
	char pad[3];
	char name[16];
	char wait[48];	/* function of the kernel in which it waits; "": none, or not known */
	char file[128]; /* that the system call is about; "": none, or not known */
};

/* POD: crosses the helper's socket. */
struct procstate {
	struct procstate_task main; /* the first thread */
	struct procstate_task caller;
	uint32_t stop_signal; /* of a stopped process; 0: not known */
	uint32_t tracer_pid;  /* a debugger or strace; 0: none */
	uint32_t n_threads;
	uint32_t n_uninterruptible; /* of those that were looked at */
	uint32_t is_frozen;	    /* 1: by its cgroup */
	uint32_t pad;
};

_Static_assert(sizeof(struct procstate) == 2 * 204 + 24, "no hidden padding");

struct procstate_request {
	uint32_t pid;
	uint32_t caller; /* the thread that called last; 0: not known */
};

/* A helper_work_fn: arg is a struct procstate_request, the reply a struct procstate. -ESRCH: there
 * is no such process. */
int procstate__work(void *arg, int reply_fd);

/* A reply is foreign input: true when it holds what the functions here can produce. */
bool procstate__valid(const struct procstate *state);

/* What the work is made of: texts of three files. 0, or -EBADMSG and nothing is changed. */

/* stat: name, state; and into ret, unless it is NULL, threads and the signal that stopped it. */
int procstate__parse_stat(const char *text, size_t len, struct procstate_task *task,
			  struct procstate *ret);
/* syscall; ret_first: its first argument. */
int procstate__parse_syscall(const char *text, size_t len, struct procstate_task *task,
			     uint64_t *ret_first);
int procstate__parse_wchan(const char *text, size_t len, struct procstate_task *task);

/*
 * One word: "running", "sleeping", "uninterruptible", "stopped", "traced", "zombie", "dead",
 * "idle", "frozen" (by its cgroup), "unknown".
 */
const char *procstate_task__word(const struct procstate *state, const struct procstate_task *task);

/* The same, and what it waits for, for an admin: "sleeping in futex (futex_wait_queue)". */
const char *procstate_task__describe(const struct procstate *state,
				     const struct procstate_task *task, char buf[PROCSTATE_TEXT]);

/* NULL: the table does not have it. */
const char *procstate__syscall_name(int32_t number);
/* Is its first argument a file descriptor? */
bool procstate__syscall_takes_fd(int32_t number);

#endif
