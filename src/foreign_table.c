/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "foreign_table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "util.h"

#define SYMBOL "ncclProfiler_v"

_Static_assert(NB_FOREIGN_STOP + 1 == FOREIGN_N_SITES && !NB_FOREIGN_START, "sites");

#define FUNCTIONS 5 /* behind the name */

/* Which words of a table the functions to be probed are. */
static const uint8_t words[FOREIGN_N_SITES] = {
	[NB_FOREIGN_INIT] = 1,	   [NB_FOREIGN_START] = 2, [NB_FOREIGN_STATE] = 4,
	[NB_FOREIGN_FINALIZE] = 5, [NB_FOREIGN_STOP] = 3,
};

/* The code's p_vaddr - p_offset, of the segment that is mapped first. */
static int file__exec_delta(const struct elf_file *file, uint64_t *ret)
{
	for (int i = 0; i < file->n_segments; i++) {
		const Elf64_Phdr *segment = &file->segments[i];

		if (segment->p_type == PT_LOAD && segment->p_flags & PF_X) {
			*ret = segment->p_vaddr - segment->p_offset;
			return 0;
		}
	}
	return -ENOENT;
}

static bool symbol__is_table(const struct elf_file *file, const Elf64_Sym *symbol)
{
	return symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT &&
	       (!symbol->st_size || symbol->st_size >= FOREIGN_TABLE_BYTES) &&
	       elf_file__is_variable(file, symbol->st_value, 8) &&
	       elf_file__is_variable(file, symbol->st_value + FOREIGN_TABLE_BYTES - 8, 8);
}

struct walk {
	const struct elf_file *file;
	uint64_t delta;
	struct foreign_tables *tables;
	int n;
};

static void walk__offer(struct walk *walk, int version, const Elf64_Sym *symbol)
{
	if (!symbol__is_table(walk->file, symbol) || walk->tables->at[version])
		return;
	walk->tables->at[version] = symbol->st_value - walk->delta;
	walk->n++;
}

static int walk__visit(void *ctx, const char *name, const Elf64_Sym *symbol)
{
	char wanted[sizeof(SYMBOL) + 11];

	for (int version = 1; version <= FOREIGN_LAST; version++) {
		snprintf(wanted, sizeof(wanted), SYMBOL "%d", version);
		if (!strcmp(name, wanted))
			walk__offer(ctx, version, symbol);
	}
	return 0;
}

/* A file with the old hash table only: every name. */
static int walk__all(struct walk *walk)
{
	const Elf64_Shdr *table = elf_file__section_of_type(walk->file, SHT_DYNSYM);

	return table ? elf_file__each_symbol(walk->file, table, walk__visit, walk) : 0;
}

static int walk__look_up(struct walk *walk)
{
	char name[sizeof(SYMBOL) + 11];
	Elf64_Sym symbol;
	int err;

	for (int version = 1; version <= FOREIGN_LAST; version++) {
		snprintf(name, sizeof(name), SYMBOL "%d", version);
		err = elf_file__dynamic_symbol(walk->file, name, &symbol);
		if (err == -EOPNOTSUPP)
			return walk__all(walk);
		if (err && err != -ENOENT)
			return err;
		if (!err)
			walk__offer(walk, version, &symbol);
	}
	return 0;
}

int foreign_tables__read(const struct elf_file *file, struct foreign_tables *ret)
{
	struct foreign_tables tables = {};
	struct walk walk = {.file = file, .tables = &tables};
	int err = file__exec_delta(file, &walk.delta) ?: walk__look_up(&walk);

	/* damaged tables: nobody could have loaded it as a plugin */
	if (err == -ENOENT || err == -EBADMSG || err == -EFBIG)
		return 0;
	if (err < 0)
		return err;
	*ret = tables;
	return walk.n > 0;
}

/* src/plugin/profiler.cc of each release; 2.31 and 2.32 by the strings in the shipped libraries. */
static int nccl__native(int32_t version)
{
	static const int32_t since[] = {22300, 22400, 22600, 22700, 22800, 22900, 23100};
	int native = 0;

	while (native < (int)ARRAY_SIZE(since) && version >= since[native])
		native++;
	return native;
}

int foreign_tables__choose(const struct foreign_tables *tables, int32_t nccl_version,
			   const char **ret_why)
{
	int native = nccl__native(nccl_version), chosen;

	*ret_why = "which of its versions NCCL takes is not known: nor is NCCL's own";
	if (!nccl_version)
		return 0;
	*ret_why = "this NCCL takes no profiler plugin: those begin with 2.23";
	if (!native)
		return 0;
	/* A release that is newer than what is known here may take any that is newer. */
	for (chosen = native < NB_FOREIGN_ABIS ? native : FOREIGN_LAST; chosen; chosen--)
		if (tables->at[chosen])
			break;
	*ret_why = "it has no table that this NCCL takes";
	if (!chosen)
		return 0;
	*ret_why = "its version of the profiler interface is newer than what is known here";
	return chosen < NB_FOREIGN_ABIS ? chosen : 0;
}

/* Each costs its job a trap a call. Before v4 there are no times, and an operation tells itself. */
static bool is_needed(int version, int site)
{
	switch (site) {
	case NB_FOREIGN_STATE:
	case NB_FOREIGN_INIT:
		return version >= 4;
	case NB_FOREIGN_STOP:
		return version == 4;
	default:
		return true;
	}
}

enum foreign_verdict foreign_table__check(int version,
					  const uint64_t table[FOREIGN_TABLE_BYTES / 8],
					  const struct foreign_code *code,
					  struct foreign_sites *ret)
{
	struct foreign_sites sites = {};

	for (int i = 1; i <= FUNCTIONS; i++) {
		if (!table[i])
			return FOREIGN_EMPTY;
		if (table[i] < code->start || table[i] >= code->end)
			return FOREIGN_OUTSIDE;
	}
	for (int i = 0; i < FOREIGN_N_SITES; i++)
		if (is_needed(version, i))
			sites.offset[i] = table[words[i]] - code->start + code->file_offset;
	*ret = sites;
	return FOREIGN_FOUND;
}

const char *foreign_verdict__reason(enum foreign_verdict verdict)
{
	static const char *const reasons[FOREIGN_VERDICTS] = {
		[FOREIGN_FOUND] = "found",
		[FOREIGN_UNREADABLE] = "its table cannot be read from the process's memory",
		[FOREIGN_EMPTY] = "its table has no function where NCCL calls one",
		[FOREIGN_OUTSIDE] = "its table names a function outside the code of its own file",
		[FOREIGN_REFUSED] = "the kernel takes no probe on its functions",
	};

	return verdict < FOREIGN_VERDICTS ? reasons[verdict] : "unknown";
}
