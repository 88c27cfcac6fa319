/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ends of processes, told in the ring: behind all records of the process, and before those of
 * the next one under its number.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "shared.bpf.h"

/*
 * Only of processes in the map. Where the ring has no place the agent sees the end by itself, if
 * later; so it does in any case, and need not be woken for this. Gives the process's keys, NULL:
 * it is not in the map.
 */
static __always_inline const __u32 *process__tell_end(__u32 tgid)
{
	const __u32 *keys = bpf_map_lookup_elem(&processes, &tgid);
	struct nb_end end = {.kind = NB_KIND_END, .size = sizeof(end), .tgid = tgid};

	if (!keys)
		return NULL;
	end.time_ns = bpf_ktime_get_ns();
	bpf_ringbuf_output(&events, &end, sizeof(end), BPF_RB_NO_WAKEUP);
	return keys;
}

/* The last thread's end is the process's. Two that end at once may both be the last: told twice. */
SEC("raw_tp/sched_process_exit")
int process_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx->args[0];
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	const __u32 *keys;

	if (BPF_CORE_READ(task, signal, live.counter))
		return 0;
	keys = process__tell_end(tgid);
	if (keys && !*keys) /* else when the last counter goes */
		bpf_map_delete_elem(&processes, &tgid);
	return 0;
}

/* It goes on as another program. */
SEC("raw_tp/sched_process_exec")
int process_exec(struct bpf_raw_tracepoint_args *ctx)
{
	process__tell_end(bpf_get_current_pid_tgid() >> 32);
	return 0;
}
