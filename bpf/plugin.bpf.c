/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The cooperating plugin's hook: nccl_bpftrace_batch(const struct nbp_record *batch, __u32 n), on
 * the plugin's own thread. Copies the batch into the ring; what the records say is judged by who
 * reads them.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "shared.bpf.h"

#define RING_HEADER 8 /* the kernel's, in front of each record */

/* False: no place, or the record cannot be read. */
static __always_inline bool plugin_record__send(const struct nbp_record *from, __u32 tgid,
						__u64 wake, enum nb_lost *ret_why)
{
	struct nb_plugin_record *r = bpf_ringbuf_reserve(&events, sizeof(*r), 0);

	*ret_why = NB_LOST_PLUGIN_RING_FULL;
	if (!r)
		return false;
	r->kind = NB_KIND_PLUGIN;
	r->size = sizeof(*r);
	r->tgid = tgid;
	if (bpf_probe_read_user(&r->record, sizeof(r->record), from)) {
		*ret_why = NB_LOST_BAD_BATCH;
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		return false;
	}
	bpf_ringbuf_submit(r, wake);
	return true;
}

/*
 * The agent looks by itself ten times a second; it is woken only where this batch takes the ring
 * past another sixteenth of its size. wake_bytes is a power of two.
 */
static __always_inline __u64 batch__wake(__u32 n)
{
	__u64 waiting = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);
	__u64 after = waiting + n * (sizeof(struct nb_plugin_record) + RING_HEADER);

	return (waiting ^ after) & ~(wake_bytes - 1) ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

SEC("uprobe")
int plugin_batch(struct pt_regs *ctx)
{
	const struct nbp_record *batch = (const struct nbp_record *)PT_REGS_PARM1(ctx);
	__u32 n = (__u32)PT_REGS_PARM2(ctx), tgid = bpf_get_current_pid_tgid() >> 32;
	enum nb_lost why;
	__u64 wake;

	if (!process__is_wanted(tgid))
		return 0;
	if (n > NBP_MAX_BATCH) { /* how many records that is nobody can say */
		__sync_fetch_and_add(&lost[NB_LOST_BAD_BATCH], 1);
		return 0;
	}
	process__note(tgid);
	wake = batch__wake(n);
	for (__u32 i = 0; i < NBP_MAX_BATCH && i < n; i++) {
		if (plugin_record__send(&batch[i], tgid, i + 1 == n ? wake : BPF_RB_NO_WAKEUP,
					&why))
			continue;
		__sync_fetch_and_add(&lost[why], n - i);
		break;
	}
	return 0;
}
