/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the stand-in tells a profiler plugin, and in what shape: event descriptors of ABI v1 to v6.
 * Positions are restated here from the measured layouts, not taken from the plugin under test.
 */
#ifndef SIM_EVENT_H
#define SIM_EVENT_H

#include <stdbool.h>
#include <stdint.h>

/* Only what every side of the ABI shares: event bits, the table of functions, init's types. */
#include "../../src/plugin/abi.h"

#define EVENT_BYTES 128

/* States that recordEventState() is given. */
enum sim_state {
	STATE_KERNEL_CH_STOP = 22,
	STATE_GROUP_START_API_STOP = 23,
	STATE_GROUP_END_API_START = 24,
};

/* Members that an event's type has no use for are not looked at. */
struct sim_event {
	uint64_t type; /* enum abi_type */
	void *parent, *parent_group;
	int rank;
	int func, datatype, root; /* root: or peer */
	uint64_t count, sequence, traffic;
	const void *send, *recv; /* a send's or receive's buffer is recv */
	uint32_t redop;
	uint8_t algorithm, protocol, n_channels;
	const char *name; /* of the communicator */
	uint64_t hash;
	void *stream;
	bool captured;
	int depth;
	uint8_t channel;
	uint64_t timer; /* the GPU's clock */
};

/* False: this version of the ABI has no such event. */
bool event_describe(const struct sim_event *event, int version, void *ret_descriptor);

#endif
