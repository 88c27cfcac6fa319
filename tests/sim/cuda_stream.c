/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Streams: what is put on them, waiting for them, capturing them. */
#include "cuda_private.h"

#include <time.h>

#define STOP_CHECK_NS (50 * 1000 * 1000)
#define NAP_NS (200 * 1000)

struct CUstream_st *cuda_stream(CUstream stream)
{
	struct CUstream_st *first = cuda_device()->stream;

	if (!stream)
		return first;
	return stream > first && stream < first + GPU_MAX_STREAMS && stream->used ? stream : NULL;
}

bool cuda_wait_progress(uint32_t seen)
{
	struct gpu_shared *shared = cuda_device()->shared;

	__atomic_add_fetch(&shared->waiters, 1, __ATOMIC_SEQ_CST);
	sim_futex_wait(&shared->progress, seen, STOP_CHECK_NS);
	__atomic_sub_fetch(&shared->waiters, 1, __ATOMIC_SEQ_CST);
	return !__atomic_load_n(shared->stop, __ATOMIC_RELAXED);
}

static bool has_room(const struct gpu_stream *queue, uint32_t n_ops)
{
	uint64_t commands = queue->submitted - __atomic_load_n(&queue->consumed, __ATOMIC_ACQUIRE);
	uint64_t ops = queue->ops_submitted - __atomic_load_n(&queue->ops_consumed,
							      __ATOMIC_ACQUIRE);

	return commands < GPU_STREAM_COMMANDS && ops + n_ops <= GPU_STREAM_OPS;
}

/* With the stream's lock. A full queue makes the caller wait, as CUDA's does. */
static bool wait_for_room(const struct gpu_stream *queue, uint32_t n_ops)
{
	const uint32_t *progress = &cuda_device()->shared->progress;

	for (;;) {
		uint32_t seen = __atomic_load_n(progress, __ATOMIC_SEQ_CST);

		if (has_room(queue, n_ops))
			return true;
		if (!cuda_wait_progress(seen))
			return false;
	}
}

static void put(struct gpu_stream *queue, const struct gpu_command *command,
		const struct gpu_op *ops, uint64_t launch)
{
	struct gpu_command *slot = &queue->command[queue->submitted % GPU_STREAM_COMMANDS];

	for (uint32_t i = 0; i < command->n_ops; i++)
		queue->op[(queue->ops_submitted + i) % GPU_STREAM_OPS] = ops[i];
	queue->ops_submitted += command->n_ops;
	*slot = *command;
	slot->launch = launch;
	slot->host_ns = cuda_now_ns();
	__atomic_store_n(&queue->submitted, queue->submitted + 1, __ATOMIC_RELEASE);
}

/* With the stream's lock. */
CUresult cuda_submit(struct CUstream_st *stream, const struct gpu_command *command,
		     const struct gpu_op *ops, uint64_t *ret_launch)
{
	struct cuda_device *device = cuda_device();
	uint64_t launch = 0;

	if (command->n_ops > GPU_STREAM_OPS)
		return CUDA_ERROR_INVALID_VALUE;
	if (!wait_for_room(stream->queue, command->n_ops))
		return CUDA_ERROR_DEINITIALIZED;
	if (command->kind == GPU_KERNEL)
		launch = __atomic_add_fetch(&device->rank->n_launches, 1, __ATOMIC_RELAXED);
	put(stream->queue, command, ops, launch);
	gpu_ring(device->shared);
	if (ret_launch)
		*ret_launch = launch;
	return CUDA_SUCCESS;
}

/* To the stream, or into the graph that it captures. */
static CUresult put_on(CUstream handle, const struct gpu_command *command, const struct gpu_op *ops,
		       uint64_t *ret_launch)
{
	struct CUstream_st *stream = cuda_stream(handle);
	CUresult error;

	if (!stream || !cuda_has_context())
		return stream ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&stream->lock);
	if (!stream->capture)
		error = cuda_submit(stream, command, ops, ret_launch);
	else if (stream->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		error = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else
		error = graph_add(stream->capture, command, ops);
	pthread_mutex_unlock(&stream->lock);
	return error;
}

CUDA_EXPORT CUresult cuda_sim_launch(CUstream stream, const struct gpu_kernel *kernel,
				     uint64_t *ret_launch)
{
	struct gpu_command command = { .kind = GPU_KERNEL, .n_ops = kernel->n_ops,
				       .comm_hash = kernel->comm_hash, .rank = kernel->rank,
				       .n_ranks = kernel->n_ranks, .n_nodes = kernel->n_nodes };

	*ret_launch = 0;
	return put_on(stream, &command, kernel->ops, ret_launch);
}

CUDA_EXPORT CUresult cuda_sim_compute(CUstream stream, uint64_t duration_ns)
{
	struct gpu_command command = { .kind = GPU_COMPUTE, .duration_ns = duration_ns };

	return put_on(stream, &command, NULL, NULL);
}

CUDA_EXPORT CUresult cuda_sim_host_function(CUstream handle, cuda_sim_function *function,
					    void (*release)(void *argument), void *argument)
{
	struct CUstream_st *stream = cuda_stream(handle);

	if (!stream || !stream->capture)
		return CUDA_ERROR_INVALID_VALUE;
	return graph_add_function(stream->capture, function, release, argument);
}

CUDA_EXPORT struct gpu_result cuda_sim_result(uint64_t launch)
{
	const struct gpu_result *slot = &cuda_device()->rank->result[launch % GPU_RESULTS];
	struct gpu_result result = { .launch = launch };

	if (__atomic_load_n(&slot->launch, __ATOMIC_ACQUIRE) != launch)
		return result;
	result.end_ns = __atomic_load_n(&slot->end_ns, __ATOMIC_ACQUIRE);
	result.start_ns = __atomic_load_n(&slot->start_ns, __ATOMIC_ACQUIRE);
	return result;
}

CUDA_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	CUresult error = cuda_unsafe_call();
	struct cuda_device *device = cuda_device();

	(void)flags;
	if (error || !cuda_has_context())
		return error ? error : CUDA_ERROR_INVALID_CONTEXT;
	for (int i = 1; i < GPU_MAX_STREAMS; i++) {
		bool free = false;

		if (__atomic_compare_exchange_n(&device->stream[i].used, &free, true, false,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			*stream = &device->stream[i];
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUDA_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
	if (!stream || !cuda_stream(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	__atomic_store_n(&stream->used, false, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

/* When everything on it is done; 0: not known yet. */
static uint64_t done_ns(const struct gpu_stream *queue)
{
	uint64_t submitted = __atomic_load_n(&queue->submitted, __ATOMIC_ACQUIRE);

	if (__atomic_load_n(&queue->consumed, __ATOMIC_ACQUIRE) != submitted)
		return 0;
	return queue->free_ns ? queue->free_ns : 1;
}

CUDA_EXPORT CUresult cuStreamQuery(CUstream handle)
{
	struct CUstream_st *stream = cuda_stream(handle);
	uint64_t done;
	CUresult error;

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	error = cuda_unsafe_call();
	if (error)
		return error;
	done = done_ns(stream->queue);
	return done && cuda_now_ns() >= done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUDA_EXPORT CUresult cuStreamSynchronize(CUstream handle)
{
	struct CUstream_st *stream = cuda_stream(handle);
	const uint32_t *progress = &cuda_device()->shared->progress;
	CUresult error = stream ? cuda_unsafe_call() : CUDA_ERROR_INVALID_HANDLE;

	if (!error)
		graph_wait_functions();
	while (!error) {
		uint32_t seen = __atomic_load_n(progress, __ATOMIC_SEQ_CST);
		uint64_t done = done_ns(stream->queue), now = cuda_now_ns();
		struct timespec nap = { .tv_nsec = NAP_NS };

		if (done && now >= done)
			return CUDA_SUCCESS;
		if (__atomic_load_n(cuda_device()->shared->stop, __ATOMIC_RELAXED))
			return CUDA_ERROR_DEINITIALIZED;
		if (done && done - now < NAP_NS)
			nap.tv_nsec = (long)(done - now);
		if (done)
			nanosleep(&nap, NULL);
		else
			cuda_wait_progress(seen);
	}
	return error;
}

void cuda_break_capture(struct CUstream_st *stream)
{
	stream->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
	__atomic_add_fetch(&cuda_device()->rank->captures_broken, 1, __ATOMIC_RELAXED);
}

/* Of the legacy stream nothing can be said while another captures: to ask does no harm, though. */
CUDA_EXPORT CUresult cuStreamIsCapturing(CUstream handle, int *status)
{
	struct CUstream_st *stream = cuda_stream(handle);

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!handle && __atomic_load_n(&cuda_device()->n_captures, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	*status = stream->capture ? stream->status : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
	struct cuda_device *device = cuda_device();
	CUresult error = CUDA_SUCCESS;

	if (!stream || !cuda_stream(stream))
		return stream ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&stream->lock);
	if (stream->capture) {
		error = CUDA_ERROR_ILLEGAL_STATE;
	} else {
		stream->mode = mode;
		stream->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
		stream->capture = graph_new();
		error = stream->capture ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!error) {
		__atomic_add_fetch(&device->n_captures, 1, __ATOMIC_ACQ_REL);
		if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
			__atomic_add_fetch(&device->n_global_captures, 1, __ATOMIC_ACQ_REL);
	}
	pthread_mutex_unlock(&stream->lock);
	return error;
}

CUDA_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	struct cuda_device *device = cuda_device();
	bool sound;

	*graph = NULL;
	if (!stream || !cuda_stream(stream) || !stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	pthread_mutex_lock(&stream->lock);
	sound = stream->status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
	if (sound)
		*graph = stream->capture;
	else
		graph_unref(stream->capture);
	stream->capture = NULL;
	__atomic_sub_fetch(&device->n_captures, 1, __ATOMIC_ACQ_REL);
	if (stream->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
		__atomic_sub_fetch(&device->n_global_captures, 1, __ATOMIC_ACQ_REL);
	pthread_mutex_unlock(&stream->lock);
	return sound ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}
