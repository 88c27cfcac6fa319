/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "inspector_prom.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN "unknown"

/* What makes series distinct; compared as bytes, so it is zeroed first. */
struct bucket_key {
	uint64_t size_floor;
	int32_t n_ranks;
	uint32_t n_nodes;
	uint32_t function; /* enum inspector_function */
	uint32_t is_p2p;
	char comm_name[40];
	char algo_proto[32]; /* "" of a Send or Recv */
	char job_id[64];
	char cluster[64];
};

struct inspector_bucket {
	struct bucket_key key;
	uint64_t count, n_bus;
	double time_us;	    /* summed */
	double bus_log_gbs; /* logarithms, summed: of those that have a bandwidth */
	UT_hash_handle hh;
};

static void buckets__clear(struct inspector_gpu *gpu)
{
	struct inspector_bucket *bucket, *next;

	HASH_ITER(hh, gpu->buckets, bucket, next)
	{
		HASH_DEL(gpu->buckets, bucket);
		free(bucket);
	}
}

static void gpu__free(struct inspector_gpu *gpu)
{
	buckets__clear(gpu);
	free(gpu);
}

void inspector_gpus__free(struct inspector_gpus *gpus)
{
	while (gpus->n)
		gpu__free(gpus->gpus[--gpus->n]);
}

void inspector_gpus__remove(struct inspector_gpus *gpus, struct inspector_gpu *gpu)
{
	for (unsigned int i = 0; i < gpus->n; i++) {
		if (gpus->gpus[i] != gpu)
			continue;
		gpus->gpus[i] = gpus->gpus[--gpus->n];
		gpu__free(gpu);
		return;
	}
}

/* A process's word becomes part of a file's name here: nothing but hex digits and dashes passes. */
static bool uuid__bare(const char *uuid, char ret[40])
{
	static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
	size_t i;

	for (i = 0; form[i]; i++) {
		unsigned char c = tolower((unsigned char)uuid[i]);

		if (form[i] == 'x' ? !isxdigit(c) : c != form[i])
			return false;
		ret[i] = c;
	}
	ret[i] = 0;
	return true;
}

size_t inspector__file_name_length(const char *text)
{
	static const char prefix[] = INSPECTOR_FILE_PREFIX, suffix[] = ".prom";
	size_t before = sizeof(prefix) - 1, after = sizeof(suffix) - 1;
	char bare[40];

	if (strncmp(text, prefix, before) || !uuid__bare(text + before, bare) ||
	    strncmp(text + before + strlen(bare), suffix, after))
		return 0;
	return before + strlen(bare) + after;
}

/* "GPU-..." or "MIG-..." as the driver writes it, or in capitals. */
static bool uuid__strip(const char *uuid, char ret[40])
{
	if (strncmp(uuid, "GPU-", 4) && strncmp(uuid, "MIG-", 4))
		return false;
	return uuid__bare(uuid + 4, ret) && !uuid[4 + strlen(ret)];
}

static struct inspector_gpu *gpus__find_bare(struct inspector_gpus *gpus, const char *bare)
{
	for (unsigned int i = 0; i < gpus->n; i++)
		if (!strcmp(gpus->gpus[i]->uuid, bare))
			return gpus->gpus[i];
	return NULL;
}

struct inspector_gpu *inspector_gpus__find(struct inspector_gpus *gpus, const char *uuid)
{
	char bare[40];

	return uuid__strip(uuid, bare) ? gpus__find_bare(gpus, bare) : NULL;
}

struct inspector_gpu *inspector_gpus__get(struct inspector_gpus *gpus, const char *uuid,
					  const struct gpu *node_gpu)
{
	struct inspector_gpu *gpu;
	char bare[40];

	if (!uuid__strip(uuid, bare))
		return NULL;
	gpu = gpus__find_bare(gpus, bare);
	if (gpu || gpus->n == INSPECTOR_MAX_GPUS)
		return gpu;
	gpu = calloc(1, sizeof(*gpu));
	if (!gpu)
		return NULL;
	memcpy(gpu->uuid, bare, sizeof(bare));
	if (node_gpu)
		snprintf(gpu->label, sizeof(gpu->label), "GPU%u", node_gpu->index);
	else
		snprintf(gpu->label, sizeof(gpu->label), "%.4s%s", uuid, bare);
	gpus->gpus[gpus->n++] = gpu;
	return gpu;
}

/* Texts are cut to the key's fields: they are the owner's, not known to be short. */
static void key__text(char *ret, size_t size, const char *value, const char *otherwise)
{
	snprintf(ret, size, "%s", value && value[0] ? value : otherwise);
}

static struct bucket_key key__of(const struct inspector_operation *op,
				 const struct inspector_owner *owner)
{
	struct bucket_key key;

	memset(&key, 0, sizeof(key));
	key.size_floor = inspector__size_floor(op->message_bytes);
	key.n_ranks = op->comm->n_ranks;
	key.n_nodes = op->comm->n_nodes;
	key.function = op->function;
	key.is_p2p = op->is_p2p;
	key__text(key.comm_name, sizeof(key.comm_name), op->comm->name, UNKNOWN);
	key__text(key.job_id, sizeof(key.job_id), owner->job_id, UNKNOWN);
	key__text(key.cluster, sizeof(key.cluster), owner->cluster, "");
	if (!op->is_p2p)
		inspector__algo_proto(op->operation, key.algo_proto, sizeof(key.algo_proto));
	return key;
}

static struct inspector_bucket *bucket__get(struct inspector_gpu *gpu, const struct bucket_key *key)
{
	struct inspector_bucket *bucket;

	HASH_FIND(hh, gpu->buckets, key, sizeof(*key), bucket);
	if (bucket || HASH_COUNT(gpu->buckets) >= INSPECTOR_MAX_BUCKETS)
		return bucket;
	bucket = calloc(1, sizeof(*bucket));
	if (!bucket)
		return NULL;
	bucket->key = *key;
	HASH_ADD(hh, gpu->buckets, key, sizeof(bucket->key), bucket);
	return bucket;
}

static void gpu__note_process(struct inspector_gpu *gpu, uint32_t tgid)
{
	for (unsigned int i = 0; i < gpu->n_tgids; i++)
		if (gpu->tgids[i] == tgid)
			return;
	if (gpu->n_tgids < INSPECTOR_MAX_PROCESSES)
		gpu->tgids[gpu->n_tgids++] = tgid;
}

bool inspector_gpu__add(struct inspector_gpu *gpu, const struct inspector_operation *op,
			const struct inspector_owner *owner)
{
	struct bucket_key key = key__of(op, owner);
	struct inspector_bucket *bucket = bucket__get(gpu, &key);

	gpu__note_process(gpu, owner->tgid);
	if (!bucket)
		return false;
	bucket->count++;
	bucket->time_us += op->duration_ns / 1e3;
	if (op->bus_gbs > 0) { /* one rank alone has none */
		bucket->n_bus++;
		bucket->bus_log_gbs += log(op->bus_gbs);
	}
	return true;
}

void inspector_gpu__drop(struct inspector_gpu *gpu)
{
	buckets__clear(gpu);
}

bool inspector_gpu__is_idle(const struct inspector_gpu *gpu)
{
	return !gpu->buckets;
}

/* Inspector's order: collectives first; then as its map compares. */
static int bucket__compare(const void *left, const void *right)
{
	const struct bucket_key *a = &(*(struct inspector_bucket *const *)left)->key;
	const struct bucket_key *b = &(*(struct inspector_bucket *const *)right)->key;
	int texts;

	if (a->is_p2p != b->is_p2p)
		return a->is_p2p ? 1 : -1;
	if (a->n_ranks != b->n_ranks)
		return a->n_ranks < b->n_ranks ? -1 : 1;
	if (a->n_nodes != b->n_nodes)
		return a->n_nodes < b->n_nodes ? -1 : 1;
	if (a->function != b->function)
		return a->function < b->function ? -1 : 1;
	if (a->size_floor != b->size_floor)
		return a->size_floor < b->size_floor ? -1 : 1;
	texts = strcmp(a->comm_name, b->comm_name) ?: strcmp(a->algo_proto, b->algo_proto);
	return texts ?: strcmp(a->job_id, b->job_id) ?: strcmp(a->cluster, b->cluster);
}

struct labels {
	char text[4 * PROM_ESCAPED_MAX + 1024];
	size_t len;
};

/* What does not fit cannot be: each value is bounded. */
static void __attribute__((format(printf, 2, 3)))
labels__add(struct labels *labels, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(labels->text + labels->len, sizeof(labels->text) - labels->len, format, args);
	va_end(args);
	if (n > 0)
		labels->len += n;
}

static void labels__fill(struct labels *labels, const struct inspector_gpus *gpus,
			 const struct inspector_gpu *gpu, const struct bucket_key *key)
{
	char escaped[PROM_ESCAPED_MAX], size[32], nodes[16] = UNKNOWN;
	const char *function = inspector_function__name(key->function);
	const char *node = gpus->node && gpus->node[0] ? gpus->node : UNKNOWN;

	labels__add(labels, "version=\"" INSPECTOR_PROM_VERSION "\",slurm_job_id=\"%s\"",
		    prom__escape(key->job_id, escaped));
	labels__add(labels, ",node=\"%s\",gpu=\"%s\"", prom__escape(node, escaped), gpu->label);
	labels__add(labels, ",comm_name=\"%s\"", prom__escape(key->comm_name, escaped));
	if (key->n_nodes)
		snprintf(nodes, sizeof(nodes), "%u", key->n_nodes);
	labels__add(labels, ",n_nodes=\"%s\",nranks=\"%d\",%s=\"%s\",message_size=\"%s\"", nodes,
		    key->n_ranks, key->is_p2p ? "p2p_operation" : "collective", function,
		    inspector__size_text(key->size_floor, size, sizeof(size)));
	if (!key->is_p2p)
		labels__add(labels, ",algo_proto=\"%s\"", key->algo_proto);
	if (gpus->cluster && gpus->cluster[0])
		labels__add(labels, ",cluster=\"%s\"", prom__escape(gpus->cluster, escaped));
	else if (key->cluster[0])
		labels__add(labels, ",cluster=\"%s\"", prom__escape(key->cluster, escaped));
}

static void line__put(struct prom *prom, const char *name, const struct labels *labels,
		      double value)
{
	char number[32];

	snprintf(number, sizeof(number), "%.6g", value);
	prom__add_text(prom, name);
	prom__add_text(prom, "{");
	prom__add_text(prom, labels->text);
	prom__add_text(prom, "} ");
	prom__add_text(prom, number);
	prom__add_text(prom, "\n");
}

/* The bandwidth is a geometric mean, the time an arithmetic one. */
static void bucket__put(struct prom *prom, const struct inspector_gpus *gpus,
			const struct inspector_gpu *gpu, const struct inspector_bucket *bucket)
{
	bool p2p = bucket->key.is_p2p;
	struct labels labels = {.len = 0};

	labels__fill(&labels, gpus, gpu, &bucket->key);
	line__put(prom, p2p ? "nccl_p2p_bus_bandwidth_gbs" : "nccl_bus_bandwidth_gbs", &labels,
		  bucket->n_bus ? exp(bucket->bus_log_gbs / bucket->n_bus) : 0);
	line__put(prom,
		  p2p ? "nccl_p2p_exec_time_microseconds"
		      : "nccl_collective_exec_time_microseconds",
		  &labels, bucket->time_us / bucket->count);
}

int inspector_gpu__text(const struct inspector_gpus *gpus, struct inspector_gpu *gpu,
			struct prom *prom)
{
	struct inspector_bucket *sorted[INSPECTOR_MAX_BUCKETS], *bucket;
	const char *text;
	size_t n = 0, len;

	for (bucket = gpu->buckets; bucket; bucket = bucket->hh.next)
		sorted[n++] = bucket;
	if (n)
		qsort(sorted, n, sizeof(sorted[0]), bucket__compare);
	for (size_t i = 0; i < n; i++)
		bucket__put(prom, gpus, gpu, sorted[i]);
	buckets__clear(gpu);
	return prom__text(prom, &text, &len);
}
