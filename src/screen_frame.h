/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One picture for a terminal, made in memory, so that the terminal gets it whole: what stands there
 * is written over line by line and never cleared first, which would flicker.
 */
#ifndef SCREEN_FRAME_H
#define SCREEN_FRAME_H

#include <stdbool.h>
#include <stdio.h>

#define FRAME_MAX_WIDTH 512

#define FRAME_HOME "\033[H" /* goes before the first line */
#define FRAME_END  "\033[J" /* after the last: clears all below */

/* How a line looks. */
#define FRAME_PLAIN   "\033[0m"
#define FRAME_BOLD    "\033[1m"
#define FRAME_REVERSE "\033[7m"
#define FRAME_ALARM   "\033[1;37;41m"

struct frame {
	FILE *text;
	unsigned int width, height, n_lines;
};

/* As large as the terminal that fd is; 80 x 24 for what is none. */
struct frame frame__begin(FILE *text, int fd);

/* Lines left. */
unsigned int frame__room(const struct frame *frame);

/* A line, sanitised, cut to the width; nothing when the frame is full. */
__attribute__((format(printf, 3, 4))) void frame__line(struct frame *frame, const char *look,
						       const char *format, ...);

#endif
