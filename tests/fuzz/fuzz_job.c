/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* /proc/PID/cgroup and environ: whatever a tenant makes of them gives a valid identity or none. */
#include "../../src/job.c"
#include "../../src/job_cgroup.c"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct job_identity cgroup, environment, merged;
	bool has_cgroup = !job__from_cgroup((const char *)data, size, &cgroup);
	bool has_environment = !job__from_environ((const char *)data, size, &environment);

	job__merge(has_cgroup ? &cgroup : NULL, has_environment ? &environment : NULL, &merged);
	if (!job__valid(&merged))
		abort();
	return 0;
}
