/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who comes last again and again, judged by host calls: whoever keeps its peers waiting for a share
 * of the time that matters, in nearly all of the recent slices, by more than chance does.
 */
#include "verdict_private.h"

#define MIN_STREAK_NS (4500 * NSEC_PER_MSEC)
#define MIN_FULL_NS   (8 * NSEC_PER_SEC)

/* The numbers since then, newest first. */
static struct points window__points(const struct window *w, const struct rank_set *blamed,
				    uint64_t since_ns)
{
	const struct late *late = w->late;
	struct points p = {};

	for (uint64_t k = 1; k <= late->n_numbers && k <= LATE_NUMBERS; k++) {
		const uint64_t *row = late->numbers + (late->n_numbers - k) % LATE_NUMBERS *
							      (size_t)late->n_columns;

		if (!points__add(&p, w->comm, row, blamed, since_ns))
			break;
	}
	return p;
}

/* It was late just now, and not only some time ago. */
static bool late__is_late_now(const struct late *late, const struct verdict_comm *comm,
			      uint32_t column, uint32_t n)
{
	struct window w = window__of(comm, late, 1);

	return window__count(&w, column, n < w.n ? n : w.n, 50) > 0;
}

/*
 * As long as it is late as it was when it was blamed, or nearly so. Where slices are taken
 * together, fewer of them are asked: they last long.
 */
static bool window__still_blames(const struct window *w, uint32_t column)
{
	uint32_t n = w->scale == 1 ? MIN_SLICES : w->scale == 2 ? 6 : 4;

	return w->scale == w->late->scale &&
	       window__share(w, column, n) >= 0.3 * w->late->blamed_share &&
	       late__is_late_now(w->late, w->comm, column, MIN_SLICES) &&
	       window__count(w, column, n, 50) >= n / 2;
}

static bool window__is_candidate(const struct window *w, uint32_t column)
{
	double waste;

	return window__streak(w, column) >= MIN_SLICES * 8 / 10 &&
	       window__count(w, column, MIN_SLICES, 100) >= MIN_SLICES * 8 / 10 &&
	       late__is_late_now(w->late, w->comm, column, w->scale + 1) &&
	       window__is_significant(w, column, &waste);
}

/*
 * The others wait for the last of those blamed, of whom this one is new? Noise may hide whether
 * others wait; then how the lateness varies from slice to slice tells. Of a random walk that is
 * buried in noise only time tells: it does not keep to one side.
 */
static bool window__is_proven(const struct window *w, const struct rank_set *blamed,
			      uint32_t column)
{
	uint32_t streak = window__streak(w, column);
	struct points p = window__points(w, blamed, window__start_ns(w, streak - 1));
	enum waited waited = points__waited(&p);
	double lateness_us[MAX_SLICES], ratio;

	if (since(late__last_slice(w->late)->end_ns, window__start_ns(w, streak - 1)) >=
		    MIN_FULL_NS &&
	    points__fill_time(&p))
		return true;
	if (waited == WAITED_YES || waited == WAITED_NO || streak < 20)
		return waited == WAITED_YES;
	window__lateness(w, column, streak, lateness_us);
	ratio = doubles__von_neumann(lateness_us, streak);
	if (waited == WAITED_MAYBE)
		return ratio >= (streak < 28 ? 1.4 : 1.2);
	return streak == MAX_SLICES && ratio >= 1.4;
}

/* A slice is to hold a step. Only where somebody is late is it worth looking. */
static void late__fit_slices(struct late *late, const struct verdict_comm *comm)
{
	struct window w = window__of(comm, late, 1);
	uint64_t limit_ns = window__duration_ns(&w, 0) / 50;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint32_t column = comm->members[i].column;
		struct rank_set own = {};
		struct points p;
		double step_ns;

		if (comm->members[i].has_left || window__waste_ns(&w, 0, column) < limit_ns)
			continue;
		rank_set__add(&own, column);
		p = window__points(&w, &own, 0);
		step_ns = points__step_ns(&p) * 0.9;
		late->slice_ns = step_ns > MIN_SLICE_NS && step_ns < 60.0 * NSEC_PER_SEC
					 ? step_ns
					 : MIN_SLICE_NS;
		return;
	}
}

/* Who is late in many of the last slices, or in some, be it for what it may. */
static void late__suspect(struct late *late, const struct verdict_comm *comm)
{
	struct window w = window__of(comm, late, 1);
	uint32_t n = w.n < MIN_SLICES ? w.n : MIN_SLICES;
	uint64_t waste_ns[MAX_MEMBERS] = {};
	uint8_t n_late[MAX_MEMBERS] = {};

	for (uint32_t k = 0; k < n; k++) {
		uint64_t limit_ns = window__limit_ns(&w, k) / 2;

		for (uint32_t c = 0; c < comm->n_columns; c++) {
			n_late[c] += window__waste_ns(&w, k, c) >= limit_ns;
			waste_ns[c] += window__waste_ns(&w, k, c);
		}
	}
	late->suspects = late->unpunctual = (struct rank_set){};
	for (uint32_t c = 0; c < comm->n_columns; c++) {
		if (n_late[c] * 10 >= n * 4)
			rank_set__add(&late->suspects, c);
		if (n_late[c] * 10 >= n * 2)
			rank_set__add(&late->unpunctual, c);
		late->shares[c] = (float)waste_ns[c] / later(since(late__last_slice(late)->end_ns,
								   window__start_ns(&w, n - 1)),
							     1);
	}
}

/* Who was blamed and still is, and who comes last as they do. */
static void window__sort(const struct window *w, struct rank_set *ret_held,
			 struct rank_set *ret_candidates)
{
	*ret_held = *ret_candidates = (struct rank_set){};
	for (uint32_t i = 0; i < w->comm->n_members; i++) {
		uint32_t column = w->comm->members[i].column;

		if (w->comm->members[i].has_left)
			continue;
		if (rank_set__has(&w->late->culprits, column)) {
			if (window__still_blames(w, column))
				rank_set__add(ret_held, column);
		} else if (window__is_candidate(w, column)) {
			rank_set__add(ret_candidates, column);
		}
	}
}

/* Several may be late together: then the others wait for the last of them; or only one is. */
static void window__prove(const struct window *w, struct rank_set *blamed,
			  const struct rank_set *candidates)
{
	struct rank_set together = *blamed;
	bool is_several = rank_set__count(candidates) > 1;

	rank_set__unite(&together, candidates);
	for (uint32_t c = 0; c < w->comm->n_columns; c++) {
		struct rank_set alone = *blamed;

		if (!rank_set__has(candidates, c))
			continue;
		rank_set__add(&alone, c);
		if (window__is_proven(w, &together, c) ||
		    (is_several && window__is_proven(w, &alone, c)))
			rank_set__add(blamed, c);
	}
}

static void late__note(struct late *late, const struct window *w, const struct rank_set *blamed)
{
	bool is_new = !rank_set__count(&late->culprits);

	for (uint32_t c = 0; c < w->comm->n_columns; c++) {
		uint64_t start_ns;

		if (!rank_set__has(blamed, c))
			continue;
		window__is_significant(w, c, &late->waste);
		late->share = (double)window__count(w, c, w->n, 100) / w->n;
		start_ns = window__start_ns(w, later(window__streak(w, c), 1) - 1);
		if (is_new && (!late->since_ns || start_ns < late->since_ns))
			late->since_ns = start_ns;
		if (late->scale)
			continue;
		late->scale = w->scale;
		late->blamed_share = window__share(w, c, MIN_SLICES);
	}
}

static void late__evaluate(struct late *late, const struct verdict_comm *comm)
{
	struct rank_set culprits = {};

	late__fit_slices(late, comm);
	late__suspect(late, comm);
	if (!rank_set__count(&late->culprits))
		late->since_ns = late->scale = 0;
	for (uint32_t scale = 1; scale <= LATE_SLICES / MIN_SLICES; scale *= 2) {
		struct window w = window__of(comm, late, scale);
		struct rank_set blamed, candidates;

		if (w.n < MIN_SLICES)
			break;
		if (since(late__last_slice(late)->end_ns, window__start_ns(&w, MIN_SLICES - 1)) <
		    MIN_STREAK_NS)
			continue;
		window__sort(&w, &blamed, &candidates);
		if (rank_set__count(&candidates))
			window__prove(&w, &blamed, &candidates);
		late__note(late, &w, &blamed);
		rank_set__unite(&culprits, &blamed);
	}
	late->culprits = culprits;
}

bool late__is_recent(const struct late *late, uint64_t now_ns)
{
	const struct slice *last;

	if (!late || late->n_slices < 3)
		return false;
	last = late__last_slice(late);
	return since(now_ns, last->end_ns) <= 3 * (last->end_ns - last->start_ns) + MIN_IDLE_NS;
}

bool verdict_comm__find_straggler(struct verdict_comm *comm, enum late_sight sight, uint64_t now_ns,
				  struct finding *ret)
{
	struct late *late = comm->late[sight];

	if (comm->n_living < 2 || !late__is_recent(late, now_ns))
		return false;
	if (late->n_evaluated != late->n_slices)
		late__evaluate(late, comm);
	late->n_evaluated = late->n_slices;
	*ret = (struct finding){
		.state = VERDICT_STRAGGLER,
		.cause = sight == LATE_ON_GPU ? VERDICT_LATE_ON_GPU : VERDICT_LATE,
		.since_ns = late->since_ns,
		.operation = NCCL_OP_MAX,
		.sequence = VERDICT_NO_SEQUENCE,
	};
	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct member *m = &comm->members[i];

		if (m->has_left)
			continue;
		if (!rank_set__has(&late->culprits, m->column)) {
			rank_set__add(&ret->waiting, i);
			continue;
		}
		rank_set__add(&ret->culprits, i);
		if (ret->operation == NCCL_OP_MAX) {
			ret->operation = m->late[sight].operation;
			ret->sequence = m->late[sight].sequence;
		}
	}
	return rank_set__count(&ret->culprits);
}
