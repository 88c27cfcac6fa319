/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A function can have two links for a while: one for every process and one for a single process, as
 * the one takes the other's place. The kernel runs a function's links newest first, one after the
 * other, before the thread goes on: the older one then finds that the newer one has seen the call.
 */
#ifndef NCCL_BPFTRACE_LINKS_BPF_H
#define NCCL_BPFTRACE_LINKS_BPF_H

#include "nccl_bpftrace_record.h"

/* Set by user space before a second link is made, and for as long as there may be two. */
__u32 links_overlap;

/* What the links of user space's own trial saw, see NB_LIBRARY_TRIAL: the last 8 hits. */
__u64 trial;

/* The last link that saw a call of a thread, over its library and function, as in the cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, __u32); /* tid */
	__type(value, __u64);
	__uint(max_entries, 8192);
} last_links SEC(".maps");

static __always_inline bool link__is_second(__u64 cookie)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 *last;

	if (!links_overlap)
		return false;
	last = bpf_map_lookup_elem(&last_links, &tid);
	if (last && (__u32)*last == (__u32)cookie && *last > cookie) {
		bpf_map_delete_elem(&last_links, &tid);
		return true;
	}
	bpf_map_update_elem(&last_links, &tid, &cookie, BPF_ANY);
	return false;
}

#endif
