/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit_job.h"

#include "../../src/job.c"

#define ENVIRON(text) text, sizeof(text) - 1

TEST(environ_slurm)
{
	struct job_identity job;

	CHECK_INT(parse(job__from_environ,
			ENVIRON("PATH=/bin\0SLURM_JOB_ID=42\0SLURM_STEP_ID=3\0"
				"SLURM_CLUSTER_NAME=big-one_2\0SLURM_PROCID=9\0SLURM_LOCALID=1\0"),
			&job),
		  0);
	CHECK_STR(job.job_id, "42");
	CHECK_STR(job.step, "3");
	CHECK_STR(job.cluster, "big-one_2");
	CHECK_STR(job.rank, "9");
	CHECK_STR(job.local_rank, "1");
	CHECK_INT(job.source, JOB_SOURCE_ENVIRON);
	CHECK(job__valid(&job));
}

TEST(environ_older_spelling)
{
	struct job_identity job;

	CHECK_INT(parse(job__from_environ, ENVIRON("SLURM_JOBID=42\0SLURM_STEPID=1\0"), &job), 0);
	CHECK_STR(job.job_id, "42");
	CHECK_STR(job.step, "1");
}

TEST(environ_first_entry_counts)
{
	struct job_identity job;

	CHECK_INT(
		parse(job__from_environ,
		      ENVIRON("SLURM_JOB_IDX=1\0XSLURM_JOB_ID=2\0SLURM_JOB_ID=3\0SLURM_JOB_ID=4\0"),
		      &job),
		0);
	CHECK_STR(job.job_id, "3");
}

TEST(environ_torchrun)
{
	struct job_identity job;

	CHECK_INT(parse(job__from_environ,
			ENVIRON("SLURM_LOCALID=0\0SLURM_PROCID=1\0LOCAL_RANK=5\0RANK=13\0"), &job),
		  0);
	CHECK_STR(job.local_rank, "5");
	CHECK_STR(job.rank, "13");
	CHECK_STR(job.job_id, "");
	CHECK_INT(job.source, JOB_SOURCE_NONE);
	CHECK(job__valid(&job));
	CHECK_INT(parse(job__from_environ, ENVIRON("RANK=2\0TORCHELASTIC_RUN_ID=none\0"), &job), 0);
	CHECK_STR(job.rank, "2");
	CHECK_STR(job.local_rank, "");
}

/* mpirun below Slurm: srun starts one daemon a node, and its numbers go on to all ranks there. */
TEST(environ_mpi)
{
	struct job_identity job;

	CHECK_INT(parse(job__from_environ,
			ENVIRON("SLURM_JOB_ID=42\0SLURM_LOCALID=0\0SLURM_PROCID=1\0"
				"OMPI_COMM_WORLD_RANK=13\0OMPI_COMM_WORLD_LOCAL_RANK=5\0"),
			&job),
		  0);
	CHECK_STR(job.job_id, "42");
	CHECK_STR(job.local_rank, "5");
	CHECK_STR(job.rank, "13");
	CHECK_INT(parse(job__from_environ,
			ENVIRON("SLURM_LOCALID=0\0PMI_RANK=12\0MPI_LOCALRANKID=4\0"), &job),
		  0);
	CHECK_STR(job.local_rank, "4");
	CHECK_STR(job.rank, "12");
	CHECK_INT(parse(job__from_environ,
			ENVIRON("MV2_COMM_WORLD_RANK=3\0MV2_COMM_WORLD_LOCAL_RANK=2\0"
				"SLURM_LOCALID=0\0"),
			&job),
		  0);
	CHECK_STR(job.local_rank, "2");
	CHECK_STR(job.rank, "3");
	/* a rank that is started as a torchrun of its own */
	CHECK_INT(parse(job__from_environ,
			ENVIRON("OMPI_COMM_WORLD_LOCAL_RANK=0\0LOCAL_RANK=7\0RANK=7\0"), &job),
		  0);
	CHECK_STR(job.local_rank, "7");
	/* nothing of MPI's that tells ranks of one node apart */
	CHECK_INT(parse(job__from_environ, ENVIRON("PMI_RANK=9\0SLURM_LOCALID=1\0"), &job), 0);
	CHECK_STR(job.local_rank, "1");
	CHECK_STR(job.rank, "");
}

TEST(environ_rank_alone_is_not_believed)
{
	struct job_identity job = {.job_id = "untouched"};

	CHECK_INT(parse(job__from_environ, ENVIRON("RANK=1\0WORLD_SIZE=2\0"), &job), -ENOENT);
	CHECK_STR(job.job_id, "untouched");
}

TEST(environ_bad_values_are_passed_over)
{
	struct job_identity job;
	char text[300] = "SLURM_CLUSTER_NAME=";
	size_t len = strlen(text);

	CHECK_INT(parse(job__from_environ, ENVIRON("SLURM_JOB_ID=1\"}\0SLURM_STEP_ID=0\0"), &job),
		  -ENOENT);
	CHECK_INT(parse(job__from_environ, ENVIRON("SLURM_JOB_ID=\0"), &job), -ENOENT);
	CHECK_INT(parse(job__from_environ, ENVIRON("SLURM_CLUSTER_NAME=a.b\0"), &job), -ENOENT);
	CHECK_INT(parse(job__from_environ, ENVIRON("LOCAL_RANK=-1\0"), &job), -ENOENT);
	CHECK_INT(parse(job__from_environ, ENVIRON("LOCAL_RANK=99999999999999\0"), &job), -ENOENT);
	memset(text + len, 'c', 63);
	CHECK_INT(parse(job__from_environ, text, len + 64, &job), 0);
	CHECK_INT(strlen(job.cluster), 63);
	memset(text + len, 'c', 64);
	CHECK_INT(parse(job__from_environ, text, len + 65, &job), -ENOENT);
}

TEST(environ_cut_text)
{
	struct job_identity job;

	CHECK_INT(parse(job__from_environ, ENVIRON("SLURM_LOCALID=1\0SLURM_JOB_ID=12"), &job), 0);
	CHECK_STR(job.job_id, "");
	CHECK_STR(job.local_rank, "1");
	CHECK_INT(parse(job__from_environ, "", 0, &job), -ENOENT);
	CHECK_INT(job__from_environ(NULL, 0, &job), -ENOENT);
}

TEST(merge_cgroup_wins)
{
	struct job_identity cgroup = {.job_id = "1", .step = "0", .source = JOB_SOURCE_CGROUP};
	struct job_identity claim = {.job_id = "2",
				     .step = "7",
				     .cluster = "c",
				     .local_rank = "3",
				     .rank = "4",
				     .source = JOB_SOURCE_ENVIRON};
	struct job_identity job;

	CHECK(job__merge(&cgroup, &claim, &job));
	CHECK_STR(job.job_id, "1");
	CHECK_STR(job.step, "0");
	CHECK_STR(job.cluster, "c");
	CHECK_STR(job.local_rank, "3");
	CHECK_STR(job.rank, "4");
	CHECK_INT(job.source, JOB_SOURCE_CGROUP);

	strcpy(claim.job_id, "1");
	CHECK(!job__merge(&cgroup, &claim, &claim));
	CHECK_STR(claim.step, "0");
}

TEST(merge_with_one_missing)
{
	struct job_identity claim = {.job_id = "2", .step = "7", .source = JOB_SOURCE_ENVIRON};
	struct job_identity cgroup = {.job_id = "1", .step = "0", .source = JOB_SOURCE_CGROUP};
	struct job_identity job;

	CHECK(!job__merge(NULL, &claim, &job));
	CHECK_STR(job.job_id, "2");
	CHECK_INT(job.source, JOB_SOURCE_ENVIRON);
	CHECK(!job__merge(&cgroup, NULL, &job));
	CHECK_STR(job.job_id, "1");
	CHECK(!job__merge(NULL, NULL, &job));
	CHECK_STR(job.job_id, "");
	CHECK(job__valid(&job));
}

static struct job_identity pod_of(const char *namespace, const char *pod)
{
	struct job_identity job = {.pod_uid = UID_DASHES, .container_id = ID};
	struct job_names names = {.container = "trainer"};

	snprintf(names.namespace, sizeof(names.namespace), "%s", namespace);
	snprintf(names.pod, sizeof(names.pod), "%s", pod);
	job__name(&job, &names);
	return job;
}

TEST(pod_names_the_job)
{
	struct job_identity job = pod_of("research", "llm-worker-3");

	CHECK_STR(job.job_id, "research/llm-worker-3");
	CHECK_STR(job__slurm_id(&job), "");
	CHECK_STR(job.namespace, "research");
	CHECK_STR(job.pod, "llm-worker-3");
	CHECK_STR(job.container, "trainer");
	CHECK_INT(job.source, JOB_SOURCE_CGROUP);
	CHECK(job__valid(&job));
}

TEST(pod_with_a_long_name)
{
	char longest[254];
	struct job_identity job;

	memset(longest, 'p', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	job = pod_of("research", longest);
	CHECK_STR(job.job_id, "research/" UID_DASHES);
	CHECK_STR(job.pod, longest);
	CHECK(job__valid(&job));
}

TEST(names_without_a_pod_in_the_cgroup)
{
	struct job_identity job = {.container_id = ID};
	const struct job_names names = {"research", "llm", "trainer"};

	job__name(&job, &names);
	CHECK_STR(job.job_id, "");
	CHECK_STR(job.pod, "");
	CHECK_STR(job.container, "trainer");
	CHECK(job__valid(&job));
}

TEST(slurm_s_id_before_the_pod_s)
{
	struct job_identity job = {
		.job_id = "7", .step = "0", .pod_uid = UID_DASHES, .source = JOB_SOURCE_CGROUP};
	const struct job_names names = {"research", "llm", "trainer"};

	job__name(&job, &names);
	CHECK_STR(job.job_id, "7");
	CHECK_STR(job__slurm_id(&job), "7");
	CHECK_STR(job.pod, "llm");
	CHECK(job__valid(&job));
}

TEST(environ_of_a_pod_does_not_win)
{
	struct job_identity claim = {
		.job_id = "2", .step = "7", .local_rank = "3", .source = JOB_SOURCE_ENVIRON};
	struct job_identity named = pod_of("research", "llm"), job;
	struct job_identity nameless = {.pod_uid = UID_DASHES, .container_id = ID};

	CHECK(job__merge(&named, &claim, &job));
	CHECK_STR(job.job_id, "research/llm");
	CHECK_STR(job.step, "");
	CHECK_STR(job.local_rank, "3");
	CHECK(job__merge(&nameless, &claim, &job));
	CHECK_STR(job.job_id, "");
	CHECK_STR(job.step, "");
	CHECK_STR(job.container, "8f0c2d1e9b7a");
	CHECK(job__valid(&job));
}

/* docker run by a Slurm job: its cgroup names no job, so that the environ's word is taken. */
TEST(environ_of_a_container_outside_kubernetes)
{
	struct job_identity claim = {.job_id = "2", .step = "7", .source = JOB_SOURCE_ENVIRON};
	struct job_identity container = {.container_id = ID}, job;

	CHECK(!job__merge(&container, &claim, &job));
	CHECK_STR(job.job_id, "2");
	CHECK_STR(job.container, "8f0c2d1e9b7a");
	CHECK(job__valid(&job));
}

TEST(valid_refuses_a_pod_that_is_none)
{
	struct job_identity job = pod_of("research", "llm");

	job.job_id[0] = 'R';
	CHECK(!job__valid(&job));
	job = pod_of("research", "llm");
	job.pod_uid[0] = 0;
	CHECK(!job__valid(&job));
	job = pod_of("research", "llm");
	job.namespace[0] = 0;
	CHECK(!job__valid(&job));
	job = pod_of("research", "llm");
	job.container[0] = '"';
	CHECK(!job__valid(&job));
	job = pod_of("research", "llm");
	job.container_id[3] = 0;
	CHECK(!job__valid(&job));
	job = pod_of("research", "llm");
	memset(job.pod, 'p', sizeof(job.pod));
	CHECK(!job__valid(&job));
	job = pod_of("research", "llm");
	memset(job.job_id, '1', sizeof(job.job_id));
	CHECK(!job__valid(&job));
	job = (struct job_identity){.job_id = "a/b", .source = JOB_SOURCE_CGROUP};
	CHECK(!job__valid(&job));
}

TEST(valid_refuses_foreign_input)
{
	struct job_identity job = {.source = JOB_SOURCE_NONE};

	CHECK(job__valid(&job));
	memset(job.cluster, 'c', sizeof(job.cluster));
	CHECK(!job__valid(&job));
	job = (struct job_identity){.job_id = "1", .source = JOB_SOURCE_NONE};
	CHECK(!job__valid(&job));
	job.source = JOB_SOURCE_CGROUP;
	CHECK(job__valid(&job));
	job.source = 77;
	CHECK(!job__valid(&job));
	job = (struct job_identity){.rank = "1\n"};
	CHECK(!job__valid(&job));
}

UNIT_MAIN()
