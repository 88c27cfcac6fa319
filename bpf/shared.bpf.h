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

struct capturers {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u64); /* thread, as bpf_get_current_pid_tgid() says it */
	__type(value, struct nb_capturer);
	__uint(max_entries, NB_MAX_CAPTURERS);
};

struct captures {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u64); /* given once */
	__type(value, struct nb_capture);
	__uint(max_entries, NB_MAX_CAPTURES);
};

struct captured {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct nb_captured_key);
	__type(value, struct nb_tally);
	__uint(max_entries, NB_MAX_CAPTURED);
};

extern struct events events SEC(".maps");
extern struct processes processes SEC(".maps");
extern struct capturers capturers SEC(".maps");
extern struct captures captures SEC(".maps");
extern struct captured captured SEC(".maps");

extern const volatile __u64 wake_bytes; /* wake the agent once so much waits in the ring */
extern const volatile bool only_listed; /* only processes in the map `processes` */
extern bool with_graphs;		/* set once libcuda is probed */

/* Indexed by enum nb_lost; added to atomically: uprobe programs can be preempted. */
extern __u64 lost[NB_LOST_MAX];

/* Its keys; makes the entry, when there is a place. From then on its end will be told. */
static __always_inline __u32 *process__note(__u32 tgid)
{
	__u32 zero = 0, *keys = bpf_map_lookup_elem(&processes, &tgid);

	if (keys)
		return keys;
	bpf_map_update_elem(&processes, &tgid, &zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&processes, &tgid);
}

/* One more key for the process, if it may have one: where that is counted, else NULL. */
static __always_inline __u32 *process__charge(__u32 tgid)
{
	__u32 *keys = process__note(tgid);

	if (!keys || *keys >= NB_KEYS_PER_PROCESS)
		return NULL;
	__sync_fetch_and_add(keys, 1);
	return keys;
}

/* Makes the entry, when there is a place. */
static __always_inline struct nb_capture *capture__add(__u64 id, __u32 tgid, __u32 refs)
{
	struct nb_capture fresh = {.tgid = tgid, .refs = refs};
	struct nb_capture *capture = bpf_map_lookup_elem(&captures, &id);
	__u32 *keys;

	if (capture)
		return capture;
	keys = process__charge(tgid);
	if (!keys)
		return NULL;
	if (bpf_map_update_elem(&captures, &id, &fresh, BPF_NOEXIST))
		__sync_fetch_and_add(keys, -1); /* no place, or another thread was faster */
	return bpf_map_lookup_elem(&captures, &id);
}

static __always_inline bool process__is_wanted(__u32 tgid)
{
	return !only_listed || bpf_map_lookup_elem(&processes, &tgid);
}

#endif
