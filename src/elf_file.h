/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reading 64-bit little-endian ELF files that anybody may have written: sections, symbols and code
 * by pread(), with every size and index checked against the file and against a cap. Not libelf: it
 * allocates what headers claim, and has no look-up of one name, which is all that most files need.
 */
#ifndef ELF_FILE_H
#define ELF_FILE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_FILE_MAX_SEGMENTS 64
#define ELF_FILE_MAX_SECTIONS 1024
#define ELF_FILE_MAX_TABLE    (512UL << 20) /* bytes of a section that is walked or searched */

struct elf_file {
	int fd; /* the caller's */
	uint64_t size;
	uint16_t machine;
	uint16_t n_segments, n_sections;
	Elf64_Phdr segments[ELF_FILE_MAX_SEGMENTS];
	Elf64_Shdr *sections;
	char *section_names; /* NUL at the end */
	size_t section_names_len;
};

/* Called for each symbol that is defined in the file; non-zero ends the walk and is its result. */
typedef int (*elf_symbol_fn)(void *ctx, const char *name, const Elf64_Sym *symbol);

/* Reads the headers. -ENOEXEC: no program or library of this kind; -EBADMSG: damaged headers. */
int elf_file__open(struct elf_file *file, int fd);
void elf_file__close(struct elf_file *file);

/* len bytes at an offset; -EBADMSG when the file has not that many. */
int elf_file__read(const struct elf_file *file, uint64_t offset, void *buf, size_t len);

/* The first section of that name, or of that type; NULL. */
const Elf64_Shdr *elf_file__section(const struct elf_file *file, const char *name);
const Elf64_Shdr *elf_file__section_of_type(const struct elf_file *file, uint32_t type);
/* The string table that a symbol table names; NULL. */
const Elf64_Shdr *elf_file__strings_of(const struct elf_file *file, const Elf64_Shdr *table);

/* A whole section in memory that the caller frees; -EFBIG beyond cap. One NUL follows it. */
int elf_file__load(const struct elf_file *file, const Elf64_Shdr *section, size_t cap, char **ret,
		   size_t *ret_len);

/* Whether a section holds these bytes; *ret_offset in the file. -ENOENT. */
int elf_file__find(const struct elf_file *file, const Elf64_Shdr *section, const void *needle,
		   size_t len, uint64_t *ret_offset);

int elf_file__each_symbol(const struct elf_file *file, const Elf64_Shdr *table, elf_symbol_fn fn,
			  void *ctx);

/*
 * One name in .dynsym by its .gnu.hash, at the cost of a few small reads. -ENOENT: not there;
 * -EOPNOTSUPP: no such hash. The symbol may be an import (st_shndx SHN_UNDEF).
 */
int elf_file__dynamic_symbol(const struct elf_file *file, const char *name, Elf64_Sym *ret);

/* Whether it is a library of that name (DT_SONAME). */
bool elf_file__is_called(const struct elf_file *file, const char *soname);

/* The loaded segment with these flags (PF_X) that holds an address and is in the file; NULL. */
const Elf64_Phdr *elf_file__segment(const struct elf_file *file, uint64_t vaddr, uint32_t flags);

/* Whether a variable of this size can lie there: writable, aligned, .bss included. */
bool elf_file__is_variable(const struct elf_file *file, uint64_t vaddr, uint64_t size);

#endif
