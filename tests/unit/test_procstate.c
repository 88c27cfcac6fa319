/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "unit.h"

#include "../../src/proc_file.c"
#include "../../src/procstate.c"
#include "../../src/procstate_parse.c"
#include "../../src/procstate_syscall.c"
#include "../../src/sanitize.c"
#include "../../src/utf8.c"

/* What the work replies is kept here. */
static struct procstate replied;
static int n_replies;

int helper__reply(int reply_fd, const void *data, size_t len, const int *fds, int n_fds)
{
	(void)reply_fd;
	(void)fds;
	CHECK_INT(n_fds, 0);
	CHECK_INT(len, sizeof(replied));
	memcpy(&replied, data, sizeof(replied));
	n_replies++;
	return 0;
}

#define STOPPED                                                                                      \
	"32126 (sleep) T 32123 32123 22013 0 -1 4194304 130 0 1 0 0 0 0 0 20 0 7 0 2375571 2990080 " \
	"412 18446744073709551615 1 1 1 0 0 0 0 0 0 1 0 0 17 0 0 0 0 0 0 1 1 1 1 1 1 1 19\n"

static int parse_stat(const char *text, struct procstate *state)
{
	size_t len = strlen(text);
	char *copy = malloc(len ?: 1); /* of just the right size: reading past the end is seen */
	int err;

	memcpy(copy, text, len);
	err = procstate__parse_stat(copy, len, &state->main, state);
	free(copy);
	return err;
}

TEST(stat_of_a_stopped_process)
{
	struct procstate state = {};

	CHECK_INT(parse_stat(STOPPED, &state), 0);
	CHECK_STR(state.main.name, "sleep");
	CHECK_INT(state.main.state, 'T');
	CHECK_INT(state.n_threads, 7);
	CHECK_INT(state.stop_signal, SIGSTOP);
}

TEST(stat_names_hold_anything)
{
	struct procstate state = {};

	CHECK_INT(parse_stat("1 (a) R (b) S 1 1", &state), 0);
	CHECK_STR(state.main.name, "a) R (b");
	CHECK_INT(state.main.state, 'S');
	CHECK_INT(parse_stat("1 (0123456789abcdef01) Z 1", &state), 0);
	CHECK_STR(state.main.name, "0123456789abcde");
	CHECK_INT(parse_stat("1 () D", &state), 0);
	CHECK_STR(state.main.name, "");
}

TEST(stat_refused)
{
	const char *bad[] = {"",      "1",	"1 (a",	  "1 a) S", "1 )a( S",
			     "1 (a)", "1 (a) ", "1 (a)S", "1 (a) q"};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct procstate state = {.main = {.state = 'R', .name = "old"}};

		CHECK_INT(parse_stat(bad[i], &state), -EBADMSG);
		CHECK_STR(state.main.name, "old");
		CHECK_INT(state.main.state, 'R');
	}
}

TEST(a_signal_is_told_only_of_what_it_stopped)
{
	char text[sizeof(STOPPED)] = STOPPED;
	struct procstate state = {};

	*strchr(text, 'T') = 'Z'; /* its exit code is 19 */
	CHECK_INT(parse_stat(text, &state), 0);
	CHECK_INT(state.stop_signal, 0);
	strcpy(text, STOPPED);
	strcpy(strstr(text, " 19\n"), " 9\n");
	CHECK_INT(parse_stat(text, &state), 0);
	CHECK_INT(state.stop_signal, 0);
}

static int parse_syscall(const char *text, struct procstate_task *task, uint64_t *ret_first)
{
	return procstate__parse_syscall(text, strlen(text), task, ret_first);
}

TEST(syscalls)
{
	struct procstate_task task = {};
	uint64_t first = 7;

	CHECK_INT(parse_syscall("230 0x2a 0x0 0x7ff 0x0 0x0 0x0 0x7ffd 0x7f55\n", &task, &first),
		  0);
	CHECK_INT(task.syscall, 230);
	CHECK_INT(first, 0x2a);
	CHECK_INT(parse_syscall("running\n", &task, &first), 0);
	CHECK_INT(task.syscall, PROCSTATE_NOT_IN_SYSCALL);
	CHECK_INT(first, 0x2a);
	CHECK_INT(parse_syscall("-1 0x7ffd 0x7f55\n", &task, &first), 0);
	CHECK_INT(task.syscall, PROCSTATE_NOT_IN_SYSCALL);
	task.syscall = 3;
	CHECK_INT(parse_syscall("", &task, &first), -EBADMSG);
	CHECK_INT(parse_syscall("x 0x1", &task, &first), -EBADMSG);
	CHECK_INT(parse_syscall("-2 0x1", &task, &first), -EBADMSG);
	CHECK_INT(parse_syscall("65536 0x1", &task, &first), -EBADMSG);
	CHECK_INT(parse_syscall("99999999999999999999 0x1", &task, &first), -EBADMSG);
	CHECK_INT(task.syscall, 3);
}

TEST(names_of_syscalls)
{
	CHECK_STR(procstate__syscall_name(SYS_futex), "futex");
	CHECK_STR(procstate__syscall_name(SYS_read), "read");
	CHECK(procstate__syscall_takes_fd(SYS_read));
	CHECK(procstate__syscall_takes_fd(SYS_ioctl));
	CHECK(!procstate__syscall_takes_fd(SYS_futex));
	CHECK(!procstate__syscall_name(-1));
	CHECK(!procstate__syscall_name(INT32_MAX));
	CHECK(!procstate__syscall_name(SYS_acct));
	CHECK(!procstate__syscall_takes_fd(SYS_acct));
}

static int parse_wchan(const char *text, struct procstate_task *task)
{
	return procstate__parse_wchan(text, strlen(text), task);
}

TEST(wchan)
{
	struct procstate_task task = {};
	char long_name[64];

	CHECK_INT(parse_wchan("poll_schedule_timeout.constprop.0", &task), 0);
	CHECK_STR(task.wait, "poll_schedule_timeout");
	CHECK_INT(parse_wchan("0", &task), 0);
	CHECK_STR(task.wait, "");
	CHECK_INT(parse_wchan("", &task), 0);
	CHECK_INT(parse_wchan("futex_wait_queue\n", &task), 0);
	CHECK_STR(task.wait, "futex_wait_queue");
	CHECK_INT(parse_wchan("a b", &task), -EBADMSG);
	CHECK_INT(parse_wchan("\033[2J", &task), -EBADMSG);
	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = 0;
	CHECK_INT(parse_wchan(long_name, &task), -EBADMSG);
	CHECK_STR(task.wait, "futex_wait_queue");
}

TEST(described)
{
	struct procstate state = {.stop_signal = SIGTSTP, .tracer_pid = 77};
	struct procstate_task task = {
		.state = 'S', .syscall = SYS_futex, .wait = "futex_wait_queue"};
	char buf[PROCSTATE_TEXT];

	CHECK_STR(procstate_task__describe(&state, &task, buf), "unknown");
	task.tid = 1;
	CHECK_STR(procstate_task__describe(&state, &task, buf),
		  "sleeping in futex (futex_wait_queue)");
	task.syscall = SYS_read;
	strcpy(task.file, "/mnt/a\033[1m");
	CHECK_STR(procstate_task__describe(&state, &task, buf),
		  "sleeping in read of /mnt/a?[1m (futex_wait_queue)");
	task = (struct procstate_task){.tid = 1, .state = 'D', .syscall = 60000};
	CHECK_STR(procstate_task__describe(&state, &task, buf),
		  "uninterruptible in system call 60000");
	task.syscall = PROCSTATE_SYSCALL_UNKNOWN;
	CHECK_STR(procstate_task__describe(&state, &task, buf), "uninterruptible");
	task.state = 'T';
	CHECK_STR(procstate_task__describe(&state, &task, buf), "stopped (SIGTSTP)");
	state.stop_signal = 0;
	CHECK_STR(procstate_task__describe(&state, &task, buf), "stopped");
	task.state = 't';
	CHECK_STR(procstate_task__describe(&state, &task, buf), "traced by process 77");
	task.state = 'R';
	CHECK_STR(procstate_task__describe(&state, &task, buf), "running");
	task.state = 'S';
	strcpy(task.wait, "do_freezer_trap");
	CHECK_STR(procstate_task__describe(&state, &task, buf),
		  "frozen by its cgroup or a suspend");
	CHECK_STR(procstate_task__word(&state, &task), "frozen");
	task.wait[0] = 0;
	CHECK_STR(procstate_task__word(&state, &task), "sleeping");
	state.is_frozen = 1;
	CHECK_STR(procstate_task__word(&state, &task), "frozen");
}

TEST(longest_description_fits)
{
	struct procstate state = {};
	struct procstate_task task = {.tid = 1, .state = 'D', .syscall = SYS_mq_timedreceive};
	char buf[PROCSTATE_TEXT];

	memset(task.wait, 'w', sizeof(task.wait) - 1);
	memset(task.file, 'f', sizeof(task.file) - 1);
	procstate_task__describe(&state, &task, buf);
	CHECK(buf[strlen(buf) - 1] == ')');
}

TEST(what_no_helper_replies_is_refused)
{
	struct procstate good = {.main = {.tid = 1, .state = 'S'}}, bad;

	CHECK(procstate__valid(&good));
	bad = good;
	bad.main.tid = 0;
	CHECK(!procstate__valid(&bad));
	bad = good;
	bad.main.state = 'q';
	CHECK(!procstate__valid(&bad));
	bad = good;
	memset(bad.main.name, 'x', sizeof(bad.main.name));
	CHECK(!procstate__valid(&bad));
	bad = good;
	memset(bad.caller.file, 'x', sizeof(bad.caller.file));
	CHECK(!procstate__valid(&bad));
	bad = good;
	strcpy(bad.main.wait, "a b");
	CHECK(!procstate__valid(&bad));
	bad = good;
	bad.caller.syscall = -3;
	CHECK(!procstate__valid(&bad));
	bad = good;
	bad.stop_signal = SIGKILL;
	CHECK(!procstate__valid(&bad));
	bad = good;
	bad.n_uninterruptible = PROCSTATE_MAX_THREADS + 1;
	CHECK(!procstate__valid(&bad));
	bad = good;
	bad.is_frozen = 2;
	CHECK(!procstate__valid(&bad));
}

static struct procstate look(pid_t pid, int want_err)
{
	struct procstate_request request = {.pid = pid};

	n_replies = 0;
	memset(&replied, 0, sizeof(replied));
	CHECK_INT(procstate__work(&request, -1), want_err);
	CHECK_INT(n_replies, !want_err);
	CHECK(want_err || procstate__valid(&replied));
	return replied;
}

/* Until the child has got where it should be. */
static struct procstate look_until(pid_t pid, char state)
{
	struct procstate found;

	for (int tries = 0; tries < 1000; tries++) {
		found = look(pid, 0);
		if (found.main.state == state)
			break;
		usleep(10000);
	}
	CHECK_INT(found.main.state, state);
	return found;
}

TEST(a_real_process)
{
	int pipe_fds[2], status;
	struct procstate found;
	char byte;
	pid_t pid;

	CHECK_INT(pipe(pipe_fds), 0);
	pid = fork();
	if (pid == 0) {
		close(pipe_fds[1]);
		_exit(read(pipe_fds[0], &byte, 1));
	}
	found = look_until(pid, 'S');
	CHECK_INT(found.main.tid, pid);
	CHECK_INT(found.n_threads, 1);
	CHECK_INT(found.n_uninterruptible, 0);
	if (found.main.syscall != PROCSTATE_SYSCALL_UNKNOWN) { /* a kernel without that file */
		CHECK_INT(found.main.syscall, SYS_read);
		CHECK(!strncmp(found.main.file, "pipe:[", 6));
	}
	kill(pid, SIGSTOP);
	found = look_until(pid, 'T');
	CHECK(!found.stop_signal || found.stop_signal == SIGSTOP);
	kill(pid, SIGKILL);
	look_until(pid, 'Z');
	CHECK_INT(waitpid(pid, &status, 0), pid);
	look(pid, -ESRCH);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

TEST(our_own_threads)
{
	struct procstate_request request = {.pid = getpid(), .caller = 1 << 30};

	CHECK_INT(procstate__work(&request, -1), 0);
	CHECK_INT(replied.main.state, 'R');
	CHECK_INT(replied.caller.tid, 0); /* that thread has ended: nothing is known of it */
	CHECK(procstate__valid(&replied));
}

UNIT_MAIN()
