/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process with threads that call, probes that come and go, a plugin that hands over batches, the
 * ring between, and an agent that reads it: a schedule by chance, and the truth beside it.
 */
#ifndef HANDOVER_MODEL_H
#define HANDOVER_MODEL_H

#include <stdlib.h>

#include "handover.h"
#include "util.h"

#define MODEL_TGID    4242u
#define MODEL_THREADS 4
#define MODEL_COMMS   3
#define MODEL_RECORDS (1 << 18)
#define MODEL_NS      (30 * NSEC_PER_SEC)
#define MS	      NSEC_PER_MSEC

/* Of 1000 records, in a burst of losses. */
struct model_losses {
	unsigned int probe, plugin, unseen;
	bool stalls; /* the agent reads late */
};

struct model_note {
	uint64_t time_ns, count;
	int function;
	bool probe_lost;
};

struct model_counter {
	uint64_t calls, bytes, lost, lost_empty; /* the kernel's */
	uint64_t lost_ns;			 /* the last call of those */
	uint64_t made, made_bytes;		 /* the truth */
	struct nbp_count told;			 /* the plugin's sums */
};

struct model_comm {
	struct model_counter counters[NBP_N_COUNTED];
	struct model_note *notes;
	unsigned int n_notes;
	bool changed;
	uint64_t announced_ns;
	uint64_t unseen;
};

struct model_record {
	bool is_plugin;
	union {
		struct nb_record probe;
		struct nbp_record plugin;
	};
};

struct model_thread {
	uint64_t next_ns; /* the next call */
	/* the one under way */
	bool calling, probed, probe_lost;
	uint64_t called_ns, tell_ns, done_ns;
	int comm, function;
	uint64_t count;
};

struct model {
	struct handovers *handovers;
	struct model_losses losses;
	uint64_t random;
	uint64_t now;
	unsigned int n_threads, n_comms;
	unsigned int rate_us; /* between calls of one thread */
	struct model_thread threads[MODEL_THREADS];
	struct model_comm comms[MODEL_COMMS];
	struct model_record *ring;
	unsigned int n_ring;
	bool probes;
	uint64_t probes_off_ns, probes_on_ns; /* when they will; 0: no change is due */
	uint64_t round_ns, tick_ns, reading_ns;
	uint64_t burst_ns; /* when the next burst of losses begins, or this one began */
	uint64_t back_since_ns;
	uint64_t published[MODEL_COMMS][NBP_N_COUNTED];
	uint64_t n_calls, n_unprobed, n_periods;
	uint64_t n_doubtful; /* calls whose records were both lost, or one on the threshold */
};

static uint32_t model__random(struct model *m, uint32_t below)
{
	m->random = m->random * 6364136223846793005ULL + 1442695040888963407ULL;
	return below ? (uint32_t)(m->random >> 33) % below : 0;
}

static bool model__chance(struct model *m, unsigned int of_1000)
{
	return model__random(m, 1000) < of_1000;
}

/* In bursts: a ring is full for a while, and then it is not. */
static bool model__loses(struct model *m, unsigned int of_1000)
{
	if (m->now > m->burst_ns + 200 * MS)
		m->burst_ns = m->now + model__random(m, 8000) * MS;
	return of_1000 && m->now >= m->burst_ns && model__chance(m, of_1000);
}

static void model__init(struct model *m, uint32_t seed, const struct model_losses *losses)
{
	static const unsigned int rates[] = {4000, 20000, 100000, 500};
	/* one model lives at a time; anew for each, this memory would take longer than all else */
	static struct model_record ring[MODEL_RECORDS];
	static struct model_note notes[MODEL_COMMS][MODEL_RECORDS];

	memset(m, 0, sizeof(*m));
	CHECK(!handovers__new(&m->handovers, 2 * NSEC_PER_SEC));
	m->losses = *losses;
	m->random = seed * 0x9e3779b97f4a7c15ULL + 1;
	m->now = 1000 * NSEC_PER_SEC;
	m->n_threads = 1 + model__random(m, MODEL_THREADS);
	m->n_comms = 1 + model__random(m, MODEL_COMMS);
	m->rate_us = rates[model__random(m, 40) ? model__random(m, 3) : 3];
	m->ring = ring;
	for (unsigned int i = 0; i < m->n_comms; i++)
		m->comms[i].notes = notes[i];
	m->probes = true;
}

static void model__free(struct model *m)
{
	handovers__free(m->handovers);
}

static uint64_t model__hash(int comm)
{
	return 0xc000 + comm;
}

/* ---- the job ---- */

static void thread__tell(struct model *m, struct model_thread *t)
{
	struct model_comm *comm = &m->comms[t->comm];
	struct model_counter *c = &comm->counters[t->function];

	if (!t->count)
		return;
	if (model__loses(m, m->losses.unseen)) {
		c->told.calls++;
		c->told.bytes += 4 * t->count;
		comm->unseen++;
		comm->changed = true;
		m->n_doubtful += t->probe_lost;
		return;
	}
	comm->notes[comm->n_notes++] =
		(struct model_note){m->now, t->count, t->function, t->probe_lost};
}

static void thread__probe(struct model *m, struct model_thread *t)
{
	static const int functions[] = {NCCL_FN_Broadcast, NCCL_FN_Reduce, NCCL_FN_AllGather,
					NCCL_FN_ReduceScatter, NCCL_FN_AllReduce};
	struct model_counter *c = &m->comms[t->comm].counters[t->function];

	c->calls++;
	c->bytes += 4 * t->count;
	t->probe_lost = model__loses(m, m->losses.probe);
	if (t->probe_lost) {
		c->lost++;
		c->lost_ns = m->now;
		c->lost_empty += !t->count;
		return;
	}
	m->ring[m->n_ring++] = (struct model_record){
		.probe =
			{
				.kind = NB_KIND_CALL,
				.tgid = MODEL_TGID,
				.time_ns = m->now - model__random(m, 50),
				.function = functions[t->function],
				.comm_hash = model__hash(t->comm),
				.rank = 1,
				.n_ranks = 4,
				.count = t->count,
				.datatype = 7,
			},
	};
}

static void thread__call(struct model *m, struct model_thread *t)
{
	struct model_counter *c;

	t->calling = true;
	t->called_ns = m->now;
	t->comm = model__random(m, m->n_comms);
	t->function = model__random(m, 3) ? NBP_ALLREDUCE : model__random(m, NBP_N_COUNTED);
	t->count = model__random(m, 50) ? 1 + model__random(m, 3) : 0;
	t->tell_ns = m->now + 200 + model__random(m, model__random(m, 20) ? 3000 : 3000000);
	t->done_ns = t->tell_ns + 200 + model__random(m, 20000);
	t->probed = m->probes;
	t->probe_lost = false;
	c = &m->comms[t->comm].counters[t->function];
	m->n_calls++;
	if (m->probes)
		thread__probe(m, t);
	else if (t->count)
		m->n_unprobed++;
	if (m->probes || t->count) { /* else nobody can know */
		c->made++;
		c->made_bytes += 4 * t->count;
	}
}

static uint64_t thread__next_ns(const struct model_thread *t)
{
	return !t->calling ? t->next_ns : t->tell_ns ? t->tell_ns : t->done_ns;
}

static void thread__step(struct model *m, struct model_thread *t)
{
	if (!t->calling) {
		thread__call(m, t);
	} else if (t->tell_ns) {
		thread__tell(m, t);
		t->tell_ns = 0;
	} else {
		t->calling = false;
		t->next_ns = m->now + 500 +
			     (uint64_t)model__random(m, 2 * m->rate_us) *
				     (model__random(m, 200) ? 1000 : 20000);
	}
}

/* ---- the plugin ---- */

static void plugin__send(struct model *m, int comm, struct nbp_record *r)
{
	r->size = sizeof(*r);
	r->comm_id = comm + 1;
	r->comm_hash = model__hash(comm);
	r->rank = 1;
	r->n_ranks = 4;
	m->ring[m->n_ring++] = (struct model_record){.is_plugin = true, .plugin = *r};
}

static void plugin__note(struct model *m, int i, const struct model_note *note)
{
	struct nbp_record r = {
		.kind = NBP_KIND_API,
		.time_ns = note->time_ns,
		.api = {.count = note->count, .function = note->function, .datatype = 7},
	};
	struct nbp_count *told = &m->comms[i].counters[note->function].told;

	told->calls++;
	told->bytes += 4 * note->count;
	m->comms[i].changed = true;
	if (!model__loses(m, m->losses.plugin))
		plugin__send(m, i, &r);
	else
		m->n_doubtful += note->probe_lost;
}

static void plugin__sums(struct model *m, int i)
{
	struct nbp_record r = {.kind = NBP_KIND_COUNTS, .time_ns = m->now};

	for (int k = 0; k < NBP_N_COUNTED; k++)
		r.counts.function[k] = m->comms[i].counters[k].told;
	if (!model__loses(m, m->losses.plugin))
		plugin__send(m, i, &r);
	m->comms[i].changed = false;
}

static void plugin__round(struct model *m)
{
	for (unsigned int i = 0; i < m->n_comms; i++) {
		struct model_comm *comm = &m->comms[i];

		if (!comm->announced_ns || m->now - comm->announced_ns > NSEC_PER_SEC) {
			struct nbp_record r = {
				.kind = NBP_KIND_COMM, .time_ns = m->now, .comm = {.abi = 5}};

			plugin__send(m, i, &r);
			comm->announced_ns = m->now;
			comm->changed = true;
		}
		for (unsigned int k = 0; k < comm->n_notes; k++)
			plugin__note(m, i, &comm->notes[k]);
		comm->n_notes = 0;
		if (comm->changed)
			plugin__sums(m, i);
	}
	m->round_ns = m->now + (5 + model__random(m, 16)) * MS;
}

/* ---- the agent ---- */

static void agent__consume(struct model *m)
{
	for (unsigned int i = 0; i < m->n_ring; i++) {
		const struct model_record *r = &m->ring[i];

		if (r->is_plugin)
			handovers__plugin_record(m->handovers, MODEL_TGID, &r->plugin, m->now);
		else
			handovers__probe_record(m->handovers, &r->probe);
	}
	m->n_ring = 0;
}

struct model_sums {
	struct model *model;
	uint64_t calls[MODEL_COMMS][NBP_N_COUNTED], bytes[MODEL_COMMS][NBP_N_COUNTED];
};

static bool take_sum(void *ctx, const struct handover_calls *calls)
{
	struct model_sums *sums = ctx;
	int comm = calls->comm_hash - model__hash(0);

	for (int i = 0; i < NBP_N_COUNTED; i++) {
		if (handover_operations[i] != calls->operation)
			continue;
		sums->calls[comm][i] += calls->calls;
		sums->bytes[comm][i] += calls->type_bytes;
	}
	return true;
}

static void agent__read(struct model *m, struct model_sums *sums)
{
	static const int functions[] = {NCCL_FN_Broadcast, NCCL_FN_Reduce, NCCL_FN_AllGather,
					NCCL_FN_ReduceScatter, NCCL_FN_AllReduce};

	*sums = (struct model_sums){.model = m};
	agent__consume(m);
	handovers__begin(m->handovers);
	for (unsigned int i = 0; i < m->n_comms; i++)
		for (int k = 0; k < NBP_N_COUNTED; k++) {
			const struct model_counter *c = &m->comms[i].counters[k];
			const struct nb_key key = {
				.comm_hash = model__hash(i),
				.tgid = MODEL_TGID,
				.rank = 1,
				.function = functions[k],
			};
			const struct nb_counter counter = {
				.launched.calls = c->calls,
				.lost = c->lost,
				.lost_empty = c->lost_empty,
			};

			handovers__count(m->handovers, &key, &counter);
			sums->calls[i][k] = c->calls;
			sums->bytes[i][k] = c->bytes;
		}
	handovers__end(m->handovers);
	handovers__each(m->handovers, take_sum, sums);
}

static void model__check_published(struct model *m, const struct model_sums *sums)
{
	uint64_t slack = handovers__uncertain(m->handovers) + m->n_doubtful;

	for (unsigned int i = 0; i < m->n_comms; i++)
		for (int k = 0; k < NBP_N_COUNTED; k++) {
			CHECK(sums->calls[i][k] >= m->published[i][k]);
			CHECK(sums->calls[i][k] <= m->comms[i].counters[k].made + slack);
			m->published[i][k] = sums->calls[i][k];
		}
}

/* Calls under way on the threshold cannot be told from others whose record was lost just then. */
static void model__threshold(struct model *m)
{
	for (unsigned int i = 0; i < m->n_threads; i++) {
		const struct model_thread *t = &m->threads[i];

		m->n_doubtful += t->calling &&
				 m->comms[t->comm].counters[t->function].lost_ns >= t->called_ns;
	}
}

static void agent__decide(struct model *m)
{
	struct handovers *h = m->handovers;

	if (!handovers__is_handed_over(h, MODEL_TGID)) {
		if (handovers__ready(h, MODEL_TGID, m->now)) {
			handovers__hand_over(h, MODEL_TGID, m->now);
			m->probes_off_ns = m->now + model__random(m, 200 * MS);
			m->n_periods++;
			model__threshold(m);
		}
	} else if (m->probes && !m->probes_off_ns && m->back_since_ns < m->now) {
		handovers__take_back(h, MODEL_TGID, m->now);
		model__threshold(m);
	} else if (!m->probes && !m->probes_on_ns &&
		   (model__chance(m, 200) || handovers__wants_back(h, MODEL_TGID, m->now))) {
		m->probes_on_ns = m->now + model__random(m, 200 * MS);
	}
}

static void agent__tick(struct model *m)
{
	struct model_sums sums;

	agent__consume(m);
	m->tick_ns = m->now + 100 * MS;
	if (m->losses.stalls && model__chance(m, 20))
		m->tick_ns += model__random(m, 3000) * MS;
	if (m->now < m->reading_ns)
		return;
	agent__read(m, &sums);
	model__check_published(m, &sums);
	agent__decide(m);
	m->reading_ns = m->now + (500 + model__random(m, 1000)) * MS;
}

/* ---- time ---- */

static void model__change_probes(struct model *m)
{
	if (m->probes_off_ns && m->now >= m->probes_off_ns) {
		m->probes = false;
		m->probes_off_ns = 0;
	}
	if (m->probes_on_ns && m->now >= m->probes_on_ns) {
		m->probes = true;
		m->probes_on_ns = 0;
		m->back_since_ns = m->now;
	}
}

static uint64_t model__next(const struct model *m, struct model_thread **ret, bool calls)
{
	uint64_t next = m->round_ns < m->tick_ns ? m->round_ns : m->tick_ns;

	*ret = NULL;
	if (m->probes_off_ns && m->probes_off_ns < next)
		next = m->probes_off_ns;
	if (m->probes_on_ns && m->probes_on_ns < next)
		next = m->probes_on_ns;
	for (unsigned int i = 0; i < m->n_threads; i++) {
		const struct model_thread *t = &m->threads[i];

		if ((!calls && !t->calling) || thread__next_ns(t) >= next)
			continue;
		next = thread__next_ns(t);
		*ret = (struct model_thread *)t;
	}
	return next;
}

static void model__until(struct model *m, uint64_t end, bool calls)
{
	while (m->now < end && !unit_n_failures) {
		struct model_thread *t;
		uint64_t next = model__next(m, &t, calls);

		m->now = next > m->now ? next : m->now;
		if (t)
			thread__step(m, t);
		else if (m->now >= m->round_ns)
			plugin__round(m);
		else if (m->now >= m->tick_ns)
			agent__tick(m);
		model__change_probes(m);
	}
}

/* The bytes of what was lost are those of the others. */
static void model__check_bytes(const struct model *m, const struct model_counter *c, uint64_t bytes)
{
	bool lossy = m->losses.probe || m->losses.plugin || m->losses.unseen;
	uint64_t off = bytes > c->made_bytes ? bytes - c->made_bytes : c->made_bytes - bytes;

	CHECK(off <= (lossy ? 400 + c->made_bytes / 50 : 0));
}

static void model__run(struct model *m)
{
	struct model_sums sums;
	uint64_t slack;

	model__until(m, m->now + MODEL_NS, true);
	model__until(m, m->now + 20 * NSEC_PER_SEC, false);
	agent__read(m, &sums);
	slack = handovers__uncertain(m->handovers) + m->n_doubtful;
	for (unsigned int i = 0; i < m->n_comms; i++)
		for (int k = 0; k < NBP_N_COUNTED; k++) {
			const struct model_counter *c = &m->comms[i].counters[k];
			int64_t off = (int64_t)(sums.calls[i][k] - c->made);

			CHECK(off <= (int64_t)slack && -off <= (int64_t)slack);
			model__check_bytes(m, c, sums.bytes[i][k]);
		}
}

#endif
