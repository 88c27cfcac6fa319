/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "shared.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define STOP_CHECK_NS (50 * 1000 * 1000)

void sim_futex_wait(uint32_t *word, uint32_t value, int64_t timeout_ns)
{
	struct timespec timeout = { timeout_ns / NS_PER_S, timeout_ns % NS_PER_S };

	syscall(SYS_futex, word, FUTEX_WAIT, value, timeout_ns < 0 ? NULL : &timeout, NULL, 0);
}

void sim_futex_wake(uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool sim_barrier_wait(struct sim_barrier *barrier, uint32_t n, const uint32_t *stop)
{
	uint32_t generation = __atomic_load_n(&barrier->generation, __ATOMIC_ACQUIRE);

	if (__atomic_add_fetch(&barrier->arrived, 1, __ATOMIC_ACQ_REL) >= n) {
		__atomic_store_n(&barrier->arrived, 0, __ATOMIC_RELAXED);
		__atomic_add_fetch(&barrier->generation, 1, __ATOMIC_RELEASE);
		sim_futex_wake(&barrier->generation);
		return true;
	}
	while (__atomic_load_n(&barrier->generation, __ATOMIC_ACQUIRE) == generation) {
		if (stop && __atomic_load_n(stop, __ATOMIC_RELAXED))
			return false;
		sim_futex_wait(&barrier->generation, generation, STOP_CHECK_NS);
	}
	return true;
}

/* Open addressing; as no slot is ever freed, all ranks find the same one. */
struct sim_meeting *sim_meeting_get(struct sim_shared *shared, uint64_t hash)
{
	for (uint64_t probe = 0; probe < SIM_MAX_COMMS; probe++) {
		struct sim_meeting *meeting = &shared->meeting[(hash + probe) % SIM_MAX_COMMS];
		uint64_t found = 0;

		if (__atomic_compare_exchange_n(&meeting->hash, &found, hash, false,
						__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
		    found == hash)
			return meeting;
	}
	return NULL;
}
