/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "screen.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent_cost.h"
#include "screen_keys.h"
#include "screen_terminal.h"
#include "screen_view.h"
#include "shown.h"
#include "util.h"

#define LATER_NS   (100 * NSEC_PER_MSEC) /* a lone Esc; a terminal that was full */
#define MESSAGE_NS (60 * NSEC_PER_SEC)	 /* how long one of stderr is shown */

struct screen {
	struct screen_options options;
	struct terminal *terminal;
	struct rates *rates;
	struct screen_timed *timed;
	struct picture picture;
	struct view view;
	struct grid grid;
	struct screen_decoder decoder;
	struct loop_source *keys, *signals, *later;
	int signal_fd;
	bool is_deaf; /* no keys will come any more */
	double cpu_seconds;
	uint64_t drawn_ns, message_ns;
	char last_message[sizeof(((struct view *)0)->message)];
};

/* ---- the picture ---- */

static void on_launch(void *ctx, const struct timing_launch *launch)
{
	struct screen *screen = ctx;

	screen_timed__launch(screen->timed, launch);
}

static void screen__forget_ended(struct screen *screen)
{
	struct comm *comm = comms__first(tracer__comms(screen->options.tracer));

	for (; comm; comm = comm->hh.next)
		screen_timed__keep(screen->timed, comm->key.hash);
	screen_timed__sweep(screen->timed);
}

/* What is wrong with a process, in buf; false: nothing known of. */
static bool explain(const struct process *process, char *buf, size_t size)
{
	const struct library *library = process__nccl(process);

	if (!library || process->gone_ns || !process__is_shown(process))
		return false;
	if (library->state == LIBRARY_UNSUPPORTED)
		snprintf(buf, size, "%u %s: cannot be traced: %s: %s", process->tgid,
			 process->info.command, library->name, library->reason);
	else if (process->scan_err)
		snprintf(buf, size, "%u %s: its communicators cannot be read: %s", process->tgid,
			 process->info.command, strerror(abs(process->scan_err)));
	else
		return false;
	return true;
}

static void take_troubles(struct picture *picture, struct tracer *tracer)
{
	struct process *process = processes__first(tracer__processes(tracer));
	char text[sizeof(picture->troubles[0])];

	picture->n_troubles = 0;
	for (; process; process = process->hh.next) {
		if (!explain(process, text, sizeof(text)))
			continue;
		if (picture->n_troubles < PICTURE_MAX_TROUBLES)
			strcpy(picture->troubles[picture->n_troubles], text);
		picture->n_troubles++;
	}
}

static void take_head(struct screen *screen, double seconds)
{
	struct tracer *tracer = screen->options.tracer;
	struct picture *picture = &screen->picture;
	double cpu_seconds = agent__cpu_seconds();

	picture->wall = time(NULL);
	gethostname(picture->host, sizeof(picture->host) - 1);
	picture->census = tracer__census(tracer);
	picture->total = rates__total(screen->rates);
	picture->resident_bytes = agent__resident_bytes();
	if (seconds > 0)
		picture->cpu_percent = (cpu_seconds - screen->cpu_seconds) / seconds * 100;
	screen->cpu_seconds = cpu_seconds;
	picture->n_losses = 0;
	for (int i = 0; i < TRACER_LOST_MAX; i++)
		if (tracer__lost(tracer, i))
			picture->losses[picture->n_losses++] = (struct picture_loss){
				tracer__lost_name(i), tracer__lost(tracer, i)};
	take_troubles(picture, tracer);
}

static int screen__take_picture(struct screen *screen, uint64_t now, uint64_t elapsed_ns)
{
	const struct picture_source source = {
		.tracer = screen->options.tracer,
		.verdicts = screen->options.verdicts,
		.rates = screen->rates,
		.timed = screen->timed,
	};

	if (screen->view.frozen)
		return 0;
	screen->picture.now_ns = now;
	take_head(screen, (double)elapsed_ns / NSEC_PER_SEC);
	return picture__take(&screen->picture, &source);
}

/* ---- on the terminal ---- */

static void screen__update_message(struct screen *screen, uint64_t now)
{
	char message[sizeof(screen->last_message)];

	terminal__last_message(screen->terminal, message, sizeof(message));
	if (strcmp(message, screen->last_message)) {
		strcpy(screen->last_message, message);
		screen->message_ns = now;
	}
	screen->view.message[0] = 0;
	if (message[0] && now - screen->message_ns < MESSAGE_NS)
		strcpy(screen->view.message, message);
}

static void screen__show(struct screen *screen)
{
	unsigned int width, height;

	terminal__size(screen->terminal, &width, &height);
	screen__update_message(screen, now_ns());
	grid__begin(&screen->grid, width, height);
	view__draw(&screen->view, &screen->picture, &screen->grid);
	if (terminal__show(screen->terminal, &screen->grid))
		loop_source__set_timer(screen->later, LATER_NS, 0);
}

/* ---- keys and signals ---- */

static void screen__press(struct screen *screen, int key)
{
	switch (view__key(&screen->view, &screen->picture, key)) {
	case VIEW_QUIT:
		screen->options.on_quit(screen->options.ctx);
		break;
	case VIEW_REDRAW:
		terminal__forget(screen->terminal);
		screen__show(screen);
		break;
	case VIEW_CHANGED:
		screen__show(screen);
		break;
	case VIEW_SAME:
		break;
	}
}

/* for_good: nobody is there any more. */
static void screen__stop_keys(struct screen *screen, bool for_good)
{
	loop__remove(screen->options.loop, screen->keys);
	screen->keys = NULL;
	screen->is_deaf = for_good;
}

static void on_keys(void *ctx)
{
	struct screen *screen = ctx;
	char byte;
	int err;

	if (!terminal__is_in_foreground(screen->terminal)) {
		screen__stop_keys(screen, false); /* what is typed is another's */
		return;
	}
	while (!(err = terminal__read(screen->terminal, &byte))) {
		int keys[2];
		unsigned int n = screen_decoder__feed(&screen->decoder, byte, keys);

		for (unsigned int i = 0; i < n; i++)
			screen__press(screen, keys[i]);
	}
	if (err != -EAGAIN)
		screen__stop_keys(screen, terminal__is_in_foreground(screen->terminal));
	if (screen->decoder.len)
		loop_source__set_timer(screen->later, LATER_NS, 0);
}

/* As long as keys are ours; else the loop would turn round what the shell does not read. */
static void screen__watch_keys(struct screen *screen)
{
	int fd = terminal__key_fd(screen->terminal);

	if (fd < 0 || screen->keys || screen->is_deaf ||
	    !terminal__is_in_foreground(screen->terminal))
		return;
	if (loop__add_fd(screen->options.loop, fd, on_keys, screen, &screen->keys))
		screen->keys = NULL; /* again at the next picture */
}

static void on_later(void *ctx)
{
	struct screen *screen = ctx;
	int key = screen_decoder__timeout(&screen->decoder);

	if (key != KEY_NONE_YET)
		screen__press(screen, key);
	else
		screen__show(screen);
}

/* Does with the signal what it does to those who do not catch it, the terminal being as it was. */
static void screen__obey(struct screen *screen, int sig)
{
	sigset_t set;

	terminal__give_back(screen->terminal);
	signal(sig, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	raise(sig);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

static void on_signals(void *ctx)
{
	struct screen *screen = ctx;
	struct signalfd_siginfo info;

	while (read(screen->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGTSTP || info.ssi_signo == SIGQUIT)
			screen__obey(screen, info.ssi_signo);
		else if (info.ssi_signo == SIGCONT)
			terminal__forget(screen->terminal);
	}
	screen__watch_keys(screen);
	screen__show(screen);
}

int screen__draw(struct screen *screen, uint64_t now)
{
	struct tracer *tracer = screen->options.tracer;
	uint64_t elapsed_ns = now - screen->drawn_ns;
	int err = rates__update(screen->rates, tracer__comms(tracer),
				probe__received(tracer__probe(tracer)), now);

	screen->drawn_ns = now;
	screen_timed__fade(screen->timed, elapsed_ns);
	screen__forget_ended(screen);
	err = screen__take_picture(screen, now, elapsed_ns) ?: err;
	view__update(&screen->view, &screen->picture);
	screen__watch_keys(screen);
	screen__show(screen);
	return err;
}

/* ---- beginning and end ---- */

/*
 * SIGTTOU and SIGTTIN would stop us when the terminal is another job's. They are not looked at:
 * writing is then as if nobody minded, and it is not done.
 */
static int screen__watch_signals(struct screen *screen)
{
	static const int handled[] = {SIGTSTP, SIGCONT, SIGWINCH, SIGQUIT};
	sigset_t set, blocked;

	sigemptyset(&set);
	for (unsigned int i = 0; i < ARRAY_SIZE(handled); i++)
		sigaddset(&set, handled[i]);
	blocked = set;
	sigaddset(&blocked, SIGTTOU);
	sigaddset(&blocked, SIGTTIN);
	if (sigprocmask(SIG_BLOCK, &blocked, NULL))
		return -errno;
	screen->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (screen->signal_fd < 0)
		return -errno;
	return loop__add_fd(screen->options.loop, screen->signal_fd, on_signals, screen,
			    &screen->signals);
}

static int screen__open(struct screen *screen, const char **ret_why)
{
	struct loop *loop = screen->options.loop;
	int err = terminal__new(&screen->terminal, STDIN_FILENO, STDOUT_FILENO, ret_why);

	if (err)
		return err;
	*ret_why = "out of memory or file descriptors";
	err = rates__new(&screen->rates, screen->drawn_ns);
	err = err ?: screen_timed__new(&screen->timed);
	err = err ?: screen__watch_signals(screen);
	err = err ?: loop__add_timer(loop, 0, 0, on_later, screen, &screen->later);
	/* last: nobody stops listening */
	return err ?: tracer__on_launch(screen->options.tracer, on_launch, screen);
}

int screen__new(struct screen **ret, const struct screen_options *options, const char **ret_why)
{
	struct screen *screen = calloc(1, sizeof(*screen));
	int err;

	*ret_why = "out of memory";
	if (!screen)
		return -ENOMEM;
	screen->options = *options;
	screen->view.textfile_dir = options->textfile_dir;
	screen->signal_fd = -1;
	screen->drawn_ns = now_ns();
	screen->cpu_seconds = agent__cpu_seconds();
	err = screen__open(screen, ret_why);
	if (err) {
		screen__free(screen);
		return err;
	}
	*ret = screen;
	return 0;
}

void screen__give_back(struct screen *screen)
{
	if (screen)
		terminal__give_back(screen->terminal);
}

void screen__free(struct screen *screen)
{
	if (!screen)
		return;
	terminal__free(screen->terminal);
	loop__remove(screen->options.loop, screen->keys);
	loop__remove(screen->options.loop, screen->signals);
	loop__remove(screen->options.loop, screen->later);
	if (screen->signal_fd >= 0)
		close(screen->signal_fd);
	rates__free(screen->rates);
	screen_timed__free(screen->timed);
	picture__clear(&screen->picture);
	free(screen);
}
