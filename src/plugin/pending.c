/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Launches are under way until their end is seen, for hours if need be, and also while no tracer
 * listens: the one that comes next is told of what hangs. Of each communicator the oldest is looked
 * at more closely: has its stream come to it?
 */
#include "pending.h"

#include <string.h>

#define CLOSING_NS    (2 * NS_PER_SECOND) /* under way when their communicator ended */
#define LOOK_AFTER_NS (250 * NS_PER_MS)	  /* most launches are over by then */
#define LOOK_EVERY_NS (100 * NS_PER_MS)
#define TELL_EVERY_NS (1 * NS_PER_SECOND)
#define POLL_EVERY_NS (20 * NS_PER_MS) /* each call may hold up the job's */
#define N_FEW	      16	       /* at 1 % there are no more by then */
#define N_PENDING     1024	       /* as many as there are pairs of events */

struct pending {
	struct comm *comm;
	struct note note;
	struct pending_state {
		uint64_t round; /* in which it was read */
		enum timing_result result;
		struct timing_times times;
		uint32_t n_operations;
		uint64_t run_first; /* launches from that on are on its stream */
		struct under_way under_way;
		uint64_t looked_ns, told_ns; /* 0: never */
	} state;
};

static struct {
	struct pending list[N_PENDING];
	int n;
	uint64_t polled_ns;
} pendings;

bool pending__any(void)
{
	return pendings.n > 0;
}

static void comm__run(struct comm *comm, const struct note *launch)
{
	if (launch->number != comm->run.last + 1 || launch->stream != comm->run.stream)
		comm->run.first = launch->number;
	comm->run.stream = launch->stream;
	comm->run.last = launch->number;
}

void pending__launch(struct comm *comm, const struct note *launch, uint64_t round)
{
	struct pending *p;

	comm__run(comm, launch);
	if (launch->function != NBP_TIMED)
		return;
	if (pendings.n == N_PENDING) { /* cannot be: no more pairs */
		timing__give_back(launch->extra);
		return;
	}
	p = &pendings.list[pendings.n++];
	p->comm = comm;
	note__copy(&p->note, launch);
	p->state = (struct pending_state){
		.round = round,
		.run_first = comm->run.first,
		.under_way = {.function = NBP_UNKNOWN_U8,
			      .sequence = NBP_NO_NUMBER,
			      .times.clock_error_ns = NBP_UNKNOWN},
	};
	comm->n_pending++;
}

void pending__drop(const struct note *note)
{
	if (note->kind == NBP_KIND_LAUNCH && note->function == NBP_TIMED)
		timing__give_back(note->extra);
}

void pending__operation(const struct comm *comm, const struct note *operation)
{
	for (int i = pendings.n - 1; operation->launch && i >= 0; i--) {
		struct pending *p = &pendings.list[i];

		if (p->comm != comm || p->note.number != operation->launch)
			continue;
		if (!p->state.n_operations++) {
			p->state.under_way.function = operation->function;
			p->state.under_way.sequence = operation->sequence;
		}
		return;
	}
}

void pending__tell_again(void)
{
	for (int i = 0; i < pendings.n; i++)
		pendings.list[i].state.told_ns = 0;
}

/* ---- the end ---- */

static bool pending__is_given_up(const struct pending *p, uint64_t now)
{
	return (p->comm->closing_since_ns && now - p->comm->closing_since_ns > CLOSING_NS) ||
	       atomic_load(&process.ending);
}

/* The clocks were compared when it began: that may be too long ago to be found out now. */
static void pending__complete(const struct pending *p, struct timing_times *times)
{
	const struct timing_times *known = &p->state.under_way.times;

	if (times->start_ns || !known->start_ns)
		return;
	times->start_ns = known->start_ns;
	times->end_ns = known->start_ns + times->duration_ns;
	times->clock_error_ns = known->clock_error_ns;
}

static void comm__done(struct comm *comm, uint64_t launch)
{
	if (launch > comm->done_launch)
		comm->done_launch = launch;
}

/* It is behind one that is not: known without asking. */
static bool pending__is_behind(const struct pending *p, uint64_t round)
{
	return p->comm->unfinished.round == round && p->comm->unfinished.stream == p->note.stream &&
	       p->comm->unfinished.launch < p->note.number;
}

static enum timing_result pending__ask(struct pending *p, const struct round *round)
{
	enum timing_result result;

	if (p->state.round == round->number && !p->comm->closing_since_ns)
		return TIMING_PENDING; /* its operations may not all have been read */
	if (pending__is_behind(p, round->number))
		return TIMING_PENDING;
	result = timing__poll(p->note.extra, p->note.time_ns, &p->state.times);
	if (result == TIMING_PENDING && p->comm->unfinished.round != round->number) {
		p->comm->unfinished.round = round->number;
		p->comm->unfinished.stream = p->note.stream;
		p->comm->unfinished.launch = p->note.number;
	}
	return result;
}

/* GPU by GPU: each has to be gone to. */
static void pending__ask_all(const struct round *round)
{
	int left = pendings.n;

	for (uint32_t gpu = 0; left; gpu++) {
		for (int i = 0; i < pendings.n; i++) {
			struct pending *p = &pendings.list[i];

			if (timing__gpu(p->note.extra) != gpu)
				continue;
			p->state.result = pending__ask(p, round);
			left--;
		}
	}
	cuda__leave();
}

/* False: it stays. */
static bool pending__finish(struct pending *p, const struct round *round)
{
	enum timing_result result = p->state.result;
	struct timing_times *times = &p->state.times;

	if (result == TIMING_PENDING && !pending__is_given_up(p, round->now_ns))
		return false;
	if (result == TIMING_PENDING)
		timing__give_back(p->note.extra);
	if (result == TIMING_PENDING || result == TIMING_FAILED)
		comm__lost(p->comm, NBP_LOSS_TIMING_ABANDONED);
	else
		comm__done(p->comm, p->note.number);
	if (result == TIMING_INVALID)
		comm__lost(p->comm, NBP_LOSS_TIMING_INVALID);
	if (result == TIMING_DONE)
		pending__complete(p, times);
	batch__finished(round->batch, p->comm, &p->note, result == TIMING_DONE ? times : NULL,
			p->state.n_operations);
	p->comm->n_pending--;
	return true;
}

/* ---- before the end ---- */

/* So what was before it on its stream is done. Of other streams nothing follows. */
static void pending__has_started(struct pending *p)
{
	p->state.told_ns = 0;
	if (p->state.run_first <= p->comm->done_launch + 1)
		comm__done(p->comm, p->note.number - 1);
}

static void pending__look(struct pending *p, const struct round *round)
{
	struct pending_state *state = &p->state;
	struct under_way *under_way = &state->under_way;
	enum timing_result result;

	if (passed_ns(p->note.time_ns, round->now_ns) < LOOK_AFTER_NS)
		return;
	if (!under_way->started && round->now_ns - state->looked_ns >= LOOK_EVERY_NS) {
		result = timing__look(p->note.extra, p->note.time_ns, &under_way->times);
		if (result == TIMING_FAILED)
			return; /* the next poll finds it so, too */
		state->looked_ns = round->now_ns;
		under_way->started = result == TIMING_DONE;
		if (under_way->started)
			pending__has_started(p);
	}
	if (state->told_ns && round->now_ns - state->told_ns < TELL_EVERY_NS)
		return;
	under_way->done = p->comm->done_launch;
	batch__under_way(round->batch, p->comm, &p->note, under_way);
	state->told_ns = round->now_ns;
}

/* The first launch of each communicator, which need not be the first that was noted. */
static void pending__look_at_oldest(const struct round *round)
{
	for (int i = 0; i < pendings.n; i++)
		pendings.list[i].comm->oldest_pending = UINT64_MAX;
	for (int i = 0; i < pendings.n; i++) {
		const struct pending *p = &pendings.list[i];

		if (p->note.number < p->comm->oldest_pending)
			p->comm->oldest_pending = p->note.number;
	}
	for (int i = 0; i < pendings.n; i++) {
		if (pendings.list[i].note.number == pendings.list[i].comm->oldest_pending)
			pending__look(&pendings.list[i], round);
	}
	cuda__leave();
}

static bool pending__is_due(uint64_t now)
{
	if (now - pendings.polled_ns >= POLL_EVERY_NS || pendings.n > N_FEW ||
	    atomic_load(&process.ending))
		return true;
	for (int i = 0; i < pendings.n; i++) {
		if (pendings.list[i].comm->closing_since_ns)
			return true; /* perhaps the last round */
	}
	return false;
}

void pending__poll(const struct round *round)
{
	int kept = 0;

	if (!pendings.n || !pending__is_due(round->now_ns))
		return;
	pendings.polled_ns = round->now_ns;
	pending__ask_all(round);
	for (int i = 0; i < pendings.n; i++) {
		struct pending *p = &pendings.list[i], *to = &pendings.list[kept];

		if (pending__finish(p, round))
			continue;
		if (kept++ == i)
			continue;
		to->comm = p->comm;
		note__copy(&to->note, &p->note);
		to->state = p->state;
	}
	pendings.n = kept;
	pending__look_at_oldest(round);
}
