/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by options.c and options_table.c. */
#ifndef OPTIONS_PRIVATE_H
#define OPTIONS_PRIVATE_H

#include "options.h"

#define BIT(command) (1U << COMMAND_##command)

/* Why a value is refused: whoever knows where it stands prints it. -EINVAL. */
int __attribute__((format(printf, 2, 3)))
options__refuse(struct options *options, const char *format, ...);

#endif
