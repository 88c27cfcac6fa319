/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "screen_table.h"

#include <string.h>

static unsigned int table__width(const struct table *table)
{
	unsigned int width = 0;

	for (unsigned int i = 0; i < table->n; i++)
		if (table->widths[i])
			width += table->widths[i] + 1;
	return width;
}

static void table__drop(struct table *table, unsigned int rank)
{
	for (unsigned int i = 0; i < table->n; i++)
		if (table->columns[i].dispensable == rank)
			table->widths[i] = 0;
}

static unsigned int table__most_dispensable(const struct table *table)
{
	unsigned int most = 0;

	for (unsigned int i = 0; i < table->n; i++)
		if (table->widths[i] && table->columns[i].dispensable > most)
			most = table->columns[i].dispensable;
	return most;
}

void table__fit(struct table *table, const struct table_column *columns, unsigned int n,
		unsigned int width)
{
	unsigned int most, left;

	*table = (struct table){.columns = columns, .n = n};
	for (unsigned int i = 0; i < n; i++)
		table->widths[i] = columns[i].width;
	while (table__width(table) > width && (most = table__most_dispensable(table)))
		table__drop(table, most);
	left = width > table__width(table) ? width - table__width(table) : 0;
	for (unsigned int i = 0; i < n && left; i++) {
		unsigned int more;

		if (!table->widths[i] || columns[i].wide <= columns[i].width)
			continue;
		more = columns[i].wide - columns[i].width;
		more = more < left ? more : left;
		table->widths[i] += more;
		left -= more;
	}
}

bool table__shows(const struct table *table, unsigned int column)
{
	return table->widths[column];
}

static void table__print(const struct table *table, struct grid *grid, unsigned int column,
			 unsigned int at, enum look look, const char *text)
{
	unsigned int width = table->widths[column], len = strlen(text);

	if (len > width)
		grid__print(grid, grid->row, at, look, "%.*s~", (int)width - 1, text);
	else if (table->columns[column].right)
		grid__print(grid, grid->row, at + width - len, look, "%s", text);
	else
		grid__print(grid, grid->row, at, look, "%s", text);
}

void table__titles(const struct table *table, struct grid *grid)
{
	unsigned int at = 1;

	if (!grid__room(grid))
		return;
	grid__line(grid, LOOK_TITLE, "%s", "");
	grid->row--;
	for (unsigned int i = 0; i < table->n; i++) {
		if (!table->widths[i])
			continue;
		table__print(table, grid, i, at, LOOK_TITLE, table->columns[i].title);
		at += table->widths[i] + 1;
	}
	grid->row++;
}

void table__row(const struct table *table, struct grid *grid, bool selected, enum look first,
		table_row cells)
{
	enum look look = selected ? LOOK_SELECTED : first;
	unsigned int at = 1;

	if (!grid__room(grid))
		return;
	grid__line(grid, selected ? LOOK_SELECTED : LOOK_PLAIN, selected ? ">" : " ");
	grid->row--;
	for (unsigned int i = 0; i < table->n; i++) {
		if (!table->widths[i])
			continue;
		table__print(table, grid, i, at, look, cells[i]);
		at += table->widths[i] + 1;
		look = selected ? LOOK_SELECTED : LOOK_PLAIN;
	}
	grid->row++;
}
