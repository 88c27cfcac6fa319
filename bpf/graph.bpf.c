/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * CUDA graphs, by entry probes on libcuda: which NCCL calls were captured into which graph, and how
 * often what was made from it is launched. A handle that the driver returns is read from where it
 * was to be put, at the thread's next graph call, before anything can have used it unseen; what
 * does not fit together is not known, and is counted as that.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "shared.bpf.h"

#define WAITERS		8 /* a power of two: threads are told apart by their last bits */
#define SPECIAL_STREAMS 2 /* cudaStreamLegacy is 1, cudaStreamPerThread is 2 */

__u64 last_capture;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct nb_handle_key);
	__type(value, __u64); /* capture; of a stream and of WAITS: the thread */
	__uint(max_entries, NB_MAX_HANDLES);
} handles SEC(".maps");

/* Processes that are handed over: not all their calls are seen. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);   /* tgid */
	__type(value, __u32); /* a capture has begun since */
	__uint(max_entries, NB_MAX_PROCESSES);
} unprobed SEC(".maps");

/* Who calls. */
struct caller {
	__u64 thread;
	__u32 tgid;
};

static __always_inline struct nb_handle_key handle_key(const struct caller *c, __u64 handle,
						       enum nb_handle_kind kind)
{
	return (struct nb_handle_key){.handle = handle, .tgid = c->tgid, .kind = kind};
}

static __always_inline void capture__ref(__u64 id, int n)
{
	struct nb_capture *capture = bpf_map_lookup_elem(&captures, &id);

	if (capture)
		__sync_fetch_and_add(&capture->refs, n);
}

/* What the thread captures is no longer what is known of it. */
static __always_inline void capturer__spoil(struct nb_capturer *capturer)
{
	struct nb_capture *capture = bpf_map_lookup_elem(&captures, &capturer->capture);

	if (capture) {
		capture->unknown = 1;
		__sync_fetch_and_add(&capture->refs, -1);
	}
	capturer->capture = NB_CAPTURE_UNKNOWN;
}

/* Launches of what is not known are counted for the process as a whole. */
static __always_inline void launch__of_stranger(__u32 tgid)
{
	struct nb_capture *capture = capture__add(NB_CAPTURE_OF_STRANGER(tgid), tgid, 1);

	if (capture)
		__sync_fetch_and_add(&capture->launches, 1);
	else
		__sync_fetch_and_add(&lost[NB_LOST_GRAPH_FULL], 1);
}

/* False: no place. */
static __noinline bool handle__set(struct nb_handle_key *key, __u64 value)
{
	__u32 *keys;

	if (!key)
		return false;
	if (!bpf_map_update_elem(&handles, key, &value, BPF_EXIST))
		return true;
	keys = process__charge(key->tgid);
	if (!keys)
		return false;
	if (!bpf_map_update_elem(&handles, key, &value, BPF_ANY))
		return true;
	__sync_fetch_and_add(keys, -1);
	return false;
}

static __noinline int handle__drop(struct nb_handle_key *key)
{
	__u64 *value;
	__u32 *keys;

	if (!key)
		return 0;
	value = bpf_map_lookup_elem(&handles, key);
	if (!value)
		return 0;
	if (key->kind == NB_HANDLE_GRAPH || key->kind == NB_HANDLE_EXEC)
		capture__ref(*value, -1);
	if (bpf_map_delete_elem(&handles, key))
		return 0;
	keys = bpf_map_lookup_elem(&processes, &key->tgid);
	if (keys)
		__sync_fetch_and_add(keys, -1);
	return 0;
}

/* The handle is known now; the reference of what was pending becomes its own. */
static __always_inline void handle__learn(const struct caller *c, __u64 handle, __u64 capture,
					  enum nb_handle_kind kind)
{
	struct nb_handle_key key = handle_key(c, handle, kind);
	__u64 *known = bpf_map_lookup_elem(&handles, &key);

	if (!known) {
		if (!handle__set(&key, capture))
			capture__ref(capture, -1);
		return;
	}
	capture__ref(capture, -1);
	if (*known == capture)
		return;
	/* One that lives cannot be made anew: what was read there is not what was made. */
	capture__ref(*known, -1);
	*known = NB_CAPTURE_UNKNOWN;
}

/* Reads what the driver has put there meanwhile. */
static __always_inline void capturer__settle(const struct caller *c, struct nb_capturer *capturer)
{
	__u64 at = capturer->pending_at, handle = 0;

	/* By one only: a thread that launches what another has made settles for that one. */
	if (at)
		at = __sync_lock_test_and_set(&capturer->pending_at, 0);
	if (!at)
		return;
	if (bpf_probe_read_user(&handle, sizeof(handle), (const void *)at) || !handle)
		capture__ref(capturer->pending_capture, -1); /* it failed, or is not to be had */
	else
		handle__learn(c, handle, capturer->pending_capture, capturer->pending_kind);
}

static __noinline struct nb_capturer *capturer__get(struct caller *c)
{
	struct nb_capturer fresh = {};
	struct nb_capturer *capturer;
	__u64 thread;

	if (!c)
		return NULL;
	thread = c->thread;
	capturer = bpf_map_lookup_elem(&capturers, &thread);
	if (capturer || !process__charge(c->tgid))
		return capturer;
	bpf_map_update_elem(&capturers, &thread, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&capturers, &thread);
}

static __always_inline __u64 stream_of(const struct caller *c, __u64 stream)
{
	return stream <= SPECIAL_STREAMS ? c->thread | 1ULL << 63 : stream;
}

/* A second capture before the first one's end: whose the calls are cannot be told. */
static __always_inline void graph__begin(struct caller *c, struct nb_capturer *capturer,
					 __u64 stream, __u64 graph)
{
	struct nb_handle_key key = handle_key(c, stream_of(c, stream), NB_HANDLE_STREAM);
	struct nb_handle_key graph_key = handle_key(c, graph, NB_HANDLE_GRAPH);
	__u64 *known = graph ? bpf_map_lookup_elem(&handles, &graph_key) : NULL;
	__u32 *unseen = bpf_map_lookup_elem(&unprobed, &c->tgid);

	if (unseen)
		*unseen = 1;
	capturer->to_graph = graph != 0;
	if (capturer->capture && capturer->stream != key.handle) {
		capturer__spoil(capturer);
	} else if (known) {
		capturer->capture = *known;
		capture__ref(*known, 1);
		if (unseen)
			capturer__spoil(capturer);
	} else {
		capturer->capture =
			unseen ? NB_CAPTURE_UNKNOWN : __sync_fetch_and_add(&last_capture, 1) + 1;
		if (graph)
			handle__set(&graph_key, capturer->capture);
	}
	capturer->stream = key.handle;
	handle__set(&key, c->thread);
}

static __always_inline void capturer__expect(const struct caller *c, struct nb_capturer *capturer,
					     __u64 at, __u64 capture, enum nb_handle_kind kind)
{
	struct nb_handle_key waits = handle_key(c, c->thread % WAITERS, NB_HANDLE_WAITS);

	capturer->pending_capture = capture;
	capturer->pending_kind = kind;
	capturer->pending_at = at;
	handle__set(&waits, c->thread);
}

/* Any thread may end a capture. at 0: it ends without a graph. */
static __always_inline void graph__end(struct caller *c, struct nb_capturer *capturer, __u64 stream,
				       __u64 at)
{
	struct nb_handle_key key = handle_key(c, stream_of(c, stream), NB_HANDLE_STREAM);
	__u64 *thread = bpf_map_lookup_elem(&handles, &key), capture, began;
	struct nb_capturer *beginner = NULL;

	if (capturer->capture && capturer->stream == key.handle) {
		beginner = capturer;
	} else if (thread) {
		began = *thread;
		beginner = bpf_map_lookup_elem(&capturers, &began);
	}
	handle__drop(&key);
	if (!beginner)
		return;
	capture = beginner->capture;
	beginner->capture = 0;
	if (at && capture)
		capturer__expect(c, capturer, at, capture, NB_HANDLE_GRAPH);
	else
		capture__ref(capture, -1);
}

/* Is this the handle that another thread has made, and that nobody has seen yet? */
static __always_inline bool waiter__has(const struct caller *c, struct nb_handle_key *key,
					__u32 waiter)
{
	struct nb_handle_key waits = handle_key(c, waiter, NB_HANDLE_WAITS);
	__u64 *thread = bpf_map_lookup_elem(&handles, &waits), id, handle = 0;
	struct nb_capturer *capturer;

	if (!thread)
		return false;
	id = *thread;
	capturer = bpf_map_lookup_elem(&capturers, &id);
	if (!capturer || !capturer->pending_at || capturer->pending_kind != key->kind)
		return false;
	bpf_probe_read_user(&handle, sizeof(handle), (const void *)capturer->pending_at);
	if (handle != key->handle)
		return false;
	capturer__settle(c, capturer);
	return true;
}

/* Of the threads that wait for a handle, the last WAITERS are asked. */
static __noinline __u64 *handle__find(struct caller *c, struct nb_handle_key *key)
{
	__u64 *known;

	if (!c || !key)
		return NULL;
	known = bpf_map_lookup_elem(&handles, key);
	for (__u32 i = 0; !known && i < WAITERS; i++)
		if (waiter__has(c, key, i))
			known = bpf_map_lookup_elem(&handles, key);
	return known;
}

static __always_inline void graph__instantiate(struct caller *c, struct nb_capturer *capturer,
					       __u64 at, __u64 graph)
{
	struct nb_handle_key key = handle_key(c, graph, NB_HANDLE_GRAPH);
	__u64 *known = handle__find(c, &key), capture;

	if (!known)
		return;
	capture = *known;
	capture__ref(capture, 1);
	capturer__expect(c, capturer, at, capture, NB_HANDLE_EXEC);
}

static __always_inline void graph__launch(struct caller *c, struct nb_capturer *capturer,
					  __u64 exec)
{
	struct nb_handle_key key = handle_key(c, exec, NB_HANDLE_EXEC);
	__u64 *known = handle__find(c, &key), id;
	struct nb_capture *capture;

	id = known ? *known : NB_CAPTURE_UNKNOWN;
	capture = bpf_map_lookup_elem(&captures, &id);
	if (capturer->capture) { /* it becomes a part of the graph under capture */
		if (id == NB_CAPTURE_UNKNOWN || capture)
			capturer__spoil(capturer);
	} else if (id == NB_CAPTURE_UNKNOWN || (capture && capture->unknown)) {
		launch__of_stranger(c->tgid);
	} else if (capture) {
		__sync_fetch_and_add(&capture->launches, 1);
		capture->last_ns = bpf_ktime_get_ns();
	}
}

/* A child without NCCL calls in it changes nothing. */
static __always_inline void graph__add_child(struct caller *c, __u64 graph, __u64 child)
{
	struct nb_handle_key key = handle_key(c, graph, NB_HANDLE_GRAPH);
	struct nb_handle_key child_key = handle_key(c, child, NB_HANDLE_GRAPH);
	__u64 *parent = bpf_map_lookup_elem(&handles, &key);
	__u64 *inner = bpf_map_lookup_elem(&handles, &child_key);

	if (!parent ||
	    (inner && *inner != NB_CAPTURE_UNKNOWN && !bpf_map_lookup_elem(&captures, inner)))
		return;
	capture__ref(*parent, -1);
	*parent = NB_CAPTURE_UNKNOWN;
}

static __always_inline void graph__destroy(struct caller *c, __u64 handle, enum nb_handle_kind kind)
{
	struct nb_handle_key key = handle_key(c, handle, kind);

	handle__drop(&key);
}

SEC("uprobe")
int graph_call(struct pt_regs *ctx)
{
	__u64 id = bpf_get_current_pid_tgid(), a = PT_REGS_PARM1(ctx), b = PT_REGS_PARM2(ctx);
	struct caller c = {.thread = id, .tgid = id >> 32};
	struct nb_capturer *capturer;

	/* Listed are those that have NCCL: of no other process is there anything to know. */
	if (!bpf_map_lookup_elem(&processes, &c.tgid))
		return 0;
	capturer = capturer__get(&c);
	if (!capturer) {
		__sync_fetch_and_add(&lost[NB_LOST_GRAPH_FULL], 1);
		return 0;
	}
	capturer__settle(&c, capturer);
	switch (NB_COOKIE_FUNCTION(bpf_get_attach_cookie(ctx))) {
	case NB_GRAPH_BEGIN:
		graph__begin(&c, capturer, a, 0);
		break;
	case NB_GRAPH_BEGIN_TO_GRAPH:
		graph__begin(&c, capturer, a, b);
		break;
	case NB_GRAPH_END:
		graph__end(&c, capturer, a, b);
		break;
	case NB_GRAPH_STREAM_DESTROY:
		graph__end(&c, capturer, a, 0);
		break;
	case NB_GRAPH_INSTANTIATE:
		graph__instantiate(&c, capturer, a, b);
		break;
	case NB_GRAPH_LAUNCH:
		graph__launch(&c, capturer, a);
		break;
	case NB_GRAPH_DESTROY:
		graph__destroy(&c, a, NB_HANDLE_GRAPH);
		break;
	case NB_GRAPH_EXEC_DESTROY:
		graph__destroy(&c, a, NB_HANDLE_EXEC);
		break;
	case NB_GRAPH_ADD_CHILD:
		graph__add_child(&c, b, PT_REGS_PARM5(ctx));
		break;
	}
	return 0;
}
