/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A profiler plugin that writes down what it is called with, a line each, into the file
 * CALLBACK_LOG.<pid>. CALLBACK_MASK: the activation mask; CALLBACK_REFUSE: init fails. It shows
 * what the stand-in does to plugins, apart from the plugin under test.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../src/plugin/abi.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t n_handles;

static FILE *log_open(void)
{
	const char *path = getenv("CALLBACK_LOG");
	char name[4096];

	if (!path || (size_t)snprintf(name, sizeof(name), "%s.%d", path, (int)getpid()) >=
			     sizeof(name))
		return NULL;
	return fopen(name, "ae");
}

__attribute__((format(printf, 1, 2)))
static void say(const char *format, ...)
{
	va_list args;
	FILE *file;

	pthread_mutex_lock(&lock);
	file = log_open();
	va_start(args, format);
	if (file)
		vfprintf(file, format, args);
	va_end(args);
	if (file)
		fclose(file);
	pthread_mutex_unlock(&lock);
}

static const char *type_name(uint64_t type)
{
	static const char *const names[] = {
		"Group", "Coll", "P2p", "ProxyOp", "ProxyStep", "ProxyCtrl", "KernelCh",
		"NetPlugin", "GroupApi", "CollApi", "P2pApi", "KernelLaunch", "CeColl", "CeSync",
		"CeBatch",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (type == UINT64_C(1) << i)
			return names[i];
	return "?";
}

static uint64_t word(const void *d, int at)
{
	uint64_t value;

	memcpy(&value, (const char *)d + at, sizeof(value));
	return value;
}

static int number(const void *d, int at)
{
	int value;

	memcpy(&value, (const char *)d + at, sizeof(value));
	return value;
}

/* The members that version 4 and later have at one place. */
static void details(int version, uint64_t type, const void *d, char *text, size_t size)
{
	const char *string = (const char *)(uintptr_t)word(d, type == ABI_COLL ? 32 : 24);

	text[0] = '\0';
	if (version < 4)
		return;
	if (type == ABI_GROUP_API)
		snprintf(text, size, " depth=%d captured=%d", number(d, 28), *((const char *)d + 24));
	if (type == ABI_COLL_API || type == ABI_P2P_API)
		snprintf(text, size, " func=%s count=%" PRIu64 " captured=%d", string, word(d, 32),
			 *((const char *)d + (type == ABI_COLL_API ? 64 : 56)));
	if (type == ABI_COLL)
		snprintf(text, size, " func=%s count=%" PRIu64 " sequence=%" PRIu64 " type=%s "
			 "channels=%d algorithm=%s protocol=%s", string, word(d, 56), word(d, 24),
			 (const char *)(uintptr_t)word(d, 72), *((const uint8_t *)d + 80),
			 (const char *)(uintptr_t)word(d, 88), (const char *)(uintptr_t)word(d, 96));
	if (type == ABI_P2P)
		snprintf(text, size, " func=%s count=%" PRIu64 " peer=%d", string, word(d, 48),
			 number(d, 56));
	if (type == ABI_KERNEL_CH)
		snprintf(text, size, " channel=%d timer=%" PRIu64, *((const uint8_t *)d + 24),
			 word(d, 32));
}

static int on_init(int version, void **context, int *mask)
{
	const char *bits = getenv("CALLBACK_MASK");

	if (getenv("CALLBACK_REFUSE")) {
		say("init v%d refused\n", version);
		return 1;
	}
	*context = (void *)++n_handles;
	*mask = bits ? (int)strtol(bits, NULL, 0) : 0;
	say("init v%d context=%zu mask=%d\n", version, (size_t)*context, *mask);
	return 0;
}

static int on_start(int version, void *context, void **handle, void *d)
{
	uint64_t type = version < 5 ? *(uint8_t *)d : word(d, 0);
	char text[512];

	details(version, type, d, text, sizeof(text));
	*handle = (void *)__atomic_add_fetch(&n_handles, 1, __ATOMIC_RELAXED);
	say("start %s handle=%zu context=%zu parent=%" PRIu64 "%s\n", type_name(type),
	    (size_t)*handle, (size_t)context, word(d, ABI_PARENT), text);
	return 0;
}

static int on_stop(void *handle)
{
	say("stop handle=%zu\n", (size_t)handle);
	return 0;
}

static int on_record(void *handle, int state, void *arguments)
{
	say("record handle=%zu state=%d timer=%" PRIu64 "\n", (size_t)handle, state,
	    arguments ? word(arguments, 0) : 0);
	return 0;
}

static int on_finalize(void *context)
{
	say("finalize context=%zu\n", (size_t)context);
	return 0;
}

#define TABLE(N) \
	static int start_v##N(void *context, void **handle, void *d) \
	{ \
		return on_start(N, context, handle, d); \
	} \
	extern const struct abi_profiler ncclProfiler_v##N; \
	ABI_EXPORT const struct abi_profiler ncclProfiler_v##N = { \
		"callback-log", (void (*)(void))init_v##N, start_v##N, on_stop, on_record, \
		on_finalize, \
	}
#define INIT_V1(N) \
	static int init_v##N(void **context, int *mask) \
	{ \
		return on_init(N, context, mask); \
	}
#define INIT_V5(N) \
	static int init_v##N(void **context, uint64_t hash, int *mask, const char *name, \
			     int n_nodes, int n_ranks, int rank, abi_logger logger) \
	{ \
		(void)hash, (void)name, (void)n_nodes, (void)n_ranks, (void)rank, (void)logger; \
		return on_init(N, context, mask); \
	}

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int n_nodes,
		   int n_ranks, int rank, abi_logger logger)
{
	(void)hash, (void)name, (void)n_nodes, (void)n_ranks, (void)rank, (void)logger;
	return on_init(4, context, mask);
}

INIT_V1(1)
INIT_V1(2)
INIT_V1(3)
INIT_V5(5)
INIT_V5(6)
TABLE(1);
TABLE(2);
TABLE(3);
TABLE(4);
TABLE(5);
TABLE(6);
