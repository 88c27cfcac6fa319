/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A diagnosis as one JSON object; what is not known is null. */
#include <jansson.h>
#include <string.h>

#include "cmd_diagnose.h"
#include "sanitize.h"
#include "util.h"

static json_t *text_or_null(const char *text)
{
	char clean[256];

	return text && text[0] ? json_string(sanitize__text(text, clean, sizeof(clean)))
			       : json_null();
}

static json_t *number_or_null(bool known, int64_t value)
{
	return known ? json_integer(value) : json_null();
}

static json_t *json_of_operation(enum nccl_operation operation)
{
	return operation == NCCL_OP_MAX ? json_null()
					: json_string(nccl_operation__name(operation));
}

static json_t *json_of_sequence(uint64_t sequence)
{
	return number_or_null(sequence != VERDICT_NO_SEQUENCE, (int64_t)sequence);
}

/* Seconds since then; null for 0, which is no time. */
static json_t *json_of_age(const struct diagnosis *d, uint64_t since_ns)
{
	if (!since_ns)
		return json_null();
	return json_real(d->now_ns > since_ns ? (double)(d->now_ns - since_ns) / NSEC_PER_SEC
					      : 0.0);
}

static json_t *json_of_named(const struct verdict_named *named)
{
	uint32_t n = named->n < VERDICT_MAX_NAMED ? named->n : VERDICT_MAX_NAMED;
	json_t *array = json_array();

	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(array, json_integer(named->ranks[i]));
	return array;
}

static json_t *json_of_thread(const struct procstate *state, const struct procstate_task *task)
{
	const char *syscall = procstate__syscall_name(task->syscall);

	if (!task->tid)
		return json_null();
	return json_pack("{s:i, s:o, s:s, s:o, s:o, s:o, s:o}", "tid", task->tid, "name",
			 text_or_null(task->name), "state", procstate_task__word(state, task),
			 "syscall", text_or_null(syscall), "syscall_number",
			 number_or_null(task->syscall >= 0, task->syscall), "file",
			 text_or_null(task->file), "wait", text_or_null(task->wait));
}

static json_t *json_of_look(const struct diagnosis_look *look)
{
	if (!look || look->status)
		return json_null();
	return json_pack(
		"{s:s, s:o, s:o, s:i, s:i, s:o, s:o}", "state",
		procstate_task__word(&look->state, &look->state.main), "stop_signal",
		number_or_null(look->state.stop_signal, look->state.stop_signal), "traced_by",
		number_or_null(look->state.tracer_pid, look->state.tracer_pid), "threads",
		look->state.n_threads, "threads_uninterruptible", look->state.n_uninterruptible,
		"main_thread", json_of_thread(&look->state, &look->state.main), "calling_thread",
		json_of_thread(&look->state, &look->state.caller));
}

static json_t *json_of_flight(const struct diagnosis *d, const struct verdict_gpu *gpu)
{
	if (!gpu->n_in_flight)
		return json_null();
	return json_pack("{s:i, s:o, s:o, s:o, s:o}", "launches", gpu->n_in_flight, "operation",
			 json_of_operation(gpu->operation), "sequence",
			 json_of_sequence(gpu->sequence), "seconds", json_of_age(d, gpu->launch_ns),
			 "started", gpu->start_known ? json_boolean(gpu->started) : json_null());
}

static json_t *json_of_rank(const struct diagnosis *d, const struct diagnosis_rank *r)
{
	return json_pack("{s:o, s:i, s:o, s:b, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
			 "rank", number_or_null(r->rank >= 0, r->rank), "pid", r->tgid, "command",
			 text_or_null(r->command), "culprit", r->is_culprit, "waiting",
			 r->is_waiting, "ended", r->ended, "gpu",
			 number_or_null(r->gpu >= 0, r->gpu), "uuid", text_or_null(r->uuid),
			 "last_operation", json_of_operation(r->last_operation), "last_sequence",
			 json_of_sequence(r->last_sequence), "last_call_seconds",
			 json_of_age(d, r->last_ns), "in_flight", json_of_flight(d, &r->in_flight),
			 "process", json_of_look(r->look));
}

static json_t *json_of_evidence(const struct verdict *v)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < v->n_evidence && i < VERDICT_MAX_EVIDENCE; i++)
		json_array_append_new(array, text_or_null(v->evidence[i]));
	return array;
}

static json_t *json_of_local(const struct diagnosis_comm *c)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < c->n_local; i++)
		if (c->ranks[i].rank >= 0)
			json_array_append_new(array, json_integer(c->ranks[i].rank));
	return array;
}

static json_t *json_of_ranks(const struct diagnosis *d, const struct diagnosis_comm *c)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < c->n_local; i++)
		json_array_append_new(array, json_of_rank(d, &c->ranks[i]));
	return array;
}

/* What contract.md names, then what is more. */
static json_t *json_of_comm(const struct diagnosis *d, const struct diagnosis_comm *c)
{
	const struct diagnosis_rank *next = diagnosis_comm__next(d, c);
	const struct verdict *v = &c->verdict;
	json_t *object = json_pack(
		"{s:s, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "comm", c->label,
		"comm_name", text_or_null(c->name), "nranks",
		number_or_null(c->n_ranks > 0, c->n_ranks), "local_ranks", json_of_local(c),
		"state", verdict_state__name(v->state), "culprit_ranks",
		json_of_named(&v->culprits), "waiting_ranks", json_of_named(&v->waiting),
		"operation", json_of_operation(v->operation), "sequence",
		json_of_sequence(v->sequence), "for_seconds",
		v->since_ns ? json_real((double)diagnosis_comm__lasted_ns(d, c) / NSEC_PER_SEC)
			    : json_null(),
		"why", text_or_null(v->why), "evidence", json_of_evidence(v));

	json_object_set_new(object, "began_before",
			    v->since_ns ? json_boolean(diagnosis_comm__began_before(d, c))
					: json_null());
	json_object_set_new(object, "cause",
			    v->cause == VERDICT_NO_CAUSE
				    ? json_null()
				    : json_string(verdict_cause__name(v->cause)));
	json_object_set_new(object, "mismatch",
			    v->cause == VERDICT_DISAGREE
				    ? json_string(verdict_mismatch__name(v->mismatch))
				    : json_null());
	json_object_set_new(object, "culprits", json_integer(v->culprits.n));
	json_object_set_new(object, "now", json_string(verdict_state__name(c->now)));
	json_object_set_new(object, "ended", json_boolean(c->ended));
	json_object_set_new(
		object, "next_pid",
		number_or_null(next && !diagnosis_comm__is_fine(c), next ? next->tgid : 0));
	json_object_set_new(object, "ranks", json_of_ranks(d, c));
	return object;
}

static json_t *json_of_unseen(const struct diagnosis *d)
{
	json_t *array = json_array();

	for (size_t i = 0; i < d->n_unseen; i++)
		json_array_append_new(array,
				      json_pack("{s:i, s:o, s:s}", "pid", d->unseen[i].tgid,
						"command", text_or_null(d->unseen[i].command),
						"why", d->unseen[i].why));
	return array;
}

void diagnosis__print_json(const struct diagnosis *d, FILE *out)
{
	json_t *comms = json_array(), *root;

	for (size_t i = 0; i < d->n_comms; i++)
		json_array_append_new(comms, json_of_comm(d, &d->comms[i]));
	root = json_pack(
		"{s:s, s:o, s:o, s:f, s:i, s:o, s:I, s:I, s:o}", "schema",
		"nccl-bpftrace/diagnose/1", "host", text_or_null(d->host), "state",
		d->n_processes || d->n_comms ? json_string(verdict_state__name(diagnosis__state(d)))
					     : json_null(),
		"watched_seconds", (double)(d->now_ns - d->settled_ns) / NSEC_PER_SEC, "processes",
		d->n_processes, "communicators", comms, "lost", (json_int_t)d->lost, "refused",
		(json_int_t)d->refused, "not_judged", json_of_unseen(d));
	json_dumpf(root, out, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
	fputc('\n', out);
	json_decref(root);
}
