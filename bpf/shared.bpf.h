/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs of several files use; nccl_bpftrace.bpf.c holds the definitions. */
#ifndef NCCL_BPFTRACE_SHARED_BPF_H
#define NCCL_BPFTRACE_SHARED_BPF_H

#include "nccl_bpftrace_record.h"

struct events {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20); /* user space sets the size asked for */
};

struct processes {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);   /* tgid */
	__type(value, __u32); /* keys of it in `counters` */
	__uint(max_entries, NB_MAX_PROCESSES);
};

extern struct events events SEC(".maps");
extern struct processes processes SEC(".maps");

extern const volatile __u64 wake_bytes; /* wake the agent once so much waits in the ring */
extern const volatile bool only_listed; /* only processes in the map `processes` */

/* Indexed by enum nb_lost; added to atomically: uprobe programs can be preempted. */
extern __u64 lost[NB_LOST_MAX];

static __always_inline bool process__is_wanted(__u32 tgid)
{
	return !only_listed || bpf_map_lookup_elem(&processes, &tgid);
}

#endif
