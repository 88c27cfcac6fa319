/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the parts of the BPF side's owner: probe.c, probe_graph.c, probe_process.c. */
#ifndef PROBE_PRIVATE_H
#define PROBE_PRIVATE_H

#include "probe.h"

#include "nccl_bpftrace.skel.h" /* uses the records' types */

struct probe {
	struct nccl_bpftrace_bpf *skel;
	struct ring_buffer *ring;
	struct bpf_link *exits, *execs; /* NULL: not watched */
	struct probe_listener listener;
	uint64_t received, bad;
	unsigned int taken; /* in this round */
	bool multi, checksum;
	struct nb_key *keys; /* READ_BATCH of each, for batched look-ups */
	struct nb_counter *values;
};

/* probe_foreign.c */
void probe__fill_foreign(struct probe *probe, const struct probe_options *options);

#endif
