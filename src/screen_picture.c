/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "screen_picture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "screen_text.h"
#include "shown.h"
#include "util.h"

void picture__clear(struct picture *picture)
{
	free(picture->comms);
	free(picture->ranks);
	picture->comms = NULL;
	picture->ranks = NULL;
	picture->n_comms = picture->n_ranks = picture->n_comms_left_out = 0;
	picture->comms_room = picture->ranks_room = 0;
}

/* ---- one rank ---- */

static bool is_among(const struct verdict_named *named, int32_t rank)
{
	for (uint32_t i = 0; i < named->n && i < VERDICT_MAX_NAMED; i++)
		if (named->ranks[i] == rank)
			return true;
	return false;
}

static enum picture_role role_of(const struct picture_comm *in, int32_t rank)
{
	if (!in->judged || rank < 0)
		return ROLE_NONE;
	if (is_among(&in->verdict.culprits, rank))
		return ROLE_CULPRIT;
	return is_among(&in->verdict.waiting, rank) ? ROLE_WAITING : ROLE_NONE;
}

static enum nccl_operation last_operation(const struct comm *comm)
{
	enum nccl_operation last = NCCL_OP_MAX;
	uint64_t last_ns = 0;

	for (int i = 0; i < NCCL_OP_MAX; i++)
		if (comm->operations[i].last_ns > last_ns) {
			last_ns = comm->operations[i].last_ns;
			last = i;
		}
	return last;
}

static void rank__take_judged(struct picture_rank *rank, const struct verdict_rank *judged)
{
	if (!judged)
		return;
	rank->in_flight_known = judged->gpu_told_ns;
	rank->in_flight = judged->gpu.n_in_flight;
	rank->n_compared = judged->n_compared;
	rank->n_last = judged->n_last;
	rank->lateness_ns = judged->lateness_ns;
	if (judged->last_operation >= NCCL_OP_MAX || judged->last_ns < rank->last_ns)
		return;
	rank->last_operation = judged->last_operation;
	rank->last_sequence = judged->last_sequence;
	rank->last_ns = judged->last_ns;
}

static void rank__take(struct picture_rank *rank, const struct picture_comm *in,
		       const struct picture_source *source, const struct comm *comm)
{
	const struct process *process =
		processes__find(tracer__processes(source->tracer), comm->key.tgid);
	const struct gpu *gpu = tracer__gpu_of(source->tracer, comm);
	struct verdict_member member = {
		.hash = comm->key.hash,
		.rank = comm->rank,
		.n_ranks = comm->n_ranks,
		.tgid = comm->key.tgid,
	};

	*rank = (struct picture_rank){
		.rank = comm->rank,
		.tgid = comm->key.tgid,
		.gpu = gpu ? (int32_t)gpu->index : -1,
		.role = role_of(in, comm->rank),
		.last_operation = last_operation(comm),
		.last_sequence = VERDICT_NO_SEQUENCE,
		.last_ns = comm__last_ns(comm),
		.rate = rates__of(source->rates, comm),
	};
	if (process && process->has_info)
		memcpy(rank->command, process->info.command, sizeof(rank->command));
	rank->command[sizeof(rank->command) - 1] = 0;
	if (rank->last_operation < NCCL_OP_MAX)
		comm__sequence(comm, rank->last_operation, &rank->last_sequence);
	if (member.hash)
		rank__take_judged(rank, verdicts__rank(source->verdicts, &member));
}

/* ---- one communicator ---- */

static struct rate faster(struct rate a, struct rate b)
{
	return (struct rate){
		.operations = a.operations > b.operations ? a.operations : b.operations,
		.bytes = a.bytes > b.bytes ? a.bytes : b.bytes,
	};
}

static struct picture_operation *picture_comm__add_operation(struct picture_comm *into,
							     enum nccl_operation operation)
{
	for (unsigned int i = 0; i < into->n_operations; i++)
		if (into->operations[i].operation == operation)
			return &into->operations[i];
	into->operations[into->n_operations] = (struct picture_operation){.operation = operation};
	return &into->operations[into->n_operations++];
}

static void take_operations(struct picture_comm *into, const struct picture_source *source,
			    const struct comm *comm)
{
	for (int i = 0; i < NCCL_OP_MAX; i++) {
		uint64_t calls =
			comm__ran(comm, i) + comm->operations[i].tally[COMM_CAPTURED].calls;
		struct picture_operation *op;

		if (!calls)
			continue;
		op = picture_comm__add_operation(into, i);
		op->calls = calls > op->calls ? calls : op->calls;
		op->rate = faster(op->rate, rates__of_operation(source->rates, comm, i));
		comm__last_bytes(comm, i, &op->last_bytes);
	}
}

static void take_timed(struct picture_comm *into, const struct screen_timed *timed)
{
	uint64_t last_ns = 0;

	for (unsigned int i = 0; into->hash && i < into->n_operations; i++) {
		struct picture_operation *op = &into->operations[i];

		op->n_sizes = screen_timed__sizes(timed, into->hash, op->operation, op->sizes);
		for (unsigned int k = 0; k < op->n_sizes; k++)
			if (op->sizes[k].last_ns >= last_ns) {
				last_ns = op->sizes[k].last_ns;
				into->bus_bytes = op->sizes[k].bus_bytes;
			}
	}
}

static void take_verdict(struct picture_comm *into, struct verdicts *verdicts)
{
	const struct verdict_comm *judged =
		into->hash ? verdicts__find(verdicts, into->hash) : NULL;

	if (!judged)
		return;
	into->judged = true;
	into->verdict = *verdict_comm__now(judged);
	into->n_events = verdict_comm__events(judged, into->events, VERDICT_MAX_EVENTS);
}

static void take_member(struct picture *picture, struct picture_comm *into,
			const struct picture_source *source, const struct comm *comm)
{
	const struct process *process =
		processes__find(tracer__processes(source->tracer), comm->key.tgid);
	unsigned int index = into->first_rank + into->n_local++;
	struct picture_rank *rank = &picture->ranks[index];

	picture->n_ranks++;
	rank__take(rank, into, source, comm);
	if (process && process->has_info && !into->job[0])
		strcpy(into->job, process->info.job.job_id);
	if (!into->name[0])
		memcpy(into->name, comm->name, sizeof(into->name));
	into->name[sizeof(into->name) - 1] = 0;
	into->n_ranks = comm->n_ranks > into->n_ranks ? comm->n_ranks : into->n_ranks;
	into->n_nodes = comm->n_nodes > into->n_nodes ? comm->n_nodes : into->n_nodes;
	into->rate = faster(into->rate, rank->rate);
	if (!into->known_ns || comm->known_ns < into->known_ns)
		into->known_ns = comm->known_ns;
	if (into->n_local == 1 || rank->last_ns > into->last_ns) {
		into->last_ns = rank->last_ns;
		into->latest = index;
	}
	take_operations(into, source, comm);
}

/* ---- all of them ---- */

/* Ranks of one communicator stand together; what has no hash is alone. */
static int compare_members(const void *left, const void *right)
{
	const struct comm *a = *(struct comm *const *)left, *b = *(struct comm *const *)right;

	if (a->key.hash != b->key.hash)
		return a->key.hash < b->key.hash ? -1 : 1;
	if (a->key.hash && a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	if (a->key.tgid != b->key.tgid)
		return a->key.tgid < b->key.tgid ? -1 : 1;
	return strcmp(a->label, b->label);
}

static bool is_same(const struct comm *a, const struct comm *b)
{
	return a->key.hash && a->key.hash == b->key.hash;
}

/* Those that live, sorted; NULL: no memory. */
static struct comm **collect(struct tracer *tracer, unsigned int *ret_n)
{
	struct comms *comms = tracer__comms(tracer);
	struct comm **all = calloc(comms__count_of(comms) + 1, sizeof(*all));
	unsigned int n = 0;

	if (!all)
		return NULL;
	for (struct comm *comm = comms__first(comms); comm; comm = comm->hh.next) {
		struct processes *processes = tracer__processes(tracer);

		if (!comm->dead_ns && process__is_shown(processes__find(processes, comm->key.tgid)))
			all[n++] = comm;
	}
	qsort(all, n, sizeof(*all), compare_members);
	*ret_n = n;
	return all;
}

static int reserve(void **array, unsigned int *room, unsigned int needed, size_t size)
{
	void *larger;

	if (needed <= *room)
		return 0;
	larger = realloc(*array, needed * size);
	if (!larger)
		return -ENOMEM;
	*array = larger;
	*room = needed;
	return 0;
}

static int picture__reserve(struct picture *picture, struct comm **all, unsigned int n)
{
	unsigned int n_comms = 0;

	for (unsigned int i = 0; i < n; i++)
		n_comms += !i || !is_same(all[i - 1], all[i]);
	if (n_comms > PICTURE_MAX_COMMS)
		n_comms = PICTURE_MAX_COMMS;
	if (n > PICTURE_MAX_RANKS)
		n = PICTURE_MAX_RANKS;
	return reserve((void **)&picture->comms, &picture->comms_room, n_comms,
		       sizeof(*picture->comms))
		       ?: reserve((void **)&picture->ranks, &picture->ranks_room, n,
				  sizeof(*picture->ranks));
}

/* A communicator and its n ranks, if there is room for all of it. */
static void picture__add(struct picture *picture, const struct picture_source *source,
			 struct comm **members, unsigned int n)
{
	struct picture_comm *into;

	if (picture->n_comms >= PICTURE_MAX_COMMS || picture->n_ranks + n > PICTURE_MAX_RANKS) {
		picture->n_comms_left_out++;
		return;
	}
	into = &picture->comms[picture->n_comms++];
	*into = (struct picture_comm){
		.hash = members[0]->key.hash,
		.first_rank = picture->n_ranks,
	};
	memcpy(into->label, members[0]->label, sizeof(into->label));
	take_verdict(into, source->verdicts);
	for (unsigned int i = 0; i < n; i++)
		take_member(picture, into, source, members[i]);
	take_timed(into, source->timed);
}

int picture__take(struct picture *picture, const struct picture_source *source)
{
	_cleanup_free_ struct comm **all = NULL;
	unsigned int n = 0;

	picture->n_comms = picture->n_ranks = picture->n_comms_left_out = 0;
	all = collect(source->tracer, &n);
	if (!all || picture__reserve(picture, all, n))
		return -ENOMEM;
	for (unsigned int i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && is_same(all[i], all[end]);)
			end++;
		picture__add(picture, source, all + i, end - i);
	}
	return 0;
}

const char *picture_comm__operation(const struct picture *picture, const struct picture_comm *comm,
				    char *buf, size_t size)
{
	const struct picture_rank *latest = &picture->ranks[comm->latest];
	enum nccl_operation operation = latest->last_operation;
	uint64_t sequence = latest->last_sequence;

	if (comm->judged && comm->verdict.operation < NCCL_OP_MAX) {
		operation = comm->verdict.operation;
		sequence = comm->verdict.sequence;
	}
	if (operation >= NCCL_OP_MAX)
		snprintf(buf, size, "-");
	else if (sequence == VERDICT_NO_SEQUENCE)
		snprintf(buf, size, "%s", nccl_operation__name(operation));
	else
		snprintf(buf, size, "%s #%" PRIu64, nccl_operation__name(operation), sequence);
	return buf;
}
