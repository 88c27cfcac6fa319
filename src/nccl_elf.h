/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a file says about the NCCL in it: where to probe, which release, where communicators are.
 * Reads only, executes nothing, believes nothing; a file that is not NCCL costs some ten reads.
 * Known limit: a file without section headers is taken for one without NCCL.
 */
#ifndef NCCL_ELF_H
#define NCCL_ELF_H

#include <stdbool.h>
#include <stdint.h>

#include "elf_file.h"
#include "nccl_api.h"
#include "nccl_layout.h"

/* Every status but the first is about a file that does hold NCCL. Kinds are appended. */
enum nccl_image_status {
	NCCL_IMAGE_NOT_NCCL,
	NCCL_IMAGE_OK,
	NCCL_IMAGE_NO_SYMBOLS, /* NCCL is linked into it, its functions have no names */
	NCCL_IMAGE_WRONG_ARCH, /* another machine's code */
	NCCL_IMAGE_IFUNC, /* its functions are chosen at run time: where they are is not in the file
			   */
	NCCL_IMAGE_DAMAGED, /* truncated, or headers that contradict each other */
};

#define NCCL_IMAGE_MAX_UNKNOWN	8
#define NCCL_IMAGE_UNKNOWN_SIZE 48

/* Plain data: it crosses a pipe from a helper process. */
struct nccl_image {
	int32_t version;		/* 10000 * major + 100 * minor + patch; 0: unknown */
	int32_t status;			/* enum nccl_image_status */
	uint64_t entry[NCCL_FN_PROBED]; /* offset in the file of each function, for uprobes; 0: not
					   there */
	uint64_t exec_delta;		/* p_vaddr - p_offset of the segment that holds them */
	uint64_t comms_vaddr;	/* link-time address of NCCL's own list ncclComms; 0: unknown */
	uint64_t n_comms_vaddr; /* and of its length nNcclComms */
	struct nccl_layout layout;
	uint8_t from_symtab;	 /* the functions were found in .symtab: linked in, not exported */
	uint8_t comms_from_code; /* the list's address was recovered from machine code */
	uint16_t n_exported;	 /* API functions in the file, probed or not */
	uint16_t
		n_unknown; /* those of them that our table does not know; the first ones by name: */
	char unknown[NCCL_IMAGE_MAX_UNKNOWN][NCCL_IMAGE_UNKNOWN_SIZE];
};

struct nccl_elf_options {
	enum nccl_arch arch; /* the machine that the file is read for */
	bool code_only;	     /* as a stripped one, the first of its release that is seen */
};

/* 0 or -errno when the file cannot be read at all; what it is stands in the status. */
int nccl_elf__read_file(const struct nccl_elf_options *options, const struct elf_file *file,
			struct nccl_image *ret);
int nccl_elf__read(const struct nccl_elf_options *options, int fd, struct nccl_image *ret);

/* One phrase, to stand behind a file's name: "holds NCCL, but ...". */
const char *nccl_image__reason(const struct nccl_image *image);

#endif
