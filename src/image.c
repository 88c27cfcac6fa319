/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "image.h"

#include <errno.h>
#include <string.h>

#include "cuda_elf.h"
#include "nccl_bpftrace_plugin.h"
#include "usdt.h"
#include "util.h"

#define HOST_MACHINE (NCCL_ARCH_HOST == NCCL_ARCH_X86_64 ? EM_X86_64 : EM_AARCH64)

_Static_assert(NCCL_FN_PROBED <= IMAGE_MAX_SITES, "more probed functions than sites");

static void image__add_site(struct image *image, const struct image_site *site)
{
	if (image->n_sites < IMAGE_MAX_SITES)
		image->sites[image->n_sites++] = *site;
}

/* Readers: 1 when the file is of that kind, 0, or -errno when it cannot be read. */

static int read_nccl(const struct elf_file *file, struct image *image)
{
	const struct nccl_elf_options options = {.arch = NCCL_ARCH_HOST};
	int err = nccl_elf__read_file(&options, file, &image->nccl);

	if (err || image->nccl.status == NCCL_IMAGE_NOT_NCCL)
		return err;
	for (uint32_t i = 0; image->nccl.status == NCCL_IMAGE_OK && i < NCCL_FN_PROBED; i++)
		if (image->nccl.entry[i])
			image__add_site(image, &(struct image_site){
						       .offset = image->nccl.entry[i],
						       .function = i,
					       });
	return 1;
}

static int read_plugin(const struct elf_file *file, struct image *image)
{
	struct usdt usdt;
	int err = usdt__find(file, NBP_PROVIDER, NBP_PROBE, &usdt);

	/* Without its semaphore it would never wake: it is none of ours. */
	if (err == -ENOENT || err == -EBADMSG || err == -EFBIG || (!err && !usdt.semaphore))
		return 0;
	if (err)
		return err;
	image__add_site(image,
			&(struct image_site){.offset = usdt.offset, .ref_ctr = usdt.semaphore});
	image->semaphore = usdt.semaphore_vaddr - usdt.vaddr + usdt.offset;
	return 1;
}

static int read_foreign(const struct elf_file *file, struct image *image)
{
	return foreign_tables__read(file, &image->tables);
}

static void add_cuda_site(void *ctx, uint64_t offset, enum nb_graph_call call)
{
	struct image *image = ctx;

	for (uint32_t i = 0; i < image->n_sites; i++)
		if (image->sites[i].offset == offset) /* two names of one function */
			return;
	image__add_site(image, &(struct image_site){.offset = offset, .function = call});
}

static int read_cuda(const struct elf_file *file, struct image *image)
{
	return cuda_elf__each_site(file, HOST_MACHINE, add_cuda_site, image);
}

static int (*const readers[IMAGE_KINDS])(const struct elf_file *file, struct image *image) = {
	[IMAGE_NCCL] = read_nccl,
	[IMAGE_PLUGIN] = read_plugin,
	[IMAGE_CUDA] = read_cuda,
	[IMAGE_FOREIGN] = read_foreign,
};

static int image__judge(struct image *image, const struct elf_file *file)
{
	for (int kind = IMAGE_NONE + 1; kind < IMAGE_KINDS; kind++) {
		int is = readers[kind](file, image);

		if (is < 0)
			return is;
		if (is) {
			image->kind = kind;
			return 0;
		}
	}
	return 0;
}

int image__read(int fd, struct image *ret)
{
	struct image image = {.kind = IMAGE_NONE};
	struct elf_file file;
	int err = elf_file__open(&file, fd);

	if (!err) {
		err = image__judge(&image, &file);
		elf_file__close(&file);
	} else if (err == -ENOEXEC || err == -EBADMSG || err == -EFBIG) {
		err = 0; /* no program or library, or one that nobody could have mapped to run */
	}
	if (!err)
		*ret = image;
	return err;
}
