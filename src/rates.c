/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "rates.h"

#include <errno.h>
#include <stdlib.h>

#include "util.h"

/* What one communicator's counters showed last. */
struct sighting {
	struct comm_key key;
	uint64_t calls[NCCL_OP_MAX], bytes[NCCL_OP_MAX];
	uint32_t known; /* bit per operation: its bytes were known */
	unsigned int round;
	struct rate rate, operations[NCCL_OP_MAX];
	UT_hash_handle hh;
};

struct rates {
	struct sighting *all;
	unsigned int round;
	uint64_t last_ns, received;
	struct rate total;
};

int rates__new(struct rates **ret, uint64_t start_ns)
{
	struct rates *rates = calloc(1, sizeof(*rates));

	if (!rates)
		return -ENOMEM;
	rates->last_ns = start_ns;
	*ret = rates;
	return 0;
}

static void rates__drop(struct rates *rates, struct sighting *s)
{
	HASH_DEL(rates->all, s);
	free(s);
}

void rates__free(struct rates *rates)
{
	if (!rates)
		return;
	while (rates->all)
		rates__drop(rates, rates->all);
	free(rates);
}

static struct sighting *rates__find(const struct rates *rates, const struct comm_key *key)
{
	struct sighting *s;

	HASH_FIND(hh, rates->all, key, sizeof(*key), s);
	return s;
}

/* One not met before had no calls at the last update: it starts from 0. */
static struct sighting *rates__sighting(struct rates *rates, const struct comm *comm)
{
	struct sighting *s = rates__find(rates, &comm->key);

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->key = comm->key;
	s->known = ~0U;
	HASH_ADD(hh, rates->all, key, sizeof(s->key), s);
	return s;
}

static double per_second(uint64_t now, uint64_t before, double seconds)
{
	return now > before && seconds > 0 ? (now - before) / seconds : 0;
}

/*
 * Bytes that became known at this moment, because the number of ranks did, have grown over a longer
 * time than this one.
 */
static void sighting__take_bytes(struct sighting *s, const struct comm *comm, double seconds)
{
	uint32_t known = 0;

	for (int i = 0; i < NCCL_OP_MAX; i++) {
		uint64_t bytes = 0, replayed = 0;

		s->operations[i].bytes = 0;
		if (!comm__bytes(comm, i, COMM_LAUNCHED, &bytes) ||
		    !comm__bytes(comm, i, COMM_REPLAYED, &replayed))
			continue;
		bytes += replayed;
		known |= 1U << i;
		if (s->known & 1U << i)
			s->operations[i].bytes = per_second(bytes, s->bytes[i], seconds);
		s->bytes[i] = bytes;
	}
	s->known = known;
}

static void sighting__take(struct sighting *s, const struct comm *comm, double seconds)
{
	sighting__take_bytes(s, comm, seconds);
	s->rate = (struct rate){};
	for (int i = 0; i < NCCL_OP_MAX; i++) {
		uint64_t calls = comm__ran(comm, i);

		s->operations[i].operations = per_second(calls, s->calls[i], seconds);
		s->calls[i] = calls;
		s->rate.operations += s->operations[i].operations;
		s->rate.bytes += s->operations[i].bytes;
	}
}

static void rates__forget_gone(struct rates *rates)
{
	struct sighting *s, *next;

	HASH_ITER(hh, rates->all, s, next)
	if (s->round != rates->round)
		rates__drop(rates, s);
}

int rates__update(struct rates *rates, struct comms *comms, uint64_t received, uint64_t now)
{
	double seconds = now > rates->last_ns ? (double)(now - rates->last_ns) / NSEC_PER_SEC : 0;
	int err = 0;

	rates->round++;
	rates->total = (struct rate){
		.records = per_second(received, rates->received, seconds),
	};
	for (struct comm *comm = comms__first(comms); comm; comm = comm->hh.next) {
		struct sighting *s = rates__sighting(rates, comm);

		if (!s) {
			err = -ENOMEM;
			continue;
		}
		s->round = rates->round;
		sighting__take(s, comm, seconds);
		rates->total.operations += s->rate.operations;
		rates->total.bytes += s->rate.bytes;
	}
	rates->received = received;
	rates->last_ns = now;
	rates__forget_gone(rates);
	return err;
}

struct rate rates__of(const struct rates *rates, const struct comm *comm)
{
	const struct sighting *s = rates__find(rates, &comm->key);

	return s ? s->rate : (struct rate){};
}

struct rate rates__of_operation(const struct rates *rates, const struct comm *comm,
				enum nccl_operation operation)
{
	const struct sighting *s = rates__find(rates, &comm->key);

	return s ? s->operations[operation] : (struct rate){};
}

struct rate rates__total(const struct rates *rates)
{
	return rates->total;
}
