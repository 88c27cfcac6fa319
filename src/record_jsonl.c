/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "record_text.h"

#include "util.h"

static const char *timing_name(enum nbp_timing timing)
{
	static const char *const names[NBP_TIMING_MAX] = {
		[NBP_TIMED] = "timed",
		[NBP_NOT_TIMED_BUDGET] = "budget",
		[NBP_NOT_TIMED_CAPTURING] = "capturing",
		[NBP_NOT_TIMED_NO_CUDA] = "no_cuda",
		[NBP_NOT_TIMED_ERROR] = "error",
		[NBP_NOT_TIMED_STARTING] = "starting",
		[NBP_NOT_TIMED_EVENTS] = "events_busy",
		[NBP_ABANDONED] = "abandoned",
	};

	return timing < NBP_TIMING_MAX ? names[timing] : NULL;
}

static const char *source_name(enum nbp_source source)
{
	return source == NBP_SOURCE_CUDA_EVENT	   ? "cuda_event"
	       : source == NBP_SOURCE_KERNEL_TIMER ? "kernel_timer"
						   : NULL;
}

static const char *form_name(enum timing_form form)
{
	static const char *const names[] = {
		[TIMING_ONE] = "one",
		[TIMING_PAIR] = "pair",
		[TIMING_MIXED] = "mixed",
	};

	return names[form];
}

static void put_known_u64(struct json_text *json, const char *key, uint64_t value, bool known)
{
	if (known)
		json_text__u64(json, key, value);
	else
		json_text__null(json, key);
}

static void put_known_i64(struct json_text *json, const char *key, int64_t value, bool known)
{
	if (known)
		json_text__i64(json, key, value);
	else
		json_text__null(json, key);
}

static void put_text(struct json_text *json, const char *key, const char *value)
{
	json_text__string(json, key, value && value[0] ? value : NULL);
}

/* Who: the process, its communicator and its place in it. */
static void put_comm(struct json_text *json, uint32_t pid, uint64_t hash, int32_t rank,
		     int32_t n_ranks, const char *job_id)
{
	json_text__u64(json, "pid", pid);
	put_text(json, "job_id", job_id);
	if (hash)
		json_text__hex(json, "comm", "", hash, 16);
	else
		json_text__null(json, "comm");
	put_known_i64(json, "rank", rank, rank >= 0);
	put_known_i64(json, "nranks", n_ranks, n_ranks > 0);
}

static void put_clock(struct json_text *json, const struct record_origin *origin)
{
	json_text__u64(json, "monotonic_ns", origin->now_ns);
	json_text__i64(json, "wall_offset_ns", origin->wall_offset_ns);
}

static void line__begin(struct json_text *json, const char *kind)
{
	json_text__open(json, NULL, '{');
	json_text__string(json, "kind", kind);
}

static void line__end(struct json_text *json)
{
	json_text__close(json, '}');
	json_text__end_line(json);
}

void record_jsonl__begin(struct json_text *json, const struct record_origin *origin)
{
	line__begin(json, "begin");
	json_text__string(json, "schema", RECORD_SCHEMA);
	json_text__string(json, "host", origin->host);
	json_text__string(json, "version", origin->version);
	json_text__string(json, "kernel", origin->kernel);
	put_clock(json, origin);
	line__end(json);
}

void record_jsonl__clock(struct json_text *json, const struct record_origin *origin)
{
	line__begin(json, "clock");
	put_clock(json, origin);
	line__end(json);
}

static void put_operation(struct json_text *json, const struct timing_operation *op)
{
	bool is_p2p = op->operation == NCCL_OP_Send || op->operation == NCCL_OP_Recv;

	json_text__open(json, NULL, '{');
	json_text__string(json, "operation", nccl_operation__name(op->operation));
	put_known_u64(json, "number", op->number, op->number);
	put_known_u64(json, "sequence", op->sequence, op->sequence != NBP_NO_NUMBER);
	json_text__u64(json, "count", op->count);
	put_known_u64(json, "datatype", op->datatype, op->datatype != NBP_UNKNOWN);
	put_known_u64(json, "type_bytes", op->type_bytes, op->type_bytes);
	put_known_i64(json, is_p2p ? "peer" : "root", op->root, op->root >= 0);
	put_text(json, "algorithm", nbp_algorithm__name(op->algorithm));
	put_text(json, "protocol", nbp_protocol__name(op->protocol));
	put_known_u64(json, "channels", op->n_channels, op->n_channels);
	put_known_u64(json, "call_ns", op->call_ns, op->call_ns);
	json_text__close(json, '}');
}

/* What the operations are together; only when all of them are known. */
static void put_whole(struct json_text *json, const struct timing_launch *launch)
{
	bool one = launch->complete && launch->form == TIMING_ONE;

	json_text__bool(json, "complete", launch->complete);
	json_text__string(json, "form", launch->complete ? form_name(launch->form) : NULL);
	json_text__string(json, "operation", one ? nccl_operation__name(launch->operation) : NULL);
	put_known_u64(json, "bytes", launch->bytes, launch->complete && launch->has_bytes);
	if (launch->complete && launch->has_bytes)
		json_text__fixed(json, "bus_bytes", launch->bus_bytes);
	else
		json_text__null(json, "bus_bytes");
	json_text__u64(json, "n_operations", launch->n_operations);
}

static void put_timing(struct json_text *json, const struct timing_launch *launch)
{
	bool timed = launch->timing == NBP_TIMED && launch->duration_ns;
	bool error_known = timed && launch->gpu_start_ns && launch->clock_error_ns != NBP_UNKNOWN;

	put_known_u64(json, "launch_ns", launch->launch_ns, launch->launch_ns);
	put_known_u64(json, "duration_ns", launch->duration_ns, timed);
	json_text__string(json, "timing", timing_name(launch->timing));
	if (timed)
		json_text__bool(json, "sampled", !launch->after_pause);
	else
		json_text__null(json, "sampled");
	json_text__string(json, "source", timed ? source_name(launch->source) : NULL);
	put_known_u64(json, "gpu_start_ns", launch->gpu_start_ns, launch->gpu_start_ns);
	put_known_u64(json, "gpu_end_ns", launch->gpu_end_ns, launch->gpu_end_ns);
	put_known_u64(json, "clock_error_ns", launch->clock_error_ns, error_known);
	json_text__string(json, "captured",
			  launch->capture == NBP_CAPTURED_NO	? "no"
			  : launch->capture == NBP_CAPTURED_YES ? "yes"
								: NULL);
}

void record_jsonl__launch(struct json_text *json, const struct timing_launch *launch,
			  const char *job_id)
{
	const struct timing_comm *comm = launch->comm;

	line__begin(json, "launch");
	put_comm(json, comm->key.tgid, comm->hash, comm->rank, comm->n_ranks, job_id);
	put_text(json, "comm_name", comm->name);
	put_known_u64(json, "n_nodes", comm->n_nodes, comm->n_nodes);
	put_text(json, "uuid", comm->uuid);
	json_text__hex(json, "stream", "0x", launch->stream, 1);
	put_known_u64(json, "launch", launch->number, launch->number);
	put_timing(json, launch);
	put_whole(json, launch);
	json_text__open(json, "operations", '[');
	for (uint32_t i = 0; i < launch->n_described; i++)
		put_operation(json, &launch->operations[i]);
	json_text__close(json, ']');
	line__end(json);
}

static bool has_parameter(const struct nccl_function *fn, enum nccl_param param)
{
	for (unsigned int i = 0; i < NCCL_MAX_PARAMS && fn->params[i]; i++)
		if (fn->params[i] == param)
			return true;
	return false;
}

void record_jsonl__call(struct json_text *json, const struct nb_record *r, const char *job_id)
{
	const struct nccl_function *fn = &nccl_functions[r->function];
	bool is_p2p = fn->operation == NCCL_OP_Send || fn->operation == NCCL_OP_Recv;
	unsigned int type_bytes = nccl_datatype__size(r->datatype);
	bool has_count = has_parameter(fn, NCCL_PARAM_COUNT);

	line__begin(json, "call");
	put_comm(json, r->tgid, r->comm_hash, r->rank, r->n_ranks, job_id);
	json_text__u64(json, "tid", r->tid);
	json_text__hex(json, "stream", "0x", r->stream, 1);
	json_text__u64(json, "call_ns", r->time_ns);
	json_text__string(json, "operation", nccl_operation__name(fn->operation));
	json_text__string(json, "function", fn->symbol);
	put_known_u64(json, "sequence", r->sequence, r->sequence != NB_NO_SEQUENCE);
	put_known_u64(json, "count", r->count, has_count);
	put_known_u64(json, "datatype", r->datatype, has_count);
	put_known_u64(json, "type_bytes", type_bytes, has_count && type_bytes);
	put_known_u64(json, "redop", r->redop, has_parameter(fn, NCCL_PARAM_REDOP));
	put_known_i64(json, is_p2p ? "peer" : "root", r->root, r->root >= 0);
	line__end(json);
}

static void put_counts(struct json_text *json, const char *key, const struct record_count *counts)
{
	json_text__open(json, key, '{');
	for (; counts && counts->name; counts++)
		json_text__u64(json, counts->name, counts->count);
	json_text__close(json, '}');
}

void record_jsonl__end(struct json_text *json, const struct record_origin *origin,
		       const struct record_totals *totals)
{
	line__begin(json, "end");
	put_clock(json, origin);
	json_text__u64(json, "launches", totals->launches);
	json_text__u64(json, "operations", totals->operations);
	json_text__u64(json, "timed", totals->timed);
	json_text__u64(json, "calls", totals->calls);
	put_counts(json, "lost", totals->lost);
	put_counts(json, "invalid", totals->invalid);
	line__end(json);
}
