/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A diagnosis for people: the worst first. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "cmd_diagnose.h"
#include "sanitize.h"
#include "screen_text.h"
#include "util.h"
#include "wrapped.h"

#define MAX_RANK_LINES 8 /* below one communicator */

/* "12:03:11", and the day when it is another one. */
static void clock_text(char *buf, size_t size, const struct diagnosis *d, uint64_t at_ns)
{
	time_t at = (int64_t)(at_ns + d->wall_offset_ns) / (int64_t)NSEC_PER_SEC;
	time_t now = (int64_t)(d->now_ns + d->wall_offset_ns) / (int64_t)NSEC_PER_SEC;
	struct tm then, today;

	localtime_r(&at, &then);
	localtime_r(&now, &today);
	strftime(buf, size,
		 then.tm_yday == today.tm_yday && then.tm_year == today.tm_year
			 ? "%H:%M:%S"
			 : "%Y-%m-%d %H:%M:%S",
		 &then);
}

/* Communicator, its name, how many of its ranks are here. */
static void add_comm(struct wrapped *line, const struct diagnosis_comm *c)
{
	char name[128];

	wrapped__add(line, "comm %s", c->label);
	if (c->name[0])
		wrapped__add(line, " \"%s\"", sanitize__text(c->name, name, sizeof(name)));
	if (c->n_ranks > 0)
		wrapped__add(line, " (%d rank%s, %u here)", c->n_ranks, c->n_ranks == 1 ? "" : "s",
			     c->n_local);
}

static void print_head(const struct diagnosis *d, const struct diagnosis_comm *c, FILE *out)
{
	const char *name = verdict_state__name(c->verdict.state);
	bool is_fine = diagnosis_comm__is_fine(c);
	char age[SCREEN_TEXT_SIZE], state[32];
	struct wrapped line = {};
	size_t i;

	for (i = 0; name[i] && i + 1 < sizeof(state); i++)
		state[i] = is_fine ? name[i] : toupper((unsigned char)name[i]);
	state[i] = 0;
	wrapped__add(&line, "%-*s", DIAGNOSIS_INDENT - 1, state);
	wrapped__add(&line, " ");
	add_comm(&line, c);
	if (!is_fine && diagnosis_comm__lasted_ns(d, c))
		wrapped__add(&line, ", for %s%s",
			     diagnosis_comm__began_before(d, c) ? "at least " : "",
			     screen_text__age(age, diagnosis_comm__lasted_ns(d, c)));
	if (c->over_ns)
		wrapped__add(&line, ", now %s", verdict_state__name(c->now));
	if (c->ended)
		wrapped__add(&line, ", ended");
	fprintf(out, "%s\n", line.text);
}

static void print_since(const struct diagnosis *d, const struct diagnosis_comm *c, FILE *out)
{
	struct wrapped line = {};
	char since[32];

	if (!c->verdict.since_ns)
		return;
	clock_text(since, sizeof(since), d, c->verdict.since_ns);
	wrapped__add(&line, "since %s%s", since,
		     diagnosis_comm__began_before(d, c) ? " or before" : "");
	diagnosis__print_line(out, line.text);
}

static void print_evidence(const struct diagnosis_comm *c, FILE *out)
{
	uint32_t n = c->verdict.n_evidence;

	if (n)
		diagnosis__print_line(out, "evidence:");
	for (uint32_t i = 0; i < n && i < VERDICT_MAX_EVIDENCE; i++)
		wrapped__print(out, c->verdict.evidence[i], DIAGNOSIS_INDENT + 2,
			       DIAGNOSIS_COLUMNS);
}

static void print_ranks(const struct diagnosis *d, const struct diagnosis_comm *c, FILE *out)
{
	struct wrapped line = {};
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_local; i++)
		if (diagnosis_comm__tells_of(c, &c->ranks[i]) && n++ < MAX_RANK_LINES)
			diagnosis_rank__print(d, c, &c->ranks[i], out);
	if (n <= MAX_RANK_LINES)
		return;
	wrapped__add(&line, "and %u more ranks: --json tells of all", n - MAX_RANK_LINES);
	diagnosis__print_line(out, line.text);
}

static void print_comm(const struct diagnosis *d, const struct diagnosis_comm *c, FILE *out)
{
	print_head(d, c, out);
	if (diagnosis_comm__is_fine(c))
		return;
	if (c->verdict.why[0])
		diagnosis__print_line(out, c->verdict.why);
	print_since(d, c, out);
	print_ranks(d, c, out);
	print_evidence(c, out);
	diagnosis_comm__print_next(d, c, out);
}

static void print_unseen(const struct diagnosis_unseen *unseen, FILE *out)
{
	char command[64];

	fprintf(out, "%-*s pid %u %s\n", DIAGNOSIS_INDENT - 1, "UNKNOWN", unseen->tgid,
		sanitize__text(unseen->command, command, sizeof(command)));
	diagnosis__print_line(out, unseen->why);
}

static void add_counts(struct wrapped *line, const struct diagnosis *d)
{
	const char *before = ": ";

	for (size_t i = 0; i < d->n_comms;) {
		enum verdict_state state = d->comms[i].verdict.state;
		unsigned int n = 0;

		for (; i < d->n_comms && d->comms[i].verdict.state == state; i++)
			n++;
		wrapped__add(line, "%s%u %s", before, n, verdict_state__name(state));
		before = ", ";
	}
}

static void print_summary(const struct diagnosis *d, FILE *out, const char *nowhere)
{
	char watched[SCREEN_TEXT_SIZE], host[128];
	struct wrapped line = {};

	if (!d->n_processes && !d->n_comms)
		wrapped__add(&line, "no NCCL process %s", nowhere);
	else
		wrapped__add(&line, "%u NCCL process%s, %zu communicator%s", d->n_processes,
			     d->n_processes == 1 ? "" : "es", d->n_comms,
			     d->n_comms == 1 ? "" : "s");
	add_counts(&line, d);
	wrapped__add(&line, "; watched %s on %s",
		     screen_text__age(watched, d->now_ns - d->settled_ns),
		     sanitize__text(d->host, host, sizeof(host)));
	if (d->n_unseen)
		wrapped__add(&line, "; %zu not seen into", d->n_unseen);
	if (d->lost)
		wrapped__add(&line, "; %" PRIu64 " records lost", d->lost);
	if (d->refused)
		wrapped__add(&line, "; %" PRIu64 " ranks or communicators not judged: too many",
			     d->refused);
	fprintf(out, "%s\n", line.text);
	if (d->n_processes && !d->n_comms && !d->n_unseen)
		fputs("No process has a communicator: none is made yet, or its making waits for a "
		      "rank that does\nnot come. py-spy dump --pid, or gdb -p, shows which.\n",
		      out);
}

void diagnosis__print(const struct diagnosis *d, FILE *out, const char *nowhere)
{
	size_t i = 0;

	for (; i < d->n_comms && !diagnosis_comm__is_fine(&d->comms[i]); i++)
		print_comm(d, &d->comms[i], out);
	for (size_t u = 0; u < d->n_unseen; u++)
		print_unseen(&d->unseen[u], out);
	for (; i < d->n_comms; i++)
		print_comm(d, &d->comms[i], out);
	print_summary(d, out, nowhere);
}
