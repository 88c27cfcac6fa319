/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The pure part of textfile.h: from the picture to the text. */
#include "textfile_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"
#include "version.h"

typedef bool reading_fn(const struct comm *comm, enum nccl_operation operation, enum comm_mode mode,
			uint64_t *ret);

static bool read_calls(const struct comm *comm, enum nccl_operation operation, enum comm_mode mode,
		       uint64_t *ret)
{
	*ret = comm->operations[operation].tally[mode].calls;
	return *ret;
}

static bool read_bytes(const struct comm *comm, enum nccl_operation operation, enum comm_mode mode,
		       uint64_t *ret)
{
	return comm__bytes(comm, operation, mode, ret) && *ret;
}

static bool read_unknown_types(const struct comm *comm, enum nccl_operation operation,
			       enum comm_mode mode, uint64_t *ret)
{
	(void)mode;
	*ret = 0;
	for (int i = 0; i < COMM_MODES; i++)
		*ret += comm->operations[operation].tally[i].unknown_types;
	return *ret;
}

static bool read_sequence(const struct comm *comm, enum nccl_operation operation,
			  enum comm_mode mode, uint64_t *ret)
{
	(void)mode;
	return comm__sequence(comm, operation, ret) && *ret;
}

static bool read_signature(const struct comm *comm, enum nccl_operation operation,
			   enum comm_mode mode, uint64_t *ret)
{
	uint32_t signature;

	(void)mode;
	if (!comm__signature(comm, operation, &signature))
		return false;
	*ret = signature;
	return true;
}

/* The families with one series for each operation, and mode; false: that operation has none. */
static const struct reading {
	enum metric_id metric;
	reading_fn *read;
	enum comm_mode n_modes; /* the first so many */
} readings[] = {
	{METRIC_OPERATIONS, read_calls, COMM_MODES},
	{METRIC_OPERATION_BYTES, read_bytes, COMM_MODES},
	{METRIC_OPERATION_UNKNOWN_TYPES, read_unknown_types, 1},
	{METRIC_OPERATION_SEQUENCE, read_sequence, 1},
	{METRIC_OPERATION_SIGNATURE, read_signature, 1},
};

static const char *const mode_names[COMM_MODES] = {"launched", "captured", "replayed"};

static const char *job_of(const struct process *process)
{
	return process ? process->info.job.job_id : "";
}

static const char *uuid_of(const struct gpu *gpu)
{
	return gpu ? gpu->uuid : "";
}

/* The number as text, "" when it is below the least that can be. Returns buf. */
static const char *number(char buf[12], int64_t value, int64_t least)
{
	buf[0] = 0;
	if (value >= least)
		snprintf(buf, 12, "%" PRId64, value);
	return buf;
}

/* Those with equal labels stand together, the one that is to be kept before the others. */
static int compare_comms(const void *left, const void *right)
{
	const struct textfile_comm *a = *(struct textfile_comm *const *)left;
	const struct textfile_comm *b = *(struct textfile_comm *const *)right;
	int order = strcmp(a->comm->label, b->comm->label);

	if (!order)
		order = (a->comm->rank > b->comm->rank) - (a->comm->rank < b->comm->rank);
	if (!order)
		order = strcmp(job_of(a->process), job_of(b->process));
	if (!order)
		order = strcmp(uuid_of(a->gpu), uuid_of(b->gpu));
	return order;
}

static int compare_comms_and_age(const void *left, const void *right)
{
	const struct textfile_comm *a = *(struct textfile_comm *const *)left;
	const struct textfile_comm *b = *(struct textfile_comm *const *)right;
	int order = compare_comms(left, right);

	if (!order)
		order = !!a->comm->dead_ns - !!b->comm->dead_ns;
	return order ?: (a > b) - (a < b);
}

static unsigned int row__n_series(const struct textfile_comm *row)
{
	const struct comm *comm = row->comm;
	unsigned int n = 1 + !!comm->last_ns; /* nccl_communicator_info, nccl_last_operation_... */
	uint32_t n_in_flight;
	uint64_t value;

	for (int i = 0; i < NCCL_OP_MAX; i++)
		for (size_t j = 0; j < ARRAY_SIZE(readings); j++)
			for (int mode = 0; mode < (int)readings[j].n_modes; mode++)
				n += readings[j].read(comm, i, mode, &value);
	if (row__in_flight(row, &n_in_flight, &value))
		n += 1 + !!n_in_flight;
	return n + row__n_verdicts(row);
}

/*
 * comm.c gives each communicator a label of its own, but a process's number can come back while
 * its predecessor's communicators are still shown. One series twice costs all of the file.
 */
static int source__drop_collisions(struct textfile_source *src)
{
	_cleanup_free_ struct textfile_comm **sorted = calloc(src->n_comms + 1, sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < src->n_comms; i++)
		sorted[i] = &src->comms[i];
	qsort(sorted, src->n_comms, sizeof(*sorted), compare_comms_and_age);
	for (size_t i = 0; i < src->n_comms; i++) {
		sorted[i]->is_left_out = i && !compare_comms(&sorted[i - 1], &sorted[i]);
		if (sorted[i]->is_left_out)
			src->n_collisions += row__n_series(sorted[i]);
	}
	return 0;
}

/* What does not fit as a whole is left out as a whole, in all families. */
static void source__admit(struct textfile_source *src, struct prom *prom)
{
	for (size_t i = 0; i < src->n_processes; i++)
		src->processes[i].is_left_out = !prom__admit(prom, 1);
	for (size_t i = 0; i < src->n_comms; i++)
		if (!src->comms[i].is_left_out)
			src->comms[i].is_left_out =
				!prom__admit(prom, row__n_series(&src->comms[i]));
	source__admit_timed(src, prom);
}

/* Also sets the cluster that the next samples carry. */
static void series__begin(struct series *s, struct prom *prom, const struct textfile_source *src,
			  const struct process *process, const struct gpu *gpu)
{
	const char *cluster = src->cluster && src->cluster[0] ? src->cluster : NULL;

	if (!cluster && process)
		cluster = process->info.job.cluster;
	prom__set_cluster(prom, cluster);
	s->labels[0] = job_of(process);
	s->labels[1] = uuid_of(gpu);
}

void series__of_comm(struct series *s, struct prom *prom, const struct textfile_source *src,
		     const struct textfile_comm *row)
{
	series__begin(s, prom, src, row->process, row->gpu);
	s->labels[2] = row->comm->label;
	s->labels[3] = number(s->rank, row->comm->rank, 0);
}

static void fill_agent(struct prom *prom, const struct textfile_source *src)
{
	const char *build[] = {NCCL_BPFTRACE_VERSION, src->libbpf, src->kernel};

	prom__begin(prom, METRIC_BUILD_INFO);
	prom__sample_u64(prom, build, 1);
	prom__begin(prom, METRIC_HEARTBEAT);
	prom__sample(prom, NULL, src->wall_ms / 1e3);
	prom__begin(prom, METRIC_GRAPHS_UNRESOLVED);
	prom__sample_u64(prom, NULL, src->graphs_unresolved);
	prom__begin(prom, METRIC_UNJUDGED);
	prom__sample_u64(prom, NULL, src->n_unjudged);
	prom__begin(prom, METRIC_EVENTS);
	prom__sample_u64(prom, NULL, src->received);
	prom__begin(prom, METRIC_SERIES_SUPPRESSED);
	prom__sample_u64(prom, NULL, prom__suppressed(prom) + src->n_collisions);
	prom__begin(prom, METRIC_CPU_SECONDS);
	prom__sample(prom, NULL, src->cpu_seconds);
	prom__begin(prom, METRIC_RESIDENT_MEMORY);
	prom__sample_u64(prom, NULL, src->resident_bytes);
}

static void fill_counts(struct prom *prom, const struct textfile_source *src)
{
	const struct {
		const char *state;
		unsigned int n;
	} processes[] = {
		{"traced", src->census.traced},
		{"plugin", src->census.plugin},
		{"unsupported", src->census.unsupported},
	};

	prom__begin(prom, METRIC_PROCESSES);
	for (size_t i = 0; i < ARRAY_SIZE(processes); i++)
		prom__sample_u64(prom, &processes[i].state, processes[i].n);
	prom__begin(prom, METRIC_EVENTS_LOST);
	for (int i = 0; i < TRACER_LOST_MAX; i++) {
		const char *reason = tracer__lost_name(i);

		prom__sample_u64(prom, &reason, src->lost[i]);
	}
	for (int i = 0; i < TIMING_LOST_MAX; i++) {
		const char *reason = timing_lost__name(i);

		if (!timing_lost__is_time(i)) /* that is an invalid timing */
			prom__sample_u64(prom, &reason, src->plugin_lost[i]);
	}
	prom__begin(prom, METRIC_INVALID_TIMINGS);
	for (int i = 0; i < TIMING_INVALID_MAX; i++) {
		const char *reason = timing_invalid__name(i);

		prom__sample_u64(prom, &reason, src->invalid[i]);
	}
	prom__begin(prom, METRIC_INSPECTOR_OMITTED);
	for (size_t i = 0; i < src->n_omitted; i++)
		prom__sample_u64(prom, &src->omitted[i].reason, src->omitted[i].count);
}

static void fill_process(struct prom *prom, const struct textfile_source *src,
			 const struct textfile_process *row)
{
	const struct process *process = row->process;
	const struct library *library = process__nccl(process);
	struct series s;
	size_t n = 2;

	s.version[0] = 0;
	if (library && library->image.version)
		nccl_version__format(library->image.version, s.version);
	series__begin(&s, prom, src, process, row->gpu);
	s.labels[n++] = number(s.pid, process->tgid, 1);
	s.labels[n++] = process->info.job.namespace;
	s.labels[n++] = process->info.job.pod;
	s.labels[n++] = process->info.job.container;
	s.labels[n++] = process->info.job.step;
	s.labels[n++] = process->info.job.local_rank;
	s.labels[n++] = process->info.command;
	s.labels[n++] = s.version;
	s.labels[n++] = plugin_state__name(process__plugin(process));
	prom__sample_u64(prom, s.labels, 1);
}

static const char *identity_name(enum comm_identity identity)
{
	switch (identity) {
	case COMM_OBSERVED:
		return "observed";
	case COMM_RECOVERED:
		return "recovered";
	default:
		return "unknown";
	}
}

static void fill_comm(struct prom *prom, const struct textfile_source *src,
		      const struct textfile_comm *row)
{
	const struct comm *comm = row->comm;
	struct series s;
	size_t n = 4;

	series__of_comm(&s, prom, src, row);
	s.labels[n++] = comm->name;
	s.labels[n++] = number(s.n_ranks, comm->n_ranks, 1);
	s.labels[n++] = number(s.n_nodes, comm->n_nodes, 1);
	s.labels[n++] = number(s.pid, comm->key.tgid, 1);
	s.labels[n++] = src->host;
	s.labels[n++] = number(s.gpu, row->gpu ? (int64_t)row->gpu->index : -1, 0);
	s.labels[n++] = identity_name(comm->identity);
	s.labels[n++] = row__timing_name(row);
	prom__sample_u64(prom, s.labels, 1);
}

void fill_timestamp(struct prom *prom, const struct textfile_source *src,
		    const struct textfile_comm *row, uint64_t time_ns)
{
	struct series s;

	series__of_comm(&s, prom, src, row);
	prom__sample(prom, s.labels,
		     (int64_t)(time_ns + src->wall_offset_ns) / (int64_t)NSEC_PER_MSEC / 1e3);
}

static void fill_last_operation(struct prom *prom, const struct textfile_source *src,
				const struct textfile_comm *row)
{
	if (row->comm->last_ns)
		fill_timestamp(prom, src, row, comm__last_ns(row->comm));
}

static void fill_operations(struct prom *prom, const struct textfile_source *src,
			    const struct textfile_comm *row, const struct reading *reading)
{
	struct series s;
	uint64_t value;

	series__of_comm(&s, prom, src, row);
	for (int i = 0; i < NCCL_OP_MAX; i++) {
		s.labels[4] = nccl_operation__name(i);
		for (int mode = 0; mode < (int)reading->n_modes; mode++) {
			s.labels[5] = mode_names[mode]; /* in the families that have it */
			if (reading->read(row->comm, i, mode, &value))
				prom__sample_u64(prom, s.labels, value);
		}
	}
}

typedef void fill_comm_fn(struct prom *prom, const struct textfile_source *src,
			  const struct textfile_comm *row);

static void fill_comms(struct prom *prom, const struct textfile_source *src, enum metric_id metric,
		       fill_comm_fn *fill)
{
	prom__begin(prom, metric);
	for (size_t i = 0; i < src->n_comms; i++)
		if (!src->comms[i].is_left_out)
			fill(prom, src, &src->comms[i]);
}

static void fill_readings(struct prom *prom, const struct textfile_source *src)
{
	for (size_t j = 0; j < ARRAY_SIZE(readings); j++) {
		prom__begin(prom, readings[j].metric);
		for (size_t i = 0; i < src->n_comms; i++)
			if (!src->comms[i].is_left_out)
				fill_operations(prom, src, &src->comms[i], &readings[j]);
	}
}

int textfile__fill(struct prom *prom, struct textfile_source *src)
{
	int err = source__drop_collisions(src);

	if (err)
		return err;
	source__admit(src, prom);
	prom__set_cluster(prom, src->cluster);
	fill_agent(prom, src);
	fill_counts(prom, src);
	prom__begin(prom, METRIC_PROCESS_INFO);
	for (size_t i = 0; i < src->n_processes; i++)
		if (!src->processes[i].is_left_out)
			fill_process(prom, src, &src->processes[i]);
	fill_comms(prom, src, METRIC_COMMUNICATOR_INFO, fill_comm);
	fill_readings(prom, src);
	fill_comms(prom, src, METRIC_LAST_OPERATION, fill_last_operation);
	fill_comms(prom, src, METRIC_IN_FLIGHT, fill_in_flight);
	fill_comms(prom, src, METRIC_OLDEST_IN_FLIGHT, fill_oldest_in_flight);
	fill_verdicts(prom, src);
	fill_timed(prom, src);
	return 0;
}
