/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The live screen: who is in trouble, which rank is silent or late, what moves, what cannot be
 * seen. Nothing that a job wrote reaches the terminal but printable ASCII, and no terminal keeps
 * the caller waiting.
 */
#ifndef SCREEN_H
#define SCREEN_H

#include "loop.h"
#include "tracer.h"
#include "verdict.h"

struct screen;

struct screen_options {
	struct loop *loop;
	struct tracer *tracer; /* must end before the screen does */
	struct verdicts *verdicts;
	const char *textfile_dir; /* shown only; NULL: none is written */
	loop_fn *on_quit;	  /* a key asked for the end */
	void *ctx;
};

/*
 * On the terminal that standard output is, with keys if standard input is it, too; takes it over at
 * the first draw. Before the tracer starts: rates are since then. Everything in the options is
 * borrowed. Signals that have to do with terminals are blocked from then on. 0 or -errno, with one
 * phrase in ret_why.
 */
int screen__new(struct screen **ret, const struct screen_options *options, const char **ret_why);

/* The terminal is as it was: before anything is printed. Takes NULL. */
void screen__give_back(struct screen *screen);
void screen__free(struct screen *screen);

/*
 * Draws the picture of the tracer's last refresh and the verdicts of the last settle, once a
 * second. 0 or -ENOMEM. A terminal that takes nothing at this time (stopped with Ctrl-S, a dead
 * connection), or that belongs to another job of the shell, is passed over and is no error.
 */
int screen__draw(struct screen *screen, uint64_t now_ns);

#endif
