/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A watch that only holds a judge, for those who show what it says. Behind the code under test. */
#ifndef NCCL_BPFTRACE_TESTS_UNIT_STUB_WATCH_H
#define NCCL_BPFTRACE_TESTS_UNIT_STUB_WATCH_H

/* Names that are others' here. */
#define numbers verdict_numbers
#define has	verdict_has
#include "verdict_sources.h"
#undef numbers
#undef has

struct watch {
	struct verdicts *verdicts;
	uint64_t errors[WATCH_N_ERRORS], refused;
};

struct verdicts *watch__verdicts(struct watch *watch)
{
	return watch->verdicts;
}

const uint64_t *watch__errors(const struct watch *watch, const struct verdict_member *member)
{
	return member->rank ? NULL : watch->errors;
}

const char *watch_error__name(int error)
{
	return error == WATCH_ABORTED ? "ncclCommAbort" : nccl_result__name(error);
}

uint64_t watch__refused(const struct watch *watch)
{
	return watch->refused;
}

#endif
