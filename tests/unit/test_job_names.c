/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <sys/stat.h>

#include "unit_job.h"

#include "../../src/job.c"
#include "../../src/job_names.c"
#include "../../src/job_names_text.c"

static const struct job_identity in_pod = {.pod_uid = UID_DASHES, .container_id = ID};
static const struct job_identity in_static_pod = {.pod_uid = STATIC_UID, .container_id = ID};
static const struct job_identity in_container = {.container_id = ID};

static void expect(const struct job_names *names, const char *namespace, const char *pod,
		   const char *container)
{
	CHECK_STR(names->namespace, namespace);
	CHECK_STR(names->pod, pod);
	CHECK_STR(names->container, container);
}

TEST(folder)
{
	struct job_names names;

	CHECK(job_names__from_folder("research_llm-worker-3_" UID_DASHES, &in_pod, &names));
	expect(&names, "research", "llm-worker-3", "");
	CHECK(job_names__from_folder("kube-system_etcd-n1.example_" STATIC_UID, &in_static_pod,
				     &names));
	expect(&names, "kube-system", "etcd-n1.example", "");
}

TEST(folder_of_another)
{
	static const char *const others[] = {
		"research_llm_" STATIC_UID,
		"research_llm_x_" UID_DASHES,
		"research_" UID_DASHES,
		"_llm_" UID_DASHES,
		"research__" UID_DASHES,
		"Research_llm_" UID_DASHES,
		"research_l\"m_" UID_DASHES,
		"research_llm_" UID_DASHES "_",
		"research_llm_" UID_DASHES ".log",
		UID_DASHES,
		"",
		"_",
		"__",
	};
	struct job_names names = {.pod = "untouched"};

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		CHECK(!job_names__from_folder(others[i], &in_pod, &names));
	CHECK(!job_names__from_folder("research_llm_", &in_container, &names));
	CHECK_STR(names.pod, "untouched");
}

TEST(folder_with_a_name_too_long)
{
	char name[400], pod[300];
	struct job_names names;

	memset(pod, 'p', sizeof(pod));
	snprintf(name, sizeof(name), "research_%.255s_" UID_DASHES, pod);
	CHECK(job_names__from_folder(name, &in_pod, &names));
	snprintf(name, sizeof(name), "research_%.256s_" UID_DASHES, pod);
	CHECK(!job_names__from_folder(name, &in_pod, &names));
}

TEST(log_link)
{
	struct job_names names;

	CHECK(job_names__from_log("llm-worker-3_research_trainer-" ID ".log", &in_pod, &names));
	expect(&names, "research", "llm-worker-3", "trainer");
	CHECK(!job_names__from_log("llm_research_trainer-" OTHER_ID ".log", &in_pod, &names));
	CHECK(!job_names__from_log("llm_research_trainer-" ID, &in_pod, &names));
	CHECK(!job_names__from_log("llm_research-" ID ".log", &in_pod, &names));
	CHECK(!job_names__from_log("llm_research_-" ID ".log", &in_pod, &names));
	CHECK(!job_names__from_log("llm_research_a_b\n-" ID ".log", &in_pod, &names));
	CHECK(!job_names__from_log(".log", &in_pod, &names));
	CHECK(!job_names__from_log("llm_research_trainer-.log",
				   &(struct job_identity){.pod_uid = UID_DASHES}, &names));
}

/* What the runtimes write, cut to what is of interest. */
#define CONTAINERD_JSON(uid)                                                                       \
	"{\"ociVersion\":\"1.1.0\",\"process\":{\"user\":{\"uid\":0},\"args\":[\"python\","        \
	"\"train.py\"],\"env\":[\"SLURM_JOB_ID=7\",\"POD_NAME=another\"]},\"annotations\":{"       \
	"\"io.kubernetes.cri.container-name\":\"trainer\","                                        \
	"\"io.kubernetes.cri.container-type\":\"container\","                                      \
	"\"io.kubernetes.cri.image-name\":\"registry.example/llm:1\","                             \
	"\"io.kubernetes.cri.sandbox-id\":\"" OTHER_ID "\","                                       \
	"\"io.kubernetes.cri.sandbox-name\":\"llm-worker-3\","                                     \
	"\"io.kubernetes.cri.sandbox-namespace\":\"research\","                                    \
	"\"io.kubernetes.cri.sandbox-uid\":\"" uid "\"},\"linux\":{\"cgroupsPath\":\"x\"}}"
#define CRIO_JSON                                                                                  \
	"{\"ociVersion\":\"1.0.2-dev\",\"annotations\":{\"io.container.manager\":\"cri-o\","       \
	"\"io.kubernetes.container.name\":\"trainer\",\"io.kubernetes.cri-o.Name\":"               \
	"\"k8s_trainer_llm_research_" UID_DASHES "_0\",\"io.kubernetes.pod.name\":\"llm\","        \
	"\"io.kubernetes.pod.namespace\":\"research\",\"io.kubernetes.pod.uid\":\"" UID_DASHES     \
	"\"}}"
#define DOCKER_JSON(labels)                                                                        \
	"{\"State\":{\"Running\":true,\"Pid\":4242},\"ID\":\"" ID "\",\"Config\":{\"Hostname\":"   \
	"\"8f0c2d1e9b7a\",\"Env\":[\"A=b\"],\"Labels\":{" labels "}},\"Name\":\"/my_trainer.1\"}"
#define DOCKER_POD                                                                                 \
	"\"io.kubernetes.container.name\":\"trainer\",\"io.kubernetes.pod.name\":\"llm\","         \
	"\"io.kubernetes.pod.namespace\":\"research\",\"io.kubernetes.pod.uid\":\"" UID_DASHES     \
	"\""

/* From a heap copy of just the right size. */
static bool from_file(const char *text, size_t place, const struct job_identity *job,
		      struct job_names *ret)
{
	size_t len = strlen(text);
	char *copy = malloc(len ?: 1);
	bool found;

	memcpy(copy, text, len);
	*ret = (struct job_names){};
	found = job_names__from_file(copy, len, &job_names_places[place], job, ret);
	free(copy);
	return found;
}

enum { PLACE_CONTAINERD = 0, PLACE_CRIO = 3, PLACE_DOCKER = 4 };

TEST(bundles)
{
	struct job_names names;

	CHECK(from_file(CONTAINERD_JSON(UID_DASHES), PLACE_CONTAINERD, &in_pod, &names));
	expect(&names, "research", "llm-worker-3", "trainer");
	CHECK(from_file(CRIO_JSON, PLACE_CRIO, &in_pod, &names));
	expect(&names, "research", "llm", "trainer");
	CHECK(from_file(DOCKER_JSON(DOCKER_POD), PLACE_DOCKER, &in_pod, &names));
	expect(&names, "research", "llm", "trainer");
	CHECK(from_file(DOCKER_JSON(""), PLACE_DOCKER, &in_container, &names));
	expect(&names, "", "", "my_trainer.1");
}

/* Labels are the word of who starts a container: a pod that the cgroup does not name is none. */
TEST(bundle_that_claims_a_pod)
{
	struct job_names names;

	CHECK(from_file(DOCKER_JSON(DOCKER_POD), PLACE_DOCKER, &in_container, &names));
	expect(&names, "", "", "my_trainer.1");
	CHECK(!from_file(DOCKER_JSON(DOCKER_POD), PLACE_DOCKER, &in_static_pod, &names));
	CHECK(!from_file(CONTAINERD_JSON(STATIC_UID), PLACE_CONTAINERD, &in_pod, &names));
	CHECK(!from_file(CONTAINERD_JSON(UID_DASHES), PLACE_CONTAINERD, &in_container, &names));
}

TEST(bundle_that_is_none)
{
	static const char *const texts[] = {
		"",
		"{",
		"[]",
		"7",
		"null",
		"{}",
		"{\"annotations\":7}",
		"{\"annotations\":{\"io.kubernetes.cri.sandbox-uid\":7}}",
		"{\"annotations\":{\"io.kubernetes.cri.sandbox-uid\":\"" UID_DASHES "\"}}",
		"{\"annotations\":{\"io.kubernetes.cri.sandbox-uid\":\"" UID_DASHES "\","
		"\"io.kubernetes.cri.sandbox-name\":\"a\\n\","
		"\"io.kubernetes.cri.sandbox-namespace\":\"b\"}}",
	};
	struct job_names names;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		CHECK(!from_file(texts[i], PLACE_CONTAINERD, &in_pod, &names));
		CHECK(!from_file(texts[i], PLACE_DOCKER, &in_container, &names));
	}
}

static void make_parents(char *path)
{
	for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = 0;
		mkdir(path, 0755);
		*at = '/';
	}
}

/* A file below root; text NULL: a directory. */
static void put(const char *root, const char *name, const char *text)
{
	char path[1024];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	make_parents(path);
	if (!text) {
		CHECK(!mkdir(path, 0755));
		return;
	}
	file = fopen(path, "w");
	fputs(text, file);
	fclose(file);
}

static void remove_root(const char *root)
{
	char command[300];

	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	CHECK(!system(command));
}

static void expect_found(const char *root, const struct job_identity *job, const char *namespace,
			 const char *pod, const char *container)
{
	struct job_names names;

	CHECK_INT(job_names__find(root, job, &names), 0);
	expect(&names, namespace, pod, container);
}

#define FOLDERS "var/log/pods/"
#define LOGS	"var/log/containers/"
#define BUNDLE	"run/containerd/io.containerd.runtime.v2.task/k8s.io/" ID "/config.json"

TEST(host)
{
	char root[] = "/tmp/test_job_names.XXXXXX";

	CHECK(mkdtemp(root));
	expect_found(root, &in_pod, "", "", "");
	put(root, FOLDERS "kube-system_dns_" STATIC_UID, NULL);
	put(root, LOGS "dns_kube-system_dns-" OTHER_ID ".log", "");
	expect_found(root, &in_pod, "", "", "");
	put(root, BUNDLE, CONTAINERD_JSON(UID_DASHES));
	expect_found(root, &in_pod, "research", "llm-worker-3", "trainer");
	/* the kubelet's word before the runtime's */
	put(root, FOLDERS "research_llm_" UID_DASHES, NULL);
	expect_found(root, &in_pod, "research", "llm", "trainer");
	put(root, LOGS "llm_research_learner-" ID ".log", "");
	expect_found(root, &in_pod, "research", "llm", "learner");
	expect_found(root, &in_static_pod, "kube-system", "dns", "");
	expect_found(root, &in_container, "", "", "");
	remove_root(root);
}

TEST(host_with_docker)
{
	char root[] = "/tmp/test_job_names.XXXXXX";

	CHECK(mkdtemp(root));
	put(root, "var/lib/docker/containers/" ID "/config.v2.json", DOCKER_JSON(""));
	expect_found(root, &in_container, "", "", "my_trainer.1");
	expect_found(root, &in_pod, "", "", "");
	remove_root(root);
}

/* A link is followed below the host's root; what is no file, or a huge one, is not read. */
TEST(host_with_links)
{
	char root[] = "/tmp/test_job_names.XXXXXX", path[1100];
	struct job_names names;

	CHECK(mkdtemp(root));
	put(root, "data/pods/research_llm_" UID_DASHES, NULL);
	put(root, "var/log/x", "");
	snprintf(path, sizeof(path), "%s/var/log/pods", root);
	CHECK(!symlink("/data/pods", path));
	expect_found(root, &in_pod, "research", "llm", "");
	put(root, BUNDLE, "");
	snprintf(path, sizeof(path), "%s/" BUNDLE, root);
	CHECK(!unlink(path) && !mkfifo(path, 0644));
	expect_found(root, &in_pod, "research", "llm", "");
	CHECK(!unlink(path));
	put(root, BUNDLE, CONTAINERD_JSON(UID_DASHES));
	CHECK(!truncate(path, JOB_NAMES_MAX_FILE + 1));
	expect_found(root, &in_pod, "research", "llm", "");
	CHECK_INT(job_names__find(path, &in_pod, &names), -ENOTDIR);
	expect(&names, "", "", "");
	remove_root(root);
	CHECK_INT(job_names__find(root, &in_pod, &names), -ENOENT);
}

UNIT_MAIN()
