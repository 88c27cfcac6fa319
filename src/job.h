/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which job a process belongs to, told from the text of two files of /proc.
 *
 * Pure: no I/O, no allocation, no state. The text comes from whoever could read it and is not
 * trusted: it may be cut, hold NULs or be written by the job to mislead.
 *
 * /proc/PID/cgroup is made by root (slurmstepd, a container runtime) and names the job or the pod
 * reliably. /proc/PID/environ is the user's word, as it was at exec: it can claim another's job, so
 * it only fills what the cgroup does not say. What a pod is called is in neither: see job_names.h.
 */
#ifndef NCCL_BPFTRACE_JOB_H
#define NCCL_BPFTRACE_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOB_ID_SIZE 128 /* a label's value has no more room: PROM_VALUE_MAX */

/* What job_id and step rest on. */
enum job_source {
	JOB_SOURCE_NONE = 0,
	JOB_SOURCE_CGROUP,
	JOB_SOURCE_ENVIRON,
};

/*
 * Plain data with no pointer and no hidden padding, so that it can cross a pipe from the process
 * that read the files. Every text is NUL-terminated; "" means not known.
 */
struct job_identity {
	/*
	 * Slurm's: decimal, 32 bits; array tasks have one of their own. Else "namespace/pod", or
	 * "namespace/uid" where that is too long. Never both: Slurm's holds no slash.
	 */
	char job_id[JOB_ID_SIZE];
	char step[32];	     /* "0", "0+1" (component of a heterogeneous job), "batch", "extern" */
	char cluster[64];    /* SLURM_CLUSTER_NAME: letters, digits, '_' and '-' only */
	char local_rank[12]; /* the launcher's word, decimal */
	char rank[12];	     /* the launcher's word; a communicator's own rank may differ */
	char namespace[64], pod[256]; /* Kubernetes' */
	char container[64];    /* its name; the first 12 digits of its id while it has none */
	char pod_uid[40];      /* 8-4-4-4-12 hex digits; 32 of a static pod */
	char container_id[68]; /* 64 hex digits */
	uint32_t source;       /* enum job_source */
};

_Static_assert(sizeof(struct job_identity) == 744, "no hidden padding");

/*
 * Finds the Slurm job and step, or the container and its pod, in the content of /proc/PID/cgroup,
 * version 1, 2 or both at once. Paths are read segment by segment (".../job_<id>/step_<step>...",
 * ".../kubepods-pod<uid>.slice/cri-containerd-<id>.scope"), because the prefix depends on versions,
 * on configuration and on the cgroup namespace one looks from.
 * Returns 0 and fills *ret (all of it; no names), or -ENOENT when the process is in none of these.
 */
int job__from_cgroup(const char *text, size_t len, struct job_identity *ret);

/* What somebody else calls a pod and its container; "": it does not say. */
struct job_names {
	char namespace[64], pod[256], container[64];
};

/*
 * Adds the names to what job__from_cgroup() made. Those of a pod count only for an identity that
 * has its uid; job_id becomes "namespace/pod" unless it is Slurm's.
 */
void job__name(struct job_identity *job, const struct job_names *names);

/* job_id where it is Slurm's, else "". Lives as long as job. */
const char *job__slurm_id(const struct job_identity *job);

/*
 * Reads the NUL-separated content of /proc/PID/environ. A value that is too long or is not what
 * Slurm or torchrun would write is passed over as if the variable were not set, and so is a last
 * entry that lacks its NUL (the text was cut there).
 *
 * Ranks: RANK alone lies (some operators set it to the node's index), so it counts only beside
 * LOCAL_RANK or TORCHELASTIC_RUN_ID. Where one of those two is set, or MPI's own, SLURM_PROCID and
 * SLURM_LOCALID belong to the launcher that started the workers and are not used.
 * Returns 0 and fills *ret (all of it), or -ENOENT when nothing of use was found.
 */
int job__from_environ(const char *text, size_t len, struct job_identity *ret);

/*
 * Puts both together; either may be NULL. Job and step come from the cgroup when that has them, or
 * a pod: a pod that claims a Slurm job in its environment does not get it. All else comes from the
 * environ. ret may be one of the two sources.
 * Returns true when the environ claims another job than the cgroup names: worth counting.
 */
bool job__merge(const struct job_identity *cgroup, const struct job_identity *environ_,
		struct job_identity *ret);

/*
 * Whether every field of an identity that came from another process holds what the functions
 * above can produce: terminated, bounded, and of the right characters.
 */
bool job__valid(const struct job_identity *job);

#endif
