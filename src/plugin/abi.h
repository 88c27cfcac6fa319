/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NCCL's profiler plugin ABI, v1 (NCCL 2.23) to v6 (2.29 and later), written from measured offsets:
 * one table of positions per version, so that one decoder reads them all.
 */
#ifndef NCCL_BPFTRACE_PLUGIN_ABI_H
#define NCCL_BPFTRACE_PLUGIN_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ABI_MAX_VERSION 6
#define ABI_EXPORT	__attribute__((visibility("default")))

/* Bits of the activation mask, which are also the event types. */
enum abi_type {
	ABI_GROUP = 1 << 0,
	ABI_COLL = 1 << 1,
	ABI_P2P = 1 << 2,
	ABI_PROXY_OP = 1 << 3,
	ABI_PROXY_STEP = 1 << 4,
	ABI_PROXY_CTRL = 1 << 5,
	ABI_KERNEL_CH = 1 << 6,	     /* v3 */
	ABI_NET_PLUGIN = 1 << 7,     /* v3 */
	ABI_GROUP_API = 1 << 8,	     /* v5 */
	ABI_COLL_API = 1 << 9,	     /* v5 */
	ABI_P2P_API = 1 << 10,	     /* v5 */
	ABI_KERNEL_LAUNCH = 1 << 11, /* v5 */
	ABI_CE_COLL = 1 << 12,	     /* v6 */
	ABI_CE_SYNC = 1 << 13,	     /* v6 */
	ABI_CE_BATCH = 1 << 14,	     /* v6 */

	/* of every version from v5 on, and what a job brings all the time */
	ABI_USUAL = ABI_GROUP | ABI_COLL | ABI_P2P | ABI_GROUP_API | ABI_COLL_API | ABI_P2P_API |
		    ABI_KERNEL_LAUNCH,
};

/* struct ncclProfiler_vN: the signature of init differs, so it is kept untyped. */
struct abi_profiler {
	const char *name;
	void (*init)(void);
	int (*start)(void *context, void **handle, void *descriptor);
	int (*stop)(void *handle);
	int (*record)(void *handle, int state, void *arguments);
	int (*finalize)(void *context);
};

_Static_assert(sizeof(struct abi_profiler) == 48, "ncclProfiler_vN");
_Static_assert(offsetof(struct abi_profiler, finalize) == 40, "ncclProfiler_vN.finalize");

typedef void (*abi_logger)(int level, unsigned long flags, const char *file, int line,
			   const char *format, ...);
typedef int (*abi_init_v1)(void **context, int *mask);
typedef int (*abi_init_v4)(void **context, int *mask, const char *name, uint64_t hash, int n_nodes,
			   int n_ranks, int rank, abi_logger logger);
typedef int (*abi_init_v5)(void **context, uint64_t hash, int *mask, const char *name, int n_nodes,
			   int n_ranks, int rank, abi_logger logger);

#define ABI_NONE (-1)

/* Byte positions in ncclProfilerEventDescr_vN_t, ABI_NONE where a version has no such field. */
struct abi_task {
	int16_t hash, name, sequence, function, count, root, datatype;
	int16_t algorithm, protocol, channels, parent_group;
};

struct abi_version {
	int version;
	uint16_t descriptor_size;
	uint8_t type_size;
	bool strings; /* function, type, algorithm, protocol: const char *, else enums of a byte */
	uint32_t known; /* types that this version has */
	uint32_t mask;	/* bits that this plugin sets while awake */
	struct abi_task coll, p2p;
	int16_t channel_timer; /* of KernelCh: the GPU's time of its start */
};

#define ABI_PARENT  8 /* parentObj, in every version */
#define ABI_RANK    16
#define ABI_CHANNEL 24 /* of KernelCh */

#define ABI_KERNEL_CH_STOP 22 /* state; its arguments begin with the GPU's time */

extern const struct abi_version abi_versions[ABI_MAX_VERSION + 1];

struct abi_event {
	uint64_t hash, sequence, count, stream;
	const char *name;
	int32_t root;
	uint32_t channels;
	uint8_t function, datatype, algorithm, protocol;
	bool captured;
};

static inline uint64_t abi__type(const struct abi_version *v, const void *descriptor)
{
	return v->type_size == 1 ? *(const uint8_t *)descriptor : *(const uint64_t *)descriptor;
}

enum abi_named {
	ABI_API_FUNCTION,
	ABI_API_DATATYPE,
	ABI_FUNCTION,
	ABI_DATATYPE,
	ABI_ALGORITHM,
	ABI_PROTOCOL,
	ABI_N_NAMED,
};

/*
 * NCCL's names are string literals of its own: the same address is the same name, until another
 * NCCL may have been loaded, which must make a communicator before it tells of anything.
 */
struct abi_names {
	uint64_t n_inits; /* communicators of the process that had been made then */
	const char *name[ABI_N_NAMED];
	uint8_t value[ABI_N_NAMED];
};

_Static_assert(sizeof(struct abi_names) == 64, "one cache line");

/* Its value, NBP_UNKNOWN_U8 for none and for one that is not known; `known` has it from now on. */
uint8_t abi_name__learn(struct abi_names *known, enum abi_named what, const char *name);

static inline void abi_names__renew(struct abi_names *names, uint64_t n_inits)
{
	if (names->n_inits != n_inits)
		*names = (struct abi_names){.n_inits = n_inits};
}

/* Of an event of type Coll or P2p, v1 to v3. For all others see abi_decode.h. */
void abi__old_task(const struct abi_version *v, uint64_t type, const void *descriptor,
		   struct abi_names *names, struct abi_event *event);

/* The event types that NCCL starts when `mask` is set: a type's children bring it along. */
uint32_t abi__implied(const struct abi_version *v, uint32_t mask);

#endif
