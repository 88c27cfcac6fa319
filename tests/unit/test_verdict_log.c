/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Lines about verdicts: when one is written, and byte for byte what it says. The judge is a stub.
 */
#include "unit.h"

#include "../../src/nccl_api.c"
#include "../../src/utf8.c"
#include "../../src/sanitize.c"
#include "../../src/verdict_log.c"

#define MAX_STUBS 100

struct verdict_comm {
	uint64_t hash;
	int32_t n_ranks;
	bool gone;
	struct verdict now;
};

static struct verdict_comm comms[MAX_STUBS];
static int n_comms;

static struct verdict_comm *living(struct verdict_comm *comm)
{
	while (comm < comms + n_comms && comm->gone)
		comm++;
	return comm < comms + n_comms ? comm : NULL;
}

struct verdict_comm *verdicts__first(struct verdicts *verdicts)
{
	(void)verdicts;
	return living(comms);
}

struct verdict_comm *verdict_comm__next(struct verdict_comm *comm)
{
	return living(comm + 1);
}

uint64_t verdict_comm__hash(const struct verdict_comm *comm)
{
	return comm->hash;
}

int32_t verdict_comm__n_ranks(const struct verdict_comm *comm)
{
	return comm->n_ranks;
}

const struct verdict *verdict_comm__now(const struct verdict_comm *comm)
{
	return &comm->now;
}

const char *verdict_state__name(enum verdict_state state)
{
	return state == VERDICT_STUCK ? "stuck" : state == VERDICT_WAITING ? "waiting" : "other";
}

const char *verdict_cause__name(enum verdict_cause cause)
{
	return cause == VERDICT_MISSING_CALL ? "missing_call" : "another";
}

int verdict_state__exit_status(enum verdict_state state)
{
	return state == VERDICT_HEALTHY || state == VERDICT_IDLE ? 0 : 1;
}

#define NOW (100 * NSEC_PER_SEC)

static struct verdict_log *log_;
static char *text;
static size_t size;
static FILE *out;

static void begin(int n)
{
	memset(comms, 0, sizeof(comms));
	n_comms = n;
	for (int i = 0; i < n; i++)
		comms[i] = (struct verdict_comm){
			.hash = i + 1,
			.n_ranks = 8,
			.now = {.operation = NCCL_OP_MAX, .sequence = VERDICT_NO_SEQUENCE},
		};
	out = open_memstream(&text, &size);
	CHECK_INT(verdict_log__new(&log_, out), 0);
}

static void end(void)
{
	verdict_log__free(log_);
	fclose(out);
	free(text);
}

/* How many lines one call writes. */
static int write_lines(void)
{
	size_t before = (fflush(out), size);
	int n = 0;

	CHECK_INT(verdict_log__write(log_, NULL, NOW), 0);
	fflush(out);
	for (size_t i = before; i < size; i++)
		n += text[i] == '\n';
	return n;
}

static struct verdict waiting_for(int32_t culprit)
{
	return (struct verdict){
		.state = VERDICT_WAITING,
		.cause = VERDICT_MISSING_CALL,
		.since_ns = NOW - 1500 * NSEC_PER_MSEC,
		.culprits = {.ranks = {culprit}, .n = 1},
		.waiting = {.ranks = {0, 1, 2, 5, 7}, .n = 5},
		.operation = NCCL_OP_AllReduce,
		.sequence = 61,
		.why = "a \"quoted\" \x1b[31m word",
	};
}

TEST(a_line_byte_for_byte)
{
	begin(1);
	comms[0].now = waiting_for(3);
	CHECK_INT(write_lines(), 1);
	CHECK(size > 21 && text[19] == 'Z' && text[20] == ' ');
	CHECK_STR(text + 21, "verdict=waiting cause=missing_call comm=0000000000000001 nranks=8 "
			     "culprits=3 waiting=0-2,5,7 operation=AllReduce sequence=61 "
			     "for=1.5s why=\"a 'quoted' ?[31m word\"\n");
	end();
}

TEST(where_there_is_nothing)
{
	begin(1);
	comms[0].now.state = VERDICT_ABORTED;
	CHECK_INT(write_lines(), 1);
	CHECK_STR(text + 21, "verdict=other cause=- comm=0000000000000001 nranks=8 culprits=- "
			     "waiting=- operation=- sequence=- for=0.0s why=\"\"\n");
	end();
}

TEST(ranks_past_the_list_are_counted)
{
	begin(1);
	comms[0].now = waiting_for(3);
	comms[0].now.waiting.n = VERDICT_MAX_NAMED + 12;
	for (int i = 0; i < VERDICT_MAX_NAMED; i++)
		comms[0].now.waiting.ranks[i] = i;
	CHECK_INT(write_lines(), 1);
	CHECK(strstr(text, " waiting=0-63+12 "));
	end();
}

TEST(only_changes_are_told)
{
	begin(2);
	CHECK_INT(write_lines(), 0); /* healthy */
	comms[0].now.state = VERDICT_IDLE;
	comms[1].now.state = VERDICT_UNKNOWN;
	CHECK_INT(write_lines(), 0);
	comms[0].now = waiting_for(3);
	CHECK_INT(write_lines(), 1);
	comms[0].now.sequence++;
	comms[0].now.since_ns--;
	CHECK_INT(write_lines(), 0); /* the same trouble, a step further */
	comms[0].now.culprits.ranks[0] = 4;
	CHECK_INT(write_lines(), 1);
	comms[0].now.state = VERDICT_STUCK;
	CHECK_INT(write_lines(), 1);
	comms[0].now.state = VERDICT_HEALTHY;
	CHECK_INT(write_lines(), 1); /* over */
	CHECK_INT(write_lines(), 0);
	CHECK(!log_->told);
	end();
}

TEST(one_that_goes_is_forgotten)
{
	begin(2);
	comms[0].now = comms[1].now = waiting_for(3);
	CHECK_INT(write_lines(), 2);
	comms[0].gone = true;
	CHECK_INT(write_lines(), 0);
	CHECK_INT(HASH_COUNT(log_->told), 1);
	end();
}

TEST(a_burst_is_spread)
{
	begin(MAX_STUBS);
	for (int i = 0; i < MAX_STUBS; i++)
		comms[i].now = waiting_for(3);
	CHECK_INT(write_lines(), VERDICT_LOG_BURST);
	CHECK_INT(write_lines(), MAX_STUBS - VERDICT_LOG_BURST);
	CHECK_INT(write_lines(), 0);
	for (int i = 0; i < MAX_STUBS; i++)
		comms[i].now.state = VERDICT_HEALTHY;
	CHECK_INT(write_lines(), VERDICT_LOG_BURST);
	CHECK_INT(HASH_COUNT(log_->told), MAX_STUBS - VERDICT_LOG_BURST);
	CHECK_INT(write_lines(), MAX_STUBS - VERDICT_LOG_BURST);
	CHECK(!log_->told);
	end();
}

UNIT_MAIN()
