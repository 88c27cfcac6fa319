/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe_private.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach.h"
#include "nccl_layout.h"
#include "util.h"

#define READ_BATCH 2048
#define MAX_TAKEN  (1U << 20) /* at once: a job that fills the ring ever on must not hold us up */

_Static_assert(NCCL_FN_PROBED <= NB_MAX_FUNCTIONS, "more probed functions than slots");
_Static_assert(NCCL_N_DATATYPES <= NB_MAX_DATATYPES, "more datatypes than sizes");
_Static_assert(NB_SLOT_NONE == NCCL_SLOT_NONE && NB_SLOT_STACK == NCCL_SLOT_STACK, "slots");

static uint8_t slot(const struct nccl_function *fn, enum nccl_param param)
{
	return nccl_api__slot(fn, param, NCCL_ARCH_HOST);
}

static void fill_slots(struct nb_slots *s, const struct nccl_function *fn)
{
	s->comm = slot(fn, NCCL_PARAM_COMM);
	s->count = slot(fn, NCCL_PARAM_COUNT);
	s->datatype = slot(fn, NCCL_PARAM_DATATYPE);
	s->redop = slot(fn, NCCL_PARAM_REDOP);
	s->root = slot(fn, NCCL_PARAM_ROOT);
	if (s->root == NCCL_SLOT_NONE)
		s->root = slot(fn, NCCL_PARAM_PEER);
	s->stream = slot(fn, NCCL_PARAM_STREAM);
	s->newcomm = slot(fn, NCCL_PARAM_NEWCOMM);
	s->nranks = slot(fn, NCCL_PARAM_NRANKS);
	s->rank = slot(fn, NCCL_PARAM_RANK);
	s->lifecycle = fn->family == NCCL_FAMILY_LIFECYCLE;
	s->sequence = fn->sequence;
}

static uint32_t log2_of(unsigned long n)
{
	return __builtin_ctzl(n);
}

static uint64_t round_up_ring(uint64_t bytes)
{
	uint64_t size = sysconf(_SC_PAGESIZE);

	while (size < bytes && size < 1ULL << 31)
		size <<= 1;
	return size;
}

static struct bpf_program *probe__program(const struct probe *probe, enum image_kind kind)
{
	switch (kind) {
	case IMAGE_NCCL:
		return probe->skel->progs.nccl_call;
	case IMAGE_PLUGIN:
		return probe->skel->progs.plugin_batch;
	case IMAGE_CUDA:
		return probe->skel->progs.graph_call;
	default:
		return NULL;
	}
}

static void probe__fill(struct probe *probe, const struct probe_options *options)
{
	struct nccl_bpftrace_bpf__rodata *ro = probe->skel->rodata;
	uint64_t ring = round_up_ring(options->ring_bytes ?: PROBE_DEFAULT_RING_BYTES);

	for (unsigned int i = 0; i < NCCL_FN_PROBED; i++)
		fill_slots(&ro->slots[i], &nccl_functions[i]);
	for (unsigned int i = 0; i < NCCL_N_DATATYPES; i++)
		ro->datatype_size[i] = nccl_datatype__size(i);
	ro->n_functions = NCCL_FN_PROBED;
	ro->page_shift = log2_of(sysconf(_SC_PAGESIZE));
	ro->wake_bytes = ring / 16;
	ro->only_listed = options->only_listed;
	ro->with_checksum = options->checksum;
	ro->with_records = !options->no_records;
	bpf_map__set_max_entries(probe->skel->maps.events, ring);
	bpf_map__set_max_entries(probe->skel->maps.new_mappings, libbpf_num_possible_cpus());
	probe__fill_foreign(probe, options);
	for (int kind = IMAGE_NONE + 1; probe->multi && kind < IMAGE_KINDS; kind++)
		if (probe__program(probe, kind))
			bpf_program__set_expected_attach_type(probe__program(probe, kind),
							      ATTACH_TRACE_UPROBE_MULTI);
}

static int probe__load(struct probe *probe, const struct probe_options *options)
{
	int err;

	probe->skel = nccl_bpftrace_bpf__open();
	if (!probe->skel)
		return -errno;
	probe__fill(probe, options);
	err = nccl_bpftrace_bpf__load(probe->skel);
	if (err) {
		nccl_bpftrace_bpf__destroy(probe->skel);
		probe->skel = NULL;
	}
	return err;
}

/* Loads for uprobe_multi where the kernel has it, else for perf events: feature, not version. */
static int probe__load_best(struct probe *probe, const struct probe_options *options)
{
	int err;

	probe->multi = options->method != PROBE_PERF;
	err = probe__load(probe, options);
	if (options->method == PROBE_PERF)
		return err;
	if (!err && attach__multi_works(probe__program_fd(probe, IMAGE_NCCL)))
		return 0;
	if (options->method == PROBE_MULTI)
		return err ?: -EOPNOTSUPP;
	nccl_bpftrace_bpf__destroy(probe->skel);
	probe->multi = false;
	return probe__load(probe, options);
}

static const char *explain(int err)
{
	switch (err) {
	case -EPERM:
	case -EACCES:
		return "no privilege to load BPF programs: run as root, or with CAP_BPF, "
		       "CAP_PERFMON, CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE and CAP_DAC_READ_SEARCH";
	case -ENOENT:
	case -ESRCH:
		return "the kernel has no BTF (/sys/kernel/btf/vmlinux): use a kernel built with "
		       "CONFIG_DEBUG_INFO_BTF";
	case -EOPNOTSUPP:
		return "this kernel has no uprobe_multi links: use --attach auto";
	default:
		return "the kernel refused the BPF programs: try -v, and see `nccl-bpftrace check`";
	}
}

static bool probe__take_call(struct probe *probe, const struct nb_record *record, size_t size)
{
	if (size < sizeof(*record) || record->size != sizeof(*record) ||
	    record->function >= NCCL_FN_PROBED || record->library_index >= NB_MAX_LIBRARIES ||
	    (probe->checksum && record->checksum != nb_record_checksum(record)))
		return false;
	if (probe->listener.call)
		probe->listener.call(probe->listener.ctx, record);
	return true;
}

/* What lies in it is the process's own word; at least it must be of this plugin's making. */
static bool probe__take_plugin(struct probe *probe, const struct nb_plugin_record *record,
			       size_t size)
{
	if (size < sizeof(*record) || record->size != sizeof(*record) ||
	    record->record.size != sizeof(record->record) || !record->record.kind ||
	    record->record.kind >= NBP_KIND_MAX)
		return false;
	if (probe->listener.plugin)
		probe->listener.plugin(probe->listener.ctx, record);
	return true;
}

static bool probe__take_foreign(struct probe *probe, const struct nb_foreign_record *record,
				size_t size)
{
	if (size < NB_FOREIGN_SHORT || record->size < NB_FOREIGN_SHORT || record->size > size ||
	    record->size > sizeof(*record))
		return false;
	if (probe->listener.foreign)
		probe->listener.foreign(probe->listener.ctx, record);
	return true;
}

/* No record of what a process did: it is not counted among those. */
static void probe__take_end(struct probe *probe, const struct nb_end *end, size_t size)
{
	if (size >= sizeof(*end) && probe->listener.end)
		probe->listener.end(probe->listener.ctx, end);
}

static int on_ring_record(void *ctx, void *data, size_t size)
{
	struct probe *probe = ctx;
	const uint16_t *kind = data;
	bool good = false;

	if (size >= sizeof(*kind) && *kind == NB_KIND_END) {
		probe__take_end(probe, data, size);
		return 0;
	}
	if (size >= sizeof(*kind) && *kind == NB_KIND_PLUGIN)
		good = probe__take_plugin(probe, data, size);
	else if (size >= sizeof(*kind) && *kind == NB_KIND_FOREIGN)
		good = probe__take_foreign(probe, data, size);
	else if (size >= sizeof(*kind))
		good = probe__take_call(probe, data, size);
	probe->received += good;
	probe->bad += !good;
	return ++probe->taken < MAX_TAKEN ? 0 : -EAGAIN;
}

static int probe__open_rest(struct probe *probe)
{
	probe->keys = calloc(READ_BATCH, sizeof(*probe->keys));
	probe->values = calloc(READ_BATCH, sizeof(*probe->values));
	if (!probe->keys || !probe->values)
		return -ENOMEM;
	probe->ring = ring_buffer__new(bpf_map__fd(probe->skel->maps.events), on_ring_record, probe,
				       NULL);
	return probe->ring ? 0 : -errno;
}

int probe__new(struct probe **ret, const struct probe_options *options, const char **ret_why)
{
	struct probe *probe = calloc(1, sizeof(*probe));
	int err;

	if (!probe)
		return -ENOMEM;
	probe->checksum = options->checksum;
	err = probe__load_best(probe, options);
	if (!err)
		err = probe__open_rest(probe);
	if (err) {
		if (ret_why)
			*ret_why = explain(err);
		probe__free(probe);
		return err;
	}
	*ret = probe;
	return 0;
}

void probe__free(struct probe *probe)
{
	if (!probe)
		return;
	bpf_link__destroy(probe->exits);
	bpf_link__destroy(probe->execs);
	ring_buffer__free(probe->ring);
	nccl_bpftrace_bpf__destroy(probe->skel);
	free(probe->keys);
	free(probe->values);
	free(probe);
}

int probe__may_attach(const struct probe *probe, const char **ret_why)
{
	if (probe->multi || attach__perf_is_permitted())
		return 0;
	*ret_why = "probes by perf events need CAP_SYS_ADMIN, and uprobe_multi links are not to be "
		   "had (Linux 6.6) or not wanted: grant it; for the service, see "
		   "nccl-bpftrace.conf(5)";
	return -EACCES;
}

bool probe__uses_multi(const struct probe *probe)
{
	return probe->multi;
}

int probe__program_fd(const struct probe *probe, enum image_kind kind)
{
	const struct bpf_program *program = probe__program(probe, kind);

	return program ? bpf_program__fd(program) : -1;
}

int probe__libraries_fd(const struct probe *probe)
{
	return bpf_map__fd(probe->skel->maps.libraries);
}

int probe__iterator_fd(const struct probe *probe)
{
	return bpf_program__fd(probe->skel->progs.executable_mappings);
}

int probe__new_mappings_fd(const struct probe *probe)
{
	return bpf_map__fd(probe->skel->maps.new_mappings);
}

int probe__events_fd(const struct probe *probe)
{
	return bpf_map__fd(probe->skel->maps.events);
}

const volatile uint64_t *probe__trial(const struct probe *probe)
{
	return (const volatile uint64_t *)&probe->skel->bss->trial;
}

void probe__overlap_links(struct probe *probe, bool overlap)
{
	__atomic_store_n(&probe->skel->bss->links_overlap, overlap, __ATOMIC_SEQ_CST);
}

int probe__ring_fd(const struct probe *probe)
{
	return ring_buffer__epoll_fd(probe->ring);
}

void probe__listen(struct probe *probe, const struct probe_listener *listener)
{
	probe->listener = *listener;
}

int probe__consume(struct probe *probe)
{
	int n;

	probe->taken = 0;
	n = ring_buffer__consume(probe->ring);
	return n < 0 && n != -EAGAIN ? n : 0;
}

uint64_t probe__bad_records(const struct probe *probe)
{
	return probe->bad;
}

uint64_t probe__received(const struct probe *probe)
{
	return probe->received;
}

uint64_t probe__lost(const struct probe *probe, enum nb_lost reason)
{
	return __atomic_load_n(&probe->skel->bss->lost[reason], __ATOMIC_RELAXED);
}

int probe__read_counters(struct probe *probe, probe_counter_fn *fn, void *ctx)
{
	int err, fd = bpf_map__fd(probe->skel->maps.counters);
	uint64_t next = 0; /* opaque to us: a bucket number */
	bool first = true;

	do {
		uint32_t n = READ_BATCH;

		err = bpf_map_lookup_batch(fd, first ? NULL : &next, &next, probe->keys,
					   probe->values, &n, NULL);
		if (err && err != -ENOENT)
			return err;
		first = false;
		for (uint32_t i = 0; i < n; i++)
			fn(ctx, &probe->keys[i], &probe->values[i]);
	} while (!err);
	return 0;
}

int probe__delete_counter(struct probe *probe, const struct nb_key *key)
{
	return bpf_map_delete_elem(bpf_map__fd(probe->skel->maps.counters), key);
}

const char *nb_lost__name(enum nb_lost reason)
{
	static const char *const names[NB_LOST_MAX] = {
		[NB_LOST_RING_FULL] = "ring_full",
		[NB_LOST_COUNTER_FULL] = "counter_full",
		[NB_LOST_BAD_COOKIE] = "bad_cookie",
		[NB_LOST_PLUGIN_RING_FULL] = "plugin_ring_full",
		[NB_LOST_BAD_BATCH] = "bad_batch",
		[NB_LOST_GRAPH_FULL] = "graph_full",
	};

	return reason < NB_LOST_MAX ? names[reason] : "unknown";
}
