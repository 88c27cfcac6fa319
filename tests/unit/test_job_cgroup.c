/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit_job.h"

#include "../../src/job.c"
#include "../../src/job_cgroup.c"

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
	struct job_identity job;

	CHECK_INT(job__from_cgroup(NULL, 0, &job), -ENOENT);
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
	expect_cgroup("4:cpuset:/slurm/uid_7/job_1/step_NEW/task_0/job_2/step_0\n", NULL, NULL);
	expect_cgroup("4:cpuset:/slurm/uid_7/job_sNEW/step_0/task_0/job_2/step_0\n", NULL, NULL);
	/* what any user can make below their own service manager */
	expect_cgroup("0::/user.slice/user-7.slice/user@7.service/slurm/job_2/step_0\n", NULL,
		      NULL);
}

/* pod_uid NULL: found nothing at all. */
static void expect_container(const char *text, const char *pod_uid, const char *id)
{
	struct job_identity job = {.job_id = "untouched"};
	int err = parse(job__from_cgroup, text, strlen(text), &job);

	if (!pod_uid) {
		CHECK_INT(err, -ENOENT);
		CHECK_STR(job.job_id, "untouched");
		return;
	}
	CHECK_INT(err, 0);
	CHECK_STR(job.job_id, "");
	CHECK_STR(job.pod_uid, pod_uid);
	CHECK_STR(job.container_id, id);
	CHECK_INT(job.source, JOB_SOURCE_NONE);
	CHECK(job__valid(&job));
}

TEST(cgroup_kubernetes_systemd)
{
	expect_container("0::/kubepods.slice/kubepods-burstable.slice/"
			 "kubepods-burstable-pod" UID_SLICE ".slice/cri-containerd-" ID ".scope\n",
			 UID_DASHES, ID);
	expect_container("0::/kubepods.slice/kubepods-pod" UID_SLICE ".slice/crio-" ID
			 ".scope/container\n",
			 UID_DASHES, ID);
	expect_container("0::/kubepods.slice/kubepods-besteffort.slice/"
			 "kubepods-besteffort-pod" UID_SLICE ".slice/docker-" ID ".scope\n",
			 UID_DASHES, ID);
	expect_container("0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" UID_SLICE
			 ".slice/cri-containerd-" ID ".scope\n",
			 UID_DASHES, ID);
	expect_container("0::/kubepods.slice/kubepods-burstable.slice/"
			 "kubepods-burstable-pod" STATIC_UID ".slice/crio-" ID ".scope\n",
			 STATIC_UID, ID);
	/* from another cgroup namespace */
	expect_container("0::/../../kubepods-pod" UID_SLICE ".slice/cri-containerd-" ID ".scope\n",
			 UID_DASHES, ID);
	expect_container("0::/../cri-containerd-" ID ".scope\n", "", ID);
	/* containerd that is not told that systemd makes cgroups */
	expect_container("0::/system.slice/containerd.service/kubepods-burstable-pod" UID_SLICE
			 ".slice:cri-containerd:" ID "\n",
			 UID_DASHES, ID);
}

TEST(cgroup_kubernetes_cgroupfs)
{
	expect_container("0::/kubepods/burstable/pod" UID_DASHES "/" ID "\n", UID_DASHES, ID);
	expect_container("0::/kubepods/pod" UID_DASHES "/crio-" ID "\n", UID_DASHES, ID);
	expect_container("0::/kubepods/besteffort/pod" STATIC_UID "/" ID "\n", STATIC_UID, ID);
	expect_container("12:cpuset:/kubepods/burstable/pod" UID_DASHES "/" ID "\n"
			 "11:cpu,cpuacct:/kubepods/burstable/pod" UID_DASHES "/" ID "\n"
			 "3:devices:/kubepods/burstable/pod" UID_DASHES "/" ID "\n"
			 "1:name=systemd:/kubepods/burstable/pod" UID_DASHES "/" ID "\n"
			 "0::/system.slice/containerd.service\n",
			 UID_DASHES, ID);
	/* the kubelet knows the pod, a container is not to be told */
	expect_container("0::/kubepods/pod" UID_DASHES "/kata_overhead\n", UID_DASHES, "");
}

TEST(cgroup_containers)
{
	expect_container("0::/system.slice/docker-" ID ".scope\n", "", ID);
	expect_container("0::/docker/" ID "\n", "", ID);
	expect_container("11:memory:/docker/" ID "\n1:name=systemd:/docker/" ID "\n0::/\n", "", ID);
	expect_container("0::/machine.slice/libpod-" ID ".scope/container\n", "", ID);
	expect_container("0::/machine.slice/machine-libpod_pod_" OTHER_ID ".slice/libpod-" ID
			 ".scope\n",
			 "", ID);
	expect_container("0::/libpod_parent/libpod-" ID "\n", "", ID);
	expect_container("0::/system.slice/trainer.service/libpod-payload-" ID "\n", "", ID);
	expect_container("0::/system.slice/nerdctl-" ID ".scope\n", "", ID);
}

TEST(cgroup_bare)
{
	expect_container("0::/user.slice/user-1000.slice/session-3.scope\n", NULL, NULL);
	expect_container("0::/system.slice/containerd.service\n", NULL, NULL);
	expect_container("0::/system.slice/sshd.service\n", NULL, NULL);
	expect_container("0::/init.scope\n", NULL, NULL);
	/* what stands beside a container */
	expect_container("0::/machine.slice/libpod-conmon-" ID ".scope\n", NULL, NULL);
}

TEST(cgroup_refuses_bad_containers)
{
	expect_container("0::/docker/8f0c\n", NULL, NULL);
	expect_container("0::/docker/" ID "0\n", NULL, NULL);
	expect_container(
		"0::/docker/8F0C2D1E9B7A6354F0E1D2C3B4A5968778695A4B3C2D1E0F9A8B7C6D5E4F3021"
		"\n",
		NULL, NULL);
	expect_container("0::/kubepods/pod/x\n", NULL, NULL);
	expect_container("0::/kubepods/pod" UID_DASHES "0/x\n", NULL, NULL);
	expect_container("0::/kubepods/podg" STATIC_UID "\n", NULL, NULL);
	expect_container("0::/kubepods/pod6b8e2f4c1-d3a-4c5b-9e7f-0a1b2c3d4e5f/x\n", NULL, NULL);
	expect_container("0::/x:y:z\n0::/::\n0::/a:b\n", NULL, NULL);
	expect_container("0::/-.slice/pod-.slice/.slice/.scope\n", NULL, NULL);
}

/* Each with a step, and a pod, that somebody named who is no root of the host's. */
TEST(cgroup_below_what_is_a_tenants)
{
	static const char *const above[] = {
		"/user.slice/user-7.slice/session-3.scope",
		"/user.slice/session-3.scope",
		"/../../user-7.slice/session-3.scope",
		"/../user@7.service",
		"/user/alice/0",
		"/lxc/101/ns",
		"/lxc.payload/101",
		"/lxc.payload.trainer",
		"/lxc.payload.user-1000_trainer/system.slice",
		"/machine.slice/machine-trainer.scope/payload",
		"/machine.slice/systemd-nspawn@trainer.service/payload",
	};
	char text[512];

	for (size_t i = 0; i < sizeof(above) / sizeof(above[0]); i++) {
		snprintf(text, sizeof(text),
			 "0::%s/slurm/job_2/step_0\n1:pids:%s/kubepods/pod%s/%s\n", above[i],
			 above[i], UID_DASHES, ID);
		expect_cgroup(text, NULL, NULL);
	}
}

TEST(cgroup_that_is_named_like_a_tenants)
{
	expect_container("0::/users.slice/docker-" ID ".scope\n", "", ID);
	expect_container("0::/user-docker.service/docker-" ID ".scope\n", "", ID);
	expect_container("0::/lxcfs/docker-" ID ".scope\n", "", ID);
}

TEST(cgroup_container_cannot_be_forged)
{
	/* a user's own cgroups: rootless podman's, and made-up ones */
	expect_container("0::/user.slice/user-7.slice/user@7.service/user.slice/libpod-" ID
			 ".scope/container\n",
			 NULL, NULL);
	expect_container("0::/user.slice/user-7.slice/user@7.service/kubepods/pod" UID_DASHES "/" ID
			 "\n",
			 NULL, NULL);
	expect_container("0::/system.slice/trainer.service/libpod-payload-" ID
			 "/kubepods/pod" UID_DASHES "/" OTHER_ID "\n",
			 "", ID);
	/* below a container's own: another pod, another container, another's job */
	expect_container("0::/kubepods/pod" UID_DASHES "/" ID "/kubepods/pod" STATIC_UID
			 "/" OTHER_ID "\n",
			 UID_DASHES, ID);
	expect_container("0::/system.slice/docker-" ID ".scope/kubepods/pod" STATIC_UID "/" OTHER_ID
			 "\n",
			 "", ID);
	expect_container("0::/kubepods/pod" UID_DASHES "/" ID "/slurm/uid_0/job_2/step_0\n",
			 UID_DASHES, ID);
	expect_container("0::/kubepods/pod" UID_DASHES "/system.slice/slurmstepd.scope/job_2/step_0"
			 "\n",
			 UID_DASHES, "");
}

TEST(cgroup_lines_that_differ)
{
	/* a pod in a later line still is one, and its environment names no job */
	expect_container("9:memory:/docker/" OTHER_ID "\n0::/kubepods/pod" UID_DASHES "/" ID "\n",
			 UID_DASHES, ID);
	expect_container("9:memory:/docker/" ID "\n0::/docker/" OTHER_ID "\n", "", ID);
	expect_container("9:memory:/kubepods/pod" UID_DASHES "/" ID "\n0::/docker/" OTHER_ID "\n",
			 UID_DASHES, ID);
}

TEST(cgroup_slurm_with_containers)
{
	/* made by the job, below its own step */
	expect_cgroup("0::/system.slice/slurmstepd.scope/job_9/step_0/user/task_0/docker-" ID
		      ".scope\n",
		      "9", "0");
	/* a version 1 node whose runtime takes one controller elsewhere */
	expect_cgroup("5:memory:/slurm/uid_7/job_9/step_0/task_0\n4:devices:/docker/" ID "\n", "9",
		      "0");
}

UNIT_MAIN()
