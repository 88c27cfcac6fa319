/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "../../src/comm.c"
#include "../../src/comm_learn.c"
#include "../../src/comm_graph.c"
#include "../../src/comm_owner.c"
#include "../../src/comm_plugin.c"
#include "../../src/comm_query.c"
#include "../../src/logline.c"
#include "../../src/nccl_api.c"
#include "../../src/rates.c"
#include "../../src/screen.c"
#include "../../src/screen_frame.c"
#include "../../src/screen_text.c"

#include "stub_tracer.h"

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

TEST(rates_are_differences)
{
	struct tracer *tracer = stub_new();
	struct rates *rates = NULL;
	struct comm *comm = stub_calls(tracer, 5, 1, 0, NCCL_FN_AllReduce, 100);
	struct comm *late;

	CHECK_INT(rates__new(&rates, 0), 0);
	CHECK_INT(rates__update(rates, tracer->comms, 50, 2 * NSEC_PER_SEC), 0);
	CHECK_INT(rates__of(rates, comm).operations, 50);
	CHECK_INT(rates__of(rates, comm).bytes, 50000);
	CHECK_INT(rates__total(rates).records, 25);

	comms__begin(tracer->comms);
	stub_calls(tracer, 5, 1, 0, NCCL_FN_AllReduce, 110);
	late = stub_calls(tracer, 6, 2, 0, NCCL_FN_AllGather, 5);
	CHECK_INT(rates__of(rates, late).operations, 0);
	CHECK_INT(rates__update(rates, tracer->comms, 50, 3 * NSEC_PER_SEC), 0);
	CHECK_INT(rates__of(rates, comm).operations, 10);
	CHECK_INT(rates__of(rates, late).bytes, 5 * 1000 * 8);
	CHECK_INT(rates__total(rates).operations, 15);
	CHECK_INT(rates__total(rates).records, 0);

	/* nothing moved; no time has passed; time ran backwards */
	rates__update(rates, tracer->comms, 50, 4 * NSEC_PER_SEC);
	CHECK_INT(rates__of(rates, comm).operations, 0);
	rates__update(rates, tracer->comms, 90, 4 * NSEC_PER_SEC);
	CHECK_INT(rates__total(rates).records, 0);
	rates__update(rates, tracer->comms, 99, 1 * NSEC_PER_SEC);
	CHECK_INT(rates__total(rates).records, 0);
	rates__free(rates);
	stub_free(tracer);
}

TEST(bytes_that_become_known_are_no_burst)
{
	struct tracer *tracer = stub_new();
	struct rates *rates = NULL;
	struct comm *comm = stub_calls(tracer, 5, 1, 0, NCCL_FN_AllGather, 100);

	rates__new(&rates, 0);
	comm->n_ranks = 0;
	rates__update(rates, tracer->comms, 0, NSEC_PER_SEC);
	CHECK_INT(rates__of(rates, comm).operations, 100);
	CHECK_INT(rates__of(rates, comm).bytes, 0);
	comm->n_ranks = 8;
	rates__update(rates, tracer->comms, 0, 2 * NSEC_PER_SEC);
	CHECK_INT(rates__of(rates, comm).bytes, 0);
	stub_calls(tracer, 5, 1, 0, NCCL_FN_AllGather, 1);
	rates__update(rates, tracer->comms, 0, 3 * NSEC_PER_SEC);
	CHECK_INT(rates__of(rates, comm).bytes, 8000);
	rates__free(rates);
	stub_free(tracer);
}

TEST(what_is_gone_is_forgotten)
{
	struct tracer *tracer = stub_new();
	struct rates *rates = NULL;
	struct comm *comm = stub_calls(tracer, 5, 1, 0, NCCL_FN_AllReduce, 100);

	rates__new(&rates, 0);
	rates__update(rates, tracer->comms, 0, NSEC_PER_SEC);
	comm->dead_ns = 1;
	comms__expire(tracer->comms, 2);
	rates__update(rates, tracer->comms, 0, 2 * NSEC_PER_SEC);
	CHECK(!rates->all);
	rates__free(rates);
	stub_free(tracer);
}

/* One frame on a terminal that is none: 80 x 24. */
static const char *draw(struct tracer *tracer, uint64_t now)
{
	static char *buf;
	size_t len;
	struct screen *screen = NULL;
	FILE *out;

	free(buf);
	out = open_memstream(&buf, &len);
	CHECK_INT(screen__new(&screen, out, "/var/lib/x"), 0);
	CHECK_INT(screen__draw(screen, tracer, now), 0);
	screen__free(screen);
	fclose(out);
	return buf;
}

/* Lines, none wider than the terminal; all escape sequences are ours. */
static unsigned int count_lines(const char *frame)
{
	unsigned int n_lines = 1, width = 0;

	for (const char *c = frame; *c; c++) {
		if (*c == '\033') {
			CHECK(c[1] == '[');
			c += 2 + strcspn(c + 2, "mHJKlh");
		} else if (*c == '\r') {
			n_lines++;
			width = 0;
			c++;
		} else {
			CHECK(*c >= 0x20 && *c < 0x7f);
			CHECK(++width < 80);
		}
	}
	return n_lines;
}

TEST(screen_waits)
{
	struct tracer *tracer = stub_new();
	const char *frame = draw(tracer, 1);

	CHECK(strstr(frame, "waiting for one"));
	CHECK(!strstr(frame, "LOST") && !strstr(frame, "COMMUNICATOR"));
	CHECK(!strncmp(frame, TAKE_OVER FRAME_HOME, strlen(TAKE_OVER FRAME_HOME)));
	CHECK(!strcmp(frame + strlen(frame) - strlen(GIVE_BACK), GIVE_BACK));
	stub_free(tracer);
	draw(tracer = stub_new(), 1);
	stub_free(tracer);
}

TEST(screen_shows_rows)
{
	struct tracer *tracer = stub_new();
	struct process *evil = stub_process(tracer, 9, "\033]0;owned\007");
	const char *frame;

	stub_calls(tracer, 9, 2, 1, NCCL_FN_AllGather, 5)->bus_id = 3;
	stub_calls(tracer, 9, 1, 0, NCCL_FN_AllReduce, 5);
	stub_calls(tracer, 9, 3, 2, NCCL_FN_AllReduce, 5)->dead_ns = 1;
	stub_calls(tracer, 4, 0, -1, NCCL_FN_AllReduce, 5)->n_ranks = 0;
	evil->scan_err = -EACCES;
	tracer->census.traced = 1;
	tracer->lost[NB_LOST_RING_FULL] = 7;
	frame = draw(tracer, 65 * NSEC_PER_SEC);
	count_lines(frame);
	CHECK(strstr(frame, "LOST since the start: 7 records (ring_full)"));
	CHECK(strstr(frame, "0000000000000001"));
	CHECK(strstr(frame, "0000000000000001") < strstr(frame, "0000000000000002"));
	CHECK(strstr(frame, "unknown-4-1") &&
	      strstr(frame, "unknown-4-1") < strstr(frame, "0000000000000001"));
	CHECK(!strstr(frame, "0000000000000003"));
	CHECK(strstr(frame, " ?/? ") && strstr(frame, " 1/8 "));
	CHECK(strstr(frame, "60s") && strstr(frame, "AllGather"));
	CHECK(strstr(frame, "9 ?]0;owned?: its communicators cannot be read: Permission denied"));
	stub_free(tracer);
}

TEST(screen_says_what_does_not_fit)
{
	struct tracer *tracer = stub_new();
	const char *frame;

	tracer->library.state = LIBRARY_UNSUPPORTED;
	strcpy(tracer->library.reason, "holds NCCL, but its functions have no names");
	for (int i = 0; i < STUB_MAX; i++)
		stub_process(tracer, 100 + i, "python");
	for (int i = 0; i < 100; i++)
		stub_calls(tracer, 9, 100 + i, 0, NCCL_FN_AllReduce, 1);
	tracer->census.unsupported = STUB_MAX;
	frame = draw(tracer, 9 * NSEC_PER_SEC);
	CHECK_INT(count_lines(frame), 24);
	CHECK(strstr(frame, "88 more communicators do not fit"));
	CHECK(strstr(frame, "100 python: cannot be traced: libnccl.so.2: holds NCCL, but"));
	CHECK(strstr(frame, "9 more processes like these"));
	stub_free(tracer);
}

TEST(columns_give_way)
{
	unsigned int all = (1U << COL_MAX) - 1;

	CHECK_INT(columns__fitting(200), all);
	CHECK(columns__fitting(80) & 1U << COL_BYTES);
	CHECK(!(columns__fitting(80) & 1U << COL_NAME));
	CHECK(!(columns__fitting(10) & 1U << COL_OPS) && columns__fitting(10) & 1U << COL_AGE);
}

TEST(log_line)
{
	struct tracer *tracer = stub_new();
	struct logline *logline = NULL;
	char line[512] = "";
	FILE *out = fmemopen(line, sizeof(line), "w");

	CHECK_INT(logline__new(&logline, out), 0);
	logline->rates->last_ns = 0;
	CHECK_INT(logline__write(logline, tracer, NSEC_PER_SEC), 0);
	CHECK_STR(strchr(line, ' '),
		  " processes=0 unsupported=0 communicators=0 operations/s=0.0 bytes/s=0 "
		  "records/s=0.0 lost=0 oldest_call=-\n");
	CHECK(strlen(line) > 20 && line[19] == 'Z' && line[10] == 'T');
	rewind(out);
	stub_calls(tracer, 9, 1, 0, NCCL_FN_AllReduce, 7);
	tracer->census.traced = 1;
	tracer->lost[TRACER_LOST_BAD_RECORD] = 2;
	CHECK_INT(logline__write(logline, tracer, 6 * NSEC_PER_SEC), 0);
	CHECK_STR(strchr(line, ' '),
		  " processes=1 unsupported=0 communicators=1 operations/s=1.4 bytes/s=1400 "
		  "records/s=0.0 lost=2 oldest_call=1.0s\n");
	logline__free(logline);
	fclose(out);
	stub_free(tracer);
}

UNIT_MAIN()
