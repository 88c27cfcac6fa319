/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Work that touches a tenant's memory or files, done in a forked child with a deadline: a FUSE
 * mount that never answers costs a child, never the loop. Replies come back over a socket and are
 * foreign input to whoever reads them.
 */
#ifndef HELPER_H
#define HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop.h"

#define HELPER_MAX_MESSAGE 65536
#define HELPER_MAX_FDS	   64

struct helpers;

/* Runs in the child; its return value, 0 or -errno, becomes the status. */
typedef int helper_work_fn(void *arg, int reply_fd);

/* One message of the child. The fds are the callee's to keep or close. */
typedef void helper_message_fn(void *ctx, const void *data, size_t len, const int *fds, int n_fds);

/* Last call for a job: 0, the child's -errno, -ETIMEDOUT (killed), or -ECHILD (it died). */
typedef void helper_done_fn(void *ctx, int status);

struct helper_job {
	helper_work_fn *work;
	void *arg; /* read by the child only, copied at fork: must live until helper__run() returns
		    */
	size_t arg_size;	    /* helper__run() keeps a copy of so many bytes */
	helper_message_fn *message; /* may be NULL */
	helper_done_fn *done;
	void *ctx;
	bool urgent; /* goes before the others in the queue */
	/* May well wait until its deadline: one such job at a time, so that others have room. */
	bool doubtful;
	uint64_t deadline_ns; /* 0: the one given to helpers__new() */
	int keep_fds[4];      /* fds the child may use, -1 pads; all others are closed there */
};

int helpers__new(struct helpers **ret, struct loop *loop, uint64_t deadline_ns);

/* Kills what still runs; done() is not called for it. Takes NULL. */
void helpers__free(struct helpers *helpers);

/* Starts the job, or queues it behind those that run. 0 or -errno. */
int helper__run(struct helpers *helpers, const struct helper_job *job);

/* Jobs running or queued. */
unsigned int helpers__pending(const struct helpers *helpers);

/*
 * Closes fds (links, say) where the time that takes is nobody's: a child holds copies until we have
 * closed ours, so that the last close, with all it must undo, is its own. Closes here if it cannot
 * fork.
 */
void helpers__close_elsewhere(struct helpers *helpers, const int *fds, int n_fds);

/*
 * What must still be done when the loop has ended: in a child, waited for at most so long. It is
 * left behind then, and ends with its work.
 */
void helpers__run_last(struct helpers *helpers, helper_work_fn *work, void *arg, uint64_t wait_ns);

/* In the child: sends one message, with n_fds descriptors. 0 or -errno. */
int helper__reply(int reply_fd, const void *data, size_t len, const int *fds, int n_fds);

#endif
