/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A picture of characters, made in memory and then shown: whatever is put into it becomes printable
 * ASCII, one character a cell. Pure.
 */
#ifndef SCREEN_GRID_H
#define SCREEN_GRID_H

#include <stdint.h>

#define GRID_MAX_WIDTH	400 /* what a larger terminal has more stays empty */
#define GRID_MAX_HEIGHT 200

/* Colours and the like only stress what the characters say. */
enum look {
	LOOK_PLAIN,
	LOOK_BOLD,
	LOOK_TITLE,    /* of columns */
	LOOK_SELECTED, /* has ">" in front, too */
	LOOK_GOOD,
	LOOK_WARNING,
	LOOK_ALARM,
	LOOKS,
};

struct grid_cell {
	char c;
	uint8_t look; /* enum look */
};

struct grid {
	unsigned int width, height, row; /* row: the next line goes there */
	struct grid_cell cells[GRID_MAX_HEIGHT][GRID_MAX_WIDTH];
};

/* Empties it; sizes past GRID_MAX_* are cut. */
void grid__begin(struct grid *grid, unsigned int width, unsigned int height);

/* Lines that are still free. */
unsigned int grid__room(const struct grid *grid);

/* Writes over a line from a column on, cut at the width; outside of the picture nothing is done. */
__attribute__((format(printf, 5, 6))) void grid__print(struct grid *grid, unsigned int row,
						       unsigned int column, enum look look,
						       const char *format, ...);

/* The next line; the look goes over the whole of it for LOOK_TITLE and LOOK_SELECTED. */
__attribute__((format(printf, 3, 4))) void grid__line(struct grid *grid, enum look look,
						      const char *format, ...);

/* Text of several lines, broken between words, the later ones indented by two; at most max lines.
 */
void grid__wrap(struct grid *grid, enum look look, unsigned int max, const char *text);

/* Leaves the rest of the lines but the last n empty. */
void grid__skip_to_last(struct grid *grid, unsigned int n);

#endif
