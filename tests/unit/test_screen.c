/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "../../src/comm.c"
#include "../../src/comm_learn.c"
#include "../../src/comm_graph.c"
#include "../../src/comm_owner.c"
#include "../../src/comm_plugin.c"
#include "../../src/comm_query.c"
#include "../../src/nccl_api.c"
#include "../../src/rates.c"
#include "../../src/screen_draw.c"
#include "../../src/screen_grid.c"
#include "../../src/screen_keys.c"
#include "../../src/screen_opened.c"
#include "../../src/screen_overview.c"
#include "../../src/screen_picture.c"
#include "../../src/screen_table.c"
#include "../../src/screen_text.c"
#include "../../src/screen_timed.c"
#include "../../src/screen_view.c"

#include "stub_tracer.h"
#include "unit_hang.h"

static void expect_amount(double value, const char *want)
{
	char buf[SCREEN_TEXT_SIZE];

	CHECK_STR(screen_text__amount(buf, value), want);
}

static void expect_bytes(double value, const char *want)
{
	char buf[SCREEN_TEXT_SIZE];

	CHECK_STR(screen_text__bytes(buf, value), want);
}

static void expect_age(double seconds, const char *want)
{
	char buf[SCREEN_TEXT_SIZE];

	CHECK_STR(screen_text__age(buf, seconds * 1e9), want);
}

static void expect_sane(const char *text, const char *want)
{
	char buf[16];

	CHECK_STR(screen_text__sanitise(buf, sizeof(buf), text), want);
}

TEST(amounts)
{
	expect_amount(0, "0");
	expect_amount(0.01, "0");
	expect_amount(0.5, "0.5");
	expect_amount(12.34, "12.3");
	expect_amount(99.94, "99.9");
	expect_amount(99.96, "100");
	expect_amount(999.4, "999");
	expect_amount(999.6, "1.00 k");
	expect_amount(12345, "12.3 k");
	expect_amount(12.3e9, "12.3 G");
	expect_amount(999.7e9, "1.00 T");
	expect_amount(1.8e19, "18.0 E");
	expect_bytes(0, "0 B");
	expect_bytes(512, "512 B");
	expect_bytes(12.3e9, "12.3 GB");
}

TEST(ages)
{
	expect_age(0, "0.0s");
	expect_age(0.15, "0.1s");
	expect_age(9.99, "9.9s");
	expect_age(10, "10s");
	expect_age(119, "119s");
	expect_age(120, "2m");
	expect_age(7199, "119m");
	expect_age(7200, "2h");
	expect_age(200000, "2d");
}

TEST(sanitising)
{
	expect_sane("plain ~", "plain ~");
	expect_sane("\033[2Jx", "?[2Jx");
	expect_sane("\xc2\x9b"
		    "2J",
		    "?2J");
	expect_sane("\x9b"
		    "2J",
		    "?2J");
	expect_sane("\xe6\x97\xa5\xe6\x9c\xac", "??");
	expect_sane("a\r\n\tb\x7f", "a???b?");
	expect_sane("0123456789abcdefgh", "0123456789abcde");
	expect_sane("", "");
}

static void expect_duration(uint64_t ns, const char *want)
{
	char buf[SCREEN_TEXT_SIZE];

	CHECK_STR(screen_text__duration(buf, ns), want);
}

TEST(durations)
{
	expect_duration(0, "0.0us");
	expect_duration(12340, "12.3us");
	expect_duration(999400, "999us");
	expect_duration(999600, "1.0ms");
	expect_duration(50 * NSEC_PER_MSEC, "50.0ms");
	expect_duration(3 * NSEC_PER_SEC, "3.0s");
	expect_duration(5000 * NSEC_PER_SEC, "5000s");
}

TEST(ranks_in_short)
{
	const int32_t ranks[] = {0, 1, 2, 5, 7, 8};
	char buf[64];

	CHECK_STR(screen_text__ranks(buf, sizeof(buf), ranks, 0, 0), "");
	CHECK_STR(screen_text__ranks(buf, sizeof(buf), ranks, 1, 1), "0");
	CHECK_STR(screen_text__ranks(buf, sizeof(buf), ranks, 6, 6), "0-2,5,7,8");
	CHECK_STR(screen_text__ranks(buf, sizeof(buf), ranks, 4, 68), "0-2,5,+64");
	CHECK_STR(screen_text__ranks(buf, 6, ranks, 6, 6), "0-2,5");
}

/* ---- keys ---- */

/* The last key; all bytes before its own must have completed none. */
static int press(struct screen_decoder *decoder, const char *bytes)
{
	int keys[2] = {KEY_NONE_YET, KEY_NONE_YET};
	unsigned int n = 0;

	for (; *bytes; bytes++) {
		CHECK_INT(n, 0);
		n = screen_decoder__feed(decoder, *bytes, keys);
	}
	CHECK(n < 2);
	return n ? keys[0] : KEY_NONE_YET;
}

TEST(keys_of_terminals)
{
	struct screen_decoder decoder = {};

	CHECK_INT(press(&decoder, "q"), 'q');
	CHECK_INT(press(&decoder, "\r"), KEY_RETURN);
	CHECK_INT(press(&decoder, "\n"), KEY_RETURN);
	CHECK_INT(press(&decoder, "\b"), KEY_ERASE);
	CHECK_INT(press(&decoder, "\177"), KEY_ERASE);
	CHECK_INT(press(&decoder, "\t"), KEY_TABULATOR);
	CHECK_INT(press(&decoder, "\033[A"), KEY_CURSOR_UP);
	CHECK_INT(press(&decoder, "\033OB"), KEY_CURSOR_DOWN);
	CHECK_INT(press(&decoder, "\033[5~"), KEY_PAGE_UP);
	CHECK_INT(press(&decoder, "\033[6~"), KEY_PAGE_DOWN);
	CHECK_INT(press(&decoder, "\033[H"), KEY_TO_FIRST);
	CHECK_INT(press(&decoder, "\033[4~"), KEY_TO_LAST);
	CHECK_INT(press(&decoder, "\033[1;5A"), KEY_UNKNOWN);
	CHECK_INT(press(&decoder, "\033[M"), KEY_UNKNOWN);
	CHECK_INT(press(&decoder, "\303"), 0xc3);
	CHECK_INT(decoder.len, 0);
}

TEST(a_lone_escape_is_a_key)
{
	struct screen_decoder decoder = {};
	char longest[64];
	int keys[2];

	CHECK_INT(screen_decoder__timeout(&decoder), KEY_NONE_YET);
	CHECK_INT(press(&decoder, "\033"), KEY_NONE_YET);
	CHECK_INT(screen_decoder__timeout(&decoder), KEY_ESCAPE);
	CHECK_INT(screen_decoder__timeout(&decoder), KEY_NONE_YET);
	CHECK_INT(press(&decoder, "\033\033"), KEY_ESCAPE);
	CHECK_INT(press(&decoder, "[B"), KEY_CURSOR_DOWN);
	CHECK_INT(press(&decoder, "\033["), KEY_NONE_YET);
	CHECK_INT(screen_decoder__timeout(&decoder), KEY_UNKNOWN);
	CHECK_INT(press(&decoder, "\033"), KEY_NONE_YET);
	CHECK_INT(screen_decoder__feed(&decoder, 's', keys), 2);
	CHECK(keys[0] == KEY_ESCAPE && keys[1] == 's');
	CHECK_INT(press(&decoder, "\033[1"), KEY_NONE_YET);
	CHECK_INT(press(&decoder, "\033"), KEY_UNKNOWN);
	CHECK_INT(press(&decoder, "[A"), KEY_CURSOR_UP);
	/* a sequence without an end does not grow */
	memset(longest, '0', sizeof(longest));
	longest[0] = KEY_ESCAPE;
	longest[1] = '[';
	longest[sizeof(longest) - 1] = 0;
	CHECK_INT(press(&decoder, longest), KEY_NONE_YET);
	CHECK_INT(press(&decoder, "~"), KEY_UNKNOWN);
	CHECK_INT(press(&decoder, "q"), 'q');
}

/* ---- tables ---- */

TEST(columns_give_way)
{
	struct table table;
	unsigned int width;

	for (width = VIEW_MIN_WIDTH; width <= GRID_MAX_WIDTH; width++) {
		table__fit(&table, rank_columns, RANK_COLUMNS, width);
		CHECK(table__width(&table) <= width);
		table__fit(&table, operation_columns, OP_COLUMNS, width);
		CHECK(table__width(&table) <= width);
	}
	table__fit(&table, comm_columns, COLS, 200);
	CHECK(table__shows(&table, COL_WHY) && table__shows(&table, COL_JOB));
	CHECK_INT(table__width(&table), 200);
	table__fit(&table, comm_columns, COLS, 80);
	CHECK(table__shows(&table, COL_CULPRITS) && table__shows(&table, COL_RANKS));
	CHECK(!table__shows(&table, COL_WHY) && !table__shows(&table, COL_JOB));
	CHECK(table__width(&table) <= 80);
	table__fit(&table, rank_columns, RANK_COLUMNS, 80);
	CHECK(table__shows(&table, RANK_FLIGHT) && table__shows(&table, RANK_LAST));
}

TEST(bars_are_in_proportion)
{
	char cell[TABLE_CELL];

	print_bar(cell, 10, 0, 100);
	CHECK_STR(cell, "");
	print_bar(cell, 10, 52, 100);
	CHECK_STR(cell, "#####");
	print_bar(cell, 10, 100, 100);
	CHECK_STR(cell, "##########");
	print_bar(cell, 10, 700, 100);
	CHECK_STR(cell, "##########");
	print_bar(cell, 10, 5, 0);
	CHECK_STR(cell, "");
	print_bar(cell, 10000, ~0ULL >> 20, 1);
	CHECK_INT(strlen(cell), TABLE_CELL - 1);
}

TEST(text_is_wrapped_between_words)
{
	static struct grid grid;

	grid__begin(&grid, 20, 4);
	grid__wrap(&grid, LOOK_PLAIN, 2, "one two three four five six seven eight");
	CHECK(!memcmp(&grid.cells[0][1], (struct grid_cell[]){{'o', 0}, {'n', 0}}, 4));
	CHECK_INT(grid.row, 2);
	CHECK_INT(grid.cells[0][18].c, 'r'); /* "four" */
	CHECK_INT(grid.cells[1][2].c, ' ');
	CHECK_INT(grid.cells[1][3].c, 'f');
	CHECK_INT(grid.cells[1][16].c, '~');
	grid__wrap(&grid, LOOK_PLAIN, 9, "0123456789012345678901234567890123456789012345678901234");
	CHECK_INT(grid.row, 4);
}

/* ---- the view, on pictures made here ---- */

#define NOW (1000 * NSEC_PER_SEC)

static struct picture picture_new(unsigned int n_comms, unsigned int n_ranks)
{
	struct picture picture = {
		.now_ns = NOW,
		.wall = 1000000,
		.host = "node17",
		.census = {.traced = n_ranks},
		.n_comms = n_comms,
		.n_ranks = n_comms * n_ranks,
	};

	picture.comms = calloc(n_comms + 1, sizeof(*picture.comms));
	picture.ranks = calloc(n_comms * n_ranks + 1, sizeof(*picture.ranks));
	for (unsigned int i = 0; i < n_comms; i++) {
		struct picture_comm *comm = &picture.comms[i];

		comm->hash = 0x100 + i;
		snprintf(comm->label, sizeof(comm->label), "%016x", 0x1000 + i);
		snprintf(comm->name, sizeof(comm->name), "comm%u", i);
		snprintf(comm->job, sizeof(comm->job), "%u", 70 + i % 2);
		comm->n_ranks = comm->n_local = n_ranks;
		comm->first_rank = comm->latest = i * n_ranks;
		comm->judged = true;
		comm->verdict = (struct verdict){
			.state = VERDICT_HEALTHY,
			.operation = NCCL_OP_MAX,
			.sequence = VERDICT_NO_SEQUENCE,
		};
		comm->last_ns = NOW - (i + 1) * NSEC_PER_SEC;
		comm->rate.operations = i;
		for (unsigned int r = 0; r < n_ranks; r++)
			picture.ranks[i * n_ranks + r] = (struct picture_rank){
				.rank = r,
				.tgid = 5000 + r,
				.command = "python",
				.gpu = r,
				.last_operation = NCCL_OP_ReduceScatter,
				.last_sequence = 123456,
				.last_ns = comm->last_ns,
			};
	}
	return picture;
}

static void trouble(struct picture *picture, unsigned int i, enum verdict_state state,
		    unsigned int seconds, int32_t culprit)
{
	struct picture_comm *comm = &picture->comms[i];

	comm->verdict.state = state;
	comm->verdict.since_ns = NOW - seconds * NSEC_PER_SEC;
	comm->verdict.operation = NCCL_OP_AllReduce;
	comm->verdict.sequence = 4711;
	comm->verdict.culprits = (struct verdict_named){.ranks = {culprit}, .n = 1};
	strcpy(comm->verdict.why, "rank 3 has not called what its peers have called");
	picture->ranks[comm->first_rank + culprit].role = ROLE_CULPRIT;
}

/* All of it as text, drawn; every cell is printable. */
static const char *draw(struct view *view, const struct picture *picture, unsigned int width,
			unsigned int height)
{
	static char text[GRID_MAX_HEIGHT * (GRID_MAX_WIDTH + 1) + 1];
	static struct grid grid;
	char *to = text;

	view__update(view, picture);
	grid__begin(&grid, width, height);
	view__draw(view, picture, &grid);
	CHECK_INT(grid.height, height < GRID_MAX_HEIGHT ? height : GRID_MAX_HEIGHT);
	for (unsigned int row = 0; row < grid.height; row++) {
		for (unsigned int column = 0; column < grid.width; column++) {
			char c = grid.cells[row][column].c;

			CHECK(c >= ' ' && c < 0x7f && grid.cells[row][column].look < LOOKS);
			*to++ = c;
		}
		while (to > text && to[-1] == ' ')
			to--;
		*to++ = '\n';
	}
	*to = 0;
	return text;
}

static const char *line_with(const char *text, const char *word)
{
	static char line[GRID_MAX_WIDTH + 1];
	const char *at = strstr(text, word), *start = at;

	if (!at)
		return "";
	while (start > text && start[-1] != '\n')
		start--;
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(start, "\n"), start);
	return line;
}

static void keys(struct view *view, const struct picture *picture, const char *text)
{
	for (; *text; text++)
		view__key(view, picture, *text);
}

TEST(the_worst_is_on_top)
{
	struct picture picture = picture_new(5, 4);
	static struct view view;
	const char *text;

	memset(&view, 0, sizeof(view));
	trouble(&picture, 1, VERDICT_STRAGGLER, 100, 2);
	trouble(&picture, 3, VERDICT_STUCK, 10, 3);
	trouble(&picture, 4, VERDICT_STUCK, 70, 3);
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "comm4") && strstr(text, "comm0"));
	CHECK(strstr(text, "comm4") < strstr(text, "comm3"));
	CHECK(strstr(text, "comm3") < strstr(text, "comm1"));
	CHECK(strstr(text, "comm1") < strstr(text, "comm0"));
	CHECK_STR(line_with(text, "comm4"), ">stuck           70s 00000000 comm4       4/4 "
					    "AllReduce #4711       4.0 3");
	/* the selected one's details stand below */
	CHECK(strstr(text, "stuck for 70s, AllReduce #4711: rank 3 has not called what its peers"));
	CHECK(strstr(text, "culprits: 3"));
	CHECK(strstr(text, "5 communicators, by trouble"));
	/* with more room there is more to say */
	text = draw(&view, &picture, 200, 50);
	CHECK(strstr(line_with(text, "comm4"), "rank 3 has not called what its peers have called"));
	CHECK(strstr(text, " JOB "));
	picture__clear(&picture);
}

TEST(sorted_by_other_things)
{
	struct picture picture = picture_new(3, 1);
	static struct view view;
	const char *text;

	memset(&view, 0, sizeof(view));
	strcpy(picture.comms[0].name, "zebra");
	draw(&view, &picture, 80, 24);
	keys(&view, &picture, "s");
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "by name") && strstr(text, "comm2") < strstr(text, "zebra"));
	keys(&view, &picture, "s");
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "by rate") && strstr(text, "comm2") < strstr(text, "comm1"));
	keys(&view, &picture, "r");
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "by rate reversed") && strstr(text, "comm1") < strstr(text, "comm2"));
	keys(&view, &picture, "rs");
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "by age") && strstr(text, "comm2") < strstr(text, "comm1"));
	keys(&view, &picture, "s");
	CHECK(strstr(draw(&view, &picture, 80, 24), "by trouble"));
	picture__clear(&picture);
}

TEST(a_filter_as_it_is_typed)
{
	struct picture picture = picture_new(4, 1);
	static struct view view;
	const char *text;

	memset(&view, 0, sizeof(view));
	strcpy(picture.comms[0].job, "pod/qs");
	trouble(&picture, 2, VERDICT_WAITING, 5, 0);
	draw(&view, &picture, 80, 24);
	keys(&view, &picture, "/Qs"); /* no letter does anything else meanwhile */
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "1 communicators") && strstr(text, "filter: Qs_"));
	CHECK(strstr(text, "comm0") && !strstr(text, "comm1"));
	view__key(&view, &picture, KEY_ERASE);
	view__key(&view, &picture, KEY_ERASE);
	keys(&view, &picture, "wait");
	view__key(&view, &picture, KEY_RETURN);
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "filter: wait\n") && strstr(text, ">waiting"));
	CHECK(!strstr(text, "comm1"));
	keys(&view, &picture, "/x");
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "None of 4 communicators has \"waitx\" in it."));
	view__key(&view, &picture, KEY_RETURN);
	CHECK_INT(view__key(&view, &picture, KEY_RETURN), VIEW_CHANGED); /* nothing to open */
	CHECK_INT(view.page, PAGE_OVERVIEW);
	view__key(&view, &picture, KEY_ESCAPE);
	CHECK(strstr(draw(&view, &picture, 80, 24), "4 communicators"));
	for (int i = 0; i < 100; i++)
		keys(&view, &picture, i ? "y" : "/");
	CHECK_INT(strlen(view.filter), sizeof(view.filter) - 1);
	view__key(&view, &picture, KEY_ESCAPE);
	CHECK_STR(view.filter, "");
	picture__clear(&picture);
}

TEST(the_selected_row_is_kept)
{
	struct picture picture = picture_new(3, 1);
	static struct view view;

	memset(&view, 0, sizeof(view));
	draw(&view, &picture, 80, 24);
	view__key(&view, &picture, KEY_CURSOR_DOWN);
	CHECK_STR(view.selected, picture.comms[1].label);
	trouble(&picture, 2, VERDICT_STUCK, 5, 0);
	CHECK(strstr(draw(&view, &picture, 80, 24), ">healthy           - 00000000 comm1"));
	CHECK_INT(view.overview.cursor, 2);
	/* Esc: again whichever is the worst */
	view__key(&view, &picture, KEY_ESCAPE);
	CHECK(strstr(draw(&view, &picture, 80, 24), ">stuck          5.0s 00000000 comm2"));
	picture__clear(&picture);
}

TEST(a_long_list_is_scrolled)
{
	struct picture picture = picture_new(100, 1);
	static struct view view;
	const char *text;

	memset(&view, 0, sizeof(view));
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "100 communicators (1 to 13 shown)"));
	view__key(&view, &picture, KEY_TO_LAST);
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "(88 to 100 shown)") && strstr(line_with(text, "comm99"), ">healthy"));
	view__key(&view, &picture, KEY_PAGE_UP);
	CHECK(strstr(line_with(draw(&view, &picture, 80, 24), "comm87"), ">healthy"));
	for (int i = 0; i < 9; i++)
		view__key(&view, &picture, KEY_PAGE_UP);
	CHECK(strstr(line_with(draw(&view, &picture, 80, 24), "comm0"), ">healthy"));
	/* the list gets shorter than where one looks */
	view__key(&view, &picture, KEY_TO_LAST);
	picture.n_comms = 2;
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "2 communicators, by") && strstr(line_with(text, "comm1"), ">healthy"));
	picture__clear(&picture);
}

static void make_late(struct picture *picture, unsigned int rank, uint64_t ms)
{
	picture->ranks[rank].n_compared = 50;
	picture->ranks[rank].n_last = ms ? 49 : 1;
	picture->ranks[rank].lateness_ns = ms * NSEC_PER_MSEC;
	picture->ranks[rank].in_flight_known = true;
	picture->ranks[rank].in_flight = 2;
}

TEST(one_communicator_of_64_ranks)
{
	struct picture picture = picture_new(1, 64);
	struct picture_comm *comm = &picture.comms[0];
	static struct view view;
	const char *text;

	memset(&view, 0, sizeof(view));
	trouble(&picture, 0, VERDICT_STRAGGLER, 30, 63);
	for (unsigned int i = 0; i < 64; i++)
		make_late(&picture, i, i == 63 ? 50 : 0);
	comm->n_operations = 2;
	comm->operations[0] = (struct picture_operation){
		.operation = NCCL_OP_AllReduce,
		.calls = 4711,
		.n_sizes = 1,
		.sizes = {{.bytes = 4000000,
			   .n = 99,
			   .last_ns = NOW,
			   .mean_ns = 2e6,
			   .bus_bytes = 123e9}},
	};
	comm->operations[1] = (struct picture_operation){
		.operation = NCCL_OP_Send, .calls = 3, .last_bytes = 512};
	comm->n_events = 1;
	comm->events[0] = (struct verdict_event){NOW - 30 * NSEC_PER_SEC, VERDICT_STRAGGLER, 63};
	draw(&view, &picture, 80, 24);
	view__key(&view, &picture, KEY_RETURN);
	CHECK_INT(view.page, PAGE_COMM);
	text = draw(&view, &picture, 80, 24);
	CHECK_STR(
		line_with(text, "culprit  "),
		">  63 culprit    5063  63 ReduceScatter  123456 1.0s      2 50.0ms #######   98%");
	CHECK(strstr(text, "64 ranks (1 to ") && strstr(text, "  0.0us            2%"));
	CHECK_STR(line_with(text, "4711   "), " AllReduce         4711      0      0 B  4.00 MB    "
					      "99.0    2.0ms  123 GB/s 0.0s");
	CHECK(strstr(line_with(text, " Send"), "512 B       -"));
	CHECK(strstr(text, "30s ago  straggler, rank 63 first"));
	/* another part gets the keys and the room */
	view__key(&view, &picture, KEY_TO_LAST);
	CHECK(strstr(line_with(draw(&view, &picture, 80, 24), " 5062 "), ">  62"));
	view__key(&view, &picture, KEY_TABULATOR);
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "2 operations, by") && strstr(text, ">AllReduce"));
	view__key(&view, &picture, KEY_TABULATOR);
	CHECK(strstr(draw(&view, &picture, 80, 24), "1 events, by"));
	CHECK(strstr(draw(&view, &picture, 200, 90), "  5062 python"));
	view__key(&view, &picture, KEY_ESCAPE);
	CHECK(strstr(draw(&view, &picture, 80, 24), "1 communicators"));
	picture__clear(&picture);
}

TEST(what_is_opened_may_end)
{
	struct picture picture = picture_new(2, 2);
	static struct view view;

	memset(&view, 0, sizeof(view));
	draw(&view, &picture, 80, 24);
	view__key(&view, &picture, KEY_CURSOR_DOWN);
	view__key(&view, &picture, KEY_RETURN);
	picture.n_comms = 1;
	CHECK(strstr(draw(&view, &picture, 80, 24), "Communicator 0000000000001001 has ended"));
	view__key(&view, &picture, KEY_CURSOR_DOWN);
	view__key(&view, &picture, KEY_TABULATOR);
	view__key(&view, &picture, 's');
	draw(&view, &picture, 80, 24);
	view__key(&view, &picture, KEY_ESCAPE);
	CHECK(strstr(draw(&view, &picture, 80, 24), ">healthy"));
	picture__clear(&picture);
}

TEST(head_and_foot)
{
	struct picture picture = picture_new(0, 0);
	static struct view view;
	const char *text;

	memset(&view, 0, sizeof(view));
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "No process with NCCL on this node: waiting for one."));
	CHECK(strstr(text, "none lost") && !strstr(text, "STATE"));
	CHECK(strstr(text, "textfiles: none") && strstr(text, "h help\n"));
	view.textfile_dir = "/var/lib/x";
	strcpy(view.message, "cannot write\033 the textfile");
	picture.census.traced = 2;
	picture.losses[0] = (struct picture_loss){"ring_full", 7};
	picture.losses[1] = (struct picture_loss){"handover", 3};
	picture.n_losses = 2;
	picture.n_troubles = 20;
	strcpy(picture.troubles[0], "9 \033]0;owned\007: cannot be traced: why");
	text = draw(&view, &picture, 80, 24);
	CHECK(strstr(text, "LOST since the start: 10 records (7 ring_full, 3 handover)"));
	CHECK(strstr(text, "No communicator is known of yet.") && strstr(text, "/var/lib/x"));
	CHECK(strstr(text, "9 ?]0;owned?: cannot be traced: why"));
	CHECK(strstr(text, "18 more processes like these"));
	CHECK(strstr(text, "cannot write? the textfile"));
	view__key(&view, &picture, 'f');
	CHECK(view.frozen && strstr(draw(&view, &picture, 80, 24), " FROZEN  0 comm"));
	picture__clear(&picture);
}

TEST(help_names_all_keys_at_80_x_24)
{
	struct picture picture = picture_new(1, 1);
	static struct view view;
	const char *text;

	memset(&view, 0, sizeof(view));
	keys(&view, &picture, "h");
	text = draw(&view, &picture, 80, 24);
	for (unsigned int i = 0; i < screen_n_key_helps; i++)
		CHECK(strstr(text, screen_key_helps[i].keys) &&
		      strstr(text, screen_key_helps[i].text));
	CHECK(strstr(text, "%LAST: how often"));
	view__key(&view, &picture, KEY_RETURN);
	CHECK_INT(view.page, PAGE_OVERVIEW);
	view__key(&view, &picture, KEY_ESCAPE);
	CHECK(strstr(draw(&view, &picture, 80, 24), "STATE"));
	view__key(&view, &picture, 'h');
	CHECK_INT(view__key(&view, &picture, 'q'), VIEW_CHANGED);
	CHECK(strstr(draw(&view, &picture, 80, 24), "STATE"));
	CHECK_INT(view__key(&view, &picture, 'q'), VIEW_QUIT);
	CHECK_INT(view__key(&view, &picture, KEY_REDRAW), VIEW_REDRAW);
	CHECK_INT(view__key(&view, &picture, KEY_UNKNOWN), VIEW_SAME);
	CHECK_INT(view__key(&view, &picture, 0xc3), VIEW_SAME);
	picture__clear(&picture);
}

/* Whatever the size and the page: no crash, nothing outside of the picture. */
TEST(any_size)
{
	struct picture picture = picture_new(30, 64);
	static struct view view;

	memset(&view, 0, sizeof(view));
	trouble(&picture, 3, VERDICT_MISMATCH, 3, 5);
	picture.n_losses = 1;
	picture.losses[0] = (struct picture_loss){"ring_full", 7};
	picture.n_troubles = 3;
	CHECK(strstr(draw(&view, &picture, 59, 24), "too small: needs 60x10"));
	CHECK(strstr(draw(&view, &picture, 80, 9), "too small: needs 60x10"));
	draw(&view, &picture, 1, 1);
	CHECK(strstr(draw(&view, &picture, 60, 10), ">mismatch"));
	for (unsigned int page = 0; page < 3; page++) {
		for (unsigned int height = VIEW_MIN_HEIGHT; height < 70; height++)
			draw(&view, &picture, 60 + height * 3, height);
		draw(&view, &picture, 2000, 1000);
		view__key(&view, &picture, page ? 'h' : KEY_RETURN);
	}
	picture__clear(&picture);
}

/* ---- pictures of a tracer ---- */

static struct verdicts *new_verdicts(void)
{
	const struct verdict_options options = {.stuck_after_ns = 60 * NSEC_PER_SEC};
	struct verdicts *verdicts = NULL;

	CHECK_INT(verdicts__new(&verdicts, &options), 0);
	return verdicts;
}

struct taken {
	struct tracer *tracer;
	struct picture_source source;
	struct picture picture;
	struct rates *rates;
	struct screen_timed *timed;
};

static void taken__open(struct taken *taken)
{
	*taken = (struct taken){.tracer = stub_new()};
	rates__new(&taken->rates, 0);
	screen_timed__new(&taken->timed);
	taken->source = (struct picture_source){
		.tracer = taken->tracer,
		.verdicts = new_verdicts(),
		.rates = taken->rates,
		.timed = taken->timed,
	};
}

static void taken__close(struct taken *taken)
{
	picture__clear(&taken->picture);
	rates__free(taken->rates);
	screen_timed__free(taken->timed);
	verdicts__free(taken->source.verdicts);
	stub_free(taken->tracer);
}

TEST(ranks_of_one_communicator_stand_together)
{
	struct taken taken;
	const struct picture_comm *comm;
	struct process *process;

	taken__open(&taken);
	process = stub_process(taken.tracer, 9, "python");
	strcpy(process->info.job.job_id, "77");
	strcpy(stub_calls(taken.tracer, 9, 2, 1, NCCL_FN_AllGather, 5)->name, "world");
	stub_calls(taken.tracer, 8, 2, 0, NCCL_FN_AllReduce, 100)->bus_id = 3;
	stub_calls(taken.tracer, 8, 1, 0, NCCL_FN_AllReduce, 5);
	stub_calls(taken.tracer, 9, 3, 2, NCCL_FN_AllReduce, 5)->dead_ns = 1;
	stub_calls(taken.tracer, 4, 0, -1, NCCL_FN_AllReduce, 5)->n_ranks = 0;
	rates__update(taken.rates, taken.tracer->comms, 0, NSEC_PER_SEC);
	CHECK_INT(picture__take(&taken.picture, &taken.source), 0);
	CHECK_INT(taken.picture.n_comms, 3);
	CHECK_INT(taken.picture.n_ranks, 4);
	CHECK_STR(taken.picture.comms[0].label, "unknown-4-1");
	comm = &taken.picture.comms[2];
	CHECK_STR(comm->label, "0000000000000002");
	CHECK_STR(comm->name, "world");
	CHECK_STR(comm->job, "77");
	CHECK_INT(comm->n_local, 2);
	CHECK_INT(comm->n_ranks, 8);
	CHECK_INT(comm->rate.operations, 100);
	CHECK_INT(comm->n_operations, 2);
	CHECK_INT(comm->operations[0].last_bytes, 1000);
	CHECK(!comm->judged && picture_comm__state(comm) == VERDICT_UNKNOWN);
	CHECK_INT(taken.picture.ranks[comm->first_rank].rank, 0);
	CHECK_INT(taken.picture.ranks[comm->first_rank].gpu, 3);
	CHECK_INT(taken.picture.ranks[comm->first_rank + 1].tgid, 9);
	CHECK_STR(taken.picture.ranks[comm->first_rank + 1].command, "python");
	CHECK_INT(taken.picture.ranks[comm->first_rank + 1].gpu, -1);
	taken__close(&taken);
}

TEST(the_judge_s_word_is_in_the_picture)
{
	const struct picture_rank *ranks;
	static struct view view;
	struct taken taken;
	const char *text;
	char name[32];

	memset(&view, 0, sizeof(view));
	taken__open(&taken);
	for (int32_t rank = 0; rank < 8; rank++)
		stub_calls(taken.tracer, 100 + rank, 0xabc, rank, NCCL_FN_AllReduce, 99);
	taken.picture.now_ns =
		hang__feed(taken.source.verdicts, 0xabc, 8, 2, 1, 100, 160, 1000 * NSEC_PER_SEC);
	CHECK_INT(picture__take(&taken.picture, &taken.source), 0);
	CHECK_INT(taken.picture.n_comms, 1);
	CHECK_INT(picture_comm__state(&taken.picture.comms[0]), VERDICT_WAITING);
	CHECK_STR(picture_comm__operation(&taken.picture, &taken.picture.comms[0], name,
					  sizeof(name)),
		  "AllReduce #100");
	ranks = taken.picture.ranks;
	CHECK_INT(ranks[2].role, ROLE_CULPRIT);
	CHECK_INT(ranks[2].last_sequence, 99);
	CHECK_INT(ranks[3].role, ROLE_WAITING);
	CHECK_INT(ranks[3].last_sequence, 100);
	CHECK(!ranks[3].in_flight_known);
	text = draw(&view, &taken.picture, 80, 24);
	CHECK(strstr(text, ">waiting "));
	view__key(&view, &taken.picture, KEY_RETURN);
	text = draw(&view, &taken.picture, 80, 24);
	CHECK(strstr(text, "culprits: 2             waiting: 0,1,3-7"));
	CHECK(strstr(line_with(text, "culprit  "), ">   2 culprit"));
	CHECK(strstr(text, "LAST CHANGES OF STATE"));
	CHECK(strstr(line_with(text, " ago  waiting"), "rank 2 first"));
	taken__close(&taken);
}

TEST(more_than_can_be_shown_is_counted)
{
	struct taken taken;

	taken__open(&taken);
	for (unsigned int i = 1; i <= PICTURE_MAX_COMMS + 3; i++)
		stub_calls(taken.tracer, 9, i, 0, NCCL_FN_AllReduce, 1);
	CHECK_INT(picture__take(&taken.picture, &taken.source), 0);
	CHECK_INT(taken.picture.n_comms, PICTURE_MAX_COMMS);
	CHECK_INT(taken.picture.n_comms_left_out, 3);
	/* 5000 ranks of one communicator are not cut in the middle */
	for (int i = 1; i <= PICTURE_MAX_RANKS; i++)
		stub_calls(taken.tracer, 9, 1, i, NCCL_FN_AllReduce, 1);
	CHECK_INT(picture__take(&taken.picture, &taken.source), 0);
	CHECK_INT(taken.picture.n_comms_left_out, 3);
	CHECK_INT(taken.picture.n_ranks, taken.picture.n_comms);
	taken__close(&taken);
}

/* ---- GPU times ---- */

static void launch(struct screen_timed *timed, uint64_t hash, uint64_t bytes, uint64_t us)
{
	const struct timing_comm comm = {.hash = hash};
	const struct timing_launch launch = {
		.comm = &comm,
		.launch_ns = 5,
		.duration_ns = us * 1000,
		.n_operations = 1,
		.complete = true,
		.form = TIMING_ONE,
		.operation = NCCL_OP_AllReduce,
		.has_bytes = true,
		.bytes = bytes,
		.bus_bytes = 1.5 * bytes,
	};

	screen_timed__launch(timed, &launch);
}

TEST(times_by_size)
{
	struct screen_timed_size sizes[SCREEN_MAX_SIZES + 1];
	struct screen_timed *timed = NULL;

	CHECK_INT(screen_timed__new(&timed), 0);
	launch(timed, 7, 2000, 0); /* not timed */
	CHECK_INT(screen_timed__sizes(timed, 7, NCCL_OP_AllReduce, sizes), 0);
	launch(timed, 7, 2000, 10);
	launch(timed, 7, 1000, 20);
	launch(timed, 7, 2000, 30);
	launch(timed, 0, 2000, 30);
	CHECK_INT(screen_timed__sizes(timed, 7, NCCL_OP_Send, sizes), 0);
	CHECK_INT(screen_timed__sizes(timed, 7, NCCL_OP_AllReduce, sizes), 2);
	CHECK_INT(sizes[0].bytes, 1000);
	CHECK_INT(sizes[1].n, 2);
	CHECK_INT(sizes[1].mean_ns, 20000);
	CHECK_INT(sizes[1].bus_bytes, 150e6);
	/* after a minute only what is new counts */
	screen_timed__fade(timed, 60 * NSEC_PER_SEC);
	launch(timed, 7, 2000, 100);
	screen_timed__sizes(timed, 7, NCCL_OP_AllReduce, sizes);
	CHECK(sizes[1].mean_ns > 99000 && sizes[1].n == 3);
	for (int i = 0; i < 1000; i++)
		screen_timed__fade(timed, 3600 * NSEC_PER_SEC);
	screen_timed__sizes(timed, 7, NCCL_OP_AllReduce, sizes);
	CHECK(sizes[1].mean_ns > 99000 && sizes[1].mean_ns < 101000);
	for (int i = 0; i < 100; i++)
		launch(timed, 7, 3000 + i, 40);
	CHECK_INT(screen_timed__sizes(timed, 7, NCCL_OP_AllReduce, sizes), SCREEN_MAX_SIZES + 1);
	CHECK(sizes[SCREEN_MAX_SIZES].bytes == SCREEN_OTHER_SIZES);
	CHECK_INT(sizes[SCREEN_MAX_SIZES].n, 94);
	for (uint64_t hash = 100; hash < SCREEN_MAX_TIMED + 200; hash++)
		launch(timed, hash, 1, 1);
	CHECK_INT(HASH_COUNT(timed->all), SCREEN_MAX_TIMED);
	screen_timed__keep(timed, 7);
	screen_timed__keep(timed, 9);
	screen_timed__sweep(timed);
	CHECK_INT(HASH_COUNT(timed->all), 1);
	screen_timed__sweep(timed);
	CHECK(!timed->all);
	screen_timed__free(timed);
}

UNIT_MAIN()
