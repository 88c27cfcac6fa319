/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One row a communicator; more of the selected one below. */
#include <inttypes.h>
#include <string.h>

#include "screen_text.h"
#include "screen_view.h"
#include "util.h"

enum {
	COL_STATE,
	COL_FOR,
	COL_COMM,
	COL_JOB,
	COL_RANKS,
	COL_OPERATION,
	COL_OPS,
	COL_BYTES,
	COL_BUSBW,
	COL_CULPRITS,
	COL_WHY,
	COLS,
};

static const struct table_column comm_columns[COLS] = {
	[COL_STATE] = {"STATE", 14, 14, false, 0},
	[COL_FOR] = {"FOR", 4, 4, true, 0},
	[COL_COMM] = {"COMMUNICATOR", 16, 24, false, 0},
	[COL_JOB] = {"JOB", 8, 16, false, 4},
	[COL_RANKS] = {"RANKS", 7, 9, true, 3},
	[COL_OPERATION] = {"OPERATION", 18, 26, false, 0},
	[COL_OPS] = {"OPS/S", 6, 6, true, 2},
	[COL_BYTES] = {"BYTES/S", 8, 8, true, 5},
	[COL_BUSBW] = {"BUSBW", 8, 8, true, 6},
	[COL_CULPRITS] = {"CULPRITS", 8, 16, false, 0},
	[COL_WHY] = {"WHY", 24, 200, false, 7},
};

enum look verdict_state__look(enum verdict_state state)
{
	static const enum look looks[VERDICT_STATES] = {
		[VERDICT_HEALTHY] = LOOK_GOOD,
		[VERDICT_WAITING] = LOOK_WARNING,
		[VERDICT_STUCK] = LOOK_ALARM,
		[VERDICT_STRAGGLER] = LOOK_WARNING,
		[VERDICT_SLOW] = LOOK_WARNING,
		[VERDICT_MISMATCH] = LOOK_ALARM,
		[VERDICT_ABORTED] = LOOK_ALARM,
		[VERDICT_ERROR] = LOOK_ALARM,
		[VERDICT_DEGRADED_SIGHT] = LOOK_WARNING,
	};

	return looks[state];
}

static const char *known(const char *text)
{
	return text[0] ? text : "-";
}

/* A hash by its first half; what has none by its whole label. */
static void print_comm(char *cell, const struct picture_comm *comm)
{
	int len = comm->hash ? 8 : (int)sizeof(comm->label);

	snprintf(cell, TABLE_CELL, "%.*s%s%s", len, comm->label, comm->name[0] ? " " : "",
		 comm->name);
}

static void print_ranks(char *cell, const struct picture_comm *comm)
{
	char n_ranks[12] = "?";

	if (comm->n_ranks > 0)
		snprintf(n_ranks, sizeof(n_ranks), "%d", comm->n_ranks);
	snprintf(cell, TABLE_CELL, "%u/%s", comm->n_local, n_ranks);
}

static void print_named(char *cell, const struct verdict_named *named)
{
	unsigned int n = named->n < VERDICT_MAX_NAMED ? named->n : VERDICT_MAX_NAMED;

	screen_text__ranks(cell, TABLE_CELL, named->ranks, n, named->n);
}

static void draw_row(const struct table *table, const struct picture *picture,
		     const struct picture_comm *comm, bool selected, struct grid *grid)
{
	enum verdict_state state = picture_comm__state(comm);
	uint64_t age_ns = picture_comm__age_ns(picture, comm);
	table_row cells = {};

	snprintf(cells[COL_STATE], TABLE_CELL, "%s", verdict_state__name(state));
	strcpy(cells[COL_FOR], "-");
	if (age_ns)
		screen_text__age(cells[COL_FOR], age_ns);
	print_comm(cells[COL_COMM], comm);
	snprintf(cells[COL_JOB], TABLE_CELL, "%s", known(comm->job));
	print_ranks(cells[COL_RANKS], comm);
	picture_comm__operation(picture, comm, cells[COL_OPERATION], TABLE_CELL);
	screen_text__amount(cells[COL_OPS], comm->rate.operations);
	screen_text__bytes(cells[COL_BYTES], comm->rate.bytes);
	strcpy(cells[COL_BUSBW], "-");
	if (comm->bus_bytes > 0)
		screen_text__bytes(cells[COL_BUSBW], comm->bus_bytes);
	if (comm->judged) {
		print_named(cells[COL_CULPRITS], &comm->verdict.culprits);
		snprintf(cells[COL_WHY], TABLE_CELL, "%s", comm->verdict.why);
	}
	table__row(table, grid, selected, verdict_state__look(state), cells);
}

/* ---- of one communicator ---- */

static void draw_comm_title(const struct picture_comm *comm, struct grid *grid)
{
	char ranks[TABLE_CELL], nodes[32] = "";

	print_ranks(ranks, comm);
	if (comm->n_nodes > 1)
		snprintf(nodes, sizeof(nodes), " on %d nodes", comm->n_nodes);
	grid__line(grid, LOOK_TITLE, " %s  %s  job %s  %s ranks here%s", comm->label,
		   known(comm->name), known(comm->job), ranks, nodes);
}

static void draw_named(const struct verdict *verdict, struct grid *grid)
{
	char culprits[TABLE_CELL], waiting[TABLE_CELL];

	if (!verdict->culprits.n && !verdict->waiting.n)
		return;
	print_named(culprits, &verdict->culprits);
	print_named(waiting, &verdict->waiting);
	grid__line(grid, LOOK_PLAIN, " culprits: %-12s  waiting: %s", known(culprits),
		   known(waiting));
}

/* How long a state has lasted is of interest where something is wrong. */
static void draw_verdict(const struct picture *picture, const struct picture_comm *comm,
			 struct grid *grid)
{
	const struct verdict *verdict = &comm->verdict;
	uint64_t age_ns = picture_comm__age_ns(picture, comm);
	char age[SCREEN_TEXT_SIZE] = "", operation[64], text[400];

	if (!comm->judged) {
		grid__wrap(grid, LOOK_PLAIN, 2,
			   "unknown: the hash of this communicator, or a rank in it, is not known");
		return;
	}
	if (age_ns)
		screen_text__age(age, age_ns);
	picture_comm__operation(picture, comm, operation, sizeof(operation));
	snprintf(text, sizeof(text), "%s%s%s, %s%s%s", verdict_state__name(verdict->state),
		 age[0] ? " for " : "", age, operation, verdict->why[0] ? ": " : "", verdict->why);
	grid__wrap(grid, verdict_state__look(verdict->state), 3, text);
	draw_named(verdict, grid);
}

void view__draw_verdict(const struct picture *picture, const struct picture_comm *comm,
			unsigned int max_evidence, struct grid *grid)
{
	char text[VERDICT_TEXT + 2];

	draw_comm_title(comm, grid);
	draw_verdict(picture, comm, grid);
	for (uint32_t i = 0; comm->judged && i < comm->verdict.n_evidence && i < max_evidence;
	     i++) {
		snprintf(text, sizeof(text), "- %s", comm->verdict.evidence[i]);
		grid__wrap(grid, LOOK_PLAIN, 2, text);
	}
}

/* ---- all of it ---- */

static unsigned int troubles_shown(const struct picture *picture, const struct grid *grid)
{
	unsigned int room = grid->height / 6;

	return picture->n_troubles < room ? picture->n_troubles : room;
}

static void draw_troubles(const struct picture *picture, unsigned int n, struct grid *grid)
{
	unsigned int n_named = n < picture->n_troubles && n ? n - 1 : n;

	if (n_named > PICTURE_MAX_TROUBLES)
		n_named = PICTURE_MAX_TROUBLES;
	for (unsigned int i = 0; i < n_named; i++)
		grid__line(grid, LOOK_WARNING, " %s", picture->troubles[i]);
	if (picture->n_troubles > n_named)
		grid__line(grid, LOOK_WARNING, " %u more processes like these",
			   picture->n_troubles - n_named);
}

static void draw_nothing(const struct view *view, const struct picture *picture, struct grid *grid)
{
	if (!picture->census.traced && !picture->census.unsupported)
		grid__line(grid, LOOK_PLAIN,
			   " No process with NCCL on this node: waiting for one.");
	else if (picture->n_comms)
		grid__line(grid, LOOK_PLAIN, " None of %u communicators has \"%s\" in it.",
			   picture->n_comms, view->filter);
	else if (picture->census.traced)
		grid__line(grid, LOOK_PLAIN, " No communicator is known of yet.");
}

/* What is left below the rows is for the selected one; a third of the room if all are not shown. */
static unsigned int rows_room(const struct view *view, unsigned int room)
{
	unsigned int details = room >= 12 ? room / 3 : 0;

	room = room > details + 1 ? room - details - 1 : 0;
	return view->n_order < room ? view->n_order : room;
}

void view__draw_overview(struct view *view, const struct picture *picture, struct grid *grid)
{
	unsigned int n_troubles = troubles_shown(picture, grid), room = grid__room(grid);
	const struct picture_comm *comm;
	struct table table;

	room = room > n_troubles ? room - n_troubles : 0;
	view_list__fit(&view->overview, view->n_order, rows_room(view, room));
	if (!view->n_order) {
		draw_nothing(view, picture, grid);
		draw_troubles(picture, n_troubles, grid);
		return;
	}
	table__fit(&table, comm_columns, COLS, grid->width);
	table__titles(&table, grid);
	for (unsigned int i = 0; i < view->overview.room; i++) {
		unsigned int row = view->overview.top + i;

		draw_row(&table, picture, &picture->comms[view->order[row]],
			 row == view->overview.cursor, grid);
	}
	comm = view__comm(view, picture);
	draw_troubles(picture, n_troubles, grid);
	if (comm && grid__room(grid) >= 3)
		view__draw_verdict(picture, comm, VERDICT_MAX_EVIDENCE, grid);
}
