/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "screen_view.h"

#include <stdlib.h>
#include <string.h>

#include "screen_keys.h"
#include "util.h"

const char *view_sort__name(enum view_sort sort)
{
	static const char *const names[SORTS] = {
		[SORT_TROUBLE] = "trouble",
		[SORT_NAME] = "name",
		[SORT_RATE] = "rate",
		[SORT_AGE] = "age",
	};

	return names[sort];
}

/* ---- order ---- */

struct order {
	const struct picture *picture;
	enum view_sort sort;
	bool reverse;
};

static int compare_u64(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int compare_double(double a, double b)
{
	return a < b ? -1 : a > b;
}

/* The worst first; among equals what has lasted longest. */
static int compare_trouble(const struct picture_comm *a, const struct picture_comm *b)
{
	unsigned int severity_a = verdict_state__severity(picture_comm__state(a));
	unsigned int severity_b = verdict_state__severity(picture_comm__state(b));

	if (severity_a != severity_b)
		return severity_a > severity_b ? -1 : 1;
	if (!severity_a || !a->judged || !b->judged)
		return 0; /* nothing is wrong: the rows shall not jump about */
	return compare_u64(a->verdict.since_ns, b->verdict.since_ns);
}

static int compare_comms(const void *left, const void *right, void *ctx)
{
	const struct order *order = ctx;
	const struct picture_comm *a = &order->picture->comms[*(const unsigned int *)left];
	const struct picture_comm *b = &order->picture->comms[*(const unsigned int *)right];
	int by = 0;

	if (order->sort == SORT_TROUBLE)
		by = compare_trouble(a, b);
	else if (order->sort == SORT_NAME)
		by = strcmp(a->name, b->name);
	else if (order->sort == SORT_RATE)
		by = compare_double(b->rate.operations, a->rate.operations);
	else if (order->sort == SORT_AGE)
		by = compare_u64(a->last_ns, b->last_ns);
	if (order->reverse)
		by = -by;
	return by ?: strcmp(a->label, b->label);
}

static int compare_ranks(const void *left, const void *right, void *ctx)
{
	static const int weight[] = {[ROLE_CULPRIT] = 0, [ROLE_WAITING] = 1, [ROLE_NONE] = 2};
	const struct order *order = ctx;
	const struct picture_rank *a = &order->picture->ranks[*(const unsigned int *)left];
	const struct picture_rank *b = &order->picture->ranks[*(const unsigned int *)right];
	int by = 0;

	if (order->sort == SORT_TROUBLE)
		by = weight[a->role] - weight[b->role];
	else if (order->sort == SORT_RATE)
		by = compare_double(b->rate.operations, a->rate.operations);
	else if (order->sort == SORT_AGE)
		by = compare_u64(a->last_ns, b->last_ns);
	if (!by)
		by = a->rank < b->rank ? -1 : a->rank > b->rank;
	return order->reverse ? -by : by;
}

static bool matches(const struct picture_comm *comm, const char *filter)
{
	return strcasestr(comm->job, filter) || strcasestr(comm->name, filter) ||
	       strcasestr(comm->label, filter) ||
	       strcasestr(verdict_state__name(picture_comm__state(comm)), filter);
}

const struct picture_comm *view__comm(const struct view *view, const struct picture *picture)
{
	for (unsigned int i = 0; view->selected[0] && i < picture->n_comms; i++)
		if (!strcmp(picture->comms[i].label, view->selected))
			return &picture->comms[i];
	if (view->page != PAGE_OVERVIEW || !view->n_order)
		return NULL;
	return &picture->comms[view->order[view->overview.cursor]];
}

/* The row may have moved; where it is no more, the one in its place is selected. */
static void view__find_selected(struct view *view, const struct picture *picture)
{
	struct view_list *list = &view->overview;

	if (!view->selected[0])
		list->cursor = 0;
	for (unsigned int i = 0; view->selected[0] && i < view->n_order; i++)
		if (!strcmp(picture->comms[view->order[i]].label, view->selected))
			list->cursor = i;
	view_list__fit(list, view->n_order, list->room);
}

static void view__order_ranks(struct view *view, const struct picture *picture)
{
	const struct picture_comm *comm = view__comm(view, picture);
	struct order order = {picture, view->sort[PAGE_COMM], view->reverse[PAGE_COMM]};

	view->gone = !comm;
	view->n_ranks = comm ? comm->n_local : 0;
	for (unsigned int i = 0; i < view->n_ranks; i++)
		view->ranks[i] = comm->first_rank + i;
	qsort_r(view->ranks, view->n_ranks, sizeof(*view->ranks), compare_ranks, &order);
}

void view__update(struct view *view, const struct picture *picture)
{
	struct order order = {picture, view->sort[PAGE_OVERVIEW], view->reverse[PAGE_OVERVIEW]};

	view->n_order = 0;
	for (unsigned int i = 0; i < picture->n_comms; i++)
		if (!view->filter[0] || matches(&picture->comms[i], view->filter))
			view->order[view->n_order++] = i;
	qsort_r(view->order, view->n_order, sizeof(*view->order), compare_comms, &order);
	view__find_selected(view, picture);
	if (view->page == PAGE_COMM)
		view__order_ranks(view, picture);
}

/* ---- keys ---- */

void view_list__fit(struct view_list *list, unsigned int n, unsigned int room)
{
	list->n = n;
	list->room = room;
	if (list->cursor >= n)
		list->cursor = n ? n - 1 : 0;
	if (list->cursor < list->top)
		list->top = list->cursor;
	if (room && list->cursor >= list->top + room)
		list->top = list->cursor - room + 1;
	if (list->top + room > n)
		list->top = n > room ? n - room : 0;
}

/* False: the key moves nothing. */
static bool view_list__key(struct view_list *list, int key)
{
	unsigned int page = list->room > 1 ? list->room - 1 : 1;
	unsigned int last = list->n ? list->n - 1 : 0;

	if (key == KEY_CURSOR_UP || key == 'k')
		list->cursor -= list->cursor > 0;
	else if (key == KEY_CURSOR_DOWN || key == 'j')
		list->cursor += list->cursor < last;
	else if (key == KEY_PAGE_UP)
		list->cursor -= list->cursor < page ? list->cursor : page;
	else if (key == KEY_PAGE_DOWN)
		list->cursor = list->cursor + page < last ? list->cursor + page : last;
	else if (key == KEY_TO_FIRST || key == 'g')
		list->cursor = 0;
	else if (key == KEY_TO_LAST || key == 'G')
		list->cursor = last;
	else
		return false;
	view_list__fit(list, list->n, list->room);
	return true;
}

/* Where the view goes up or down the list, the row is kept from then on, wherever it moves. */
static void view__select(struct view *view, const struct picture *picture)
{
	if (!view->n_order)
		return;
	memcpy(view->selected, picture->comms[view->order[view->overview.cursor]].label,
	       sizeof(view->selected));
}

static void view__open(struct view *view, const struct picture *picture)
{
	if (!view->n_order)
		return;
	view__select(view, picture);
	view->page = PAGE_COMM;
	view->part = PART_RANKS;
	memset(view->parts, 0, sizeof(view->parts));
}

static void view__back(struct view *view)
{
	if (view->help)
		view->help = false;
	else if (view->page == PAGE_COMM)
		view->page = PAGE_OVERVIEW;
	else if (view->filter[0])
		view->filter[0] = 0;
	else
		view->selected[0] = 0; /* follows the worst again */
}

static enum view_answer view__type(struct view *view, int key)
{
	size_t len = strlen(view->filter);

	if (key == KEY_RETURN) {
		view->typing = false;
	} else if (key == KEY_ESCAPE) {
		view->typing = false;
		view->filter[0] = 0;
	} else if (key == KEY_ERASE) {
		if (len)
			view->filter[len - 1] = 0;
	} else if (key >= ' ' && key < KEY_ERASE && len + 1 < sizeof(view->filter)) {
		view->filter[len] = key;
		view->filter[len + 1] = 0;
	} else {
		return VIEW_SAME;
	}
	return VIEW_CHANGED;
}

static bool view__move(struct view *view, const struct picture *picture, int key)
{
	bool overview = view->page == PAGE_OVERVIEW;

	if (!view_list__key(overview ? &view->overview : &view->parts[view->part], key))
		return false;
	if (overview)
		view__select(view, picture);
	return true;
}

/* Keys that do one thing on all pages. */
static enum view_answer view__command(struct view *view, int key)
{
	switch (key) {
	case 'q': /* as in a pager: first out of the help */
		if (!view->help)
			return VIEW_QUIT;
		view->help = false;
		break;
	case KEY_REDRAW:
		return VIEW_REDRAW;
	case 'h':
	case '?':
		view->help = !view->help;
		break;
	case 'f':
	case ' ':
		view->frozen = !view->frozen;
		break;
	case 's':
		view->sort[view->page] = (view->sort[view->page] + 1) % SORTS;
		break;
	case 'r':
		view->reverse[view->page] = !view->reverse[view->page];
		break;
	case KEY_ESCAPE:
	case KEY_ERASE:
		view__back(view);
		break;
	default:
		return VIEW_SAME;
	}
	return VIEW_CHANGED;
}

enum view_answer view__key(struct view *view, const struct picture *picture, int key)
{
	enum view_answer answer = VIEW_CHANGED;

	if (view->typing) {
		answer = view__type(view, key);
	} else if (!view->help && view__move(view, picture, key)) {
		;
	} else if (key == '/' && !view->help && view->page == PAGE_OVERVIEW) {
		view->typing = true;
	} else if (key == KEY_RETURN && !view->help && view->page == PAGE_OVERVIEW) {
		view__open(view, picture);
	} else if (key == KEY_TABULATOR && view->page == PAGE_COMM) {
		view->part = (view->part + 1) % PARTS;
	} else {
		answer = view__command(view, key);
	}
	if (answer == VIEW_CHANGED)
		view__update(view, picture);
	return answer;
}
