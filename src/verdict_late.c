/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who comes last again and again: what is gathered. Lateness counts from the lower median of the
 * arrivals, so that several late ranks do not hide one another. Only the first number after a pause
 * carries it where ranks wait for one another; where hosts run ahead, all numbers of a burst carry
 * the same. So overlapping numbers are one burst, late by the most that any of them was.
 */
#include <stdlib.h>
#include <string.h>

#include "verdict_private.h"

static uint32_t late__cells(uint32_t n_columns)
{
	return sizeof(struct late) / 8 + n_columns * (LATE_NUMBERS + LATE_SLICES * 3 / 2 + 2);
}

void verdict_comm__free_late(struct verdict_comm *comm, enum late_sight sight)
{
	struct late *late = comm->late[sight];

	if (!late)
		return;
	verdict_comm__discharge(comm, late__cells(late->n_columns));
	free(late->numbers);
	free(late->burst_us);
	free(late->waste_us);
	free(late->late_us);
	free(late->shares);
	free(late);
	comm->late[sight] = NULL;
}

void verdict_comm__fit_late(struct verdict_comm *comm)
{
	for (enum late_sight sight = 0; sight < LATE_SIGHTS; sight++) {
		const struct late *late = comm->late[sight];

		if (late && late->n_columns < comm->n_columns)
			verdict_comm__free_late(comm, sight);
	}
	if (comm->timed && comm->timed->n_columns < comm->n_columns)
		verdict_comm__free_timed(comm);
}

static struct late *verdict_comm__make_late(struct verdict_comm *comm, enum late_sight sight)
{
	uint32_t n = comm->room;
	struct late *late;

	if (!verdict_comm__charge(comm, late__cells(n)))
		return NULL;
	late = calloc(1, sizeof(*late));
	if (!late) {
		verdict_comm__discharge(comm, late__cells(n));
		return NULL;
	}
	late->n_columns = n;
	late->slice_ns = MIN_SLICE_NS;
	comm->late[sight] = late;
	late->numbers = calloc((size_t)n * LATE_NUMBERS, sizeof(*late->numbers));
	late->burst_us = calloc(n, sizeof(*late->burst_us));
	late->waste_us = calloc((size_t)n * LATE_SLICES, sizeof(*late->waste_us));
	late->late_us = calloc((size_t)n * LATE_SLICES, sizeof(*late->late_us));
	late->shares = calloc(n, sizeof(*late->shares));
	if (!late->numbers || !late->burst_us || !late->waste_us || !late->late_us || !late->shares)
		verdict_comm__free_late(comm, sight);
	return comm->late[sight];
}

static void late__close_slice(struct late *late, uint64_t end_ns)
{
	struct slice *slice = &late->slices[late->n_slices % LATE_SLICES];
	size_t next;

	slice->end_ns = end_ns;
	late->n_slices++;
	late->slices[late->n_slices % LATE_SLICES] = (struct slice){.start_ns = end_ns};
	next = late->n_slices % LATE_SLICES * (size_t)late->n_columns;
	memset(late->waste_us + next, 0, late->n_columns * sizeof(*late->waste_us));
	memset(late->late_us + next, 0, late->n_columns * sizeof(*late->late_us));
}

static void late__close_burst(struct late *late)
{
	uint32_t *waste = late->waste_us + late->n_slices % LATE_SLICES * (size_t)late->n_columns;

	for (uint32_t c = 0; c < late->n_columns; c++) {
		uint64_t sum = (uint64_t)waste[c] + late->burst_us[c];

		waste[c] = sum > ~0U ? ~0U : sum;
		late->burst_us[c] = 0;
	}
}

static void late__open_burst(struct late *late, const struct meeting *meeting)
{
	struct slice *slice = &late->slices[late->n_slices % LATE_SLICES];

	late->start_ns = meeting->first_ns;
	late->end_ns = meeting->last_ns;
	if (!slice->start_ns)
		slice->start_ns = meeting->first_ns;
	else if (since(meeting->first_ns, slice->start_ns) >= late->slice_ns)
		late__close_slice(late, meeting->first_ns);
}

static void late__add_number(struct late *late, const struct verdict_comm *comm,
			     const struct meeting *meeting)
{
	uint64_t *row = late->numbers + late->n_numbers++ % LATE_NUMBERS * (size_t)late->n_columns;

	uint64_t *sum_us = late->late_us + late->n_slices % LATE_SLICES * (size_t)late->n_columns;

	memset(row, 0, late->n_columns * sizeof(*row));
	late->slices[late->n_slices % LATE_SLICES].n_numbers++;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint32_t column = comm->members[i].column;

		row[column] = meeting->times_ns[i];
		if (meeting->times_ns[i])
			sum_us[column] += (meeting->times_ns[i] - meeting->first_ns) / 1000;
	}
}

static uint64_t meeting__median_ns(const struct meeting *meeting, uint32_t n_members)
{
	double times[MAX_MEMBERS];
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_members; i++) {
		if (meeting->times_ns[i])
			times[n++] = meeting->times_ns[i];
	}
	return doubles__nth(times, n, (n - 1) / 2);
}

static void late__take(struct late *late, const struct verdict_comm *comm,
		       const struct meeting *meeting)
{
	uint64_t median_ns = meeting__median_ns(meeting, comm->n_members);

	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint32_t *burst_us = &late->burst_us[comm->members[i].column];
		uint64_t late_us = since(meeting->times_ns[i], median_ns) / 1000;

		if (late_us < LATE_NS / 1000)
			continue;
		late_us *= meeting->weight;
		if (late_us > *burst_us)
			*burst_us = late_us > ~0U ? ~0U : late_us;
	}
}

void verdict_comm__gather_lateness(struct verdict_comm *comm, enum late_sight sight,
				   const struct meeting *meeting)
{
	struct late *late = comm->late[sight];

	if (!late)
		late = verdict_comm__make_late(comm, sight);
	if (!late)
		return;
	if (late->end_ns && meeting->first_ns > late->end_ns)
		late__close_burst(late);
	if (!late->end_ns || meeting->first_ns > late->end_ns)
		late__open_burst(late, meeting);
	late->end_ns = later(late->end_ns, meeting->last_ns);
	late__add_number(late, comm, meeting);
	if (meeting->is_waited && meeting->last_ns - meeting->first_ns >= LATE_NS)
		late__take(late, comm, meeting);
}
