/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "inspector_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "util.h"

/* Inspector rewrites its file every 30 seconds or more slowly: a younger one has a living writer.
 */
#define FOREIGN_SECONDS 120

struct inspector_files {
	char *dir, *cluster;
	struct utsname host;
	struct tracer *tracer;
	struct prom *prom;
	struct inspector_gpus gpus;
	uint64_t omitted[INSPECTOR_OMITTED_MAX];
};

/* ---- the directory ---- */

/* Opened anew each time: it may be replaced by another of its name. */
static int dir__open(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Inspector's files have mode 0777 and are the job's user's. */
static bool file__is_ours(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid() && (st->st_mode & 07777) == 0644;
}

static void file__remove(int dirfd, const char *name)
{
	struct stat st;

	if (!fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) && file__is_ours(&st))
		prom__unlink(dirfd, name);
}

/* Somebody else's, and alive: as far as a file can tell. */
static bool file__is_foreign(int dirfd, const char *name)
{
	struct stat st;

	return !fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) && !file__is_ours(&st) &&
	       time(NULL) - st.st_mtime < FOREIGN_SECONDS;
}

/* ".<name>.<pid>.tmp", as prom__publish() makes it. */
static bool is_temporary(const char *name)
{
	size_t len = name[0] == '.' ? inspector__file_name_length(name + 1) : 0;
	const char *pid = name + 1 + len + 1;

	return len && pid[-1] == '.' && !strcmp(pid + strspn(pid, "0123456789"), ".tmp");
}

/* Of an agent that was killed. */
static void dir__sweep(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	struct stat st;

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (inspector__file_name_length(name) == strlen(name))
			file__remove(dirfd(dir), name);
		else if (is_temporary(name) &&
			 !fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW) &&
			 S_ISREG(st.st_mode) && st.st_uid == geteuid())
			prom__unlink(dirfd(dir), name);
	}
	closedir(dir);
}

/* ---- from launches to buckets ---- */

int inspector_files__new(struct inspector_files **ret, const char *dir, const char *cluster)
{
	struct inspector_files *files = calloc(1, sizeof(*files));

	if (!files)
		return -ENOMEM;
	uname(&files->host);
	files->dir = strdup(dir);
	files->cluster = strdup(cluster ?: "");
	if (!files->dir || !files->cluster || prom__new(&files->prom, 0)) {
		inspector_files__free(files);
		return -ENOMEM;
	}
	files->gpus.node = files->host.nodename;
	files->gpus.cluster = files->cluster;
	dir__sweep(dir);
	*ret = files;
	return 0;
}

static bool process__has_inspector(const struct process *process)
{
	return process && process->has_info && process->info.inspector_files;
}

static void files__add(struct inspector_files *files, struct inspector_gpu *gpu,
		       const struct inspector_operation *operation, const struct process *process)
{
	struct inspector_owner owner = {.tgid = operation->comm->key.tgid};

	if (process && process->has_info) {
		owner.job_id = job__slurm_id(&process->info.job);
		owner.cluster = process->info.job.cluster;
	}
	if (process__has_inspector(process) || (gpu && gpu->is_left))
		files->omitted[INSPECTOR_LEFT]++;
	else if (!gpu)
		files->omitted[INSPECTOR_NO_GPU]++;
	else if (!inspector_gpu__add(gpu, operation, &owner))
		files->omitted[INSPECTOR_FOLDED]++;
}

static void on_launch(void *ctx, const struct timing_launch *launch)
{
	struct inspector_files *files = ctx;
	const struct timing_comm *comm = launch->comm;
	struct inspector_operation told[INSPECTOR_MAX_OPERATIONS];
	unsigned int n = inspector__operations(launch, told, files->omitted);
	struct inspector_gpu *gpu;
	struct process *process;

	if (!n)
		return;
	process = processes__find(tracer__processes(files->tracer), comm->key.tgid);
	gpu = inspector_gpus__find(&files->gpus, comm->uuid);
	if (!gpu && !process__has_inspector(process))
		gpu = inspector_gpus__get(&files->gpus, comm->uuid,
					  tracer__gpu_by_uuid(files->tracer, comm->uuid));
	for (unsigned int i = 0; i < n; i++)
		files__add(files, gpu, &told[i], process);
}

int inspector_files__listen(struct inspector_files *files, struct tracer *tracer)
{
	files->tracer = tracer;
	return tracer__on_launch(tracer, on_launch, files);
}

/* ---- from buckets to files ---- */

/* GPUs whose file Inspector writes itself: those of processes that run it so. */
static void files__find_left(struct inspector_files *files, struct tracer *tracer)
{
	struct processes *processes = tracer__processes(tracer);
	struct comm *comm = comms__first(tracer__comms(tracer));

	for (unsigned int i = 0; i < files->gpus.n; i++) {
		struct inspector_gpu *gpu = files->gpus.gpus[i];

		gpu->is_left = false;
		for (unsigned int k = 0; k < gpu->n_tgids; k++)
			gpu->is_left |=
				process__has_inspector(processes__find(processes, gpu->tgids[k]));
	}
	for (; comm; comm = comm->hh.next) {
		const struct gpu *node_gpu = tracer__gpu_of(tracer, comm);
		struct inspector_gpu *gpu =
			node_gpu ? inspector_gpus__find(&files->gpus, node_gpu->uuid) : NULL;

		if (gpu && process__has_inspector(processes__find(processes, comm->key.tgid)))
			gpu->is_left = true;
	}
}

static void gpu__forget_ended(struct inspector_gpu *gpu, struct processes *processes)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < gpu->n_tgids; i++) {
		struct process *process = processes__find(processes, gpu->tgids[i]);

		if (process && !process->gone_ns)
			gpu->tgids[n++] = gpu->tgids[i];
	}
	gpu->n_tgids = n;
}

/* True: the GPU has no job any more, and all that was to be said of it stood in a file. */
static bool files__write_gpu(struct inspector_files *files, struct inspector_gpu *gpu, int dirfd,
			     int *ret_err)
{
	bool is_over = inspector_gpu__is_idle(gpu) && !gpu->n_tgids;
	char name[NAME_MAX + 1];
	int err;

	snprintf(name, sizeof(name), INSPECTOR_FILE_PREFIX "%s.prom", gpu->uuid);
	if (is_over || gpu->is_left) {
		if (gpu->is_published)
			file__remove(dirfd, name);
		gpu->is_published = false;
		inspector_gpu__drop(gpu);
		return is_over;
	}
	gpu->is_left = file__is_foreign(dirfd, name);
	if (gpu->is_left) {
		inspector_gpu__drop(gpu);
		return false;
	}
	prom__reset(files->prom);
	err = inspector_gpu__text(&files->gpus, gpu, files->prom);
	err = err ?: prom__publish(files->prom, dirfd, name);
	gpu->is_published |= !err;
	*ret_err = *ret_err ?: err;
	return false;
}

int inspector_files__write(struct inspector_files *files, struct tracer *tracer)
{
	_cleanup_close_ int dirfd = -1;
	int err = 0;

	if (!files->gpus.n)
		return 0;
	dirfd = dir__open(files->dir);
	if (dirfd < 0)
		return dirfd;
	files__find_left(files, tracer);
	for (unsigned int i = files->gpus.n; i-- > 0;) {
		struct inspector_gpu *gpu = files->gpus.gpus[i];

		gpu__forget_ended(gpu, tracer__processes(tracer));
		if (files__write_gpu(files, gpu, dirfd, &err))
			inspector_gpus__remove(&files->gpus, gpu);
	}
	return err;
}

static void files__remove_all(struct inspector_files *files)
{
	_cleanup_close_ int dirfd = files->gpus.n ? dir__open(files->dir) : -1;
	char name[NAME_MAX + 1];

	for (unsigned int i = 0; dirfd >= 0 && i < files->gpus.n; i++) {
		if (!files->gpus.gpus[i]->is_published)
			continue;
		snprintf(name, sizeof(name), INSPECTOR_FILE_PREFIX "%s.prom",
			 files->gpus.gpus[i]->uuid);
		file__remove(dirfd, name);
	}
}

void inspector_files__free(struct inspector_files *files)
{
	if (!files)
		return;
	files__remove_all(files);
	inspector_gpus__free(&files->gpus);
	prom__free(files->prom);
	free(files->dir);
	free(files->cluster);
	free(files);
}

uint64_t inspector_files__omitted(const struct inspector_files *files, int reason)
{
	return files->omitted[reason];
}

const char *inspector_omitted__name(int reason)
{
	static const char *const names[INSPECTOR_OMITTED_MAX] = {
		[INSPECTOR_NOT_TIMED] = "not_timed", [INSPECTOR_SEVERAL] = "several_operations",
		[INSPECTOR_SMALL] = "small",	     [INSPECTOR_UNNAMED] = "unnamed",
		[INSPECTOR_UNSIZED] = "unsized",     [INSPECTOR_FOLDED] = "folded",
		[INSPECTOR_NO_GPU] = "no_gpu",	     [INSPECTOR_LEFT] = "left_to_inspector",
	};

	return names[reason];
}
