/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The one thread of a process. Asleep it looks at the semaphore four times a second. Awake it turns
 * notes into records, looks after timed launches, and hands both on in batches.
 */
#include "plugin.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "serve.h"
#include "ticks.h"
#include "timer.h"

#define ASLEEP_NS     (250 * NS_PER_MS)
#define AWAKE_BUSY_NS (5 * NS_PER_MS)
#define AWAKE_IDLE_NS (20 * NS_PER_MS)	  /* what a ring must hold, see RING_BITS */
#define UNUSED_NS     (2 * NS_PER_SECOND) /* without a communicator */
#define STACK_BYTES   (256 * 1024)
#define EXIT_WAIT_NS  (300 * NS_PER_MS)

struct process process;

struct nbp_control nccl_bpftrace_control PLUGIN_VISIBLE = {
	.magic = NBP_CONTROL_MAGIC,
	.size = sizeof(struct nbp_control),
	.version = 1,
	.budget_ppm = NBP_DEFAULT_BUDGET_PPM,
	/*
	 * 5 us of the thread's time and 3 us between two kernels, and other ranks wait for both:
	 * two ranks of one process lost 7 us for each of the two that was timed
	 */
	.launch_cost_ns = 20000,
};

enum thread_state {
	THREAD_NONE,
	THREAD_RUNS,
};

static struct {
	pthread_once_t once;
	_Atomic uint32_t state;	  /* enum thread_state */
	uint64_t needed_ns;	  /* when there last was a communicator */
	uint64_t asleep_since_ns; /* 0: a tracer listens */
	/* rounds that somebody waits for; futexes */
	_Atomic uint32_t asked, done;
} thread = {.once = PTHREAD_ONCE_INIT, .asleep_since_ns = 1};

/* ---- the loop ---- */

static void thread__wake(void)
{
	struct comm *comm;

	for (uint32_t i = 0; (comm = comm__next(&i));)
		comm__need_ring(comm);
	serve__tell_again();
}

static void thread__look(uint64_t now)
{
	bool raised = hook__raised(), awake = atomic_load(&process.awake);
	struct comm *comm;

	if (raised && !awake) {
		atomic_store_explicit(&process.awake_ns, now, memory_order_relaxed);
		thread__wake();
	}
	if (!raised && awake)
		thread.asleep_since_ns = now;
	if (raised) {
		thread.asleep_since_ns = 0;
		ticks__serve(now);
	}
	atomic_store_explicit(&process.round_ns, now, memory_order_relaxed);
	atomic_store(&process.awake, raised);
	__atomic_store_n(&nccl_bpftrace_control.awake, raised, __ATOMIC_RELAXED);
	timer__serve(now);
	for (uint32_t i = 0; (comm = comm__next(&i));)
		comm__set_mask(comm); /* again and again: others write the same word */
}

static long futex(_Atomic uint32_t *word, int operation, uint32_t value, uint64_t wait_ns)
{
	struct timespec wait = {wait_ns / NS_PER_SECOND, wait_ns % NS_PER_SECOND};

	return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, &wait, NULL, 0);
}

static bool any_comm(void)
{
	uint32_t i = 0;

	return comm__next(&i);
}

/*
 * Without a communicator it goes: else a program whose main() ends by pthread_exit() would go on
 * for ever. Whoever makes one publishes it and then looks whether there is a thread.
 */
static bool thread__leaves(uint64_t now, bool busy)
{
	uint32_t none = THREAD_NONE;

	if (busy || any_comm())
		thread.needed_ns = now;
	if (now - thread.needed_ns < UNUSED_NS)
		return false;
	thread.asleep_since_ns = now;
	atomic_store(&process.awake, false);
	__atomic_store_n(&nccl_bpftrace_control.awake, 0, __ATOMIC_RELAXED);
	atomic_store(&thread.state, THREAD_NONE);
	return !any_comm() || !atomic_compare_exchange_strong(&thread.state, &none, THREAD_RUNS);
}

static void *thread__main(void *unused)
{
	bool busy = false;

	(void)unused;
	pthread_setname_np(pthread_self(), "nccl-bpftrace");
	for (thread.needed_ns = now_ns(); !thread__leaves(now_ns(), busy);) {
		uint32_t asked = atomic_load(&thread.asked);
		uint64_t pause = AWAKE_IDLE_NS;

		thread__look(now_ns());
		busy = serve__round(now_ns(), thread.asleep_since_ns);
		if (atomic_load(&thread.done) != asked) {
			atomic_store(&thread.done, asked);
			futex(&thread.done, FUTEX_WAKE, INT_MAX, 0);
		}
		if (busy)
			pause = AWAKE_BUSY_NS;
		else if (thread.asleep_since_ns)
			pause = ASLEEP_NS;
		futex(&thread.asked, FUTEX_WAIT, asked, pause);
	}
	return NULL;
}

/* No lock: whoever waits does so for a time only, even if the thread is gone. */
void thread__catch_up(uint64_t wait_ns)
{
	uint64_t now = now_ns(), until = now + wait_ns;
	uint32_t mine, done;

	if (!atomic_load(&process.awake))
		return;
	mine = atomic_fetch_add(&thread.asked, 1) + 1;
	futex(&thread.asked, FUTEX_WAKE, INT_MAX, 0);
	for (; now < until; now = now_ns()) {
		done = atomic_load(&thread.done);
		if ((int32_t)(done - mine) >= 0)
			return;
		futex(&thread.done, FUTEX_WAIT, done, until - now);
	}
}

/* ---- start ---- */

/* A child has no thread, and must not use its parent's events. */
static void forked(void)
{
	atomic_store(&process.dead, true);
	atomic_store(&process.awake, false);
}

static int thread__create(void)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t id;
	int error;

	error = pthread_attr_init(&attributes);
	if (error)
		return -error;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&id, &attributes, thread__main, NULL);
	if (error) { /* much thread-local storage comes off a stack */
		pthread_attr_setstacksize(&attributes, 8 << 20);
		error = pthread_create(&id, &attributes, thread__main, NULL);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return -error;
}

static void watch_forks(void)
{
	if (pthread_atfork(NULL, NULL, forked))
		atomic_store(&process.dead, true);
}

void thread__need(void)
{
	uint32_t none = THREAD_NONE;

	pthread_once(&thread.once, watch_forks);
	if (atomic_load(&process.dead) ||
	    !atomic_compare_exchange_strong(&thread.state, &none, THREAD_RUNS))
		return;
	if (thread__create())
		atomic_store(&process.dead, true);
}

/* ---- the end ---- */

/*
 * Called before the driver's own teardown, and once more when this library's turn comes: what
 * NCCL's threads have noted by then is handed over, without CUDA. A process that ends by _exit() or
 * a signal loses what is younger than the thread's pause.
 */
__attribute__((destructor)) void process__end(void)
{
	if (atomic_load(&process.dead))
		return;
	cuda__end();
	thread__catch_up(EXIT_WAIT_NS);
}
