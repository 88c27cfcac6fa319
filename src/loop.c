/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "loop.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "util.h"

struct loop_source {
	int fd;
	bool is_timer, dead;
	loop_fn *fn;
	void *ctx;
	struct loop_source *next_dead;
};

struct loop {
	int epoll_fd, status;
	bool stopped;
	struct loop_source *dead; /* removed; freed when no event can name them any more */
};

int loop__new(struct loop **ret)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	int err;

	if (!loop)
		return -ENOMEM;
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0) {
		err = -errno;
		free(loop);
		return err;
	}
	*ret = loop;
	return 0;
}

static void loop__bury(struct loop *loop)
{
	while (loop->dead) {
		struct loop_source *source = loop->dead;

		loop->dead = source->next_dead;
		free(source);
	}
}

void loop__free(struct loop *loop)
{
	if (!loop)
		return;
	loop__bury(loop);
	close(loop->epoll_fd);
	free(loop);
}

int loop__add_fd(struct loop *loop, int fd, loop_fn *fn, void *ctx, struct loop_source **ret)
{
	struct loop_source *source = calloc(1, sizeof(*source));
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

	if (!source)
		return -ENOMEM;
	*source = (struct loop_source){.fd = fd, .fn = fn, .ctx = ctx};
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
		int err = -errno;

		free(source);
		return err;
	}
	*ret = source;
	return 0;
}

static struct timespec ns_to_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = ns / NSEC_PER_SEC, .tv_nsec = ns % NSEC_PER_SEC};
}

int loop_source__set_timer(struct loop_source *source, uint64_t first_ns, uint64_t period_ns)
{
	struct itimerspec spec = {
		.it_value = ns_to_timespec(first_ns),
		.it_interval = ns_to_timespec(period_ns),
	};

	return timerfd_settime(source->fd, 0, &spec, NULL) ? -errno : 0;
}

int loop__add_timer(struct loop *loop, uint64_t first_ns, uint64_t period_ns, loop_fn *fn,
		    void *ctx, struct loop_source **ret)
{
	int err, fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	if (fd < 0)
		return -errno;
	err = loop__add_fd(loop, fd, fn, ctx, ret);
	if (err) {
		close(fd);
		return err;
	}
	(*ret)->is_timer = true;
	return loop_source__set_timer(*ret, first_ns, period_ns);
}

void loop__remove(struct loop *loop, struct loop_source *source)
{
	if (!source || source->dead)
		return;
	source->dead = true;
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
	if (source->is_timer)
		close(source->fd);
	source->next_dead = loop->dead;
	loop->dead = source;
}

static void loop_source__dispatch(struct loop_source *source)
{
	uint64_t expirations;

	if (source->dead)
		return;
	if (source->is_timer && read(source->fd, &expirations, sizeof(expirations)) < 0)
		return; /* set anew since */
	source->fn(source->ctx);
}

int loop__run(struct loop *loop)
{
	struct epoll_event events[64];

	for (loop->stopped = false; !loop->stopped;) {
		int n = epoll_wait(loop->epoll_fd, events, ARRAY_SIZE(events), -1);

		if (n < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < n && !loop->stopped; i++)
			loop_source__dispatch(events[i].data.ptr);
		loop__bury(loop);
	}
	return loop->status;
}

void loop__stop(struct loop *loop, int status)
{
	loop->stopped = true;
	loop->status = status;
}
