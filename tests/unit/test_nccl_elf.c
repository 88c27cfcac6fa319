/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Files are made in memory: a library that has all that nccl_elf.c looks for, then spoilt in turn.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "unit.h"

#include "../../src/elf_file.c"
#include "../../src/nccl_api.c"
#include "../../src/nccl_code.c"
#include "../../src/nccl_code_arm64.c"
#include "../../src/nccl_code_x86.c"
#include "../../src/nccl_elf.c"
#include "../../src/nccl_layout.c"

#include "fake_elf.h"

static const struct nccl_elf_options x86 = {.arch = NCCL_ARCH_X86_64};

/* The file of those bytes, read; its first len ones. */
static struct nccl_image read_part(const struct fake *fake, size_t len)
{
	struct nccl_image image = {.status = -7};
	int fd = memfd_create("fake", MFD_CLOEXEC);

	CHECK_INT(pwrite(fd, fake->bytes, len, 0), len);
	CHECK_INT(nccl_elf__read(&x86, fd, &image), 0);
	close(fd);
	return image;
}

static struct nccl_image read_fake(const struct fake *fake)
{
	return read_part(fake, FILE_SIZE);
}

static void check_whole(const struct nccl_image *image)
{
	CHECK_INT(image->status, NCCL_IMAGE_OK);
	CHECK_INT(image->version, 22809);
	CHECK_INT(image->exec_delta, DELTA);
	CHECK_INT(image->entry[NCCL_FN_AllReduce], TEXT_OFFSET + 0x500);
	CHECK_INT(image->entry[NCCL_FN_Send], TEXT_OFFSET + 0x510);
	CHECK_INT(image->entry[NCCL_FN_Recv], 0);
	CHECK_INT(image->layout.source, NCCL_LAYOUT_TABLE);
	CHECK_INT(image->layout.rank, 1066192);
	CHECK_INT(image->comms_vaddr, DATA_VADDR + 8);
	CHECK_INT(image->n_comms_vaddr, DATA_VADDR + 4);
	CHECK_INT(image->comms_from_code, 1);
}

TEST(library)
{
	struct fake fake;
	struct nccl_image image;

	fake__init(&fake);
	fake__nccl(&fake, S_DYNSYM);
	image = read_fake(&fake);
	check_whole(&image);
	CHECK_INT(image.from_symtab, 0);
	CHECK_INT(image.n_exported, 6);
	CHECK_INT(image.n_unknown, 0);
	CHECK_STR(nccl_image__reason(&image), "NCCL");
	fake__hash(&fake);
	image = read_fake(&fake);
	check_whole(&image);
}

TEST(static_executable)
{
	struct fake fake;
	struct nccl_image image;

	fake__init(&fake);
	fake.header->e_type = ET_EXEC;
	fake__section(&fake, S_SYMTAB, ".symtab", SHT_SYMTAB, S_STRTAB, sizeof(Elf64_Sym));
	fake__section(&fake, S_STRTAB, ".strtab", SHT_STRTAB, 0, 1);
	fake__nccl(&fake, S_SYMTAB);
	fake__symbol(&fake, S_SYMTAB, "ncclComms", DATA, DATA_VADDR + 0x20, 8);
	fake__symbol(&fake, S_SYMTAB, "nNcclComms", DATA, DATA_VADDR + 0x10, 4);
	image = read_fake(&fake);
	CHECK_INT(image.status, NCCL_IMAGE_OK);
	CHECK_INT(image.from_symtab, 1);
	CHECK_INT(image.entry[NCCL_FN_AllReduce], TEXT_OFFSET + 0x500);
	CHECK_INT(image.comms_vaddr, DATA_VADDR + 0x20);
	CHECK_INT(image.n_comms_vaddr, DATA_VADDR + 0x10);
	CHECK_INT(image.comms_from_code, 0);
	CHECK_INT(image.n_exported, 1); /* by the twin pncclAllReduce */
}

TEST(importer_is_not_nccl)
{
	struct fake fake;

	fake__init(&fake);
	fake__symbol(&fake, S_DYNSYM, "ncclAllReduce", FUNC, 0, 0)->st_shndx = SHN_UNDEF;
	CHECK_INT(read_fake(&fake).status, NCCL_IMAGE_NOT_NCCL);
	fake__hash(&fake);
	CHECK_INT(read_fake(&fake).status, NCCL_IMAGE_NOT_NCCL);
}

TEST(variable_or_address_outside_the_code_is_no_function)
{
	struct fake fake;

	fake__init(&fake);
	fake__symbol(&fake, S_DYNSYM, "ncclAllReduce", DATA, TEXT_VADDR, 8);
	CHECK_INT(read_fake(&fake).status, NCCL_IMAGE_NOT_NCCL);
	fake__init(&fake);
	fake__symbol(&fake, S_DYNSYM, "ncclAllReduce", FUNC, DATA_VADDR, 8);
	CHECK_INT(read_fake(&fake).status, NCCL_IMAGE_NOT_NCCL);
	fake__init(&fake);
	fake__symbol(&fake, S_DYNSYM, "ncclAllReduce", FUNC, UINT64_MAX, 8);
	CHECK_INT(read_fake(&fake).status, NCCL_IMAGE_NOT_NCCL);
}

TEST(only_the_pnccl_name)
{
	struct fake fake;

	fake__init(&fake);
	fake__symbol(&fake, S_DYNSYM, "pncclAllReduce", FUNC, TEXT_VADDR + 0x20, 8);
	fake__hash(&fake);
	CHECK_INT(read_fake(&fake).entry[NCCL_FN_AllReduce], TEXT_OFFSET + 0x20);
}

TEST(global_function_goes_before_a_local_namesake)
{
	struct fake fake;

	fake__init(&fake);
	fake__section(&fake, S_SYMTAB, ".symtab", SHT_SYMTAB, S_STRTAB, sizeof(Elf64_Sym));
	fake__section(&fake, S_STRTAB, ".strtab", SHT_STRTAB, 0, 1);
	fake__symbol(&fake, S_SYMTAB, "ncclAllReduce", LOCAL, TEXT_VADDR + 0x20, 8);
	fake__symbol(&fake, S_SYMTAB, "ncclAllReduce", FUNC, TEXT_VADDR + 0x40, 8);
	CHECK_INT(read_fake(&fake).entry[NCCL_FN_AllReduce], TEXT_OFFSET + 0x40);
}

TEST(indirect_function_and_other_machine_are_refused)
{
	struct fake fake;
	struct nccl_image image;

	fake__init(&fake);
	fake__symbol(&fake, S_DYNSYM, "ncclAllReduce", IFUNC, TEXT_VADDR, 8);
	image = read_fake(&fake);
	CHECK_INT(image.status, NCCL_IMAGE_IFUNC);
	CHECK_INT(image.entry[NCCL_FN_AllReduce], 0);
	fake__init(&fake);
	fake__nccl(&fake, S_DYNSYM);
	fake.header->e_machine = EM_PPC64;
	image = read_fake(&fake);
	CHECK_INT(image.status, NCCL_IMAGE_WRONG_ARCH);
	CHECK_INT(image.entry[NCCL_FN_AllReduce], 0);
	fake.header->e_ident[EI_CLASS] = ELFCLASS32;
	CHECK_INT(read_fake(&fake).status, NCCL_IMAGE_NOT_NCCL);
}

TEST(stripped_executable_with_cuda_kernels)
{
	struct fake fake;
	struct nccl_image image;

	fake__init(&fake);
	strcpy((char *)fake.bytes + section_offsets[S_RODATA], "NCCL version %d.%d");
	CHECK_INT(read_fake(&fake).status, NCCL_IMAGE_NOT_NCCL);
	fake__section(&fake, S_FATBIN, ".nv_fatbin", SHT_PROGBITS, 0, 16);
	CHECK_INT(read_fake(&fake).status, NCCL_IMAGE_NOT_NCCL); /* a format, no release */
	strcpy((char *)fake.bytes + section_offsets[S_RODATA] + 30, "NCCL version 2.28.9+cuda13.0");
	image = read_fake(&fake);
	CHECK_INT(image.status, NCCL_IMAGE_NO_SYMBOLS);
	CHECK_INT(image.version, 22809);
}

TEST(version_string_where_the_code_tells_none)
{
	struct fake fake;
	struct nccl_image image;

	fake__init(&fake);
	fake__symbol(&fake, S_DYNSYM, "ncclAllReduce", FUNC, TEXT_VADDR + 0x20, 8);
	strcpy((char *)fake.bytes + section_offsets[S_RODATA], "NCCL version 2.21.5+cuda12.4");
	image = read_fake(&fake);
	CHECK_INT(image.version, 22105);
	CHECK_INT(image.layout.source, NCCL_LAYOUT_TABLE);
	strcpy((char *)fake.bytes + section_offsets[S_RODATA], "NCCL version 2.99.1+cuda12.4");
	image = read_fake(&fake);
	CHECK_INT(image.version, 29901);
	CHECK_INT(image.layout.source, NCCL_LAYOUT_NONE);
}

TEST(code_overrules_the_table)
{
	struct fake fake;
	struct nccl_image image;

	fake__init(&fake);
	fake__nccl(&fake, S_DYNSYM);
	PUT(&fake, TEXT_VADDR + 0x200, "\x41\x8b\x85\x10\x45\x10\x00");
	PUT(&fake, TEXT_VADDR + 0x300, "\x41\x8b\x85\x14\x45\x10\x00");
	PUT(&fake, TEXT_VADDR + 0x400, "\x41\x8b\x85\x18\x45\x10\x00");
	image = read_fake(&fake);
	CHECK_INT(image.layout.source, NCCL_LAYOUT_CODE);
	CHECK_INT(image.layout.rank, 1066192 + 64);
	CHECK_INT(image.layout.comm_hash, 1066184 + 64);
	CHECK_INT(image.layout.seq_number, -1);
}

TEST(functions_that_nobody_knows_are_named)
{
	struct fake fake;
	struct nccl_image image;

	fake__init(&fake);
	fake__nccl(&fake, S_DYNSYM);
	fake__symbol(&fake, S_DYNSYM, "ncclTeleport", FUNC, TEXT_VADDR + 0x20, 8);
	fake__symbol(&fake, S_DYNSYM, "ncclinternal", FUNC, TEXT_VADDR + 0x20, 8);
	fake__symbol(&fake, S_DYNSYM, "ncclSomeTable", DATA, TEXT_VADDR + 0x20, 8);
	for (int i = 0; i < 10; i++)
		fake__symbol(&fake, S_DYNSYM, "ncclMore", FUNC, TEXT_VADDR + 0x20, 8);
	image = read_fake(&fake);
	CHECK_INT(image.n_unknown, 11);
	CHECK_STR(image.unknown[0], "ncclTeleport");
	CHECK_STR(image.unknown[7], "ncclMore");
}

TEST(headers_that_lie)
{
	struct fake whole, fake;

	fake__init(&whole);
	fake__nccl(&whole, S_DYNSYM);
	fake__hash(&whole);
#define LIE(what)                                                                                  \
	do {                                                                                       \
		fake__init(&fake);                                                                 \
		memcpy(fake.bytes, whole.bytes, sizeof(fake.bytes));                               \
		what;                                                                              \
		CHECK(read_fake(&fake).status != NCCL_IMAGE_OK);                                   \
	} while (0)
	LIE(fake.header->e_phnum = 65535);
	LIE(fake.header->e_phoff = UINT64_MAX - 8);
	LIE(fake.header->e_shnum = 65535);
	LIE(fake.header->e_shoff = UINT64_MAX - 64);
	LIE(fake.header->e_shentsize = 1);
	LIE(fake.header->e_type = ET_REL);
	LIE(fake.sections[S_DYNSYM].sh_link = 4000);
	LIE(fake.sections[S_DYNSYM].sh_link = S_DYNSYM);
	LIE(fake.sections[S_DYNSYM].sh_offset = UINT64_MAX - 24);
	LIE(fake.sections[S_DYNSYM].sh_size = UINT64_MAX);
	LIE(fake.sections[S_DYNSTR].sh_size = UINT64_MAX);
	LIE(fake.sections[S_DYNSTR].sh_size = 1UL << 40);
	LIE(fake.sections[S_DYNSTR].sh_size = 0);
	LIE(fake.segments[0].p_filesz = UINT64_MAX);
	LIE(fake.segments[0].p_offset = UINT64_MAX - 0x800);
	LIE(fake.segments[0].p_flags = PF_R);
#undef LIE
}

TEST(damage_behind_the_name_is_said)
{
	struct fake fake;

	fake__init(&fake);
	fake__nccl(&fake, S_DYNSYM);
	fake.sections[S_DYNSYM].sh_entsize = 7;
	CHECK_INT(read_fake(&fake).status, NCCL_IMAGE_DAMAGED);
}

TEST(files_cut_anywhere)
{
	struct fake fake;

	fake__init(&fake);
	fake__nccl(&fake, S_DYNSYM);
	fake__hash(&fake);
	for (size_t len = 0; len < FILE_SIZE; len += 7)
		read_part(&fake, len);
}

/* Nothing to hold but that the sanitizers stay silent and it ends. */
TEST(files_with_random_damage)
{
	struct fake whole, fake;

	fake__init(&whole);
	fake__nccl(&whole, S_DYNSYM);
	fake__hash(&whole);
	fake__section(&whole, S_SYMTAB, ".symtab", SHT_SYMTAB, S_STRTAB, sizeof(Elf64_Sym));
	fake__section(&whole, S_STRTAB, ".strtab", SHT_STRTAB, 0, 1);
	fake__symbol(&whole, S_SYMTAB, "ncclComms", DATA, DATA_VADDR + 0x20, 8);
	srand(1);
	for (int round = 0; round < 3000; round++) {
		memcpy(fake.bytes, whole.bytes, sizeof(fake.bytes));
		for (int i = 0; i < 8; i++)
			fake.bytes[rand() % (i % 2 ? 0x500 : FILE_SIZE)] = rand();
		read_fake(&fake);
	}
}

TEST(what_is_no_file_or_no_elf)
{
	struct nccl_image image = {.status = -7};
	int fds[2], fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	CHECK_INT(nccl_elf__read(&x86, fd, &image), 0);
	CHECK_INT(image.status, NCCL_IMAGE_NOT_NCCL);
	close(fd);
	CHECK_INT(pipe(fds), 0);
	CHECK_INT(nccl_elf__read(&x86, fds[0], &image), 0);
	CHECK_INT(image.status, NCCL_IMAGE_NOT_NCCL);
	close(fds[0]);
	close(fds[1]);
	image.status = -7;
	CHECK_INT(nccl_elf__read(&x86, -1, &image), -EBADF);
	CHECK_INT(image.status, -7);
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	CHECK_INT(nccl_elf__read(&x86, fd, &image), 0);
	CHECK_INT(image.status, NCCL_IMAGE_NOT_NCCL);
	close(fd);
}

UNIT_MAIN()
