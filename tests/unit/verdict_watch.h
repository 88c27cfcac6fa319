/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a tracer tells the judge of a job (verdict_job.h), and how well it sees. */
#ifndef VERDICT_WATCH_H
#define VERDICT_WATCH_H

#include "verdict_job.h"

#define WATCH_SETTLE_NS (250 * NSEC_PER_MSEC)

struct watched {
	struct job *job;
	struct verdicts *verdicts;
	/* sight */
	uint64_t joins_ns[JOB_RANKS];
	bool whole[JOB_RANKS];
	uint64_t leaves_ns[JOB_RANKS]; /* JOB_NEVER */
	enum verdict_end how[JOB_RANKS];
	uint64_t delays_ns[JOB_RANKS];
	bool tells_reached, tells_gpu, knows_starts;
	uint64_t timed_every; /* number; 0: none is timed */
	uint64_t lost_from_ns, lost_to_ns;
	int loser; /* rank; -1: all */
	/* where it is */
	bool has_joined[JOB_RANKS], has_left[JOB_RANKS], has_lost;
	size_t called[JOB_GROUPS][JOB_RANKS]; /* the next one to be called, done and timed: */
	size_t done[JOB_GROUPS][JOB_RANKS];   /* index + 1 */
	size_t timed[JOB_GROUPS][JOB_RANKS];
	uint64_t reached[JOB_GROUPS][JOB_RANKS][NCCL_OP_AlltoAll];
};

static int call_compare(const void *a, const void *b)
{
	const struct job_call *x = *(struct job_call *const *)a, *y = *(struct job_call *const *)b;

	return x->fed_ns != y->fed_ns ? (x->fed_ns > y->fed_ns ? 1 : -1) : (x > y) - (x < y);
}

static struct verdict_member watched_member(const struct watched *w, int g, int m)
{
	const struct job_group *group = &w->job->groups[g];

	return (struct verdict_member){
		.hash = group->hash,
		.rank = m,
		.n_ranks = group->n + group->n_remote,
		.tgid = 1000 + group->members[m],
	};
}

static bool watched_loses(const struct watched *w, int rank, uint64_t time_ns)
{
	return (w->loser < 0 || w->loser == rank) && time_ns >= w->lost_from_ns &&
	       time_ns < w->lost_to_ns;
}

static void watched_call(struct watched *w, const struct job_call *call)
{
	struct verdict_call told = {
		.member = watched_member(w, call->group, call->member),
		.operation = call->operation,
		.sequence = call->sequence,
		.time_ns = call->time_ns,
		.count = call->count,
		.datatype = call->datatype,
		.redop = call->redop,
		.root = call->root,
	};
	int rank = w->job->groups[call->group].members[call->member];

	if (!w->has_joined[rank] || call->time_ns < w->joins_ns[rank] ||
	    call->time_ns > w->leaves_ns[rank] || watched_loses(w, rank, call->time_ns))
		return;
	verdicts__call(w->verdicts, &told);
}

/* The exact counters: read at about that time, whatever records were lost. */
static void watched_reached(struct watched *w, int g, int m, uint64_t read_ns, uint64_t now_ns)
{
	const struct verdict_member member = watched_member(w, g, m);
	uint64_t *reached = w->reached[g][m];
	size_t *at = &w->called[g][m];

	for (; *at && w->job->calls[*at - 1].time_ns <= read_ns;
	     *at = w->job->calls[*at - 1].next) {
		const struct job_call *call = &w->job->calls[*at - 1];

		if (call->sequence > reached[call->operation])
			reached[call->operation] = call->sequence;
	}
	for (int op = 0; op < NCCL_OP_AlltoAll; op++)
		verdicts__reached(w->verdicts, &member, op, reached[op], now_ns);
}

static void watched_gpu(struct watched *w, int g, int m, uint64_t now_ns)
{
	const struct verdict_member member = watched_member(w, g, m);
	const struct job_call *calls = w->job->calls;
	struct verdict_gpu gpu = {.operation = NCCL_OP_MAX, .sequence = VERDICT_NO_SEQUENCE};
	size_t *done = &w->done[g][m];

	while (*done && calls[*done - 1].end_ns <= now_ns)
		*done = calls[*done - 1].next;
	for (size_t i = *done; i && calls[i - 1].time_ns <= now_ns; i = calls[i - 1].next)
		gpu.n_in_flight++;
	if (gpu.n_in_flight) {
		const struct job_call *oldest = &calls[*done - 1];

		gpu.operation = oldest->operation;
		gpu.sequence = oldest->sequence;
		gpu.launch_ns = oldest->time_ns;
		gpu.start_known = w->knows_starts;
		gpu.started = w->knows_starts && oldest->start_ns <= now_ns;
	}
	verdicts__gpu(w->verdicts, &member, &gpu, now_ns);
}

static void watched_times(struct watched *w, int g, int m, uint64_t now_ns)
{
	const struct job_call *calls = w->job->calls;
	size_t *at = &w->timed[g][m];

	for (; *at && calls[*at - 1].end_ns <= now_ns; *at = calls[*at - 1].next) {
		const struct job_call *call = &calls[*at - 1];
		struct verdict_timed timed = {
			.member = watched_member(w, g, m),
			.operation = call->operation,
			.sequence = call->sequence,
			.gpu_start_ns = call->start_ns,
			.duration_ns = call->end_ns - call->start_ns,
			.bytes = 4 * call->count,
		};

		if (!((call->sequence * 2654435761U >> 13) % w->timed_every))
			verdicts__timed(w->verdicts, &timed);
	}
}

static void watched_come_and_go(struct watched *w, int rank, uint64_t now_ns)
{
	bool comes = !w->has_joined[rank] && w->joins_ns[rank] <= now_ns &&
		     w->joins_ns[rank] < w->leaves_ns[rank];
	bool goes = !w->has_left[rank] && w->leaves_ns[rank] <= now_ns;

	for (int kind = 0; kind < KINDS && (comes || goes); kind++) {
		int g = w->job->group_of[kind][rank], m = w->job->member_of[kind][rank];
		struct verdict_member member;

		if (w->job->groups[g].kind != (enum job_kind)kind ||
		    w->job->groups[g].members[m] != rank)
			continue;
		member = watched_member(w, g, m);
		if (comes)
			verdicts__join(w->verdicts, &member, w->whole[rank], 1, w->joins_ns[rank]);
		if (comes && !w->whole[rank])
			watched_reached(w, g, m, w->joins_ns[rank] + (uint64_t)uniform(0, 5e7),
					w->joins_ns[rank]);
		if (goes)
			verdicts__leave(w->verdicts, &member, w->how[rank], w->leaves_ns[rank]);
	}
	w->has_joined[rank] |= comes;
	w->has_left[rank] |= goes;
}

static void watched_settle(struct watched *w, uint64_t now_ns)
{
	for (int rank = 0; rank < w->job->n; rank++)
		watched_come_and_go(w, rank, now_ns);
	for (int g = 0; g < w->job->n_groups; g++) {
		for (int m = 0; m < w->job->groups[g].n; m++) {
			int rank = w->job->groups[g].members[m];

			if (!w->has_joined[rank] || w->has_left[rank])
				continue;
			if (w->tells_reached)
				watched_reached(w, g, m, now_ns - (uint64_t)uniform(0, 5e7),
						now_ns);
			if (w->tells_gpu)
				watched_gpu(w, g, m, now_ns);
			if (w->timed_every)
				watched_times(w, g, m, now_ns);
		}
	}
	if (w->lost_to_ns > w->lost_from_ns && now_ns >= w->lost_from_ns && !w->has_lost) {
		verdicts__lost(w->verdicts, w->loser < 0 ? 0 : 1000 + w->loser,
			       now_ns < w->lost_to_ns ? now_ns : w->lost_to_ns);
		w->has_lost = now_ns >= w->lost_to_ns;
	}
	verdicts__settle(w->verdicts, now_ns);
}

#endif
