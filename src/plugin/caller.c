/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose place in the table it is, is for that thread alone to change: it takes a free one, and a
 * destructor gives it back. Who finds his taken has thread-local storage. A forked child has no use
 * for any of it.
 */
#include "launch.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct caller callers[N_CALLERS];

static _Thread_local struct caller this_thread;

static struct {
	pthread_once_t once;
	pthread_key_t key;
	bool is_there;
} leaving = {.once = PTHREAD_ONCE_INIT};

static void caller__leave(void *place)
{
	struct caller *caller = place;
	size_t after = offsetof(struct caller, tid);

	launch__settle(caller);
	memset((char *)caller + after, 0, sizeof(*caller) - after);
	atomic_store_explicit(&caller->thread, 0, memory_order_release);
}

static void leaving__prepare(void)
{
	leaving.is_there = !pthread_key_create(&leaving.key, caller__leave);
}

static bool place__take(struct caller *place, uintptr_t thread)
{
	uintptr_t nobody = 0;

	pthread_once(&leaving.once, leaving__prepare);
	if (!leaving.is_there || !atomic_compare_exchange_strong(&place->thread, &nobody, thread))
		return false;
	if (!pthread_setspecific(leaving.key, place))
		return true;
	atomic_store(&place->thread, 0);
	return false;
}

struct caller *caller__find(struct caller *place, uintptr_t thread)
{
	struct caller *caller = &this_thread;

	/* not where the storage is in use already: of what is under way there nothing is lost */
	if (!caller->tid && place__take(place, thread))
		caller = place;
	if (!caller->tid)
		caller->tid = syscall(SYS_gettid);
	return caller;
}
