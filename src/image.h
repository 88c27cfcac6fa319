/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What an executable file is to the tracer, and where to probe it. Each kind is one row of a table
 * in image.c; the program that its probes run is told by the kind, too (probe__program_fd()).
 */
#ifndef IMAGE_H
#define IMAGE_H

#include <stdint.h>

#include "elf_file.h"
#include "foreign_table.h"
#include "nccl_elf.h"

#define IMAGE_MAX_SITES 48

/* Of a file that could be more than one, the first. */
enum image_kind {
	IMAGE_NONE, /* nothing to probe */
	IMAGE_NCCL, /* holds NCCL, under whatever name; whether it can be traced says its status */
	IMAGE_PLUGIN,  /* the cooperating profiler plugin: USDT probe nccl_bpftrace:batch */
	IMAGE_CUDA,    /* the CUDA driver: captures and launches of graphs */
	IMAGE_FOREIGN, /* another profiler plugin: probed in one process only, foreign_attach.h */
	IMAGE_KINDS,
};

struct image_site {
	uint64_t offset;   /* in the file */
	uint64_t ref_ctr;  /* offset in the file of the counter that the kernel raises; 0: none */
	uint32_t function; /* of NCCL: enum nccl_function_id; of CUDA: enum nb_graph_call */
	uint32_t pad;
};

/* Plain data: it crosses a pipe from a helper process. */
struct image {
	int32_t kind;	  /* enum image_kind */
	uint32_t n_sites; /* 0: cannot be probed */
	struct image_site sites[IMAGE_MAX_SITES];
	struct nccl_image nccl;	      /* IMAGE_NCCL */
	struct foreign_tables tables; /* IMAGE_FOREIGN */
	uint64_t semaphore; /* IMAGE_PLUGIN: link-time address less exec_delta, see nccl_image */
};

/* 0 or -errno when the file cannot be read at all. */
int image__read(int fd, struct image *ret);

#endif
