/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "api.h"

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int beside_program(const char *name, char *ret_path, size_t size)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int length;

	if (n < 0)
		return -errno;
	self[n] = '\0';
	length = snprintf(ret_path, size, "%s/%s", dirname(self), name);
	return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

const char *cuda_api_load(struct cuda_api *ret_api, const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return dlerror();
#define CUDA_FILL(function) \
	ret_api->function = (__typeof__(ret_api->function))dlsym(library, #function); \
	if (!ret_api->function) \
		return "this is not nccl-sim's stand-in CUDA driver";
	CUDA_FUNCTIONS(CUDA_FILL)
#undef CUDA_FILL
	return NULL;
}

int cuda_api_find(char *ret_path, size_t size)
{
	int err = beside_program("sim/cuda/libcuda.so.1", ret_path, size);

	return err ? err : access(ret_path, R_OK) ? -errno : 0;
}

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
	char name[NAME_MAX];
	int length, err;

	if (strchr(version, '/'))
		length = snprintf(ret_path, size, "%s", version);
	else
		length = snprintf(name, sizeof(name), "sim/%s/libnccl.so.2", version);
	if (length < 0 || (size_t)length >= (strchr(version, '/') ? size : sizeof(name)))
		return -ENAMETOOLONG;
	err = strchr(version, '/') ? 0 : beside_program(name, ret_path, size);
	if (err)
		return err;
	return access(ret_path, R_OK) ? -errno : 0;
}
#endif
