/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "screen_curses.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ncurses' names are many and short: it is included last. */
#include "screen_terminfo.h"
#include <curses.h>
#include <term.h>

struct curses {
	FILE *out, *in; /* a file in memory; nothing */
	SCREEN *screen;
	bool has_colors;
};

/* Signals that newterm() takes, and that are ours. */
static const int taken_signals[] = {SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
#define N_TAKEN (sizeof(taken_signals) / sizeof(taken_signals[0]))

static SCREEN *new_screen(struct curses *curses, const char *term)
{
	struct sigaction before[N_TAKEN];
	SCREEN *screen;

	for (unsigned int i = 0; i < N_TAKEN; i++)
		sigaction(taken_signals[i], NULL, &before[i]);
	screen = newterm(term, curses->out, curses->in);
	for (unsigned int i = 0; i < N_TAKEN; i++)
		sigaction(taken_signals[i], &before[i], NULL);
	return screen;
}

/* The entry that is built in is handed over in the environment: terminfo(5), "TERMINFO". */
static SCREEN *new_screen_without_database(struct curses *curses)
{
	const char *database = getenv("TERMINFO");
	char *before = database ? strdup(database) : NULL;
	SCREEN *screen;

	setenv("TERMINFO", SCREEN_TERMINFO, 1);
	screen = new_screen(curses, SCREEN_TERMINFO_NAME);
	if (before)
		setenv("TERMINFO", before, 1);
	else
		unsetenv("TERMINFO");
	free(before);
	return screen;
}

static void set_up_colors(struct curses *curses)
{
	const char *none = getenv("NO_COLOR"); /* no-color.org */

	if ((none && none[0]) || start_color() == ERR || !has_colors())
		return;
	curses->has_colors = true;
	use_default_colors();
	init_pair(LOOK_GOOD, COLOR_GREEN, -1);
	init_pair(LOOK_WARNING, COLOR_YELLOW, -1);
	init_pair(LOOK_ALARM, COLOR_RED, -1);
}

static int curses__open(struct curses *curses, const char *term)
{
	const char *cup;
	int fd = memfd_create("nccl-bpftrace-screen", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	curses->out = fdopen(fd, "we");
	if (!curses->out) {
		close(fd);
		return -ENOMEM;
	}
	curses->in = fopen("/dev/null", "re");
	if (!curses->in)
		return -errno;
	/* it would sleep, where it cannot ask the line for its speed */
	setenv("NCURSES_NO_PADDING", "1", 1);
	curses->screen = new_screen(curses, term) ?: new_screen_without_database(curses);
	if (!curses->screen)
		return -ENOTTY;
	cup = tigetstr("cup");
	if (!cup || cup == (char *)-1)
		return -ENOTTY;
	set_up_colors(curses);
	leaveok(stdscr, TRUE);
	curs_set(0);
	return 0;
}

int curses__new(struct curses **ret, const char *term)
{
	struct curses *curses = calloc(1, sizeof(*curses));
	int err;

	if (!curses)
		return -ENOMEM;
	err = curses__open(curses, term);
	if (err) {
		curses__free(curses);
		return err;
	}
	*ret = curses;
	return 0;
}

void curses__free(struct curses *curses)
{
	if (!curses)
		return;
	if (curses->screen) {
		endwin();
		delscreen(curses->screen);
	}
	if (curses->out)
		fclose(curses->out);
	if (curses->in)
		fclose(curses->in);
	free(curses);
}

static chtype look__attributes(const struct curses *curses, enum look look)
{
	static const chtype attributes[LOOKS] = {
		[LOOK_BOLD] = A_BOLD,
		[LOOK_TITLE] = A_REVERSE,
		[LOOK_WARNING] = A_BOLD,
		[LOOK_SELECTED] = A_REVERSE | A_BOLD,
		[LOOK_ALARM] = A_REVERSE | A_BOLD,
	};
	bool colored = look == LOOK_GOOD || look == LOOK_WARNING || look == LOOK_ALARM;

	return attributes[look] | (curses->has_colors && colored ? COLOR_PAIR(look) : 0);
}

void curses__draw(struct curses *curses, const struct grid *grid, unsigned int width,
		  unsigned int height, bool anew)
{
	chtype line[GRID_MAX_WIDTH];

	if ((int)width != COLS || (int)height != LINES) {
		resize_term(height, width);
		anew = true;
	}
	erase();
	for (unsigned int row = 0; row < grid->height; row++) {
		for (unsigned int column = 0; column < grid->width; column++)
			line[column] = (unsigned char)grid->cells[row][column].c |
				       look__attributes(curses, grid->cells[row][column].look);
		mvaddchnstr(row, 0, line, grid->width);
	}
	if (anew)
		clearok(stdscr, TRUE);
	refresh();
}

void curses__leave(struct curses *curses)
{
	(void)curses;
	endwin();
}

char *curses__fetch(struct curses *curses, size_t *ret_len)
{
	int fd = fileno(curses->out);
	off_t len = lseek(fd, 0, SEEK_CUR);
	char *bytes = len > 0 ? malloc(len) : NULL;

	if (bytes && pread(fd, bytes, len, 0) != len) {
		free(bytes);
		bytes = NULL;
	}
	*ret_len = bytes ? len : 0;
	lseek(fd, 0, SEEK_SET);
	(void)!ftruncate(fd, 0);
	return bytes;
}
