/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A tenant's file: any bytes at all are read without harm, and offsets told lie inside the file. */
#include "../../src/elf_file.c"
#include "../../src/nccl_api.c"
#include "../../src/nccl_code.c"
#include "../../src/nccl_code_arm64.c"
#include "../../src/nccl_code_x86.c"
#include "../../src/nccl_elf.c"
#include "../../src/nccl_layout.c"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct nccl_image image;

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	if (!nccl_elf__read(fd, &image) && image.status == NCCL_IMAGE_OK)
		for (unsigned int i = 0; i < NCCL_FN_PROBED; i++)
			if (image.entry[i] >= size)
				abort();
	close(fd);
	return 0;
}
