/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "job.h"

#include <errno.h>
#include <string.h>

/* A piece of somebody else's buffer; not terminated. */
struct span {
	const char *p;
	size_t len;
};

/* Cuts the text before the first sep off *rest; the last piece ends with the text. */
static bool span__next(struct span *rest, char sep, struct span *ret_piece)
{
	const char *end;

	if (!rest->p)
		return false;
	*ret_piece = *rest;
	end = rest->len ? memchr(rest->p, sep, rest->len) : NULL;
	if (!end) {
		*rest = (struct span){NULL, 0};
		return true;
	}
	ret_piece->len = end - rest->p;
	rest->len -= ret_piece->len + 1;
	rest->p = end + 1;
	return true;
}

static bool span__skip(struct span *s, const char *prefix)
{
	size_t len = strlen(prefix);

	if (s->len < len || memcmp(s->p, prefix, len))
		return false;
	s->p += len;
	s->len -= len;
	return true;
}

/* Decimal as printf("%u") writes it: two spellings of one number would be two label values. */
static bool span__is_u32(struct span s)
{
	uint64_t value = 0;

	if (!s.len || s.len > 10 || (s.len > 1 && s.p[0] == '0'))
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(s.p[i] - '0');
	}
	return value <= UINT32_MAX;
}

/*
 * Slurm keeps a job id in 32 bits and prints it with %u both in the cgroup's name and in
 * SLURM_JOB_ID. The forms "123_4" (array) and "123+1" (heterogeneous job) are only how its tools
 * show ids to people; such a job has a plain id as well, and that is what stands here.
 */
static bool valid_job_id(struct span s)
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
static bool valid_step(struct span s)
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
	for (size_t i = 0; i < s.len; i++) {
		char c = s.p[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
		    c != '_' && c != '-')
			return false;
	}
	return s.len > 0;
}

static bool valid_rank(struct span s)
{
	return span__is_u32(s);
}

typedef bool (*valid_fn)(struct span s);

/* Copies whole or not at all: half an id is another job's id. */
static int field__set(char *ret, size_t size, struct span value, valid_fn valid)
{
	if (value.len >= size)
		return -ENAMETOOLONG;
	if (!valid(value))
		return -EINVAL;
	memcpy(ret, value.p, value.len);
	ret[value.len] = '\0';
	return 0;
}

/*
 * The first job_/step_ pair of a path is the one slurmstepd made; whatever lies below may be the
 * job's own. Below "user@UID.service" all directories are that user's to name, so that nothing
 * there proves anything.
 */
static int path__slurm(struct span path, struct job_identity *ret)
{
	struct span segment, job = {NULL, 0};

	while (span__next(&path, '/', &segment)) {
		struct span step = segment;

		if (span__skip(&step, "user@"))
			return -ENOENT;
		if (job.p && span__skip(&step, "step_") &&
		    !field__set(ret->step, sizeof(ret->step), step, valid_step))
			return field__set(ret->job_id, sizeof(ret->job_id), job, valid_job_id);
		job.p = NULL;
		if (span__skip(&segment, "job_") && valid_job_id(segment))
			job = segment;
	}
	return -ENOENT;
}

int job__from_cgroup(const char *text, size_t len, struct job_identity *ret)
{
	struct span rest = {text, len}, line;

	while (span__next(&rest, '\n', &line)) {
		struct job_identity found = {.source = JOB_SOURCE_CGROUP};
		struct span skipped;

		/* "hierarchy:controllers:path"; neither of the first two holds a colon */
		if (!span__next(&line, ':', &skipped) || !span__next(&line, ':', &skipped) ||
		    !line.p)
			continue;
		if (!path__slurm(line, &found)) {
			*ret = found;
			return 0;
		}
	}
	return -ENOENT;
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

static void environ__field(struct span text, const char *name, valid_fn valid, char *ret,
			   size_t size)
{
	struct span value;

	/* a value that is refused counts as not set: see job.h */
	if (!ret[0] && environ__get(text, name, &value))
		field__set(ret, size, value, valid);
}

static void environ__slurm(struct span text, struct job_identity *job)
{
	/* the second spelling is Slurm's older one, still exported */
	environ__field(text, "SLURM_JOB_ID", valid_job_id, job->job_id, sizeof(job->job_id));
	environ__field(text, "SLURM_JOBID", valid_job_id, job->job_id, sizeof(job->job_id));
	environ__field(text, "SLURM_CLUSTER_NAME", valid_cluster, job->cluster,
		       sizeof(job->cluster));
	if (!job->job_id[0])
		return; /* a step of no job */
	environ__field(text, "SLURM_STEP_ID", valid_step, job->step, sizeof(job->step));
	environ__field(text, "SLURM_STEPID", valid_step, job->step, sizeof(job->step));
	job->source = JOB_SOURCE_ENVIRON;
}

static void environ__ranks(struct span text, struct job_identity *job)
{
	struct span value;
	bool torch = environ__get(text, "LOCAL_RANK", &value) ||
		     environ__get(text, "TORCHELASTIC_RUN_ID", &value);

	environ__field(text, torch ? "LOCAL_RANK" : "SLURM_LOCALID", valid_rank, job->local_rank,
		       sizeof(job->local_rank));
	environ__field(text, torch ? "RANK" : "SLURM_PROCID", valid_rank, job->rank,
		       sizeof(job->rank));
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

bool job__merge(const struct job_identity *cgroup, const struct job_identity *environ_,
		struct job_identity *ret)
{
	struct job_identity merged = {.source = JOB_SOURCE_NONE};
	bool differ = false;

	if (environ_)
		merged = *environ_;
	if (cgroup && cgroup->job_id[0]) {
		differ = merged.job_id[0] && strcmp(merged.job_id, cgroup->job_id);
		memcpy(merged.job_id, cgroup->job_id, sizeof(merged.job_id));
		memcpy(merged.step, cgroup->step, sizeof(merged.step));
		merged.source = JOB_SOURCE_CGROUP;
	}
	*ret = merged;
	return differ;
}

static bool field__valid(const char *text, size_t size, valid_fn valid)
{
	const char *end = memchr(text, '\0', size);

	return end && (end == text || valid((struct span){text, (size_t)(end - text)}));
}

bool job__valid(const struct job_identity *job)
{
	return field__valid(job->job_id, sizeof(job->job_id), valid_job_id) &&
	       field__valid(job->step, sizeof(job->step), valid_step) &&
	       field__valid(job->cluster, sizeof(job->cluster), valid_cluster) &&
	       field__valid(job->local_rank, sizeof(job->local_rank), valid_rank) &&
	       field__valid(job->rank, sizeof(job->rank), valid_rank) &&
	       job->source <= JOB_SOURCE_ENVIRON &&
	       (job->source == JOB_SOURCE_NONE) == (job->job_id[0] == '\0');
}
