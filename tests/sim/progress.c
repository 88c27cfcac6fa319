/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NCCL's progress thread, as far as it serves the kernel timer: one KernelCh event for each channel
 * of a task, started when the GPU is seen to have reached it, stopped when it has left it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "gpu_use.h"
#include "profiler.h"

#define POLL_NS (50 * 1000)
#define WHOLE UINT64_C(1000000000) /* shares are billionths of the kernel */
#define CHANNEL_STAGGER_NS 16
#define FORGET_POLLS 20000 /* a second: a kernel that hangs does not keep its communicator */
#define MAX_CHANNELS 64

struct work {
	struct work *next;
	const struct sim_comm *comm;
	void *task; /* the plugin's handle */
	uint64_t launch;
	uint64_t share[2];
	int n_channels;
	bool started;
	void *handle[MAX_CHANNELS];
};

static struct {
	pthread_mutex_t lock; /* held around all callbacks: nobody forgets a communicator in them */
	pthread_cond_t more;
	struct work *first;
	bool running;
	int device;
} progress = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER };

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Neighbouring channels come and go a little apart, inside the task's own time. */
static uint64_t stagger(const struct work *work, uint64_t length_ns)
{
	uint64_t most = length_ns / (2 * (uint64_t)work->n_channels);

	return most < CHANNEL_STAGGER_NS ? most : CHANNEL_STAGGER_NS;
}

static void start_channels(struct work *work, uint64_t start_ns, uint64_t step_ns)
{
	for (int i = 0; i < work->n_channels; i++) {
		struct sim_event event = { .type = ABI_KERNEL_CH, .parent = work->task,
					   .channel = (uint8_t)i };

		event.timer = sim_gpu_clock(start_ns + (uint64_t)i * step_ns);
		profiler_start(work->comm, &work->handle[i], &event);
	}
	work->started = true;
}

static void stop_channels(struct work *work, uint64_t end_ns, uint64_t step_ns)
{
	for (int i = 0; i < work->n_channels; i++) {
		uint64_t left = (uint64_t)(work->n_channels - 1 - i) * step_ns;

		profiler_record(work->handle[i], STATE_KERNEL_CH_STOP,
				sim_gpu_clock(end_ns - left));
		profiler_stop(work->handle[i]);
	}
}

/* True: it is over. What follows another task in its kernel has a start only with the end. */
static bool work_advance(struct work *work)
{
	uint64_t now = now_ns(), kernel[2], start, end, step;

	if (!sim_gpu_result(work->launch, kernel) || !kernel[0] || now < kernel[0])
		return false;
	if (!kernel[1]) {
		if (!work->started && !work->share[0])
			start_channels(work, kernel[0], 0);
		return false;
	}
	start = kernel[0] + (kernel[1] - kernel[0]) * work->share[0] / WHOLE;
	end = work->share[1] == WHOLE ? kernel[1] :
	      kernel[0] + (kernel[1] - kernel[0]) * work->share[1] / WHOLE;
	step = stagger(work, end - start);
	if (!work->started && now >= start)
		start_channels(work, start, step);
	if (!work->started || now < end)
		return false;
	stop_channels(work, end, step);
	return true;
}

static void poll_all(void)
{
	for (struct work **at = &progress.first; *at;) {
		struct work *work = *at;

		if (!work_advance(work)) {
			at = &work->next;
			continue;
		}
		*at = work->next;
		free(work);
	}
}

static void *progress_main(void *unused)
{
	struct timespec pause = { .tv_nsec = POLL_NS };
	char name[16];

	(void)unused;
	snprintf(name, sizeof(name), "NCCL Progress%2d", progress.device % 100);
	pthread_setname_np(pthread_self(), name);
	pthread_mutex_lock(&progress.lock);
	for (;;) {
		while (!progress.first)
			pthread_cond_wait(&progress.more, &progress.lock);
		poll_all();
		pthread_mutex_unlock(&progress.lock);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&progress.lock);
	}
	return NULL;
}

static bool progress_start(int device)
{
	pthread_t id;

	progress.device = device;
	if (!progress.running && !pthread_create(&id, NULL, progress_main, NULL)) {
		pthread_detach(id);
		progress.running = true;
	}
	return progress.running;
}

void progress_post(const struct plan *plan, size_t task, uint64_t launch)
{
	struct work *work = calloc(1, sizeof(*work)), **at = &progress.first;

	if (!work)
		return;
	work->comm = plan->comm;
	work->task = plan->task[task]->handle;
	work->launch = launch;
	work->n_channels = plan->task[task]->n_channels;
	sim_gpu_share(plan, task, WHOLE, work->share);
	pthread_mutex_lock(&progress.lock);
	while (*at)
		at = &(*at)->next;
	if (progress_start(plan->comm->nccl.cudaDev))
		*at = work;
	else
		free(work);
	pthread_cond_signal(&progress.more);
	pthread_mutex_unlock(&progress.lock);
}

static bool has_work(const struct sim_comm *comm)
{
	bool found = false;

	pthread_mutex_lock(&progress.lock);
	for (const struct work *work = progress.first; work && !found; work = work->next)
		found = work->comm == comm;
	pthread_mutex_unlock(&progress.lock);
	return found;
}

void progress_forget(const struct sim_comm *comm)
{
	struct timespec pause = { .tv_nsec = POLL_NS };

	for (int i = 0; i < FORGET_POLLS && has_work(comm); i++)
		nanosleep(&pause, NULL);
	pthread_mutex_lock(&progress.lock);
	for (struct work **at = &progress.first; *at;) {
		struct work *work = *at;

		if (work->comm != comm) {
			at = &work->next;
			continue;
		}
		*at = work->next;
		free(work);
	}
	pthread_mutex_unlock(&progress.lock);
}
