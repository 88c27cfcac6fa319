/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "usdt.h"

#include <errno.h>
#include <string.h>

#include "util.h"

#define MAX_NOTES    (256UL << 10) /* bytes; glibc has 5 KB */
#define NOTE_STAPSDT 3
#define OWNER	     "stapsdt"

/* What stands before the three strings (provider, name, arguments) in a note. */
struct note_addresses {
	uint64_t location, base, semaphore;
};

static uint64_t align4(uint64_t n)
{
	return (n + 3) & ~3ULL;
}

/* Two strings one behind the other, both ended within the note. */
static bool note__is_called(const char *text, size_t len, const char *provider, const char *probe)
{
	size_t a = strlen(provider) + 1, b = strlen(probe) + 1;

	return len >= a + b && !memcmp(text, provider, a) && !memcmp(text + a, probe, b);
}

/* 0, or -ENOENT when the notes end without it. */
static int notes__find(const char *notes, size_t len, const char *provider, const char *probe,
		       struct note_addresses *ret)
{
	size_t at = 0;

	while (at < len) {
		const char *owner = notes + at + sizeof(Elf64_Nhdr), *body;
		Elf64_Nhdr note;

		if (len - at < sizeof(note))
			return -EBADMSG;
		memcpy(&note, notes + at, sizeof(note));
		at += sizeof(note) + align4(note.n_namesz);
		body = notes + at;
		if (at > len || note.n_descsz > len - at)
			return -EBADMSG;
		at += align4(note.n_descsz);
		if (note.n_type == NOTE_STAPSDT && note.n_namesz == sizeof(OWNER) &&
		    !memcmp(owner, OWNER, sizeof(OWNER)) && note.n_descsz >= sizeof(*ret) &&
		    note__is_called(body + sizeof(*ret), note.n_descsz - sizeof(*ret), provider,
				    probe)) {
			memcpy(ret, body, sizeof(*ret));
			return 0;
		}
	}
	return -ENOENT;
}

/* The kernel takes a semaphore for two bytes of a writable mapping of the file. */
static int usdt__place(const struct elf_file *file, struct usdt *usdt)
{
	const Elf64_Phdr *code = elf_file__segment(file, usdt->vaddr, PF_X), *data;

	if (!code)
		return -EBADMSG;
	usdt->offset = usdt->vaddr - code->p_vaddr + code->p_offset;
	if (!usdt->semaphore_vaddr)
		return 0;
	data = elf_file__segment(file, usdt->semaphore_vaddr, PF_W);
	if (!data || usdt->semaphore_vaddr % 2 ||
	    usdt->semaphore_vaddr - data->p_vaddr + 2 > data->p_filesz)
		return -EBADMSG;
	usdt->semaphore = usdt->semaphore_vaddr - data->p_vaddr + data->p_offset;
	return 0;
}

int usdt__find(const struct elf_file *file, const char *provider, const char *probe,
	       struct usdt *ret)
{
	const Elf64_Shdr *section = elf_file__section(file, ".note.stapsdt");
	const Elf64_Shdr *base = elf_file__section(file, ".stapsdt.base");
	_cleanup_free_ char *notes = NULL;
	struct note_addresses addresses;
	struct usdt usdt = {0};
	size_t len;
	int err;

	if (!section || section->sh_type != SHT_NOTE)
		return -ENOENT;
	err = elf_file__load(file, section, MAX_NOTES, &notes, &len)
		      ?: notes__find(notes, len, provider, probe, &addresses);
	if (err)
		return err;
	usdt.vaddr = addresses.location;
	usdt.semaphore_vaddr = addresses.semaphore;
	/* Prelink moves sections and leaves notes alone: by this much. */
	if (base && addresses.base) {
		usdt.vaddr += base->sh_addr - addresses.base;
		if (usdt.semaphore_vaddr)
			usdt.semaphore_vaddr += base->sh_addr - addresses.base;
	}
	err = usdt__place(file, &usdt);
	if (!err)
		*ret = usdt;
	return err;
}
