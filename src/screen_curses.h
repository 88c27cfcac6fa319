/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ncurses, drawing into memory: what it would send to the terminal is fetched here, so that no
 * terminal can keep its caller waiting. One at a time (ncurses' own state is global).
 */
#ifndef SCREEN_CURSES_H
#define SCREEN_CURSES_H

#include <stdbool.h>
#include <stddef.h>

#include "screen_grid.h"

struct curses;

/*
 * For a terminal of that name ($TERM); where the terminfo database of this node has no such entry,
 * as one that heeds ECMA-48. 0, -ENOMEM, -ENOTTY: it cannot place its cursor; or another -errno.
 */
int curses__new(struct curses **ret, const char *term);
void curses__free(struct curses *curses);

/*
 * Brings the terminal, of that size, from what was drawn last to the grid; the first time, and
 * after curses__leave(), also to its other screen. anew: whatever stands there.
 */
void curses__draw(struct curses *curses, const struct grid *grid, unsigned int width,
		  unsigned int height, bool anew);

/* Back to the screen that was there before, with a cursor. */
void curses__leave(struct curses *curses);

/* What is to be sent since the last call; the caller frees it. NULL: nothing, or no memory. */
char *curses__fetch(struct curses *curses, size_t *ret_len);

#endif
