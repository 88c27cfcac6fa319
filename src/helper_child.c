/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "helper_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <linux/close_range.h>

#include "util.h"

static int compare_fds(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static void close_others(int *fds, int n_fds)
{
	unsigned int from = STDERR_FILENO + 1;

	qsort(fds, n_fds, sizeof(int), compare_fds);
	for (int i = 0; i < n_fds; i++) {
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

void helper_child__hold_only(const int *fds, int n_fds, int fd)
{
	int all[HELPER_MAX_FDS + 1];

	memcpy(all, fds, n_fds * sizeof(int));
	all[n_fds] = fd;
	close_others(all, n_fds + 1);
	let_go_of_output();
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

void helper_child__run(const struct helper_job *job, void *arg, int sock)
{
	struct envelope last = {.is_status = 1};
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "nccl-bpf:helper");
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	helper_child__hold_only(job->keep_fds, ARRAY_SIZE(job->keep_fds), sock);
	last.status = job->work(arg, sock);
	send_message(sock, &last, &(struct msghdr){}, &(struct iovec){});
	_exit(0);
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
