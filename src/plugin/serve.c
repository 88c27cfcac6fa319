/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "serve.h"

#include <string.h>

#include "pending.h"

#define LINGER_NS   (2 * NS_PER_SECOND) /* as if awake, when launches are under way */
#define GRACE_NS    (1 * NS_PER_SECOND) /* callbacks that were still running then */
#define ANNOUNCE_NS (1 * NS_PER_SECOND) /* nothing tells of a second tracer */

static struct {
	struct batch batch;
	uint64_t round;
	bool busy;
	uint64_t reported[NBP_LOSS_MAX];
} serve;

static uint64_t process_lost[NBP_LOSS_MAX];

void control__lost(enum nbp_loss reason)
{
	control__add(&nccl_bpftrace_control.lost[reason], 1);
	__atomic_fetch_add(&process_lost[reason], 1, __ATOMIC_RELAXED);
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
	batch__comm(&serve.batch, comm, gpu ? device : -1, gpu ? uuid : NULL);
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

/* Until when all has been read. */
static uint64_t comm__read(struct comm *comm)
{
	struct ring *ring = atomic_load_explicit(&comm->ring, memory_order_acquire);
	uint64_t before = now_ns();
	struct note note;

	/* Bounded, so that one busy communicator does not hold up the others. */
	for (int i = 0; ring && i < 1 << RING_BITS; i++) {
		if (!ring__pop(ring, &note))
			return before;
		serve.busy = true;
		if (note.generation != (uint16_t)comm->live_generation)
			continue; /* written while its slot went to another */
		if (note.kind == NBP_KIND_LAUNCH)
			pending__launch(comm, &note, serve.round);
		if (note.kind == NBP_KIND_OPERATION)
			pending__operation(comm, &note);
		note__told(comm, &note);
		counts__told(&comm->counts, &note);
		batch__note(&serve.batch, comm, &note);
	}
	return ring ? note.time_ns : before;
}

/* Here, so that NCCL's threads need not share a counter. */
static void comm__count(struct comm *comm)
{
	uint64_t n = atomic_load_explicit(&comm->launch_number, memory_order_relaxed);

	if (n != comm->counted_launches)
		control__add(&nccl_bpftrace_control.n_launches, n - comm->counted_launches);
	comm->counted_launches = n;
}

static void comm__report_loss(struct comm *comm)
{
	for (int i = 0; i < NBP_LOSS_MAX; i++) {
		uint64_t total = atomic_load_explicit(&comm->lost[i], memory_order_relaxed);

		if (total != comm->reported[i])
			batch__loss(&serve.batch, comm, i, total - comm->reported[i], total);
		comm->reported[i] = total;
	}
}

/* Behind the calls that it sums up. */
static void comm__report_counts(struct comm *comm, uint64_t read_ns)
{
	if (comm->abi->version >= 5 && counts__changed(&comm->counts, &comm->unseen))
		batch__counts(&serve.batch, comm, read_ns);
}

/* After the last poll of its launches. */
static void comm__wind_up(struct comm *comm, uint64_t now)
{
	if (!comm->closing_since_ns || comm->n_pending)
		return;
	if (!comm->ended)
		batch__end(&serve.batch, comm, comm->closing_since_ns);
	comm->ended = true;
	if (now - comm->closing_since_ns > GRACE_NS)
		comm__free(comm);
}

static void comm__serve(struct comm *comm, uint64_t now)
{
	bool closing = atomic_load(&comm->state) == COMM_CLOSING; /* so nobody writes any more */
	uint64_t read_ns;

	if (!comm->ended)
		comm__announce(comm, now);
	read_ns = comm__read(comm);
	if (!comm->ended) {
		comm__report_counts(comm, read_ns);
		comm__report_loss(comm);
	}
	comm__count(comm);
	if (closing && !comm->closing_since_ns)
		comm->closing_since_ns = now;
}

static void process__report_loss(void)
{
	for (int i = 0; i < NBP_LOSS_MAX; i++) {
		uint64_t total = __atomic_load_n(&process_lost[i], __ATOMIC_RELAXED);

		if (total != serve.reported[i])
			batch__loss(&serve.batch, NULL, i, total - serve.reported[i], total);
		serve.reported[i] = total;
	}
}

/* ---- a round ---- */

void serve__tell_again(void)
{
	struct comm *comm;

	for (uint32_t i = 0; (comm = comm__next(&i));)
		comm->announced_ns = 0;
	memset(serve.reported, 0, sizeof(serve.reported));
	pending__tell_again();
}

/* Asleep it looks after what hangs, and after nothing else. */
bool serve__round(uint64_t now, uint64_t asleep_since_ns)
{
	bool lingers = asleep_since_ns && now - asleep_since_ns > LINGER_NS;
	const struct round round = {.batch = &serve.batch, .number = ++serve.round, .now_ns = now};
	struct comm *comm;

	serve.busy = false;
	serve.batch.wanted = !asleep_since_ns;
	for (uint32_t i = 0; (comm = comm__next(&i));)
		comm__serve(comm, now);
	if (serve.batch.wanted || pending__any())
		pending__poll(&round);
	if (serve.batch.wanted || (pending__any() && !lingers))
		timing__serve(now);
	for (uint32_t i = 0; (comm = comm__next(&i));)
		comm__wind_up(comm, now);
	process__report_loss();
	batch__flush(&serve.batch);
	return serve.busy || (pending__any() && !lingers);
}
