/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* CUDA graphs: what each capture holds, times how often it was launched. */
#include <stdlib.h>
#include <string.h>

#include "tracer_private.h"

struct capture {
	uint64_t id;
	struct nb_capture value;
	bool is_past; /* no graph, and nothing made of one, is left */
	UT_hash_handle hh;
};

/* One reading of all of it. */
struct round {
	struct tracer *tracer;
	struct capture *all;
	struct nb_captured_key *past; /* to be deleted */
	size_t n_past, room;
};

static void on_capture(void *ctx, uint64_t id, const struct nb_capture *value)
{
	struct round *round = ctx;
	struct process *process;
	struct capture *capture;

	if (id == NB_CAPTURE_OF_STRANGER(value->tgid)) {
		process = processes__find(round->tracer->processes, value->tgid);
		if (process)
			process->unresolved = value->launches;
		return;
	}
	process = processes__find(round->tracer->processes, value->tgid);
	if (process)
		process->captures = true;
	capture = calloc(1, sizeof(*capture));
	if (!capture)
		return; /* as if it had not been launched, until the next reading */
	*capture = (struct capture){.id = id, .value = *value, .is_past = !value->refs};
	HASH_ADD(hh, round->all, id, sizeof(capture->id), capture);
}

static void round__doom(struct round *round, const struct nb_captured_key *key)
{
	if (round->n_past == round->room) {
		size_t room = round->room ? round->room * 2 : 64;
		struct nb_captured_key *past = realloc(round->past, room * sizeof(*past));

		if (!past)
			return;
		round->past = past;
		round->room = room;
	}
	round->past[round->n_past++] = *key;
}

static void on_captured(void *ctx, const struct nb_captured_key *key, const struct nb_tally *tally)
{
	struct round *round = ctx;
	struct capture *capture;

	HASH_FIND(hh, round->all, &key->capture, sizeof(key->capture), capture);
	if (!capture)
		return; /* made since the captures were read: not launched then */
	comms__replay(round->tracer->comms, &key->key, tally, &capture->value, capture->is_past);
	if (capture->is_past)
		round__doom(round, key);
}

/* Told for the last time, so that they must not be found again. */
static void round__forget_past(struct round *round)
{
	struct probe *probe = round->tracer->probe;
	struct capture *capture, *next;

	for (size_t i = 0; i < round->n_past; i++)
		probe__drop_captured(probe, &round->past[i]);
	HASH_ITER(hh, round->all, capture, next)
	{
		if (capture->is_past)
			probe__drop_capture(probe, capture->id, capture->value.tgid);
		HASH_DEL(round->all, capture);
		free(capture);
	}
	free(round->past);
}

int tracer__read_graphs(struct tracer *tracer)
{
	struct round round = {.tracer = tracer};
	int err = probe__each_capture(tracer->probe, on_capture, &round);

	err = err ?: probe__each_captured(tracer->probe, on_captured, &round);
	round__forget_past(&round);
	return err;
}

void tracer__forget_graphs(struct tracer *tracer, const struct process *process)
{
	tracer->unresolved_past += process->unresolved;
	probe__forget_graphs(tracer->probe, process->tgid);
}

uint64_t tracer__graphs_unresolved(struct tracer *tracer)
{
	uint64_t n = tracer->unresolved_past;

	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next)
		n += p->unresolved;
	return n;
}
