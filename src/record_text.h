/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The lines of a recording, in NVIDIA Inspector's form and in our own. Pure; where they go is in
 * record_file.c. Everything here is also what README says of the formats.
 */
#ifndef RECORD_TEXT_H
#define RECORD_TEXT_H

#include "comm.h"
#include "inspector.h"
#include "json_text.h"
#include "timing.h"

#define RECORD_SCHEMA "nccl-bpftrace/record/1"

/* What all lines of a recording share. */
struct record_origin {
	const char *host, *version, *kernel;
	int64_t wall_offset_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC */
	uint64_t now_ns;	/* CLOCK_MONOTONIC, of the line's making */
};

/*
 * Inspector's JSON lines of NCCL 2.30 (format v4.0), one for each operation that Inspector would
 * tell of; how many there were. Its verbose part (event_trace_*) is there where the GPU's start is
 * known on the host's clock; what CUDA events time is the launch as a whole, so that its one kernel
 * event has channel -1. Deliberate differences: git_rev names this program; times are rounded to
 * microseconds, bandwidths come from nanoseconds; p2p_sn is the plugin's number of the operation.
 */
unsigned int record_inspector__launch(struct json_text *json, const struct timing_launch *launch,
				      const struct record_origin *origin,
				      uint64_t omitted[INSPECTOR_OMISSION_MAX]);

/* ---- ours: "kind" says what a line is; null is what is not known; times are CLOCK_MONOTONIC ----
 */

/* The first line: schema, host, versions, and the clocks' difference. */
void record_jsonl__begin(struct json_text *json, const struct record_origin *origin);

/* The clocks' difference has changed: it holds for lines that follow. */
void record_jsonl__clock(struct json_text *json, const struct record_origin *origin);

/* A launch that a plugin told of, timed or not, with its operations. job_id: "" or NULL: unknown.
 */
void record_jsonl__launch(struct json_text *json, const struct timing_launch *launch,
			  const char *job_id);

/* A call as it was seen from outside: of a process whose plugin is absent, asleep or not heard. */
void record_jsonl__call(struct json_text *json, const struct nb_record *record, const char *job_id);

struct record_totals {
	uint64_t lines, launches, operations, timed, calls;
	uint64_t omitted[INSPECTOR_OMISSION_MAX]; /* Inspector's format only */
	const struct record_count {
		const char *name;
		uint64_t count;
	} * lost, *invalid; /* by reason, ended by a NULL name */
};

/* The last line; a recording without it was cut off. */
void record_jsonl__end(struct json_text *json, const struct record_origin *origin,
		       const struct record_totals *totals);

#endif
