/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Operations and their channels. NCCL tells of an operation once, with the number of its channels;
 * each of these tells when the GPU began and when it ended. The first and the last of all make the
 * operation's GPU time; of fewer, none.
 */
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "foreign_private.h"
#include "util.h"

#define TASK_NS	  (60 * NSEC_PER_SEC) /* after its last sign of life */
#define UNSURE_NS (2 * NSEC_PER_SEC)  /* a plugin that wants channels has had some by then */

/* ---- what a start says ---- */

/* NCCL >= 2.28 leaves the number of a send's channels out of a descriptor of v4: it is garbage. */
static uint32_t task__channels(const struct followed *f, const struct nb_foreign_record *record,
			       const struct abi_event *event)
{
	bool is_told = record->type == ABI_COLL ||
		       (record->type == ABI_P2P && (record->abi > 4 || f->nccl_version < 22800));

	if (!is_told || !event->channels || event->channels > TASK_CHANNELS)
		return NBP_UNKNOWN;
	return event->channels;
}

static void task__describe(struct followed *f, struct foreign_task *task,
			   const struct nb_foreign_record *record, const struct abi_event *event)
{
	struct nbp_operation *o = &task->operation.operation;

	task->n_expected = task__channels(f, record, event);
	task->operation =
		foreign_comm__record(task->comm, NBP_KIND_OPERATION, record->tid, record->time_ns);
	*o = (struct nbp_operation){
		.sequence = event->sequence,
		.count = event->count,
		.root = event->root,
		.n_channels = task->n_expected,
		.function = event->function,
		.datatype = event->datatype,
		.redop = NBP_UNKNOWN_U8,
		.algorithm = event->algorithm,
		.protocol = event->protocol,
	};
}

/* Whose it is may have been learnt since it began. Numbered now: nobody must miss one that waits.
 */
static void task__tell(struct followed *f, struct foreign_task *task)
{
	const struct foreign_identity *identity = &task->comm->identity;

	if (task->is_told)
		return;
	task->operation.comm_hash = identity->hash;
	task->operation.n_ranks = identity->n_ranks;
	task->operation.operation.operation = ++task->comm->n_operations;
	task->is_told = true;
	followed__send(f, &task->operation);
}

/* ---- tables ---- */

static struct foreign_task *followed__task(struct followed *f, uint64_t handle)
{
	struct foreign_task *task;

	HASH_FIND(hh, f->by_handle, &handle, sizeof(handle), task);
	return task;
}

static void channel__free(struct followed *f, struct foreign_channel *channel)
{
	DL_DELETE(channel->task->channels, channel);
	HASH_DEL(f->channels, channel);
	free(channel);
}

/* Takes it out of those of its handle: the newest is in the table, the others behind it. */
static void followed__unlink(struct followed *f, struct foreign_task *task)
{
	struct foreign_task *newer = followed__task(f, task->handle);

	if (newer != task) {
		while (newer->before != task)
			newer = newer->before;
		newer->before = task->before;
		return;
	}
	HASH_DEL(f->by_handle, task);
	if (task->before)
		HASH_ADD(hh, f->by_handle, handle, sizeof(task->handle), task->before);
}

static void task__free(struct followed *f, struct foreign_task *task)
{
	while (task->channels)
		channel__free(f, task->channels);
	followed__unlink(f, task);
	DL_DELETE(f->tasks, task);
	f->n_tasks--;
	free(task);
}

/* All that will come of it has come: its time, whole or not, and its end. */
static void task__close(struct followed *f, struct foreign_task *task)
{
	struct nbp_record record = foreign_comm__record(task->comm, NBP_KIND_TIMER,
							task->operation.tid, task->ends_ns);

	task__tell(f, task);
	record.timer = (struct nbp_timer){
		.operation = task->operation.operation.operation,
		.sequence = task->operation.operation.sequence,
		.gpu_first_ns = task->first_ns,
		.gpu_last_ns = task->last_ns,
		.seen_ns = task->seen_ns,
		.n_channels = task->n_stopped,
		.n_expected = task->n_expected,
		.function = task->operation.operation.function,
	};
	if (task->n_started && task->is_timed)
		followed__send(f, &record);
	task__free(f, task);
}

void followed__close_tasks(struct followed *f, const struct foreign_comm *comm)
{
	struct foreign_task *task, *next;

	DL_FOREACH_SAFE(f->tasks, task, next)
	{
		if (!comm || task->comm == comm)
			task__close(f, task);
	}
}

static void comm__tell_tasks(struct followed *f, const struct foreign_comm *comm)
{
	struct foreign_task *task;

	DL_FOREACH(f->tasks, task)
	{
		if (task->comm == comm)
			task__tell(f, task);
	}
}

/* ---- events ---- */

/*
 * The tasks of a handle, the newest first: closes what it surely means no more at that time. A
 * plugin gives a handle anew only when it is done with it, so they are in the order in which
 * startEvent returned.
 */
static struct foreign_task *followed__tasks(struct followed *f, uint64_t handle, uint64_t time_ns)
{
	struct foreign_task *newest = followed__task(f, handle), *task = newest;

	while (task && task->returned_ns > time_ns)
		task = task->before;
	while (task && task->before)
		task__close(f, task->before);
	return newest;
}

static void followed__link(struct followed *f, struct foreign_task *task)
{
	struct foreign_task *newer = followed__task(f, task->handle), *before;

	if (newer && newer->returned_ns > task->returned_ns) {
		while (newer->before && newer->before->returned_ns > task->returned_ns)
			newer = newer->before;
		task->before = newer->before;
		newer->before = task;
		return;
	}
	HASH_REPLACE(hh, f->by_handle, handle, sizeof(task->handle), task, before);
	task->before = before;
}

static struct foreign_task *followed__add_task(struct followed *f, const struct foreign_task *fresh,
					       const struct nb_foreign_record *record)
{
	struct foreign_task *task;

	if (f->n_tasks == FOREIGN_MAX_TASKS)
		task__close(f, f->tasks); /* the oldest makes room */
	task = malloc(sizeof(*task));
	if (!task)
		return NULL;
	*task = *fresh;
	task->handle = record->handle;
	task->lost = record->lost;
	task->ends_ns = record->time_ns;
	task->returned_ns = record->timer_ns;
	followed__link(f, task);
	DL_APPEND(f->tasks, task);
	f->n_tasks++;
	return task;
}

/*
 * Soon after a loss nothing is timed: where the start of an operation was lost, one that has got
 * its handle since could be given its channels.
 */
static bool task__is_timed(const struct followed *f, const struct foreign_task *task)
{
	return task->started_ns > f->loss_ns + LOSS_NS && task->n_expected != NBP_UNKNOWN;
}

void followed__start(struct followed *f, const struct nb_foreign_record *record)
{
	struct foreign_task *task, fresh = {.started_ns = record->time_ns};
	struct abi_event event;

	followed__tasks(f, record->handle, record->time_ns);
	if (!foreign_record__decode(record, &event)) {
		followed__lose(f, FOREIGN_LOST_BAD_RECORD);
		return;
	}
	fresh.comm = followed__comm(f, record, event.hash, event.function);
	if (!fresh.comm) {
		followed__lose(f, FOREIGN_LOST_NO_ROOM);
		return;
	}
	task__describe(f, &fresh, record, &event);
	fresh.number = ++fresh.comm->n_started;
	fresh.is_timed = task__is_timed(f, &fresh);
	if (fresh.comm->timers != TIMERS_UNKNOWN || !fresh.is_timed)
		task__tell(f, &fresh);
	if (!record->handle || record->abi < 4 || fresh.comm->timers == TIMERS_NONE) {
		task__tell(f, &fresh);
		return;
	}
	task = followed__add_task(f, &fresh, record);
	if (!task) {
		task__tell(f, &fresh);
		followed__lose(f, FOREIGN_LOST_NO_ROOM);
	}
}

static bool task__lacks(const struct foreign_task *task, const struct nb_foreign_record *record)
{
	return record->context == task->comm->context && record->channel < TASK_CHANNELS &&
	       !(task->started >> record->channel & 1);
}

/*
 * The operation that this channel is one of; NULL: not known. While a thread was asking for its
 * handle that could still mean the one before, which then is not done: the oldest that lacks it.
 */
static struct foreign_task *followed__parent(struct followed *f,
					     const struct nb_foreign_record *record)
{
	struct foreign_task *task = followed__tasks(f, record->parent, record->time_ns), *before;
	struct foreign_task *found = NULL;

	for (; task; task = before) {
		before = task->before;
		if (record->time_ns < task->started_ns)
			continue;
		if (task->lost != record->lost)
			task__close(f, task);
		else if (task__lacks(task, record))
			found = task;
	}
	return found;
}

static void comm__has_timers(struct followed *f, struct foreign_comm *comm, uint64_t time_ns)
{
	if (comm->timers == TIMERS_COME)
		return;
	comm->timers = TIMERS_COME;
	foreign_comm__tell(f, comm, time_ns);
	comm__tell_tasks(f, comm);
}

void followed__channel(struct followed *f, const struct nb_foreign_record *record)
{
	struct channel_key key = {record->handle, record->tid};
	struct foreign_channel *channel;
	struct foreign_comm *comm;
	struct foreign_task *task;

	HASH_FIND(hh, f->channels, &key, sizeof(key), channel);
	if (channel) /* never stopped, and its handle is in use again */
		channel__free(f, channel);
	if (!record->parent) /* the plugin gave no handle for the operation */
		return;
	comm = followed__find_comm(f, record->context);
	if (comm)
		comm__has_timers(f, comm, record->time_ns);
	task = followed__parent(f, record);
	if (!task) { /* soon after we came, one that began before */
		if (record->time_ns > f->since_ns + TASK_NS)
			followed__lose(f, FOREIGN_LOST_ORPHAN);
		return;
	}
	if (HASH_COUNT(f->channels) == FOREIGN_MAX_CHANNELS ||
	    !(channel = calloc(1, sizeof(*channel)))) {
		followed__lose(f, FOREIGN_LOST_NO_ROOM);
		return;
	}
	channel->key = key;
	channel->task = task;
	HASH_ADD(hh, f->channels, key, sizeof(channel->key), channel);
	DL_APPEND(task->channels, channel);
	if (!task->n_started++ || record->timer_ns < task->first_ns)
		task->first_ns = record->timer_ns;
	task->started |= 1ULL << record->channel;
	task->ends_ns = record->time_ns;
}

void followed__channel_stop(struct followed *f, const struct nb_foreign_record *record)
{
	struct channel_key key = {record->handle, record->tid};
	struct foreign_channel *channel;
	struct foreign_task *task;

	HASH_FIND(hh, f->channels, &key, sizeof(key), channel);
	if (!channel) /* its start was an orphan, too, or before our time */
		return;
	task = channel->task;
	channel__free(f, channel);
	if (task->lost != record->lost) {
		task__close(f, task);
		return;
	}
	task->n_stopped++;
	if (record->timer_ns > task->last_ns)
		task->last_ns = record->timer_ns;
	task->ends_ns = task->seen_ns = record->time_ns;
	if (task->n_stopped < task->n_expected)
		return;
	if (task->is_timed && foreign_comm__is_late(task->comm, task)) {
		task->is_timed = false;
		followed__lose(f, FOREIGN_LOST_LATE);
	}
	task__close(f, task);
}

static bool is_older(uint64_t time_ns, uint64_t age_ns, uint64_t now_ns)
{
	return now_ns > time_ns && now_ns - time_ns > age_ns;
}

void followed__settle_tasks(struct followed *f, uint64_t now_ns)
{
	struct foreign_task *task, *next;

	DL_FOREACH_SAFE(f->tasks, task, next)
	{
		if (!is_older(task->returned_ns, UNSURE_NS, now_ns))
			return;
		if (task->comm->timers == TIMERS_UNKNOWN) {
			task->comm->timers = TIMERS_NONE;
			comm__tell_tasks(f, task->comm); /* before those that come now */
		}
		if (task->comm->timers == TIMERS_NONE || is_older(task->ends_ns, TASK_NS, now_ns))
			task__close(f, task);
	}
}
