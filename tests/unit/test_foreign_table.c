/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Another plugin's tables: found in a file, chosen by NCCL's version, judged as they lie in memory.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"

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

#include "fake_elf.h"

#define TABLE ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT)

static struct image read_fake(const struct fake *fake)
{
	struct image image = {.kind = -7};
	int fd = memfd_create("fake", MFD_CLOEXEC);

	CHECK_INT(pwrite(fd, fake->bytes, FILE_SIZE, 0), FILE_SIZE);
	CHECK_INT(image__read(fd, &image), 0);
	close(fd);
	return image;
}

TEST(tables_by_either_way_of_looking_up)
{
	for (int with_hash = 0; with_hash < 2; with_hash++) {
		struct image image;
		struct fake fake;

		fake__init(&fake);
		fake__symbol(&fake, S_DYNSYM, "ncclProfiler_v4", TABLE, DATA_VADDR + 0x40, 48);
		fake__symbol(&fake, S_DYNSYM, "ncclProfiler_v5", TABLE, DATA_VADDR + 0x80, 48);
		fake__symbol(&fake, S_DYNSYM, "ncclProfiler_v15", TABLE, DATA_VADDR + 0xc0, 0);
		if (with_hash)
			fake__hash(&fake);
		image = read_fake(&fake);
		CHECK_INT(image.kind, IMAGE_FOREIGN);
		CHECK_INT(image.n_sites, 0);
		CHECK_INT(image.tables.at[4], DATA_VADDR + 0x40 - DELTA);
		CHECK_INT(image.tables.at[5], DATA_VADDR + 0x80 - DELTA);
		CHECK_INT(image.tables.at[15], DATA_VADDR + 0xc0 - DELTA);
		CHECK_INT(image.tables.at[6], 0);
	}
}

TEST(what_is_no_table)
{
	static const struct {
		const char *name;
		unsigned char info;
		uint64_t vaddr, size;
	} no[] = {
		{"ncclProfiler_v5", FUNC, DATA_VADDR + 0x80, 48},
		{"ncclProfiler_v5", TABLE, DATA_VADDR + 0x80, 40},
		{"ncclProfiler_v5", TABLE, DATA_VADDR + 0x84, 48},
		{"ncclProfiler_v5", TABLE, DATA_VADDR + DATA_SIZE - 40, 48},
		{"ncclProfiler_v5", TABLE, TEXT_VADDR, 48}, /* it could not be filled in */
		{"ncclProfiler_v5", TABLE, ~0ULL - 7, 48},
		{"ncclProfiler_v16", TABLE, DATA_VADDR + 0x80, 48},
		{"ncclProfiler_v0", TABLE, DATA_VADDR + 0x80, 48},
		{"ncclProfiler_v5x", TABLE, DATA_VADDR + 0x80, 48},
	};

	for (size_t i = 0; i < ARRAY_SIZE(no); i++) {
		struct fake fake;

		fake__init(&fake);
		fake__symbol(&fake, S_DYNSYM, no[i].name, no[i].info, no[i].vaddr, no[i].size);
		fake__hash(&fake);
		CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
	}
}

TEST(imported_is_not_exported)
{
	struct fake fake;

	fake__init(&fake);
	fake__symbol(&fake, S_DYNSYM, "ncclProfiler_v5", TABLE, DATA_VADDR + 0x80, 48)->st_shndx =
		SHN_UNDEF;
	fake__hash(&fake);
	CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
}

TEST(the_version_that_nccl_takes)
{
	static const struct {
		uint32_t exported; /* bit N */
		int32_t nccl;
		int version;
	} rows[] = {
		{1 << 1, 22304, 1},
		{1 << 2, 22304, 0},
		{1 << 2 | 1 << 1, 22403, 2},
		{1 << 3 | 1 << 2, 22501, 2},
		{1 << 3 | 1 << 2, 22602, 3},
		{1 << 4 | 1 << 5, 22707, 4},
		{1 << 4 | 1 << 5, 22809, 5},
		{1 << 4, 22809, 4},
		{0x7e, 22902, 6},
		{1 << 5, 23007, 5},
		{1 << 7 | 1 << 6, 23007, 6},
		{1 << 7 | 1 << 6, 23102, 0}, /* v7 is not known here */
		{1 << 6 | 1 << 5, 23203, 6},
		{1 << 8 | 1 << 6, 23203, 0},
		{1 << 1, 22203, 0},
		{1 << 5, 0, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct foreign_tables tables = {};
		const char *why = NULL;

		for (int n = 1; n <= FOREIGN_LAST; n++)
			tables.at[n] = rows[i].exported >> n & 1 ? 0x100 * n : 0;
		CHECK_INT(foreign_tables__choose(&tables, rows[i].nccl, &why), rows[i].version);
		CHECK(rows[i].version || why);
	}
}

static const struct foreign_code code = {0x7f0000001000, 0x7f0000005000, 0x1000};

#define AT(offset) (0x7f0000000000 + (offset))

TEST(tables_in_memory)
{
	uint64_t good[] = {AT(0x8000), AT(0x1100), AT(0x1200), AT(0x1300), AT(0x1400), AT(0x4fff)};
	struct foreign_sites sites;

	CHECK_INT(foreign_table__check(5, good, &code, &sites), FOREIGN_FOUND);
	CHECK_INT(sites.offset[NB_FOREIGN_INIT], 0x1100);
	CHECK_INT(sites.offset[NB_FOREIGN_START], 0x1200);
	CHECK_INT(sites.offset[NB_FOREIGN_STATE], 0x1400);
	CHECK_INT(sites.offset[NB_FOREIGN_FINALIZE], 0x4fff);
	CHECK_INT(sites.offset[NB_FOREIGN_STOP], 0);
	CHECK_INT(foreign_table__check(4, good, &code, &sites), FOREIGN_FOUND);
	CHECK_INT(sites.offset[NB_FOREIGN_STOP], 0x1300);
	CHECK_INT(foreign_table__check(3, good, &code, &sites), FOREIGN_FOUND);
	CHECK_INT(sites.offset[NB_FOREIGN_START], 0x1200);
	CHECK_INT(sites.offset[NB_FOREIGN_STATE], 0);
	for (int i = 1; i <= 5; i++) {
		static const uint64_t bad[] = {AT(0xfff), AT(0x5000), 0x1234, ~0ULL};
		uint64_t table[6];

		memcpy(table, good, sizeof(table));
		table[i] = 0;
		CHECK_INT(foreign_table__check(5, table, &code, &sites), FOREIGN_EMPTY);
		for (size_t k = 0; k < ARRAY_SIZE(bad); k++) {
			table[i] = bad[k];
			CHECK_INT(foreign_table__check(5, table, &code, &sites), FOREIGN_OUTSIDE);
		}
	}
}

TEST(the_stand_in_plugin)
{
	struct image image;
	int fd = open("build/tests/plugin/libforeign.so", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		SKIP("build/tests/plugin/libforeign.so is not there");
	CHECK_INT(image__read(fd, &image), 0);
	CHECK_INT(image.kind, IMAGE_FOREIGN);
	for (int n = 1; n <= FOREIGN_LAST; n++)
		CHECK_INT(!!image.tables.at[n], n <= 6);
	close(fd);
}

UNIT_MAIN()
