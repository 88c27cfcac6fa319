/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What /proc says of a process: whatever its name makes of it is refused, or valid. */
#include "../../src/procstate_parse.c"
#include "../../src/procstate_syscall.c"
#include "../../src/sanitize.c"
#include "../../src/utf8.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct procstate state = {.main = {.tid = 1, .state = 'R'}};
	const char *text = (const char *)data;
	char buf[PROCSTATE_TEXT];
	uint64_t first = 0;

	procstate__parse_stat(text, size, &state.main, &state);
	procstate__parse_syscall(text, size, &state.main, &first);
	procstate__parse_wchan(text, size, &state.main);
	if (!procstate__valid(&state))
		abort();
	procstate_task__describe(&state, &state.main, buf);
	if (strlen(buf) >= sizeof(buf))
		abort();
	/* As if another process than a helper had replied. */
	memset(&state, 0, sizeof(state));
	memcpy(&state, data, size < sizeof(state) ? size : sizeof(state));
	if (procstate__valid(&state)) {
		procstate_task__describe(&state, &state.main, buf);
		procstate_task__describe(&state, &state.caller, buf);
	}
	return 0;
}
