/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The GPUs of this node, as the NVIDIA kernel driver lists them: one directory
 * /proc/driver/nvidia/gpus/<bus id>/ each, with a file "information" (the driver's nv-procfs.c).
 * No NVML, so that nothing is loaded into the agent and no GPU is woken up.
 *
 * MIG instances are not listed there and not known here; their parent GPU is.
 */
#ifndef NCCL_BPFTRACE_GPU_H
#define NCCL_BPFTRACE_GPU_H

#include <stddef.h>
#include <stdint.h>

#define GPU_PROC_ROOT "/proc/driver/nvidia/gpus"
#define GPU_MAX	      256

struct gpu {
	char uuid[48];	/* "GPU-" and 8-4-4-4-12 hex digits; "" while the driver does not know it */
	int64_t bus_id; /* in NCCL's form: domain << 20 | bus << 12 | device << 4 | function */
	unsigned int
		index; /* the node's, as nvidia-smi counts: by bus id, excluded GPUs left out */
	int minor;     /* of /dev/nvidia<minor>; -1 = not known */
};

struct gpu_table;

/*
 * Reads the GPUs below root (normally GPU_PROC_ROOT). A node without the driver has no such
 * directory: that is an empty table. Directories past GPU_MAX and those whose bus id cannot be
 * told are left out.
 * Returns 0 or -errno (-ENOMEM, -EACCES, ...); free with gpu_table__free().
 */
int gpu_table__load(struct gpu_table **ret, const char *root);
void gpu_table__free(struct gpu_table *table); /* NULL is fine */

/* By ncclComm's busId; NULL when the node has no such GPU. It lives as long as the table. */
const struct gpu *gpu_table__by_bus_id(const struct gpu_table *table, int64_t bus_id);

/* By the text of its UUID, in either case; NULL when the node has no such GPU, and for "". */
const struct gpu *gpu_table__by_uuid(const struct gpu_table *table, const char *uuid);

#endif
