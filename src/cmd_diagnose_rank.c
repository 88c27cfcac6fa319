/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is said of one rank, and what to look at next. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cmd_diagnose.h"
#include "sanitize.h"
#include "screen_text.h"
#include "util.h"

void diagnosis__print_line(FILE *out, const char *text)
{
	wrapped__print(out, text, DIAGNOSIS_INDENT, DIAGNOSIS_COLUMNS);
}

void diagnosis__add_operation(struct wrapped *line, enum nccl_operation operation,
			      uint64_t sequence)
{
	wrapped__add(line, "%s", nccl_operation__name(operation));
	if (sequence != VERDICT_NO_SEQUENCE)
		wrapped__add(line, " %" PRIu64, sequence);
}

static const char *seconds(char buf[SCREEN_TEXT_SIZE], const struct diagnosis *d, uint64_t since_ns)
{
	return screen_text__age(buf, d->now_ns > since_ns ? d->now_ns - since_ns : 0);
}

static void add_look(struct wrapped *line, const struct diagnosis_look *look)
{
	const struct procstate *state = &look->state;
	char text[PROCSTATE_TEXT], name[64];

	if (look->status) {
		wrapped__add(line, ", %s",
			     look->status == -ESRCH	  ? "its process has ended"
			     : look->status == -ETIMEDOUT ? "/proc did not answer in time"
							  : "/proc tells nothing of it");
		return;
	}
	wrapped__add(line, ", %s", procstate_task__describe(state, &state->main, text));
	if (state->caller.tid)
		wrapped__add(line, "; its thread %u %s, which called last, is %s",
			     state->caller.tid,
			     sanitize__text(state->caller.name, name, sizeof(name)),
			     procstate_task__describe(state, &state->caller, text));
	if (state->n_uninterruptible > (state->main.state == 'D') && !state->is_frozen)
		wrapped__add(line, "; %u of %u threads uninterruptible", state->n_uninterruptible,
			     state->n_threads);
}

static void add_calls(const struct diagnosis *d, struct wrapped *line,
		      const struct diagnosis_rank *r)
{
	char age[SCREEN_TEXT_SIZE];

	if (r->last_operation != NCCL_OP_MAX) {
		wrapped__add(line, "; last call ");
		diagnosis__add_operation(line, r->last_operation, r->last_sequence);
		if (r->last_ns)
			wrapped__add(line, ", %s ago", seconds(age, d, r->last_ns));
		else
			wrapped__add(line, ", before this watch");
	} else {
		wrapped__add(line, "; no call since the watch began");
	}
	if (!r->in_flight.n_in_flight)
		return;
	wrapped__add(line, "; on its GPU: ");
	if (r->in_flight.operation != NCCL_OP_MAX)
		diagnosis__add_operation(line, r->in_flight.operation, r->in_flight.sequence);
	else
		wrapped__add(line, "a launch");
	wrapped__add(line, ", launched %s ago%s", seconds(age, d, r->in_flight.launch_ns),
		     !r->in_flight.start_known ? ""
		     : r->in_flight.started    ? ", running"
					       : ", not started");
}

void diagnosis_rank__print(const struct diagnosis *d, const struct diagnosis_comm *c,
			   const struct diagnosis_rank *r, FILE *out)
{
	struct wrapped line = {};
	char command[64];

	if (r->rank >= 0)
		wrapped__add(&line, "rank %d: ", r->rank);
	wrapped__add(&line, "pid %u", r->tgid);
	if (r->command[0])
		wrapped__add(&line, " %s", sanitize__text(r->command, command, sizeof(command)));
	if (r->gpu >= 0)
		wrapped__add(&line, ", GPU %d (%s)", r->gpu, r->uuid);
	if (r->ended)
		wrapped__add(&line, ", its process has ended");
	else if (r->look)
		add_look(&line, r->look);
	if (!c->verdict.n_evidence) /* that tells of calls */
		add_calls(d, &line, r);
	diagnosis__print_line(out, line.text);
}

/* What to do about a process that does not run, whatever the verdict; false: it runs. */
static bool add_advice_on_process(struct wrapped *line, const struct diagnosis_rank *r)
{
	const struct procstate *state = r->look && !r->look->status ? &r->look->state : NULL;
	const char *word = state ? procstate_task__word(state, &state->main) : "";

	if (!strcmp(word, "stopped"))
		wrapped__add(line, "kill -CONT %u lets it go on; who stopped it?", r->tgid);
	else if (!strcmp(word, "traced"))
		wrapped__add(line, "process %u holds it: end that debugger, or continue in it",
			     state->tracer_pid);
	else if (!strcmp(word, "frozen"))
		wrapped__add(line, "thaw its cgroup (see /proc/%u/cgroup): a paused container?",
			     r->tgid);
	else if (!strcmp(word, "uninterruptible"))
		wrapped__add(line,
			     "cat /proc/%u/stack; dmesg: storage, network file system or driver",
			     r->tgid);
	else
		return false;
	return true;
}

/* By cause: the process, or its GPU. */
static void add_advice_on_cause(struct wrapped *line, const struct diagnosis_comm *c,
				const struct diagnosis_rank *r)
{
	switch (c->verdict.cause) {
	case VERDICT_GPU_NOT_STARTED:
	case VERDICT_GPU_NOT_DONE:
	case VERDICT_LATE_ON_GPU:
		if (!c->verdict.culprits.n) {
			wrapped__add(line, "dmesg | grep -i xid; nvidia-smi nvlink -s; the error "
					   "counters of the network's ports");
			return;
		}
		if (r->gpu >= 0)
			wrapped__add(line, "nvidia-smi -i %d; ", r->gpu);
		wrapped__add(line, "dmesg | grep -i xid; then pid %u", r->tgid);
		return;
	case VERDICT_SLOW_TRANSFER:
		wrapped__add(line,
			     "nvidia-smi nvlink -s; the error counters of the network's ports");
		return;
	default:
		wrapped__add(line, "look at pid %u (py-spy dump --pid %u, or gdb -p %u)", r->tgid,
			     r->tgid, r->tgid);
	}
}

void diagnosis_comm__print_next(const struct diagnosis *d, const struct diagnosis_comm *c,
				FILE *out)
{
	const struct diagnosis_rank *r = diagnosis_comm__next(d, c);
	struct wrapped line = {};

	wrapped__add(&line, "next: ");
	if (c->verdict.state == VERDICT_DEGRADED_SIGHT)
		wrapped__add(&line, "again, with a larger --ring-size");
	else if (c->verdict.state == VERDICT_UNKNOWN)
		wrapped__add(&line, "again, with a longer --duration");
	else if (c->verdict.state == VERDICT_ERROR || c->verdict.state == VERDICT_ABORTED)
		wrapped__add(&line, "the job's log (NCCL_DEBUG=WARN)");
	else if (c->verdict.cause == VERDICT_ENDED)
		wrapped__add(&line, "why it ended: the job's log, dmesg (was it out of memory?)");
	else if (c->verdict.cause == VERDICT_ELSEWHERE)
		wrapped__add(&line, "the same command on the nodes of the other ranks");
	else if (!r)
		return;
	else if (!add_advice_on_process(&line, r))
		add_advice_on_cause(&line, c, r);
	diagnosis__print_line(out, line.text);
}
