/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "screen_frame.h"

#include <stdarg.h>
#include <sys/ioctl.h>

#include "screen_text.h"

#define END_LINE "\033[K" /* clears the rest of it */

struct frame frame__begin(FILE *text, int fd)
{
	struct winsize size = {};

	if (ioctl(fd, TIOCGWINSZ, &size) || !size.ws_col || !size.ws_row)
		size = (struct winsize){.ws_col = 80, .ws_row = 24};
	return (struct frame){.text = text, .width = size.ws_col, .height = size.ws_row};
}

unsigned int frame__room(const struct frame *frame)
{
	return frame->height - frame->n_lines;
}

/* One column is left free: in the last one some terminals clear what they have just shown. */
void frame__line(struct frame *frame, const char *look, const char *format, ...)
{
	char raw[FRAME_MAX_WIDTH], line[FRAME_MAX_WIDTH];
	va_list args;

	if (!frame__room(frame))
		return;
	va_start(args, format);
	vsnprintf(raw, sizeof(raw), format, args);
	va_end(args);
	screen_text__sanitise(line, frame->width < sizeof(line) ? frame->width : sizeof(line), raw);
	fprintf(frame->text, "%s%s%s" FRAME_PLAIN END_LINE, frame->n_lines++ ? "\r\n" : "", look,
		line);
}
