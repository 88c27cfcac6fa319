/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What frames every page: head, help, foot. */
#include <inttypes.h>
#include <string.h>

#include "screen_keys.h"
#include "screen_text.h"
#include "screen_view.h"
#include "util.h"

static void draw_losses(const struct picture *picture, struct grid *grid)
{
	char text[GRID_MAX_WIDTH];
	uint64_t n = 0;
	size_t len = 0;

	for (unsigned int i = 0; i < picture->n_losses; i++) {
		n += picture->losses[i].n;
		if (len < sizeof(text))
			len += snprintf(text + len, sizeof(text) - len, "%s%" PRIu64 " %s",
					i ? ", " : "", picture->losses[i].n,
					picture->losses[i].reason);
	}
	if (n)
		grid__line(grid, LOOK_ALARM, " LOST since the start: %" PRIu64 " records (%s)", n,
			   text);
}

static void draw_head(const struct view *view, const struct picture *picture, struct grid *grid)
{
	char clock[16], amount[SCREEN_TEXT_SIZE];
	struct tm tm;

	strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&picture->wall, &tm));
	grid__line(grid, LOOK_BOLD, " %s  %s  %u traced  %u not traceable  agent %.1f%% CPU %s",
		   picture->host, clock, picture->census.traced, picture->census.unsupported,
		   picture->cpu_percent, screen_text__bytes(amount, picture->resident_bytes));
	grid__line(grid, LOOK_PLAIN, " %s records/s  %s  textfiles: %s",
		   screen_text__amount(amount, picture->total.records),
		   picture->n_losses ? "LOST" : "none lost",
		   view->textfile_dir ? view->textfile_dir : "none");
	draw_losses(picture, grid);
}

/* What the keys have set. */
static void draw_status(const struct view *view, const struct picture *picture, struct grid *grid)
{
	const struct view_list *list =
		view->page == PAGE_OVERVIEW ? &view->overview : &view->parts[view->part];
	static const char *const parts[PARTS] = {"ranks", "operations", "events"};
	char filter[64] = "", rest[48] = "", left_out[48] = "";

	if (view->typing || view->filter[0])
		snprintf(filter, sizeof(filter), "  filter: %s%s", view->filter,
			 view->typing ? "_" : "");
	if (list->n > list->room)
		snprintf(rest, sizeof(rest), " (%u to %u shown)", list->top + 1,
			 list->top + list->room);
	if (picture->n_comms_left_out)
		snprintf(left_out, sizeof(left_out), ", %u more than can be shown",
			 picture->n_comms_left_out);
	grid__line(grid, view->frozen ? LOOK_BOLD : LOOK_PLAIN, " %s%u %s%s%s, by %s%s%s",
		   view->frozen ? "FROZEN  " : "", list->n,
		   view->page == PAGE_OVERVIEW ? "communicators" : parts[view->part], rest,
		   left_out, view_sort__name(view->sort[view->page]),
		   view->reverse[view->page] ? " reversed" : "", filter);
}

static void draw_help(struct grid *grid)
{
	static const char *const notes[] = {
		"FOR: since the trouble began. RANKS: on this node, of all. BUSBW: of the size timed "
		"last.",
		"FLIGHT: launched, and not known to be done (needs the plugin; ?: not known).",
		"LATE: mean time behind the first rank of this node, over the last calls; OF MOST: a "
		"bar of it; %LAST: how often this rank came last.",
	};

	grid__line(grid, LOOK_TITLE, " KEYS");
	for (unsigned int i = 0; i < screen_n_key_helps; i++)
		grid__line(grid, LOOK_PLAIN, " %-14s %s", screen_key_helps[i].keys,
			   screen_key_helps[i].text);
	grid__line(grid, LOOK_TITLE, " COLUMNS");
	for (unsigned int i = 0; i < ARRAY_SIZE(notes); i++)
		grid__wrap(grid, LOOK_PLAIN, 2, notes[i]);
}

static const char *foot(const struct view *view)
{
	if (view->help)
		return " h back  q quit";
	if (view->typing)
		return " type a part of job, name, hash or state  Enter keep  Esc all";
	if (view->page == PAGE_COMM)
		return " q quit  Esc back  Tab part  s sort  r reverse  f freeze  h help";
	return " q quit  Enter open  s sort  r reverse  / filter  f freeze  h help";
}

void view__draw(struct view *view, const struct picture *picture, struct grid *grid)
{
	unsigned int height = grid->height, n_last = 1 + !!view->message[0];

	if (grid->width < VIEW_MIN_WIDTH || height < VIEW_MIN_HEIGHT) {
		grid__line(grid, LOOK_PLAIN, "too small: needs %ux%u", VIEW_MIN_WIDTH,
			   VIEW_MIN_HEIGHT);
		return;
	}
	grid->height -= n_last; /* the pages shall not use them */
	draw_head(view, picture, grid);
	/* the status tells of what is drawn below it */
	grid->row++;
	if (view->help)
		draw_help(grid);
	else if (view->page == PAGE_COMM)
		view__draw_comm(view, picture, grid);
	else
		view__draw_overview(view, picture, grid);
	grid->row = 2 + !!picture->n_losses;
	draw_status(view, picture, grid);
	grid->height = height;
	grid__skip_to_last(grid, n_last);
	if (view->message[0])
		grid__line(grid, LOOK_WARNING, " %s", view->message);
	grid__line(grid, LOOK_BOLD, "%s", foot(view));
}
