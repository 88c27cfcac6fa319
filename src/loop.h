/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One thread, one epoll set: file descriptors and timers call back. */
#ifndef LOOP_H
#define LOOP_H

#include <stdint.h>

struct loop;
struct loop_source;

typedef void loop_fn(void *ctx);

/* 0 or -errno. */
int loop__new(struct loop **ret);
void loop__free(struct loop *loop);

/* Calls fn when fd is readable or hung up. The fd stays the caller's. */
int loop__add_fd(struct loop *loop, int fd, loop_fn *fn, void *ctx, struct loop_source **ret);

/*
 * A timer: first after first_ns, then every period_ns (0: once). loop_source__set_timer() sets it
 * anew; 0 and 0 stop it.
 */
int loop__add_timer(struct loop *loop, uint64_t first_ns, uint64_t period_ns, loop_fn *fn,
		    void *ctx, struct loop_source **ret);
int loop_source__set_timer(struct loop_source *source, uint64_t first_ns, uint64_t period_ns);

/* Safe inside callbacks, its own too; takes NULL. A timer's fd is closed. */
void loop__remove(struct loop *loop, struct loop_source *source);

/* Dispatches until loop__stop(); returns the status given there, or -errno. */
int loop__run(struct loop *loop);
void loop__stop(struct loop *loop, int status);

#endif
