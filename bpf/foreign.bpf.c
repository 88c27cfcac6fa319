/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NCCL's calls of a profiler plugin that is not ours, in the processes that the agent names. One
 * program for all functions: the attach cookie says which. What a plugin gives back is read at
 * the thread's next call, see struct nb_foreign_record: a thread does one thing at a time.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "shared.bpf.h"

#define TYPES                                                                                      \
	(NB_FOREIGN_TYPE_COLL | NB_FOREIGN_TYPE_P2P | NB_FOREIGN_TYPE_CHANNEL |                    \
	 NB_FOREIGN_TYPE_COPY)
#define TIMER_ABI 4    /* the first in which a channel comes with the GPU's time */
#define MAX_TRIES 4096 /* a context that is still not there will not come */

/* In every version's event descriptor. */
#define AT_PARENT  8
#define AT_RANK	   16
#define AT_CHANNEL 24
#define AT_TIMER   32

const volatile struct nb_foreign_abi foreign_abis[NB_FOREIGN_ABIS];

/* User space sets both sizes: one entry where nobody asked for foreign plugins. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32); /* tgid */
	__type(value, struct nb_foreign_process);
	__uint(max_entries, 1);
} foreign_processes SEC(".maps");

/*
 * A thread's last start, until it is known what came of it: whoever takes handle_at tells of it. A
 * thread can begin its next start while another still tells of the last: so there are two records.
 */
struct thread {
	volatile __u64 handle_at; /* of the last record; 0: nothing waits */
	volatile __u64 version;	  /* records begun; the last is record[version % 2] */
	struct nb_foreign_record record[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, __u64); /* tgid and tid */
	__type(value, struct thread);
	__uint(max_entries, 1);
} foreign_threads SEC(".maps");

static const struct thread no_thread;

static __always_inline bool is_wake_due(void)
{
	__u64 waiting = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);

	return waiting >= wake_bytes &&
	       (waiting & (wake_bytes - 1)) < 2 * sizeof(struct nb_foreign_record);
}

static __always_inline void process__lose(struct nb_foreign_process *process)
{
	__sync_fetch_and_add(&process->lost, 1);
	__sync_fetch_and_add(&lost[NB_LOST_PLUGIN_RING_FULL], 1);
}

static __always_inline void record__send(struct nb_foreign_process *process,
					 struct nb_foreign_record *r, __u64 size)
{
	r->size = size;
	if (bpf_ringbuf_output(&events, r, size,
			       is_wake_due() ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP))
		process__lose(process);
}

static __always_inline void record__begin(struct nb_foreign_record *r, __u64 id,
					  const struct nb_foreign_process *process,
					  enum nb_foreign_callback callback)
{
	r->kind = NB_KIND_FOREIGN;
	r->tgid = id >> 32;
	r->tid = (__u32)id;
	r->time_ns = bpf_ktime_get_ns();
	r->callback = callback;
	r->abi = process->abi;
	r->lost = process->lost;
	r->channel = 0;
	r->pad = 0;
	r->type = 0;
	r->rank = -1;
	r->context = r->handle = r->parent = r->timer_ns = 0;
}

static __always_inline void thread__tell_start(struct nb_foreign_process *process,
					       struct thread *thread, __u64 version, __u64 handle)
{
	struct nb_foreign_record *r = bpf_ringbuf_reserve(&events, sizeof(*r), 0);

	if (!r) {
		process__lose(process);
		return;
	}
	__builtin_memcpy(r, &thread->record[version & 1], sizeof(*r));
	r->size = sizeof(*r);
	r->timer_ns = bpf_ktime_get_ns();
	/* what the handle meant meanwhile may be lost */
	r->handle = r->lost == process->lost ? handle : 0;
	if (thread->version - version > 1) { /* begun anew while we read */
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		process__lose(process);
		return;
	}
	bpf_ringbuf_submit(r, is_wake_due() ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* A channel without a handle is never stopped: nothing is to be told of it. */
static __always_inline void thread__settle(struct nb_foreign_process *process,
					   struct thread *thread)
{
	__u64 at = __sync_lock_test_and_set(&thread->handle_at, 0);
	__u64 version = thread->version, handle = 0;
	struct nb_foreign_record *r = &thread->record[version & 1];

	if (!at)
		return;
	bpf_probe_read_user(&handle, sizeof(handle), (void *)at);
	if (r->callback == NB_FOREIGN_START) {
		thread__tell_start(process, thread, version, handle);
	} else if (handle) {
		r->handle = handle;
		record__send(process, r, NB_FOREIGN_SHORT);
	}
}

/*
 * A channel tells that a start has returned with its parent's handle, on whatever thread: NCCL has
 * the handle from there.
 */
static __always_inline void process__settle_parent(struct nb_foreign_process *process, __u64 parent)
{
	for (int i = 0; i < NB_FOREIGN_PENDING; i++) {
		__u64 id = process->pending[i], handle = 0, at, version;
		struct thread *thread;

		if (!id)
			continue;
		thread = bpf_map_lookup_elem(&foreign_threads, &id);
		at = thread ? thread->handle_at : 0;
		version = thread ? thread->version : 0; /* after it, for it is written before */
		if (!at || thread->record[version & 1].callback != NB_FOREIGN_START) {
			process->pending[i] = 0;
			continue;
		}
		if (bpf_probe_read_user(&handle, sizeof(handle), (void *)at) || handle != parent ||
		    !__sync_bool_compare_and_swap(&thread->handle_at, at, 0))
			continue;
		process->pending[i] = 0;
		thread__tell_start(process, thread, version, handle);
	}
}

static __noinline struct thread *thread__get(__u64 id)
{
	struct thread *thread = bpf_map_lookup_elem(&foreign_threads, &id);

	if (thread)
		return thread;
	bpf_map_update_elem(&foreign_threads, &id, &no_thread, BPF_NOEXIST);
	return bpf_map_lookup_elem(&foreign_threads, &id);
}

static __always_inline struct nb_foreign_record *thread__begin(struct thread *thread)
{
	__u64 version = thread->version + 1;

	thread->version = version;
	return &thread->record[version & 1];
}

/* The contexts that init() has given since: NCCL passes the same address until it has one. */
static __always_inline void process__find_contexts(struct nb_foreign_process *process, __u64 id)
{
	for (int i = 0; i < NB_FOREIGN_INITS; i++) {
		struct nb_foreign_record r = {};
		__u64 context = 0;

		if (!process->init_at[i])
			continue;
		if (bpf_probe_read_user(&context, sizeof(context), (void *)process->init_at[i]) ||
		    process->tries++ > MAX_TRIES) {
			process->init_at[i] = 0;
			continue;
		}
		if (!context)
			continue;
		process->init_at[i] = 0;
		record__begin(&r, id, process, NB_FOREIGN_CONTEXT);
		r.context = context;
		r.handle = process->init_ns[i];
		record__send(process, &r, NB_FOREIGN_SHORT);
	}
}

static __always_inline void task__copy(struct nb_foreign_task *task, __u32 abi, int row,
				       const char *descriptor)
{
	const volatile struct nb_foreign_abi *a = &foreign_abis[abi];
	__u32 size = a->descriptor_size;

	if (size > sizeof(task->descriptor))
		size = sizeof(task->descriptor);
	if (bpf_probe_read_user(task->descriptor, size, descriptor))
		__builtin_memset(task->descriptor, 0, sizeof(task->descriptor));
	for (int i = 0; i < NB_FOREIGN_TEXTS; i++) {
		__s16 at = a->text[row][i];
		const char *text = NULL;

		task->text[i][0] = 0;
		if (at < 0)
			continue;
		bpf_probe_read_user(&text, sizeof(text), descriptor + at);
		if (!text || bpf_probe_read_user_str(task->text[i], NB_FOREIGN_TEXT, text) < 0)
			task->text[i][0] = 0;
	}
}

static __always_inline __u64 type__read(__u32 abi, const char *descriptor)
{
	__u64 type = 0;

	if (foreign_abis[abi].type_size == sizeof(type))
		bpf_probe_read_user(&type, sizeof(type), descriptor);
	else
		bpf_probe_read_user(&type, 1, descriptor);
	return type;
}

/* startEvent(void *context, void **handle, descriptor) */
static __always_inline void on_start(struct nb_foreign_process *process, struct thread *thread,
				     struct pt_regs *ctx, __u64 id)
{
	const char *descriptor = (const char *)PT_REGS_PARM3(ctx);
	struct nb_foreign_record *r;
	__u32 abi = process->abi;
	__u64 type, parent = 0;

	if (abi >= NB_FOREIGN_ABIS)
		return;
	type = type__read(abi, descriptor);
	if (!(type & TYPES) || (type == NB_FOREIGN_TYPE_CHANNEL && abi < TIMER_ABI))
		return;
	process__find_contexts(process, id);
	if (type == NB_FOREIGN_TYPE_CHANNEL) {
		bpf_probe_read_user(&parent, sizeof(parent), descriptor + AT_PARENT);
		if (parent)
			process__settle_parent(process, parent);
	}
	r = thread__begin(thread);
	record__begin(r, id, process, NB_FOREIGN_START);
	r->type = type;
	r->context = PT_REGS_PARM1(ctx);
	r->parent = parent;
	bpf_probe_read_user(&r->rank, sizeof(r->rank), descriptor + AT_RANK);
	if (type == NB_FOREIGN_TYPE_CHANNEL) {
		r->callback = NB_FOREIGN_CHANNEL;
		bpf_probe_read_user(&r->channel, sizeof(r->channel), descriptor + AT_CHANNEL);
		bpf_probe_read_user(&r->timer_ns, sizeof(r->timer_ns), descriptor + AT_TIMER);
	} else if (type == NB_FOREIGN_TYPE_COLL) {
		task__copy(&r->task, abi, 0, descriptor);
	} else if (type == NB_FOREIGN_TYPE_P2P) {
		task__copy(&r->task, abi, 1, descriptor);
	} else {
		task__copy(&r->task, abi, 2, descriptor);
	}
	if (abi < TIMER_ABI) { /* without channels nobody asks for its handle */
		r->timer_ns = r->time_ns;
		record__send(process, r, sizeof(*r));
		return;
	}
	thread->handle_at = PT_REGS_PARM2(ctx);
	if (type != NB_FOREIGN_TYPE_CHANNEL)
		process->pending[__sync_fetch_and_add(&process->next_pending, 1) %
				 NB_FOREIGN_PENDING] = id;
}

/* recordEventState(void *handle, state, arguments) */
static __always_inline void on_state(struct nb_foreign_process *process, struct pt_regs *ctx,
				     __u64 id)
{
	struct nb_foreign_record r = {};

	if ((__u32)PT_REGS_PARM2(ctx) != NB_FOREIGN_CHANNEL_STOP || process->abi < TIMER_ABI)
		return;
	record__begin(&r, id, process, NB_FOREIGN_STATE);
	r.handle = PT_REGS_PARM1(ctx);
	bpf_probe_read_user(&r.timer_ns, sizeof(r.timer_ns), (void *)PT_REGS_PARM3(ctx));
	record__send(process, &r, NB_FOREIGN_SHORT);
}

static __always_inline __s32 init__rank(struct pt_regs *ctx)
{
	__s32 rank = -1;

#if defined(__TARGET_ARCH_x86)
	bpf_probe_read_user(&rank, sizeof(rank), (void *)(PT_REGS_SP(ctx) + 8));
#elif defined(__TARGET_ARCH_arm64)
	rank = ((struct user_pt_regs *)ctx)->regs[6];
#endif
	return rank;
}

static __always_inline __s32 init__n_ranks(struct pt_regs *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return ctx->r9;
#elif defined(__TARGET_ARCH_arm64)
	return ((struct user_pt_regs *)ctx)->regs[5];
#endif
}

/*
 * v4: init(void **context, int *mask, name, hash, n_nodes, n_ranks, rank, logger); from v5 on
 * init(void **context, hash, int *mask, name, n_nodes, n_ranks, rank, logger). Before, it tells
 * nothing of the communicator.
 */
static __always_inline void on_init(struct nb_foreign_process *process, struct thread *thread,
				    struct pt_regs *ctx, __u64 id)
{
	__u64 second = PT_REGS_PARM2(ctx), third = PT_REGS_PARM3(ctx), fourth = PT_REGS_PARM4(ctx);
	struct nb_foreign_record *r;
	const char *name;
	__u32 slot;

	/* or the compiler picks the register first, which the verifier refuses */
	barrier_var(second);
	barrier_var(third);
	barrier_var(fourth);
	if (process->abi < 4)
		return;
	r = thread__begin(thread);
	record__begin(r, id, process, NB_FOREIGN_INIT);
	r->rank = init__rank(ctx);
	r->init.n_nodes = (__s32)PT_REGS_PARM5(ctx);
	r->init.n_ranks = init__n_ranks(ctx);
	r->init.comm_hash = process->abi == 4 ? fourth : second;
	name = (const char *)(process->abi == 4 ? third : fourth);
	if (!name || bpf_probe_read_user_str(r->init.name, sizeof(r->init.name), name) < 0)
		r->init.name[0] = 0;
	record__send(process, r, sizeof(*r));
	slot = __sync_fetch_and_add(&process->next_init, 1) % NB_FOREIGN_INITS;
	process->tries = 0;
	process->init_ns[slot] = r->time_ns;
	process->init_at[slot] = PT_REGS_PARM1(ctx);
}

static __always_inline void on_finalize(struct nb_foreign_process *process, struct pt_regs *ctx,
					__u64 id)
{
	struct nb_foreign_record r = {};

	record__begin(&r, id, process, NB_FOREIGN_FINALIZE);
	r.context = PT_REGS_PARM1(ctx);
	record__send(process, &r, NB_FOREIGN_SHORT);
}

SEC("uprobe")
int foreign_callback(struct pt_regs *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct nb_foreign_process *process;
	struct thread *thread;
	__u32 tgid = id >> 32;

	process = bpf_map_lookup_elem(&foreign_processes, &tgid);
	if (!process)
		return 0;
	thread = thread__get(id);
	if (!thread)
		return 0;
	thread__settle(process, thread);
	switch (bpf_get_attach_cookie(ctx)) {
	case NB_FOREIGN_START:
		on_start(process, thread, ctx, id);
		break;
	case NB_FOREIGN_STATE:
		on_state(process, ctx, id);
		break;
	case NB_FOREIGN_INIT:
		on_init(process, thread, ctx, id);
		break;
	case NB_FOREIGN_FINALIZE:
		on_finalize(process, ctx, id);
		break;
	}
	return 0;
}
