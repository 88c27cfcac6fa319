/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "verdict_log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uthash.h>

#include "sanitize.h"
#include "util.h"

/* What was said last of a communicator that is in trouble. */
struct told {
	struct told_key {
		uint64_t hash;
		int64_t n_ranks;
	} key;
	enum verdict_state state;
	enum verdict_cause cause;
	enum verdict_mismatch mismatch;
	struct verdict_named culprits;
	uint64_t round; /* of the last time that the communicator was there */
	UT_hash_handle hh;
};

struct verdict_log {
	FILE *out;
	struct told *told;
	uint64_t round;
};

int verdict_log__new(struct verdict_log **ret, FILE *out)
{
	struct verdict_log *log = calloc(1, sizeof(*log));

	if (!log)
		return -ENOMEM;
	log->out = out;
	*ret = log;
	return 0;
}

static void forget(struct verdict_log *log, struct told *told)
{
	HASH_DEL(log->told, told);
	free(told);
}

void verdict_log__free(struct verdict_log *log)
{
	struct told *told, *next;

	if (!log)
		return;
	HASH_ITER(hh, log->told, told, next)
	{
		forget(log, told);
	}
	free(log);
}

/* That too little was seen so far is no trouble. */
static bool is_trouble(enum verdict_state state)
{
	return state != VERDICT_UNKNOWN && verdict_state__exit_status(state);
}

static bool is_same(const struct told *told, const struct verdict *v)
{
	uint32_t n = v->culprits.n < VERDICT_MAX_NAMED ? v->culprits.n : VERDICT_MAX_NAMED;

	return told->state == v->state && told->cause == v->cause &&
	       told->mismatch == v->mismatch && told->culprits.n == v->culprits.n &&
	       !memcmp(told->culprits.ranks, v->culprits.ranks, n * sizeof(v->culprits.ranks[0]));
}

/* "0-2,5"; "-" for none; what is not listed is counted: "0-63+12". */
static void print_ranks(FILE *out, const char *name, const struct verdict_named *named)
{
	uint32_t n = named->n < VERDICT_MAX_NAMED ? named->n : VERDICT_MAX_NAMED;

	fprintf(out, " %s=%s", name, n ? "" : "-");
	for (uint32_t i = 0, last; i < n; i = last + 1) {
		for (last = i; last + 1 < n && named->ranks[last + 1] == named->ranks[last] + 1;)
			last++;
		fprintf(out, "%s%d", i ? "," : "", named->ranks[i]);
		if (last > i)
			fprintf(out, "-%d", named->ranks[last]);
	}
	if (named->n > n)
		fprintf(out, "+%" PRIu32, named->n - n);
}

static void print_text(FILE *out, const char *text)
{
	char clean[VERDICT_TEXT];

	sanitize__text(text, clean, sizeof(clean));
	for (char *quote = clean; (quote = strchr(quote, '"'));)
		*quote = '\'';
	fprintf(out, " why=\"%s\"\n", clean);
}

static void print_verdict(const struct verdict_log *log, const struct told_key *key,
			  const struct verdict *v, uint64_t now)
{
	time_t wall = time(NULL);
	char text[32];
	struct tm tm;

	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&wall, &tm));
	fprintf(log->out, "%s verdict=%s cause=%s comm=%016" PRIx64 " nranks=%" PRId64, text,
		verdict_state__name(v->state),
		v->cause == VERDICT_NO_CAUSE ? "-" : verdict_cause__name(v->cause), key->hash,
		key->n_ranks);
	print_ranks(log->out, "culprits", &v->culprits);
	print_ranks(log->out, "waiting", &v->waiting);
	fprintf(log->out, " operation=%s",
		v->operation < NCCL_OP_MAX ? nccl_operation__name(v->operation) : "-");
	if (v->sequence != VERDICT_NO_SEQUENCE)
		fprintf(log->out, " sequence=%" PRIu64, v->sequence);
	else
		fputs(" sequence=-", log->out);
	fprintf(log->out, " for=%.1fs",
		v->since_ns && now > v->since_ns ? (double)(now - v->since_ns) / NSEC_PER_SEC
						 : 0.0);
	print_text(log->out, v->why);
}

/* True: a line was written. What finds no memory is tried again by the next call. */
static bool tell(struct verdict_log *log, const struct told_key *key, struct told *told,
		 const struct verdict *v, uint64_t now)
{
	bool is_news = told ? !is_same(told, v) : is_trouble(v->state);

	if (is_news && !told) {
		told = calloc(1, sizeof(*told));
		if (!told)
			return false;
		told->key = *key;
		HASH_ADD(hh, log->told, key, sizeof(told->key), told);
	}
	if (told) {
		told->round = log->round;
		told->state = v->state;
		told->cause = v->cause;
		told->mismatch = v->mismatch;
		told->culprits = v->culprits;
	}
	if (is_news)
		print_verdict(log, key, v, now);
	if (told && !is_trouble(v->state))
		forget(log, told);
	return is_news;
}

/* Those whose communicators are no more. */
static void sweep(struct verdict_log *log)
{
	struct told *told, *next;

	HASH_ITER(hh, log->told, told, next)
	{
		if (told->round != log->round)
			forget(log, told);
	}
}

int verdict_log__write(struct verdict_log *log, struct verdicts *verdicts, uint64_t now)
{
	struct verdict_comm *comm = verdicts__first(verdicts);
	unsigned int n = 0;

	log->round++;
	for (; comm; comm = verdict_comm__next(comm)) {
		struct told_key key = {.hash = verdict_comm__hash(comm),
				       .n_ranks = verdict_comm__n_ranks(comm)};
		struct told *told;

		HASH_FIND(hh, log->told, &key, sizeof(key), told);
		if (n < VERDICT_LOG_BURST)
			n += tell(log, &key, told, verdict_comm__now(comm), now);
		else if (told)
			told->round = log->round;
	}
	sweep(log);
	return n && fflush(log->out) ? -errno : 0;
}
