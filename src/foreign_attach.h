/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Puts probes on the functions that a plugin's table names in one process's memory; runs in a
 * helper. They are that process's alone: where a table lies about where its functions are, nobody
 * else who maps the file pays for it, or has an instruction cut in two.
 */
#ifndef FOREIGN_ATTACH_H
#define FOREIGN_ATTACH_H

#include "foreign_table.h"

struct foreign_request {
	uint32_t pid;
	int32_t program_fd; /* -1: only look */
	int32_t version;    /* N of ncclProfiler_vN */
	uint64_t table;	    /* its address in the process */
	struct foreign_code code;
	uint64_t map_start, map_end; /* names the file as /proc/PID/map_files/<start>-<end> */
};

/* POD: crosses the helper's socket, with a link for each site when found. */
struct foreign_reply {
	int32_t verdict; /* enum foreign_verdict */
	int32_t err;	 /* of FOREIGN_UNREADABLE and FOREIGN_REFUSED: -errno */
	struct foreign_sites sites;
};

/* A helper_work_fn: arg is a struct foreign_request, the reply a struct foreign_reply. */
int foreign_attach__work(void *arg, int reply_fd);

#endif
