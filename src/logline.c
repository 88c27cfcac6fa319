/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "logline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "rates.h"
#include "shown.h"
#include "util.h"

struct logline {
	FILE *out;
	struct rates *rates;
};

int logline__new(struct logline **ret, FILE *out)
{
	struct logline *logline = calloc(1, sizeof(*logline));
	int err;

	if (!logline)
		return -ENOMEM;
	logline->out = out;
	err = rates__new(&logline->rates, now_ns());
	if (err) {
		free(logline);
		return err;
	}
	*ret = logline;
	return 0;
}

void logline__free(struct logline *logline)
{
	if (!logline)
		return;
	rates__free(logline->rates);
	free(logline);
}

/* Communicators that live, and since when the longest silent of them is; 0: none has called. */
static unsigned int survey(struct tracer *tracer, uint64_t *ret_oldest_ns)
{
	struct processes *processes = tracer__processes(tracer);
	struct comm *comm = comms__first(tracer__comms(tracer));
	unsigned int n = 0;

	*ret_oldest_ns = 0;
	for (; comm; comm = comm->hh.next) {
		if (comm->dead_ns || !process__is_shown(processes__find(processes, comm->key.tgid)))
			continue;
		n++;
		if (comm__last_ns(comm) &&
		    (!*ret_oldest_ns || comm__last_ns(comm) < *ret_oldest_ns))
			*ret_oldest_ns = comm__last_ns(comm);
	}
	return n;
}

static void print_age(FILE *out, uint64_t now, uint64_t since_ns)
{
	if (since_ns)
		fprintf(out, " oldest_call=%.1fs\n",
			now > since_ns ? (double)(now - since_ns) / NSEC_PER_SEC : 0.0);
	else
		fprintf(out, " oldest_call=-\n");
}

int logline__write(struct logline *logline, struct tracer *tracer, uint64_t now)
{
	struct tracer_census census = tracer__census(tracer);
	time_t wall = time(NULL);
	uint64_t oldest_ns;
	unsigned int n_comms = survey(tracer, &oldest_ns);
	struct rate rate;
	char text[32];
	struct tm tm;
	int err;

	err = rates__update(logline->rates, tracer__comms(tracer),
			    probe__received(tracer__probe(tracer)), now);
	rate = rates__total(logline->rates);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&wall, &tm));
	fprintf(logline->out, "%s processes=%u unsupported=%u communicators=%u", text,
		census.traced, census.unsupported, n_comms);
	fprintf(logline->out, " operations/s=%.1f bytes/s=%.0f records/s=%.1f lost=%" PRIu64,
		rate.operations, rate.bytes, rate.records, tracer__all_lost(tracer));
	print_age(logline->out, now, oldest_ns);
	if (fflush(logline->out))
		return -errno;
	return err;
}
