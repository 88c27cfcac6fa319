/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ELF files made in memory for test_nccl_elf.c and test_image.c: an empty one, and what a library
 * with NCCL in it has. Included behind the modules under test, whose types it uses.
 */
#ifndef FAKE_ELF_H
#define FAKE_ELF_H

/* One executable segment at file offset 0x1000, one writable in memory only. */
#define TEXT_OFFSET 0x1000
#define TEXT_VADDR  0x5000
#define TEXT_SIZE   0x1000
#define DATA_VADDR  0x9000
#define DATA_SIZE   0x1000
#define FILE_SIZE   0x6000
#define DELTA	    (TEXT_VADDR - TEXT_OFFSET)

enum {
	S_NULL,
	S_TEXT,
	S_DYNSYM,
	S_DYNSTR,
	S_HASH,
	S_SYMTAB,
	S_STRTAB,
	S_RODATA,
	S_FATBIN,
	S_NOTES,
	S_BASE,
	S_NAMES,
	N_S
};

static const char section_names[] =
	"\0.text\0.dynsym\0.dynstr\0.gnu.hash\0.symtab\0.strtab\0.rodata\0"
	".nv_fatbin\0.note.stapsdt\0.stapsdt.base\0.shstrtab";

struct fake {
	uint8_t bytes[FILE_SIZE];
	Elf64_Ehdr *header;
	Elf64_Phdr *segments;
	Elf64_Shdr *sections;
};

/* Where each section lies, big enough for what the tests put there. */
static const uint32_t section_offsets[N_S] = {0,      TEXT_OFFSET, 0x2000, 0x2800, 0x3000, 0x3400,
					      0x3c00, 0x4400,	   0x4800, 0x5000, 0x5800, 0x4c00};

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
	fake->segments[0] = (Elf64_Phdr){.p_type = PT_LOAD,
					 .p_flags = PF_R | PF_X,
					 .p_offset = TEXT_OFFSET,
					 .p_vaddr = TEXT_VADDR,
					 .p_filesz = TEXT_SIZE,
					 .p_memsz = TEXT_SIZE};
	fake->segments[1] = (Elf64_Phdr){.p_type = PT_LOAD,
					 .p_flags = PF_R | PF_W,
					 .p_vaddr = DATA_VADDR,
					 .p_memsz = DATA_SIZE};
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

	*symbol = (Elf64_Sym){.st_name = strings->sh_size,
			      .st_info = info,
			      .st_shndx = S_TEXT,
			      .st_value = vaddr,
			      .st_size = size};
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
	PUT(fake, TEXT_VADDR + 0x600,
	    "\x48\xba\x80\x02\x80\x02\x80\x02\x80\x02\x48\x39\x17\x75\x18"
	    "\x31\xc0\x48\x39\x97\x50\x86\x10\x00");
	/* mov n(%rip),%ecx: DATA_VADDR + 4 from 0x5706; mov comms(%rip),%rdx: + 8 from 0x5711 */
	PUT(fake, TEXT_VADDR + 0x700,
	    "\x8b\x0d\xfe\x38\x00\x00\x85\xc9\x7e\x33\x48\x8b\x15\xf7\x38"
	    "\x00\x00\x48\x3b\x1a\x74\x4d");
}

/* .gnu.hash with one bucket whose chain is the whole table; hashes are right, the filter is full.
 */
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

#endif
