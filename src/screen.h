/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The live table on a terminal: which rank is silent, which moves, what cannot be seen. Nothing
 * that a job wrote reaches the terminal but printable ASCII.
 */
#ifndef SCREEN_H
#define SCREEN_H

#include <stdint.h>
#include <stdio.h>

#include "tracer.h"

struct screen;

/*
 * Takes the terminal `out` over at the first draw. Make it when the tracer starts: rates are since
 * then. textfile_dir, shown only, is borrowed; NULL: none is written. 0 or -ENOMEM.
 */
int screen__new(struct screen **ret, FILE *out, const char *textfile_dir);

/* Gives the terminal back as it was; takes NULL. Do it before anything is printed. */
void screen__free(struct screen *screen);

/*
 * Draws the picture of the tracer's last refresh. 0 or -errno. A terminal that takes nothing at
 * this time (stopped with Ctrl-S, a dead connection) is passed over, and is no error: the caller
 * has records to collect.
 */
int screen__draw(struct screen *screen, struct tracer *tracer, uint64_t now_ns);

#endif
