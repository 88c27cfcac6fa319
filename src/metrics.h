/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every metric family this program writes: name, type, HELP text and label names, in one table.
 * Users' dashboards and alerts rest on these names.
 *
 * A label's name comes from here and never from a job: node_exporter 1.5.0 and 1.9.0 die on a
 * label name that begins with "__". A released HELP text never changes: node_exporter drops series
 * without a word when two files disagree on one, and version 1.9.0 can die of it; two versions of
 * this program side by side, during an upgrade, are enough.
 */
#ifndef NCCL_BPFTRACE_METRICS_H
#define NCCL_BPFTRACE_METRICS_H

#include <stdbool.h>
#include <stddef.h>

enum metric_id {
	METRIC_BUILD_INFO,
	METRIC_HEARTBEAT,
	METRIC_PROCESSES,
	METRIC_EVENTS,
	METRIC_EVENTS_LOST,
	METRIC_GRAPHS_UNRESOLVED,
	METRIC_UNJUDGED,
	METRIC_INVALID_TIMINGS,
	METRIC_SAMPLE_RATIO,
	METRIC_INSPECTOR_OMITTED,
	METRIC_SERIES_SUPPRESSED,
	METRIC_CPU_SECONDS,
	METRIC_RESIDENT_MEMORY,
	METRIC_PROCESS_INFO,
	METRIC_COMMUNICATOR_INFO,
	METRIC_OPERATIONS,
	METRIC_OPERATION_BYTES,
	METRIC_OPERATION_UNKNOWN_TYPES,
	METRIC_OPERATION_SEQUENCE,
	METRIC_OPERATION_SIGNATURE,
	METRIC_LAST_OPERATION,
	METRIC_IN_FLIGHT,
	METRIC_OLDEST_IN_FLIGHT,
	METRIC_COMMUNICATOR_STATE,
	METRIC_LATENESS_TOTAL,
	METRIC_LAST_ARRIVAL,
	METRIC_ERRORS,
	METRIC_MISMATCHES,
	METRIC_DURATION,
	METRIC_TIMED_OPERATIONS,
	METRIC_TIMED_SECONDS,
	METRIC_TIMED_BUS_BYTES,
	METRIC_QUEUE,
	METRIC_LATENESS,
	METRIC_COUNT,
};

struct prom_family {
	const char *name;
	const char *type;	   /* "counter", "gauge" or "histogram" */
	const char *help;	   /* one line, nothing in it that needs escaping */
	const char *const *labels; /* in the order of the values; ends with NULL */
	bool capped; /* its series are made by jobs, so that they count against the cap */
};

extern const struct prom_family prom_families[METRIC_COUNT];

#endif
