/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * USDT probes that a file describes: notes of type 3, owner "stapsdt", as systemtap's <sys/sdt.h>
 * writes them and as perf, bpftrace and libbpf read them.
 */
#ifndef USDT_H
#define USDT_H

#include <stdint.h>

#include "elf_file.h"

struct usdt {
	uint64_t offset;		 /* of the probe, in the file */
	uint64_t semaphore;		 /* offset in the file; 0: it has none */
	uint64_t vaddr, semaphore_vaddr; /* link-time addresses of the two */
};

/*
 * The first probe of that name. 0; -ENOENT: there is none; -EBADMSG, -EFBIG: damaged notes, a
 * probe outside the code, or a semaphore that is no variable kept in the file.
 */
int usdt__find(const struct elf_file *file, const char *provider, const char *probe,
	       struct usdt *ret);

#endif
