/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A judge that writes down what it is told, some words a thing. Included after nccl_api.c. */
#ifndef STUB_VERDICT_H
#define STUB_VERDICT_H

#include <stdarg.h>
#include <stdlib.h>

#include "../../src/verdict.h"

static char told_words[65536];

struct verdicts {
	int nothing;
};

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
	size_t len = strlen(told_words);
	va_list args;

	va_start(args, format);
	vsnprintf(told_words + len, sizeof(told_words) - len, format, args);
	va_end(args);
}

/* What was told since the last time. */
static inline const char *heard(void)
{
	static char last[sizeof(told_words)];

	strcpy(last, told_words);
	told_words[0] = 0;
	return last;
}

static const char *number(uint64_t sequence)
{
	static char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)sequence);
	return sequence == VERDICT_NO_SEQUENCE ? "?" : text;
}

int verdicts__new(struct verdicts **ret, const struct verdict_options *options)
{
	(void)options;
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -1;
}

void verdicts__free(struct verdicts *verdicts)
{
	free(verdicts);
}

void verdicts__join(struct verdicts *verdicts, const struct verdict_member *member, bool whole,
		    int32_t n_nodes, uint64_t now_ns)
{
	(void)verdicts;
	(void)now_ns;
	tell("join %d/%d%s nodes %d; ", member->rank, member->n_ranks, whole ? " whole" : "",
	     n_nodes);
}

void verdicts__leave(struct verdicts *verdicts, const struct verdict_member *member,
		     enum verdict_end how, uint64_t now_ns)
{
	static const char *const names[] = {"destroyed", "aborted", "died"};

	(void)verdicts;
	(void)now_ns;
	tell("%s %d; ", names[how], member->rank);
}

void verdicts__call(struct verdicts *verdicts, const struct verdict_call *call)
{
	(void)verdicts;
	tell("%s %d #%s%s x%llu; ", nccl_operation__name(call->operation), call->member.rank,
	     number(call->sequence), call->captured ? " captured" : "",
	     (unsigned long long)call->count);
}

void verdicts__reached(struct verdicts *verdicts, const struct verdict_member *member,
		       enum nccl_operation operation, uint64_t sequence, uint64_t now_ns)
{
	(void)verdicts;
	(void)now_ns;
	if (sequence)
		tell("%s %d reached %s; ", nccl_operation__name(operation), member->rank,
		     number(sequence));
}

void verdicts__moved(struct verdicts *verdicts, const struct verdict_member *member,
		     uint64_t time_ns)
{
	(void)verdicts;
	tell("moved %d at %llu; ", member->rank, (unsigned long long)time_ns);
}

void verdicts__replayed(struct verdicts *verdicts, const struct verdict_member *member,
			const struct verdict_replays *replays)
{
	(void)verdicts;
	tell("replayed %d: %llu of %llu %d, %s; ", member->rank, (unsigned long long)replays->n,
	     (unsigned long long)replays->n_captured, replays->operation,
	     replays->is_known ? "known" : "unknown");
}

void verdicts__replays_as_of(struct verdicts *verdicts, uint64_t time_ns)
{
	(void)verdicts;
	(void)time_ns;
}

void verdicts__gpu(struct verdicts *verdicts, const struct verdict_member *member,
		   const struct verdict_gpu *gpu, uint64_t now_ns)
{
	(void)verdicts;
	(void)now_ns;
	tell("gpu %d: %u, %s #%s%s; ", member->rank, gpu->n_in_flight,
	     gpu->operation < NCCL_OP_MAX ? nccl_operation__name(gpu->operation) : "?",
	     number(gpu->sequence), gpu->started ? " runs" : "");
}

void verdicts__timed(struct verdicts *verdicts, const struct verdict_timed *timed)
{
	(void)verdicts;
	tell("timed %d %s #%s %llu ns; ", timed->member.rank,
	     nccl_operation__name(timed->operation), number(timed->sequence),
	     (unsigned long long)timed->duration_ns);
}

void verdicts__lost(struct verdicts *verdicts, uint32_t tgid, uint64_t now_ns)
{
	(void)verdicts;
	(void)now_ns;
	tell("lost %u; ", tgid);
}

void verdicts__error(struct verdicts *verdicts, const struct verdict_member *member,
		     const char *result, uint64_t now_ns)
{
	(void)verdicts;
	(void)now_ns;
	tell("error %d '%s'; ", member->rank, result);
}

void verdicts__settle(struct verdicts *verdicts, uint64_t now_ns)
{
	(void)verdicts;
	(void)now_ns;
}

void verdicts__expire(struct verdicts *verdicts, uint64_t before_ns)
{
	(void)verdicts;
	(void)before_ns;
}

uint64_t verdicts__refused(const struct verdicts *verdicts)
{
	(void)verdicts;
	return 0;
}

#endif
