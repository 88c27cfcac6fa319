/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper_child.h"
#include "util.h"

#define MAX_RUNNING 4
#define MAX_STUCK   16 /* children that cannot die; doubtful work is refused past it */

struct helper {
	struct helpers *all;
	struct helper *next;
	struct helper_job job;
	void *arg;
	pid_t pid; /* 0: queued */
	int fd, status;
	struct loop_source *readable, *deadline;
};

/* A child that is not dead yet: it tears something down, or waits where no signal ends it. */
struct zombie {
	pid_t pid;
	struct zombie *next;
};

struct helper_queue {
	struct helper *first, **tail;
	unsigned int n;
};

struct helpers {
	struct loop *loop;
	uint64_t deadline_ns;
	struct helper *running;
	struct helper_queue queue, doubtful;
	struct zombie *zombies;
	unsigned int n_running, n_doubtful, n_zombies;
	char *buffer;
};

int helpers__new(struct helpers **ret, struct loop *loop, uint64_t deadline_ns)
{
	struct helpers *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	h->buffer = malloc(sizeof(struct envelope) + HELPER_MAX_MESSAGE);
	if (!h->buffer) {
		free(h);
		return -ENOMEM;
	}
	h->loop = loop;
	h->deadline_ns = deadline_ns;
	h->queue.tail = &h->queue.first;
	h->doubtful.tail = &h->doubtful.first;
	*ret = h;
	return 0;
}

static void helpers__reap(struct helpers *h)
{
	struct zombie **at = &h->zombies;

	while (*at) {
		struct zombie *z = *at;

		if (waitpid(z->pid, NULL, WNOHANG) == 0) {
			at = &z->next;
			continue;
		}
		*at = z->next;
		h->n_zombies--;
		free(z);
	}
}

/* Never blocks on a child that cannot die yet. */
static void helpers__bury(struct helpers *h, pid_t pid)
{
	struct zombie *z;

	if (waitpid(pid, NULL, WNOHANG) != 0)
		return;
	z = malloc(sizeof(*z));
	if (!z)
		return;
	*z = (struct zombie){.pid = pid, .next = h->zombies};
	h->zombies = z;
	h->n_zombies++;
}

static void helper__kill(struct helper *helper)
{
	kill(helper->pid, SIGKILL);
	helpers__bury(helper->all, helper->pid);
}

static void helper__free(struct helper *helper)
{
	if (helper->pid) {
		loop__remove(helper->all->loop, helper->readable);
		loop__remove(helper->all->loop, helper->deadline);
		close(helper->fd);
	}
	free(helper->arg);
	free(helper);
}

static struct helper *helper_queue__pop(struct helper_queue *queue)
{
	struct helper *helper = queue->first;

	if (!helper)
		return NULL;
	queue->first = helper->next;
	if (!queue->first)
		queue->tail = &queue->first;
	queue->n--;
	return helper;
}

static void helper_queue__push(struct helper_queue *queue, struct helper *helper)
{
	if (helper->job.urgent) {
		helper->next = queue->first;
		queue->first = helper;
	} else {
		*queue->tail = helper;
	}
	if (!helper->next)
		queue->tail = &helper->next;
	queue->n++;
}

void helpers__free(struct helpers *h)
{
	struct helper *helper;

	if (!h)
		return;
	while ((helper = h->running)) {
		h->running = helper->next;
		helper__kill(helper);
		helper__free(helper);
	}
	while ((helper = helper_queue__pop(&h->queue) ?: helper_queue__pop(&h->doubtful)))
		helper__free(helper);
	helpers__reap(h);
	while (h->zombies) {
		struct zombie *z = h->zombies;

		h->zombies = z->next;
		free(z);
	}
	free(h->buffer);
	free(h);
}

static void helpers__start_queued(struct helpers *h);

static void helper__finish(struct helper *helper, int status)
{
	struct helpers *h = helper->all;
	struct helper **at;

	for (at = &h->running; *at != helper; at = &(*at)->next)
		;
	*at = helper->next;
	h->n_running--;
	h->n_doubtful -= helper->job.doubtful;
	helper->job.done(helper->job.ctx, status);
	helper__free(helper);
	helpers__reap(h);
	helpers__start_queued(h);
}

static void helper__on_deadline(void *ctx)
{
	struct helper *helper = ctx;

	helper__kill(helper);
	helper__finish(helper, -ETIMEDOUT);
}

static int collect_fds(struct msghdr *msg, int *fds)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	int n;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return 0;
	n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(fds, CMSG_DATA(c), n * sizeof(int));
	return n;
}

static void helper__deliver(struct helper *helper, const char *buffer, ssize_t len, int flags,
			    const int *fds, int n_fds)
{
	const struct envelope *envelope = (const void *)buffer;

	if (envelope->is_status) {
		helper->status = envelope->status;
	} else if (helper->job.message && !(flags & (MSG_TRUNC | MSG_CTRUNC))) {
		helper->job.message(helper->job.ctx, buffer + sizeof(*envelope),
				    len - sizeof(*envelope), fds, n_fds);
		return;
	}
	while (n_fds > 0)
		close(fds[--n_fds]);
}

static void helper__on_readable(void *ctx)
{
	struct helper *helper = ctx;
	union {
		char space[CMSG_SPACE(HELPER_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {
		.iov_base = helper->all->buffer,
		.iov_len = sizeof(struct envelope) + HELPER_MAX_MESSAGE,
	};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	int fds[HELPER_MAX_FDS];
	ssize_t len = recvmsg(helper->fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (len < (ssize_t)sizeof(struct envelope)) {
		helpers__bury(helper->all, helper->pid);
		helper__finish(helper, helper->status);
		return;
	}
	helper__deliver(helper, iov.iov_base, len, msg.msg_flags, fds, collect_fds(&msg, fds));
}

static int helper__start(struct helper *helper)
{
	struct helpers *h = helper->all;
	int err, socks[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks))
		return -errno;
	helper->pid = fork();
	if (helper->pid == 0)
		helper_child__run(&helper->job, helper->arg, socks[1]);
	close(socks[1]);
	if (helper->pid < 0) {
		err = -errno;
		helper->pid = 0;
		close(socks[0]);
		return err;
	}
	helper->fd = socks[0];
	helper->next = h->running;
	h->running = helper;
	h->n_running++;
	h->n_doubtful += helper->job.doubtful;
	err = loop__add_fd(h->loop, helper->fd, helper__on_readable, helper, &helper->readable);
	return err
		       ?: loop__add_timer(h->loop, helper->job.deadline_ns ?: h->deadline_ns, 0,
					  helper__on_deadline, helper, &helper->deadline);
}

static struct helper *helpers__next(struct helpers *h)
{
	struct helper *helper = NULL;

	if (h->n_running >= MAX_RUNNING)
		return NULL;
	if (!h->n_doubtful)
		helper = helper_queue__pop(&h->doubtful);
	return helper ?: helper_queue__pop(&h->queue);
}

static void helpers__start_queued(struct helpers *h)
{
	struct helper *helper;

	while ((helper = helpers__next(h))) {
		bool refused = helper->job.doubtful && h->n_zombies >= MAX_STUCK;
		int err = refused ? -ETIMEDOUT : helper__start(helper);

		if (!err)
			continue;
		if (helper->pid) {
			helper__kill(helper);
			helper__finish(helper, err);
			return;
		}
		helper->job.done(helper->job.ctx, err);
		helper__free(helper);
	}
}

int helper__run(struct helpers *h, const struct helper_job *job)
{
	struct helper *helper = calloc(1, sizeof(*helper));

	if (!helper)
		return -ENOMEM;
	helper->arg = malloc(job->arg_size ?: 1);
	if (!helper->arg) {
		free(helper);
		return -ENOMEM;
	}
	if (job->arg_size)
		memcpy(helper->arg, job->arg, job->arg_size);
	helper->all = h;
	helper->job = *job;
	helper->status = -ECHILD; /* until the child's last word */
	helper->next = NULL;
	helper_queue__push(job->doubtful ? &h->doubtful : &h->queue, helper);
	helpers__start_queued(h);
	return 0;
}

unsigned int helpers__pending(const struct helpers *h)
{
	return h->n_running + h->queue.n + h->doubtful.n;
}

void helpers__run_last(struct helpers *h, helper_work_fn *work, void *arg, uint64_t wait_ns)
{
	const struct timespec pause = {.tv_nsec = NSEC_PER_MSEC};
	const int nothing = -1;
	uint64_t until = now_ns() + wait_ns;
	pid_t pid = fork();

	if (pid == 0) {
		helper_child__hold_only(&nothing, 1, -1);
		_exit(work(arg, -1) ? 1 : 0);
	}
	if (pid < 0)
		return;
	while (waitpid(pid, NULL, WNOHANG) == 0) {
		if (now_ns() > until) {
			helpers__bury(h, pid);
			return;
		}
		nanosleep(&pause, NULL);
	}
}

void helpers__close_elsewhere(struct helpers *h, const int *fds, int n_fds)
{
	int hold[2];
	char byte;
	pid_t pid = pipe2(hold, O_CLOEXEC) ? -1 : fork();

	if (pid == 0) {
		helper_child__hold_only(fds, n_fds, hold[0]);
		while (read(hold[0], &byte, 1) < 0 && errno == EINTR)
			;
		_exit(0);
	}
	for (int i = 0; i < n_fds; i++)
		close(fds[i]);
	if (pid < 0)
		return;
	close(hold[0]);
	close(hold[1]);
	helpers__bury(h, pid);
}
