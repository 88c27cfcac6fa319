/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What /proc/PID/cgroup names: see job.h. */
#include "job_private.h"

/*
 * "<prefix><id>.scope" where systemd makes the cgroup, "<prefix><id>" or "<id>" where the runtime
 * does (Docker below "docker", podman below "libpod_parent" or, for a Quadlet,
 * "libpod-payload-<id>" below the unit's, the others below the pod's). conmon, which stands beside
 * a container of CRI-O or podman, has another prefix ("crio-conmon-").
 */
static bool segment__container(struct span s, struct job_identity *ret)
{
	static const char *const prefixes[] = {"cri-containerd-", "crio-",   "docker-",
					       "libpod-payload-", "libpod-", "nerdctl-"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (span__skip(&s, prefixes[i]))
			break;
	span__drop_end(&s, ".scope");
	return !span__copy(s, job_field__container_id, ret->container_id,
			   sizeof(ret->container_id));
}

/*
 * "pod<uid>" as the kubelet's driver "cgroupfs" has it; "kubepods-burstable-pod<uid>.slice", with
 * "_" for "-" in the uid, as its driver "systemd" has it ("-" parts the levels of slices).
 */
static bool segment__pod(struct span s, struct job_identity *ret)
{
	bool is_slice = span__drop_end(&s, ".slice");
	struct span level;
	char uid[40];

	while (is_slice && span__next(&s, '-', &level))
		if (!s.p)
			s = level, is_slice = false;
	if (!span__skip(&s, "pod") || s.len >= sizeof(uid))
		return false;
	for (size_t i = 0; i < s.len; i++)
		uid[i] = s.p[i] == '_' ? '-' : s.p[i];
	return !span__copy((struct span){uid, s.len}, job_field__pod_uid, ret->pod_uid,
			   sizeof(ret->pod_uid));
}

/*
 * "<slice>:<runtime>:<id>" is how systemd's driver names a cgroup to the runtime. A runtime that is
 * not told that systemd makes them takes it for the name itself.
 */
static bool segment__unsplit(struct span s, struct job_identity *ret)
{
	struct job_identity found = {};
	struct span slice, runtime;

	if (!span__next(&s, ':', &slice) || !span__next(&s, ':', &runtime) || !s.p ||
	    !segment__container(s, &found))
		return false;
	segment__pod(slice, &found);
	*ret = found;
	return true;
}

/*
 * "job_<id>", then "step_<step>" right below it; *job is what stood before, or empty. Spelt as no
 * Slurm that we know does, they name no job, but what lies below is the job's all the same.
 */
static bool segment__slurm(struct span s, struct span *job, struct job_identity *ret)
{
	struct span above = *job, step = s;

	*job = (struct span){NULL, 0};
	if (above.p && span__skip(&step, "step_")) {
		if (job_field__slurm_id(above) &&
		    !span__copy(step, job_field__step, ret->step, sizeof(ret->step)))
			span__copy(above, job_field__slurm_id, ret->job_id, sizeof(ret->job_id));
		return true;
	}
	if (span__skip(&s, "job_"))
		*job = s;
	return false;
}

/*
 * Below the slice of a user, and below a container that is a machine of its own (LXC, nspawn), the
 * directories are a tenant's to name, so that nothing there proves anything. libpam-cgfs gives a
 * session's to its user, too; on version 1 those stand below "user".
 */
static bool segment__is_tenants(struct span s)
{
	static const char *const names[][2] = {
		/* how it begins and ends; no end: that is all of it */
		{"user", NULL},		{"user.slice", NULL},
		{"user-", ".slice"},	{"user@", ".service"},
		{"lxc", NULL},		{"lxc.payload", ""},
		{"machine-", ".scope"}, {"systemd-nspawn@", ".service"},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct span rest = s;

		if (span__skip(&rest, names[i][0]) &&
		    (names[i][1] ? span__drop_end(&rest, names[i][1]) : !rest.len))
			return true;
	}
	return false;
}

/*
 * The first step, or container, of a path is the one that slurmstepd or a runtime made; whatever
 * lies below may be the job's own.
 */
static void path__read(struct span path, struct job_identity *ret)
{
	struct span segment, job = {NULL, 0};

	while (span__next(&path, '/', &segment)) {
		if (segment__is_tenants(segment) || segment__slurm(segment, &job, ret) ||
		    segment__container(segment, ret) || segment__unsplit(segment, ret) ||
		    ret->pod_uid[0])
			return;
		segment__pod(segment, ret);
	}
}

/* Version 1 has a path for each controller: the first to name a job counts, or a pod, or a
 * container. */
static void job__add(struct job_identity *job, const struct job_identity *found)
{
	if (!job->job_id[0] && found->job_id[0]) {
		memcpy(job->job_id, found->job_id, sizeof(job->job_id));
		memcpy(job->step, found->step, sizeof(job->step));
		job->source = JOB_SOURCE_CGROUP;
	}
	if (job->pod_uid[0] || (job->container_id[0] && !found->pod_uid[0]))
		return;
	memcpy(job->container_id, found->container_id, sizeof(job->container_id));
	memcpy(job->pod_uid, found->pod_uid, sizeof(job->pod_uid));
}

int job__from_cgroup(const char *text, size_t len, struct job_identity *ret)
{
	struct span rest = {text, len}, line;
	struct job_identity job = {};

	while (span__next(&rest, '\n', &line)) {
		struct job_identity found = {};
		struct span skipped;

		/* "hierarchy:controllers:path"; neither of the first two holds a colon */
		if (!span__next(&line, ':', &skipped) || !span__next(&line, ':', &skipped) ||
		    !line.p)
			continue;
		path__read(line, &found);
		job__add(&job, &found);
	}
	if (!job.job_id[0] && !job.container_id[0] && !job.pod_uid[0])
		return -ENOENT;
	*ret = job;
	return 0;
}
