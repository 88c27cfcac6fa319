/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "screen_grid.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "screen_text.h"

void grid__begin(struct grid *grid, unsigned int width, unsigned int height)
{
	grid->width = width < GRID_MAX_WIDTH ? width : GRID_MAX_WIDTH;
	grid->height = height < GRID_MAX_HEIGHT ? height : GRID_MAX_HEIGHT;
	grid->row = 0;
	for (unsigned int row = 0; row < grid->height; row++)
		for (unsigned int column = 0; column < grid->width; column++)
			grid->cells[row][column] = (struct grid_cell){' ', LOOK_PLAIN};
}

unsigned int grid__room(const struct grid *grid)
{
	return grid->row < grid->height ? grid->height - grid->row : 0;
}

static void grid__put(struct grid *grid, unsigned int row, unsigned int column, enum look look,
		      const char *format, va_list args)
{
	char raw[GRID_MAX_WIDTH + 1], line[GRID_MAX_WIDTH + 1];

	if (row >= grid->height)
		return;
	vsnprintf(raw, sizeof(raw), format, args);
	screen_text__sanitise(line, sizeof(line), raw);
	for (const char *c = line; *c && column < grid->width; c++, column++)
		grid->cells[row][column] = (struct grid_cell){*c, look};
}

void grid__print(struct grid *grid, unsigned int row, unsigned int column, enum look look,
		 const char *format, ...)
{
	va_list args;

	va_start(args, format);
	grid__put(grid, row, column, look, format, args);
	va_end(args);
}

void grid__line(struct grid *grid, enum look look, const char *format, ...)
{
	va_list args;

	if (!grid__room(grid))
		return;
	if (look == LOOK_TITLE || look == LOOK_SELECTED)
		for (unsigned int column = 0; column < grid->width; column++)
			grid->cells[grid->row][column].look = look;
	va_start(args, format);
	grid__put(grid, grid->row++, 0, look, format, args);
	va_end(args);
}

void grid__skip_to_last(struct grid *grid, unsigned int n)
{
	if (grid__room(grid) > n)
		grid->row = grid->height - n;
}

/* How much of the text goes into one line: up to the last blank that is not too far. */
static unsigned int line_length(const char *text, unsigned int width)
{
	size_t len = strlen(text);

	if (len <= width)
		return len;
	for (unsigned int i = width; i > width / 2; i--)
		if (text[i] == ' ')
			return i;
	return width;
}

void grid__wrap(struct grid *grid, enum look look, unsigned int max, const char *text)
{
	unsigned int indent = 1;

	for (unsigned int i = 0; i < max && *text && grid__room(grid); i++) {
		unsigned int width = grid->width > indent ? grid->width - indent : 1;
		unsigned int len = line_length(text, width);
		bool cut = i + 1 == max && text[len];

		grid__line(grid, look, "%*s%.*s%s", (int)indent, "", (int)(cut ? len - 1 : len),
			   text, cut ? "~" : "");
		text += len + (text[len] == ' ');
		indent = 3;
	}
}
