/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known of GPUs, and what follows from it. */
#include <stdio.h>
#include <string.h>

#include "verdict_private.h"

static bool gpu__is_same(const struct verdict_gpu *a, const struct verdict_gpu *b)
{
	return a->n_in_flight && b->n_in_flight && a->launch_ns == b->launch_ns &&
	       a->operation == b->operation && a->sequence == b->sequence;
}

void verdicts__gpu(struct verdicts *verdicts, const struct verdict_member *member,
		   const struct verdict_gpu *gpu, uint64_t now_ns)
{
	struct verdict_comm *comm = verdicts__comm(verdicts, member->hash, member->n_ranks);
	int32_t i = comm ? verdict_comm__index(comm, member) : -1;
	struct member *m;

	if (i < 0 || comm->members[i].has_left)
		return;
	m = &comm->members[i];
	if (!gpu__is_same(gpu, &comm->ranks[i].gpu)) {
		m->gpu_since_ns = now_ns;
		m->gpu_started_ns = 0;
	}
	if (gpu->n_in_flight && gpu->started && !m->gpu_started_ns)
		m->gpu_started_ns = now_ns;
	comm->ranks[i].gpu = *gpu;
	comm->ranks[i].gpu_told_ns = now_ns;
}

void verdicts__timed(struct verdicts *verdicts, const struct verdict_timed *timed)
{
	verdicts__moved(verdicts, &timed->member, timed->gpu_start_ns);
}

/* Letters and digits are enough for NCCL's names; anything else is of no use to a reader. */
void verdicts__error(struct verdicts *verdicts, const struct verdict_member *member,
		     const char *result, uint64_t now_ns)
{
	struct verdict_comm *comm = verdicts__comm(verdicts, member->hash, member->n_ranks);
	int32_t i = comm ? verdict_comm__index(comm, member) : -1;
	struct member *m;
	size_t n = 0;

	if (i < 0)
		return;
	m = &comm->members[i];
	if (!m->error[0])
		m->error_ns = now_ns;
	for (; n < sizeof(m->error) - 1 && result[n]; n++) {
		char c = result[n] | 0x20;

		m->error[n] = (c >= 'a' && c <= 'z') || (result[n] >= '0' && result[n] <= '9')
				      ? result[n]
				      : '_';
	}
	m->error[n] = 0;
}

bool verdict_comm__find_on_gpu(struct verdict_comm *comm, uint64_t now_ns)
{
	struct finding f = {.operation = NCCL_OP_MAX, .sequence = VERDICT_NO_SEQUENCE};
	uint32_t n_flying = 0, n_started = 0, n_not_started = 0;
	uint64_t since_ns = 0;

	for (uint32_t i = 0; i < comm->n_members; i++) {
		const struct verdict_gpu *gpu = &comm->ranks[i].gpu;
		const struct member *m = &comm->members[i];

		if (m->has_left || !comm->ranks[i].gpu_told_ns || !gpu->n_in_flight)
			continue;
		n_flying++;
		f.operation = gpu->operation;
		f.sequence = gpu->sequence;
		if (m->gpu_since_ns > since_ns)
			since_ns = m->gpu_since_ns;
		if (gpu->started) {
			n_started++;
			rank_set__add(&f.waiting, i);
		} else if (gpu->start_known) {
			n_not_started++;
			rank_set__add(&f.culprits, i);
		}
	}
	if (!n_flying || since(now_ns, since_ns) < MIN_THRESHOLD_NS)
		return false;
	f.since_ns = since_ns;
	if (n_not_started && n_started)
		f.cause = VERDICT_GPU_NOT_STARTED;
	else if (n_started == comm->n_living && comm->n_living == (uint32_t)comm->n_ranks)
		f.cause = VERDICT_GPU_NOT_DONE;
	else if (n_started == comm->n_living)
		f.cause = VERDICT_ELSEWHERE;
	else
		return false;
	f.state = since(now_ns, since_ns) >= comm->owner->options.stuck_after_ns ? VERDICT_STUCK
										 : VERDICT_WAITING;
	comm->finding = f;
	return true;
}
