/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What follows profiler plugins that are not ours: loaded only where that was asked for. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include "plugin/abi.h"
#include "probe_private.h"

_Static_assert(ABI_MAX_VERSION + 1 == NB_FOREIGN_ABIS, "versions");
_Static_assert(ABI_COLL == NB_FOREIGN_TYPE_COLL && ABI_P2P == NB_FOREIGN_TYPE_P2P &&
		       ABI_KERNEL_CH == NB_FOREIGN_TYPE_CHANNEL &&
		       ABI_CE_COLL == NB_FOREIGN_TYPE_COPY,
	       "event types");

/* Text follows pointers in the descriptor; v1 has numbers instead. */
static void fill_text(__s16 text[NB_FOREIGN_TEXTS], const struct abi_version *v,
		      const struct abi_task *at, bool has_algorithm)
{
	text[0] = v->strings ? at->function : ABI_NONE;
	text[1] = v->strings ? at->datatype : ABI_NONE;
	text[2] = v->strings && has_algorithm ? at->algorithm : ABI_NONE;
	text[3] = v->strings && has_algorithm ? at->protocol : ABI_NONE;
}

static void fill_version(struct nb_foreign_abi *abi, const struct abi_version *v)
{
	abi->descriptor_size = v->descriptor_size;
	abi->type_size = v->type_size;
	fill_text(abi->text[0], v, &v->coll, true);
	fill_text(abi->text[1], v, &v->p2p, true);
	fill_text(abi->text[2], v, &v->coll, false); /* a copy begins like a collective */
}

void probe__fill_foreign(struct probe *probe, const struct probe_options *options)
{
	struct nccl_bpftrace_bpf *skel = probe->skel;

	bpf_program__set_autoload(skel->progs.foreign_callback, options->foreign);
	if (!options->foreign)
		return;
	bpf_map__set_max_entries(skel->maps.foreign_processes, NB_FOREIGN_PROCESSES);
	bpf_map__set_max_entries(skel->maps.foreign_threads, NB_FOREIGN_THREADS);
	for (int i = 1; i < NB_FOREIGN_ABIS; i++)
		fill_version(&skel->rodata->foreign_abis[i], &abi_versions[i]);
}

int probe__foreign_program_fd(const struct probe *probe)
{
	return bpf_program__fd(probe->skel->progs.foreign_callback);
}

int probe__follow_foreign(struct probe *probe, uint32_t tgid, uint32_t version)
{
	struct nb_foreign_process process = {.abi = version};

	return bpf_map_update_elem(bpf_map__fd(probe->skel->maps.foreign_processes), &tgid,
				   &process, BPF_ANY);
}

int probe__leave_foreign(struct probe *probe, uint32_t tgid)
{
	return bpf_map_delete_elem(bpf_map__fd(probe->skel->maps.foreign_processes), &tgid);
}
