/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where libcuda captures, instantiates and launches graphs. */
#ifndef CUDA_ELF_H
#define CUDA_ELF_H

#include <stdint.h>

#include "elf_file.h"
#include "nccl_bpftrace_record.h"

typedef void cuda_site_fn(void *ctx, uint64_t offset, enum nb_graph_call call);

/*
 * Calls fn for each such function, by its offset in the file. 1; 0 when the file is not the CUDA
 * driver (or is for another machine); -errno when it cannot be read.
 */
int cuda_elf__each_site(const struct elf_file *file, uint16_t machine, cuda_site_fn *fn, void *ctx);

#endif
