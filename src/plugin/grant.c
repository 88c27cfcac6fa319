/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * May NCCL's own GPU timer be switched on? With the first operation of a communicator that has it,
 * NCCL maps a pool for its proxy thread out of /dev/shm, once per rank and communicator: 33 030 528
 * bytes in 2.27.7, 34 210 176 in 2.28.9 and 2.30.7 (struct ncclProxyOpsPool), and goes on as if it
 * had it when it could not. Other ranks of the node do the same at the same time.
 */
#include "timer.h"

#include <sys/statvfs.h>

#define POOL_BYTES    (36ULL << 20)
#define N_HASHES      64 /* communicators told apart; more count as different ones */
#define LOOK_AGAIN_NS (1 * NS_PER_SECOND)

struct need {
	uint64_t hashes[N_HASHES];
	uint64_t n_pools; /* per rank of the node */
	uint64_t n_local; /* ranks of the node, as many as any communicator has */
	bool no_abi, chained;
};

static bool need__is_new(struct need *need, uint64_t hash)
{
	for (uint64_t i = 0; i < need->n_pools && i < N_HASHES; i++) {
		if (need->hashes[i] == hash)
			return false;
	}
	return true;
}

static void need__add(struct need *need, const struct comm *comm)
{
	uint64_t hash = atomic_load(&comm->hash), nodes = comm->n_nodes, ranks = comm->n_ranks;
	uint64_t local = nodes && nodes <= ranks ? (ranks + nodes - 1) / nodes : ranks;

	need->no_abi |= comm->abi->channel_timer < 0;
	need->chained |= comm->chained;
	if (local > need->n_local)
		need->n_local = local;
	if (atomic_load(&comm->has_channels) || !need__is_new(need, hash))
		return;
	if (need->n_pools < N_HASHES)
		need->hashes[need->n_pools] = hash;
	need->n_pools++;
}

static bool shm__has(uint64_t bytes)
{
	struct statvfs vfs;

	return !bytes ||
	       (!statvfs("/dev/shm", &vfs) && bytes <= (uint64_t)vfs.f_bavail * vfs.f_frsize / 2);
}

static enum nbp_timer_state need__judge(const struct need *need)
{
	if (need->no_abi)
		return NBP_TIMER_NO_ABI;
	if (need->chained)
		return NBP_TIMER_CHAINED;
	return shm__has(need->n_pools * need->n_local * POOL_BYTES) ? NBP_TIMER_ON
								    : NBP_TIMER_NO_SHM;
}

static enum nbp_timer_state timer__decide(void)
{
	struct need need = {.n_local = 1};
	struct comm *comm;

	for (uint32_t i = 0; (comm = comm__next(&i));) {
		if (atomic_load(&comm->state) == COMM_LIVE)
			need__add(&need, comm);
	}
	return need__judge(&need);
}

static void timer__set(enum nbp_timer_state state, uint64_t n_inits)
{
	__u32 *told = &nccl_bpftrace_control.timer,
	      before = __atomic_load_n(told, __ATOMIC_RELAXED);

	__atomic_store_n(told, state, __ATOMIC_RELAXED);
	atomic_store(&process.timer_for, state == NBP_TIMER_ON ? n_inits + 1 : 0);
	if (state > NBP_TIMER_ON && before != state)
		control__lost(NBP_LOSS_TIMER_REFUSED);
}

void timer__serve(uint64_t now)
{
	static uint64_t decided_ns;
	uint32_t wants = __atomic_load_n(&nccl_bpftrace_control.wants, __ATOMIC_RELAXED);
	uint32_t state = __atomic_load_n(&nccl_bpftrace_control.timer, __ATOMIC_RELAXED);
	uint64_t n_inits = atomic_load(&process.n_inits);

	timer__look(now);
	if (!(wants & NBP_WANT_KERNEL_TIMER) || !atomic_load(&process.awake)) {
		timer__set(NBP_TIMER_OFF, 0);
		return;
	}
	if (timer__is_on() || (state > NBP_TIMER_ON && now - decided_ns < LOOK_AGAIN_NS))
		return;
	decided_ns = now;
	timer__set(timer__decide(), n_inits);
}
