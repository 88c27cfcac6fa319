/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The probes on collectives, which a process with an awake plugin can do without: see handover.h.
 * Each library has a link for all processes as long as nobody is handed over. Once somebody is,
 * each process that is not has a link of its own. Where the kernel cannot do that, the one link
 * goes when nobody needs it any more.
 */
#include "tracer_private.h"

#define READ_NS	   (500 * NSEC_PER_MSEC) /* between readings of the counters for this */
#define OVERLAP_NS (60 * NSEC_PER_SEC)	 /* a link that goes has gone by then */

/* ---- who needs which link ---- */

/* Nothing is to be done where no plugin is, and every file has its one link. */
static bool tracer__hands_over(const struct tracer *tracer)
{
	return tracer->options.handover_after_ns && probe__uses_multi(tracer->probe) &&
	       (handovers__any(tracer->handovers) || tracer->is_arranged || tracer->overlap_ns);
}

static bool library__can_hand_over(const struct library *library)
{
	return library->state == LIBRARY_TRACED && library->kind == IMAGE_NCCL && library->calls.n;
}

/* A child that was forked from a process with NCCL does not call it, unless it is seen to. */
static bool process__is_idle_copy(const struct process *process)
{
	return process->has_info && process->is_fork_copy && !process->has_called;
}

static bool process__is_probed(const struct tracer *tracer, const struct process *process)
{
	return !process->gone_ns && !process__is_idle_copy(process) &&
	       (process->wants_calls ||
		!handovers__is_handed_over(tracer->handovers, process->tgid));
}

/* It maps the library, and makes no use of it: told by NCCL's own list, and no creation since. */
static bool process__is_idle(const struct tracer *tracer, const struct process *process)
{
	return process->has_all && !process->has_called && !process->scans_left &&
	       !comms__any_of(tracer->comms, process->tgid);
}

static void tracer__count_calls(struct tracer *tracer)
{
	for (struct library *l = libraries__first(tracer->libraries); l; l = l->hh.next) {
		struct library_calls *c = &l->calls;

		c->n_handed_over = c->n_probed = c->n_uncovered = c->n_links = 0;
	}
	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next) {
		bool probed = process__is_probed(tracer, p);
		bool handed_over =
			!p->gone_ns && handovers__is_handed_over(tracer->handovers, p->tgid);
		bool idle = tracer->scoped_links != LINKS_FOR_ONE && process__is_idle(tracer, p);

		for (unsigned int i = 0; i < p->n_mappings; i++) {
			struct library_calls *c = &p->mappings[i].library->calls;

			c->n_handed_over += handed_over;
			c->n_probed += probed && !idle;
			c->n_uncovered += probed && p->mappings[i].link < 0;
			c->n_links += p->mappings[i].link >= 0;
		}
	}
}

/* Two links may see one call from before the one is made until after the other has gone. */
static void tracer__overlap(struct tracer *tracer, uint64_t now)
{
	tracer->overlap_ns = now;
	probe__overlap_links(tracer->probe, true);
}

static void library__scope(struct tracer *tracer, struct library *library, uint64_t now)
{
	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next) {
		struct process_mapping *m = process__mapping_of(p, library);

		if (!m)
			continue;
		if (!process__is_probed(tracer, p)) {
			tracer__close(tracer, &m->link);
		} else if (m->link < 0 && !m->asked && library->calls.retry_ns <= now) {
			tracer__overlap(tracer, now);
			tracer__ask_calls(tracer, library, m, p->tgid);
		}
	}
}

static void library__unscope(struct tracer *tracer, struct library *library)
{
	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next) {
		struct process_mapping *m = process__mapping_of(p, library);

		if (m)
			tracer__close(tracer, &m->link);
	}
}

/* The new link first, and then the old one goes. */
static void library__arrange(struct tracer *tracer, struct library *library, uint64_t now)
{
	struct library_calls *c = &library->calls;
	bool scoped = tracer->scoped_links == LINKS_FOR_ONE && !c->unscoped;
	bool for_all = !c->n_handed_over || (!scoped && c->n_probed);

	if (for_all && c->link < 0 && !c->asked && c->retry_ns <= now) {
		tracer__overlap(tracer, now);
		tracer__ask_calls(tracer, library, NULL, 0);
	} else if (for_all && c->link >= 0 && c->n_links) {
		tracer__overlap(tracer, now);
		library__unscope(tracer, library);
	} else if (!for_all && scoped) {
		library__scope(tracer, library, now);
		if (c->link >= 0 && !c->n_uncovered) {
			tracer__overlap(tracer, now);
			tracer__close(tracer, &c->link);
		}
	} else if (!for_all) {
		tracer__close(tracer, &c->link);
	}
}

static bool mapping__is_covered(const struct process_mapping *m)
{
	return !library__can_hand_over(m->library) || m->link >= 0 || m->library->calls.link >= 0;
}

/*
 * When the last link was made that a process of ours needs and had not from the first: we may hear
 * of both much later. 0: it had them all.
 */
static uint64_t process__probed_ns(const struct process *process)
{
	uint64_t last_ns = 0;

	for (unsigned int i = 0; i < process->n_mappings; i++) {
		const struct process_mapping *m = &process->mappings[i];
		uint64_t ns = m->link >= 0 ? m->link_ns : m->library->calls.link_ns;

		if (library__can_hand_over(m->library) && ns >= m->since_ns && ns > last_ns)
			last_ns = ns;
	}
	return last_ns;
}

/* Since when do probes see all its calls? Those made before cannot be told to be all. */
static void process__note_cover(struct tracer *tracer, struct process *process, uint64_t now)
{
	uint64_t probed_ns = process__probed_ns(process);
	bool covered = true;

	for (unsigned int i = 0; i < process->n_mappings; i++)
		covered &= mapping__is_covered(&process->mappings[i]);
	if (!covered && process__is_probed(tracer, process))
		process->is_undated |= !handovers__is_handed_over(tracer->handovers, process->tgid);
	if (covered && !process->covered_ns) {
		process->covered_ns = now;
		if (process->wants_calls)
			probe__set_unprobed(tracer->probe, process->tgid, false);
		if (process->is_undated && probed_ns)
			comms__probed_since(tracer->comms, process->tgid, probed_ns);
		process->is_undated = false;
	}
	if (!covered)
		process->covered_ns = 0;
}

void tracer__arrange_calls(struct tracer *tracer, uint64_t now)
{
	struct library *library;

	if (!tracer__hands_over(tracer))
		return;
	tracer__count_calls(tracer);
	tracer->is_arranged = false;
	for (library = libraries__first(tracer->libraries); library; library = library->hh.next) {
		if (!library__can_hand_over(library))
			continue;
		library__arrange(tracer, library, now);
		tracer->is_arranged |= library->calls.link < 0 || library->calls.n_links;
	}
	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next)
		if (!p->gone_ns)
			process__note_cover(tracer, p, now);
	if (tracer->overlap_ns && now > tracer->overlap_ns + OVERLAP_NS) {
		tracer->overlap_ns = 0;
		probe__overlap_links(tracer->probe, false);
	}
}

/* ---- who is handed over ---- */

static bool process__libraries_fit(const struct process *process)
{
	bool any = false;

	for (unsigned int i = 0; i < process->n_mappings; i++) {
		const struct library *library = process->mappings[i].library;

		if (!library__may_be_nccl(library))
			continue;
		if (!library__can_hand_over(library))
			return false;
		any = true;
	}
	return any;
}

/* Nothing is known of it but what its plugin tells, or its plugin tells of it, too. */
static bool tracer__plugin_knows_all(const struct tracer *tracer, uint32_t tgid)
{
	for (const struct comm *c = comms__first(tracer->comms); c; c = c->hh.next) {
		if (c->key.tgid != tgid || c->dead_ns || !c->key.address)
			continue;
		if (!handovers__knows(tracer->handovers, tgid, c->key.hash, c->key.rank))
			return false;
	}
	return true;
}

static bool tracer__may_hand_over(const struct tracer *tracer, const struct process *p,
				  uint64_t now)
{
	return !p->gone_ns && !p->captures && p->covered_ns &&
	       handovers__ready(tracer->handovers, p->tgid, now) && process__libraries_fit(p) &&
	       tracer__plugin_knows_all(tracer, p->tgid);
}

static bool tracer__may_take_back(const struct process *p)
{
	return !p->gone_ns && p->wants_calls && p->covered_ns;
}

void tracer__decide_handovers(struct tracer *tracer, uint64_t read_ns)
{
	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next) {
		if (tracer__may_take_back(p) && p->covered_ns < read_ns) {
			handovers__take_back(tracer->handovers, p->tgid, read_ns);
			probe__set_unprobed(tracer->probe, p->tgid, false);
			p->wants_calls = false;
		} else if (tracer__may_hand_over(tracer, p, read_ns) && p->covered_ns < read_ns &&
			   tracer->scoped_links >= LINKS_FOR_ALL) {
			handovers__hand_over(tracer->handovers, p->tgid, read_ns);
			probe__set_unprobed(tracer->probe, p->tgid, true);
		}
	}
	tracer__arrange_calls(tracer, now_ns());
}

static void on_lost_counter(void *ctx, const struct nb_key *key, const struct nb_counter *counter)
{
	struct tracer *tracer = ctx;

	handovers__count(tracer->handovers, key, counter);
}

static void tracer__read_lost(struct tracer *tracer)
{
	uint64_t now = now_ns();

	probe__consume(tracer->probe);
	handovers__begin(tracer->handovers);
	if (probe__read_counters(tracer->probe, on_lost_counter, tracer))
		return;
	handovers__end(tracer->handovers);
	tracer->lost_read_ns = now;
	tracer__decide_handovers(tracer, now);
}

/* Again, if it is handed over. */
static bool process__must_be_probed(const struct tracer *tracer, struct process *p, uint64_t now)
{
	if (!handovers__is_handed_over(tracer->handovers, p->tgid))
		return false;
	p->captures |= probe__captures_unprobed(tracer->probe, p->tgid);
	return p->captures || handovers__wants_back(tracer->handovers, p->tgid, now);
}

void tracer__serve_handovers(struct tracer *tracer, uint64_t now)
{
	bool due = false;

	if (!tracer__hands_over(tracer))
		return;
	for (struct process *p = processes__first(tracer->processes); p; p = p->hh.next) {
		bool ready = tracer__may_hand_over(tracer, p, now);

		if (ready)
			tracer__try_links(tracer);
		if (!p->gone_ns && process__must_be_probed(tracer, p, now))
			p->wants_calls = true;
		due |= (ready && tracer->scoped_links >= LINKS_FOR_ALL) || tracer__may_take_back(p);
	}
	tracer__arrange_calls(tracer, now);
	if (due && now > tracer->lost_read_ns + READ_NS)
		tracer__read_lost(tracer);
}

bool tracer__is_handed_over(const struct tracer *tracer, uint32_t tgid)
{
	return handovers__is_handed_over(tracer->handovers, tgid);
}

bool tracer__take_unprobed(void *ctx, const struct handover_calls *c)
{
	const struct comm_calls calls = {
		.tgid = c->tgid,
		.rank = c->rank,
		.n_ranks = c->n_ranks,
		.hash = c->comm_hash,
		.operation = c->operation,
		.launched = {.calls = c->calls, .type_bytes = c->type_bytes},
		.captured = {.calls = c->captured, .type_bytes = c->captured_bytes},
		.last_ns = c->last_ns,
		.last_count = c->last_count,
		.sequence = c->sequence,
		.last_datatype = c->last_datatype,
		.last_root = c->last_root,
	};
	struct tracer *tracer = ctx;

	return comms__add_calls(tracer->comms, &calls, c->is_new) != NULL;
}
