/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "api.h"

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef SIM_STATIC
const char *api_load(struct api *ret_api, const char *path)
{
	(void)path;
#define API_FILL(function) ret_api->function = function;
	API_FUNCTIONS(API_FILL)
#undef API_FILL
	return NULL;
}

int api_find(const char *path_or_version, char *ret_path, size_t size)
{
	(void)size;
	ret_path[0] = '\0';
	return path_or_version ? -EINVAL : 0;
}
#else
const char *api_load(struct api *ret_api, const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return dlerror();
#define API_FILL(function) ret_api->function = \
	(__typeof__(ret_api->function))dlsym(library, #function);
	API_FUNCTIONS(API_FILL)
#undef API_FILL
	if (!ret_api->nccl_sim_attach || !ret_api->nccl_sim_view)
		return "this is not nccl-sim's stand-in library";
	return NULL;
}

int api_find(const char *path_or_version, char *ret_path, size_t size)
{
	const char *version = path_or_version ? path_or_version : "2.28.9";
	char self[PATH_MAX];
	ssize_t n;
	int length;

	if (strchr(version, '/')) {
		length = snprintf(ret_path, size, "%s", version);
	} else {
		n = readlink("/proc/self/exe", self, sizeof(self) - 1);
		if (n < 0)
			return -errno;
		self[n] = '\0';
		length = snprintf(ret_path, size, "%s/sim/%s/libnccl.so.2", dirname(self), version);
	}
	if (length < 0 || (size_t)length >= size)
		return -ENAMETOOLONG;
	return access(ret_path, R_OK) ? -errno : 0;
}
#endif
