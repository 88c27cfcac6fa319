/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "service.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "util.h"

struct service {
	int fd;
	struct sockaddr_un address;
	socklen_t address_len;
	struct loop *loop;
	struct loop_source *watchdog; /* NULL: it does not watch */
};

/* A path, or `@name` for an abstract one. systemd has others, too, for virtual machines. */
static int service__set_address(struct service *service, const char *name)
{
	size_t len = strlen(name);

	if ((name[0] != '/' && name[0] != '@') || !name[1] ||
	    len >= sizeof(service->address.sun_path))
		return -EPROTO;
	service->address.sun_family = AF_UNIX;
	memcpy(service->address.sun_path, name, len);
	if (name[0] == '@')
		service->address.sun_path[0] = 0;
	service->address_len = offsetof(struct sockaddr_un, sun_path) + len;
	return 0;
}

static int parse_decimal(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno || end == text || *end || *text == '-' ? -EPROTO : 0;
}

static void on_watchdog(void *ctx)
{
	service__tell(ctx, "WATCHDOG=1");
}

static int service__start_watchdog(struct service *service)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t watch_us, watched, period_ns;

	if (!usec)
		return 0;
	if (parse_decimal(usec, &watch_us) || !watch_us || watch_us > UINT64_MAX / 1000)
		return -EPROTO;
	if (pid && parse_decimal(pid, &watched))
		return -EPROTO;
	if (pid && watched != (uint64_t)getpid())
		return 0;
	period_ns = watch_us * 1000 / 2;
	return loop__add_timer(service->loop, period_ns, period_ns, on_watchdog, service,
			       &service->watchdog);
}

int service__new(struct service **ret, struct loop *loop)
{
	const char *name = getenv("NOTIFY_SOCKET");
	struct service *service;
	int err;

	*ret = NULL;
	if (!name)
		return 0;
	service = calloc(1, sizeof(*service));
	if (!service)
		return -ENOMEM;
	service->loop = loop;
	service->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	err = service->fd < 0 ? -errno : service__set_address(service, name);
	err = err ?: service__start_watchdog(service);
	if (err) {
		service__free(service);
		return err;
	}
	*ret = service;
	return 0;
}

void service__free(struct service *service)
{
	if (!service)
		return;
	loop__remove(service->loop, service->watchdog);
	if (service->fd >= 0)
		close(service->fd);
	free(service);
}

void service__tell(struct service *service, const char *format, ...)
{
	char text[512];
	va_list args;
	int len;

	if (!service)
		return;
	va_start(args, format);
	len = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (len < 0 || (size_t)len >= sizeof(text))
		return;
	(void)!sendto(service->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL,
		      (const struct sockaddr *)&service->address, service->address_len);
}
