/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Columns that give way to one another as the width of the terminal asks for. Pure. */
#ifndef SCREEN_TABLE_H
#define SCREEN_TABLE_H

#include <stdbool.h>

#include "screen_grid.h"

#define TABLE_MAX_COLUMNS 16
#define TABLE_CELL	  208

struct table_column {
	const char *title;
	unsigned int width; /* the least it takes */
	unsigned int wide;  /* more is of no use; where there is room left, the first gets it */
	bool right;
	unsigned int dispensable; /* where there is no room, the highest goes first; 0: never */
};

struct table {
	const struct table_column *columns;
	unsigned int n;
	unsigned int widths[TABLE_MAX_COLUMNS]; /* 0: not shown */
};

typedef char table_row[TABLE_MAX_COLUMNS][TABLE_CELL];

/* The columns must stay; one cell in front of them is left for the mark of the selected row. */
void table__fit(struct table *table, const struct table_column *columns, unsigned int n,
		unsigned int width);

bool table__shows(const struct table *table, unsigned int column);

/* A line of titles. */
void table__titles(const struct table *table, struct grid *grid);

/*
 * A line of cells. What is too long is cut and ends with "~". The first column has its own look
 * unless the row is selected.
 */
void table__row(const struct table *table, struct grid *grid, bool selected, enum look first,
		table_row cells);

#endif
