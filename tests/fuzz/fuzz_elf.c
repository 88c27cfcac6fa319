/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A tenant's file: any bytes at all are read without harm, and offsets told lie inside the file. */
#include "../../src/cuda_elf.c"
#include "../../src/elf_file.c"
#include "../../src/foreign_table.c"
#include "../../src/image.c"
#include "../../src/nccl_api.c"
#include "../../src/nccl_code.c"
#include "../../src/nccl_code_arm64.c"
#include "../../src/nccl_code_x86.c"
#include "../../src/nccl_elf.c"
#include "../../src/nccl_layout.c"
#include "../../src/usdt.c"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct image image;

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	if (!image__read(fd, &image))
		for (unsigned int i = 0; i < image.n_sites; i++)
			if (image.sites[i].offset >= size || image.sites[i].ref_ctr >= size)
				abort();
	close(fd);
	return 0;
}
