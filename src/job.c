/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "job_private.h"

#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

/*
 * Slurm keeps a job id in 32 bits and prints it with %u both in the cgroup's name and in
 * SLURM_JOB_ID. The forms "123_4" (array) and "123+1" (heterogeneous job) are only how its tools
 * show ids to people; such a job has a plain id as well, and that is what stands here.
 */
bool job_field__slurm_id(struct span s)
{
	return span__is_u32(s) && s.p[0] != '0';
}

static bool span__is_word(struct span s)
{
	for (size_t i = 0; i < s.len; i++)
		if (s.p[i] < 'a' || s.p[i] > 'z')
			return false;
	return s.len > 0;
}

/* A number, number+component, or one of Slurm's words: batch, extern, interactive. */
bool job_field__step(struct span s)
{
	struct span number;

	if (span__is_word(s))
		return true;
	if (!span__next(&s, '+', &number) || !span__is_u32(number))
		return false;
	return !s.p || span__is_u32(s);
}

/*
 * Narrower than what Slurm would take: Grafana escapes regular-expression characters inside "="
 * matchers, so that a dashboard finds nothing for a cluster whose name has one.
 */
static bool valid_cluster(struct span s)
{
	return span__is_made_of(s, UPPER "_-");
}

static bool valid_rank(struct span s)
{
	return span__is_u32(s);
}

/* As Kubernetes has them: a DNS label, and a DNS subdomain. */
bool job_field__namespace(struct span s)
{
	return span__is_made_of(s, "-");
}

bool job_field__pod(struct span s)
{
	return span__is_made_of(s, "-.");
}

/* Docker and podman take more than Kubernetes. */
bool job_field__container(struct span s)
{
	return span__is_made_of(s, UPPER "_-.");
}

/* A static pod's is a hash that the kubelet writes without dashes. */
bool job_field__pod_uid(struct span s)
{
	static const size_t groups[] = {8, 4, 4, 4, 12};
	struct span group;
	size_t i = 0;

	if (span__is_hex(s, 32))
		return true;
	while (i < 5 && span__next(&s, '-', &group) && span__is_hex(group, groups[i]))
		i++;
	return i == 5 && !s.p;
}

bool job_field__container_id(struct span s)
{
	return span__is_hex(s, 64);
}

/* The first of several entries of one name, as getenv() would have it in the process. */
static bool environ__get(struct span text, const char *name, struct span *ret_value)
{
	struct span entry;

	while (span__next(&text, '\0', &entry)) {
		/* no NUL followed: the reader's buffer ended here, and perhaps within the value */
		if (!text.p)
			return false;
		if (!span__skip(&entry, name) || !span__skip(&entry, "="))
			continue;
		*ret_value = entry;
		return true;
	}
	return false;
}

static void environ__field(struct span text, const char *name, span_valid_fn *valid, char *ret,
			   size_t size)
{
	struct span value;

	/* a value that is refused counts as not set: see job.h */
	if (!ret[0] && environ__get(text, name, &value))
		span__copy(value, valid, ret, size);
}

static void environ__slurm(struct span text, struct job_identity *job)
{
	/* the second spelling is Slurm's older one, still exported */
	environ__field(text, "SLURM_JOB_ID", job_field__slurm_id, job->job_id, sizeof(job->job_id));
	environ__field(text, "SLURM_JOBID", job_field__slurm_id, job->job_id, sizeof(job->job_id));
	environ__field(text, "SLURM_CLUSTER_NAME", valid_cluster, job->cluster,
		       sizeof(job->cluster));
	if (!job->job_id[0])
		return; /* a step of no job */
	environ__field(text, "SLURM_STEP_ID", job_field__step, job->step, sizeof(job->step));
	environ__field(text, "SLURM_STEPID", job_field__step, job->step, sizeof(job->step));
	job->source = JOB_SOURCE_ENVIRON;
}

/*
 * Who starts workers says which they are; where one starts another, the inner one's word counts,
 * and Slurm's is then about the launcher that it started. MPI_LOCALRANKID is Hydra's (MPICH, Intel
 * MPI).
 */
static const struct launcher {
	const char *local_rank, *rank;
} launchers[] = {
	{"LOCAL_RANK", "RANK"},
	{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK"},
	{"MPI_LOCALRANKID", "PMI_RANK"},
	{"MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_RANK"},
	{"SLURM_LOCALID", "SLURM_PROCID"}, /* the last: where there is none of the others */
};

static void environ__ranks(struct span text, struct job_identity *job)
{
	const struct launcher *launcher = launchers;
	const struct launcher *last = &launchers[sizeof(launchers) / sizeof(launchers[0]) - 1];
	struct span value;

	if (!environ__get(text, "TORCHELASTIC_RUN_ID", &value))
		while (launcher < last && !environ__get(text, launcher->local_rank, &value))
			launcher++;
	environ__field(text, launcher->local_rank, valid_rank, job->local_rank,
		       sizeof(job->local_rank));
	environ__field(text, launcher->rank, valid_rank, job->rank, sizeof(job->rank));
}

int job__from_environ(const char *text, size_t len, struct job_identity *ret)
{
	struct job_identity found = {.source = JOB_SOURCE_NONE};
	struct span all = {text, len};

	environ__slurm(all, &found);
	environ__ranks(all, &found);
	if (!found.job_id[0] && !found.cluster[0] && !found.local_rank[0] && !found.rank[0])
		return -ENOENT;
	*ret = found;
	return 0;
}

/* A node has one pod of a uid, whatever its name; a label's value must not be cut. */
static void pod__job_id(const struct job_identity *job, char ret[JOB_ID_SIZE])
{
	int n = snprintf(ret, JOB_ID_SIZE, "%s/%s", job->namespace, job->pod);

	if (n >= JOB_ID_SIZE)
		snprintf(ret, JOB_ID_SIZE, "%s/%s", job->namespace, job->pod_uid);
}

void job__name(struct job_identity *job, const struct job_names *names)
{
	memcpy(job->container, names->container, sizeof(job->container));
	if (!job->pod_uid[0] || !names->namespace[0] || !names->pod[0])
		return;
	memcpy(job->namespace, names->namespace, sizeof(job->namespace));
	memcpy(job->pod, names->pod, sizeof(job->pod));
	if (job->job_id[0])
		return;
	pod__job_id(job, job->job_id);
	job->source = JOB_SOURCE_CGROUP;
}

const char *job__slurm_id(const struct job_identity *job)
{
	return strchr(job->job_id, '/') ? "" : job->job_id;
}

static struct job_identity merge(const struct job_identity *cgroup,
				 const struct job_identity *environ_)
{
	struct job_identity merged = cgroup ? *cgroup : (struct job_identity){};

	if (merged.container_id[0] && !merged.container[0])
		memcpy(merged.container, merged.container_id, 12);
	if (!environ_)
		return merged;
	memcpy(merged.cluster, environ_->cluster, sizeof(merged.cluster));
	memcpy(merged.local_rank, environ_->local_rank, sizeof(merged.local_rank));
	memcpy(merged.rank, environ_->rank, sizeof(merged.rank));
	if (merged.job_id[0] || merged.pod_uid[0])
		return merged;
	memcpy(merged.job_id, environ_->job_id, sizeof(merged.job_id));
	memcpy(merged.step, environ_->step, sizeof(merged.step));
	merged.source = environ_->source;
	return merged;
}

bool job__merge(const struct job_identity *cgroup, const struct job_identity *environ_,
		struct job_identity *ret)
{
	struct job_identity merged = merge(cgroup, environ_);
	bool differ = environ_ && environ_->job_id[0] && strcmp(environ_->job_id, merged.job_id);

	*ret = merged;
	return differ;
}

static bool field__valid(const char *text, size_t size, span_valid_fn *valid)
{
	const char *end = memchr(text, '\0', size);

	return end && (end == text || valid((struct span){text, (size_t)(end - text)}));
}

#define FIELD_VALID(job, field, valid) field__valid((job)->field, sizeof((job)->field), valid)

/* Of an identity whose other texts are good. */
static bool job_id__valid(const struct job_identity *job)
{
	char pods[JOB_ID_SIZE];

	if (!job->namespace[0] != !job->pod[0] || (job->pod[0] && !job->pod_uid[0]))
		return false;
	if (FIELD_VALID(job, job_id, job_field__slurm_id))
		return true;
	pod__job_id(job, pods);
	return job->pod[0] && !strncmp(job->job_id, pods, sizeof(pods));
}

bool job__valid(const struct job_identity *job)
{
	return FIELD_VALID(job, step, job_field__step) &&
	       FIELD_VALID(job, cluster, valid_cluster) &&
	       FIELD_VALID(job, local_rank, valid_rank) && FIELD_VALID(job, rank, valid_rank) &&
	       FIELD_VALID(job, namespace, job_field__namespace) &&
	       FIELD_VALID(job, pod, job_field__pod) &&
	       FIELD_VALID(job, container, job_field__container) &&
	       FIELD_VALID(job, pod_uid, job_field__pod_uid) &&
	       FIELD_VALID(job, container_id, job_field__container_id) && job_id__valid(job) &&
	       job->source <= JOB_SOURCE_ENVIRON &&
	       (job->source == JOB_SOURCE_NONE) == (job->job_id[0] == '\0');
}
