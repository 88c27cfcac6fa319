/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract between bpf/ and src/: records of the ring buffer, counters, and the tables that
 * user space fills before it attaches. Types only; fixed width; kinds are appended, never
 * renumbered; sizes are asserted by both compilers.
 */
#ifndef NCCL_BPFTRACE_RECORD_H
#define NCCL_BPFTRACE_RECORD_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#include "nccl_bpftrace_plugin.h"

#define NB_MAX_FUNCTIONS    48	/* rows of the API table that can be probed */
#define NB_MAX_LIBRARIES    256 /* files traced at one time */
#define NB_MAX_DATATYPES    16
#define NB_MAX_SEQUENCES    8
#define NB_MAX_COUNTERS	    65536
#define NB_MAX_PROCESSES    8192
#define NB_KEYS_PER_PROCESS 8192 /* keys of one process; the rest falls into its overflow key */

#define NB_SLOT_NONE  0xff /* same values as NCCL_SLOT_* in src/nccl_api.h (asserted there) */
#define NB_SLOT_STACK 0x10

#define NB_MAX_CAPTURES	 8192  /* captures with NCCL calls in them */
#define NB_MAX_CAPTURED	 16384 /* what was called in them, by communicator and function */
#define NB_MAX_HANDLES	 16384 /* CUDA graphs, and streams under capture */
#define NB_MAX_CAPTURERS 8192  /* threads that have made a graph */

/*
 * Attach cookie: which link, by age; which file, which row of the API table. Of two links on one
 * function the newer one has the greater number.
 */
#define NB_COOKIE(link, library, function)                                                         \
	((__u64)(link) << 32 | (__u64)(library) << 16 | (function))
#define NB_COOKIE_FUNCTION(cookie) ((cookie)&0xffff)
#define NB_COOKIE_LIBRARY(cookie)  ((cookie) >> 16 & 0xffff)

#define NB_LIBRARY_TRIAL 0xffff /* none: how does this kernel treat links? */

/* Where one function's arguments lie at entry: register index, NB_SLOT_STACK + word, or none. */
struct nb_slots {
	__u8 comm, count, datatype, redop;
	__u8 root; /* or peer */
	__u8 stream, newcomm, nranks, rank;
	__u8 lifecycle; /* 1: emits NB_LIFECYCLE and is not counted */
	__s8 sequence;	/* index in ncclComm.seqNumber[], -1: none */
	__u8 pad;
};

_Static_assert(sizeof(struct nb_slots) == 12, "nb_slots");

/* Offsets in struct ncclComm for one library, -1 where it has none or none is known. */
struct nb_library {
	__s32 rank; /* n_ranks lies 4 bytes behind it in every release */
	__s32 comm_hash;
	__s32 start_magic;
	__s32 seq_number;
	__s32 n_sequences;
	__s32 pad;
};

_Static_assert(sizeof(struct nb_library) == 24, "nb_library");

/*
 * A counter's key carries the identity that the communicator had at the call, read from its
 * memory: an address used again for another communicator is another key.
 */
struct nb_key {
	__u64 comm;	 /* address; NB_COMM_OVERFLOW: keys that found no place */
	__u64 comm_hash; /* 0: not known */
	__u32 tgid;
	__s32 rank; /* -1: not known */
	__u16 function;
	__u16 library_index;
	__s32 n_ranks; /* 0: not known */
};

_Static_assert(sizeof(struct nb_key) == 32, "nb_key");

#define NB_COMM_OVERFLOW (~0ULL)

/* Some calls, summed up. */
struct nb_tally {
	__u64 calls;
	__u64 type_bytes;    /* sum of count x size of type, saturated per call, not overflowing */
	__u64 unknown_types; /* calls whose datatype has no known size; they add no bytes */
};

_Static_assert(sizeof(struct nb_tally) == 24, "nb_tally");

struct nb_counter {
	struct nb_tally launched;
	struct nb_tally captured; /* into a CUDA graph; they are in nothing below but the times */
	__u64 lost;		  /* calls whose record found no place in the ring */
	__u64 first_ns;		  /* CLOCK_MONOTONIC */
	__u64 last_ns;
	__u64 sequence; /* NCCL's number at the last call's entry, NB_NO_SEQUENCE: not known */
	__u64 pending;	/* launching calls since that number last changed, the last one included;
			   all of them where NCCL keeps none */
	__u64 last_count;
	__u32 last_datatype;
	__u32 last_redop;
	__s32 last_root;
	__u32 lost_empty; /* of `lost`: calls of count 0, of which no plugin tells */
};

_Static_assert(sizeof(struct nb_counter) == 112, "nb_counter");

#define NB_NO_SEQUENCE (~0ULL)

/* What a probed function of libcuda does; the attach cookie's function. */
enum nb_graph_call {
	NB_GRAPH_BEGIN,		 /* (stream, ...): a capture begins */
	NB_GRAPH_BEGIN_TO_GRAPH, /* (stream, graph, ...): into a graph that exists */
	NB_GRAPH_END,		 /* (stream, address for the graph) */
	NB_GRAPH_INSTANTIATE,	 /* (address for the executable, graph, ...) */
	NB_GRAPH_LAUNCH,	 /* (executable, stream) */
	NB_GRAPH_DESTROY,	 /* (graph) */
	NB_GRAPH_EXEC_DESTROY,	 /* (executable) */
	NB_GRAPH_ADD_CHILD,	 /* (address, graph, ..., ..., child) */
	NB_GRAPH_STREAM_DESTROY, /* (stream) */
	NB_GRAPH_CALLS,
};

/* One stretch of capture, by a number given once. Without an entry: no NCCL call was in it. */
struct nb_capture {
	__u64 launches; /* of executable graphs made from it */
	__u64 last_ns;	/* CLOCK_MONOTONIC of the last one; 0: none */
	__u32 tgid;
	__u32 refs;    /* graphs and executables of it, and what is about to become one */
	__u32 unknown; /* not all that is in it is known: its launches tell nothing */
	__u32 pad;
};

_Static_assert(sizeof(struct nb_capture) == 32, "nb_capture");

#define NB_CAPTURE_UNKNOWN (~0ULL)
/* Under this number: a process's launches of what is not known. */
#define NB_CAPTURE_OF_STRANGER(tgid) (1ULL << 63 | (tgid))

struct nb_captured_key {
	__u64 capture;
	struct nb_key key;
};

_Static_assert(sizeof(struct nb_captured_key) == 40, "nb_captured_key");

enum nb_handle_kind {
	NB_HANDLE_GRAPH,
	NB_HANDLE_EXEC,
	NB_HANDLE_STREAM, /* under capture */
	NB_HANDLE_WAITS,  /* handle 0 to 7: a thread that waits for one */
};

struct nb_handle_key {
	__u64 handle;
	__u32 tgid;
	__u32 kind; /* enum nb_handle_kind */
};

_Static_assert(sizeof(struct nb_handle_key) == 16, "nb_handle_key");

/* What a thread is at: the kernel's number of the thread is the key. */
struct nb_capturer {
	__u64 capture; /* under way; 0: none */
	__u64 stream;
	__u32 to_graph;	    /* the graph has its handle already */
	__u32 pending_kind; /* enum nb_handle_kind */
	/* Where the driver puts a handle after we have looked: read at the next graph call. */
	__u64 pending_at; /* 0: none */
	__u64 pending_capture;
};

_Static_assert(sizeof(struct nb_capturer) == 40, "nb_capturer");

enum nb_kind {
	NB_KIND_CALL = 1,
	NB_KIND_LIFECYCLE = 2,
	NB_KIND_PLUGIN = 3,  /* struct nb_plugin_record */
	NB_KIND_FOREIGN = 4, /* struct nb_foreign_record */
	NB_KIND_END = 5,     /* struct nb_end */
};

/* One call. For NB_KIND_LIFECYCLE count is the address that receives the new communicator. */
struct nb_record {
	__u16 kind;
	__u16 size; /* of the whole record */
	__u32 tgid;
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 tid;
	__u16 function;
	__u16 library_index;
	__u64 comm;
	__u64 comm_hash;
	__s32 rank;
	__s32 n_ranks;
	__u64 count;
	__u64 stream;
	__u64 sequence; /* at entry; NB_NO_SEQUENCE */
	__u32 datatype;
	__u32 redop;
	__s32 root;	/* or peer; -1: none */
	__u32 checksum; /* nb_record_checksum() when the agent was asked to verify, else 0 */
	__u64 pending;	/* nb_counter's with this call, so exact whatever was lost; 0: not known */
};

#define NB_PENDING_CAPTURED (~0ULL) /* into a CUDA graph: it waits for no launch of its own */

_Static_assert(sizeof(struct nb_record) == 96, "nb_record");

/* A process has ended, or goes on as another program: what comes behind is not its. */
struct nb_end {
	__u16 kind; /* NB_KIND_END */
	__u16 size;
	__u32 tgid;
	__u64 time_ns; /* CLOCK_MONOTONIC */
};

_Static_assert(sizeof(struct nb_end) == 16, "nb_end");

/* One record that the cooperating plugin handed over, and whose it is, by the kernel's word. */
struct nb_plugin_record {
	__u16 kind; /* NB_KIND_PLUGIN */
	__u16 size;
	__u32 tgid;
	struct nbp_record record; /* the process's own word: checked by who reads it */
};

_Static_assert(sizeof(struct nb_plugin_record) == 136, "nb_plugin_record");

/*
 * Another profiler plugin, whose functions are probed in one process: NCCL's calls of them. Its
 * handle for an event lies where NCCL asked for it, once startEvent has returned. It is read when
 * the thread calls next, or another thread tells of a channel of that handle; only then is the
 * start told of. So no return probe is needed; and only v4 needs one on stopEvent, where the next
 * call may come so late that NCCL has used that memory anew.
 */
#define NB_FOREIGN_ABIS		7 /* index: N of ncclProfiler_vN, 1..6 */
#define NB_FOREIGN_PROCESSES	1024
#define NB_FOREIGN_THREADS	8192
#define NB_FOREIGN_DESCRIPTOR	128 /* bytes of the longest event descriptor */
#define NB_FOREIGN_TEXT		16  /* "COLLNET_DIRECT", "ncclFloat8e4m3" and their NUL fit */
#define NB_FOREIGN_TEXTS	4   /* of a task: function, type, algorithm, protocol */
#define NB_FOREIGN_PENDING	16  /* threads whose last start waits for its handle */
#define NB_FOREIGN_INITS	4   /* communicators whose context is waited for */
#define NB_FOREIGN_TYPE_COLL	0x2u
#define NB_FOREIGN_TYPE_P2P	0x4u
#define NB_FOREIGN_TYPE_CHANNEL 0x40u	/* KernelCh */
#define NB_FOREIGN_TYPE_COPY	0x1000u /* CeColl */
#define NB_FOREIGN_CHANNEL_STOP 22	/* state; since v4 it comes with the GPU's time */

/* The attach cookie, and what a record tells of. */
enum nb_foreign_callback {
	NB_FOREIGN_START,    /* a task: a collective, a send or a receive */
	NB_FOREIGN_STATE,    /* a channel has stopped */
	NB_FOREIGN_INIT,     /* a communicator is being made */
	NB_FOREIGN_FINALIZE, /* its context ends */
	NB_FOREIGN_STOP,     /* never a record of its own */
	NB_FOREIGN_CHANNEL,  /* a channel has started */
	NB_FOREIGN_CONTEXT,  /* the context that an INIT has got */
	NB_FOREIGN_MAX,
};

#define NB_FOREIGN_TASKS 3 /* COLL, P2P, COPY */

/* Where a version has what is copied apart: pointers to text in its descriptors, -1: none. */
struct nb_foreign_abi {
	__s16 text[NB_FOREIGN_TASKS][NB_FOREIGN_TEXTS];
	__u16 descriptor_size;
	__u8 type_size; /* 0: no such version */
	__u8 pad[5];
};

_Static_assert(sizeof(struct nb_foreign_abi) == 32, "nb_foreign_abi");

/* By tgid; the agent makes it before it attaches. */
struct nb_foreign_process {
	__u32 abi;
	__u32 tries;			   /* calls at which contexts were looked for in vain */
	__u64 lost;			   /* its records that found no place */
	__u64 init_at[NB_FOREIGN_INITS];   /* where a context will stand; 0: free */
	__u64 init_ns[NB_FOREIGN_INITS];   /* of that INIT */
	__u64 pending[NB_FOREIGN_PENDING]; /* tgid and tid; 0: free */
	__u32 next_init, next_pending;
};

_Static_assert(sizeof(struct nb_foreign_process) == 216, "nb_foreign_process");

struct nb_foreign_task {
	__u8 descriptor[NB_FOREIGN_DESCRIPTOR];
	char text[NB_FOREIGN_TEXTS][NB_FOREIGN_TEXT]; /* NUL at the end, or cut */
};

struct nb_foreign_init {
	__u64 comm_hash;
	__s32 n_nodes, n_ranks;
	char name[40];
};

struct nb_foreign_record {
	__u16 kind; /* NB_KIND_FOREIGN */
	__u16 size;
	__u32 tgid;
	__u64 time_ns; /* CLOCK_MONOTONIC, at the callback's entry */
	__u32 tid;
	__u8 callback; /* enum nb_foreign_callback */
	__u8 abi;
	__u8 channel;
	__u8 pad;
	__u32 type; /* of the event */
	__s32 rank;
	__u64 lost;    /* records of this process that found no place, until this callback */
	__u64 context; /* the plugin's own, for a communicator */
	__u64 handle;  /* for an event; 0: it gave none, or in doubt. CONTEXT: the INIT's time */
	__u64 parent;
	__u64 timer_ns; /* the GPU's clock. START: CLOCK_MONOTONIC when the handle was read */
	union {		/* START and INIT only */
		struct nb_foreign_task task;
		struct nb_foreign_init init;
	};
};

#define NB_FOREIGN_SHORT 72 /* size of a record that is neither START nor INIT */

_Static_assert(__builtin_offsetof(struct nb_foreign_record, task) == NB_FOREIGN_SHORT,
	       "nb_foreign_record");
_Static_assert(sizeof(struct nb_foreign_record) == 264, "nb_foreign_record");

enum nb_lost {
	NB_LOST_RING_FULL,    /* the record found no place; the call is counted all the same */
	NB_LOST_COUNTER_FULL, /* no place even for the overflow key: the call is not in a counter */
	NB_LOST_BAD_COOKIE,   /* a probe fired that belongs to no known library or function */
	NB_LOST_PLUGIN_RING_FULL, /* records of the plugin that found no place */
	NB_LOST_BAD_BATCH, /* records that could not be read from the plugin, or a batch too long */
	NB_LOST_GRAPH_FULL, /* a CUDA graph's call that found no place: a launch of it is in no
			       counter */
	NB_LOST_MAX,
};

/* One executable file mapping, from the task_vma iterator. */
struct nb_mapping {
	__u32 tgid;
	__u32 dev; /* of the real inode's superblock, as the kernel codes it: major << 20 | minor */
	__u64 ino; /* of the real inode, below any overlay */
	__u64 inode;	   /* its address: tells btrfs snapshots apart; never leaves the agent */
	__u64 start, end;  /* addresses */
	__u64 file_offset; /* of start, bytes */
	__u32 generation;
	__u32 fs_magic;
	char name[32]; /* last component of the path, cut */
};

_Static_assert(sizeof(struct nb_mapping) == 88, "nb_mapping");

static inline __u32 nb_record_checksum(const struct nb_record *r)
{
	__u64 h = r->time_ns ^ ((__u64)r->tgid << 32 | r->tid);

	h = h * 0x9e3779b97f4a7c15ULL + r->comm;
	h = h * 0x9e3779b97f4a7c15ULL + r->count;
	h = h * 0x9e3779b97f4a7c15ULL + ((__u64)r->function << 32 | r->datatype);
	h = h * 0x9e3779b97f4a7c15ULL + r->stream;
	return (__u32)(h >> 32) | 1;
}

#endif
