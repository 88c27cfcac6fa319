/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* NCCL's numbers and words for what it executes; a number without a word gets one that says so. */
#ifndef SIM_NAMES_H
#define SIM_NAMES_H

#include <stdint.h>

/* Numbers of ncclFunc_t; the first five are the indices of seqNumber. */
enum sim_func {
	FUNC_BROADCAST, FUNC_REDUCE, FUNC_ALLGATHER, FUNC_REDUCESCATTER, FUNC_ALLREDUCE,
	FUNC_SEND = 6, FUNC_RECV, FUNC_ALLTOALL, FUNC_SCATTER, FUNC_GATHER,
	FUNC_PUT_SIGNAL = 12, FUNC_SIGNAL, FUNC_WAIT_SIGNAL,
};

const char *sim_func_name(int func);
const char *sim_datatype_name(int datatype);
const char *sim_algorithm_name(uint8_t algorithm);
const char *sim_protocol_name(uint8_t protocol);

#endif
