/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "screen.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rates.h"
#include "screen_frame.h"
#include "screen_text.h"
#include "shown.h"
#include "util.h"

#define TAKE_OVER "\033[?1049h\033[?25l" /* the other screen, no cursor */
#define GIVE_BACK "\033[?25h\033[?1049l"

#define MAX_CELL	64
#define MAX_COMMS	4096 /* rows kept for sorting; no terminal shows as many */
#define MAX_UNTRACEABLE 8    /* lines about those, at most */

struct screen {
	FILE *out;
	const char *textfile_dir;
	struct rates *rates;
	bool is_taken_over;
};

/* What a row is made of. */
struct row {
	const struct comm *comm;
	const struct process *process; /* NULL: never seen */
};

enum column {
	COL_COMM,
	COL_NAME,
	COL_RANK,
	COL_PID,
	COL_COMMAND,
	COL_GPU,
	COL_OPS,
	COL_BYTES,
	COL_LAST,
	COL_AGE,
	COL_MAX,
};

static const struct {
	const char *title;
	unsigned int width;
	bool right;
	unsigned int dispensable; /* where there is no room, the highest goes first; 0: never */
} columns[COL_MAX] = {
	[COL_COMM] = {"COMMUNICATOR", 18, false, 0}, [COL_NAME] = {"NAME", 14, false, 4},
	[COL_RANK] = {"RANK", 9, true, 0},	     [COL_PID] = {"PID", 7, true, 0},
	[COL_COMMAND] = {"COMMAND", 15, false, 3},   [COL_GPU] = {"GPU", 3, true, 0},
	[COL_OPS] = {"OPS/S", 6, true, 1},	     [COL_BYTES] = {"BYTES/S", 7, true, 2},
	[COL_LAST] = {"LAST CALL", 13, false, 0},    [COL_AGE] = {"AGO", 5, true, 0},
};

int screen__new(struct screen **ret, FILE *out, const char *textfile_dir)
{
	struct screen *screen = calloc(1, sizeof(*screen));
	int err;

	if (!screen)
		return -ENOMEM;
	screen->out = out;
	screen->textfile_dir = textfile_dir;
	err = rates__new(&screen->rates, now_ns());
	if (err) {
		free(screen);
		return err;
	}
	*ret = screen;
	return 0;
}

void screen__free(struct screen *screen)
{
	if (!screen)
		return;
	if (screen->is_taken_over) {
		fputs(GIVE_BACK, screen->out);
		fflush(screen->out);
	}
	rates__free(screen->rates);
	free(screen);
}

/* The columns that fit, as bits. */
static unsigned int columns__fitting(unsigned int width)
{
	unsigned int shown = (1U << COL_MAX) - 1;

	for (unsigned int limit = 5; limit; limit--) {
		unsigned int needed = 0;

		for (int i = 0; i < COL_MAX; i++) {
			if (columns[i].dispensable >= limit)
				shown &= ~(1U << i);
			if (shown & 1U << i)
				needed += columns[i].width + 1;
		}
		if (needed <= width)
			break;
	}
	return shown;
}

/* Cells of one line, one space between two; a cell too long is cut, and ends with "~". */
static void frame__cells(struct frame *frame, const char *look, char cells[COL_MAX][MAX_CELL])
{
	unsigned int shown = columns__fitting(frame->width);
	char line[FRAME_MAX_WIDTH] = "";
	size_t len = 0;

	for (int i = 0; i < COL_MAX; i++) {
		int width = columns[i].width;

		if (!(shown & 1U << i))
			continue;
		if (strlen(cells[i]) > (size_t)width)
			strcpy(cells[i] + width - 1, "~");
		len += snprintf(line + len, sizeof(line) - len, "%s%*s", len ? " " : "",
				columns[i].right ? width : -width, cells[i]);
	}
	frame__line(frame, look, "%s", line);
}

static const char *last_call(const struct comm *comm)
{
	uint64_t last_ns = 0;
	int last = -1;

	for (int i = 0; i < NCCL_OP_MAX; i++)
		if (comm->operations[i].last_ns > last_ns) {
			last_ns = comm->operations[i].last_ns;
			last = i;
		}
	return last >= 0 ? nccl_operation__name(last) : "-";
}

static void print_rank(char cell[MAX_CELL], const struct comm *comm)
{
	char rank[12] = "?", n_ranks[12] = "?";

	if (comm->rank >= 0)
		snprintf(rank, sizeof(rank), "%d", comm->rank);
	if (comm->n_ranks > 0)
		snprintf(n_ranks, sizeof(n_ranks), "%d", comm->n_ranks);
	snprintf(cell, MAX_CELL, "%s/%s", rank, n_ranks);
}

static void print_known(char cell[MAX_CELL], const char *text)
{
	screen_text__sanitise(cell, MAX_CELL, text && text[0] ? text : "-");
}

static void draw_row(struct frame *frame, const struct screen *screen, struct tracer *tracer,
		     const struct row *row, uint64_t now)
{
	const struct comm *comm = row->comm;
	const struct gpu *gpu = tracer__gpu_of(tracer, comm);
	struct rate rate = rates__of(screen->rates, comm);
	char cells[COL_MAX][MAX_CELL];

	print_known(cells[COL_COMM], comm->label);
	print_known(cells[COL_NAME], comm->name);
	print_known(cells[COL_COMMAND], row->process ? row->process->info.command : "");
	print_known(cells[COL_LAST], last_call(comm));
	print_rank(cells[COL_RANK], comm);
	snprintf(cells[COL_PID], MAX_CELL, "%u", comm->key.tgid);
	strcpy(cells[COL_GPU], "?");
	if (gpu)
		snprintf(cells[COL_GPU], MAX_CELL, "%u", gpu->index);
	screen_text__amount(cells[COL_OPS], rate.operations);
	screen_text__bytes(cells[COL_BYTES], rate.bytes);
	strcpy(cells[COL_AGE], "-");
	if (comm__last_ns(comm))
		screen_text__age(cells[COL_AGE],
				 now > comm__last_ns(comm) ? now - comm__last_ns(comm) : 0);
	frame__cells(frame, "", cells);
}

/* By process, then rank: a row stays where it is, and the ranks of one job stand together. */
static int compare_rows(const void *left, const void *right)
{
	const struct comm *a = ((const struct row *)left)->comm;
	const struct comm *b = ((const struct row *)right)->comm;

	if (a->key.tgid != b->key.tgid)
		return a->key.tgid < b->key.tgid ? -1 : 1;
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return strcmp(a->label, b->label);
}

/* Those that live; ret_all counts also what found no place. */
static unsigned int collect_rows(struct tracer *tracer, struct row *rows, unsigned int *ret_all)
{
	struct comm *comm = comms__first(tracer__comms(tracer));
	unsigned int n = 0;

	*ret_all = 0;
	for (; comm; comm = comm->hh.next) {
		struct process *process =
			processes__find(tracer__processes(tracer), comm->key.tgid);

		if (comm->dead_ns || !process__is_shown(process))
			continue;
		++*ret_all;
		if (n < MAX_COMMS)
			rows[n++] = (struct row){comm, process};
	}
	qsort(rows, n, sizeof(*rows), compare_rows);
	return n;
}

static void draw_table(struct frame *frame, const struct screen *screen, struct tracer *tracer,
		       uint64_t now, unsigned int n_kept_free)
{
	_cleanup_free_ struct row *rows = calloc(MAX_COMMS, sizeof(*rows));
	unsigned int n, n_all, room;
	char cells[COL_MAX][MAX_CELL];

	if (!rows)
		return;
	n = collect_rows(tracer, rows, &n_all);
	if (!n && tracer__census(tracer).traced)
		frame__line(frame, "", "No communicator is known of yet.");
	if (!n)
		return;
	for (int i = 0; i < COL_MAX; i++)
		strcpy(cells[i], columns[i].title);
	frame__cells(frame, FRAME_REVERSE, cells);
	room = frame__room(frame) > n_kept_free ? frame__room(frame) - n_kept_free : 0;
	if (n_all > room && room)
		room--;
	for (unsigned int i = 0; i < n && i < room; i++)
		draw_row(frame, screen, tracer, &rows[i], now);
	if (n_all > room)
		frame__line(frame, FRAME_BOLD, "%u more communicators do not fit on this screen",
			    n_all - room);
}

static void draw_header(struct frame *frame, const struct screen *screen, struct tracer *tracer)
{
	struct tracer_census census = tracer__census(tracer);
	struct rate rate = rates__total(screen->rates);
	char host[64] = "", clock[16], amount[SCREEN_TEXT_SIZE];
	uint64_t lost = tracer__all_lost(tracer);
	time_t wall = time(NULL);
	struct tm tm;

	gethostname(host, sizeof(host) - 1);
	strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&wall, &tm));
	frame__line(frame, FRAME_BOLD, "%s  %s  %u traced  %u not traceable  %s records/s", host,
		    clock, census.traced, census.unsupported,
		    screen_text__amount(amount, rate.records));
	for (int i = 0; lost && i < TRACER_LOST_MAX; i++)
		if (tracer__lost(tracer, i))
			frame__line(frame, FRAME_ALARM,
				    "LOST since the start: %" PRIu64 " records (%s)",
				    tracer__lost(tracer, i), tracer__lost_name(i));
	if (screen->textfile_dir)
		frame__line(frame, "", "textfiles in %s", screen->textfile_dir);
	if (!census.traced && !census.unsupported)
		frame__line(frame, "", "No process with NCCL on this node: waiting for one.");
}

/* What is wrong with a process, in buf; false: nothing known of. */
static bool explain(const struct process *process, char *buf, size_t size)
{
	const struct library *library = process__nccl(process);

	if (!library || process->gone_ns || !process__is_shown(process))
		return false;
	if (library->state == LIBRARY_UNSUPPORTED)
		snprintf(buf, size, "%u %s: cannot be traced: %s: %s", process->tgid,
			 process->info.command, library->name, library->reason);
	else if (process->scan_err)
		snprintf(buf, size, "%u %s: its communicators cannot be read: %s", process->tgid,
			 process->info.command, strerror(abs(process->scan_err)));
	else
		return false;
	return true;
}

static unsigned int count_explained(struct tracer *tracer)
{
	struct process *process = processes__first(tracer__processes(tracer));
	unsigned int n = 0;
	char buf[FRAME_MAX_WIDTH];

	for (; process; process = process->hh.next)
		n += explain(process, buf, sizeof(buf));
	return n;
}

static void draw_explained(struct frame *frame, struct tracer *tracer, unsigned int n)
{
	struct process *process = processes__first(tracer__processes(tracer));
	unsigned int room = n <= MAX_UNTRACEABLE ? n : MAX_UNTRACEABLE - 1, i = 0;
	char buf[FRAME_MAX_WIDTH];

	if (room >= frame__room(frame))
		room = frame__room(frame) - (n > frame__room(frame) && frame__room(frame));
	for (; process && i < room; process = process->hh.next)
		if (explain(process, buf, sizeof(buf))) {
			frame__line(frame, "", "%s", buf);
			i++;
		}
	if (n > room)
		frame__line(frame, FRAME_BOLD, "%u more processes like these", n - room);
}

static void draw_frame(struct screen *screen, struct tracer *tracer, FILE *text, uint64_t now)
{
	struct frame frame = frame__begin(text, fileno(screen->out));
	unsigned int n_explained = count_explained(tracer);
	unsigned int n_lines = n_explained < MAX_UNTRACEABLE ? n_explained : MAX_UNTRACEABLE;

	if (n_lines > frame.height / 3)
		n_lines = frame.height / 3;
	fprintf(text, "%s" FRAME_HOME, screen->is_taken_over ? "" : TAKE_OVER);
	draw_header(&frame, screen, tracer);
	draw_table(&frame, screen, tracer, now, n_lines);
	draw_explained(&frame, tracer, n_explained);
	fputs(FRAME_END, text);
}

/* With a terminal that takes nothing, a write would last for ever. Not a file's case. */
static bool is_writable(FILE *out)
{
	struct pollfd pollfd = {.fd = fileno(out), .events = POLLOUT};

	return pollfd.fd < 0 || (poll(&pollfd, 1, 0) == 1 && pollfd.revents & POLLOUT);
}

int screen__draw(struct screen *screen, struct tracer *tracer, uint64_t now)
{
	_cleanup_free_ char *buf = NULL;
	size_t len = 0;
	FILE *text;
	int err;

	err = rates__update(screen->rates, tracer__comms(tracer),
			    probe__received(tracer__probe(tracer)), now);
	if (err || !is_writable(screen->out))
		return err;
	text = open_memstream(&buf, &len);
	if (!text)
		return -errno;
	draw_frame(screen, tracer, text, now);
	if (fclose(text))
		return -errno;
	screen->is_taken_over = true;
	if (fwrite(buf, 1, len, screen->out) != len || fflush(screen->out))
		return -errno;
	return 0;
}
