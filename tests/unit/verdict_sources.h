/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The whole judge; nccl_api.c is the includer's. */
#ifndef VERDICT_SOURCES_H
#define VERDICT_SOURCES_H

#include "../../src/verdict.c"
#include "../../src/verdict_acquit.c"
#include "../../src/verdict_arrival.c"
#include "../../src/verdict_call.c"
#include "../../src/verdict_chain.c"
#include "../../src/verdict_end.c"
#include "../../src/verdict_evidence.c"
#include "../../src/verdict_gpu.c"
#include "../../src/verdict_judge.c"
#include "../../src/verdict_late.c"
#include "../../src/verdict_member.c"
#include "../../src/verdict_mismatch.c"
#include "../../src/verdict_missing.c"
#include "../../src/verdict_order.c"
#include "../../src/verdict_peer.c"
#include "../../src/verdict_query.c"
#include "../../src/verdict_replay.c"
#include "../../src/verdict_slices.c"
#include "../../src/verdict_straggler.c"
#include "../../src/verdict_text.c"
#include "../../src/verdict_timed.c"
#include "../../src/verdict_waited.c"
#include "../../src/verdict_why.c"
#include "../../src/verdict_words.c"

#endif
