/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A training job in virtual time: hosts that call, GPUs that work, collectives that end when the
 * last rank's GPU has come. What it does follows from a seed and from the fault put into it; what
 * the judge is told of it, and when, is what a tracer would tell.
 */
#ifndef VERDICT_JOB_H
#define VERDICT_JOB_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define JOB_RANKS     64
#define JOB_GROUPS    (3 * JOB_RANKS)
#define JOB_POSITIONS 16
#define JOB_NEVER     (1ULL << 62)
#define JOB_START     (1000 * NSEC_PER_SEC)

/* ---- chance ---- */

static uint64_t job_seed;

static uint64_t rnd(void)
{
	uint64_t z = (job_seed += 0x9e3779b97f4a7c15ULL);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static double uniform(double low, double high)
{
	return low + (high - low) * (rnd() >> 11) / 9007199254740992.0;
}

static int among(int n)
{
	return rnd() % n;
}

static bool chance(double p)
{
	return uniform(0, 1) < p;
}

/* Of mean 0 and deviation 1, near enough. */
static double normal(void)
{
	double sum = -6;

	for (int i = 0; i < 12; i++)
		sum += uniform(0, 1);
	return sum;
}

/* ---- the job ---- */

enum job_host {
	HOST_SYNCHRONOUS, /* waits for every collective */
	HOST_STEPS,	  /* for the last one of a step */
	HOST_AHEAD,	  /* for the one `depth` calls ago */
	HOST_FREE,	  /* for none: ranks drift */
};

enum job_kind { KIND_WORLD, KIND_TENSOR, KIND_DATA, KINDS };

/* One collective of a step. */
struct job_position {
	enum job_kind kind;
	enum nccl_operation operation;
	double share; /* of the step's computing, before it */
	uint64_t count;
	uint32_t datatype, redop;
	int32_t root;
};

struct job_group {
	uint64_t hash;
	enum job_kind kind;
	int members[JOB_RANKS]; /* the job's ranks */
	int n, n_remote;
};

struct job_call {
	uint64_t time_ns, fed_ns;  /* JOB_NEVER: it does not come */
	uint64_t start_ns, end_ns; /* on the GPU */
	uint64_t sequence, count;
	size_t next; /* of the same rank in the same group: index + 1; 0: none */
	uint32_t group, member;
	enum nccl_operation operation;
	uint32_t datatype, redop;
	int32_t root;
};

enum fault {
	FAULT_NONE,
	FAULT_MISSING,	  /* a rank hangs on its host */
	FAULT_STOPPED,	  /* is stopped, and goes on later */
	FAULT_CHECKPOINT, /* rank 0 is half a minute late once */
	FAULT_GPU,	  /* its GPU spins before a collective */
	FAULT_LINK,	  /* all GPUs are in it and none gets done */
	FAULT_STRAGGLER,  /* computes longer at every step */
	FAULT_GPU_STRAGGLER,
	FAULT_COUNT,
	FAULT_DATATYPE,
	FAULT_REDOP,
	FAULT_ROOT,
	FAULT_ORDER, /* two collectives change places */
	FAULT_ABORT,
	FAULT_DIED,
	FAULT_EXIT, /* all processes end, some later */
	FAULT_DRIFT,
	FAULT_PAUSE,
	FAULTS,
};

struct job {
	enum fault fault;
	enum job_host host;
	int n, tensor, depth, n_positions, n_groups;
	struct job_position positions[JOB_POSITIONS];
	struct job_group groups[JOB_GROUPS];
	int group_of[KINDS][JOB_RANKS], member_of[KINDS][JOB_RANKS];
	double period_ns, jitter, skew_ns;
	bool computes_on_gpu;
	/* the fault */
	int culprit, fault_position;
	uint64_t fault_step, end_step, fault_ns, end_ns, extra_ns, until_ns;
	bool hangs;				     /* a mismatch does */
	double phase_ns[JOB_RANKS], wander_ns, pull; /* of ranks that drift */
	uint64_t n_steps;			     /* they all end after that */
	/* what came of it */
	struct job_call *calls;
	size_t n_calls, room;
	size_t first[JOB_GROUPS][JOB_RANKS], last[JOB_GROUPS][JOB_RANKS]; /* index + 1 */
	uint64_t host_ns[JOB_RANKS], gpu_ns[JOB_RANKS];
	uint64_t sequences[JOB_GROUPS][NCCL_OP_MAX];
	uint64_t ends[JOB_RANKS][64]; /* of the last calls */
	uint64_t n_made[JOB_RANKS];
};

static struct job_call *job_add(struct job *job)
{
	if (job->n_calls == job->room) {
		job->room = job->room ? 2 * job->room : 4096;
		job->calls = realloc(job->calls, job->room * sizeof(*job->calls));
	}
	return &job->calls[job->n_calls++];
}

/* Behind the other calls of that rank in that group. */
static void job_link(struct job *job, uint32_t g, uint32_t m)
{
	size_t *last = &job->last[g][m];

	if (*last)
		job->calls[*last - 1].next = job->n_calls;
	else
		job->first[g][m] = job->n_calls;
	*last = job->n_calls;
}

static uint64_t plus(uint64_t time_ns, double ns)
{
	return time_ns >= JOB_NEVER ? JOB_NEVER : time_ns + (ns > 0 ? (uint64_t)ns : 0);
}

static bool job_is_late(const struct job *job, int rank, uint64_t step)
{
	return rank == job->culprit && step >= job->fault_step && step < job->end_step;
}

/* What the rank computes before that collective. */
static void job_compute(struct job *job, int rank, uint64_t step, int p)
{
	double base = job->period_ns * job->positions[p].share, ns;

	if (job->host == HOST_FREE) {
		double *phase = &job->phase_ns[rank], before = *phase;

		*phase += job->wander_ns * normal() - job->pull * *phase;
		job->host_ns[rank] = plus(job->host_ns[rank], base + *phase - before);
		return;
	}
	ns = base * (1 + job->jitter * normal()) + uniform(0, job->skew_ns);
	if (job->computes_on_gpu) {
		uint64_t from = job->host_ns[rank] > job->gpu_ns[rank] ? job->host_ns[rank]
								       : job->gpu_ns[rank];

		job->gpu_ns[rank] = plus(from, ns);
		ns = ns / 10;
	}
	job->host_ns[rank] = plus(job->host_ns[rank], ns + uniform(2000, 20000));
	if (p == job->fault_position && job_is_late(job, rank, step)) {
		if (!job->fault_ns)
			job->fault_ns = job->host_ns[rank];
		if (job->fault == FAULT_STRAGGLER)
			job->host_ns[rank] =
				plus(job->host_ns[rank], job->extra_ns * (1 + 0.1 * normal()));
		if (job->fault == FAULT_GPU_STRAGGLER)
			job->gpu_ns[rank] = plus(later(job->gpu_ns[rank], job->host_ns[rank]),
						 job->extra_ns * (1 + 0.1 * normal()));
	}
}

/* The moments at which something happens once. */
static void job_strike(struct job *job, int rank, uint64_t step, int p)
{
	uint64_t *host_ns = &job->host_ns[rank];

	if (step != job->fault_step || p != job->fault_position)
		return;
	if (job->fault == FAULT_PAUSE)
		*host_ns = plus(*host_ns, job->extra_ns);
	if (rank != job->culprit)
		return;
	switch (job->fault) {
	case FAULT_MISSING:
	case FAULT_DIED:
	case FAULT_ABORT:
		job->fault_ns = *host_ns;
		*host_ns = JOB_NEVER;
		break;
	case FAULT_STOPPED:
	case FAULT_CHECKPOINT:
		job->fault_ns = *host_ns;
		*host_ns = plus(*host_ns, job->extra_ns);
		job->end_ns = *host_ns;
		break;
	case FAULT_GPU:
		job->fault_ns = *host_ns;
		job->gpu_ns[rank] = JOB_NEVER;
		break;
	default:
		break;
	}
}

static uint64_t job_host_waits(const struct job *job, int rank)
{
	uint64_t n = job->n_made[rank];

	return job->host == HOST_AHEAD && n >= (uint64_t)job->depth
		       ? job->ends[rank][(n - job->depth) % 64]
		       : 0;
}

static void call_take(struct job_call *call, const struct job_position *position)
{
	call->operation = position->operation;
	call->count = position->count;
	call->datatype = position->datatype;
	call->redop = position->redop;
	call->root = position->root;
}

static void job_distort(const struct job *job, struct job_call *call, int rank, uint64_t step,
			int p)
{
	const struct job_position *position = &job->positions[p];

	if (job->fault == FAULT_ORDER && job_is_late(job, rank, step)) {
		if (p == job->fault_position) {
			call_take(call, position + 1);
			call->sequence = job->sequences[call->group][call->operation] + 1;
		} else if (p == job->fault_position + 1) {
			call_take(call, position - 1);
			call->sequence = job->sequences[call->group][call->operation];
		}
		return;
	}
	if (!job_is_late(job, rank, step) || p != job->fault_position)
		return;
	if (job->fault == FAULT_COUNT)
		call->count *= 2;
	if (job->fault == FAULT_DATATYPE)
		call->datatype++;
	if (job->fault == FAULT_REDOP)
		call->redop++;
	if (job->fault == FAULT_ROOT)
		call->root++;
}

/* All ranks of a group call one collective. */
static void job_collective(struct job *job, int g, uint64_t step, int p)
{
	const struct job_group *group = &job->groups[g];
	const struct job_position *position = &job->positions[p];
	uint64_t last_ns = 0, sequence = ++job->sequences[g][position->operation], end_ns;
	size_t first = job->n_calls;
	bool is_struck = false;

	for (int m = 0; m < group->n; m++) {
		int rank = group->members[m];
		uint64_t waits_ns = job_host_waits(job, rank), start_ns;
		struct job_call *call;

		job_compute(job, rank, step, p);
		job_strike(job, rank, step, p);
		if (waits_ns > job->host_ns[rank])
			job->host_ns[rank] = waits_ns;
		is_struck |= rank == job->culprit;
		call = job_add(job);
		*call = (struct job_call){
			.time_ns = job->host_ns[rank],
			.sequence = sequence,
			.group = g,
			.member = m,
		};
		call_take(call, position);
		job_distort(job, call, rank, step, p);
		job_link(job, g, m);
		start_ns = plus(call->time_ns, uniform(8000, 15000));
		if (job->gpu_ns[rank] > start_ns)
			start_ns = job->gpu_ns[rank];
		call->start_ns = call->time_ns >= JOB_NEVER ? JOB_NEVER : start_ns;
		if (call->start_ns > last_ns)
			last_ns = call->start_ns;
	}
	end_ns = plus(last_ns, 30000 + position->count / 10.0);
	if (is_struck && step == job->fault_step && p == job->fault_position &&
	    (job->fault == FAULT_LINK || job->hangs)) {
		job->fault_ns = last_ns;
		end_ns = JOB_NEVER;
	}
	for (int m = 0; m < group->n; m++) {
		int rank = group->members[m];

		job->calls[first + m].end_ns = end_ns;
		job->gpu_ns[rank] = end_ns;
		job->ends[rank][job->n_made[rank]++ % 64] = end_ns;
		if (job->host == HOST_SYNCHRONOUS && end_ns > job->host_ns[rank])
			job->host_ns[rank] = end_ns;
	}
}

static void job_step(struct job *job, uint64_t step)
{
	for (int p = 0; p < job->n_positions; p++) {
		for (int g = 0; g < job->n_groups; g++) {
			if (job->groups[g].kind == job->positions[p].kind)
				job_collective(job, g, step, p);
		}
	}
	for (int rank = 0; rank < job->n && job->host == HOST_STEPS; rank++) {
		if (job->gpu_ns[rank] > job->host_ns[rank])
			job->host_ns[rank] = job->gpu_ns[rank];
	}
}

static void job_add_group(struct job *job, enum job_kind kind, int first, int stride, int n)
{
	struct job_group *group = &job->groups[job->n_groups];

	group->hash = rnd() | 1;
	group->kind = kind;
	group->n = n;
	for (int i = 0; i < n; i++) {
		group->members[i] = first + i * stride;
		job->group_of[kind][group->members[i]] = job->n_groups;
		job->member_of[kind][group->members[i]] = i;
	}
	job->n_groups++;
}

/* One communicator of all, or tensor and data parallel ones as well. */
static void job_make_groups(struct job *job)
{
	if (!job->tensor) {
		job_add_group(job, KIND_WORLD, 0, 1, job->n);
		return;
	}
	for (int first = 0; first < job->n; first += job->tensor)
		job_add_group(job, KIND_TENSOR, first, 1, job->tensor);
	for (int first = 0; first < job->tensor; first++)
		job_add_group(job, KIND_DATA, first, job->tensor, job->n / job->tensor);
}

#endif
