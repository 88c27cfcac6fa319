/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "elf_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"

#define MAX_SECTION_NAMES (64UL << 10)
#define FIND_CHUNK	  (256UL << 10)
#define SYMBOLS_AT_ONCE	  4096
#define MAX_HASH_CHAIN	  4096
#define MAX_DYNAMIC	  128 /* entries of .dynamic looked at; DT_SONAME is among the first */

static bool elf_file__has(const struct elf_file *file, uint64_t offset, uint64_t len)
{
	return offset <= file->size && len <= file->size - offset;
}

int elf_file__read(const struct elf_file *file, uint64_t offset, void *buf, size_t len)
{
	size_t done = 0;

	if (!elf_file__has(file, offset, len))
		return -EBADMSG;
	while (done < len) {
		ssize_t n = pread(file->fd, (char *)buf + done, len - done, offset + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EBADMSG; /* cut short meanwhile */
		done += n;
	}
	return 0;
}

static int elf_file__read_segments(struct elf_file *file, const Elf64_Ehdr *header)
{
	if (!header->e_phnum)
		return -ENOEXEC;
	if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum > ELF_FILE_MAX_SEGMENTS)
		return -EBADMSG;
	file->n_segments = header->e_phnum;
	return elf_file__read(file, header->e_phoff, file->segments,
			      file->n_segments * sizeof(Elf64_Phdr));
}

/* A file may have none. More than 1024: a relocatable object by its nature, nothing that runs. */
static int elf_file__read_sections(struct elf_file *file, const Elf64_Ehdr *header)
{
	int err;

	if (!header->e_shoff || !header->e_shnum)
		return 0;
	if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shnum > ELF_FILE_MAX_SECTIONS)
		return -EBADMSG;
	file->sections = calloc(header->e_shnum, sizeof(Elf64_Shdr));
	if (!file->sections)
		return -ENOMEM;
	err = elf_file__read(file, header->e_shoff, file->sections,
			     header->e_shnum * sizeof(Elf64_Shdr));
	if (err)
		return err;
	file->n_sections = header->e_shnum;
	if (header->e_shstrndx >= file->n_sections)
		return 0;
	return elf_file__load(file, &file->sections[header->e_shstrndx], MAX_SECTION_NAMES,
			      &file->section_names, &file->section_names_len);
}

static bool header__is_ours(const Elf64_Ehdr *header)
{
	return !memcmp(header->e_ident, ELFMAG, SELFMAG) &&
	       header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_ident[EI_DATA] == ELFDATA2LSB &&
	       (header->e_type == ET_EXEC || header->e_type == ET_DYN);
}

int elf_file__open(struct elf_file *file, int fd)
{
	Elf64_Ehdr header;
	struct stat st;
	int err;

	memset(file, 0, sizeof(*file));
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(header))
		return -ENOEXEC;
	file->fd = fd;
	file->size = st.st_size;
	if ((err = elf_file__read(file, 0, &header, sizeof(header))))
		return err;
	if (!header__is_ours(&header))
		return -ENOEXEC;
	file->machine = header.e_machine;
	if ((err = elf_file__read_segments(file, &header)) ||
	    (err = elf_file__read_sections(file, &header)))
		elf_file__close(file);
	return err;
}

void elf_file__close(struct elf_file *file)
{
	free(file->sections);
	free(file->section_names);
	file->sections = NULL;
	file->section_names = NULL;
	file->n_sections = 0;
}

const Elf64_Shdr *elf_file__section(const struct elf_file *file, const char *name)
{
	for (unsigned int i = 0; file->section_names && i < file->n_sections; i++)
		if (file->sections[i].sh_name < file->section_names_len &&
		    !strcmp(file->section_names + file->sections[i].sh_name, name))
			return &file->sections[i];
	return NULL;
}

const Elf64_Shdr *elf_file__section_of_type(const struct elf_file *file, uint32_t type)
{
	for (unsigned int i = 0; i < file->n_sections; i++)
		if (file->sections[i].sh_type == type)
			return &file->sections[i];
	return NULL;
}

const Elf64_Shdr *elf_file__strings_of(const struct elf_file *file, const Elf64_Shdr *table)
{
	if (table->sh_link >= file->n_sections ||
	    file->sections[table->sh_link].sh_type != SHT_STRTAB)
		return NULL;
	return &file->sections[table->sh_link];
}

int elf_file__load(const struct elf_file *file, const Elf64_Shdr *section, size_t cap, char **ret,
		   size_t *ret_len)
{
	char *data;
	int err;

	if (section->sh_type == SHT_NOBITS ||
	    !elf_file__has(file, section->sh_offset, section->sh_size))
		return -EBADMSG;
	if (section->sh_size > cap)
		return -EFBIG;
	data = malloc(section->sh_size + 1);
	if (!data)
		return -ENOMEM;
	err = elf_file__read(file, section->sh_offset, data, section->sh_size);
	if (err) {
		free(data);
		return err;
	}
	data[section->sh_size] = '\0';
	*ret = data;
	*ret_len = section->sh_size;
	return 0;
}

int elf_file__find(const struct elf_file *file, const Elf64_Shdr *section, const void *needle,
		   size_t len, uint64_t *ret_offset)
{
	uint64_t at = section->sh_offset, left = section->sh_size;
	_cleanup_free_ char *chunk = malloc(FIND_CHUNK);

	if (!chunk)
		return -ENOMEM;
	if (section->sh_type == SHT_NOBITS || !elf_file__has(file, at, left))
		return -EBADMSG;
	if (left > ELF_FILE_MAX_TABLE)
		return -EFBIG;
	while (left >= len) {
		size_t n = left < FIND_CHUNK ? left : FIND_CHUNK;
		int err = elf_file__read(file, at, chunk, n);
		const char *hit = err ? NULL : memmem(chunk, n, needle, len);

		if (err)
			return err;
		if (hit) {
			*ret_offset = at + (hit - chunk);
			return 0;
		}
		/* one that begins in this chunk and ends in the next must be seen too */
		at += n - (len - 1);
		left -= n - (len - 1);
	}
	return -ENOENT;
}

static int symbols__visit(const Elf64_Sym *symbols, size_t n, const char *strings,
			  size_t strings_len, elf_symbol_fn fn, void *ctx)
{
	for (size_t i = 0; i < n; i++) {
		int err;

		if (symbols[i].st_shndx == SHN_UNDEF || symbols[i].st_name >= strings_len)
			continue;
		err = fn(ctx, strings + symbols[i].st_name, &symbols[i]);
		if (err)
			return err;
	}
	return 0;
}

int elf_file__each_symbol(const struct elf_file *file, const Elf64_Shdr *table, elf_symbol_fn fn,
			  void *ctx)
{
	const Elf64_Shdr *section = elf_file__strings_of(file, table);
	_cleanup_free_ char *strings = NULL;
	_cleanup_free_ Elf64_Sym *symbols = NULL;
	uint64_t n = table->sh_size / sizeof(*symbols), done = 0;
	size_t strings_len = 0;
	int err;

	if (!section || table->sh_entsize != sizeof(*symbols))
		return -EBADMSG;
	if (table->sh_size > ELF_FILE_MAX_TABLE)
		return -EFBIG;
	err = elf_file__load(file, section, ELF_FILE_MAX_TABLE, &strings, &strings_len);
	if (err)
		return err;
	symbols = malloc(SYMBOLS_AT_ONCE * sizeof(*symbols));
	if (!symbols)
		return -ENOMEM;
	for (; done < n; done += SYMBOLS_AT_ONCE) {
		size_t part = n - done < SYMBOLS_AT_ONCE ? n - done : SYMBOLS_AT_ONCE;

		if ((err = elf_file__read(file, table->sh_offset + done * sizeof(*symbols), symbols,
					  part * sizeof(*symbols))) ||
		    (err = symbols__visit(symbols, part, strings, strings_len, fn, ctx)))
			return err;
	}
	return 0;
}

/* Header of a GNU hash section; then the Bloom filter, the buckets, one word a symbol. */
struct gnu_hash {
	uint32_t n_buckets, first_symbol, bloom_words, bloom_shift;
};

static uint32_t gnu_hash__of(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

/* The index at which the chain of a hash begins; -ENOENT when the filter or the bucket is empty. */
static int gnu_hash__bucket(const struct elf_file *file, const Elf64_Shdr *section,
			    const struct gnu_hash *table, uint32_t hash, uint32_t *ret_index)
{
	uint64_t bloom = section->sh_offset + sizeof(*table), word;
	uint64_t buckets = bloom + 8ULL * table->bloom_words;
	uint32_t index;
	int err;

	if (!table->n_buckets || !table->bloom_words || table->bloom_shift > 31)
		return -EBADMSG;
	err = elf_file__read(file, bloom + 8ULL * (hash / 64 % table->bloom_words), &word, 8);
	if (err)
		return err;
	if (!(word >> (hash % 64) & 1) || !(word >> ((hash >> table->bloom_shift) % 64) & 1))
		return -ENOENT;
	err = elf_file__read(file, buckets + 4ULL * (hash % table->n_buckets), &index, 4);
	if (err)
		return err;
	if (index < table->first_symbol)
		return index ? -EBADMSG : -ENOENT;
	*ret_index = index;
	return 0;
}

static int elf_file__symbol_at(const struct elf_file *file, const Elf64_Shdr *symbols,
			       uint32_t index, const char *name, Elf64_Sym *ret)
{
	const Elf64_Shdr *strings = elf_file__strings_of(file, symbols);
	size_t len = strlen(name) + 1;
	Elf64_Sym symbol;
	char found[64];
	int err;

	if (!strings || len > sizeof(found) || index >= symbols->sh_size / sizeof(symbol))
		return -EBADMSG;
	err = elf_file__read(file, symbols->sh_offset + index * sizeof(symbol), &symbol,
			     sizeof(symbol));
	if (err)
		return err;
	if (symbol.st_name >= strings->sh_size || strings->sh_size - symbol.st_name < len)
		return -ENOENT;
	err = elf_file__read(file, strings->sh_offset + symbol.st_name, found, len);
	if (err || memcmp(found, name, len))
		return err ? err : -ENOENT;
	*ret = symbol;
	return 0;
}

int elf_file__dynamic_symbol(const struct elf_file *file, const char *name, Elf64_Sym *ret)
{
	const Elf64_Shdr *section = elf_file__section_of_type(file, SHT_GNU_HASH);
	const Elf64_Shdr *symbols = elf_file__section_of_type(file, SHT_DYNSYM);
	uint32_t hash = gnu_hash__of(name), index, entry;
	struct gnu_hash table;
	uint64_t chain;
	int err;

	if (!section || !symbols)
		return -EOPNOTSUPP;
	if ((err = elf_file__read(file, section->sh_offset, &table, sizeof(table))) ||
	    (err = gnu_hash__bucket(file, section, &table, hash, &index)))
		return err;
	chain = section->sh_offset + sizeof(table) + 8ULL * table.bloom_words +
		4ULL * table.n_buckets - 4ULL * table.first_symbol;
	for (unsigned int i = 0; i < MAX_HASH_CHAIN; i++, index++) {
		err = elf_file__read(file, chain + 4ULL * index, &entry, sizeof(entry));
		if (err)
			return err;
		if ((entry | 1) == (hash | 1)) {
			err = elf_file__symbol_at(file, symbols, index, name, ret);
			if (err != -ENOENT)
				return err;
		}
		if (entry & 1)
			return -ENOENT;
	}
	return -EBADMSG;
}

bool elf_file__is_called(const struct elf_file *file, const char *soname)
{
	const Elf64_Shdr *section = elf_file__section_of_type(file, SHT_DYNAMIC);
	const Elf64_Shdr *strings = section ? elf_file__strings_of(file, section) : NULL;
	size_t len = strlen(soname) + 1;
	Elf64_Dyn entry = {.d_tag = DT_NULL};
	char found[64];

	for (unsigned int i = 0; strings && i < MAX_DYNAMIC && entry.d_tag != DT_SONAME; i++)
		if (i >= section->sh_size / sizeof(entry) ||
		    elf_file__read(file, section->sh_offset + i * sizeof(entry), &entry,
				   sizeof(entry)))
			return false;
	if (entry.d_tag != DT_SONAME || len > sizeof(found) ||
	    entry.d_un.d_val >= strings->sh_size || strings->sh_size - entry.d_un.d_val < len)
		return false;
	return !elf_file__read(file, strings->sh_offset + entry.d_un.d_val, found, len) &&
	       !memcmp(found, soname, len);
}

const Elf64_Phdr *elf_file__segment(const struct elf_file *file, uint64_t vaddr, uint32_t flags)
{
	for (unsigned int i = 0; i < file->n_segments; i++) {
		const Elf64_Phdr *segment = &file->segments[i];

		if (segment->p_type == PT_LOAD && (segment->p_flags & flags) == flags &&
		    vaddr >= segment->p_vaddr && vaddr - segment->p_vaddr < segment->p_filesz &&
		    elf_file__has(file, segment->p_offset, segment->p_filesz))
			return segment;
	}
	return NULL;
}

bool elf_file__is_variable(const struct elf_file *file, uint64_t vaddr, uint64_t size)
{
	for (unsigned int i = 0; i < file->n_segments; i++) {
		const Elf64_Phdr *segment = &file->segments[i];

		if (segment->p_type == PT_LOAD && (segment->p_flags & PF_W) &&
		    vaddr >= segment->p_vaddr && vaddr - segment->p_vaddr < segment->p_memsz &&
		    segment->p_memsz - (vaddr - segment->p_vaddr) >= size && vaddr % size == 0)
			return true;
	}
	return false;
}
