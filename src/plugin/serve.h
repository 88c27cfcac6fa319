/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Notes into records, timed launches to their end: one round of the plugin's thread. */
#ifndef NCCL_BPFTRACE_PLUGIN_SERVE_H
#define NCCL_BPFTRACE_PLUGIN_SERVE_H

#include "plugin.h"

void serve__tell_again(void); /* a tracer that has just come knows nothing */

/* asleep_since_ns: 0 while a tracer listens. Returns whether to come again soon. */
bool serve__round(uint64_t now, uint64_t asleep_since_ns);

#endif
