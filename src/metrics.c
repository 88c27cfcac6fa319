/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "metrics.h"

#define LABELS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* A job on a GPU; UUID is spelt as DCGM exporter spells it, so that the two join. */
#define JOB_LABELS "job_id", "UUID"
/* A rank of a communicator. */
#define COMM_LABELS JOB_LABELS, "comm", "rank"
/* What was timed, and how NCCL did it. */
#define TIMED_LABELS JOB_LABELS, "operation", "size", "scope", "algorithm", "protocol"

/* Each row would be indented once more. */
/* clang-format off */
const struct prom_family prom_families[METRIC_COUNT] = {
	[METRIC_BUILD_INFO] = {
		.name = "nccl_bpftrace_build_info",
		.type = "gauge",
		.help = "A constant 1, labelled with the versions of nccl-bpftrace, of libbpf "
			"and of the kernel it runs on.",
		.labels = LABELS("version", "libbpf", "kernel"),
	},
	[METRIC_HEARTBEAT] = {
		.name = "nccl_bpftrace_heartbeat_timestamp_seconds",
		.type = "gauge",
		.help = "Unix time at which this file was made.",
		.labels = LABELS(NULL),
	},
	[METRIC_PROCESSES] = {
		.name = "nccl_bpftrace_processes",
		.type = "gauge",
		.help = "Processes on this node that have NCCL loaded, by how they are seen.",
		.labels = LABELS("state"),
	},
	[METRIC_EVENTS] = {
		.name = "nccl_bpftrace_events_total",
		.type = "counter",
		.help = "Records received from the kernel.",
		.labels = LABELS(NULL),
	},
	[METRIC_EVENTS_LOST] = {
		.name = "nccl_bpftrace_events_lost_total",
		.type = "counter",
		.help = "Records lost before they were taken into account, by reason.",
		.labels = LABELS("reason"),
	},
	[METRIC_GRAPHS_UNRESOLVED] = {
		.name = "nccl_bpftrace_graph_launches_unresolved_total",
		.type = "counter",
		.help = "Launches of CUDA graphs of which it is not known what NCCL operations "
			"they run. Those operations are in no other metric.",
		.labels = LABELS(NULL),
	},
	[METRIC_UNJUDGED] = {
		.name = "nccl_bpftrace_unjudged_total",
		.type = "counter",
		.help = "Ranks of communicators, and calls of such, that are in no verdict "
			"because there was no room for them.",
		.labels = LABELS(NULL),
	},
	[METRIC_INVALID_TIMINGS] = {
		.name = "nccl_bpftrace_invalid_timings_total",
		.type = "counter",
		.help = "GPU times that were refused or did not come, by reason. They are in "
			"no other metric.",
		.labels = LABELS("reason"),
	},
	[METRIC_SAMPLE_RATIO] = {
		.name = "nccl_bpftrace_timing_sample_ratio",
		.type = "gauge",
		.help = "Share of the kernel launches between the last two times this file "
			"was made whose GPU time is in the histograms.",
		.labels = LABELS(JOB_LABELS),
		.capped = true,
	},
	[METRIC_INSPECTOR_OMITTED] = {
		.name = "nccl_bpftrace_inspector_omitted_total",
		.type = "counter",
		.help = "Operations, and launches of several, that are in no "
			"nccl_inspector_metrics file, by reason.",
		.labels = LABELS("reason"),
	},
	[METRIC_SERIES_SUPPRESSED] = {
		.name = "nccl_bpftrace_series_suppressed_total",
		.type = "counter",
		.help = "Series left out of this file by the limit on series, summed over "
			"every time it was made.",
		.labels = LABELS(NULL),
	},
	[METRIC_CPU_SECONDS] = {
		.name = "nccl_bpftrace_cpu_seconds_total",
		.type = "counter",
		.help = "Processor time, user and system, spent by nccl-bpftrace itself.",
		.labels = LABELS(NULL),
	},
	[METRIC_RESIDENT_MEMORY] = {
		.name = "nccl_bpftrace_resident_memory_bytes",
		.type = "gauge",
		.help = "Resident memory of nccl-bpftrace itself.",
		.labels = LABELS(NULL),
	},
	[METRIC_PROCESS_INFO] = {
		.name = "nccl_bpftrace_process_info",
		.type = "gauge",
		.help = "A constant 1 for each process that uses NCCL, labelled with its job, "
			"its GPU and what is known of it.",
		.labels = LABELS(JOB_LABELS, "pid", "namespace", "pod", "container", "slurm_step",
				 "local_rank", "command", "nccl_version", "plugin"),
		.capped = true,
	},
	[METRIC_COMMUNICATOR_INFO] = {
		.name = "nccl_communicator_info",
		.type = "gauge",
		.help = "A constant 1 for each rank of a communicator on this node, labelled "
			"with what is known of it.",
		.labels = LABELS(COMM_LABELS, "comm_name", "nranks", "n_nodes", "pid", "node", "gpu",
				 "identity", "timing"),
		.capped = true,
	},
	[METRIC_OPERATIONS] = {
		.name = "nccl_operations_total",
		.type = "counter",
		.help = "NCCL operations, each one counted and none sampled.",
		.labels = LABELS(COMM_LABELS, "operation", "mode"),
		.capped = true,
	},
	[METRIC_OPERATION_BYTES] = {
		.name = "nccl_operation_bytes_total",
		.type = "counter",
		.help = "Bytes of NCCL operations in the sense of the size column of "
			"nccl-tests, each operation counted and none sampled.",
		.labels = LABELS(COMM_LABELS, "operation", "mode"),
		.capped = true,
	},
	[METRIC_OPERATION_UNKNOWN_TYPES] = {
		.name = "nccl_operations_unknown_datatype_total",
		.type = "counter",
		.help = "NCCL operations whose bytes are not counted, because the size of "
			"their data type is not known.",
		.labels = LABELS(COMM_LABELS, "operation"),
		.capped = true,
	},
	[METRIC_OPERATION_SEQUENCE] = {
		.name = "nccl_operation_sequence",
		.type = "gauge",
		.help = "Sequence number of the last operation of this kind. Compare ranks "
			"only when it has stood still: scrapes are not simultaneous.",
		.labels = LABELS(COMM_LABELS, "operation"),
		.capped = true,
	},
	[METRIC_OPERATION_SIGNATURE] = {
		.name = "nccl_operation_signature",
		.type = "gauge",
		.help = "32-bit hash of count, data type, reduction and root of the last "
			"operation of this kind. Ranks at the same sequence number must "
			"agree.",
		.labels = LABELS(COMM_LABELS, "operation"),
		.capped = true,
	},
	[METRIC_LAST_OPERATION] = {
		.name = "nccl_last_operation_timestamp_seconds",
		.type = "gauge",
		.help = "Unix time of the last NCCL call seen on this communicator.",
		.labels = LABELS(COMM_LABELS),
		.capped = true,
	},
	[METRIC_IN_FLIGHT] = {
		.name = "nccl_operations_in_flight",
		.type = "gauge",
		.help = "Kernel launches of this communicator up to the last one that is "
			"timed that are not known to be done.",
		.labels = LABELS(COMM_LABELS),
		.capped = true,
	},
	[METRIC_OLDEST_IN_FLIGHT] = {
		.name = "nccl_oldest_in_flight_start_timestamp_seconds",
		.type = "gauge",
		.help = "Unix time at which the oldest launch in flight was launched.",
		.labels = LABELS(COMM_LABELS),
		.capped = true,
	},
	[METRIC_COMMUNICATOR_STATE] = {
		.name = "nccl_communicator_state",
		.type = "gauge",
		.help = "1 for the state that the communicator is in, as far as the ranks of "
			"this node tell; once 0 for a state that it has just left.",
		.labels = LABELS(COMM_LABELS, "state"),
		.capped = true,
	},
	[METRIC_LATENESS_TOTAL] = {
		.name = "nccl_operation_lateness_seconds_total",
		.type = "counter",
		.help = "How long after the first rank of this node this rank called the same "
			"operations, summed up.",
		.labels = LABELS(COMM_LABELS),
		.capped = true,
	},
	[METRIC_LAST_ARRIVAL] = {
		.name = "nccl_operations_last_arrival_total",
		.type = "counter",
		.help = "Operations that this rank was the last one of this node to call, more "
			"than a millisecond after the first.",
		.labels = LABELS(COMM_LABELS),
		.capped = true,
	},
	[METRIC_ERRORS] = {
		.name = "nccl_errors_total",
		.type = "counter",
		.help = "Asynchronous errors of the communicator by the name that NCCL has for "
			"them, and calls of ncclCommAbort.",
		.labels = LABELS(COMM_LABELS, "result"),
		.capped = true,
	},
	[METRIC_MISMATCHES] = {
		.name = "nccl_mismatches_total",
		.type = "counter",
		.help = "Calls of this rank that differ from what other ranks of this node "
			"called at the same sequence number, by what differs.",
		.labels = LABELS(COMM_LABELS, "kind"),
		.capped = true,
	},
	[METRIC_DURATION] = {
		.name = "nccl_operation_duration_seconds",
		.type = "histogram",
		.help = "GPU time of kernel launches, sampled, by their operation and the "
			"bytes of all of it.",
		.labels = LABELS(JOB_LABELS, "operation", "size", "scope"),
		.capped = true,
	},
	[METRIC_TIMED_OPERATIONS] = {
		.name = "nccl_timed_operations_total",
		.type = "counter",
		.help = "NCCL operations in the launches whose GPU time is known.",
		.labels = LABELS(TIMED_LABELS),
		.capped = true,
	},
	[METRIC_TIMED_SECONDS] = {
		.name = "nccl_timed_seconds_total",
		.type = "counter",
		.help = "GPU time of the launches whose GPU time is known.",
		.labels = LABELS(TIMED_LABELS),
		.capped = true,
	},
	[METRIC_TIMED_BUS_BYTES] = {
		.name = "nccl_timed_bus_bytes_total",
		.type = "counter",
		.help = "Bytes on the bus, in the sense of nccl-tests, of the launches whose "
			"GPU time is known.",
		.labels = LABELS(TIMED_LABELS),
		.capped = true,
	},
	[METRIC_QUEUE] = {
		.name = "nccl_operation_queue_seconds",
		.type = "histogram",
		.help = "Time from the call on the host to the start on the GPU, sampled.",
		.labels = LABELS(JOB_LABELS),
		.capped = true,
	},
	[METRIC_LATENESS] = {
		.name = "nccl_operation_lateness_seconds",
		.type = "histogram",
		.help = "Time from the first call of an operation on this node to each rank's "
			"call of it.",
		.labels = LABELS(JOB_LABELS),
		.capped = true,
	},
};
/* clang-format on */
