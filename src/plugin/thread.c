/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The one thread of a process. Asleep it looks at the semaphore four times a second. Awake it turns
 * notes into records, looks after timed launches, and hands both on in batches.
 */
#include "plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "record.h"

#define ASLEEP_NS     (250 * NS_PER_MS)
#define AWAKE_BUSY_NS (5 * NS_PER_MS)
#define AWAKE_IDLE_NS (20 * NS_PER_MS)	  /* what a ring must hold, see RING_CELLS */
#define LINGER_NS     (2 * NS_PER_SECOND) /* launches under way when all went to sleep */
#define CLOSING_NS    (2 * NS_PER_SECOND) /* launches under way when their communicator ended */
#define GRACE_NS      (1 * NS_PER_SECOND) /* callbacks that were still running then */
#define ANNOUNCE_NS   (1 * NS_PER_SECOND) /* nothing tells of a second tracer */
#define STACK_BYTES   (256 * 1024)
#define N_PENDING     1024 /* as many as there are pairs of events */

struct process process;

struct nbp_control nccl_bpftrace_control PLUGIN_VISIBLE = {
	.magic = NBP_CONTROL_MAGIC,
	.size = sizeof(struct nbp_control),
	.version = 1,
	.budget_ppm = 10000,
	.launch_cost_ns = 5000,
};

/* A timed launch whose end has not been seen. */
struct pending {
	struct comm *comm;
	struct note note;
	uint32_t n_operations;
	uint64_t round; /* in which it was read */
};

static struct {
	pthread_once_t once;
	struct batch batch;
	struct pending pending[N_PENDING];
	int n_pending;
	uint64_t round;
	uint64_t asleep_since_ns;
	bool busy;
	uint64_t reported[NBP_LOSS_MAX];
} thread = {.once = PTHREAD_ONCE_INIT};

static uint64_t process_lost[NBP_LOSS_MAX];

void control__lost(enum nbp_loss reason)
{
	control__add(&nccl_bpftrace_control.lost[reason], 1);
	__atomic_fetch_add(&process_lost[reason], 1, __ATOMIC_RELAXED);
}

/* ---- timed launches ---- */

static void pending__add(struct comm *comm, const struct note *note)
{
	struct pending *p;

	if (thread.n_pending == N_PENDING) { /* cannot be: no more pairs */
		timing__give_back(note->extra);
		return;
	}
	p = &thread.pending[thread.n_pending++];
	p->comm = comm;
	note__copy(&p->note, note);
	p->n_operations = 0;
	p->round = thread.round;
	comm->n_pending++;
}

static void pending__count(struct comm *comm, uint64_t launch)
{
	for (int i = thread.n_pending - 1; launch && i >= 0; i--) {
		if (thread.pending[i].comm == comm && thread.pending[i].note.number == launch) {
			thread.pending[i].n_operations++;
			return;
		}
	}
}

static bool pending__is_over(const struct pending *p, uint64_t now)
{
	if (p->comm->closing_since_ns && now - p->comm->closing_since_ns > CLOSING_NS)
		return true;
	return thread.asleep_since_ns && now - thread.asleep_since_ns > LINGER_NS;
}

/* False: it stays. */
static bool pending__finish(struct pending *p, uint64_t now)
{
	struct timing_times times = {.clock_error_ns = NBP_UNKNOWN};
	enum timing_result result;

	if (p->round == thread.round)
		return false; /* its operations may not all have been read */
	result = timing__poll(p->note.extra, p->note.time_ns, &times);
	if (result == TIMING_PENDING && !pending__is_over(p, now))
		return false;
	if (result == TIMING_PENDING) {
		timing__give_back(p->note.extra);
		comm__lost(p->comm, NBP_LOSS_TIMING_ABANDONED);
	} else if (result == TIMING_INVALID) {
		comm__lost(p->comm, NBP_LOSS_TIMING_INVALID);
	} else if (result == TIMING_FAILED) {
		comm__lost(p->comm, NBP_LOSS_TIMING_ABANDONED);
	}
	batch__finished(&thread.batch, p->comm, &p->note, result == TIMING_DONE ? &times : NULL,
			p->n_operations);
	p->comm->n_pending--;
	return true;
}

static void pending__poll(uint64_t now)
{
	int kept = 0;

	for (int i = 0; i < thread.n_pending; i++) {
		if (pending__finish(&thread.pending[i], now))
			continue;
		if (kept != i) {
			thread.pending[kept].comm = thread.pending[i].comm;
			note__copy(&thread.pending[kept].note, &thread.pending[i].note);
			thread.pending[kept].n_operations = thread.pending[i].n_operations;
			thread.pending[kept].round = thread.pending[i].round;
		}
		kept++;
	}
	thread.n_pending = kept;
}

/* ---- communicators ---- */

static bool announce__is_due(const struct comm *comm, uint64_t hash, uint32_t gpu, uint64_t now)
{
	return !comm->announced_ns || now - comm->announced_ns > ANNOUNCE_NS ||
	       comm->announced_hash != hash || (gpu && comm->announced_gpu != gpu);
}

/* Before its notes are read: what its record says of the numbering is so at its place. */
static void comm__announce(struct comm *comm, uint64_t now)
{
	uint64_t hash = atomic_load_explicit(&comm->hash, memory_order_acquire);
	uint32_t gpu = atomic_load_explicit(&comm->gpu, memory_order_relaxed);
	int32_t device;
	uint8_t uuid[16];

	if (gpu && !timing__device(gpu - 1, &device, uuid))
		gpu = 0;
	if (!announce__is_due(comm, hash, gpu, now))
		return;
	batch__comm(&thread.batch, comm, gpu ? device : -1, gpu ? uuid : NULL);
	comm->announced_ns = now;
	comm->announced_hash = hash;
	comm->announced_gpu = gpu;
	comm->counts.due = true;
}

static void note__told(struct comm *comm, const struct note *note)
{
	uint64_t *highest = note->kind == NBP_KIND_API	    ? &comm->told.api
			    : note->kind == NBP_KIND_LAUNCH ? &comm->told.launch
							    : &comm->told.operation;

	if (note->number > *highest)
		*highest = note->number;
}

static void comm__read(struct comm *comm)
{
	struct ring *ring = atomic_load_explicit(&comm->ring, memory_order_acquire);
	struct note note;

	/* Bounded, so that one busy communicator does not hold up the others. */
	for (int i = 0; ring && i < RING_CELLS && ring__pop(ring, &note); i++) {
		thread.busy = true;
		if (note.generation != (uint16_t)comm->live_generation)
			continue; /* written while its slot went to another */
		if (note.kind == NBP_KIND_LAUNCH && note.function == NBP_TIMED)
			pending__add(comm, &note);
		if (note.kind == NBP_KIND_OPERATION)
			pending__count(comm, note.launch);
		note__told(comm, &note);
		counts__told(&comm->counts, &note);
		batch__note(&thread.batch, comm, &note);
	}
}

static void comm__report_loss(struct comm *comm)
{
	for (int i = 0; i < NBP_LOSS_MAX; i++) {
		uint64_t total = atomic_load_explicit(&comm->lost[i], memory_order_relaxed);

		if (total != comm->reported[i])
			batch__loss(&thread.batch, comm, i, total - comm->reported[i], total);
		comm->reported[i] = total;
	}
}

/* Behind the calls that it sums up. */
static void comm__report_counts(struct comm *comm)
{
	if (comm->abi->version >= 5 && counts__changed(&comm->counts, &comm->unseen))
		batch__counts(&thread.batch, comm);
}

static void comm__wind_up(struct comm *comm, uint64_t now)
{
	if (!comm->closing_since_ns)
		comm->closing_since_ns = now;
	if (comm->n_pending)
		return;
	if (!comm->ended)
		batch__end(&thread.batch, comm, comm->closing_since_ns);
	comm->ended = true;
	if (now - comm->closing_since_ns > GRACE_NS)
		comm__free(comm);
}

static void comm__serve(struct comm *comm, uint64_t now)
{
	bool closing = atomic_load(&comm->state) == COMM_CLOSING;

	if (!comm->ended)
		comm__announce(comm, now);
	comm__read(comm);
	if (!comm->ended) {
		comm__report_counts(comm);
		comm__report_loss(comm);
	}
	if (closing)
		comm__wind_up(comm, now);
}

static void process__report_loss(void)
{
	for (int i = 0; i < NBP_LOSS_MAX; i++) {
		uint64_t total = __atomic_load_n(&process_lost[i], __ATOMIC_RELAXED);

		if (total != thread.reported[i])
			batch__loss(&thread.batch, NULL, i, total - thread.reported[i], total);
		thread.reported[i] = total;
	}
}

/* ---- the loop ---- */

/* A tracer that has just come knows nothing: everything is told again. */
static void thread__wake(void)
{
	struct comm *comm;

	for (uint32_t i = 0; (comm = comm__next(&i));) {
		comm->announced_ns = 0;
		comm__need_ring(comm);
	}
	memset(thread.reported, 0, sizeof(thread.reported));
}

static void thread__look(uint64_t now)
{
	bool raised = hook__raised(), awake = atomic_load(&process.awake);
	struct comm *comm;

	if (raised && !awake)
		thread__wake();
	if (!raised && awake)
		thread.asleep_since_ns = now;
	if (raised)
		thread.asleep_since_ns = 0;
	atomic_store(&process.awake, raised);
	__atomic_store_n(&nccl_bpftrace_control.awake, raised, __ATOMIC_RELAXED);
	for (uint32_t i = 0; (comm = comm__next(&i));)
		comm__set_mask(comm); /* again and again: others write the same word */
}

static void thread__work(uint64_t now)
{
	struct comm *comm;

	thread.round++;
	thread.batch.wanted = atomic_load(&process.awake);
	for (uint32_t i = 0; (comm = comm__next(&i));)
		comm__serve(comm, now);
	if (thread.batch.wanted || thread.n_pending) {
		pending__poll(now);
		timing__serve(now);
	}
	process__report_loss();
	batch__flush(&thread.batch);
}

static uint64_t thread__pause(void)
{
	if (!atomic_load(&process.awake) && !thread.n_pending)
		return ASLEEP_NS;
	return thread.busy || thread.n_pending ? AWAKE_BUSY_NS : AWAKE_IDLE_NS;
}

static void *thread__main(void *unused)
{
	(void)unused;
	pthread_setname_np(pthread_self(), "nccl-bpftrace");
	for (;;) {
		struct timespec pause;
		uint64_t ns;

		thread.busy = false;
		thread__look(now_ns());
		thread__work(now_ns());
		ns = thread__pause();
		pause = (struct timespec){ns / NS_PER_SECOND, ns % NS_PER_SECOND};
		nanosleep(&pause, NULL);
	}
	return NULL;
}

/* ---- start ---- */

/* NCCL unloads plugins while the thread runs. */
static void library__pin(void)
{
	Dl_info self;

	if (dladdr(&process, &self) && self.dli_fname)
		dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

static void forked(void)
{
	atomic_store(&process.dead, true);
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

static void start_once(void)
{
	library__pin();
	if (pthread_atfork(NULL, NULL, forked) || thread__create())
		atomic_store(&process.dead, true);
}

void thread__start(void)
{
	pthread_once(&thread.once, start_once);
}
