/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names of files and what a runtime keeps of a container: a valid identity comes out, or none. */
#include "../../src/job.c"
#include "../../src/job_names_text.c"

#include <stdlib.h>

#define POD_UID	     "6b8e2f4c-1d3a-4c5b-9e7f-0a1b2c3d4e5f"
#define CONTAINER_ID "8f0c2d1e9b7a6354f0e1d2c3b4a5968778695a4b3c2d1e0f9a8b7c6d5e4f3021"

static void expect_valid(struct job_identity job, const struct job_names *names)
{
	job__name(&job, names);
	job__merge(&job, NULL, &job);
	if (!job__valid(&job))
		abort();
}

static void name_of_file(const uint8_t *data, size_t size, const struct job_identity *job)
{
	char *name = malloc(size + 1);
	struct job_names names;

	if (!name)
		return;
	memcpy(name, data, size);
	name[size] = 0;
	if (job_names__from_folder(name, job, &names))
		expect_valid(*job, &names);
	if (job_names__from_log(name, job, &names))
		expect_valid(*job, &names);
	free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct job_identity jobs[] = {
		{.pod_uid = POD_UID, .container_id = CONTAINER_ID},
		{.container_id = CONTAINER_ID},
		{.job_id = "7", .pod_uid = POD_UID, .source = JOB_SOURCE_CGROUP},
	};
	struct job_names names;

	for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
		name_of_file(data, size, &jobs[i]);
		for (const struct job_names_place *p = job_names_places; p->path; p++)
			if (job_names__from_file((const char *)data, size, p, &jobs[i], &names))
				expect_valid(jobs[i], &names);
	}
	return 0;
}
