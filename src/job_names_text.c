/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The pure part of job_names.h. */
#include <jansson.h>

#include "job_names.h"
#include "job_private.h"

#define COPY(s, valid, field) span__copy(s, valid, field, sizeof(field))

static struct span span__of(const char *text)
{
	return (struct span){text, strlen(text)};
}

/* Neither a namespace nor a pod's name can hold "_". */
bool job_names__from_folder(const char *name, const struct job_identity *job, struct job_names *ret)
{
	struct span rest = span__of(name), namespace, pod;
	struct job_names names = {};

	if (!job->pod_uid[0] || !span__next(&rest, '_', &namespace) ||
	    !span__next(&rest, '_', &pod) || rest.len != strlen(job->pod_uid) ||
	    memcmp(rest.p, job->pod_uid, rest.len) ||
	    COPY(namespace, job_field__namespace, names.namespace) ||
	    COPY(pod, job_field__pod, names.pod))
		return false;
	*ret = names;
	return true;
}

bool job_names__from_log(const char *name, const struct job_identity *job, struct job_names *ret)
{
	struct span rest = span__of(name), namespace, pod;
	struct job_names names = {};

	if (!job->container_id[0] || !span__drop_end(&rest, ".log") ||
	    !span__drop_end(&rest, job->container_id) || !span__drop_end(&rest, "-") ||
	    !span__next(&rest, '_', &pod) || !span__next(&rest, '_', &namespace) || !rest.p ||
	    COPY(namespace, job_field__namespace, names.namespace) ||
	    COPY(pod, job_field__pod, names.pod) ||
	    COPY(rest, job_field__container, names.container))
		return false;
	*ret = names;
	return true;
}

#define CONTAINERD(state)                                                                          \
	{                                                                                          \
		state "/io.containerd.runtime.v2.task/k8s.io/%s/config.json", {"annotations"},     \
			"io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name",   \
			"io.kubernetes.cri.sandbox-uid", "io.kubernetes.cri.container-name", NULL  \
	}

/*
 * Annotations of containerd (pkg/cri/annotations), of CRI-O (pkg/annotations), and of the kubelet
 * (kubelet/types/labels.go), whose labels cri-dockerd hands on; the second and third directory are
 * those of k3s and RKE2, and of k0s.
 */
const struct job_names_place job_names_places[] = {
	CONTAINERD("run/containerd"),
	CONTAINERD("run/k3s/containerd"),
	CONTAINERD("run/k0s/containerd"),
	{"run/containers/storage/overlay-containers/%s/userdata/config.json",
	 {"annotations"},
	 "io.kubernetes.pod.namespace",
	 "io.kubernetes.pod.name",
	 "io.kubernetes.pod.uid",
	 "io.kubernetes.container.name",
	 NULL},
	{"var/lib/docker/containers/%s/config.v2.json",
	 {"Config", "Labels"},
	 "io.kubernetes.pod.namespace",
	 "io.kubernetes.pod.name",
	 "io.kubernetes.pod.uid",
	 "io.kubernetes.container.name",
	 "Name"},
	{},
};

/* Half a name would be another's: one that does not fit, or is none, is not known. */
static bool take(const json_t *object, const char *key, span_valid_fn *valid, char *ret,
		 size_t size)
{
	const char *text = key ? json_string_value(json_object_get(object, key)) : NULL;

	return text && !span__copy(span__of(text), valid, ret, size);
}

#define TAKE(object, key, valid, field) take(object, key, valid, field, sizeof(field))

static bool names__of_pod(const json_t *object, const struct job_names_place *place,
			  const struct job_identity *job, struct job_names *ret)
{
	const char *uid = json_string_value(json_object_get(object, place->pod_uid));

	if (!uid || strcmp(uid, job->pod_uid) ||
	    !TAKE(object, place->namespace, job_field__namespace, ret->namespace) ||
	    !TAKE(object, place->pod, job_field__pod, ret->pod))
		return false;
	TAKE(object, place->container, job_field__container, ret->container);
	return true;
}

/* Docker writes "/name". */
static bool names__of_container(const json_t *root, const struct job_names_place *place,
				struct job_names *ret)
{
	const char *text = place->name ? json_string_value(json_object_get(root, place->name)) : "";
	struct span name = span__of(text ?: "");

	span__skip(&name, "/");
	return !COPY(name, job_field__container, ret->container);
}

bool job_names__from_file(const char *text, size_t len, const struct job_names_place *place,
			  const struct job_identity *job, struct job_names *ret)
{
	json_t *root = json_loadb(text, len, 0, NULL);
	struct job_names names = {};
	const json_t *object = root;
	bool found;

	for (size_t i = 0; i < 3 && place->members[i]; i++)
		object = json_object_get(object, place->members[i]);
	if (job->pod_uid[0])
		found = names__of_pod(object, place, job, &names);
	else
		found = names__of_container(root, place, &names);
	json_decref(root);
	if (found)
		*ret = names;
	return found;
}
