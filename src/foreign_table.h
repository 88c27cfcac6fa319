/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tables ncclProfiler_vN that a profiler plugin exports: which there are, which of them NCCL
 * takes, and where the functions in one lie. A table is a name and five functions: init,
 * startEvent, stopEvent, recordEventState, finalize. Reads only, believes nothing.
 */
#ifndef FOREIGN_TABLE_H
#define FOREIGN_TABLE_H

#include <stdint.h>

#include "elf_file.h"
#include "nccl_bpftrace_record.h"

#define FOREIGN_TABLE_BYTES 48
#define FOREIGN_LAST	    15 /* N looked for: more than NCCL has had */

struct foreign_tables {
	uint64_t at[FOREIGN_LAST + 1]; /* by N: link-time address less exec_delta; 0: none */
};

/* 1 when the file exports any, 0, or -errno when it cannot be read. */
int foreign_tables__read(const struct elf_file *file, struct foreign_tables *ret);

/*
 * N of the one that NCCL of that version (nccl_image.version) takes: the highest that both know. 0:
 * none of them, or one that is not known here; ret_why then is one phrase, to stand behind the
 * file's name.
 */
int foreign_tables__choose(const struct foreign_tables *tables, int32_t nccl_version,
			   const char **ret_why);

enum foreign_verdict {
	FOREIGN_FOUND,
	FOREIGN_UNREADABLE, /* the process does not show its memory there */
	FOREIGN_EMPTY,	    /* NULL where a function must be: not filled in yet */
	FOREIGN_OUTSIDE,    /* a function that does not lie in the code of the plugin's own file */
	FOREIGN_REFUSED,    /* the kernel takes no probe there */
	FOREIGN_VERDICTS,
};

/* The executable mapping of the plugin's file in the process. */
struct foreign_code {
	uint64_t start, end, file_offset;
};

/* Where to probe: offsets in the file of NB_FOREIGN_START to NB_FOREIGN_STOP; 0: not there. */
#define FOREIGN_N_SITES 5
struct foreign_sites {
	uint64_t offset[FOREIGN_N_SITES]; /* by enum nb_foreign_callback */
};

/* Judges table N of a plugin as it lies in the process's memory. */
enum foreign_verdict foreign_table__check(int version,
					  const uint64_t table[FOREIGN_TABLE_BYTES / 8],
					  const struct foreign_code *code,
					  struct foreign_sites *ret);

/* One phrase, to stand behind the file's name. */
const char *foreign_verdict__reason(enum foreign_verdict verdict);

#endif
