/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the tracer's picture of communicators tells: who lives, how far it has come, its errors. */
#include "watch_private.h"

#define BLIND_NS (500 * NSEC_PER_MSEC) /* likewise, when that call was not numbered */
#define QUIET_NS (3 * NSEC_PER_SEC)    /* without a call: how far it is, its memory tells */
#define READ_NS	 (2 * NSEC_PER_SEC)    /* between two readings of it, at least; and at most: */
#define ERROR_NS (10 * NSEC_PER_SEC)   /* errors are looked for so often in any case */
#define SLOW_NS	 (60 * NSEC_PER_SEC)   /* in a process that could not be read */

static enum verdict_end comm__end(const struct comm *comm)
{
	switch (comm->ending) {
	case COMM_ABORTED:
		return VERDICT_END_ABORTED;
	case COMM_DIED:
		return VERDICT_END_DIED;
	default:
		return VERDICT_END_DESTROYED;
	}
}

static void member__reached(struct watch *w, struct watch_member *m, enum nccl_operation operation,
			    uint64_t sequence, uint64_t time_ns)
{
	if (watch_number__reached(&m->numbers[operation], sequence))
		verdicts__reached(w->verdicts, &m->name, operation, sequence, time_ns);
}

/* What is not numbered: CUDA graphs of which all is known, and such of which nothing is. */
static void member__take_graphs(struct watch *w, struct watch_member *m, const struct comm *comm)
{
	const struct process *process = processes__find(tracer__processes(w->tracer), m->key.tgid);
	struct verdict_replays replays = {.operation = NCCL_OP_MAX};
	uint64_t unresolved = process ? process->unresolved : 0, most = 0;

	if (comm->replayed_ns > m->replayed_ns)
		verdicts__moved(w->verdicts, &m->name, comm->replayed_ns);
	if (unresolved != m->unresolved)
		verdicts__moved(w->verdicts, &m->name, m->refreshed_ns);
	m->replayed_ns = comm->replayed_ns;
	m->unresolved = unresolved;
	for (int i = 0; i < NCCL_OP_Send; i++) {
		uint64_t n = comm->operations[i].tally[COMM_CAPTURED].calls;

		replays.n_captured += n;
		replays.n += comm->operations[i].tally[COMM_REPLAYED].calls;
		if (n > most)
			replays.operation = i;
		most = n > most ? n : most;
	}
	replays.is_known = process && !unresolved && !tracer__lost(w->tracer, NB_LOST_GRAPH_FULL);
	if (replays.n_captured)
		verdicts__replayed(w->verdicts, &m->name, &replays);
}

/* The kernel's counters, as of the last refresh. */
static void member__take_counters(struct watch *w, struct watch_member *m, const struct comm *comm)
{
	uint64_t refreshed_ns = tracer__refreshed_ns(w->tracer);

	if (m->refreshed_ns == refreshed_ns)
		return;
	m->refreshed_ns = refreshed_ns;
	for (int i = 0; i < NCCL_OP_MAX; i++) {
		const struct comm_operation *op = &comm->operations[i];

		if (op->sequence != NB_NO_SEQUENCE && op->tally[COMM_LAUNCHED].calls &&
		    (op->last_unprobed || watch_number__is_exact(&m->numbers[i], m->whole)))
			member__reached(w, m, i, op->sequence, refreshed_ns);
	}
	member__take_graphs(w, m, comm);
}

/* NCCL's own memory, as of the last reading: what was launched, by calls that nobody saw too. */
static void member__take_memory(struct watch *w, struct watch_member *m, const struct comm *comm)
{
	if (m->read_ns == comm->read_ns)
		return;
	m->read_ns = comm->read_ns;
	m->blind &= comm->read_ns < m->heard_ns;
	for (int i = 0; comm->has_read_sequences && i < NCCL_OP_MAX; i++) {
		int at = nccl_operation__sequence(i);

		if (at != NCCL_NO_SEQUENCE)
			member__reached(w, m, i, comm->read_sequences[at], comm->read_ns);
	}
}

static bool result__is_error(int32_t result)
{
	return result > 0 && result != NCCL_RESULT_IN_PROGRESS;
}

static void member__take_result(struct watch *w, struct watch_member *m, const struct comm *comm,
				uint64_t now_ns)
{
	int32_t result = comm->async_result;

	if (result < 0 || result == m->async_result)
		return;
	if (result__is_error(result)) {
		verdicts__error(w->verdicts, &m->name, nccl_result__name(result), now_ns);
		if (result < NCCL_N_RESULTS)
			m->errors[result]++;
	} else if (result__is_error(m->async_result)) {
		verdicts__error(w->verdicts, &m->name, "", now_ns);
	}
	m->async_result = result;
}

/* Its rank has gone as soon as it is about to be destroyed: nothing is called on it any more. */
static void watch__take_finalized(struct watch *w, const struct comm *comm)
{
	struct watch_member *m = watch__find(w, comm->key.hash, comm->key.tgid, comm->key.rank);

	if (!m)
		return;
	m->round = w->round;
	watch__leave(w, m, VERDICT_END_DESTROYED, comm->finalized_ns);
}

static void watch__take_living(struct watch *w, const struct comm *comm, uint64_t now_ns)
{
	struct watch_member *m = watch__member(w, comm, now_ns);

	if (!m)
		return;
	m->round = w->round;
	member__take_counters(w, m, comm);
	member__take_memory(w, m, comm);
	member__take_result(w, m, comm, now_ns);
	watch__take_gpu(w, m, now_ns);
}

/* One that ended, and of which nothing with its name lives. */
static void watch__take_ended(struct watch *w, const struct comm *comm)
{
	struct watch_member *m = NULL;

	if (comm->key.hash && !comm->is_double)
		m = watch__find(w, comm->key.hash, comm->key.tgid, comm->key.rank);
	if (!m || (m->round == w->round && !m->left))
		return;
	m->round = w->round;
	watch__leave(w, m, comm__end(comm), comm->dead_ns);
}

void watch__take_comms(struct watch *w, uint64_t now_ns)
{
	struct comms *comms = tracer__comms(w->tracer);

	for (struct comm *comm = comms__first(comms); comm; comm = comm->hh.next)
		if (!comm->dead_ns && comm->finalized_ns)
			watch__take_finalized(w, comm);
		else if (!comm->dead_ns)
			watch__take_living(w, comm, now_ns);
	for (struct comm *comm = comms__first(comms); comm; comm = comm->hh.next)
		if (comm->dead_ns)
			watch__take_ended(w, comm);
}

/* Quiet for ever longer, it is read ever less often. */
static uint64_t member__period(const struct watch_member *m, const struct process *process,
			       uint64_t now_ns)
{
	uint64_t heard_ns = m->heard_ns > m->met_ns ? m->heard_ns : m->met_ns;
	uint64_t quiet_ns = now_ns > heard_ns ? now_ns - heard_ns : 0;

	if (process->scan_err)
		return SLOW_NS;
	if (m->blind && quiet_ns >= BLIND_NS)
		return BLIND_NS;
	if (quiet_ns < QUIET_NS || quiet_ns / 4 > ERROR_NS)
		return ERROR_NS;
	return quiet_ns / 4 > READ_NS ? quiet_ns / 4 : READ_NS;
}

/* One reading serves all communicators of a process. */
void watch__read_again(struct watch *w, uint64_t now_ns)
{
	struct processes *processes = tracer__processes(w->tracer);

	for (struct watch_member *m = w->members; m; m = m->hh.next) {
		const struct process *process;
		uint64_t last_ns = m->asked_ns > m->read_ns ? m->asked_ns : m->read_ns;

		if (m->left || now_ns < last_ns + BLIND_NS)
			continue;
		process = processes__find(processes, m->key.tgid);
		if (!process || now_ns < last_ns + member__period(m, process, now_ns))
			continue;
		tracer__read_again(w->tracer, m->key.tgid);
		m->asked_ns = now_ns;
	}
}
