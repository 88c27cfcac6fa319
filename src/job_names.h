/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a pod and a container are called, from what the kubelet and the container runtime leave on
 * the host: folders of logs, and the files that a runtime starts a container from. Root makes all
 * of it; parts of the latter (the command, the environment, labels) are the tenant's words.
 */
#ifndef JOB_NAMES_H
#define JOB_NAMES_H

#include "job.h"

#define JOB_NAMES_MAX_FILE    (1U << 20) /* a larger file is passed over */
#define JOB_NAMES_MAX_ENTRIES 16384	 /* of a directory; those past it are not looked at */

#define JOB_NAMES_ROOT "/proc/1/root" /* also where we see another root than the host's */

/*
 * Looks the container and the pod of an identity up below root, a directory that is the host's /
 * or is made like it; links there lead nowhere else. NULL: JOB_NAMES_ROOT, or where that is not
 * ours to open (a security module, say) our own. In a helper: a disk may not answer.
 * ret: all of it; what is not found is "". 0, or -errno when root itself cannot be opened.
 */
int job_names__find(const char *root, const struct job_identity *job, struct job_names *ret);

/* 0: the kubelet's folder of pods' logs is there, below root as above; or -errno. */
int job_names__look_for_pods(const char *root);

/*
 * The pure part. job is whom the names are wanted for; true when the text names it and is what its
 * maker writes, and then *ret is filled with what it says.
 */

/* "<namespace>_<pod>_<uid>", of /var/log/pods: the kubelet's BuildPodLogsDirectory(). */
bool job_names__from_folder(const char *name, const struct job_identity *job,
			    struct job_names *ret);

/*
 * "<pod>_<namespace>_<container>-<id>.log", of /var/log/containers: the kubelet's logSymlink(). It
 * cuts a name that is longer than a file's may be: such is not recognised.
 */
bool job_names__from_log(const char *name, const struct job_identity *job, struct job_names *ret);

/* Where a runtime keeps what it knows of a container. */
struct job_names_place {
	const char *path; /* below the root, "%s" for the container's id */
	/* Members that lead to the object in which these names stand, NULL ends them. */
	const char *members[3];
	const char *namespace, *pod, *pod_uid, *container;
	const char *name; /* a member of the file's own object: a container outside Kubernetes */
};

/* In the order in which they are to be tried; path NULL ends them. */
extern const struct job_names_place job_names_places[];

/* A file from a place: JSON. Names of a pod count only beside the uid that the cgroup says. */
bool job_names__from_file(const char *text, size_t len, const struct job_names_place *place,
			  const struct job_identity *job, struct job_names *ret);

#endif
