/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by attach.c and attach_trial.c. */
#ifndef ATTACH_PRIVATE_H
#define ATTACH_PRIVATE_H

#include "attach.h"

/* Where to probe, as the kernel takes it. */
struct sites {
	const char *path;
	uint32_t n;
	uint32_t pid; /* 0: in every process */
	uint64_t offsets[IMAGE_MAX_SITES], ref_ctrs[IMAGE_MAX_SITES], cookies[IMAGE_MAX_SITES];
};

/* The link's fd, or -errno. */
int link_multi(int program_fd, const struct sites *sites);

#endif
