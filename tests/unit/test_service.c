/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "../../src/loop.c"
#include "../../src/service.c"

/* A manager's socket, abstract, and the environment that names it. */
static int manager__open(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int len = snprintf(address.sun_path, sizeof(address.sun_path), "@nccl-bpftrace-test.%d",
			   getpid());

	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	address.sun_path[0] = 0;
	CHECK_INT(
		bind(fd, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + len),
		0);
	return fd;
}

static const char *manager__hears(int fd, char *text, size_t size)
{
	ssize_t len = recv(fd, text, size - 1, MSG_DONTWAIT);

	text[len < 0 ? 0 : len] = 0;
	return text;
}

TEST(without_a_manager_nothing_is_told)
{
	struct service *service = (void *)1;

	unsetenv("NOTIFY_SOCKET");
	setenv("WATCHDOG_USEC", "not looked at", 1);
	CHECK_INT(service__new(&service, NULL), 0);
	CHECK(!service);
	service__tell(service, "READY=%d", 1);
	service__free(service);
}

TEST(it_is_told)
{
	_cleanup_close_ int fd = manager__open();
	struct service *service;
	char text[600];

	CHECK_INT(service__new(&service, NULL), 0);
	service__tell(service, "READY=1");
	CHECK_STR(manager__hears(fd, text, sizeof(text)), "READY=1");
	service__tell(service, "STATUS=%d processes, %s", 8, "all well");
	CHECK_STR(manager__hears(fd, text, sizeof(text)), "STATUS=8 processes, all well");
	service__tell(service, "STATUS=%0*d", 504, 0);
	CHECK_INT(strlen(manager__hears(fd, text, sizeof(text))), 511);
	service__tell(service, "STATUS=%0*d", 505, 0); /* too long is not cut, but left out */
	CHECK_STR(manager__hears(fd, text, sizeof(text)), "");
	service__free(service);
}

TEST(a_manager_that_does_not_read_holds_nobody_up)
{
	_cleanup_close_ int fd = manager__open();
	struct service *service;
	char text[64];

	CHECK_INT(service__new(&service, NULL), 0);
	for (int i = 0; i < 100000; i++)
		service__tell(service, "STATUS=%d", i);
	CHECK_STR(manager__hears(fd, text, sizeof(text)), "STATUS=0");
	close(fd);
	fd = -1;
	service__tell(service, "STATUS=nobody is there any more");
	service__free(service);
}

static void on_end(void *ctx)
{
	loop__stop(ctx, 0);
}

TEST(the_loop_gives_signs_of_life)
{
	_cleanup_close_ int fd = manager__open();
	struct loop_source *end;
	struct service *service;
	struct loop *loop;
	char text[64], pid[16];
	int n = 0;

	snprintf(pid, sizeof(pid), "%d", getpid());
	setenv("WATCHDOG_USEC", "20000", 1);
	setenv("WATCHDOG_PID", pid, 1);
	CHECK_INT(loop__new(&loop), 0);
	CHECK_INT(service__new(&service, loop), 0);
	CHECK_INT(loop__add_timer(loop, 35 * NSEC_PER_MSEC, 0, on_end, loop, &end), 0);
	CHECK_INT(loop__run(loop), 0);
	while (!strcmp(manager__hears(fd, text, sizeof(text)), "WATCHDOG=1"))
		n++;
	CHECK(n >= 1 && n <= 4);
	service__free(service);
	loop__remove(loop, end);
	loop__free(loop);
}

TEST(a_watch_on_another_process_is_not_ours)
{
	_cleanup_close_ int fd = manager__open();
	struct service *service;

	setenv("WATCHDOG_USEC", "20000", 1);
	setenv("WATCHDOG_PID", "1", 1);
	CHECK_INT(service__new(&service, NULL), 0);
	CHECK(!service->watchdog);
	service__free(service);
}

TEST(what_no_manager_sets_is_refused)
{
	static const char *const names[] = {"", "/", "@", "run/notify", "vsock:2:1234"};
	static const char *const times[] = {"", "0", "-5", "5s", "99999999999999999999", "1e6"};
	_cleanup_close_ int fd = manager__open();
	struct service *service;
	char name[200];

	for (unsigned int i = 0; i < ARRAY_SIZE(times); i++) {
		setenv("WATCHDOG_USEC", times[i], 1);
		CHECK_INT(service__new(&service, NULL), -EPROTO);
		CHECK(!service);
	}
	setenv("WATCHDOG_USEC", "20000", 1);
	setenv("WATCHDOG_PID", "me", 1);
	CHECK_INT(service__new(&service, NULL), -EPROTO);
	unsetenv("WATCHDOG_USEC");
	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++) {
		setenv("NOTIFY_SOCKET", names[i], 1);
		CHECK_INT(service__new(&service, NULL), -EPROTO);
	}
	memset(name, 'x', sizeof(name));
	name[0] = '/';
	name[sizeof(((struct sockaddr_un *)0)->sun_path)] = 0; /* one too long */
	setenv("NOTIFY_SOCKET", name, 1);
	CHECK_INT(service__new(&service, NULL), -EPROTO);
}

UNIT_MAIN()
