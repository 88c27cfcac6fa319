/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the agent itself takes of the node. */
#ifndef AGENT_COST_H
#define AGENT_COST_H

#include <stdint.h>

/* Of this process and of its helpers that have ended, since the start. */
double agent__cpu_seconds(void);

/* 0: not known. */
uint64_t agent__resident_bytes(void);

#endif
