/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The terminal: taken over, drawn on, given back as it was. Nothing here waits for it: what it does
 * not take at once is kept, and no new picture is made until it has taken that.
 */
#ifndef SCREEN_TERMINAL_H
#define SCREEN_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

#include "screen_grid.h"

struct terminal;

/*
 * out_fd must be one. in_fd need not: then there are no keys. Nothing is taken over yet. 0 or
 * -errno, and one phrase in ret_why.
 */
int terminal__new(struct terminal **ret, int in_fd, int out_fd, const char **ret_why);
void terminal__free(struct terminal *terminal); /* gives it back; NULL is fine */

/* To wait on for keys; -1: there are none. */
int terminal__key_fd(const struct terminal *terminal);

/* Is it ours to use at this time, and no other job's of the shell? Keys are not ours else. */
bool terminal__is_in_foreground(const struct terminal *terminal);

/* A byte that was typed; -EAGAIN: none; another -errno: there will be none, in the foreground. */
int terminal__read(struct terminal *terminal, char *ret_byte);

/* In characters; 80 x 24 where it does not say. */
void terminal__size(const struct terminal *terminal, unsigned int *ret_width,
		    unsigned int *ret_height);

/*
 * Shows the grid, which was made for terminal__size(). In the background nothing is shown. True:
 * the terminal has not taken all of it, or of what was to be shown before; ask again soon.
 */
bool terminal__show(struct terminal *terminal, const struct grid *grid);

/* The next picture is drawn whole: somebody else may have written there, or set modes. */
void terminal__forget(struct terminal *terminal);

/* As it was before; the next picture takes it over again. Waits for it half a second at most. */
void terminal__give_back(struct terminal *terminal);

/* The last line that was written to stderr, which would spoil the picture; "": none. */
void terminal__last_message(const struct terminal *terminal, char *buf, size_t size);

#endif
