/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "commands.h"
#include "sanitize.h"
#include "util.h"

static const char *identity_name(const struct comm *comm)
{
	static const char *const names[] = {
		[COMM_UNKNOWN] = "unknown",
		[COMM_RECOVERED] = "recovered",
		[COMM_OBSERVED] = "observed",
	};

	return names[comm->identity];
}

static bool is_shown(const struct process *process)
{
	return process__nccl(process) && !process->is_fork_copy;
}

static json_t *json_of_comm(const struct comm *comm)
{
	json_t *object =
		json_pack("{s:s, s:s, s:i, s:s}", "comm", comm->label, "comm_name", comm->name,
			  "nranks", comm->n_ranks, "identity", identity_name(comm));

	json_object_set_new(object, "rank",
			    comm->rank < 0 ? json_null() : json_integer(comm->rank));
	json_object_set_new(object, "n_nodes",
			    comm->n_nodes ? json_integer(comm->n_nodes) : json_null());
	return object;
}

static void json_add_uuid(json_t *gpus, const char *uuid)
{
	size_t i;
	json_t *known;

	json_array_foreach(gpus, i, known) if (!strcmp(json_string_value(known), uuid)) return;
	json_array_append_new(gpus, json_string(uuid));
}

/* Ours would tell all that one behind it is told. */
static bool has_foreign(const struct process *process)
{
	return process__foreign_mapping(process, 0) && process__plugin(process) == PLUGIN_ABSENT;
}

static json_t *json_of_foreign(const struct process *process)
{
	const char *why;
	char path[512];

	if (!has_foreign(process))
		return json_null();
	return json_pack(
		"{s:s, s:i}", "library",
		sanitize__text(library__shown(process__foreign_mapping(process, 0)->library), path,
			       sizeof(path)),
		"abi", process__foreign_version(process, &why));
}

/* Empty texts: not known, or there is none. */
static json_t *json_of_job(const struct job_identity *job)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "slurm_step", job->step,
			 "local_rank", job->local_rank, "namespace", job->namespace, "pod",
			 job->pod, "container", job->container, "pod_uid", job->pod_uid,
			 "container_id", job->container_id);
}

static json_t *json_of_process(struct tracer *tracer, const struct process *process)
{
	const struct library *library = process__nccl(process);
	const char *unknown = command__not_known(process);
	json_t *comms = json_array(), *gpus = json_array();
	char version[16], command[64], path[512];

	for (struct comm *c = comms__first(tracer__comms(tracer)); c; c = c->hh.next) {
		const struct gpu *gpu = tracer__gpu_of(tracer, c);

		if (c->key.tgid != process->tgid)
			continue;
		json_array_append_new(comms, json_of_comm(c));
		if (gpu)
			json_add_uuid(gpus, gpu->uuid);
	}
	return json_pack("{s:i, s:s, s:s, s:s, s:o, s:s, s:o, s:s, s:o, s:o, s:s?}", "pid",
			 process->tgid, "command",
			 sanitize__text(process->info.command, command, sizeof(command)), "library",
			 sanitize__text(library->path[0] ? library->path : library->name, path,
					sizeof(path)),
			 "nccl_version", nccl_version__format(library->image.version, version),
			 "gpus", gpus, "job_id", process->info.job.job_id, "job",
			 json_of_job(&process->info.job), "plugin",
			 plugin_state__name(process__plugin(process)), "other_plugin",
			 json_of_foreign(process), "communicators", comms, "not_known", unknown);
}

static void print_json(struct tracer *tracer)
{
	json_t *processes = json_array(), *root;

	for (struct process *p = processes__first(tracer__processes(tracer)); p; p = p->hh.next)
		if (is_shown(p))
			json_array_append_new(processes, json_of_process(tracer, p));
	root = json_pack("{s:s, s:o}", "schema", "nccl-bpftrace/ps/1", "processes", processes);
	json_dumpf(root, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
	putchar('\n');
	json_decref(root);
}

static void print_comm(struct tracer *tracer, const struct comm *comm)
{
	const struct gpu *gpu = tracer__gpu_of(tracer, comm);
	char rank[32] = "rank ?", nodes[32] = "", name[128];

	if (comm->rank >= 0)
		snprintf(rank, sizeof(rank), "rank %d of %d", comm->rank, comm->n_ranks);
	if (comm->n_nodes)
		snprintf(nodes, sizeof(nodes), "  nodes %d", comm->n_nodes);
	printf("    comm %s  %s%s  gpu %s  %s%s%s\n", comm->label, rank, nodes,
	       gpu ? gpu->uuid : "?", identity_name(comm), comm->name[0] ? "  name " : "",
	       sanitize__text(comm->name, name, sizeof(name)));
}

static void print_foreign(const struct process *process)
{
	const char *why;
	char path[512];
	int version;

	if (!has_foreign(process))
		return;
	version = process__foreign_version(process, &why);
	printf("    another profiler plugin: %s",
	       sanitize__text(library__shown(process__foreign_mapping(process, 0)->library), path,
			      sizeof(path)));
	if (version)
		printf(" (ABI v%d)\n", version);
	else
		printf(" (%s)\n", why);
}

static void print_job(const struct job_identity *job)
{
	if (job->job_id[0])
		printf("  job %s", job->job_id);
	if (job->step[0])
		printf("  step %s", job->step);
	if (job->container[0])
		printf("  container %s", job->container);
}

static void print_process(struct tracer *tracer, const struct process *process)
{
	const struct library *library = process__nccl(process);
	enum plugin_state plugin = process__plugin(process);
	const char *unknown = command__not_known(process);
	char version[16], command[64], path[512];

	printf("%u  %s  NCCL %s  %s", process->tgid,
	       sanitize__text(process->info.command, command, sizeof(command)),
	       nccl_version__format(library->image.version, version),
	       sanitize__text(library__shown(library), path, sizeof(path)));
	print_job(&process->info.job);
	if (plugin != PLUGIN_ABSENT)
		printf("  plugin %s", plugin_state__name(plugin));
	putchar('\n');
	for (struct comm *c = comms__first(tracer__comms(tracer)); c; c = c->hh.next)
		if (c->key.tgid == process->tgid)
			print_comm(tracer, c);
	print_foreign(process);
	if (unknown)
		printf("    not known: %s\n", unknown);
}

static void print_text(struct tracer *tracer, const struct options *options)
{
	unsigned int n = 0;

	for (struct process *p = processes__first(tracer__processes(tracer)); p; p = p->hh.next) {
		if (!is_shown(p))
			continue;
		print_process(tracer, p);
		n++;
	}
	if (!n)
		printf("no NCCL process %s\n", command__where(options));
}

static void on_settled(void *ctx)
{
	loop__stop(ctx, 0);
}

int cmd_ps(const struct options *options)
{
	struct tracer_options tracer_options = command__tracer_options(options);
	const char *why = "out of memory or file descriptors";
	struct tracer *tracer = NULL;
	struct loop *loop = NULL;
	int err = loop__new(&loop);

	err = err ?: tracer__new(&tracer, loop, &tracer_options, &why);
	err = err ?: tracer__start(tracer, on_settled, loop);
	err = err ?: loop__run(loop) ?: command__looked(tracer, &why);
	if (!err && options->json)
		print_json(tracer);
	else if (!err)
		print_text(tracer, options);
	tracer__free(tracer);
	loop__free(loop);
	return err ? command__cannot_trace(err, why) : EXIT_OK;
}
