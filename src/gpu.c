/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "gpu.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* The file has about 400 bytes; what lies past this is not looked at. */
#define INFORMATION_MAX 4096

struct gpu_table {
	size_t count;
	struct gpu gpus[GPU_MAX];
};

/* What one directory told. */
struct gpu_found {
	struct gpu gpu;
	bool excluded; /* by the driver option NVreg_ExcludedGpus: nvidia-smi does not count it */
};

/* Reads up to size hex digits; returns how many. */
static size_t hex__parse(const char *text, size_t size, uint64_t *ret)
{
	uint64_t value = 0;
	size_t n;

	for (n = 0; n < size && isxdigit((unsigned char)text[n]); n++) {
		int c = tolower((unsigned char)text[n]);

		value = value << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
	*ret = value;
	return n;
}

/* "dddd:bb:dd.f", all hex; the driver writes at least four digits of domain. */
static int bus_id__parse(const char *text, int64_t *ret)
{
	uint64_t domain, bus, device, function;
	size_t n = hex__parse(text, 8, &domain);

	if (n < 4 || text[n] != ':')
		return -EINVAL;
	text += n + 1;
	if (hex__parse(text, 2, &bus) != 2 || text[2] != ':')
		return -EINVAL;
	text += 3;
	if (hex__parse(text, 2, &device) != 2 || text[2] != '.')
		return -EINVAL;
	text += 3;
	if (hex__parse(text, 1, &function) != 1 || text[1] != '\0')
		return -EINVAL;
	*ret = (int64_t)(domain << 20 | bus << 12 | device << 4 | function);
	return 0;
}

/* Before a GPU is first opened the driver may write '?' for every digit: then it is not known. */
static bool uuid__valid(const char *text)
{
	static const char form[] = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

	_Static_assert(sizeof(form) <= sizeof(((struct gpu *)NULL)->uuid), "uuid fits");
	if (strlen(text) != sizeof(form) - 1)
		return false;
	for (size_t i = 0; i < sizeof(form) - 1; i++) {
		bool ok = form[i] == 'x' ? isxdigit((unsigned char)text[i]) : text[i] == form[i];

		if (!ok)
			return false;
	}
	return true;
}

static int minor__parse(const char *text)
{
	char *end;
	long value;

	if (!isdigit((unsigned char)text[0]))
		return -1;
	errno = 0;
	value = strtol(text, &end, 10);
	return errno || *end || value > INT_MAX ? -1 : (int)value;
}

/* Splits "Key: \t value" in place. */
static char *line__split(char *line)
{
	char *value = strchr(line, ':');
	size_t len;

	if (!value)
		return NULL;
	*value++ = '\0';
	value += strspn(value, " \t");
	len = strlen(value);
	while (len && isspace((unsigned char)value[len - 1]))
		value[--len] = '\0';
	return value;
}

static void gpu_found__line(struct gpu_found *found, const char *key, const char *value)
{
	if (!strcmp(key, "GPU UUID") && uuid__valid(value))
		memcpy(found->gpu.uuid, value, strlen(value) + 1);
	else if (!strcmp(key, "Bus Location"))
		bus_id__parse(value, &found->gpu.bus_id); /* refused: the directory's name holds */
	else if (!strcmp(key, "Device Minor"))
		found->gpu.minor = minor__parse(value);
	else if (!strcmp(key, "GPU Excluded"))
		found->excluded = !strcmp(value, "Yes");
}

static void gpu_found__parse(struct gpu_found *found, char *text)
{
	char *save, *line;

	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *value = line__split(line);

		if (value)
			gpu_found__line(found, line, value);
	}
}

static int information__read(int root_fd, const char *name, char *ret, size_t size)
{
	char path[NAME_MAX + sizeof("/information")];
	size_t len = 0;
	ssize_t n;
	int fd;

	if ((size_t)snprintf(path, sizeof(path), "%s/information", name) >= sizeof(path))
		return -ENAMETOOLONG;
	fd = openat(root_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	while (len < size - 1) {
		n = read(fd, ret + len, size - 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	close(fd);
	ret[len] = '\0';
	return 0;
}

/*
 * The directory's name is the bus id as well. It is enough for a GPU to keep its place in the
 * order when its file cannot be read: the indices of the others must not shift.
 */
static int gpu_found__load(struct gpu_found *ret, int root_fd, const char *name)
{
	struct gpu_found found = {.gpu = {.bus_id = -1, .minor = -1}};
	char text[INFORMATION_MAX];

	bus_id__parse(name, &found.gpu.bus_id);
	if (!information__read(root_fd, name, text, sizeof(text)))
		gpu_found__parse(&found, text);
	if (found.gpu.bus_id < 0)
		return -EINVAL;
	*ret = found;
	return 0;
}

static int gpu__compare(const void *a, const void *b)
{
	int64_t x = ((const struct gpu *)a)->bus_id, y = ((const struct gpu *)b)->bus_id;

	return (x > y) - (x < y);
}

static void gpu_table__fill(struct gpu_table *table, DIR *dir)
{
	struct gpu_found found;
	struct dirent *entry;

	while (table->count < GPU_MAX && (entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		if (!gpu_found__load(&found, dirfd(dir), entry->d_name) && !found.excluded)
			table->gpus[table->count++] = found.gpu;
	}
	qsort(table->gpus, table->count, sizeof(table->gpus[0]), gpu__compare);
	for (size_t i = 0; i < table->count; i++)
		table->gpus[i].index = (unsigned int)i;
}

int gpu_table__load(struct gpu_table **ret, const char *root)
{
	struct gpu_table *table;
	DIR *dir = opendir(root);

	if (!dir && errno != ENOENT)
		return -errno;
	table = calloc(1, sizeof(*table));
	if (table && dir)
		gpu_table__fill(table, dir);
	if (dir)
		closedir(dir);
	if (!table)
		return -ENOMEM;
	*ret = table;
	return 0;
}

void gpu_table__free(struct gpu_table *table)
{
	free(table);
}

const struct gpu *gpu_table__by_bus_id(const struct gpu_table *table, int64_t bus_id)
{
	struct gpu key = {.bus_id = bus_id};

	return bsearch(&key, table->gpus, table->count, sizeof(key), gpu__compare);
}

const struct gpu *gpu_table__by_uuid(const struct gpu_table *table, const char *uuid)
{
	for (size_t i = 0; i < table->count; i++)
		if (table->gpus[i].uuid[0] && !strcasecmp(table->gpus[i].uuid, uuid))
			return &table->gpus[i];
	return NULL;
}
