/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "sample.h"

#define REMEMBER_NS 250e6 /* a rate: some steps of a job */
#define LATELY_NS   10e9  /* what a rate falls from, in a job whose steps take seconds */

double rate__update(struct launch_rate *rate, uint64_t launches, uint64_t now)
{
	double ns = now - rate->since_ns, part = ns < REMEMBER_NS ? ns / REMEMBER_NS : 1;
	bool first = !rate->since_ns;

	if (!first && now > rate->since_ns) {
		rate->per_second +=
			part * ((launches - rate->launches) * 1e9 / ns - rate->per_second);
		rate->lately *= ns < LATELY_NS ? 1 - ns / LATELY_NS : 0;
	}
	if (rate->lately < rate->per_second)
		rate->lately = rate->per_second;
	rate->launches = launches;
	rate->since_ns = now;
	return rate->per_second;
}

uint32_t share__part(const struct share *share, double per_second)
{
	if (!share->settled || per_second <= share->most)
		return SAMPLE_ALL;
	return share->most / per_second * SAMPLE_ALL;
}

uint32_t share__of(struct share *share, double per_second)
{
	if (!share->settled)
		return SAMPLE_ALL;
	if (per_second <= share->most) {
		share->used += per_second;
		share->n_below++;
	} else {
		share->n_above++;
	}
	return share__part(share, per_second);
}

/*
 * What those below leave is for those above in equal parts. From an equal part for each on it only
 * rises, and ends where the room is used; a round in which it turns out too much begins again.
 */
void share__settle(struct share *share, double room)
{
	uint32_t n = share->n_below + share->n_above;
	double equal = room / (n ?: 1), most = room;

	if (share->n_above)
		most = (room - share->used) / share->n_above;
	else if (share->used > room)
		most = equal;
	share->most = most > equal ? most : equal;
	share->settled = true;
	share->used = 0;
	share->n_below = share->n_above = 0;
}
