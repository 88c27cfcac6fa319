/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "library.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "handover.h"
#include "util.h"

#define MAX_FILES 32768 /* files remembered; of those of no kind the oldest is forgotten first */

struct libraries {
	struct library *all;
	bool index_used[NB_MAX_LIBRARIES];
};

int libraries__new(struct libraries **ret)
{
	struct libraries *libraries = calloc(1, sizeof(*libraries));

	if (!libraries)
		return -ENOMEM;
	*ret = libraries;
	return 0;
}

static void close_all(int *fds, int n)
{
	for (int i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

void libraries__remove(struct libraries *libraries, struct library *library)
{
	HASH_DEL(libraries->all, library);
	if (library->index >= 0)
		libraries->index_used[library->index] = false;
	close_all(library->links, library->n_links);
	close_all((int[]){library->calls.file, library->calls.link}, 2);
	free(library->links);
	free(library);
}

void libraries__free(struct libraries *libraries)
{
	if (!libraries)
		return;
	while (libraries->all)
		libraries__remove(libraries, libraries->all);
	free(libraries);
}

struct inode_key inode_key__of(const struct nb_mapping *mapping)
{
	return (struct inode_key){
		.inode = mapping->inode,
		.ino = mapping->ino,
		.dev = mapping->dev,
		.generation = mapping->generation,
	};
}

struct library *libraries__find(struct libraries *libraries, const struct inode_key *key)
{
	struct library *library;

	HASH_FIND(hh, libraries->all, key, sizeof(*key), library);
	return library;
}

static void libraries__forget_oldest(struct libraries *libraries)
{
	struct library *library, *next;

	HASH_ITER(hh, libraries->all, library, next)
	{
		if (library->state != LIBRARY_PLAIN && library->state != LIBRARY_UNREADABLE)
			continue;
		libraries__remove(libraries, library);
		return;
	}
}

int libraries__take_index(struct libraries *libraries, struct library *library)
{
	for (int i = 0; i < NB_MAX_LIBRARIES && library->index < 0; i++) {
		if (libraries->index_used[i])
			continue;
		libraries->index_used[i] = true;
		library->index = i;
	}
	return library->index < 0 ? -ENOSPC : 0;
}

static void library__drop_index(struct libraries *libraries, struct library *library)
{
	if (library->index >= 0)
		libraries->index_used[library->index] = false;
	library->index = -1;
}

struct library *libraries__add(struct libraries *libraries, const struct nb_mapping *mapping)
{
	struct library *library = calloc(1, sizeof(*library));

	if (!library)
		return NULL;
	if (HASH_COUNT(libraries->all) >= MAX_FILES)
		libraries__forget_oldest(libraries);
	library->key = inode_key__of(mapping);
	library->index = -1;
	library->calls.file = library->calls.link = -1;
	library->mapping = *mapping;
	memcpy(library->name, mapping->name, sizeof(library->name));
	library->name[sizeof(library->name) - 1] = 0;
	HASH_ADD(hh, libraries->all, key, sizeof(library->key), library);
	return library;
}

static void library__reject(struct libraries *libraries, struct library *library,
			    enum library_state state, const char *reason)
{
	library->state = state;
	snprintf(library->reason, sizeof(library->reason), "%s", reason);
	library__drop_index(libraries, library);
}

void library__refuse(struct library *library, const char *why)
{
	library->state = LIBRARY_UNSUPPORTED;
	snprintf(library->reason, sizeof(library->reason), "%s", why);
}

const char *library__shown(const struct library *library)
{
	return library->path[0] ? library->path : library->name;
}

bool library__called_like_nccl(const struct library *library)
{
	return !strncmp(library->name, "libnccl", strlen("libnccl"));
}

bool library__may_be_nccl(const struct library *library)
{
	return library->kind == IMAGE_NCCL || library->kind == IMAGE_NONE;
}

void library__fail(struct libraries *libraries, struct library *library, int err)
{
	char reason[96];

	if (err == -ETIMEDOUT)
		snprintf(
			reason, sizeof(reason),
			"not readable: its file did not answer in time (a hung FUSE or network mount)");
	else if (err == -ENOSPC)
		snprintf(reason, sizeof(reason), "%d files with NCCL are traced already",
			 NB_MAX_LIBRARIES);
	else
		snprintf(reason, sizeof(reason), "not readable: %s", strerror(-err));
	library__reject(libraries, library,
			library__called_like_nccl(library) ? LIBRARY_UNSUPPORTED
							   : LIBRARY_UNREADABLE,
			reason);
}

static void library__keep_links(struct library *library, const int *fds, int n_fds)
{
	library->links = malloc(n_fds * sizeof(*fds));
	if (!library->links) {
		close_all((int *)fds, n_fds);
		return;
	}
	memcpy(library->links, fds, n_fds * sizeof(*fds));
	library->n_links = n_fds;
}

static void library__keep_calls(struct library *library, const struct image *image, int link,
				int file)
{
	struct library_calls *calls = &library->calls;

	for (uint32_t i = 0; i < image->n_sites && i < IMAGE_MAX_SITES; i++) {
		if (image->sites[i].function >= NCCL_FN_PROBED ||
		    !handover__covers(image->sites[i].function))
			continue;
		calls->offsets[calls->n] = image->sites[i].offset;
		calls->functions[calls->n++] = image->sites[i].function;
	}
	calls->link = link;
	calls->link_ns = library->traced_ns;
	calls->file = file;
}

void library__settle(struct libraries *libraries, struct library *library,
		     const struct attach_reply *reply, const int *fds, int n_fds)
{
	char reason[96];

	library->kind = reply->image.kind;
	library->image = reply->image.nccl;
	library->semaphore = reply->image.semaphore;
	library->tables = reply->image.tables;
	memcpy(library->path, reply->path, sizeof(library->path));
	library->path[sizeof(library->path) - 1] = 0;
	if (reply->image.kind == IMAGE_NONE) {
		library__reject(libraries, library, LIBRARY_PLAIN, "");
	} else if (!reply->image.n_sites && reply->image.kind != IMAGE_FOREIGN) {
		library__reject(libraries, library, LIBRARY_UNSUPPORTED,
				nccl_image__reason(&library->image));
	} else if (n_fds > 0) {
		library->state = LIBRARY_TRACED;
		library->traced_ns = reply->made_ns;
		if (reply->has_calls && n_fds == 3) {
			library__keep_calls(library, &reply->image, fds[0], fds[2]);
			n_fds = 1;
			fds++;
		}
		library__keep_links(library, fds, n_fds);
		return;
	} else if (reply->err) {
		snprintf(reason, sizeof(reason), "probes refused: %s", strerror(-reply->err));
		library__reject(libraries, library, LIBRARY_UNSUPPORTED, reason);
	} else {
		library->state = LIBRARY_SEEN;
		library__drop_index(libraries, library);
	}
	close_all((int *)fds, n_fds);
}

int library__take_links(struct library *library, int **ret_links)
{
	int n = library->n_links;

	*ret_links = library->links;
	library->links = NULL;
	library->n_links = 0;
	return n;
}

struct library *libraries__first(struct libraries *libraries)
{
	return libraries->all;
}
