/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Jobs in virtual time, each with at most one fault, of all kinds: the judge must name each fault,
 * its rank and its number, and nothing else. VERDICT_SCENARIOS=N runs another number of them than
 * 500, VERDICT_FIRST=N those after the first N seeds; VERDICT_SEED=S runs only the one with that
 * seed, and tells of it.
 */
#include "unit.h"

#include "../../src/nccl_api.c"

#include "verdict_sources.h"
#include "verdict_watch.h"

#define MS  NSEC_PER_MSEC
#define SEC NSEC_PER_SEC

static const char *const fault_names[FAULTS] = {
	"none",
	"missing call",
	"stopped, goes on",
	"checkpoint of rank 0",
	"GPU stuck",
	"link stuck",
	"straggler",
	"straggler on GPU",
	"count",
	"datatype",
	"redop",
	"root",
	"order",
	"abort",
	"died",
	"all exit",
	"drift",
	"pause",
};

enum outcome { RIGHT, UNKNOWN, DEGRADED, UNNAMED, WRONG, FALSE_ALARM, OUTCOMES };

static const char *const outcome_names[OUTCOMES] = {
	"right", "unknown", "degraded", "not named", "wrong", "false alarm",
};

struct scenario {
	uint64_t seed;
	struct job job;
	struct watched watched;
	uint64_t stop_ns;
	bool is_late_attach, has_loss, is_verbose;
	/* what must be found, in the group */
	int group;
	bool expects;
	enum verdict_state state;
	enum verdict_cause cause;
	enum nccl_operation operation;
	uint64_t sequence, wanted_ns, deadline_ns;
	/* what was */
	enum outcome outcome;
	uint64_t named_ns;
	bool was_idle, was_unknown, was_degraded;
	char what[400];
};

/* ---- the job ---- */

static void scenario_positions(struct scenario *s)
{
	static const enum nccl_operation operations[] = {
		NCCL_OP_AllReduce, NCCL_OP_AllGather, NCCL_OP_ReduceScatter,
		NCCL_OP_Broadcast, NCCL_OP_AllReduce, NCCL_OP_Reduce,
	};
	struct job *job = &s->job;
	int n = job->n_positions = 2 + among(job->n > 16 ? 3 : 7);
	bool in_burst = chance(0.4);
	double sum = 0;

	for (int p = 0; p < n; p++) {
		struct job_position *position = &job->positions[p];

		*position = (struct job_position){
			.kind = !job->tensor ? KIND_WORLD
				: p == n - 1 ? KIND_DATA
					     : KIND_TENSOR,
			.operation = operations[among(6)],
			.share = in_burst && p ? 0 : uniform(0.2, 1),
			.count = 1024ULL << among(12),
			.datatype = 7,
			.redop = ~0U,
			.root = -1,
		};
		if (position->operation == NCCL_OP_Broadcast ||
		    position->operation == NCCL_OP_Reduce)
			position->root = 0;
		if (position->operation == NCCL_OP_AllReduce ||
		    position->operation == NCCL_OP_Reduce ||
		    position->operation == NCCL_OP_ReduceScatter)
			position->redop = among(3);
		sum += position->share;
	}
	for (int p = 0; p < n; p++)
		job->positions[p].share /= sum;
}

/* Some faults need a certain operation. */
static void scenario_fit_position(struct scenario *s)
{
	struct job *job = &s->job;
	struct job_position *position = &job->positions[job->fault_position];

	if (job->fault == FAULT_ORDER) {
		if (job->fault_position == job->n_positions - 1)
			position = &job->positions[--job->fault_position];
		position->kind = position[1].kind;
		position[1].operation = position->operation == NCCL_OP_AllGather
						? NCCL_OP_AllReduce
						: NCCL_OP_AllGather;
		position[1].redop = position[1].operation == NCCL_OP_AllReduce ? 0 : ~0U;
		position[1].root = -1;
	}
	if (job->fault == FAULT_REDOP && position->redop == ~0U) {
		position->operation = NCCL_OP_AllReduce;
		position->redop = 0;
		position->root = -1;
	}
	if (job->fault == FAULT_ROOT) {
		position->operation = NCCL_OP_Broadcast;
		position->redop = ~0U;
		position->root = 0;
	}
}

static bool fault_is_mismatch(enum fault fault)
{
	return fault >= FAULT_COUNT && fault <= FAULT_ORDER;
}

/* Few enough calls to run two thousand of them. */
static void scenario_period(struct scenario *s, double seconds)
{
	struct job *job = &s->job;
	double most = 40000.0 / job->n_positions / job->n, least = seconds / most;

	if (least < 0.005)
		least = 0.005;
	job->period_ns = 1e9 * exp(uniform(log(least), log(least > 4 ? least * 2 : 20)));
}

static void scenario_job(struct scenario *s)
{
	struct job *job = &s->job;
	static const int sizes[] = {2, 2, 2, 3, 4, 4, 8, 8, 8, 16, 32, 64};

	job->fault = among(FAULTS);
	job->n = sizes[among(ARRAY_SIZE(sizes))];
	job->host = among(3);
	if (job->fault == FAULT_DRIFT)
		job->host = HOST_FREE;
	job->hangs = fault_is_mismatch(job->fault) && chance(0.4);
	if (job->fault == FAULT_ORDER && job->host == HOST_SYNCHRONOUS)
		job->hangs = true;
	if (job->n >= 4 && !(job->n % 4) && !job->hangs && chance(0.5) && job->fault != FAULT_ORDER)
		job->tensor = chance(0.5) ? 2 : job->n / 2;
	job->depth = 2 + among(40);
	job->computes_on_gpu = job->host != HOST_FREE && chance(0.4);
	/* what one side computes hides what comes late on the other */
	if (job->fault == FAULT_STRAGGLER || job->fault == FAULT_GPU_STRAGGLER)
		job->computes_on_gpu = job->fault == FAULT_GPU_STRAGGLER;
	scenario_positions(s);
	scenario_period(s, 60);
	job->jitter = chance(0.5) ? uniform(0, 0.02) : uniform(0, 0.2);
	/* what is late by more than seconds is waited for, whatever the reason */
	if (job->jitter * job->period_ns > 3e8)
		job->jitter = 3e8 / job->period_ns;
	job->skew_ns = fmin(uniform(0, 0.02) * job->period_ns, 5e7);
	job->culprit = job->fault == FAULT_CHECKPOINT ? 0 : among(job->n);
	job->fault_position = among(job->n_positions);
	scenario_fit_position(s);
	if (job->fault == FAULT_STRAGGLER || job->fault == FAULT_GPU_STRAGGLER)
		job->jitter = fmin(uniform(0, 0.03), 2e8 / job->period_ns);
	job->wander_ns = 0;
	if (job->host == HOST_FREE) {
		double memory_ns = uniform(2e9, 30e9), per_ns = job->period_ns / job->n_positions;

		job->pull = per_ns / memory_ns < 0.5 ? per_ns / memory_ns : 0.5;
		job->wander_ns = uniform(5e6, 40e6) * sqrt(2 * job->pull);
	}
}

static void scenario_fault(struct scenario *s)
{
	struct job *job = &s->job;
	double period_s = job->period_ns / 1e9;
	uint64_t steps = uniform(12, 22) / period_s;

	job->fault_step = steps < 12 ? 12 : steps;
	job->end_step = ~0ULL;
	if (fault_is_mismatch(job->fault) && (job->hangs || chance(0.5)))
		job->end_step = job->fault_step + 1;
	switch (job->fault) {
	case FAULT_STOPPED:
		job->extra_ns = uniform(20e9, 45e9);
		break;
	case FAULT_CHECKPOINT:
		job->extra_ns = 30 * SEC;
		break;
	case FAULT_PAUSE:
		job->extra_ns = chance(0.5) ? 300 * SEC : uniform(20e9, 100e9);
		break;
	case FAULT_STRAGGLER:
	case FAULT_GPU_STRAGGLER:
		job->extra_ns = fmin(2e9, fmax(3e6, uniform(0.12, 1) * job->period_ns));
		if (chance(0.5))
			job->end_step = job->fault_step + 40 + (uint64_t)(25 / period_s);
		break;
	default:
		break;
	}
	if (job->fault == FAULT_NONE || job->fault == FAULT_DRIFT || job->fault == FAULT_EXIT)
		job->fault_step = job->end_step = ~0ULL;
	if (job->fault == FAULT_EXIT)
		job->n_steps = 12 + uniform(10, 20) / period_s;
}

/* ---- sight ---- */

static void scenario_sight(struct scenario *s)
{
	struct watched *w = &s->watched;
	struct job *job = &s->job;
	bool is_late = chance(0.3), some_only = chance(0.5), are_slow = chance(0.3);

	for (int rank = 0; rank < job->n; rank++) {
		bool late = is_late && (!some_only || chance(0.5));

		w->whole[rank] = !late;
		w->joins_ns[rank] = JOB_START + (late ? (uint64_t)uniform(0, 8e9) : 0);
		w->leaves_ns[rank] = JOB_NEVER;
		w->delays_ns[rank] = are_slow ? uniform(0, 2e8) : 0;
	}
	s->is_late_attach = is_late;
	w->tells_reached = chance(0.5);
	w->tells_gpu = chance(0.4);
	w->knows_starts = chance(0.8);
	w->timed_every = chance(0.4) ? 1 + among(4) : 0;
	w->loser = chance(0.5) ? -1 : among(job->n);
	s->has_loss = chance(0.2);
	if (s->has_loss) {
		w->lost_from_ns = JOB_START + uniform(2e9, 30e9);
		w->lost_to_ns = w->lost_from_ns + uniform(1e6, 2e9);
	}
	if (job->fault == FAULT_GPU || job->fault == FAULT_LINK)
		w->tells_gpu = chance(0.8);
	if (job->fault == FAULT_GPU_STRAGGLER)
		w->timed_every = chance(0.8) ? 1 : among(4);
	/* GPUs that have nothing to do wait for whichever host lags at the moment */
	if (w->timed_every && !job->computes_on_gpu)
		w->timed_every = 0;
	if (job->host == HOST_FREE)
		w->tells_gpu = false;
}

static void scenario_leave(struct scenario *s)
{
	struct watched *w = &s->watched;
	struct job *job = &s->job;

	if (job->fault == FAULT_ABORT || job->fault == FAULT_DIED) {
		w->leaves_ns[job->culprit] = job->fault_ns + 1000;
		w->how[job->culprit] =
			job->fault == FAULT_DIED ? VERDICT_END_DIED : VERDICT_END_ABORTED;
	}
	for (int rank = 0; rank < job->n && job->fault == FAULT_EXIT; rank++) {
		w->leaves_ns[rank] =
			plus(later(job->host_ns[rank], job->gpu_ns[rank]), uniform(1e6, 20e9));
		w->how[rank] = chance(0.5) ? VERDICT_END_DIED : VERDICT_END_DESTROYED;
	}
}

static void scenario_run_job(struct scenario *s)
{
	struct job *job = &s->job;
	uint64_t step = 0;

	for (int rank = 0; rank < job->n; rank++)
		job->host_ns[rank] =
			JOB_START +
			(job->host == HOST_FREE ? 200 * MS : (uint64_t)uniform(1e6, 2e8));
	for (; (!job->n_steps || step < job->n_steps) && job->n_calls < 120000; step++) {
		uint64_t first_ns = JOB_NEVER;

		for (int rank = 0; rank < job->n; rank++) {
			if (job->host_ns[rank] < first_ns)
				first_ns = job->host_ns[rank];
		}
		if (first_ns > s->stop_ns)
			break;
		job_step(job, step);
	}
}

/* ---- what must come of it ---- */

/* The first call that the culprit owes its group, and when the first of the others made it. */
static const struct job_call *scenario_owed(const struct scenario *s, int g, uint64_t *ret_ns)
{
	const struct job *job = &s->job;
	const struct job_call *owed = NULL;
	int m = job->member_of[job->groups[g].kind][job->culprit];

	for (size_t i = job->first[g][m]; i && !owed; i = job->calls[i - 1].next) {
		const struct job_call *call = &job->calls[i - 1];

		if (call->time_ns >= JOB_NEVER || (job->end_ns && call->time_ns >= job->end_ns))
			owed = call;
	}
	*ret_ns = JOB_NEVER;
	for (size_t i = 0; i < job->n_calls && owed; i++) {
		const struct job_call *call = &job->calls[i];

		if (call->group == (uint32_t)g && call->sequence == owed->sequence &&
		    call->operation == owed->operation && call->time_ns < *ret_ns && call != owed)
			*ret_ns = call->time_ns;
	}
	return owed;
}

static void scenario_expect_call(struct scenario *s, const struct job_call *call,
				 uint64_t wanted_ns, enum verdict_state state,
				 enum verdict_cause cause)
{
	s->expects = call && wanted_ns < JOB_NEVER;
	if (!s->expects)
		return;
	s->state = state;
	s->cause = cause;
	s->operation = call->operation;
	s->sequence = call->sequence;
	s->wanted_ns = wanted_ns;
	s->deadline_ns = wanted_ns + 10 * SEC;
	/* hosts that run ahead at a slow pace are late by seconds as a habit */
	if (s->job.host == HOST_AHEAD && s->job.period_ns > 4e9)
		s->deadline_ns += 15 * SEC;
}

static const struct job_call *scenario_fault_call(const struct scenario *s, uint64_t *ret_ns)
{
	const struct job *job = &s->job;
	const struct job_call *own = NULL;
	uint64_t step = 0;
	int m = job->member_of[job->groups[s->group].kind][job->culprit], p = -1;

	for (size_t i = job->first[s->group][m]; i; i = job->calls[i - 1].next) {
		do {
			p = (p + 1) % job->n_positions;
			step += !p;
		} while (job->positions[p].kind != job->groups[s->group].kind);
		if (step - 1 == job->fault_step && p == job->fault_position)
			own = &job->calls[i - 1];
	}
	*ret_ns = 0;
	for (size_t i = 0; i < job->n_calls && own; i++) {
		const struct job_call *call = &job->calls[i];

		if (call->group == (uint32_t)s->group && call->sequence == own->sequence &&
		    call->operation == own->operation && call->time_ns > *ret_ns)
			*ret_ns = call->time_ns;
	}
	return own;
}

/* When the last of the GPUs that do start began with it. */
static uint64_t scenario_last_start(const struct scenario *s, const struct job_call *own)
{
	uint64_t last_ns = s->job.fault_ns;

	for (size_t i = 0; i < s->job.n_calls && own; i++) {
		const struct job_call *call = &s->job.calls[i];

		if (call->group == own->group && call->sequence == own->sequence &&
		    call->operation == own->operation && call->start_ns < JOB_NEVER)
			last_ns = later(last_ns, call->start_ns);
	}
	return last_ns;
}

static bool scenario_sees_straggler(const struct scenario *s)
{
	const struct job *job = &s->job;
	const struct watched *w = &s->watched;

	if (w->timed_every == 1)
		return job->computes_on_gpu;
	return job->fault == FAULT_STRAGGLER && job->host != HOST_AHEAD && !job->computes_on_gpu;
}

static void scenario_expect_straggler(struct scenario *s)
{
	struct job *job = &s->job;
	uint64_t ns, needed = 55 * (job->period_ns + job->extra_ns);
	const struct job_call *call = scenario_fault_call(s, &ns);

	s->expects = call && scenario_sees_straggler(s);
	if (!s->expects)
		return;
	s->state = VERDICT_STRAGGLER;
	s->cause = VERDICT_CAUSES;
	s->operation = NCCL_OP_MAX;
	s->wanted_ns = job->fault == FAULT_STRAGGLER ? call->time_ns : call->start_ns;
	s->deadline_ns = s->wanted_ns + (needed > 16 * SEC ? needed : 16 * SEC);
}

static void scenario_expect(struct scenario *s)
{
	struct job *job = &s->job;
	const struct job_call *call;
	uint64_t ns;

	s->group = job->group_of[job->positions[job->fault_position].kind][job->culprit];
	switch (job->fault) {
	case FAULT_MISSING:
	case FAULT_STOPPED:
	case FAULT_CHECKPOINT:
		call = scenario_owed(s, s->group, &ns);
		scenario_expect_call(s, call, ns, VERDICT_WAITING, VERDICT_MISSING_CALL);
		break;
	case FAULT_DIED:
		call = scenario_owed(s, s->group, &ns);
		if (ns < JOB_NEVER && ns < job->fault_ns)
			ns = job->fault_ns;
		scenario_expect_call(s, call, ns, VERDICT_ABORTED, VERDICT_ENDED);
		break;
	case FAULT_ABORT:
		call = scenario_owed(s, s->group, &ns);
		scenario_expect_call(s, call, job->fault_ns, VERDICT_ABORTED, VERDICT_CAUSES);
		s->operation = NCCL_OP_MAX;
		break;
	case FAULT_GPU:
	case FAULT_LINK:
		call = scenario_fault_call(s, &ns);
		scenario_expect_call(s, call, scenario_last_start(s, call), VERDICT_WAITING,
				     job->fault == FAULT_GPU ? VERDICT_GPU_NOT_STARTED
							     : VERDICT_GPU_NOT_DONE);
		s->expects &= s->watched.tells_gpu && s->watched.knows_starts;
		break;
	case FAULT_STRAGGLER:
	case FAULT_GPU_STRAGGLER:
		scenario_expect_straggler(s);
		break;
	default:
		if (!fault_is_mismatch(job->fault))
			break;
		call = scenario_fault_call(s, &ns);
		if (call && (ns >= JOB_NEVER || job->fault == FAULT_ORDER))
			ns = call->time_ns;
		scenario_expect_call(s, call, ns, VERDICT_MISMATCH, VERDICT_DISAGREE);
		s->deadline_ns = ns + 5 * SEC;
		if (job->fault == FAULT_ORDER)
			s->operation = NCCL_OP_MAX;
		/* of an order that differs once, nothing is left to see after a loss */
		if (job->fault == FAULT_ORDER && s->watched.lost_to_ns > ns - SEC &&
		    s->watched.lost_from_ns < ns + 2 * SEC)
			s->expects = job->hangs;
	}
}

/* ---- what came of it ---- */

static bool state_is_quiet(enum verdict_state state)
{
	return state == VERDICT_HEALTHY || state == VERDICT_IDLE || state == VERDICT_UNKNOWN;
}

static void scenario_note(struct scenario *s, enum outcome outcome, uint64_t now_ns,
			  const struct verdict *v, int g)
{
	if (s->outcome)
		return;
	s->outcome = outcome;
	snprintf(s->what, sizeof(s->what), "at %.2f s, group %d (%d ranks): %s: %s",
		 (now_ns - JOB_START) / 1e9, g, s->job.groups[g].n, verdict_state__name(v->state),
		 v->why);
}

static bool verdict_names_only(const struct verdict *v, int32_t rank)
{
	return v->culprits.n == 1 && v->culprits.ranks[0] == rank;
}

static bool scenario_names_culprit(const struct scenario *s, const struct verdict *v, int g)
{
	int m = s->job.member_of[s->job.groups[g].kind][s->job.culprit];

	if (s->job.fault == FAULT_LINK)
		return !v->culprits.n;
	if (v->state == VERDICT_MISMATCH && s->job.groups[g].n == 2)
		return v->culprits.n == 2;
	return verdict_names_only(v, m);
}

static bool scenario_is_expected(const struct scenario *s, const struct verdict *v, int g)
{
	bool is_state = v->state == s->state ||
			(s->state == VERDICT_WAITING && v->state == VERDICT_STUCK &&
			 s->job.fault != FAULT_STOPPED && s->job.fault != FAULT_CHECKPOINT);

	return g == s->group && is_state && scenario_names_culprit(s, v, g) &&
	       (s->cause == VERDICT_CAUSES || v->cause == s->cause) &&
	       (s->operation == NCCL_OP_MAX || (s->has_loss && v->operation == NCCL_OP_MAX) ||
		(v->operation == s->operation && v->sequence == s->sequence));
}

static bool verdict_is_chained(const struct verdict *v)
{
	return v->n_evidence && strstr(v->evidence[0], "waits in communicator");
}

/* What they called was lost, but that they all have is known. */
static bool verdict_may_be_mismatch(const struct verdict *v)
{
	return v->cause == VERDICT_GPU_NOT_DONE &&
	       strstr(v->why, "not all of their calls were seen");
}

/* Other communicators of the job feel the fault too. */
static bool scenario_is_consequence(const struct scenario *s, const struct verdict *v, int g,
				    uint64_t now_ns)
{
	const struct job *job = &s->job;
	int m = job->member_of[job->groups[g].kind][job->culprit];
	bool is_own = job->groups[g].members[m] == job->culprit;
	bool waits = v->state == VERDICT_WAITING ||
		     (v->state == VERDICT_STUCK && job->fault != FAULT_STOPPED &&
		      job->fault != FAULT_CHECKPOINT);

	switch (job->fault) {
	case FAULT_STOPPED:
	case FAULT_CHECKPOINT:
		/* who was let go late comes late to the next one, and is waited for */
		if (v->state == VERDICT_WAITING && now_ns > job->end_ns &&
		    now_ns < job->end_ns + 15 * SEC + 2 * (uint64_t)job->period_ns)
			return true;
		/* fall through */
	case FAULT_MISSING:
		return waits && (is_own ? verdict_names_only(v, m) : verdict_is_chained(v));
	case FAULT_DIED:
	case FAULT_ABORT:
		return (is_own && v->state == VERDICT_ABORTED && verdict_names_only(v, m)) ||
		       (waits && (verdict_is_chained(v) || s->has_loss));
	case FAULT_GPU:
	case FAULT_LINK:
		return waits && (verdict_is_chained(v) || (is_own && verdict_names_only(v, m)) ||
				 !s->watched.tells_gpu || !s->watched.knows_starts);
	case FAULT_STRAGGLER:
	case FAULT_GPU_STRAGGLER:
		/* a host that falls behind by many steps is waited for, too */
		return (v->state == VERDICT_STRAGGLER && is_own && verdict_names_only(v, m)) ||
		       (v->state == VERDICT_WAITING && job->extra_ns > SEC);
	default:
		/* until all have come, it may be a matter of one against one */
		return (v->state == VERDICT_MISMATCH &&
			(scenario_names_culprit(s, v, g) ||
			 (v->culprits.n == 2 &&
			  (now_ns < s->wanted_ns + 5 * SEC || s->has_loss)))) ||
		       (s->has_loss && verdict_may_be_mismatch(v));
	}
}

static bool scenario_is_struck(const struct scenario *s, uint64_t now_ns)
{
	if (fault_is_mismatch(s->job.fault))
		return now_ns + 3 * SEC + (uint64_t)s->job.period_ns >= s->wanted_ns;
	return s->job.fault_ns ? now_ns >= s->job.fault_ns : s->wanted_ns && now_ns >= s->wanted_ns;
}

static void scenario_check(struct scenario *s, uint64_t now_ns)
{
	for (int g = 0; g < s->job.n_groups; g++) {
		struct verdict_comm *comm =
			verdicts__find(s->watched.verdicts, s->job.groups[g].hash);
		const struct verdict *v = comm ? verdict_comm__now(comm) : NULL;
		bool is_struck = scenario_is_struck(s, now_ns);

		if (!v)
			continue;
		s->was_idle |= v->state == VERDICT_IDLE;
		if (g == s->group && s->wanted_ns && now_ns > s->wanted_ns) {
			s->was_degraded |= v->state == VERDICT_DEGRADED_SIGHT ||
					   (v->state == VERDICT_MISMATCH && v->culprits.n == 2) ||
					   verdict_may_be_mismatch(v);
			s->was_unknown |= v->state == VERDICT_UNKNOWN;
		}
		if (s->expects && is_struck && scenario_is_expected(s, v, g)) {
			if (!s->named_ns)
				s->named_ns = now_ns;
			continue;
		}
		if (state_is_quiet(v->state) ||
		    (v->state == VERDICT_DEGRADED_SIGHT && s->has_loss) ||
		    (is_struck && scenario_is_consequence(s, v, g, now_ns)))
			continue;
		scenario_note(s, is_struck && s->expects ? WRONG : FALSE_ALARM, now_ns, v, g);
	}
}

/* At the end: named in time, and let go where the fault is over. */
static void scenario_conclude(struct scenario *s, uint64_t now_ns)
{
	struct verdict_comm *comm =
		verdicts__find(s->watched.verdicts, s->job.groups[s->group].hash);
	const struct verdict *v = verdict_comm__now(comm);
	bool is_over = s->job.fault == FAULT_STOPPED || s->job.fault == FAULT_CHECKPOINT ||
		       (s->expects && s->state == VERDICT_STRAGGLER && s->job.end_step != ~0ULL);

	if (s->expects && !s->named_ns) {
		if (s->was_unknown && (s->is_late_attach || s->has_loss))
			scenario_note(s, UNKNOWN, now_ns, v, s->group);
		if (s->was_degraded && s->has_loss)
			scenario_note(s, DEGRADED, now_ns, v, s->group);
		scenario_note(s, UNNAMED, now_ns, v, s->group);
	}
	if (s->expects && s->named_ns > s->deadline_ns + (s->has_loss ? 5 * SEC : 0))
		scenario_note(s, UNNAMED, s->named_ns, v, s->group);
	if (s->expects && s->named_ns && is_over && !state_is_quiet(v->state))
		scenario_note(s, WRONG, now_ns, v, s->group);
	if (s->expects && s->named_ns && !is_over && state_is_quiet(v->state) &&
	    s->state != VERDICT_STRAGGLER && !fault_is_mismatch(s->job.fault))
		scenario_note(s, WRONG, now_ns, v, s->group);
	if (s->job.fault == FAULT_PAUSE && !s->was_idle && !s->has_loss &&
	    s->job.extra_ns > 3 * s->job.period_ns + 20 * SEC)
		scenario_note(s, UNNAMED, now_ns, v, s->group);
}

static uint64_t fault__after_ns(const struct scenario *s)
{
	const struct job *job = &s->job;
	uint64_t period_ns = job->period_ns, after_ns = 30 * SEC + 5 * period_ns;

	if (job->fault == FAULT_STRAGGLER || job->fault == FAULT_GPU_STRAGGLER) {
		after_ns = 40 * (period_ns + job->extra_ns) + 30 * SEC;
		if (job->end_step != ~0ULL)
			after_ns = (job->end_step - job->fault_step) * (period_ns + job->extra_ns) +
				   40 * period_ns + 30 * SEC;
	}
	if (job->fault == FAULT_MISSING || job->fault == FAULT_GPU || job->fault == FAULT_LINK)
		after_ns = 75 * SEC + period_ns;
	return after_ns + (job->fault == FAULT_STRAGGLER || job->fault == FAULT_GPU_STRAGGLER
				   ? 0
				   : job->extra_ns);
}

static void scenario_attach_to_hang(struct scenario *s)
{
	uint64_t latest_ns = 0;

	if (s->job.fault != FAULT_MISSING || !s->expects || !chance(0.3))
		return;
	s->is_late_attach = true;
	for (int rank = 0; rank < s->job.n; rank++) {
		s->watched.whole[rank] = false;
		s->watched.joins_ns[rank] = s->wanted_ns + (uint64_t)uniform(1e9, 2e9);
		if (s->watched.joins_ns[rank] > latest_ns)
			latest_ns = s->watched.joins_ns[rank];
	}
	/* which of the calls it owes was wanted first cannot be known any more */
	s->operation = NCCL_OP_MAX;
	s->wanted_ns = latest_ns;
	s->deadline_ns = latest_ns + 10 * SEC;
}

/* What happened before we came cannot be told, but for a hang. */
static void scenario_attach_before_fault(struct scenario *s)
{
	if (s->job.fault == FAULT_MISSING)
		return;
	for (int rank = 0; rank < s->job.n && s->expects; rank++) {
		if (s->watched.joins_ns[rank] + 2 * SEC < s->wanted_ns)
			continue;
		s->watched.joins_ns[rank] = JOB_START;
		s->watched.whole[rank] = true;
	}
}

static void scenario_watch(struct scenario *s)
{
	struct job *job = &s->job;
	struct watched *w = &s->watched;
	struct job_call **order = malloc((job->n_calls + 1) * sizeof(struct job_call *));
	uint64_t settle_ns = JOB_START + WATCH_SETTLE_NS;
	size_t n = 0;

	w->job = job;
	memcpy(w->called, job->first, sizeof(w->called));
	memcpy(w->done, job->first, sizeof(w->done));
	memcpy(w->timed, job->first, sizeof(w->timed));
	for (size_t i = 0; i < job->n_calls; i++) {
		struct job_call *call = &job->calls[i];

		if (call->time_ns >= JOB_NEVER)
			continue;
		call->fed_ns = call->time_ns +
			       w->delays_ns[job->groups[call->group].members[call->member]];
		order[n++] = call;
	}
	qsort(order, n, sizeof(*order), call_compare);
	for (size_t i = 0; settle_ns < s->stop_ns; settle_ns += WATCH_SETTLE_NS) {
		for (; i < n && order[i]->fed_ns < settle_ns; i++) {
			int rank = job->groups[order[i]->group].members[order[i]->member];

			watched_come_and_go(w, rank, order[i]->time_ns);
			watched_call(w, order[i]);
		}
		watched_settle(w, settle_ns);
		scenario_check(s, settle_ns);
	}
	scenario_conclude(s, settle_ns);
	free(order);
}

static void scenario_run(struct scenario *s, uint64_t seed)
{
	const struct verdict_options options = {.stuck_after_ns = 60 * SEC};

	memset(s, 0, sizeof(*s));
	s->seed = seed;
	job_seed = seed * 7919;
	scenario_job(s);
	scenario_fault(s);
	job_make_groups(&s->job);
	s->stop_ns = JOB_START + 30 * SEC + fault__after_ns(s);
	if (s->job.fault_step != ~0ULL)
		s->stop_ns = JOB_START + s->job.fault_step * (uint64_t)s->job.period_ns +
			     fault__after_ns(s);
	scenario_run_job(s);
	scenario_sight(s);
	scenario_leave(s);
	scenario_expect(s);
	scenario_attach_to_hang(s);
	scenario_attach_before_fault(s);
	CHECK_INT(verdicts__new(&s->watched.verdicts, &options), 0);
	scenario_watch(s);
	verdicts__free(s->watched.verdicts);
	free(s->job.calls);
}

/* ---- the table ---- */

struct row {
	int n[OUTCOMES], n_all, n_named;
	double *seconds;
};

/* Who is late again and again is known after so many steps: those of long ones stand apart. */
#define SLOW_STEPS FAULTS
#define ROWS	   (FAULTS + 1)

static int scenario_row(const struct scenario *s)
{
	const struct job *job = &s->job;
	bool is_straggler = job->fault == FAULT_STRAGGLER || job->fault == FAULT_GPU_STRAGGLER;

	return is_straggler && job->period_ns + job->extra_ns > 7e8 ? SLOW_STEPS : (int)job->fault;
}

static int double_order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void row_print(const struct row *row, const char *name)
{
	double median = 0, most = 0;

	if (row->n_named) {
		qsort(row->seconds, row->n_named, sizeof(double), double_order);
		median = row->seconds[row->n_named / 2];
		most = row->seconds[row->n_named - 1];
	}
	printf("| %-21s | %5d | %5d | %7d | %8d | %6d | %5.1f | %6.1f |\n", name, row->n_all,
	       row->n[RIGHT], row->n[UNKNOWN], row->n[DEGRADED], row->n_named, median, most);
}

static void scenario_tell(const struct scenario *s)
{
	const struct job *job = &s->job;

	printf("seed %llu: %s: %s: %s\n  %d ranks, tensor %d, host %d, period %.0f ms, jitter %.2f,"
	       " gpu compute %d, fault at %.2f s, wanted %.2f s, named %.2f s, culprit %d, extra %.1f ms,"
	       " late %d, loss %d (%.2f), gpu %d, times %llu, hangs %d, reached %d;"
	       " expects %d in group %d: %s %s %llu\n",
	       (unsigned long long)s->seed, fault_names[job->fault], outcome_names[s->outcome],
	       s->what, job->n, job->tensor, job->host, job->period_ns / 1e6, job->jitter,
	       job->computes_on_gpu, ((double)job->fault_ns - JOB_START) / 1e9,
	       ((double)s->wanted_ns - JOB_START) / 1e9, ((double)s->named_ns - JOB_START) / 1e9,
	       job->culprit, job->extra_ns / 1e6, s->is_late_attach, s->has_loss,
	       ((double)s->watched.lost_from_ns - JOB_START) / 1e9, s->watched.tells_gpu,
	       (unsigned long long)s->watched.timed_every, job->hangs, s->watched.tells_reached,
	       s->expects, s->group, verdict_state__name(s->state),
	       nccl_operation__name(s->operation), (unsigned long long)s->sequence);
}

TEST(scenarios)
{
	const char *number = getenv("VERDICT_SCENARIOS"), *seed = getenv("VERDICT_SEED");
	const char *first = getenv("VERDICT_FIRST");
	int n = number ? atoi(number) : 500, n_blind = 0, n_unnamed = 0;
	struct scenario *s = malloc(sizeof(*s));
	static struct row rows[ROWS];

	for (int i = 1; i <= n; i++) {
		struct row *row;

		scenario_run(s, seed ? strtoull(seed, NULL, 10)
				     : (uint64_t)i + (first ? atoi(first) : 0));
		row = &rows[scenario_row(s)];
		row->n_all++;
		row->n[s->outcome]++;
		n_blind += s->outcome == UNKNOWN || s->outcome == DEGRADED;
		if (s->named_ns) {
			row->seconds = realloc(row->seconds, (row->n_named + 1) * sizeof(double));
			row->seconds[row->n_named++] =
				s->named_ns > s->wanted_ns ? (s->named_ns - s->wanted_ns) / 1e9 : 0;
		}
		if (s->outcome > DEGRADED || seed)
			scenario_tell(s);
		CHECK(s->outcome <= UNNAMED);
		n_unnamed += s->outcome == UNNAMED;
		if (seed)
			break;
	}
	printf("| fault | scenarios | right | unknown | degraded | named | median s | most s |\n");
	for (int i = 0; i < ROWS; i++) {
		row_print(&rows[i], i == SLOW_STEPS ? "straggler, slow steps" : fault_names[i]);
		free(rows[i].seconds);
	}
	CHECK(n_blind * 20 <= n);
	/* Lateness is judged by statistics: who is silent now and then accuses nobody. */
	CHECK(n_unnamed * 1000 <= n);
	free(s);
}

UNIT_MAIN()
