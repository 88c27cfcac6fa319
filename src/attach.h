/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads one mapped file and puts entry probes where its kind has them; runs in a helper. */
#ifndef ATTACH_H
#define ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include "image.h"

#define ATTACH_TRACE_UPROBE_MULTI 48 /* BPF_TRACE_UPROBE_MULTI, Linux 6.6 */

/* True when the kernel makes uprobe_multi links for this program (loaded for them). */
bool attach__multi_works(int program_fd);

struct attach_request {
	uint32_t pid;
	uint64_t start, end; /* of a mapping: names the file as /proc/PID/map_files/<start>-<end> */
	int32_t kind;	     /* attach if it is of this kind; IMAGE_NONE: only look */
	int32_t library;     /* index in the map `libraries` */
	int program_fd;	     /* for this kind */
	int libraries_fd;
	bool multi;
};

/* POD: crosses the helper's socket. With it come the links' fds, if it is of the kind asked for. */
struct attach_reply {
	int32_t err; /* 0; -errno of attaching or of reading */
	struct image image;
	char path[256]; /* as the process sees it; for people */
};

/* A helper_work_fn: arg is a struct attach_request, the reply a struct attach_reply. */
int attach__work(void *arg, int reply_fd);

/* Copies what the BPF side needs of a layout. */
struct nb_library;
void attach__describe(const struct nccl_layout *layout, struct nb_library *ret);

#endif
