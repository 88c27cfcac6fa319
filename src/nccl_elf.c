/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "nccl_elf.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_code.h"
#include "util.h"

#define MAX_FUNCTION_BYTES 4096
#define UNSIZED_FUNCTION   1024 /* bytes looked at when the symbol has no size */

/* NCCL's objects are linked side by side: text this far around one function holds all of them. */
#define TEXT_REACH (16UL << 20)

/* Strings that begin like NCCL's version; a real library has one to nine. */
#define MAX_VERSION_STRINGS 64

/* Since 2.24: the list of communicators that NCCL's RAS thread keeps. */
#define SINCE_COMMS 22403

/* Functions that are not probed but whose code is read. */
enum getter { GET_VERSION, GET_RANK, GET_COUNT, GET_DEVICE, N_GETTERS };

static const char *const getter_symbols[N_GETTERS] = {
	[GET_VERSION] = "ncclGetVersion",
	[GET_RANK] = "ncclCommUserRank",
	[GET_COUNT] = "ncclCommCount",
	[GET_DEVICE] = "ncclCommCuDevice",
};

/* The best symbol so far for one function. */
struct candidate {
	uint64_t vaddr, size;
	int score; /* 0: none */
};

struct scan {
	enum nccl_arch arch;
	bool code_only;
	const struct elf_file *file;
	struct nccl_image *image;
	struct candidate probed[NCCL_FN_PROBED];
	struct candidate getters[N_GETTERS];
	bool exported; /* walking .dynsym, not .symtab */
	bool ifunc;
};

static bool name__is_api(const char *name)
{
	name += name[0] == 'p';
	return !strncmp(name, "nccl", 4) && isupper((unsigned char)name[4]);
}

/* ncclX before pncclX, what the linker sees before what is local to one object. */
static void candidate__offer(struct candidate *best, const char *name, const Elf64_Sym *symbol)
{
	int score = 1 + (name[0] != 'p') + 2 * (ELF64_ST_BIND(symbol->st_info) != STB_LOCAL);

	if (score > best->score)
		*best = (struct candidate){symbol->st_value, symbol->st_size, score};
}

/*
 * Counts an API function. Exported names beginning with nccl are the API's; in .symtab there are
 * internal ones too, so there a name counts by its twin pncclX, which only the API has.
 */
static void scan__count(struct scan *scan, const char *name, bool known)
{
	struct nccl_image *image = scan->image;

	if ((name[0] == 'p') == scan->exported || image->n_exported == UINT16_MAX)
		return;
	name += name[0] == 'p';
	image->n_exported++;
	if (known)
		return;
	if (image->n_unknown < NCCL_IMAGE_MAX_UNKNOWN && strlen(name) < NCCL_IMAGE_UNKNOWN_SIZE)
		strcpy(image->unknown[image->n_unknown], name);
	image->n_unknown++;
}

static int scan__visit(void *ctx, const char *name, const Elf64_Sym *symbol)
{
	const int type = ELF64_ST_TYPE(symbol->st_info);
	const struct nccl_function *fn;
	struct scan *scan = ctx;
	size_t id;

	if ((type != STT_FUNC && type != STT_GNU_IFUNC) || !name__is_api(name))
		return 0;
	fn = nccl_api__by_symbol(name);
	id = fn ? (size_t)(fn - nccl_functions) : SIZE_MAX;
	if (type == STT_GNU_IFUNC) {
		scan->ifunc |= id < NCCL_FN_PROBED;
		return 0;
	}
	if (!elf_file__segment(scan->file, symbol->st_value, PF_X))
		return 0;
	scan__count(scan, name, fn);
	if (id < NCCL_FN_PROBED)
		candidate__offer(&scan->probed[id], name, symbol);
	for (int i = 0; i < N_GETTERS; i++)
		if (fn && !strcmp(fn->symbol, getter_symbols[i]))
			candidate__offer(&scan->getters[i], name, symbol);
	return 0;
}

/* Whether a walk over .dynsym is worth it: by its hash table a few reads tell. */
static bool dynsym__has_api(const struct elf_file *file)
{
	Elf64_Sym symbol;
	int err = elf_file__dynamic_symbol(file, "ncclAllReduce", &symbol);

	if (err == -ENOENT)
		err = elf_file__dynamic_symbol(file, "pncclAllReduce", &symbol);
	return !err || err == -EOPNOTSUPP;
}

/* Fills the candidates from one symbol table; 1 when ncclAllReduce is among them. */
static int scan__walk(struct scan *scan, uint32_t table_type)
{
	const Elf64_Shdr *table = elf_file__section_of_type(scan->file, table_type);
	const Elf64_Shdr *strings = table ? elf_file__strings_of(scan->file, table) : NULL;
	uint64_t at;
	int err;

	/* most symbol tables are not worth a walk: the name is not among their strings */
	if (!strings || elf_file__find(scan->file, strings, "ncclAllReduce", 14, &at))
		return 0;
	memset(scan->probed, 0, sizeof(scan->probed));
	memset(scan->getters, 0, sizeof(scan->getters));
	scan->image->n_exported = scan->image->n_unknown = 0;
	scan->exported = table_type == SHT_DYNSYM;
	err = elf_file__each_symbol(scan->file, table, scan__visit, scan);
	if (err)
		return err;
	return scan->probed[NCCL_FN_AllReduce].score > 0 || scan->ifunc;
}

/* "NCCL version 2.28.9+cuda12.9" is in .rodata; log formats with %d are, too. */
static int rodata__version(const struct elf_file *file, int32_t *ret_version)
{
	static const char prefix[] = "NCCL version ";
	const Elf64_Shdr *section = elf_file__section(file, ".rodata");
	Elf64_Shdr rest;
	uint64_t at;

	if (!section)
		return -ENOENT;
	rest = *section;
	for (int i = 0; i < MAX_VERSION_STRINGS; i++) {
		int32_t major, minor, patch;
		char text[33] = "";
		char end;

		if (elf_file__find(file, &rest, prefix, strlen(prefix), &at))
			break;
		rest.sh_size -= at + 1 - rest.sh_offset;
		rest.sh_offset = at + 1;
		if (!elf_file__read(file, at + strlen(prefix), text, sizeof(text) - 1) &&
		    sscanf(text, "%1d.%2d.%2d%c", &major, &minor, &patch, &end) == 4 && major > 1 &&
		    (end == '+' || end == ' ')) {
			*ret_version = 10000 * major + 100 * minor + patch;
			return 0;
		}
	}
	return -ENOENT;
}

/*
 * NCCL without names: looked for only in files that carry CUDA kernels, as it must, and that do not
 * import it (imports have no place in .gnu.hash).
 */
static bool file__has_stripped_nccl(const struct elf_file *file, int32_t *ret_version)
{
	const Elf64_Shdr *table = elf_file__section_of_type(file, SHT_DYNSYM);
	const Elf64_Shdr *strings = table ? elf_file__strings_of(file, table) : NULL;
	uint64_t at;

	if (!elf_file__section(file, ".nv_fatbin") ||
	    (strings && !elf_file__find(file, strings, "ncclAllReduce", 14, &at)))
		return false;
	return !rodata__version(file, ret_version);
}

/* Bytes of the executable segment around vaddr: at most `before` and `after` of them. */
static int scan__load(const struct scan *scan, uint64_t vaddr, uint64_t before, uint64_t after,
		      struct nccl_code *ret)
{
	const Elf64_Phdr *segment = elf_file__segment(scan->file, vaddr, PF_X);
	uint64_t at, left;
	uint8_t *bytes;
	int err;

	if (!segment)
		return -ENOENT;
	at = vaddr - segment->p_vaddr;
	left = segment->p_filesz - at;
	before = before < at ? before & ~3ULL : at & ~3ULL;
	after = after < left ? after : left;
	bytes = malloc(before + after);
	if (!bytes)
		return -ENOMEM;
	err = elf_file__read(scan->file, segment->p_offset + at - before, bytes, before + after);
	if (err) {
		free(bytes);
		return err;
	}
	*ret = (struct nccl_code){bytes, before + after, vaddr - before};
	return 0;
}

static struct nccl_code scan__getter(const struct scan *scan, enum getter getter)
{
	const struct candidate *found = &scan->getters[getter];
	uint64_t size = found->size ? found->size : UNSIZED_FUNCTION;
	struct nccl_code code = {0};

	if (size > MAX_FUNCTION_BYTES)
		size = MAX_FUNCTION_BYTES;
	if (found->score)
		scan__load(scan, found->vaddr, 0, size, &code);
	return code;
}

static void code__free(struct nccl_code *code)
{
	free((void *)code->bytes);
}

#define _cleanup_code_ __attribute__((cleanup(code__free)))

static void scan__version(struct scan *scan)
{
	_cleanup_code_ struct nccl_code code = scan__getter(scan, GET_VERSION);

	if (nccl_code__version(scan->arch, code, &scan->image->version))
		rodata__version(scan->file, &scan->image->version);
}

/* The table's layout, unless the code of this very library contradicts it: then the code's. */
static void scan__layout(struct scan *scan, struct nccl_code text)
{
	_cleanup_code_ struct nccl_code user_rank = scan__getter(scan, GET_RANK);
	_cleanup_code_ struct nccl_code count = scan__getter(scan, GET_COUNT);
	_cleanup_code_ struct nccl_code device = scan__getter(scan, GET_DEVICE);
	struct nccl_layout *layout = &scan->image->layout;
	int32_t rank, end_magic = -1;
	int known = scan->code_only
			    ? -ENOENT
			    : nccl_layout__by_version_on(scan->arch, scan->image->version, layout);

	if (nccl_code__rank(scan->arch, user_rank, count, device, &rank))
		return;
	nccl_code__end_magic(scan->arch, text, &end_magic);
	if (!known && rank == layout->rank &&
	    (end_magic < 0 || layout->end_magic < 0 || end_magic == layout->end_magic))
		return;
	/* the table must not be recognised by these two numbers then */
	if (scan->code_only) {
		nccl_layout__from_code_on(scan->arch, layout, rank, -1, scan->image->version - 1);
		layout->end_magic = end_magic;
		return;
	}
	nccl_layout__from_code_on(scan->arch, layout, rank, end_magic, scan->image->version);
}

static int scan__visit_comms(void *ctx, const char *name, const Elf64_Sym *symbol)
{
	struct nccl_image *image = ((struct scan *)ctx)->image;

	if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT)
		return 0;
	if (!strcmp(name, "ncclComms") && symbol->st_size == 8)
		image->comms_vaddr = symbol->st_value;
	if (!strcmp(name, "nNcclComms") && symbol->st_size == 4)
		image->n_comms_vaddr = symbol->st_value;
	return image->comms_vaddr && image->n_comms_vaddr;
}

static void scan__comms(struct scan *scan, struct nccl_code text)
{
	const Elf64_Shdr *table = elf_file__section_of_type(scan->file, SHT_SYMTAB);
	struct nccl_image *image = scan->image;

	if (image->version < SINCE_COMMS)
		return;
	if (scan->code_only || !table ||
	    elf_file__each_symbol(scan->file, table, scan__visit_comms, scan) != 1)
		image->comms_from_code = !nccl_code__comms(scan->arch, text, &image->comms_vaddr,
							   &image->n_comms_vaddr);
	if (!elf_file__is_variable(scan->file, image->comms_vaddr, 8) ||
	    !elf_file__is_variable(scan->file, image->n_comms_vaddr, 4)) {
		image->comms_vaddr = image->n_comms_vaddr = 0;
		image->comms_from_code = 0;
	}
}

/* Where to probe: only what lies in the one segment that exec_delta is of. */
static void scan__entries(struct scan *scan)
{
	const uint64_t vaddr = scan->probed[NCCL_FN_AllReduce].vaddr;
	const Elf64_Phdr *segment = elf_file__segment(scan->file, vaddr, PF_X);

	scan->image->exec_delta = segment->p_vaddr - segment->p_offset;
	for (int i = 0; i < NCCL_FN_PROBED; i++)
		if (scan->probed[i].score &&
		    elf_file__segment(scan->file, scan->probed[i].vaddr, PF_X) == segment)
			scan->image->entry[i] = scan->probed[i].vaddr - scan->image->exec_delta;
}

static void scan__judge(struct scan *scan)
{
	const uint16_t machine = scan->arch == NCCL_ARCH_X86_64 ? EM_X86_64 : EM_AARCH64;
	_cleanup_code_ struct nccl_code text = {0};

	scan->image->status = NCCL_IMAGE_WRONG_ARCH;
	if (scan->file->machine != machine)
		return;
	scan->image->status = NCCL_IMAGE_IFUNC;
	if (scan->ifunc)
		return;
	scan->image->status = NCCL_IMAGE_OK;
	scan__entries(scan);
	scan__version(scan);
	if (!scan__load(scan, scan->probed[NCCL_FN_AllReduce].vaddr, TEXT_REACH, TEXT_REACH,
			&text)) {
		scan__layout(scan, text);
		scan__comms(scan, text);
	}
}

/* Exported, or linked in under its names, or without them. */
static int scan__run(struct scan *scan)
{
	int err = dynsym__has_api(scan->file) ? scan__walk(scan, SHT_DYNSYM) : 0;

	if (err == 0) {
		err = scan__walk(scan, SHT_SYMTAB);
		scan->image->from_symtab = err == 1;
	}
	if (err == 1)
		scan__judge(scan);
	else if (err == -EBADMSG || err == -EFBIG)
		scan->image->status = NCCL_IMAGE_DAMAGED;
	else if (err == 0 && file__has_stripped_nccl(scan->file, &scan->image->version))
		scan->image->status = NCCL_IMAGE_NO_SYMBOLS;
	return err == -EBADMSG || err == -EFBIG || err > 0 ? 0 : err;
}

int nccl_elf__read_file(const struct nccl_elf_options *options, const struct elf_file *file,
			struct nccl_image *ret)
{
	struct nccl_image image = {0};
	struct scan scan = {.arch = options->arch,
			    .code_only = options->code_only,
			    .file = file,
			    .image = &image};
	int err = scan__run(&scan);

	if (!err)
		*ret = image;
	return err;
}

int nccl_elf__read(const struct nccl_elf_options *options, int fd, struct nccl_image *ret)
{
	struct elf_file file;
	int err = elf_file__open(&file, fd);

	if (!err) {
		err = nccl_elf__read_file(options, &file, ret);
		elf_file__close(&file);
	} else if (err == -ENOEXEC || err == -EBADMSG || err == -EFBIG) {
		*ret = (struct nccl_image){0};
		err = 0;
	}
	return err;
}

static const char *const reasons[] = {
	[NCCL_IMAGE_NOT_NCCL] = "holds no NCCL",
	[NCCL_IMAGE_OK] = "NCCL",
	[NCCL_IMAGE_NO_SYMBOLS] = "holds NCCL, but its symbols were stripped",
	[NCCL_IMAGE_WRONG_ARCH] = "holds NCCL for another processor architecture",
	[NCCL_IMAGE_IFUNC] = "holds NCCL as indirect functions, which cannot be probed",
	[NCCL_IMAGE_DAMAGED] = "holds NCCL, but its ELF headers are damaged or truncated",
};

const char *nccl_image__reason(const struct nccl_image *image)
{
	if (image->status < 0 || (size_t)image->status >= ARRAY_SIZE(reasons))
		return "unknown";
	return reasons[image->status];
}
