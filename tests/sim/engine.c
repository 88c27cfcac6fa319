/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "engine.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rendezvous.h"

#define IDLE_NS (100 * 1000 * 1000)

/* The kernel at the head of a stream. */
struct head {
	bool begun, posted;
	uint64_t start_ns;
	struct meeting_set meetings;
};

struct engine {
	pthread_t thread;
	struct gpu_shared *shared;
	struct gpu_model model;
	const pid_t *pids;
	int n_ranks;
	FILE *truth;
	uint32_t ending;
	struct rendezvous *rendezvous;
	struct gpu_op *ops; /* of the kernel that is looked at */
	struct head head[];
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static double factor(const uint32_t *permille)
{
	uint32_t value = __atomic_load_n(permille, __ATOMIC_RELAXED);

	return value ? value / 1000.0 : 1;
}

static const struct gpu_op *ops_of(struct engine *engine, const struct gpu_stream *stream,
				   const struct gpu_command *command)
{
	for (uint32_t i = 0; i < command->n_ops; i++)
		engine->ops[i] = stream->op[(stream->ops_consumed + i) % GPU_STREAM_OPS];
	return engine->ops;
}

static void consume(struct gpu_stream *stream, const struct gpu_command *command, uint64_t free_ns)
{
	stream->free_ns = free_ns;
	__atomic_store_n(&stream->ops_consumed, stream->ops_consumed + command->n_ops,
			 __ATOMIC_RELEASE);
	__atomic_store_n(&stream->consumed, stream->consumed + 1, __ATOMIC_RELEASE);
}

/* One of an earlier recording of the event comes too late to matter. */
static void reach_event(struct gpu_rank *rank, const struct gpu_command *command, uint64_t at_ns)
{
	struct gpu_event *event = &rank->event[command->event];

	if (command->record <= event->completed)
		return;
	event->done_ns = at_ns;
	__atomic_store_n(&event->completed, command->record, __ATOMIC_RELEASE);
}

static void tell_start(struct gpu_rank *rank, uint64_t launch, uint64_t start_ns)
{
	struct gpu_result *result = &rank->result[launch % GPU_RESULTS];

	__atomic_store_n(&result->launch, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&result->end_ns, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&result->start_ns, start_ns, __ATOMIC_RELEASE);
	__atomic_store_n(&result->launch, launch, __ATOMIC_RELEASE);
}

/* A GPU told to hang keeps its next kernel from taking part, until it is told to be well. */
static bool post(struct engine *engine, int r, struct head *head, const struct gpu_stream *stream,
		 const struct gpu_command *command)
{
	struct gpu_rank *rank = &engine->shared->rank[r];
	struct rank_speed speed = { factor(&rank->slow_permille), factor(&rank->link_permille) };

	if (__atomic_load_n(&rank->hang, __ATOMIC_RELAXED)) {
		head->start_ns = later(head->start_ns, now_ns());
		return false;
	}
	rendezvous_post(engine->rendezvous, command, ops_of(engine, stream, command),
			head->start_ns, speed, &head->meetings);
	head->posted = true;
	return true;
}

static bool kernel_advance(struct engine *engine, int r, struct head *head,
			   struct gpu_stream *stream, const struct gpu_command *command)
{
	struct gpu_rank *rank = &engine->shared->rank[r];
	struct kernel_times times = { .launch = command->launch, .host_ns = command->host_ns,
				      .replay = command->replay };
	bool moved = !head->begun;

	if (!head->begun) {
		head->begun = true;
		head->start_ns = later(stream->free_ns, command->host_ns);
		tell_start(rank, command->launch, head->start_ns);
	}
	if (!head->posted && post(engine, r, head, stream, command))
		moved = true;
	if (!head->posted ||
	    !rendezvous_end(engine->rendezvous, &head->meetings, command,
			    ops_of(engine, stream, command), &engine->model, &times.end_ns))
		return moved;
	times.start_ns = rank->result[command->launch % GPU_RESULTS].start_ns;
	if (engine->truth)
		truth_print(engine->truth, engine->pids[r], command,
			    ops_of(engine, stream, command), &times);
	__atomic_store_n(&rank->result[command->launch % GPU_RESULTS].end_ns, times.end_ns,
			 __ATOMIC_RELEASE);
	consume(stream, command, times.end_ns);
	*head = (struct head){ 0 };
	return true;
}

/* False: it goes on. */
static bool compute_end(const struct gpu_rank *rank, const struct gpu_command *command,
			uint64_t start_ns, uint64_t *ret_ns)
{
	uint64_t well_ns = __atomic_load_n(&rank->well_ns, __ATOMIC_RELAXED);
	double ns = (double)command->duration_ns * factor(&rank->slow_permille);

	if (command->duration_ns != GPU_FOREVER)
		*ret_ns = start_ns + (uint64_t)ns;
	else if (well_ns > command->host_ns)
		*ret_ns = later(start_ns, well_ns);
	else
		return false;
	return true;
}

/* True: something happened. */
static bool stream_advance(struct engine *engine, int r, int s)
{
	struct gpu_rank *rank = &engine->shared->rank[r];
	struct gpu_stream *stream = &rank->stream[s];
	const struct gpu_command *command = &stream->command[stream->consumed %
							     GPU_STREAM_COMMANDS];
	uint64_t at_ns;

	if (__atomic_load_n(&stream->submitted, __ATOMIC_ACQUIRE) == stream->consumed)
		return false;
	if (command->kind == GPU_KERNEL)
		return kernel_advance(engine, r, &engine->head[r * GPU_MAX_STREAMS + s], stream,
				      command);
	at_ns = later(stream->free_ns, command->host_ns);
	if (command->kind == GPU_EVENT)
		reach_event(rank, command, at_ns);
	else if (!compute_end(rank, command, at_ns, &at_ns))
		return false;
	consume(stream, command, at_ns);
	return true;
}

/* What a dead process had on its GPU is gone; kernels that wait for it wait on. */
static bool rank_advance(struct engine *engine, int r)
{
	struct gpu_rank *rank = &engine->shared->rank[r];
	uint32_t n = __atomic_load_n(&rank->n_streams, __ATOMIC_ACQUIRE);
	bool moved = false;

	if (__atomic_load_n(&rank->gone, __ATOMIC_RELAXED))
		return false;
	for (uint32_t s = 0; s < n; s++)
		while (stream_advance(engine, r, (int)s))
			moved = true;
	return moved;
}

static bool advance_all(struct engine *engine)
{
	bool any = false, moved;

	do {
		moved = false;
		for (int r = 0; r < engine->n_ranks; r++)
			moved |= rank_advance(engine, r);
		any |= moved;
	} while (moved);
	return any;
}

static void wake_waiters(struct gpu_shared *shared)
{
	__atomic_add_fetch(&shared->progress, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&shared->waiters, __ATOMIC_SEQ_CST))
		sim_futex_wake(&shared->progress);
}

static void *engine_main(void *arg)
{
	struct engine *engine = arg;
	struct gpu_shared *shared = engine->shared;

	pthread_setname_np(pthread_self(), "nccl-sim-gpus");
	while (!__atomic_load_n(&engine->ending, __ATOMIC_ACQUIRE)) {
		uint32_t seen = __atomic_load_n(&shared->doorbell, __ATOMIC_SEQ_CST);

		if (advance_all(engine))
			wake_waiters(shared);
		__atomic_store_n(&shared->sleeping, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&shared->doorbell, __ATOMIC_SEQ_CST) == seen)
			sim_futex_wait(&shared->doorbell, seen, IDLE_NS);
		__atomic_store_n(&shared->sleeping, 0, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static void engine_free(struct engine *engine)
{
	for (int i = 0; i < engine->n_ranks * GPU_MAX_STREAMS; i++)
		free(engine->head[i].meetings.meeting);
	rendezvous_free(engine->rendezvous);
	free(engine->ops);
	free(engine);
}

int engine_start(struct engine **ret, struct gpu_shared *shared, const struct gpu_model *model,
		 const pid_t *pids, int n_ranks, FILE *truth)
{
	struct engine *engine = calloc(1, sizeof(*engine) + (size_t)n_ranks * GPU_MAX_STREAMS *
							     sizeof(engine->head[0]));
	int err;

	if (!engine)
		return -ENOMEM;
	engine->shared = shared;
	engine->model = *model;
	engine->pids = pids;
	engine->n_ranks = n_ranks;
	engine->truth = truth;
	engine->rendezvous = rendezvous_new();
	engine->ops = calloc(GPU_STREAM_OPS, sizeof(*engine->ops));
	err = engine->rendezvous && engine->ops ? 0 : -ENOMEM;
	if (!err)
		err = -pthread_create(&engine->thread, NULL, engine_main, engine);
	if (err) {
		engine_free(engine);
		return err;
	}
	*ret = engine;
	return 0;
}

void engine_stop(struct engine *engine)
{
	if (!engine)
		return;
	__atomic_store_n(&engine->ending, 1, __ATOMIC_RELEASE);
	gpu_ring(engine->shared);
	pthread_join(engine->thread, NULL);
	engine_free(engine);
}
