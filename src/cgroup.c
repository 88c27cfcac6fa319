/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "cgroup.h"

#include <errno.h>
#include <limits.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "util.h"

static bool is_directory(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* What of the path lies below the directory, "" for itself; NULL: it does not. */
static const char *below(const char *path, const char *directory)
{
	size_t len = strlen(directory);

	if (strncmp(path, directory, len) || (path[len] && path[len] != '/'))
		return NULL;
	return path + len;
}

/* Version 1 has a mount for each controller, the hybrid of both has one for version 2 among them.
 */
static const char *name_at(const struct mntent *mount, const char *full, const char *path)
{
	const char *name = full ? below(full, mount->mnt_dir) : NULL;
	char joined[PATH_MAX];

	if (name)
		return name;
	if (path[0] != '/' ||
	    snprintf(joined, sizeof(joined), "%s%s", mount->mnt_dir, path) >= PATH_MAX)
		return NULL;
	return is_directory(joined) ? path : NULL;
}

static int take_name(const char *name, char **ret)
{
	size_t len = strlen(name);

	while (len && name[len - 1] == '/')
		len--;
	*ret = strndup(name, len);
	return *ret ? 0 : -ENOMEM;
}

int cgroup__resolve(const char *path, char **ret)
{
	_cleanup_free_ char *full = is_directory(path) ? realpath(path, NULL) : NULL;
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	const char *name = NULL;
	struct mntent *mount;
	int err = -ENOENT;

	while (mounts && !name && (mount = getmntent(mounts)))
		if (!strcmp(mount->mnt_type, "cgroup2") || !strcmp(mount->mnt_type, "cgroup"))
			name = name_at(mount, full, path);
	if (name)
		err = take_name(name, ret);
	if (mounts)
		endmntent(mounts);
	return err;
}
