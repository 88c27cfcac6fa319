/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the tracer is compared with, and a source of records faster than any job. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "nccl_bpftrace_record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u64 bare_calls, fed, feed_lost;
__u64 wake_bytes;
struct nb_record template;
__u32 n_ranks; /* of one communicator, each a process: the records are of them in turn */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* the tracer's ring takes its place */
} events SEC(".maps");

/* The least that a probe can do. */
SEC("uprobe")
int bare(void *ctx)
{
	__sync_fetch_and_add(&bare_calls, 1);
	return 0;
}

static __always_inline void record__vary(struct nb_record *r)
{
	__u64 n = fed + feed_lost;

	r->tgid += n % n_ranks;
	r->rank = n % n_ranks;
	r->sequence = n / n_ranks;
	r->time_ns = n * 100;
}

static long feed_one(__u32 i, void *ctx)
{
	struct nb_record r = template;
	__u64 waiting = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);
	/* the tracer's rule */
	bool wake = waiting >= wake_bytes &&
		    (waiting & (wake_bytes - 1)) < 8 * sizeof(struct nb_record);

	if (n_ranks)
		record__vary(&r);
	if (bpf_ringbuf_output(&events, &r, sizeof(r),
			       wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP))
		feed_lost++; /* one producer */
	else
		fed++;
	return 0;
}

struct feed_arguments {
	__u32 n;
};

SEC("syscall")
int feed(struct feed_arguments *arguments)
{
	bpf_loop(arguments->n, feed_one, NULL, 0);
	return 0;
}
