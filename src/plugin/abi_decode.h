/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a descriptor says, for every call of NCCL: inline, and each version that is in use by its
 * struct. Only v1 to v3 go by a table (abi.c).
 */
#ifndef NCCL_BPFTRACE_PLUGIN_ABI_DECODE_H
#define NCCL_BPFTRACE_PLUGIN_ABI_DECODE_H

#include "abi_v5.h"
#include "nccl_bpftrace_plugin.h"

#define ABI_INLINE static inline __attribute__((always_inline))

ABI_INLINE uint8_t abi_name__get(struct abi_names *known, enum abi_named what, const char *name)
{
	return name && name == known->name[what] ? known->value[what]
						 : abi_name__learn(known, what, name);
}

ABI_INLINE uint32_t abi_channels__get(uint8_t channels)
{
	return channels == NBP_UNKNOWN_U8 ? NBP_UNKNOWN : channels;
}

ABI_INLINE void abi__collective(const struct collective_v5 *d, struct abi_names *names,
				struct abi_event *e)
{
	e->sequence = d->sequence;
	e->count = d->count;
	e->root = d->root;
	e->function = abi_name__get(names, ABI_FUNCTION, d->function);
	e->datatype = abi_name__get(names, ABI_DATATYPE, d->datatype);
}

ABI_INLINE void abi__coll(const struct coll_v5 *d, struct abi_names *names, struct abi_event *e)
{
	abi__collective(&d->call, names, e);
	e->channels = abi_channels__get(d->channels);
	e->algorithm = abi_name__get(names, ABI_ALGORITHM, d->algorithm);
	e->protocol = abi_name__get(names, ABI_PROTOCOL, d->protocol);
}

ABI_INLINE void abi__p2p(const struct p2p_v5 *d, struct abi_names *names, struct abi_event *e)
{
	e->sequence = NBP_NO_NUMBER;
	e->count = d->count;
	e->root = d->peer;
	e->channels = abi_channels__get(d->channels);
	e->function = abi_name__get(names, ABI_FUNCTION, d->function);
	e->datatype = abi_name__get(names, ABI_DATATYPE, d->datatype);
	e->algorithm = e->protocol = NBP_UNKNOWN_U8;
}

/* Of an event of type Coll or P2p; *e is zeroed. */
ABI_INLINE void abi__task(const struct abi_version *v, uint64_t type, const void *descriptor,
			  struct abi_names *names, struct abi_event *e)
{
	if (v->version < 4)
		abi__old_task(v, type, descriptor, names, e);
	else if (type == ABI_COLL)
		abi__coll(descriptor, names, e);
	else
		abi__p2p(descriptor, names, e);
}

ABI_INLINE void abi__api(const struct api_v5 *d, struct abi_names *names, struct abi_event *e)
{
	e->count = d->count;
	e->function = abi_name__get(names, ABI_API_FUNCTION, d->function);
	e->datatype = abi_name__get(names, ABI_API_DATATYPE, d->datatype);
}

ABI_INLINE void abi__coll_api(const struct coll_api_v5 *d, struct abi_names *names,
			      struct abi_event *e)
{
	abi__api(&d->call, names, e);
	e->root = d->root;
	e->stream = (uintptr_t)d->stream;
	e->captured = d->captured;
}

ABI_INLINE void abi__p2p_api(const struct p2p_api_v5 *d, struct abi_names *names,
			     struct abi_event *e)
{
	abi__api(&d->call, names, e);
	e->root = NBP_NO_RANK;
	e->stream = (uintptr_t)d->stream;
	e->captured = d->captured;
}

/* Of an event of type CeColl; *e is zeroed. */
ABI_INLINE void abi__ce_coll(const struct ce_coll_v6 *d, struct abi_names *names,
			     struct abi_event *e)
{
	abi__collective(&d->call, names, e);
	e->channels = NBP_UNKNOWN;
	e->stream = (uintptr_t)d->stream;
	e->algorithm = NBP_COPY_ENGINE;
	e->protocol = NBP_UNKNOWN_U8;
}

#endif
