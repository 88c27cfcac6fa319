/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "record_text.h"

#include "util.h"

#define FORMAT_VERSION "v4.0"
#define MECHANISM      "nccl_profiler_interface"

static uint64_t to_us(uint64_t ns)
{
	return (ns + 500) / 1000;
}

static uint64_t wall_us(const struct record_origin *origin, uint64_t monotonic_ns)
{
	return (monotonic_ns + origin->wall_offset_ns) / 1000;
}

static void put_header(struct json_text *json, const struct timing_comm *comm)
{
	json_text__open(json, "header", '{');
	json_text__hex(json, "id", "0x", comm->hash, 1);
	json_text__string(json, "comm_name", comm->name[0] ? comm->name : "unknown");
	json_text__i64(json, "rank", comm->rank);
	json_text__i64(json, "n_ranks", comm->n_ranks);
	json_text__u64(json, "nnodes", comm->n_nodes);
	json_text__close(json, '}');
}

static void put_metadata(struct json_text *json, const struct timing_comm *comm,
			 const struct record_origin *origin)
{
	json_text__open(json, "metadata", '{');
	json_text__string(json, "inspector_output_format_version", FORMAT_VERSION);
	json_text__string(json, "git_rev", origin->version);
	json_text__string(json, "rec_mechanism", MECHANISM);
	json_text__u64(json, "dump_timestamp_us", wall_us(origin, origin->now_ns));
	json_text__string(json, "hostname", origin->host);
	json_text__u64(json, "pid", comm->key.tgid);
	json_text__close(json, '}');
}

/* The order in which the five happen; Inspector numbers its callbacks. */
enum { CALLED = 1, LAUNCHED, KERNEL_START, KERNEL_RECORD, KERNEL_STOP };

static void put_sequence(struct json_text *json, bool p2p)
{
	json_text__open(json, "event_trace_sn", '{');
	json_text__u64(json, p2p ? "p2p_start_sn" : "coll_start_sn", CALLED);
	json_text__u64(json, p2p ? "p2p_stop_sn" : "coll_stop_sn", LAUNCHED);
	json_text__open(json, "kernel_events", '[');
	json_text__open(json, NULL, '{');
	json_text__i64(json, "channel_id", -1);
	json_text__u64(json, "kernel_start_sn", KERNEL_START);
	json_text__u64(json, "kernel_stop_sn", KERNEL_STOP);
	json_text__u64(json, "kernel_record_sn", KERNEL_RECORD);
	json_text__close(json, '}');
	json_text__close(json, ']');
	json_text__close(json, '}');
}

static void put_times(struct json_text *json, const struct inspector_operation *op,
		      const struct timing_launch *launch, const struct record_origin *origin)
{
	uint64_t end_us = wall_us(origin, launch->gpu_end_ns);

	json_text__open(json, "event_trace_ts", '{');
	json_text__u64(json, op->is_p2p ? "p2p_start_ts" : "coll_start_ts",
		       wall_us(origin, op->operation->call_ns));
	json_text__u64(json, op->is_p2p ? "p2p_stop_ts" : "coll_stop_ts",
		       wall_us(origin, launch->launch_ns));
	json_text__open(json, "kernel_events", '[');
	json_text__open(json, NULL, '{');
	json_text__i64(json, "channel_id", -1);
	json_text__u64(json, "kernel_start_ts", wall_us(origin, launch->gpu_start_ns));
	json_text__u64(json, "kernel_stop_ts", end_us);
	json_text__u64(json, "kernel_record_ts", end_us);
	json_text__close(json, '}');
	json_text__close(json, ']');
	json_text__close(json, '}');
}

static void put_verbose(struct json_text *json, const struct inspector_operation *op,
			const struct timing_launch *launch, const struct record_origin *origin)
{
	if (!op->operation->call_ns || !launch->launch_ns || !launch->gpu_start_ns ||
	    !launch->gpu_end_ns)
		return;
	put_sequence(json, op->is_p2p);
	put_times(json, op, launch, origin);
}

/* The keys of a collective and of a Send or Recv differ by their beginning alone. */
struct perf_keys {
	const char *perf, *name, *sn, *bytes, *time, *source, *algbw, *busbw;
};

#define PERF_KEYS(k)                                                                               \
	{                                                                                          \
#k "_perf", #k, #k "_sn", #k "_msg_size_bytes", #k "_exec_time_us",                \
			#k "_timing_source", #k "_algobw_gbs", #k "_busbw_gbs"                     \
	}

static void put_perf(struct json_text *json, const struct inspector_operation *op,
		     const struct timing_launch *launch, const struct record_origin *origin)
{
	static const struct perf_keys collective = PERF_KEYS(coll), p2p = PERF_KEYS(p2p);
	const struct perf_keys *key = op->is_p2p ? &p2p : &collective;
	const struct timing_operation *operation = op->operation;
	uint64_t sequence = operation->sequence;

	json_text__open(json, key->perf, '{');
	json_text__string(json, key->name, inspector_function__name(op->function));
	json_text__u64(json, key->sn, sequence == NBP_NO_NUMBER ? operation->number : sequence);
	if (op->is_p2p)
		json_text__i64(json, "p2p_peer", operation->root);
	json_text__u64(json, key->bytes, op->message_bytes);
	json_text__u64(json, key->time, to_us(op->duration_ns));
	json_text__string(json, key->source, "kernel_gpu");
	json_text__fixed(json, key->algbw, op->algorithm_gbs);
	json_text__fixed(json, key->busbw, op->bus_gbs);
	put_verbose(json, op, launch, origin);
	json_text__close(json, '}');
}

unsigned int record_inspector__launch(struct json_text *json, const struct timing_launch *launch,
				      const struct record_origin *origin,
				      uint64_t omitted[INSPECTOR_OMISSION_MAX])
{
	struct inspector_operation told[INSPECTOR_MAX_OPERATIONS];
	unsigned int n = inspector__operations(launch, told, omitted);

	for (unsigned int i = 0; i < n; i++) {
		json_text__open(json, NULL, '{');
		put_header(json, launch->comm);
		put_metadata(json, launch->comm, origin);
		put_perf(json, &told[i], launch, origin);
		json_text__close(json, '}');
		json_text__end_line(json);
	}
	return n;
}
