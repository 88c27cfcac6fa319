/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a file is taken for, and the plugin's USDT note: well made, then spoilt in turn. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

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

#define HOOK	    (TEXT_VADDR + 0x10)
#define BASE_VADDR  0xb000
#define RW_OFFSET   0x4000
#define RW_VADDR    0xc000
#define RW_SIZE	    0x100
#define SEMAPHORE   (RW_VADDR + 0x20)
#define PLUGIN_FILE "build/libnccl-profiler-bpftrace.so"

struct note {
	uint32_t name_size, size, type;
	char owner[8];
	uint64_t location, base, semaphore;
	char strings[64];
} __attribute__((packed));

/* A note behind those that are there; returned to be spoilt. */
static struct note *fake__note(struct fake *fake, const char *provider, const char *probe)
{
	Elf64_Shdr *section = &fake->sections[S_NOTES];
	struct note *note = (void *)(fake->bytes + section->sh_offset + section->sh_size);

	*note = (struct note){
		.name_size = 8,
		.size = sizeof(*note) - 20,
		.type = 3,
		.owner = "stapsdt",
		.location = HOOK,
		.base = BASE_VADDR,
		.semaphore = SEMAPHORE,
	};
	strcpy(note->strings, provider);
	strcpy(note->strings + strlen(provider) + 1, probe);
	section->sh_size += sizeof(*note);
	return note;
}

static struct note *fake__plugin(struct fake *fake)
{
	fake__init(fake);
	fake->header->e_phnum = 3;
	fake->segments[2] = (Elf64_Phdr){.p_type = PT_LOAD,
					 .p_flags = PF_R | PF_W,
					 .p_offset = RW_OFFSET,
					 .p_vaddr = RW_VADDR,
					 .p_filesz = RW_SIZE,
					 .p_memsz = RW_SIZE};
	fake__section(fake, S_NOTES, ".note.stapsdt", SHT_NOTE, 0, 0);
	fake__section(fake, S_BASE, ".stapsdt.base", SHT_PROGBITS, 0, 1);
	fake->sections[S_BASE].sh_addr = BASE_VADDR;
	return fake__note(fake, "nccl_bpftrace", "batch");
}

static struct image read_fake(const struct fake *fake)
{
	struct image image = {.kind = -7};
	int fd = memfd_create("fake", MFD_CLOEXEC);

	CHECK_INT(pwrite(fd, fake->bytes, FILE_SIZE, 0), FILE_SIZE);
	CHECK_INT(image__read(fd, &image), 0);
	close(fd);
	return image;
}

static void check_plugin(const struct fake *fake)
{
	struct image image = read_fake(fake);

	CHECK_INT(image.kind, IMAGE_PLUGIN);
	CHECK_INT(image.n_sites, 1);
	CHECK_INT(image.sites[0].offset, TEXT_OFFSET + 0x10);
	CHECK_INT(image.sites[0].ref_ctr, RW_OFFSET + 0x20);
	CHECK_INT(image.semaphore, SEMAPHORE - DELTA);
}

TEST(nothing)
{
	struct fake fake;
	struct image image;

	fake__init(&fake);
	image = read_fake(&fake);
	CHECK_INT(image.kind, IMAGE_NONE);
	CHECK_INT(image.n_sites, 0);
}

TEST(nccl)
{
	struct fake fake;
	struct image image;

	if (NCCL_ARCH_HOST != NCCL_ARCH_X86_64)
		SKIP("the fake is x86-64 code");
	fake__plugin(&fake); /* both: NCCL comes first */
	fake__nccl(&fake, S_DYNSYM);
	image = read_fake(&fake);
	CHECK_INT(image.kind, IMAGE_NCCL);
	CHECK_INT(image.nccl.status, NCCL_IMAGE_OK);
	CHECK_INT(image.n_sites, 2);
	for (unsigned int i = 0; i < image.n_sites; i++) {
		CHECK_INT(image.sites[i].offset, image.nccl.entry[image.sites[i].function]);
		CHECK_INT(image.sites[i].ref_ctr, 0);
	}
}

TEST(plugin)
{
	struct fake fake;

	fake__plugin(&fake);
	check_plugin(&fake);
	fake__note(&fake, "nccl_bpftrace", "batch")->location++; /* the first one counts */
	check_plugin(&fake);
}

TEST(plugin_among_others)
{
	struct fake fake;

	fake__plugin(&fake);
	fake.sections[S_NOTES].sh_size = 0;
	fake__note(&fake, "libc", "setjmp");
	fake__note(&fake, "nccl_bpftrace", "batches");
	fake__note(&fake, "nccl_bpftracer", "batch");
	fake__note(&fake, "nccl_bpftrace", "batch")->type = 4;
	fake__note(&fake, "nccl_bpftrace", "batch")->owner[6] = 'x';
	CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
	fake__note(&fake, "nccl_bpftrace", "batch");
	check_plugin(&fake);
}

TEST(prelinked)
{
	struct fake fake;
	struct note *note = fake__plugin(&fake);

	note->base -= 0x100;
	note->location -= 0x100;
	note->semaphore -= 0x100;
	check_plugin(&fake);
}

/* A kind of its own needs all three: code, a semaphore, and both in the file. */
TEST(plugin_that_cannot_be_woken)
{
	const uint64_t bad[] = {0, RW_VADDR + 1, RW_VADDR + RW_SIZE, TEXT_VADDR, DATA_VADDR, ~1ULL};
	struct fake fake;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		fake__plugin(&fake)->semaphore = bad[i];
		CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
	}
	fake__plugin(&fake)->location = RW_VADDR;
	CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
	fake__plugin(&fake)->location = ~0ULL;
	CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
}

TEST(damaged_notes)
{
	static const uint32_t sizes[] = {0, 23, 24, 25, 40, 0x10000, ~0U, ~3U};
	struct fake fake;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		fake__plugin(&fake)->size = sizes[i];
		CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
		fake__plugin(&fake)->name_size = sizes[i];
		CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
	}
	memset(fake__plugin(&fake)->strings, 'x', 64); /* strings without an end */
	CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
	fake__plugin(&fake);
	fake.sections[S_NOTES].sh_size = 1ULL << 40;
	CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
	fake__plugin(&fake);
	fake.sections[S_NOTES].sh_type = SHT_NOBITS;
	CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
}

/* .dynamic: some entries, then the library's own name. */
static void fake__soname(struct fake *fake, const char *soname)
{
	Elf64_Shdr *strings = &fake->sections[S_DYNSTR];
	Elf64_Dyn *entries;

	fake__section(fake, S_NOTES, ".note.stapsdt", SHT_DYNAMIC, S_DYNSTR, 3 * sizeof(*entries));
	entries = (void *)(fake->bytes + fake->sections[S_NOTES].sh_offset);
	entries[0] = (Elf64_Dyn){.d_tag = DT_NEEDED, .d_un.d_val = 1};
	entries[1] = (Elf64_Dyn){.d_tag = DT_SONAME, .d_un.d_val = strings->sh_size};
	entries[2] = (Elf64_Dyn){.d_tag = DT_NULL};
	strcpy((char *)fake->bytes + strings->sh_offset + strings->sh_size, soname);
	strings->sh_size += strlen(soname) + 1;
}

static void fake__cuda(struct fake *fake, const char *soname)
{
	fake__init(fake);
	fake__symbol(fake, S_DYNSYM, "cuGraphLaunch", FUNC, TEXT_VADDR + 0x40, 16);
	fake__symbol(fake, S_DYNSYM, "cuGraphLaunch_ptsz", FUNC, TEXT_VADDR + 0x40, 16);
	fake__symbol(fake, S_DYNSYM, "cuStreamEndCapture", FUNC, TEXT_VADDR + 0x80, 16);
	fake__symbol(fake, S_DYNSYM, "cuGraphDestroy", FUNC, DATA_VADDR, 16);
	fake__soname(fake, soname);
	fake__hash(fake);
}

TEST(cuda)
{
	struct fake fake;
	struct image image;

	if (NCCL_ARCH_HOST != NCCL_ARCH_X86_64)
		SKIP("the fake is for x86-64");
	fake__cuda(&fake, "libcuda.so.1");
	image = read_fake(&fake);
	CHECK_INT(image.kind, IMAGE_CUDA);
	CHECK_INT(image.n_sites, 2); /* two names of one function are one */
	for (unsigned int i = 0; i < image.n_sites; i++)
		CHECK_INT(image.sites[i].offset, image.sites[i].function == NB_GRAPH_LAUNCH
							 ? TEXT_OFFSET + 0x40
							 : TEXT_OFFSET + 0x80);
	fake__cuda(&fake, "libcuda.so.2");
	CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
	fake__cuda(&fake, "libvgpu.so"); /* a wrapper exports the same, and calls the driver */
	CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
	fake__cuda(&fake, "libcuda.so.1");
	fake.header->e_machine = EM_AARCH64;
	CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
	fake__cuda(&fake, "libcuda.so.1");
	fake.sections[S_NOTES].sh_size = sizeof(Elf64_Dyn); /* ends before the name */
	CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
	fake__cuda(&fake, "libcuda.so.1");
	fake.sections[S_DYNSTR].sh_size -= 1; /* no end of the string */
	CHECK_INT(read_fake(&fake).kind, IMAGE_NONE);
}

TEST(what_is_no_elf)
{
	struct image image = {.kind = -7};
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	CHECK_INT(image__read(fd, &image), 0);
	CHECK_INT(image.kind, IMAGE_NONE);
	close(fd);
	image.kind = -7;
	CHECK_INT(image__read(-1, &image), -EBADF);
	CHECK_INT(image.kind, -7);
}

TEST(the_plugin_as_built)
{
	int fd = open(PLUGIN_FILE, O_RDONLY | O_CLOEXEC);
	struct image image;
	unsigned char code[5];
	char semaphore[2] = "x";

	if (fd < 0)
		SKIP("not built");
	CHECK_INT(image__read(fd, &image), 0);
	CHECK_INT(image.kind, IMAGE_PLUGIN);
	CHECK_INT(pread(fd, code, sizeof(code), image.sites[0].offset), sizeof(code));
	CHECK(code[0] == 0x0f || NCCL_ARCH_HOST != NCCL_ARCH_X86_64);
	CHECK_INT(pread(fd, semaphore, 2, image.sites[0].ref_ctr), 2);
	CHECK(!semaphore[0] && !semaphore[1]);
	close(fd);
}

UNIT_MAIN()
