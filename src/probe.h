/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The loaded BPF side: its maps, its ring, its counters. */
#ifndef PROBE_H
#define PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image.h"
#include "nccl_bpftrace_record.h"

struct probe;
struct perf_event_header;

enum probe_method { PROBE_AUTO, PROBE_MULTI, PROBE_PERF };

struct probe_options {
	enum probe_method method;
	uint64_t ring_bytes; /* rounded up to a power of two, at least a page */
	bool only_listed;    /* only processes given to probe__list_process() */
	bool checksum;	     /* every record carries nb_record_checksum() */
	bool no_records;     /* count only (bench) */
	bool foreign;	     /* with what follows other profiler plugins */
};

#define PROBE_DEFAULT_RING_BYTES (4ULL << 20)

/* Called per record, which is size-checked; valid during the call only. */
struct probe_listener {
	void (*call)(void *ctx, const struct nb_record *record);	  /* and lifecycle */
	void (*plugin)(void *ctx, const struct nb_plugin_record *record); /* known kinds */
	/* As long as its size says; other than that, its fields are not checked. */
	void (*foreign)(void *ctx, const struct nb_foreign_record *record);
	/* Of processes that were listed, or told of anything; may come twice, or not at all. */
	void (*end)(void *ctx, const struct nb_end *end);
	void *ctx;
};

typedef void probe_counter_fn(void *ctx, const struct nb_key *key, const struct nb_counter *value);

/*
 * Opens, fills and loads the programs. 0, or -errno: -EPERM without the capabilities, -ENOENT
 * without the kernel's BTF. The reason for people goes to ret_why (static text) when not NULL.
 */
int probe__new(struct probe **ret, const struct probe_options *options, const char **ret_why);
void probe__free(struct probe *probe);

/* 0, or -EACCES and, in ret_why, what privilege is missing to set probes. */
int probe__may_attach(const struct probe *probe, const char **ret_why);
bool probe__uses_multi(const struct probe *probe);
/* What the probes on a file of that kind run; -1: nothing. */
int probe__program_fd(const struct probe *probe, enum image_kind kind);
int probe__libraries_fd(const struct probe *probe);
int probe__iterator_fd(const struct probe *probe);
int probe__new_mappings_fd(const struct probe *probe);
int probe__events_fd(const struct probe *probe);

/* What links of a trial saw; from now on a function may have two links, or may not any more. */
const volatile uint64_t *probe__trial(const struct probe *probe);
void probe__overlap_links(struct probe *probe, bool overlap);

/* Becomes readable when enough waits in the ring; probe__consume() takes what is there. */
int probe__ring_fd(const struct probe *probe);
void probe__listen(struct probe *probe, const struct probe_listener *listener); /* copied */
int probe__consume(struct probe *probe);

/* Records that came with a wrong size, kind or checksum; records taken. */
uint64_t probe__bad_records(const struct probe *probe);
uint64_t probe__received(const struct probe *probe);
uint64_t probe__lost(const struct probe *probe, enum nb_lost reason);

/* Calls fn for every counter. 0 or -errno. */
int probe__read_counters(struct probe *probe, probe_counter_fn *fn, void *ctx);
int probe__delete_counter(struct probe *probe, const struct nb_key *key);

/* From now on the listener is told of the ends of processes. 0 or -errno. */
int probe__watch_ends(struct probe *probe);

/* Its end is to be told; with only_listed: trace this process too. */
int probe__list_process(struct probe *probe, uint32_t tgid);
/* One key of the process was deleted: it may have another. Those that it has, or -errno. */
int probe__uncharge_process(struct probe *probe, uint32_t tgid);
int probe__forget_process(struct probe *probe, uint32_t tgid);

/*
 * The program for the functions of a profiler plugin that is not ours, -1 without options.foreign;
 * and in which processes it listens, to which version N of their ncclProfiler_vN. 0 or -errno.
 */
int probe__foreign_program_fd(const struct probe *probe);
int probe__follow_foreign(struct probe *probe, uint32_t tgid, uint32_t version);
int probe__leave_foreign(struct probe *probe, uint32_t tgid);

/* Not all calls of the process are seen: what it captures meanwhile is not known. */
void probe__set_unprobed(struct probe *probe, uint32_t tgid, bool unprobed);
/* Has it begun a capture since? */
bool probe__captures_unprobed(const struct probe *probe, uint32_t tgid);

/* CUDA graphs, probe_graph.c. From now on calls are asked whether they are captured. */
void probe__with_graphs(struct probe *probe);

typedef void probe_capture_fn(void *ctx, uint64_t capture, const struct nb_capture *value);
typedef void probe_captured_fn(void *ctx, const struct nb_captured_key *key,
			       const struct nb_tally *tally);

/* Every capture; what was called in each. 0 or -errno. */
int probe__each_capture(struct probe *probe, probe_capture_fn *fn, void *ctx);
int probe__each_captured(struct probe *probe, probe_captured_fn *fn, void *ctx);
/* Nothing can be launched of it any more. */
void probe__drop_capture(struct probe *probe, uint64_t capture, uint32_t tgid);
void probe__drop_captured(struct probe *probe, const struct nb_captured_key *key);
/* The process is gone: all of it. */
void probe__forget_graphs(struct probe *probe, uint32_t tgid);

const char *nb_lost__name(enum nb_lost reason);

#endif
