/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "unit.h"

#include "../../src/job.c"

/* From a heap copy of just the right size, so that reading past the end is seen. */
static int parse(int (*fn)(const char *, size_t, struct job_identity *), const char *text,
		 size_t len, struct job_identity *ret)
{
	char *copy = malloc(len ? len : 1);
	int err;

	memcpy(copy, text, len);
	err = fn(copy, len, ret);
	free(copy);
	return err;
}

static void expect_cgroup(const char *text, const char *job_id, const char *step)
{
	struct job_identity job = {.job_id = "untouched"};
	int err = parse(job__from_cgroup, text, strlen(text), &job);

	if (!job_id) {
		CHECK_INT(err, -ENOENT);
		CHECK_STR(job.job_id, "untouched");
		return;
	}
	CHECK_INT(err, 0);
	CHECK_STR(job.job_id, job_id);
	CHECK_STR(job.step, step);
	CHECK_STR(job.cluster, "");
	CHECK_INT(job.source, JOB_SOURCE_CGROUP);
	CHECK(job__valid(&job));
}

TEST(cgroup_v2)
{
	expect_cgroup("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n", "123", "0");
	expect_cgroup(
		"0::/system.slice/node1_slurmstepd.scope/job_7/step_batch/user/task_special\n", "7",
		"batch");
	expect_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_extern/slurm\n", "7", "extern");
	expect_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_interactive/user/task_0\n", "7",
		      "interactive");
	expect_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_0+1/user/task_0\n", "7", "0+1");
	expect_cgroup("0::/../../slurmstepd.scope/job_8/step_3", "8", "3");
}

TEST(cgroup_v1_many_lines)
{
	expect_cgroup("12:pids:/system.slice/slurmd.service\n"
		      "11:cpuset:/slurm/uid_1000/job_4294967295/step_12/task_1\n"
		      "10:devices:/slurm/uid_1000/job_4294967295/step_12/task_1\n"
		      "1:name=systemd:/system.slice/slurmd.service\n",
		      "4294967295", "12");
	expect_cgroup("5:memory:/slurm_node1/uid_0/job_5/step_batch/task_0\n", "5", "batch");
}

TEST(cgroup_hybrid)
{
	expect_cgroup("4:freezer:/slurm/uid_1000/job_99/step_0\n"
		      "1:name=systemd:/system.slice/slurmd.service\n"
		      "0::/system.slice/slurmd.service\n",
		      "99", "0");
}

TEST(cgroup_without_slurm)
{
	expect_cgroup("", NULL, NULL);
	expect_cgroup("0::/\n", NULL, NULL);
	expect_cgroup("\n\n:::\n::\n0:\n", NULL, NULL);
	expect_cgroup("0::/user.slice/user-1000.slice/session-3.scope\n", NULL, NULL);
	expect_cgroup("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-ab.scope\n", NULL,
		      NULL);
	expect_cgroup("garbage job_1/step_0", NULL, NULL);
}

TEST(cgroup_refuses_bad_ids)
{
	expect_cgroup("0::/slurm/job_/step_0\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_0/step_0\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_007/step_0\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_12a/step_0\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_-1/step_0\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_123_4/step_0\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_4294967296/step_0\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_1/step_\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_1/step_00\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_1/step_0+\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_1/step_0+1+2\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_1/step_B\"x\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_1/task_0\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_1/x/step_0\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_1/step_abcdefghijklmnopqrstuvwxyzabcdef\n", NULL, NULL);
	expect_cgroup("0::/slurm/xjob_1/step_0\n", NULL, NULL);
	expect_cgroup("0::/slurm/job_1/step_job_2/step_3\n", NULL, NULL);
}

TEST(cgroup_cannot_be_forged)
{
	/* what the job makes below its own cgroup */
	expect_cgroup("0::/slurmstepd.scope/job_1/step_0/user/task_0/job_2/step_0\n", "1", "0");
	/* what any user can make below their own service manager */
	expect_cgroup("0::/user.slice/user-7.slice/user@7.service/slurm/job_2/step_0\n", NULL,
		      NULL);
}

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
	CHECK_INT(job__from_cgroup(NULL, 0, &job), -ENOENT);
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
