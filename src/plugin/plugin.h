/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The plugin's parts and the way through them:
 *
 *	NCCL's threads   entry.c     one table per ABI version
 *	                 callback.c  event -> note in the communicator's ring (comm.h)
 *	                 caller.c    what is kept of a thread
 *	                 launch.c, timing.c  CUDA events around what is launched
 *	                 sample.h, budget.h  ... and around which of it
 *	                 timer.c     NCCL's own GPU timer, on request
 *	                 ticks.h     the host's clock
 *	own thread       thread.c    semaphore -> mask; knobs; the end
 *	                 serve.c     rings -> records -> batch (hook.c)
 *	                 pending.c   timed launches, to their end
 *
 * NCCL's threads take no lock, allocate nothing and make no system call but what the CUDA driver
 * makes in recording an event, and the first gettid() of a thread. Memory that they may touch is
 * never freed: communicators are slots, used again with a new generation.
 */
#ifndef NCCL_BPFTRACE_PLUGIN_PLUGIN_H
#define NCCL_BPFTRACE_PLUGIN_PLUGIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "abi.h"
#include "counts.h"
#include "nccl_bpftrace_plugin.h"
#include "ring.h"
#include "sample.h"

#ifdef PLUGIN_TEST
#define PLUGIN_VISIBLE __attribute__((visibility("default")))
#else
#define PLUGIN_VISIBLE __attribute__((visibility("hidden")))
#endif

/* Kept from between what is run all the time. */
#define COLD __attribute__((noinline, cold))

#define NS_PER_SECOND 1000000000ULL
#define NS_PER_MS     1000000ULL

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NS_PER_SECOND + t.tv_nsec;
}

/* Clocks of two threads, and one that is slewed: it may have gone back a little. */
static inline uint64_t passed_ns(uint64_t from, uint64_t to)
{
	return to > from ? to - from : 0;
}

/* ---- state of the process ---- */

struct process {
	_Alignas(64) atomic_bool awake; /* a tracer listens */
	atomic_bool chained;		/* there is another plugin behind this one */
	atomic_bool dead;		/* a forked child, or no thread: stays asleep for ever */
	atomic_bool ending;		/* exit() runs: no CUDA any more */
	_Atomic uint64_t n_inits;	/* communicators made */
	_Atomic uint64_t timer_for;	/* n_inits + 1 that NCCL's GPU timer was switched on for */
	_Atomic uint64_t round_ns;	/* when the thread last looked around */
	_Atomic uint64_t awake_ns;	/* when a tracer last came */
};

extern struct process process;
extern struct nbp_control nccl_bpftrace_control;

COLD void control__lost(enum nbp_loss reason); /* of no known communicator */
static inline uint64_t control__get(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}
static inline void control__add(__u64 *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

/* ---- hook.c ---- */

bool hook__raised(void);
void hook__fire(const struct nbp_record *records, uint32_t n);

/* ---- comm.c ---- */

#define COMM_SLOTS  4096 /* communicators alive at one time */
#define COMM_CHUNK  64
#define COMM_CHUNKS (COMM_SLOTS / COMM_CHUNK)

enum comm_state {
	COMM_FREE,
	COMM_SETUP,
	COMM_LIVE,
	COMM_CLOSING, /* finalised; the thread still sends what it left */
};

struct comm {
	/* what callbacks need, in two cache lines */
	_Alignas(64) _Atomic uint32_t state;
	_Atomic uint32_t generation; /* in the context given to NCCL; raised by finalize */
	uint32_t live_generation;    /* of the notes that belong to it */
	bool chained;
	atomic_bool apart; /* its operations come elsewhere than after their launches */
	const struct abi_version *abi;
	_Atomic(struct ring *) ring; /* from the first waking on; kept for the next owner */
	_Atomic uint64_t api_number, launch_number, operation_number;
	_Atomic uint64_t launched_ns; /* when a launch was last made */
	struct sample sample;
	_Atomic uint64_t timed_ns; /* when one was last timed */
	_Atomic uint32_t gpu;	   /* index + 1 of the last context launched in, see timing.h */

	uint32_t index;
	uint64_t id;
	_Atomic uint64_t hash; /* v1 to v3: known from the first operation on */
	_Atomic int32_t rank;
	int32_t n_ranks;
	uint32_t n_nodes;
	char name[sizeof(((struct nbp_comm *)NULL)->name)];
	_Atomic(int *) mask; /* NCCL's; NULL once finalised */
	atomic_int mask_users;
	void *chain_context;
	atomic_bool has_channels; /* NCCL's GPU timer has told of one: it is connected */
	_Atomic uint64_t lost[NBP_LOSS_MAX];
	struct counts_unseen unseen;

	/* the thread's own */
	struct counts counts;
	struct {
		uint64_t api, launch, operation; /* highest numbers */
	} told;
	uint64_t announced_ns; /* 0: not since the tracer came */
	uint64_t announced_hash;
	uint32_t announced_gpu;
	struct told_losses {
		uint64_t before[NBP_LOSS_MAX], sum;
	} told_losses;
	uint64_t closing_since_ns;
	bool ended;
	uint32_t n_pending;
	uint64_t oldest_pending; /* pending.c's, for a moment */
	uint64_t done_launch;	 /* launches up to this number are done */
	struct {
		uint64_t round, stream, launch;
	} unfinished; /* the first that was found so in a round */
	struct {
		uint64_t stream, first, last;
	} run; /* the last launches, of which all numbers came, on one stream */
	uint64_t counted_launches;
	struct launch_rate rate;
};

_Static_assert(offsetof(struct comm, index) <= 128, "what callbacks need");
_Static_assert(sizeof(struct comm) <= 832, "bytes per communicator");

struct comm *comm__create(const struct abi_version *abi);
void comm__publish(struct comm *comm);
void *comm__context(const struct comm *comm);
bool comm__close(struct comm *comm); /* false: it was closed already */
void comm__free(struct comm *comm);
struct ring *comm__need_ring(struct comm *comm);
struct comm *comm__next(uint32_t *index); /* walks every slot in use; NULL at the end */
COLD void comm__lost(struct comm *comm, enum nbp_loss reason);
/* Where there was none for a note at first; NULL: there is none, which is counted. */
COLD struct note *comm__place_again(struct comm *comm);
bool comm__note(struct comm *comm, const struct note *note); /* false: it found no place */
int comm__mask(const struct comm *comm); /* this plugin's part of what NCCL is to call now */
void comm__set_mask(struct comm *comm);

/* ---- thread.c ---- */

/* After a communicator was published. Marks the process dead when there can be no thread. */
void thread__need(void);
/* Waits until the thread has read what is in the rings by now, and for how long at most. */
void thread__catch_up(uint64_t wait_ns);
void process__end(void); /* exit() runs */

/* ---- timing.c, clock.c ---- */

struct launch_timing {
	enum nbp_timing timing;
	bool after_pause; /* with NBP_TIMED: for that alone */
	uint16_t pair;	  /* with NBP_TIMED, else 0 */
	uint32_t stamp;	  /* of the pair's owner */
	uint64_t spent_ns;
};

/* NCCL's threads, around one kernel launch. */
void timing__begin(struct comm *comm, uint64_t stream, bool captured, struct choice choice,
		   uint64_t now, struct launch_timing *t);
void timing__end(struct comm *comm, uint64_t stream, struct launch_timing *t);
void timing__drop(struct launch_timing *t); /* it was begun and does not end */
void timing__give_back(uint16_t pair);	    /* of a launch that has ended */

/* The plugin's thread. */
enum timing_result {
	TIMING_PENDING,
	TIMING_DONE,
	TIMING_INVALID,
	TIMING_FAILED,
};

struct timing_times {
	uint64_t start_ns, end_ns, duration_ns;
	uint32_t clock_error_ns;
};

void timing__share(uint64_t now); /* decides how many launches are chosen */
void timing__serve(uint64_t now); /* makes events, compares clocks, takes back what was lost */
uint32_t timing__gpu(uint16_t pair);
/* They leave the thread in the driver: cuda__leave() when there is no more to ask. */
enum timing_result timing__poll(uint16_t pair, uint64_t launched_ns, struct timing_times *ret);
/* Has its stream come to it? With TIMING_DONE: start_ns, clock_error_ns. */
enum timing_result timing__look(uint16_t pair, uint64_t launched_ns, struct timing_times *ret);
void cuda__leave(void);
void cuda__end(void); /* no more calls of the driver, and none under way */
bool timing__device(uint32_t gpu, int32_t *ret_device, uint8_t ret_uuid[16]);

/* ---- chain.c: another plugin behind this one ---- */

struct init_arguments;
bool chain__init(struct comm *comm, const struct init_arguments *arguments);
int chain__mask(const struct abi_version *v);
int chain__start(struct comm *comm, void **handle, void *descriptor, uint64_t type, void *ours);
int chain__stop(const struct abi_version *v, void *handle); /* -1: there is none */
int chain__record(const struct abi_version *v, void *handle, int state, void *arguments);
void chain__finalize(const struct abi_version *v, void *context);

struct init_arguments {
	const char *name;
	uint64_t hash;
	int n_nodes, n_ranks, rank;
	abi_logger logger;
};

/* ---- callback.c ---- */

int callback__init(const struct abi_version *v, void **context, int *mask,
		   struct init_arguments *arguments);
int callback__start(const struct abi_version *v, void *context, void **handle, void *descriptor);
int callback__start_v5(const struct abi_version *v, void *context, void **handle,
		       void *descriptor); /* from v5 on */
int callback__stop(const struct abi_version *v, void *handle);
int callback__record(const struct abi_version *v, void *handle, int state, void *arguments);
int callback__finalize(const struct abi_version *v, void *context);

/*
 * What NCCL holds of this plugin is never an address: "nb" in the upper bits makes it one that no
 * machine has, so a handle or context that comes back late, twice or never finds nothing to break.
 */
#define TOKEN_TAG	 (0x6e62ULL << 48)
#define TOKEN_MASK	 (0xffffULL << 48)
#define TOKEN_KIND_SHIFT 45
#define TOKEN_NUMBER	 ((1ULL << TOKEN_KIND_SHIFT) - 1)

/* A communicator's context is a token without a kind. */
enum token_kind {
	TOKEN_GROUP = 1,
	TOKEN_LAUNCH,
	TOKEN_OPERATION,
	TOKEN_CHANNEL,
};

static inline bool token__is_ours(const void *handle)
{
	return ((uint64_t)(uintptr_t)handle & TOKEN_MASK) == TOKEN_TAG;
}

static inline void *token__make(enum token_kind kind, uint64_t number)
{
	return (void *)(uintptr_t)(TOKEN_TAG | (uint64_t)kind << TOKEN_KIND_SHIFT |
				   (number & TOKEN_NUMBER));
}

static inline bool token__is(const void *handle, enum token_kind kind)
{
	return (uint64_t)(uintptr_t)handle >> TOKEN_KIND_SHIFT ==
	       (TOKEN_TAG | (uint64_t)kind << TOKEN_KIND_SHIFT) >> TOKEN_KIND_SHIFT;
}

#endif
