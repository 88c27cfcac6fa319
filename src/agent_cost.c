/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "agent_cost.h"

#include <sys/resource.h>

#include "util.h"

static double rusage__seconds(int who)
{
	struct rusage usage = {};

	getrusage(who, &usage);
	return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
	       (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

double agent__cpu_seconds(void)
{
	return rusage__seconds(RUSAGE_SELF) + rusage__seconds(RUSAGE_CHILDREN);
}

uint64_t agent__resident_bytes(void)
{
	_cleanup_fclose_ FILE *file = fopen("/proc/self/statm", "re");
	unsigned long long pages = 0;

	if (!file || fscanf(file, "%*u %llu", &pages) != 1)
		return 0;
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
