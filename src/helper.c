/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/close_range.h>

#include "util.h"

#define MAX_RUNNING 4

/* In front of every message: data for the caller, or the child's last word. */
struct envelope {
	int32_t is_status, status;
};

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

struct helpers {
	struct loop *loop;
	uint64_t deadline_ns;
	struct helper *running, *queue, **queue_tail;
	struct zombie *zombies;
	unsigned int n_running, n_queued;
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
	h->queue_tail = &h->queue;
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
	while ((helper = h->queue)) {
		h->queue = helper->next;
		helper__free(helper);
	}
	helpers__reap(h);
	while (h->zombies) {
		struct zombie *z = h->zombies;

		h->zombies = z->next;
		free(z);
	}
	free(h->buffer);
	free(h);
}

static int compare_fds(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Closes everything above stderr but the given fds; a stuck child must hold nothing of ours. */
static void close_others(const int *keep, int sock)
{
	int fds[ARRAY_SIZE(((struct helper_job *)0)->keep_fds) + 1];
	unsigned int from = STDERR_FILENO + 1;

	memcpy(fds, keep, sizeof(fds) - sizeof(int));
	fds[ARRAY_SIZE(fds) - 1] = sock;
	qsort(fds, ARRAY_SIZE(fds), sizeof(int), compare_fds);
	for (unsigned int i = 0; i < ARRAY_SIZE(fds); i++) {
		if (fds[i] < (int)from)
			continue;
		if (fds[i] > (int)from)
			close_range(from, fds[i] - 1, 0);
		from = fds[i] + 1;
	}
	close_range(from, ~0U, 0);
}

/* Whoever reads our output waits for its last holder: that must not be a child that cannot die. */
static void let_go_of_output(void)
{
	int fd = open("/dev/null", O_RDWR);

	for (int i = STDIN_FILENO; fd >= 0 && i <= STDERR_FILENO; i++)
		dup2(fd, i);
	if (fd > STDERR_FILENO)
		close(fd);
}

static int send_message(int fd, const struct envelope *envelope, struct msghdr *msg,
			struct iovec *payload)
{
	struct iovec iov[2] = {
		{.iov_base = (void *)envelope, .iov_len = sizeof(*envelope)},
		*payload,
	};

	msg->msg_iov = iov;
	msg->msg_iovlen = ARRAY_SIZE(iov);
	return sendmsg(fd, msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void __attribute__((noreturn)) helper__child(struct helper *helper, int sock)
{
	struct envelope last = {.is_status = 1};
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "nccl-bpf:helper");
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	close_others(helper->job.keep_fds, sock);
	let_go_of_output();
	last.status = helper->job.work(helper->arg, sock);
	send_message(sock, &last, &(struct msghdr){}, &(struct iovec){});
	_exit(0);
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
		helper__child(helper, socks[1]);
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
	err = loop__add_fd(h->loop, helper->fd, helper__on_readable, helper, &helper->readable);
	return err ?: loop__add_timer(h->loop, h->deadline_ns, 0, helper__on_deadline, helper,
				      &helper->deadline);
}

static void helpers__start_queued(struct helpers *h)
{
	while (h->queue && h->n_running < MAX_RUNNING) {
		struct helper *helper = h->queue;
		int err;

		h->queue = helper->next;
		if (!h->queue)
			h->queue_tail = &h->queue;
		h->n_queued--;
		err = helper__start(helper);
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

static void helpers__enqueue(struct helpers *h, struct helper *helper)
{
	if (helper->job.urgent) {
		helper->next = h->queue;
		h->queue = helper;
	} else {
		*h->queue_tail = helper;
	}
	if (!helper->next)
		h->queue_tail = &helper->next;
	h->n_queued++;
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
	memcpy(helper->arg, job->arg, job->arg_size);
	helper->all = h;
	helper->job = *job;
	helper->status = -ECHILD; /* until the child's last word */
	helpers__enqueue(h, helper);
	helpers__start_queued(h);
	return 0;
}

unsigned int helpers__pending(const struct helpers *h)
{
	return h->n_running + h->n_queued;
}

int helper__reply(int reply_fd, const void *data, size_t len, const int *fds, int n_fds)
{
	union {
		char space[CMSG_SPACE(HELPER_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control = {};
	struct iovec payload = {.iov_base = (void *)data, .iov_len = len};
	struct msghdr msg = {};
	struct cmsghdr *c;

	if (len > HELPER_MAX_MESSAGE || n_fds < 0 || n_fds > HELPER_MAX_FDS)
		return -E2BIG;
	if (n_fds) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	return send_message(reply_fd, &(struct envelope){}, &msg, &payload);
}

void helpers__close_elsewhere(struct helpers *h, const int *fds, int n_fds)
{
	int hold[2];
	char byte;
	pid_t pid = pipe2(hold, O_CLOEXEC) ? -1 : fork();

	if (pid == 0) {
		close(hold[1]);
		let_go_of_output();
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
