/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One communicator: its ranks, operations, last changes of state. */
#include <inttypes.h>
#include <string.h>

#include "screen_text.h"
#include "screen_view.h"
#include "util.h"

#define NO_LATENESS_NS NSEC_PER_MSEC /* bars of ranks that are late by less would be noise */

enum {
	RANK_RANK,
	RANK_ROLE,
	RANK_PID,
	RANK_COMMAND,
	RANK_GPU,
	RANK_CALL,
	RANK_NUMBER,
	RANK_AGO,
	RANK_OPS,
	RANK_FLIGHT,
	RANK_LATE,
	RANK_BAR,
	RANK_LAST,
	RANK_COLUMNS,
};

static const struct table_column rank_columns[RANK_COLUMNS] = {
	[RANK_RANK] = {"RANK", 4, 6, true, 0},	    [RANK_ROLE] = {"ROLE", 7, 7, false, 0},
	[RANK_PID] = {"PID", 7, 7, true, 0},	    [RANK_COMMAND] = {"COMMAND", 15, 15, false, 5},
	[RANK_GPU] = {"GPU", 3, 3, true, 4},	    [RANK_CALL] = {"LAST CALL", 13, 13, false, 0},
	[RANK_NUMBER] = {"NUMBER", 7, 12, true, 0}, [RANK_AGO] = {"AGO", 4, 5, true, 0},
	[RANK_OPS] = {"OPS/S", 6, 6, true, 6},	    [RANK_FLIGHT] = {"FLIGHT", 6, 6, true, 2},
	[RANK_LATE] = {"LATE", 6, 7, true, 0},	    [RANK_BAR] = {"OF MOST", 7, 40, false, 1},
	[RANK_LAST] = {"%LAST", 5, 5, true, 3},
};

enum {
	OP_OPERATION,
	OP_CALLS,
	OP_OPS,
	OP_BYTES,
	OP_SIZE,
	OP_TIMED,
	OP_TIME,
	OP_BUSBW,
	OP_AGO,
	OP_COLUMNS,
};

static const struct table_column operation_columns[OP_COLUMNS] = {
	[OP_OPERATION] = {"OPERATION", 13, 14, false, 0},
	[OP_CALLS] = {"CALLS", 8, 12, true, 0},
	[OP_OPS] = {"OPS/S", 6, 6, true, 2},
	[OP_BYTES] = {"BYTES/S", 8, 9, true, 3},
	[OP_SIZE] = {"SIZE", 8, 9, true, 0},
	[OP_TIMED] = {"TIMED", 7, 12, true, 1},
	[OP_TIME] = {"GPU TIME", 8, 9, true, 0},
	[OP_BUSBW] = {"BUSBW", 9, 9, true, 0},
	[OP_AGO] = {"AGO", 4, 5, true, 1},
};

/* ---- ranks ---- */

static void print_ago(char *cell, uint64_t now_ns, uint64_t then_ns)
{
	if (then_ns)
		screen_text__age(cell, now_ns > then_ns ? now_ns - then_ns : 0);
	else
		strcpy(cell, "-");
}

/* Blocks in proportion to the one that is latest. */
static void print_bar(char *cell, unsigned int width, uint64_t lateness_ns, uint64_t most_ns)
{
	uint64_t n = most_ns ? (lateness_ns * width + most_ns / 2) / most_ns : 0;

	if (width >= TABLE_CELL)
		width = TABLE_CELL - 1;
	n = n < width ? n : width;
	memset(cell, '#', n);
	cell[n] = 0;
}

static void print_lateness(const struct table *table, table_row cells,
			   const struct picture_rank *rank, uint64_t most_ns)
{
	strcpy(cells[RANK_LATE], "-");
	strcpy(cells[RANK_LAST], "-");
	if (!rank->n_compared)
		return;
	screen_text__duration(cells[RANK_LATE], rank->lateness_ns);
	print_bar(cells[RANK_BAR], table->widths[RANK_BAR], rank->lateness_ns, most_ns);
	snprintf(cells[RANK_LAST], TABLE_CELL, "%.0f%%", 100.0 * rank->n_last / rank->n_compared);
}

static void print_call(table_row cells, const struct picture_rank *rank, uint64_t now_ns)
{
	bool known = rank->last_operation < NCCL_OP_MAX;

	strcpy(cells[RANK_CALL], known ? nccl_operation__name(rank->last_operation) : "-");
	strcpy(cells[RANK_NUMBER], "-");
	if (known && rank->last_sequence != VERDICT_NO_SEQUENCE)
		snprintf(cells[RANK_NUMBER], TABLE_CELL, "%" PRIu64, rank->last_sequence);
	print_ago(cells[RANK_AGO], now_ns, rank->last_ns);
}

static void draw_rank(const struct table *table, const struct picture *picture,
		      const struct picture_rank *rank, uint64_t most_ns, bool selected,
		      struct grid *grid)
{
	static const char *const roles[] = {
		[ROLE_NONE] = "", [ROLE_CULPRIT] = "culprit", [ROLE_WAITING] = "waiting"};
	table_row cells = {};

	strcpy(cells[RANK_RANK], "?");
	if (rank->rank >= 0)
		snprintf(cells[RANK_RANK], TABLE_CELL, "%d", rank->rank);
	strcpy(cells[RANK_ROLE], roles[rank->role]);
	snprintf(cells[RANK_PID], TABLE_CELL, "%u", rank->tgid);
	snprintf(cells[RANK_COMMAND], TABLE_CELL, "%s", rank->command[0] ? rank->command : "-");
	strcpy(cells[RANK_GPU], "?");
	if (rank->gpu >= 0)
		snprintf(cells[RANK_GPU], TABLE_CELL, "%d", rank->gpu);
	print_call(cells, rank, picture->now_ns);
	screen_text__amount(cells[RANK_OPS], rank->rate.operations);
	strcpy(cells[RANK_FLIGHT], "?");
	if (rank->in_flight_known)
		snprintf(cells[RANK_FLIGHT], TABLE_CELL, "%u", rank->in_flight);
	print_lateness(table, cells, rank, most_ns);
	table__row(table, grid, selected, LOOK_PLAIN, cells);
}

static void draw_ranks(const struct view *view, const struct picture *picture, struct grid *grid)
{
	const struct view_list *list = &view->parts[PART_RANKS];
	uint64_t most_ns = NO_LATENESS_NS;
	struct table table;

	for (unsigned int i = 0; i < view->n_ranks; i++)
		if (picture->ranks[view->ranks[i]].lateness_ns > most_ns)
			most_ns = picture->ranks[view->ranks[i]].lateness_ns;
	table__fit(&table, rank_columns, RANK_COLUMNS, grid->width);
	table__titles(&table, grid);
	for (unsigned int i = list->top; i < list->top + list->room; i++)
		draw_rank(&table, picture, &picture->ranks[view->ranks[i]], most_ns,
			  view->part == PART_RANKS && i == list->cursor, grid);
}

/* ---- operations ---- */

/* Rows of an operation: one for each size that was timed. */
static unsigned int n_rows(const struct picture_operation *op)
{
	return op->n_sizes ? op->n_sizes : 1;
}

static unsigned int count_operation_rows(const struct picture_comm *comm)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < comm->n_operations; i++)
		n += n_rows(&comm->operations[i]);
	return n;
}

static void print_timed(table_row cells, const struct screen_timed_size *size, uint64_t now_ns)
{
	if (size->bytes == SCREEN_OTHER_SIZES)
		strcpy(cells[OP_SIZE], "others");
	else
		screen_text__bytes(cells[OP_SIZE], size->bytes);
	screen_text__amount(cells[OP_TIMED], size->n);
	screen_text__duration(cells[OP_TIME], size->mean_ns);
	screen_text__bytes(cells[OP_BUSBW], size->bus_bytes);
	strcat(cells[OP_BUSBW], "/s");
	print_ago(cells[OP_AGO], now_ns, size->last_ns);
}

static void draw_operation(const struct table *table, const struct picture *picture,
			   const struct picture_operation *op, unsigned int row, bool selected,
			   struct grid *grid)
{
	table_row cells = {};

	if (!row) {
		strcpy(cells[OP_OPERATION], nccl_operation__name(op->operation));
		snprintf(cells[OP_CALLS], TABLE_CELL, "%" PRIu64, op->calls);
		screen_text__amount(cells[OP_OPS], op->rate.operations);
		screen_text__bytes(cells[OP_BYTES], op->rate.bytes);
	}
	for (unsigned int i = OP_SIZE; i < OP_COLUMNS; i++)
		strcpy(cells[i], "-");
	if (op->n_sizes)
		print_timed(cells, &op->sizes[row], picture->now_ns);
	else if (op->last_bytes)
		screen_text__bytes(cells[OP_SIZE], op->last_bytes);
	table__row(table, grid, selected, LOOK_PLAIN, cells);
}

static void draw_operations(const struct view *view, const struct picture *picture,
			    const struct picture_comm *comm, struct grid *grid)
{
	const struct view_list *list = &view->parts[PART_OPERATIONS];
	unsigned int at = 0;
	struct table table;

	table__fit(&table, operation_columns, OP_COLUMNS, grid->width);
	table__titles(&table, grid);
	for (unsigned int i = 0; i < comm->n_operations; i++)
		for (unsigned int row = 0; row < n_rows(&comm->operations[i]); row++, at++)
			if (at >= list->top && at < list->top + list->room)
				draw_operation(&table, picture, &comm->operations[i], row,
					       view->part == PART_OPERATIONS && at == list->cursor,
					       grid);
}

/* ---- events ---- */

static void draw_events(const struct view *view, const struct picture *picture,
			const struct picture_comm *comm, struct grid *grid)
{
	const struct view_list *list = &view->parts[PART_EVENTS];

	grid__line(grid, LOOK_TITLE, " LAST CHANGES OF STATE");
	for (unsigned int i = list->top; i < list->top + list->room; i++) {
		const struct verdict_event *event = &comm->events[i];
		uint64_t ago_ns =
			picture->now_ns > event->time_ns ? picture->now_ns - event->time_ns : 0;
		time_t wall = picture->wall - (time_t)(ago_ns / NSEC_PER_SEC);
		bool selected = view->part == PART_EVENTS && i == list->cursor;
		char clock[16], ago[SCREEN_TEXT_SIZE], culprit[32] = "";
		struct tm tm;

		strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&wall, &tm));
		if (event->culprit >= 0)
			snprintf(culprit, sizeof(culprit), ", rank %d first", event->culprit);
		grid__line(grid, selected ? LOOK_SELECTED : verdict_state__look(event->state),
			   "%s%s  %4s ago  %s%s", selected ? ">" : " ", clock,
			   screen_text__age(ago, ago_ns), verdict_state__name(event->state),
			   culprit);
	}
}

/* ---- all of it ---- */

/* Lines of each part, titles included: the one with the keys gets what the others can spare. */
static void share_room(const struct view *view, unsigned int room, const unsigned int need[PARTS],
		       unsigned int lines[PARTS])
{
	static const unsigned int least[PARTS] = {4, 3, 3};

	for (int i = 0; i < PARTS; i++) {
		lines[i] = need[i] < least[i] ? need[i] : least[i];
		lines[i] = lines[i] < room ? lines[i] : room;
		room -= lines[i];
	}
	for (int i = -1; i < PARTS; i++) {
		int part = i < 0 ? (int)view->part : i;
		unsigned int more = need[part] - lines[part];

		more = more < room ? more : room;
		lines[part] += more;
		room -= more;
	}
}

static void draw_parts(struct view *view, const struct picture *picture,
		       const struct picture_comm *comm, struct grid *grid)
{
	const unsigned int n[PARTS] = {
		[PART_RANKS] = view->n_ranks,
		[PART_OPERATIONS] = count_operation_rows(comm),
		[PART_EVENTS] = comm->n_events,
	};
	unsigned int need[PARTS], lines[PARTS];

	for (int i = 0; i < PARTS; i++)
		need[i] = n[i] ? n[i] + 1 : 0;
	share_room(view, grid__room(grid), need, lines);
	for (int i = 0; i < PARTS; i++)
		view_list__fit(&view->parts[i], n[i], lines[i] ? lines[i] - 1 : 0);
	if (lines[PART_RANKS])
		draw_ranks(view, picture, grid);
	if (lines[PART_OPERATIONS])
		draw_operations(view, picture, comm, grid);
	if (lines[PART_EVENTS])
		draw_events(view, picture, comm, grid);
}

void view__draw_comm(struct view *view, const struct picture *picture, struct grid *grid)
{
	const struct picture_comm *comm = view__comm(view, picture);

	if (!comm) {
		grid__line(grid, LOOK_BOLD, " Communicator %s has ended. Esc goes back.",
			   view->selected);
		return;
	}
	view__draw_verdict(picture, comm, grid->height >= 40 ? VERDICT_MAX_EVIDENCE : 1, grid);
	draw_parts(view, picture, comm, grid);
}
