/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "screen_terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "screen_curses.h"
#include "util.h"

#define MAX_SIDE      1000	  /* of a terminal, in characters */
#define MAX_MESSAGES  (64 * 1024) /* bytes kept of stderr */
#define GIVE_BACK_MS  500
#define TAIL_MESSAGES 512

struct terminal {
	int in, out; /* our own openings of it, which never block; in -1: no keys */
	bool is_ours, anew, dead;
	struct termios before;
	struct curses *curses;
	char *pending; /* not yet taken */
	size_t pending_len, pending_at;
	int stderr_before, messages; /* while it is ours and was stderr, too; else -1 */
};

/*
 * A description of our own: O_NONBLOCK on the one that we were given would hold for the shell, too.
 * Through /proc, because a container's terminal has no name here.
 */
static int reopen(int fd, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static bool is_same_terminal(int a, int b)
{
	struct stat st_a, st_b;

	return isatty(a) && !fstat(a, &st_a) && !fstat(b, &st_b) && st_a.st_rdev == st_b.st_rdev;
}

static int terminal__open(struct terminal *terminal, int in_fd, int out_fd, const char **ret_why)
{
	const char *term = getenv("TERM");
	int err;

	*ret_why = "TERM is not set, or the terminal can do nothing";
	if (!term || !term[0] || !strcmp(term, "dumb"))
		return -ENOTTY;
	terminal->out = reopen(out_fd, O_WRONLY);
	if (terminal->out < 0) {
		*ret_why = "the terminal cannot be opened";
		return -errno;
	}
	if (is_same_terminal(in_fd, out_fd))
		terminal->in = reopen(in_fd, O_RDONLY);
	err = curses__new(&terminal->curses, term);
	if (err && err != -ENOTTY)
		*ret_why = "out of memory or file descriptors";
	return err;
}

int terminal__new(struct terminal **ret, int in_fd, int out_fd, const char **ret_why)
{
	struct terminal *terminal = calloc(1, sizeof(*terminal));
	int err;

	*ret_why = "out of memory";
	if (!terminal)
		return -ENOMEM;
	terminal->in = terminal->out = terminal->stderr_before = terminal->messages = -1;
	err = terminal__open(terminal, in_fd, out_fd, ret_why);
	if (err) {
		terminal__free(terminal);
		return err;
	}
	*ret = terminal;
	return 0;
}

void terminal__free(struct terminal *terminal)
{
	if (!terminal)
		return;
	terminal__give_back(terminal);
	curses__free(terminal->curses);
	if (terminal->in >= 0)
		close(terminal->in);
	if (terminal->out >= 0)
		close(terminal->out);
	free(terminal->pending);
	free(terminal);
}

int terminal__key_fd(const struct terminal *terminal)
{
	return terminal->in;
}

int terminal__read(struct terminal *terminal, char *ret_byte)
{
	ssize_t n = read(terminal->in, ret_byte, 1);

	if (n == 1)
		return 0;
	return n < 0 && (errno == EAGAIN || errno == EINTR) ? -EAGAIN : -EIO;
}

void terminal__size(const struct terminal *terminal, unsigned int *ret_width,
		    unsigned int *ret_height)
{
	struct winsize size = {};

	if (ioctl(terminal->out, TIOCGWINSZ, &size) || !size.ws_col || !size.ws_row)
		size = (struct winsize){.ws_col = 80, .ws_row = 24};
	*ret_width = size.ws_col < MAX_SIDE ? size.ws_col : MAX_SIDE;
	*ret_height = size.ws_row < MAX_SIDE ? size.ws_row : MAX_SIDE;
}

/* ---- what it is sent ---- */

static void terminal__drop_pending(struct terminal *terminal)
{
	free(terminal->pending);
	terminal->pending = NULL;
	terminal->pending_len = terminal->pending_at = 0;
}

/* True: all is taken, or nobody is there any more. */
static bool terminal__flush(struct terminal *terminal)
{
	while (terminal->pending_at < terminal->pending_len && !terminal->dead) {
		ssize_t n = write(terminal->out, terminal->pending + terminal->pending_at,
				  terminal->pending_len - terminal->pending_at);

		if (n > 0)
			terminal->pending_at += n;
		else if (n < 0 && errno == EAGAIN)
			return false;
		else if (!(n < 0 && errno == EINTR))
			terminal->dead = true;
	}
	terminal__drop_pending(terminal);
	return true;
}

/* Waits a little; what is not taken then is thrown away. */
static void terminal__flush_at_last(struct terminal *terminal)
{
	struct pollfd pollfd = {.fd = terminal->out, .events = POLLOUT};
	uint64_t end_ns = now_ns() + GIVE_BACK_MS * NSEC_PER_MSEC;

	while (!terminal__flush(terminal) && now_ns() < end_ns)
		poll(&pollfd, 1, GIVE_BACK_MS / 10);
	terminal__drop_pending(terminal);
}

static void terminal__send(struct terminal *terminal, char *bytes, size_t len)
{
	terminal__drop_pending(terminal);
	terminal->pending = bytes;
	terminal->pending_len = len;
}

/* ---- whose it is ---- */

/* Not our controlling terminal: nobody else's job either. */
bool terminal__is_in_foreground(const struct terminal *terminal)
{
	pid_t group = tcgetpgrp(terminal->out);

	return group < 0 || group == getpgrp();
}

/*
 * Signals of the keyboard stay, but for SIGQUIT. The output goes through as it is: ncurses takes a
 * terminal that it cannot ask for one that changes nothing.
 */
static void terminal__set_modes(struct terminal *terminal)
{
	struct termios modes = terminal->before;

	modes.c_iflag &= ~(IXANY | INLCR | IGNCR);
	modes.c_oflag &= ~OPOST;
	modes.c_lflag &= ~(ICANON | ECHO | IEXTEN);
	modes.c_cc[VMIN] = 1;
	modes.c_cc[VTIME] = 0;
	modes.c_cc[VQUIT] = _POSIX_VDISABLE;
	tcsetattr(terminal->out, TCSANOW, &modes);
}

static void terminal__keep_stderr(struct terminal *terminal)
{
	if (!is_same_terminal(STDERR_FILENO, terminal->out))
		return;
	terminal->messages = memfd_create("nccl-bpftrace-stderr", MFD_CLOEXEC);
	if (terminal->messages < 0)
		return;
	fcntl(terminal->messages, F_SETFL, O_APPEND);
	terminal->stderr_before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (terminal->stderr_before >= 0)
		dup2(terminal->messages, STDERR_FILENO);
}

/* What was written meanwhile is shown now. */
static void terminal__return_stderr(struct terminal *terminal)
{
	struct stat st = {};
	char *bytes;

	if (terminal->messages < 0)
		return;
	if (terminal->stderr_before >= 0) {
		dup2(terminal->stderr_before, STDERR_FILENO);
		close(terminal->stderr_before);
	}
	fstat(terminal->messages, &st);
	bytes = st.st_size ? malloc(st.st_size) : NULL;
	if (bytes && pread(terminal->messages, bytes, st.st_size, 0) == st.st_size) {
		terminal__send(terminal, bytes, st.st_size);
		terminal__flush_at_last(terminal);
	} else {
		free(bytes);
	}
	close(terminal->messages);
	terminal->messages = terminal->stderr_before = -1;
}

void terminal__last_message(const struct terminal *terminal, char *buf, size_t size)
{
	char tail[TAIL_MESSAGES + 1];
	struct stat st;
	char *line;
	ssize_t n;

	buf[0] = 0;
	if (terminal->messages < 0 || fstat(terminal->messages, &st))
		return;
	n = pread(terminal->messages, tail, TAIL_MESSAGES,
		  st.st_size > TAIL_MESSAGES ? st.st_size - TAIL_MESSAGES : 0);
	if (n <= 0)
		return;
	tail[n - (tail[n - 1] == '\n')] = 0;
	tail[n] = 0;
	line = strrchr(tail, '\n');
	snprintf(buf, size, "%s", line ? line + 1 : tail);
	if (st.st_size > MAX_MESSAGES)
		(void)!ftruncate(terminal->messages, 0);
}

static bool terminal__take_over(struct terminal *terminal)
{
	if (terminal->is_ours)
		return true;
	if (tcgetattr(terminal->out, &terminal->before))
		return false;
	terminal__set_modes(terminal);
	terminal__keep_stderr(terminal);
	terminal->is_ours = terminal->anew = true;
	return true;
}

/* Stopped with Ctrl-S it would never be as it was: Linux starts it when that no longer means that.
 */
static void terminal__start(const struct terminal *terminal)
{
	struct termios modes = terminal->before;

	if (!terminal__is_in_foreground(terminal))
		return;
	modes.c_iflag &= ~IXON;
	modes.c_oflag &= ~OPOST;
	tcsetattr(terminal->out, TCSANOW, &modes);
}

void terminal__give_back(struct terminal *terminal)
{
	char *bytes;
	size_t len;

	if (!terminal->is_ours)
		return;
	terminal->is_ours = false;
	terminal__start(terminal);
	terminal__flush_at_last(terminal);
	curses__leave(terminal->curses);
	bytes = curses__fetch(terminal->curses, &len);
	terminal__send(terminal, bytes, len);
	terminal__flush_at_last(terminal);
	tcsetattr(terminal->out, TCSANOW, &terminal->before);
	terminal__return_stderr(terminal);
}

void terminal__forget(struct terminal *terminal)
{
	terminal->anew = true;
	if (terminal->is_ours && terminal__is_in_foreground(terminal))
		terminal__set_modes(terminal);
}

bool terminal__show(struct terminal *terminal, const struct grid *grid)
{
	unsigned int width, height;
	char *bytes;
	size_t len;

	if (terminal->dead || !terminal__is_in_foreground(terminal))
		return false;
	if (!terminal__flush(terminal))
		return true;
	if (!terminal__take_over(terminal))
		return false;
	terminal__size(terminal, &width, &height);
	curses__draw(terminal->curses, grid, width, height, terminal->anew);
	terminal->anew = false;
	bytes = curses__fetch(terminal->curses, &len);
	terminal__send(terminal, bytes, len);
	return !terminal__flush(terminal);
}
