/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the judge finds, by communicator: state, lateness, errors, mismatches. */
#include "textfile_private.h"

void textfile_comm__judge(struct textfile_comm *row, struct watch *watch)
{
	const struct comm_key *key = &row->comm->key;
	const struct verdict_member member = {
		.hash = key->hash,
		.rank = key->rank,
		.n_ranks = row->comm->n_ranks,
		.tgid = key->tgid,
	};
	struct verdict_comm *comm = verdicts__find(watch__verdicts(watch), key->hash);

	/* Of two that claim one name, only one is judged. */
	if (!key->hash || row->comm->is_double || !comm)
		return;
	row->judged = verdicts__rank(watch__verdicts(watch), &member);
	row->state = verdict_comm__now(comm)->state;
	row->errors = watch__errors(watch, &member);
}

static bool row__has_left(const struct textfile_comm *row)
{
	return row->comm->shown_state >= 0 && row->comm->shown_state != (int)row->state;
}

void source__remember_states(const struct textfile_source *src)
{
	for (size_t i = 0; i < src->n_comms; i++) {
		const struct textfile_comm *row = &src->comms[i];

		row->comm->shown_state = row->judged && !row->is_left_out ? (int)row->state : -1;
	}
}

static uint64_t row__lateness_ns(const struct textfile_comm *row)
{
	uint64_t sum_ns = 0;

	for (int i = 0; i < NCCL_OP_MAX; i++)
		sum_ns += row->judged->lateness_total_ns[i];
	return sum_ns;
}

static uint64_t row__last_arrivals(const struct textfile_comm *row)
{
	uint64_t sum = 0;

	for (int i = 0; i < NCCL_OP_MAX; i++)
		sum += row->judged->last_arrivals[i];
	return sum;
}

unsigned int row__n_verdicts(const struct textfile_comm *row)
{
	unsigned int n = 1; /* the state that holds */

	if (!row->judged)
		return 0;
	n += row__has_left(row) + !!row__lateness_ns(row) + !!row__last_arrivals(row);
	for (int i = 0; i < VERDICT_MISMATCHES; i++)
		n += row->judged->mismatches[i] > 0;
	for (int i = 0; row->errors && i < WATCH_N_ERRORS; i++)
		n += row->errors[i] > 0;
	return n;
}

typedef void fill_row_fn(struct prom *prom, const struct textfile_comm *row, struct series *s);

static void fill_state(struct prom *prom, const struct textfile_comm *row, struct series *s)
{
	s->labels[4] = verdict_state__name(row->state);
	prom__sample_u64(prom, s->labels, 1);
	if (!row__has_left(row))
		return;
	s->labels[4] = verdict_state__name(row->comm->shown_state);
	prom__sample_u64(prom, s->labels, 0);
}

static void fill_lateness_sum(struct prom *prom, const struct textfile_comm *row, struct series *s)
{
	if (row__lateness_ns(row))
		prom__sample(prom, s->labels, row__lateness_ns(row) / 1e9);
}

static void fill_last_arrivals(struct prom *prom, const struct textfile_comm *row, struct series *s)
{
	if (row__last_arrivals(row))
		prom__sample_u64(prom, s->labels, row__last_arrivals(row));
}

static void fill_errors(struct prom *prom, const struct textfile_comm *row, struct series *s)
{
	for (int i = 0; row->errors && i < WATCH_N_ERRORS; i++) {
		s->labels[4] = watch_error__name(i);
		if (row->errors[i])
			prom__sample_u64(prom, s->labels, row->errors[i]);
	}
}

static void fill_mismatches(struct prom *prom, const struct textfile_comm *row, struct series *s)
{
	for (int i = 0; i < VERDICT_MISMATCHES; i++) {
		s->labels[4] = verdict_mismatch__name(i);
		if (row->judged->mismatches[i])
			prom__sample_u64(prom, s->labels, row->judged->mismatches[i]);
	}
}

void fill_verdicts(struct prom *prom, const struct textfile_source *src)
{
	static const struct {
		enum metric_id metric;
		fill_row_fn *fill;
	} families[] = {
		{METRIC_COMMUNICATOR_STATE, fill_state},
		{METRIC_LATENESS_TOTAL, fill_lateness_sum},
		{METRIC_LAST_ARRIVAL, fill_last_arrivals},
		{METRIC_ERRORS, fill_errors},
		{METRIC_MISMATCHES, fill_mismatches},
	};

	for (size_t j = 0; j < sizeof(families) / sizeof(families[0]); j++) {
		prom__begin(prom, families[j].metric);
		for (size_t i = 0; i < src->n_comms; i++) {
			const struct textfile_comm *row = &src->comms[i];
			struct series s;

			if (row->is_left_out || !row->judged)
				continue;
			series__of_comm(&s, prom, src, row);
			families[j].fill(prom, row, &s);
		}
	}
}
