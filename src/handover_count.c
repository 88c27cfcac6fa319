/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One communicator: what its plugin tells of, and what of that no probe saw. */
#include "handover_private.h"

#define MERGE_NS    (500 * NSEC_PER_MSEC) /* what is missed so close together is decided as one */
#define CALL_NS	    (5 * NSEC_PER_MSEC)	  /* few take longer until the plugin sees them */
#define STRADDLE_NS (100 * NSEC_PER_MSEC) /* a call may be told of so long after it was made */

const enum nccl_operation handover_operations[NBP_N_COUNTED] = {
	[NBP_BROADCAST] = NCCL_OP_Broadcast, [NBP_REDUCE] = NCCL_OP_Reduce,
	[NBP_ALLGATHER] = NCCL_OP_AllGather, [NBP_REDUCESCATTER] = NCCL_OP_ReduceScatter,
	[NBP_ALLREDUCE] = NCCL_OP_AllReduce,
};

/* ncclUint8 is the one type that NCCL does not name. */
static uint32_t api__datatype(const struct nbp_api *api)
{
	return api->datatype == NBP_UNKNOWN_U8 ? 1 : api->datatype;
}

/* As the probes count bytes, and as the plugin does. */
static uint64_t api__bytes(const struct nbp_api *api)
{
	uint64_t size = nccl_datatype__size(api__datatype(api));

	return size && api->count <= (1ULL << 56) / size ? api->count * size : 0;
}

/* What both sides know of a call for certain. */
static uint32_t arguments_hash(uint64_t count, uint32_t datatype)
{
	return ((count ^ datatype) * 0x9e3779b97f4a7c15ULL) >> 32;
}

void comm__take_probe(struct handovers *h, struct handover_comm *comm, int function,
		      const struct nb_record *r)
{
	struct handover_operation *op = &comm->operations[function];

	if (!r->count)
		return; /* of which no plugin hears */
	if (waiting__put(h, &op->waiting, r->time_ns, arguments_hash(r->count, r->datatype)))
		return;
	process__trouble(comm->process, r->time_ns);
	if (!process__in_period(comm->process, r->time_ns))
		return;
	op->dropped++;
	h->uncertain++;
}

static void operation__add_unprobed(struct handover_operation *op, const struct nbp_record *r)
{
	const struct nbp_api *api = &r->api;

	op->unprobed++;
	op->unprobed_bytes += api__bytes(api);
	if (api->capture == NBP_CAPTURED_YES) {
		op->captured.calls++;
		op->captured.bytes += api__bytes(api);
	}
	if (r->time_ns < op->last_ns)
		return;
	op->last_ns = r->time_ns;
	op->last_count = api->count;
	op->last_datatype = api__datatype(api);
	op->last_root =
		api->function == NBP_BROADCAST || api->function == NBP_REDUCE ? api->root : -1;
}

void comm__take_api(struct handovers *h, struct handover_comm *comm, const struct nbp_record *r)
{
	struct handover_process *process = comm->process;
	struct handover_operation *op;

	if (r->api.function >= NBP_N_COUNTED)
		return;
	op = &comm->operations[r->api.function];
	comm->sums[r->api.function].calls++;
	comm->sums[r->api.function].bytes += api__bytes(&r->api);
	if (waiting__take(&op->waiting, r->time_ns,
			  arguments_hash(r->api.count, api__datatype(&r->api)))) {
		process->answered++;
		return;
	}
	if (process__in_period(process, r->time_ns)) {
		operation__add_unprobed(op, r);
		if (h->on_call)
			h->on_call(h->listener_ctx, process->tgid, r);
	} else {
		/* The probes count it: its record was lost, or it was before they came. */
		process__trouble(process, r->time_ns);
	}
}

static void missing__take_probed(struct missing *m, struct waiting *waiting, uint64_t before_ns)
{
	uint64_t probed = waiting__give_up(waiting, before_ns, m->sum.calls);

	m->sum.bytes -= m->sum.bytes / m->sum.calls * probed;
	m->sum.calls -= probed;
}

static void operation__miss(struct handovers *h, struct handover_operation *op,
			    const struct missing *missing)
{
	struct missing *m = NULL;
	int i;

	for (i = 0; i < MAX_MISSING && op->missing[i].sum.calls; i++)
		m = &op->missing[i];
	if (i < MAX_MISSING &&
	    (!m || m->counts != missing->counts || m->from_ns + MERGE_NS < missing->until_ns)) {
		op->missing[i] = *missing;
		return;
	}
	if (m->counts != missing->counts)
		h->uncertain += missing->sum.calls;
	m->counts |= missing->counts;
	m->sum.calls += missing->sum.calls;
	m->sum.bytes += missing->sum.bytes;
	m->until_ns = missing->until_ns;
}

static void operation__drop_missing(struct handover_operation *op, int i)
{
	memmove(&op->missing[i], &op->missing[i + 1],
		sizeof(op->missing) - (i + 1) * sizeof(op->missing[0]));
	op->missing[MAX_MISSING - 1] = (struct missing){0};
}

/*
 * A probe saw those calls for which a record of it waits in vain: at once, so that none of these is
 * taken for another's. What is left is decided later.
 */
static void operation__match_missing(struct handover_operation *op, uint64_t before_ns)
{
	for (int i = 0; i < MAX_MISSING && op->missing[i].sum.calls;) {
		struct missing *m = &op->missing[i];

		missing__take_probed(m, &op->waiting,
				     m->until_ns < before_ns ? m->until_ns : before_ns);
		if (m->sum.calls)
			i++;
		else
			operation__drop_missing(op, i);
	}
}

/* Records that never came, made between the last sums and these. */
static void comm__miss(struct handovers *h, struct handover_comm *comm, int function,
		       const struct nbp_count *sum, uint64_t until_ns)
{
	struct handover_process *process = comm->process;
	struct missing missing = {.sum = *sum, .from_ns = until_ns, .until_ns = until_ns};
	uint64_t from_ns = comm->counts_ns > STRADDLE_NS ? comm->counts_ns - STRADDLE_NS : 0;
	bool first = process__in_period(process, from_ns);
	bool last = process__in_period(process, until_ns);
	bool within = from_ns < process->handed_over_ns && process->handed_over_ns < until_ns;

	missing.counts = first || last || within;
	if (missing.counts && (!first || !last))
		h->uncertain += sum->calls;
	process->missed_ns = until_ns;
	if (missing.counts && h->on_lost)
		h->on_lost(h->listener_ctx, process->tgid);
	operation__miss(h, &comm->operations[function], &missing);
}

void operation__settle_missing(struct handover_operation *op, uint64_t before_ns)
{
	while (op->missing[0].sum.calls && op->missing[0].until_ns < before_ns) {
		struct missing *m = &op->missing[0];

		missing__take_probed(m, &op->waiting, m->until_ns);
		if (m->counts) {
			op->unprobed += m->sum.calls;
			op->unprobed_bytes += m->sum.bytes;
		}
		operation__drop_missing(op, 0);
	}
}

void comm__take_counts(struct handovers *h, struct handover_comm *comm, const struct nbp_record *r)
{
	for (int i = 0; i < NBP_N_COUNTED; i++) {
		const struct nbp_count *now = &r->counts.function[i];
		struct nbp_count missing = {
			.calls = now->calls - comm->sums[i].calls,
			.bytes = now->bytes - comm->sums[i].bytes,
		};

		/* fewer than have come: another's records, or no truth in them */
		if (comm->has_counts && (int64_t)missing.calls < 0)
			comm->process->unfit = true;
		else if (comm->has_counts && missing.calls)
			comm__miss(h, comm, i, &missing, r->time_ns);
		comm->sums[i] = *now;
		operation__match_missing(&comm->operations[i],
					 r->time_ns > CALL_NS ? r->time_ns - CALL_NS : 0);
	}
	comm->has_counts = true;
	comm->counts_ns = r->time_ns;
}

void comm__take_operation(struct handover_comm *comm, const struct nbp_record *r)
{
	const struct nbp_operation *o = &r->operation;
	struct handover_operation *op;

	if (o->function >= NBP_N_COUNTED || o->sequence == NBP_NO_NUMBER)
		return;
	op = &comm->operations[o->function];
	if (op->sequence == NB_NO_SEQUENCE || o->sequence + 1 > op->sequence)
		op->sequence = o->sequence + 1;
}

/* What the last period left is taken for good. */
void operation__begin_period(struct handover_operation *op)
{
	uint64_t covered = op->probed_lost + op->dropped, calls = op->unprobed;

	if (calls > covered) {
		op->settled.calls += calls - covered;
		op->settled.bytes += op->unprobed_bytes - op->unprobed_bytes / calls * covered;
	}
	op->base_lost = op->kernel_lost;
	op->probed_lost = op->dropped = 0;
	op->unprobed = op->unprobed_bytes = 0;
}
