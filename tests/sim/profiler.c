/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profiler.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "conf.h"

#define PREFIX "libnccl-profiler"
#define NAME_SIZE 255
#define LOG_WARN 2
#define LOG_INFO 3

/* The highest version of the ABI that this NCCL looks for. */
#if SIM_VERSION >= 22902
#define NATIVE_ABI 6
#elif SIM_VERSION >= 22803
#define NATIVE_ABI 5
#elif SIM_VERSION >= 22703
#define NATIVE_ABI 4
#elif SIM_VERSION >= 22602
#define NATIVE_ABI 3
#elif SIM_VERSION >= 22403
#define NATIVE_ABI 2
#else
#define NATIVE_ABI (SIM_HAS_PROFILER ? 1 : 0)
#endif

enum status { LOAD_FAILED = -1, LOAD_READY = 0, LOAD_SUCCESS = 1 };

static struct {
	pthread_mutex_t lock;
	enum status status; /* once it has failed nobody tries again */
	int n_users;
	int version;
	void *library;
	const struct abi_profiler *table;
} plugin = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* NCCL's own name; the plugin writes it. */
extern int ncclProfilerEventMask;
int ncclProfilerEventMask;

/* Given to the plugin. Says what NCCL_DEBUG lets NCCL say. */
__attribute__((format(printf, 5, 6)))
static void log_line(int level, unsigned long flags, const char *file, int line,
		     const char *format, ...)
{
	const char *debug = sim_env("NCCL_DEBUG");
	int allowed = !debug ? 0 : !strcasecmp(debug, "WARN") ? LOG_WARN :
			      !strcasecmp(debug, "INFO") ? LOG_INFO : 0;
	char text[1024];
	va_list args;

	(void)flags;
	if (level > allowed)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "%s:%d NCCL %s %s\n", file, line, level == LOG_WARN ? "WARN" : "INFO",
		text);
}

#define INFO(...) log_line(LOG_INFO, 0, "nccl-sim", __LINE__, __VA_ARGS__)

/* A word that STATIC_PLUGIN begins with means the program itself, NCCL's way of linking one in. */
static void *open_name(const char *name)
{
	void *library;

	if (!*name)
		return NULL;
	if (!strncasecmp(name, "STATIC_PLUGIN", strlen(name)))
		name = NULL;
	library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		INFO("PROFILER/Plugin: %s", dlerror());
	return library;
}

static bool is_file_name(const char *name)
{
	size_t length = strlen(name);

	return strchr(name, '/') || (!strncmp(name, "lib", 3) && length >= 3 &&
				     !strcmp(name + length - 3, ".so"));
}

static void *open_library(const char *name)
{
	char file[NAME_SIZE];
	void *library;

	if (!name || !*name)
		return open_name(PREFIX ".so");
	library = open_name(name);
	if (library || is_file_name(name) || SIM_VERSION < 22602)
		return library;
	snprintf(file, sizeof(file), PREFIX "-%s.so", name);
	return open_name(file);
}

static const struct abi_profiler *find_table(void *library, int *ret_version)
{
	const struct abi_profiler *table = NULL;
	char symbol[32];

	for (int version = NATIVE_ABI; version > 0 && !table; version--) {
		snprintf(symbol, sizeof(symbol), "ncclProfiler_v%d", version);
		table = dlsym(library, symbol);
		*ret_version = version;
	}
	return table;
}

static bool load_now(void)
{
	const char *name = sim_env("NCCL_PROFILER_PLUGIN");

	if (name && !strcasecmp(name, "none") && SIM_VERSION >= 22803)
		return false;
	plugin.library = open_library(name);
	if (!plugin.library)
		return false;
	plugin.table = find_table(plugin.library, &plugin.version);
	if (plugin.table) {
		INFO("PROFILER/Plugin: loaded %s by ncclProfiler_v%d", plugin.table->name,
		     plugin.version);
		return true;
	}
	dlclose(plugin.library);
	plugin.library = NULL;
	return false;
}

static void load(void)
{
	if (!NATIVE_ABI || __atomic_load_n(&plugin.status, __ATOMIC_RELAXED) == LOAD_FAILED)
		return;
	pthread_mutex_lock(&plugin.lock);
	if (plugin.status == LOAD_READY)
		plugin.status = load_now() ? LOAD_SUCCESS : LOAD_FAILED;
	if (plugin.status == LOAD_SUCCESS)
		plugin.n_users++;
	pthread_mutex_unlock(&plugin.lock);
}

static void unload(void)
{
	pthread_mutex_lock(&plugin.lock);
	if (plugin.status == LOAD_SUCCESS && --plugin.n_users == 0) {
		dlclose(plugin.library);
		plugin.library = NULL;
		plugin.table = NULL;
		plugin.status = LOAD_READY;
	}
	pthread_mutex_unlock(&plugin.lock);
}

static const char *comm_name(const struct sim_comm *comm)
{
#if SIM_HAS_COMM_NAME
	return comm->nccl.configCommName;
#else
	(void)comm;
	return NULL;
#endif
}

static int call_init(struct sim_comm *comm)
{
	void (*init)(void) = plugin.table->init;
	const struct ncclComm *nccl = &comm->nccl;

	if (plugin.version <= 3)
		return ((abi_init_v1)init)(&comm->profiler_context, &ncclProfilerEventMask);
	if (plugin.version == 4)
		return ((abi_init_v4)init)(&comm->profiler_context, &ncclProfilerEventMask,
					   comm_name(comm), nccl->commHash, nccl->nNodes,
					   nccl->nRanks, nccl->rank, log_line);
	return ((abi_init_v5)init)(&comm->profiler_context, nccl->commHash,
				   &ncclProfilerEventMask, comm_name(comm), nccl->nNodes,
				   nccl->nRanks, nccl->rank, log_line);
}

/* What a refusal does differs: no plugin any more (to 2.27), nothing, one user less (2.30.7). */
void profiler_comm_init(struct sim_comm *comm)
{
	load();
	comm->has_profiler = true;
	if (!plugin.table || !call_init(comm))
		return;
	INFO("PROFILER/Plugin: init failed");
	if (SIM_VERSION < 22803)
		plugin.table = NULL;
	else if (SIM_VERSION >= 23007)
		unload();
}

void profiler_comm_finalize(struct sim_comm *comm)
{
	if (!comm->has_profiler)
		return;
	if (plugin.table && (comm->profiler_context || SIM_VERSION < 22803))
		plugin.table->finalize(comm->profiler_context);
	unload();
}

int profiler_mask(void)
{
	return plugin.table ? __atomic_load_n(&ncclProfilerEventMask, __ATOMIC_RELAXED) : 0;
}

void profiler_start(const struct sim_comm *comm, void **handle, const struct sim_event *event)
{
	_Alignas(8) char descriptor[EVENT_BYTES];

	if (plugin.table && event_describe(event, plugin.version, descriptor))
		plugin.table->start(comm->profiler_context, handle, descriptor);
}

void profiler_stop(void *handle)
{
	if (plugin.table && handle)
		plugin.table->stop(handle);
}

/* NCCL gives the states of GroupApi no arguments. */
void profiler_record(void *handle, enum sim_state state, uint64_t timer)
{
	if (plugin.table && handle)
		plugin.table->record(handle, state, state == STATE_KERNEL_CH_STOP ? &timer : NULL);
}
