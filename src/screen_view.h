/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What of a picture is shown, and how keys change that. Pure. */
#ifndef SCREEN_VIEW_H
#define SCREEN_VIEW_H

#include <stdbool.h>

#include "screen_grid.h"
#include "screen_picture.h"
#include "screen_table.h"

enum view_page {
	PAGE_OVERVIEW,
	PAGE_COMM,
	PAGES,
};

enum view_sort {
	SORT_TROUBLE,
	SORT_NAME,
	SORT_RATE,
	SORT_AGE,
	SORTS,
};

/* Parts of PAGE_COMM. */
enum view_part {
	PART_RANKS,
	PART_OPERATIONS,
	PART_EVENTS,
	PARTS,
};

/* Where one looks at in a list that is longer than the room for it. */
struct view_list {
	unsigned int cursor, top;
	unsigned int n, room; /* as last drawn */
};

struct view {
	enum view_page page;
	bool help, frozen, typing; /* typing: the filter */
	enum view_sort sort[PAGES];
	bool reverse[PAGES];
	char filter[32];
	char selected[32]; /* label of a communicator; "": the first row, whichever that is */
	bool gone;	   /* the opened one is no more */
	struct view_list overview, parts[PARTS];
	enum view_part part;
	unsigned int order[PICTURE_MAX_COMMS]; /* the overview's rows: indices of communicators */
	unsigned int n_order;
	unsigned int ranks[PICTURE_MAX_RANKS]; /* the opened one's: indices of ranks */
	unsigned int n_ranks;
	const char *textfile_dir; /* NULL: none */
	char message[200];	  /* what was said on stderr last; "": nothing */
};

enum view_answer {
	VIEW_SAME,
	VIEW_CHANGED,
	VIEW_REDRAW, /* as if nothing stood on the terminal */
	VIEW_QUIT,
};
enum view_answer view__key(struct view *view, const struct picture *picture, int key);

/* After a new picture, or a key: sorts and filters anew, finds the selected row again. */
void view__update(struct view *view, const struct picture *picture);

/* The one that is selected or opened; NULL: none. */
const struct picture_comm *view__comm(const struct view *view, const struct picture *picture);

/* Keeps the cursor on the list and in the room; notes both for the keys. */
void view_list__fit(struct view_list *list, unsigned int n, unsigned int room);

const char *view_sort__name(enum view_sort sort);

/* Draws all of it. Less than VIEW_MIN_WIDTH x VIEW_MIN_HEIGHT gets one line that says so. */
#define VIEW_MIN_WIDTH	60
#define VIEW_MIN_HEIGHT 10
void view__draw(struct view *view, const struct picture *picture, struct grid *grid);

/* Parts of it. */
void view__draw_overview(struct view *view, const struct picture *picture, struct grid *grid);
void view__draw_comm(struct view *view, const struct picture *picture, struct grid *grid);
void view__draw_verdict(const struct picture *picture, const struct picture_comm *comm,
			unsigned int max_evidence, struct grid *grid);
enum look verdict_state__look(enum verdict_state state);

#endif
