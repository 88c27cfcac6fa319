/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Files are made in memory: a library that has all that nccl_elf.c looks for, then spoilt in turn. */
#define _GNU_SOURCE
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

/* One executable segment at file offset 0x1000, one writable in memory only. */
#define TEXT_OFFSET 0x1000
#define TEXT_VADDR  0x5000
#define TEXT_SIZE   0x1000
#define DATA_VADDR  0x9000
#define DATA_SIZE   0x1000
#define FILE_SIZE   0x6000
#define DELTA	    (TEXT_VADDR - TEXT_OFFSET)

enum { S_NULL, S_TEXT, S_DYNSYM, S_DYNSTR, S_HASH, S_SYMTAB, S_STRTAB, S_RODATA, S_FATBIN, S_NAMES, N_S };

static const char section_names[] = "\0.text\0.dynsym\0.dynstr\0.gnu.hash\0.symtab\0.strtab\0.rodata\0"
				    ".nv_fatbin\0.shstrtab";

struct fake {
	uint8_t bytes[FILE_SIZE];
	Elf64_Ehdr *header;
	Elf64_Phdr *segments;
	Elf64_Shdr *sections;
};

/* Where each section lies, big enough for what the tests put there. */
static const uint32_t section_offsets[N_S] = {0,      TEXT_OFFSET, 0x2000, 0x2800, 0x3000,
					      0x3400, 0x3c00,	   0x4400, 0x4800, 0x4c00};

static uint32_t name_of(const char *name)
{
	for (size_t i = 1; i < sizeof(section_names); i += strlen(section_names + i) + 1)
		if (!strcmp(section_names + i, name))
			return i;
	return 0;
}

static void fake__section(struct fake *fake, int i, const char *name, uint32_t type, uint32_t link,
			  uint64_t size)
{
	fake->sections[i] = (Elf64_Shdr){
		.sh_name = name_of(name),
		.sh_type = type,
		.sh_link = link,
		.sh_offset = section_offsets[i],
		.sh_size = size,
		.sh_entsize = type == SHT_DYNSYM || type == SHT_SYMTAB ? sizeof(Elf64_Sym) : 0,
	};
}

static void fake__init(struct fake *fake)
{
	memset(fake, 0, sizeof(*fake));
	fake->header = (Elf64_Ehdr *)fake->bytes;
	fake->segments = (Elf64_Phdr *)(fake->bytes + 0x40);
	fake->sections = (Elf64_Shdr *)(fake->bytes + 0x200);
	*fake->header = (Elf64_Ehdr){
		.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
		.e_type = ET_DYN,
		.e_machine = EM_X86_64,
		.e_phoff = 0x40,
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 2,
		.e_shoff = 0x200,
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = N_S,
		.e_shstrndx = S_NAMES,
	};
	fake->segments[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R | PF_X,
					 .p_offset = TEXT_OFFSET, .p_vaddr = TEXT_VADDR,
					 .p_filesz = TEXT_SIZE, .p_memsz = TEXT_SIZE};
	fake->segments[1] = (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R | PF_W,
					 .p_vaddr = DATA_VADDR, .p_memsz = DATA_SIZE};
	fake__section(fake, S_TEXT, ".text", SHT_PROGBITS, 0, TEXT_SIZE);
	fake__section(fake, S_DYNSYM, ".dynsym", SHT_DYNSYM, S_DYNSTR, sizeof(Elf64_Sym));
	fake__section(fake, S_DYNSTR, ".dynstr", SHT_STRTAB, 0, 1);
	fake__section(fake, S_RODATA, ".rodata", SHT_PROGBITS, 0, 0x100);
	fake__section(fake, S_NAMES, ".shstrtab", SHT_STRTAB, 0, sizeof(section_names));
	memcpy(fake->bytes + section_offsets[S_NAMES], section_names, sizeof(section_names));
}

/* A symbol table and its strings: one more symbol in it. */
static Elf64_Sym *fake__symbol(struct fake *fake, int table, const char *name, unsigned char info,
			       uint64_t vaddr, uint64_t size)
{
	Elf64_Shdr *symbols = &fake->sections[table], *strings = &fake->sections[table + 1];
	Elf64_Sym *symbol = (Elf64_Sym *)(fake->bytes + symbols->sh_offset + symbols->sh_size);

	*symbol = (Elf64_Sym){.st_name = strings->sh_size, .st_info = info, .st_shndx = S_TEXT,
			      .st_value = vaddr, .st_size = size};
	strcpy((char *)fake->bytes + strings->sh_offset + strings->sh_size, name);
	strings->sh_size += strlen(name) + 1;
	symbols->sh_size += sizeof(*symbol);
	return symbol;
}

#define FUNC  ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)
#define LOCAL ELF64_ST_INFO(STB_LOCAL, STT_FUNC)
#define IFUNC ELF64_ST_INFO(STB_GLOBAL, STT_GNU_IFUNC)
#define DATA  ELF64_ST_INFO(STB_LOCAL, STT_OBJECT)

static void fake__code(struct fake *fake, uint64_t vaddr, const char *code, size_t len)
{
	memcpy(fake->bytes + vaddr - DELTA, code, len);
}

#define PUT(fake, vaddr, code) fake__code(fake, vaddr, code, sizeof(code) - 1)

/* 2.28.9's getters and checks, and a loop over ncclComms at DATA_VADDR + 8. */
static void fake__nccl(struct fake *fake, int table)
{
	fake__symbol(fake, table, "ncclGetVersion", FUNC, TEXT_VADDR + 0x100, 20);
	fake__symbol(fake, table, "ncclCommUserRank", FUNC, TEXT_VADDR + 0x200, 32);
	fake__symbol(fake, table, "ncclCommCount", FUNC, TEXT_VADDR + 0x300, 32);
	fake__symbol(fake, table, "ncclCommCuDevice", FUNC, TEXT_VADDR + 0x400, 32);
	fake__symbol(fake, table, "pncclAllReduce", FUNC, TEXT_VADDR + 0x500, 16);
	fake__symbol(fake, table, "ncclAllReduce", FUNC, TEXT_VADDR + 0x500, 16);
	fake__symbol(fake, table, "ncclSend", FUNC, TEXT_VADDR + 0x510, 16);
	PUT(fake, TEXT_VADDR + 0x100, "\x48\x85\xff\x74\x09\xc7\x07\x19\x59\x00\x00\x31\xc0\xc3");
	PUT(fake, TEXT_VADDR + 0x200, "\x41\x8b\x85\xd0\x44\x10\x00\x41\x89\x06");
	PUT(fake, TEXT_VADDR + 0x300, "\x41\x8b\x85\xd4\x44\x10\x00\x41\x89\x06");
	PUT(fake, TEXT_VADDR + 0x400, "\x41\x8b\x85\xd8\x44\x10\x00\x41\x89\x06");
	PUT(fake, TEXT_VADDR + 0x600, "\x48\xba\x80\x02\x80\x02\x80\x02\x80\x02\x48\x39\x17\x75\x18"
				      "\x31\xc0\x48\x39\x97\x50\x86\x10\x00");
	/* mov n(%rip),%ecx: DATA_VADDR + 4 from 0x5706; mov comms(%rip),%rdx: + 8 from 0x5711 */
	PUT(fake, TEXT_VADDR + 0x700, "\x8b\x0d\xfe\x38\x00\x00\x85\xc9\x7e\x33\x48\x8b\x15\xf7\x38"
				      "\x00\x00\x48\x3b\x1a\x74\x4d");
}

/* .gnu.hash with one bucket whose chain is the whole table; hashes are right, the filter is full. */
static void fake__hash(struct fake *fake)
{
	const Elf64_Shdr *table = &fake->sections[S_DYNSYM];
	const Elf64_Sym *symbols = (Elf64_Sym *)(fake->bytes + table->sh_offset);
	const char *strings = (char *)fake->bytes + section_offsets[S_DYNSTR];
	uint32_t n = table->sh_size / sizeof(*symbols);
	uint32_t *word = (uint32_t *)(fake->bytes + section_offsets[S_HASH]);

	fake__section(fake, S_HASH, ".gnu.hash", SHT_GNU_HASH, S_DYNSYM, 28 + 4 * (n - 1));
	*(struct gnu_hash *)word = (struct gnu_hash){1, 1, 1, 6};
	word[4] = word[5] = UINT32_MAX;
	word[6] = 1;
	for (uint32_t i = 1; i < n; i++)
		word[6 + i] = (gnu_hash__of(strings + symbols[i].st_name) & ~1U) | (i == n - 1);
}

/* The file of those bytes, read; its first len ones. */
static struct nccl_image read_part(const struct fake *fake, size_t len)
{
	struct nccl_image image = {.status = -7};
	int fd = memfd_create("fake", MFD_CLOEXEC);

	CHECK_INT(pwrite(fd, fake->bytes, len, 0), len);
	CHECK_INT(nccl_elf__read_on(NCCL_ARCH_X86_64, fd, &image), 0);
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

	CHECK_INT(nccl_elf__read(fd, &image), 0);
	CHECK_INT(image.status, NCCL_IMAGE_NOT_NCCL);
	close(fd);
	CHECK_INT(pipe(fds), 0);
	CHECK_INT(nccl_elf__read(fds[0], &image), 0);
	CHECK_INT(image.status, NCCL_IMAGE_NOT_NCCL);
	close(fds[0]);
	close(fds[1]);
	image.status = -7;
	CHECK_INT(nccl_elf__read(-1, &image), -EBADF);
	CHECK_INT(image.status, -7);
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	CHECK_INT(nccl_elf__read(fd, &image), 0);
	CHECK_INT(image.status, NCCL_IMAGE_NOT_NCCL);
	close(fd);
}

UNIT_MAIN()
