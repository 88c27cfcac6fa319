/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How many programs a second can be started here. usage: bench_exec MILLISECONDS */
#include <spawn.h>
#include <sys/wait.h>

#include "bench.h"

int main(int argc, char **argv)
{
	char *const arguments[] = {"/bin/true", NULL};
	char *const environment[] = {NULL};
	uint64_t start = now_ns(), end, now;
	int n = 0, status;
	pid_t pid;

	end = start + strtoull(argc > 1 ? argv[1] : "1000", NULL, 10) * NSEC_PER_MSEC;
	do {
		if (posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environment))
			die("/bin/true", 0);
		waitpid(pid, &status, 0);
		n++;
		now = now_ns();
	} while (now < end);
	printf("exec_per_s %.1f\n", n * 1e9 / (now - start));
	return 0;
}
