/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names. */
#include "verdict.h"

/* exit_status and severity: contract.md. */
static const struct {
	const char *name;
	int exit_status;
	unsigned int severity;
} states[VERDICT_STATES] = {
	[VERDICT_HEALTHY] = {"healthy", 0, 0},
	[VERDICT_IDLE] = {"idle", 0, 0},
	[VERDICT_WAITING] = {"waiting", 1, 5},
	[VERDICT_STUCK] = {"stuck", 4, 6},
	[VERDICT_STRAGGLER] = {"straggler", 1, 4},
	[VERDICT_SLOW] = {"slow", 1, 3},
	[VERDICT_MISMATCH] = {"mismatch", 4, 7},
	[VERDICT_ABORTED] = {"aborted", 4, 8},
	[VERDICT_ERROR] = {"error", 4, 9},
	[VERDICT_DEGRADED_SIGHT] = {"degraded_sight", 1, 2},
	[VERDICT_UNKNOWN] = {"unknown", 1, 1},
};

const char *verdict_state__name(enum verdict_state state)
{
	return (unsigned int)state < VERDICT_STATES ? states[state].name : "unknown";
}

unsigned int verdict_state__severity(enum verdict_state state)
{
	return (unsigned int)state < VERDICT_STATES ? states[state].severity : 0;
}

int verdict_state__exit_status(enum verdict_state state)
{
	return (unsigned int)state < VERDICT_STATES ? states[state].exit_status : 1;
}

const char *verdict_mismatch__name(enum verdict_mismatch kind)
{
	static const char *const names[VERDICT_MISMATCHES] = {
		[VERDICT_MISMATCH_OPERATION] = "operation", [VERDICT_MISMATCH_COUNT] = "count",
		[VERDICT_MISMATCH_DATATYPE] = "datatype",   [VERDICT_MISMATCH_REDOP] = "redop",
		[VERDICT_MISMATCH_ROOT] = "root",
	};

	return (unsigned int)kind < VERDICT_MISMATCHES ? names[kind] : "unknown";
}

const char *verdict_cause__name(enum verdict_cause cause)
{
	static const char *const names[VERDICT_CAUSES] = {
		[VERDICT_NO_CAUSE] = "none",
		[VERDICT_MISSING_CALL] = "missing_call",
		[VERDICT_MISSING_LAUNCH] = "missing_launch",
		[VERDICT_GPU_NOT_STARTED] = "gpu_not_started",
		[VERDICT_GPU_NOT_DONE] = "gpu_not_done",
		[VERDICT_ELSEWHERE] = "elsewhere",
		[VERDICT_ENDED] = "ended",
		[VERDICT_LATE] = "late",
		[VERDICT_LATE_ON_GPU] = "late_on_gpu",
		[VERDICT_SLOW_TRANSFER] = "slow_transfer",
		[VERDICT_DISAGREE] = "disagree",
	};

	return (unsigned int)cause < VERDICT_CAUSES ? names[cause] : "unknown";
}
