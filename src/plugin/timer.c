/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "timer.h"

#include <string.h>

#include "comm.h"

#define N_PLACES   4096 /* operations under way; a power of two */
#define PROBES	   64
#define N_CHANNELS 64
#define STAMP_BITS 27 /* in a token, with 12 bits of place and 6 of channel */
#define STAMP_MASK ((1u << STAMP_BITS) - 1)
#define SCAN_NS	   (1 * NS_PER_SECOND)
#define SETTLED_NS (1 * NS_PER_SECOND)	/* all that started have stopped: no more will come */
#define GIVE_UP_NS (60 * NS_PER_SECOND) /* since the last callback */

enum place_state {
	PLACE_FREE,
	PLACE_FILLING,
	PLACE_LIVE,
};

struct place {
	_Atomic uint32_t word;	      /* stamp << 2 | enum place_state */
	uint8_t function, n_expected; /* NBP_UNKNOWN_U8 */
	atomic_bool over;	      /* the operation's own stop was seen */
	void *context;
	uint64_t operation, sequence;
	_Atomic uint64_t seen_ns; /* the last callback */
	_Atomic uint64_t first_ns, last_ns;
	_Atomic uint64_t started, recorded, stopped, untimed; /* a bit for each channel */
};

_Static_assert((N_PLACES & (N_PLACES - 1)) == 0 && N_PLACES <= 1 << 12, "12 bits");

static struct place places[N_PLACES];
static _Atomic uint32_t hint;

/* ---- NCCL's threads ---- */

static void *place__token(const struct place *place, enum token_kind kind, uint32_t stamp,
			  uint32_t channel)
{
	return token__make(kind, (uint64_t)(stamp & STAMP_MASK) << 18 | channel << 12 |
					 (uint32_t)(place - places));
}

/* NULL: no token of that kind, or of one that is over. */
static struct place *place__get(const void *token, enum token_kind kind, uint32_t *ret_word)
{
	uint64_t number = (uint64_t)(uintptr_t)token & TOKEN_NUMBER;
	struct place *place = &places[number % N_PLACES];
	uint32_t word;

	if (!token__is(token, kind))
		return NULL;
	word = atomic_load_explicit(&place->word, memory_order_acquire);
	if ((word & 3) != PLACE_LIVE || ((word >> 2) & STAMP_MASK) != number >> 18)
		return NULL;
	*ret_word = word;
	return place;
}

static uint32_t token__channel(const void *token)
{
	return ((uint64_t)(uintptr_t)token >> 12) % N_CHANNELS;
}

static struct place *place__take(uint32_t *ret_stamp)
{
	uint32_t from = atomic_fetch_add_explicit(&hint, 1, memory_order_relaxed);

	for (uint32_t i = 0; i < PROBES; i++) {
		struct place *place = &places[(from + i) % N_PLACES];
		uint32_t word = atomic_load_explicit(&place->word, memory_order_relaxed);
		uint32_t stamp = (word >> 2) + 1;

		if ((word & 3) != PLACE_FREE ||
		    !atomic_compare_exchange_strong(&place->word, &word,
						    stamp << 2 | PLACE_FILLING))
			continue;
		*ret_stamp = stamp;
		return place;
	}
	return NULL;
}

void *timer__open(struct comm *comm, void *context, const struct note *operation)
{
	uint32_t stamp;
	struct place *place = place__take(&stamp);

	if (!place) {
		comm__lost(comm, NBP_LOSS_TIMER_FULL);
		return NULL;
	}
	place->context = context;
	place->operation = operation->number;
	place->sequence = operation->sequence;
	place->function = operation->function;
	place->n_expected = operation->extra && operation->extra <= N_CHANNELS ? operation->extra
									       : NBP_UNKNOWN_U8;
	atomic_store(&place->over, false);
	atomic_store(&place->seen_ns, operation->time_ns);
	atomic_store(&place->first_ns, UINT64_MAX);
	atomic_store(&place->last_ns, 0);
	atomic_store(&place->started, 0);
	atomic_store(&place->recorded, 0);
	atomic_store(&place->stopped, 0);
	atomic_store(&place->untimed, 0);
	atomic_store_explicit(&place->word, stamp << 2 | PLACE_LIVE, memory_order_release);
	return place__token(place, TOKEN_OPERATION, stamp, 0);
}

static void tell(struct place *place, struct comm *comm)
{
	uint64_t untimed = atomic_load(&place->untimed);
	uint64_t timed = atomic_load(&place->started) & atomic_load(&place->recorded) & ~untimed;
	struct note note = {
		.kind = NBP_KIND_TIMER,
		.time_ns = atomic_load(&place->seen_ns),
		.number = place->operation,
		.sequence = place->sequence,
		.count = atomic_load(&place->first_ns),
		.launch = atomic_load(&place->last_ns),
		.extra = __builtin_popcountll(timed) << 8 | place->n_expected,
		.function = place->function,
	};

	if (timed)
		comm__note(comm, &note);
	else
		comm__lost(comm, NBP_LOSS_TIMING_ABANDONED);
}

/* Whoever gets the word has the place to himself. */
static void place__close(struct place *place, uint32_t word)
{
	struct comm *comm;

	if (!atomic_compare_exchange_strong(&place->word, &word, (word & ~3u) | PLACE_FILLING))
		return;
	comm = comm__get(place->context);
	if (comm)
		tell(place, comm);
	else
		control__lost(NBP_LOSS_TIMING_ABANDONED);
	atomic_store_explicit(&place->word, (word & ~3u) | PLACE_FREE, memory_order_release);
}

static void place__may_close(struct place *place, uint32_t word)
{
	int n_stopped = __builtin_popcountll(atomic_load(&place->stopped));

	if (atomic_load(&place->over) && n_stopped >= place->n_expected)
		place__close(place, word);
}

static void first__lower(struct place *place, uint64_t ns)
{
	uint64_t first = atomic_load(&place->first_ns);

	while (ns < first && !atomic_compare_exchange_weak(&place->first_ns, &first, ns))
		;
}

static void last__raise(struct place *place, uint64_t ns)
{
	uint64_t last = atomic_load(&place->last_ns);

	while (ns > last && !atomic_compare_exchange_weak(&place->last_ns, &last, ns))
		;
}

void *timer__start(struct comm *comm, const void *descriptor)
{
	const char *d = descriptor;
	uint32_t channel = *(const uint8_t *)(d + ABI_CHANNEL), word;
	struct place *place;
	uint64_t ns;
	void *parent;

	memcpy(&parent, d + ABI_PARENT, sizeof(parent));
	memcpy(&ns, d + comm->abi->channel_timer, sizeof(ns));
	atomic_store_explicit(&comm->has_channels, true, memory_order_relaxed);
	if (!parent) /* of an operation that found no place, which is counted */
		return NULL;
	place = place__get(parent, TOKEN_OPERATION, &word);
	if (!place) {
		comm__lost(comm, NBP_LOSS_STALE);
		return NULL;
	}
	if (channel >= N_CHANNELS ||
	    atomic_fetch_or(&place->started, 1ULL << channel) >> channel & 1) {
		comm__lost(comm, NBP_LOSS_BAD_CALLBACK);
		return NULL;
	}
	if (ns)
		first__lower(place, ns);
	else
		atomic_fetch_or(&place->untimed, 1ULL << channel);
	atomic_store(&place->seen_ns, now_ns());
	return place__token(place, TOKEN_CHANNEL, word >> 2, channel);
}

bool timer__record(const struct abi_version *v, void *handle, int state, const void *arguments)
{
	uint32_t channel = token__channel(handle), word;
	struct place *place = place__get(handle, TOKEN_CHANNEL, &word);
	uint64_t ns;

	if (!place || v->channel_timer < 0 || state != ABI_KERNEL_CH_STOP || !arguments)
		return false;
	memcpy(&ns, arguments, sizeof(ns));
	if ((atomic_load(&place->stopped) | atomic_fetch_or(&place->recorded, 1ULL << channel)) >>
		    channel &
	    1)
		return false; /* twice, or after its stop */
	if (ns)
		last__raise(place, ns);
	else
		atomic_fetch_or(&place->untimed, 1ULL << channel);
	atomic_store(&place->seen_ns, now_ns());
	return true;
}

bool timer__stop(void *handle)
{
	uint32_t channel = token__channel(handle), word;
	struct place *place = place__get(handle, TOKEN_OPERATION, &word);

	if (place) {
		if (atomic_exchange(&place->over, true))
			return false;
	} else {
		place = place__get(handle, TOKEN_CHANNEL, &word);
		if (!place || atomic_fetch_or(&place->stopped, 1ULL << channel) >> channel & 1)
			return false;
	}
	place__may_close(place, word);
	return true;
}

/* ---- the plugin's thread ---- */

static void place__look(struct place *place, uint64_t now)
{
	uint32_t word = atomic_load_explicit(&place->word, memory_order_acquire);
	uint64_t seen = atomic_load(&place->seen_ns), started = atomic_load(&place->started);

	if ((word & 3) != PLACE_LIVE || now < seen)
		return;
	if (now - seen > GIVE_UP_NS ||
	    (now - seen > SETTLED_NS && started && started == atomic_load(&place->stopped) &&
	     atomic_load(&place->over)) ||
	    !comm__get(place->context))
		place__close(place, word);
}

void timer__look(uint64_t now)
{
	static uint64_t scanned_ns;

	if (now - scanned_ns < SCAN_NS || !atomic_load_explicit(&hint, memory_order_relaxed))
		return;
	scanned_ns = now;
	for (uint32_t i = 0; i < N_PLACES; i++)
		place__look(&places[i], now);
}
