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

#define SLICE_NS (NSEC_PER_SEC / 2)

static uint32_t late__cells(uint32_t n_columns)
{
	return sizeof(struct late) / 8 + n_columns * (LATE_BURSTS + LATE_SLICES / 2 + 1);
}

void verdict_comm__free_late(struct verdict_comm *comm)
{
	struct late *late = comm->late;

	if (!late)
		return;
	verdict_comm__discharge(comm, late__cells(late->n_columns));
	free(late->arrivals);
	free(late->burst_us);
	free(late->waste_us);
	free(late);
	comm->late = NULL;
}

static struct late *verdict_comm__make_late(struct verdict_comm *comm)
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
	comm->late = late;
	late->arrivals = calloc((size_t)n * LATE_BURSTS, sizeof(*late->arrivals));
	late->burst_us = calloc(n, sizeof(*late->burst_us));
	late->waste_us = calloc((size_t)n * LATE_SLICES, sizeof(*late->waste_us));
	if (!late->arrivals || !late->burst_us || !late->waste_us)
		verdict_comm__free_late(comm);
	return comm->late;
}

static void late__close_slice(struct late *late, uint64_t end_ns)
{
	struct slice *slice = &late->slices[late->n_slices % LATE_SLICES];
	uint32_t *next;

	slice->end_ns = end_ns;
	late->n_slices++;
	late->slices[late->n_slices % LATE_SLICES] = (struct slice){.start_ns = end_ns};
	next = late->waste_us + late->n_slices % LATE_SLICES * (size_t)late->n_columns;
	memset(next, 0, late->n_columns * sizeof(*next));
}

static void late__close_burst(struct late *late)
{
	uint32_t *waste = late->waste_us + late->n_slices % LATE_SLICES * (size_t)late->n_columns;

	for (uint32_t c = 0; c < late->n_columns; c++) {
		uint64_t sum = (uint64_t)waste[c] + late->burst_us[c];

		waste[c] = sum > ~0U ? ~0U : sum;
		late->burst_us[c] = 0;
	}
	late->n_bursts++;
}

/* The burst's first number: its arrivals are kept. */
static void late__open_burst(struct late *late, const struct verdict_comm *comm,
			     const struct track *track, const struct entry *entry)
{
	uint64_t *row = late->arrivals + late->n_bursts % LATE_BURSTS * (size_t)late->n_columns;
	struct slice *slice = &late->slices[late->n_slices % LATE_SLICES];

	memset(row, 0, late->n_columns * sizeof(*row));
	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint32_t column = comm->members[i].column;

		if (!comm->members[i].has_left)
			row[column] = ARRIVAL_TIME(*track__arrival(track, entry, column));
	}
	late->start_ns = entry->first_ns;
	late->end_ns = entry->last_ns;
	if (!slice->start_ns)
		slice->start_ns = entry->first_ns;
	else if (since(entry->first_ns, slice->start_ns) >= SLICE_NS)
		late__close_slice(late, entry->first_ns);
}

uint64_t select__nth(uint64_t *values, uint32_t n, uint32_t k)
{
	uint32_t low = 0, high = n - 1;

	while (low < high) {
		uint64_t pivot = values[(low + high) / 2];
		uint32_t i = low, j = high;

		while (i <= j) {
			uint64_t value;

			while (values[i] < pivot)
				i++;
			while (values[j] > pivot)
				j--;
			if (i > j)
				break;
			value = values[i];
			values[i++] = values[j];
			values[j] = value;
			if (!j)
				break;
			j--;
		}
		if (k <= j)
			high = j;
		else if (k >= i)
			low = i;
		else
			break;
	}
	return values[k];
}

static uint64_t verdict_comm__median_arrival(const struct verdict_comm *comm,
					     const struct track *track, const struct entry *entry)
{
	uint64_t times[MAX_MEMBERS];
	uint32_t n = 0;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!comm->members[i].has_left)
			times[n++] = ARRIVAL_TIME(
				*track__arrival(track, entry, comm->members[i].column));
	}
	return select__nth(times, n, (n - 1) / 2);
}

static void late__take(struct late *late, const struct verdict_comm *comm,
		       const struct track *track, const struct entry *entry)
{
	uint64_t median_ns = verdict_comm__median_arrival(comm, track, entry);

	for (uint32_t i = 0; i < comm->n_members; i++) {
		uint32_t column = comm->members[i].column;
		uint64_t late_ns;

		if (comm->members[i].has_left)
			continue;
		late_ns = since(ARRIVAL_TIME(*track__arrival(track, entry, column)), median_ns);
		if (late_ns < LATE_NS)
			continue;
		late_ns /= 1000;
		if (late_ns > late->burst_us[column])
			late->burst_us[column] = late_ns > ~0U ? ~0U : late_ns;
	}
}

void verdict_comm__gather_lateness(struct verdict_comm *comm, const struct track *track,
				   const struct entry *entry)
{
	struct late *late = comm->late;

	if (late && late->n_columns < comm->n_columns) {
		verdict_comm__free_late(comm);
		late = NULL;
	}
	if (!late)
		late = verdict_comm__make_late(comm);
	if (!late)
		return;
	if (late->end_ns && entry->first_ns > late->end_ns)
		late__close_burst(late);
	if (!late->end_ns || entry->first_ns > late->end_ns)
		late__open_burst(late, comm, track, entry);
	late->end_ns = later(late->end_ns, entry->last_ns);
	if (entry->last_ns - entry->first_ns >= LATE_NS)
		late__take(late, comm, track, entry);
}
