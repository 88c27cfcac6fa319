/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One program for every probed NCCL function: the attach cookie says which file and which row of
 * the API table. It copies arguments by that row, counts under an exact key and sends one record.
 * It decides nothing else. uprobe programs can be preempted, so nothing is kept per CPU.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "arguments.bpf.h"
#include "links.bpf.h"
#include "shared.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define NCCL_MAGIC   0x0280028002800280ULL /* ncclComm.startMagic, NCCL >= 2.21 */
#define WAKE_RECORDS 8

/* Filled by user space before load from its API table and options. */
const volatile struct nb_slots slots[NB_MAX_FUNCTIONS];
const volatile __u8 datatype_size[NB_MAX_DATATYPES];
const volatile __u32 n_functions;
const volatile __u64 wake_bytes; /* wake the agent once so much waits in the ring */
const volatile bool only_listed; /* only processes in the map `processes` */
const volatile bool with_checksum;
const volatile bool with_records = true;

/* Indexed by enum nb_lost; added to atomically, see above. */
__u64 lost[NB_LOST_MAX];

bool with_graphs;

struct events events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct nb_key);
	__type(value, struct nb_counter);
	__uint(max_entries, NB_MAX_COUNTERS);
} counters SEC(".maps");

struct processes processes SEC(".maps");
struct capturers capturers SEC(".maps");
struct captures captures SEC(".maps");
struct captured captured SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct nb_library);
	__uint(max_entries, NB_MAX_LIBRARIES);
} libraries SEC(".maps");

/* {commHash, rank, nRanks} as they lie in the communicator of NCCL >= 2.18.3. */
struct identity {
	__u64 hash;
	__s32 rank, n_ranks;
};

static __always_inline bool identity__read(struct identity *id, __u64 comm,
					   const struct nb_library *library)
{
	const void *rank = (const void *)(comm + library->rank);

	if (library->comm_hash == library->rank - (__s32)offsetof(struct identity, rank))
		return !bpf_probe_read_user(id, sizeof(*id),
					    (const void *)(comm + library->comm_hash));
	id->hash = 0;
	if (bpf_probe_read_user(&id->rank, sizeof(id->rank) + sizeof(id->n_ranks), rank))
		return false;
	if (library->comm_hash >= 0)
		bpf_probe_read_user(&id->hash, sizeof(id->hash),
				    (const void *)(comm + library->comm_hash));
	return true;
}

/*
 * The identity that lies in the communicator now. Unreadable or absurd: left unknown. A fault costs
 * more than all else here, and NULL is the one bad address that real jobs pass.
 */
static __always_inline void key__identify(struct nb_key *key, const struct nb_library *library)
{
	struct identity id;

	if (!key->comm || library->rank < 0 || !identity__read(&id, key->comm, library))
		return;
	if (id.rank < 0 || id.rank >= id.n_ranks)
		return;
	key->rank = id.rank;
	key->n_ranks = id.n_ranks;
	key->comm_hash = id.hash;
}

static __always_inline bool has_magic(const struct nb_key *key, const struct nb_library *library)
{
	__u64 magic = 0;

	if (library->start_magic < 0)
		return true;
	bpf_probe_read_user(&magic, sizeof(magic), (void *)(key->comm + library->start_magic));
	return magic == NCCL_MAGIC;
}

static __always_inline void key__forget_identity(struct nb_key *key)
{
	key->comm_hash = 0;
	key->rank = -1;
	key->n_ranks = 0;
}

static __always_inline void key__overflow(struct nb_key *key)
{
	key__forget_identity(key);
	key->comm = NB_COMM_OVERFLOW;
}

static __noinline struct nb_counter *counter__insert(struct nb_key *key)
{
	struct nb_counter fresh = {.sequence = NB_NO_SEQUENCE};
	__u32 *keys;
	long err = 0;

	if (!key)
		return NULL;
	fresh.first_ns = bpf_ktime_get_ns();
	keys = process__charge(key->tgid);
	if (keys)
		err = bpf_map_update_elem(&counters, key, &fresh, BPF_NOEXIST);
	if (keys && err) /* no place, or another thread was faster */
		__sync_fetch_and_add(keys, -1);
	if (!keys || err == -7 /* E2BIG: full */) {
		key__overflow(key);
		bpf_map_update_elem(&counters, key, &fresh, BPF_NOEXIST);
	}
	return NULL;
}

static __always_inline struct nb_counter *counter__get(struct nb_key *key,
						       const struct nb_library *library)
{
	struct nb_counter *counter = bpf_map_lookup_elem(&counters, key);

	if (counter)
		return counter;
	/* The first call under this key: the only one that pays for proof. */
	if (!has_magic(key, library))
		key__forget_identity(key);
	counter = bpf_map_lookup_elem(&counters, key);
	if (counter)
		return counter;
	counter__insert(key);
	return bpf_map_lookup_elem(&counters, key);
}

static __always_inline __u64 sequence__read(const struct nb_key *key,
					    const struct nb_library *library, __s8 index)
{
	__u64 number = NB_NO_SEQUENCE;

	if (index >= 0 && library->seq_number >= 0 && index < library->n_sequences)
		bpf_probe_read_user(&number, sizeof(number),
				    (void *)(key->comm + library->seq_number + 8 * index));
	return number;
}

/*
 * Calls of one group all see the number from before it: NCCL raises it at launch. It launches
 * nothing without data, or for a rank alone.
 */
static __always_inline __u64 counter__sequence(struct nb_counter *counter,
					       const struct nb_record *r)
{
	__u64 launches = r->count && r->n_ranks != 1;

	if (counter->sequence == r->sequence)
		return __sync_fetch_and_add(&counter->pending, launches) + launches;
	counter->sequence = r->sequence;
	counter->pending = launches;
	return launches;
}

static __always_inline void tally__add(struct nb_tally *tally, const struct nb_record *r)
{
	__u8 size = r->datatype < NB_MAX_DATATYPES ? datatype_size[r->datatype] : 0;

	__sync_fetch_and_add(&tally->calls, 1);
	if (size && r->count <= (1ULL << 56) / size)
		__sync_fetch_and_add(&tally->type_bytes, r->count * size);
	else if (r->count)
		__sync_fetch_and_add(&tally->unknown_types, 1);
}

static __always_inline void counter__add(struct nb_counter *counter, struct nb_record *r)
{
	tally__add(&counter->launched, r);
	counter->last_ns = r->time_ns;
	counter->last_count = r->count;
	counter->last_datatype = r->datatype;
	counter->last_redop = r->redop;
	counter->last_root = r->root;
	r->pending = counter__sequence(counter, r);
}

/* Under capture: into the graph, not onto the GPU. NCCL does not number it. */
static __noinline int counter__add_captured(struct nb_counter *counter,
					    struct nb_capturer *capturer,
					    const struct nb_captured_key *key,
					    const struct nb_record *r)
{
	const struct nb_tally fresh = {};
	struct nb_capture *capture;
	struct nb_tally *tally;
	__u32 *keys;

	if (!counter || !capturer || !key || !r)
		return 0;
	tally__add(&counter->captured, r);
	counter->last_ns = r->time_ns;
	if (key->capture == NB_CAPTURE_UNKNOWN)
		return 0;
	capture = capture__add(key->capture, key->key.tgid, 1 + capturer->to_graph);
	if (!capture) {
		capturer->capture = NB_CAPTURE_UNKNOWN;
		return 0;
	}
	tally = bpf_map_lookup_elem(&captured, key);
	if (!tally) {
		keys = process__charge(key->key.tgid);
		if (keys && bpf_map_update_elem(&captured, key, &fresh, BPF_NOEXIST))
			__sync_fetch_and_add(keys, -1);
		tally = bpf_map_lookup_elem(&captured, key);
	}
	if (tally)
		tally__add(tally, r);
	else
		capture->unknown = 1;
	return 0;
}

/* Of the thread, when it captures; NULL. */
static __always_inline struct nb_capturer *capturer__of_thread(void)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct nb_capturer *capturer = NULL;

	if (with_graphs)
		capturer = bpf_map_lookup_elem(&capturers, &thread);
	return capturer && capturer->capture ? capturer : NULL;
}

static __always_inline void call__add(struct nb_counter *counter, const struct nb_key *key,
				      struct nb_record *r)
{
	struct nb_capturer *capturer = capturer__of_thread();
	struct nb_captured_key captured_key;

	if (!capturer) {
		counter__add(counter, r);
		return;
	}
	r->pending = NB_PENDING_CAPTURED;
	captured_key.capture = capturer->capture;
	captured_key.key = *key;
	counter__add_captured(counter, capturer, &captured_key, r);
}

static __always_inline void record__load(struct nb_record *r, const struct arguments *a,
					 const volatile struct nb_slots *s)
{
	__u64 id = bpf_get_current_pid_tgid();

	r->kind = s->lifecycle ? NB_KIND_LIFECYCLE : NB_KIND_CALL;
	r->size = sizeof(*r);
	r->tgid = id >> 32;
	r->tid = (__u32)id;
	r->time_ns = bpf_ktime_get_ns();
	r->comm = arguments__get(a, s->comm, 0);
	r->count = arguments__get(a, s->lifecycle ? s->newcomm : s->count, 0);
	r->datatype = (__u32)arguments__get(a, s->datatype, ~0ULL);
	r->redop = (__u32)arguments__get(a, s->redop, ~0ULL);
	r->root = (__s32)arguments__get(a, s->root, ~0ULL);
	r->stream = arguments__get(a, s->stream, 0);
	r->sequence = NB_NO_SEQUENCE;
	r->comm_hash = 0;
	r->rank = (__s32)arguments__get(a, s->rank, ~0ULL);
	r->n_ranks = (__s32)arguments__get(a, s->nranks, 0);
	r->checksum = 0;
	r->pending = 0;
}

/*
 * Each wake-up is an interrupt, ten times as dear as the record: not one per call while the agent
 * is behind, but some at each sixteenth of the ring, so that racing calls cannot all step over it.
 * Where they do, the agent still looks by itself ten times a second. wake_bytes is a power of two.
 */
static __always_inline bool wake_is_due(__u64 waiting)
{
	return waiting >= wake_bytes &&
	       (waiting & (wake_bytes - 1)) < WAKE_RECORDS * sizeof(struct nb_record);
}

/* False: no place in the ring; counted. */
static __always_inline bool record__send(struct nb_record *r)
{
	/* What a process is about to do with a communicator may call for probes at once. */
	bool wake = r->kind == NB_KIND_LIFECYCLE ||
		    wake_is_due(bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA));

	if (with_checksum)
		r->checksum = nb_record_checksum(r);
	if (bpf_ringbuf_output(&events, r, sizeof(*r),
			       wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP)) {
		__sync_fetch_and_add(&lost[NB_LOST_RING_FULL], 1);
		return false;
	}
	return true;
}

static __always_inline void call__count(struct nb_record *r, const struct nb_library *library,
					__s8 sequence_index)
{
	struct nb_counter *counter;
	struct nb_key key = {
		.comm = r->comm,
		.tgid = r->tgid,
		.rank = -1,
		.function = r->function,
		.library_index = r->library_index,
	};

	key__identify(&key, library);
	counter = counter__get(&key, library);
	if (key.rank >= 0)
		r->sequence = sequence__read(&key, library, sequence_index);
	r->comm_hash = key.comm_hash;
	r->rank = key.rank;
	r->n_ranks = key.n_ranks;
	if (!counter) {
		__sync_fetch_and_add(&lost[NB_LOST_COUNTER_FULL], 1);
		if (with_records)
			record__send(r);
		return;
	}
	call__add(counter, &key, r);
	if (!with_records || record__send(r))
		return;
	__sync_fetch_and_add(&counter->lost, 1);
	if (!r->count)
		__sync_fetch_and_add(&counter->lost_empty, 1);
}

SEC("uprobe")
int nccl_call(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 function = NB_COOKIE_FUNCTION(cookie), id = NB_COOKIE_LIBRARY(cookie);
	const volatile struct nb_slots *s;
	struct nb_library *library;
	struct arguments a;
	struct nb_record r;

	if (id == NB_LIBRARY_TRIAL) {
		trial = trial << 8 | function;
		return 0;
	}
	if (!process__is_wanted(bpf_get_current_pid_tgid() >> 32) || link__is_second(cookie))
		return 0;
	library = bpf_map_lookup_elem(&libraries, &id);
	if (!library || function >= NB_MAX_FUNCTIONS || function >= n_functions) {
		__sync_fetch_and_add(&lost[NB_LOST_BAD_COOKIE], 1);
		return 0;
	}
	s = &slots[function];
	arguments__load(&a, ctx);
	record__load(&r, &a, s);
	r.function = function;
	r.library_index = id;
	if (!s->lifecycle) {
		call__count(&r, library, s->sequence);
		return 0;
	}
	process__note(r.tgid);
	record__send(&r);
	return 0;
}
