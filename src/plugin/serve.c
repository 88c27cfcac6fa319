/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "serve.h"

#include <string.h>

#include "joined.h"
#include "pending.h"

#define LINGER_NS   (2 * NS_PER_SECOND) /* as if awake, when launches are under way */
#define GRACE_NS    (1 * NS_PER_SECOND) /* callbacks that were still running then */
#define ANNOUNCE_NS (1 * NS_PER_SECOND) /* nothing tells of a second tracer */

static struct {
	struct batch batch;
	uint64_t round;
	bool busy;
	struct told_losses told_losses;
	uint64_t told_ns; /* of the process's losses */
} serve;

static _Atomic uint64_t process_lost[NBP_LOSS_MAX];

void control__lost(enum nbp_loss reason)
{
	control__add(&nccl_bpftrace_control.lost[reason], 1);
	atomic_fetch_add_explicit(&process_lost[reason], 1, memory_order_relaxed);
}

/* ---- communicators ---- */

static bool announce__is_due(const struct comm *comm, uint64_t hash, uint32_t gpu, uint64_t now)
{
	return !comm->announced_ns || now - comm->announced_ns > ANNOUNCE_NS ||
	       comm->announced_hash != hash || (gpu && comm->announced_gpu != gpu);
}

/*
 * Before its notes are read: what its record says of the numbering is so at its place. True: it was
 * due.
 */
static bool comm__announce(struct comm *comm, uint64_t now)
{
	uint64_t hash = atomic_load_explicit(&comm->hash, memory_order_acquire);
	uint32_t gpu = atomic_load_explicit(&comm->gpu, memory_order_relaxed);
	int32_t device;
	uint8_t uuid[16];

	if (gpu && !timing__device(gpu - 1, &device, uuid))
		gpu = 0;
	if (!announce__is_due(comm, hash, gpu, now))
		return false;
	batch__comm(&serve.batch, comm, gpu ? device : -1, gpu ? uuid : NULL);
	comm->announced_ns = now;
	comm->announced_hash = hash;
	comm->announced_gpu = gpu;
	comm->counts.due = true;
	return true;
}

static void note__told(struct comm *comm, const struct note *note)
{
	uint64_t *highest = note->kind == NBP_KIND_API	    ? &comm->told.api
			    : note->kind == NBP_KIND_LAUNCH ? &comm->told.launch
							    : &comm->told.operation;

	if (note->number > *highest)
		*highest = note->number;
}

static void note__take(struct comm *comm, const struct note *note)
{
	if (note->kind == NBP_KIND_LAUNCH)
		pending__launch(comm, note, serve.round);
	if (note->kind == NBP_KIND_OPERATION)
		pending__operation(comm, note);
	note__told(comm, note);
	counts__told(&comm->counts, note);
	batch__note(&serve.batch, comm, note);
}

/* Until when all has been read. */
static uint64_t comm__read(struct comm *comm)
{
	struct ring *ring = atomic_load_explicit(&comm->ring, memory_order_acquire);
	uint64_t before = now_ns();
	struct note note, launch;

	/* Bounded, so that one busy communicator does not hold up the others. */
	for (int i = 0; ring && i < 1 << RING_BITS; i++) {
		if (!ring__pop(ring, &note))
			return before;
		serve.busy = true;
		if (note.generation != (uint16_t)comm->live_generation) {
			pending__drop(&note); /* written while its slot went to another */
			continue;
		}
		if (note.kind == NOTE_JOINED) {
			note__split(&note, comm->told.launch, comm->told.operation, &launch);
			note__take(comm, &launch);
		}
		note__take(comm, &note);
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

/*
 * At once, and again when it has stood still until the next second, so that one lost record leaves
 * no loss untold. Both times what was lost since it last was told again.
 */
static void losses__report(const struct comm *comm, const _Atomic uint64_t *lost,
			   struct told_losses *told, bool again)
{
	uint64_t totals[NBP_LOSS_MAX], sum = 0;
	bool fresh;

	for (int i = 0; i < NBP_LOSS_MAX; i++) {
		totals[i] = atomic_load_explicit(&lost[i], memory_order_relaxed);
		sum += totals[i];
	}
	fresh = sum != told->sum;
	for (int i = 0; (again || fresh) && i < NBP_LOSS_MAX; i++) {
		if (totals[i] != told->before[i])
			batch__loss(&serve.batch, comm, i, totals[i] - told->before[i], totals[i]);
		if (!fresh)
			told->before[i] = totals[i];
	}
	told->sum = sum;
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
	bool announced = !comm->ended && comm__announce(comm, now);
	uint64_t read_ns = comm__read(comm);

	if (!comm->ended) {
		comm__report_counts(comm, read_ns);
		losses__report(comm, comm->lost, &comm->told_losses, announced);
	}
	comm__count(comm);
	if (closing && !comm->closing_since_ns)
		comm->closing_since_ns = now;
}

static void process__report_loss(uint64_t now)
{
	bool again = now - serve.told_ns > ANNOUNCE_NS;

	losses__report(NULL, process_lost, &serve.told_losses, again);
	if (again)
		serve.told_ns = now;
}

/* ---- a round ---- */

void serve__tell_again(void)
{
	struct comm *comm;

	for (uint32_t i = 0; (comm = comm__next(&i));)
		comm->announced_ns = 0;
	memset(&serve.told_losses, 0, sizeof(serve.told_losses));
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
	if (serve.batch.wanted)
		timing__share(now);
	if (serve.batch.wanted || pending__any())
		pending__poll(&round);
	if (serve.batch.wanted || (pending__any() && !lingers))
		timing__serve(now);
	for (uint32_t i = 0; (comm = comm__next(&i));)
		comm__wind_up(comm, now);
	process__report_loss(now);
	batch__flush(&serve.batch);
	return serve.busy || (pending__any() && !lingers);
}
