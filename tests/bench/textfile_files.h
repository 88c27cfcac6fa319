/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The textfile's writer, and all that it writes of, to be driven without a kernel. */
#ifndef BENCH_TEXTFILE_FILES_H
#define BENCH_TEXTFILE_FILES_H

#include "../../src/comm.c"
#include "../../src/comm_learn.c"
#include "../../src/comm_graph.c"
#include "../../src/comm_owner.c"
#include "../../src/comm_plugin.c"
#include "../../src/comm_query.c"
#include "../../src/nccl_api.c"
/* defines COMM, a word of the API table: after it */
#include "../../src/metrics.c"
#include "../../src/prom.c"
#include "../../src/utf8.c"
#include "../../src/prom_file.c"
#include "../../src/agent_cost.c"
#include "../../src/textfile.c"
#include "../../src/textfile_fill.c"
#include "../../src/textfile_timed.c"
#include "../../src/textfile_verdict.c"
#include "../../src/job_timing.c"
#include "../../src/timing_stats.c"
#include "timing_feed.h"

#endif
