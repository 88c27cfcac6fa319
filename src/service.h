/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a service manager is told: the protocol of sd_notify(3), without its library. Datagrams of
 * `NAME=value` lines go to the socket that $NOTIFY_SOCKET names.
 */
#ifndef SERVICE_H
#define SERVICE_H

#include "loop.h"

struct service;

/*
 * Joins the manager that started this process; where there is none, *ret is NULL, and that is no
 * error. Where it watches ($WATCHDOG_USEC, for this process by $WATCHDOG_PID), the loop sends it a
 * sign of life twice in that time: a loop that hangs sends none. 0, -EPROTO where the environment
 * is not what a manager sets, or -errno.
 */
int service__new(struct service **ret, struct loop *loop);
void service__free(struct service *service);

/*
 * Tells it, "READY=1" for one; nothing where service is NULL. A manager that does not read must not
 * hold us up: what its socket has no room for is dropped.
 */
void __attribute__((format(printf, 2, 3)))
service__tell(struct service *service, const char *format, ...);

#endif
