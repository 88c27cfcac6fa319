/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The texts of /proc, and what is said of them. Pure. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procstate.h"
#include "sanitize.h"
#include "util.h"

/* Fields of stat, counted from 1 as in proc(5). */
#define STAT_STATE     3
#define STAT_THREADS   20
#define STAT_EXIT_CODE 52
#define STAT_MAX       1024

static const struct {
	char letter;
	const char *word;
} letters[] = {
	{'R', "running"}, {'S', "sleeping"}, {'D', "uninterruptible"},
	{'T', "stopped"}, {'t', "traced"},   {'Z', "zombie"},
	{'X', "dead"},	  {'I', "idle"},
};

static const char *state_word(char letter)
{
	for (size_t i = 0; i < ARRAY_SIZE(letters); i++)
		if (letters[i].letter == letter)
			return letters[i].word;
	return NULL;
}

static bool is_stop_signal(uint64_t number)
{
	return number == SIGSTOP || number == SIGTSTP || number == SIGTTIN || number == SIGTTOU;
}

/*
 * The exit code of a process that a signal has stopped is that signal, where the kernel tells: 6.18
 * does to whoever may trace the process; others say 0.
 */
static void take_numbers(const char *field, struct procstate *ret)
{
	for (int i = STAT_STATE + 1; i <= STAT_EXIT_CODE; i++) {
		char *end;
		unsigned long long value = strtoull(field, &end, 10);

		if (end == field)
			return;
		if (i == STAT_THREADS)
			ret->n_threads = value < UINT32_MAX ? value : UINT32_MAX;
		if (i == STAT_EXIT_CODE && ret->main.state == 'T' && is_stop_signal(value))
			ret->stop_signal = value;
		field = end;
	}
}

int procstate__parse_stat(const char *text, size_t len, struct procstate_task *task,
			  struct procstate *ret)
{
	char copy[STAT_MAX], *open, *close;
	size_t name_len;

	if (len >= sizeof(copy))
		len = sizeof(copy) - 1;
	memcpy(copy, text, len);
	copy[len] = 0;
	open = memchr(copy, '(', len);
	close = memrchr(copy, ')', len); /* the name before it may hold anything */
	if (!open || !close || close < open || close[1] != ' ' || !state_word(close[2]))
		return -EBADMSG;
	name_len = close - open - 1;
	if (name_len >= sizeof(task->name))
		name_len = sizeof(task->name) - 1;
	memset(task->name, 0, sizeof(task->name));
	memcpy(task->name, open + 1, name_len);
	task->state = close[2];
	if (ret)
		take_numbers(close + 3, ret);
	return 0;
}

/* "running", or "-1 SP PC", or "NUMBER 0xARGUMENT ... SP PC". */
int procstate__parse_syscall(const char *text, size_t len, struct procstate_task *task,
			     uint64_t *ret_first)
{
	char copy[64], *end;
	long number;

	if (len >= sizeof(copy))
		len = sizeof(copy) - 1;
	memcpy(copy, text, len);
	copy[len] = 0;
	if (!strncmp(copy, "running", 7)) {
		task->syscall = PROCSTATE_NOT_IN_SYSCALL;
		return 0;
	}
	number = strtol(copy, &end, 10);
	if (end == copy || *end != ' ' || number < -1 || number > UINT16_MAX)
		return -EBADMSG;
	task->syscall = number;
	*ret_first = strtoull(end + 1, NULL, 16);
	return 0;
}

static bool is_symbol(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      c == '_' || c == '.'))
			return false;
	}
	return true;
}

/* "0": it does not wait, or that is kept secret. A suffix of the compiler's tells nobody anything.
 */
int procstate__parse_wchan(const char *text, size_t len, struct procstate_task *task)
{
	const char *dot;

	if (len && text[len - 1] == '\n')
		len--;
	if (len >= sizeof(task->wait) || !is_symbol(text, len))
		return -EBADMSG;
	dot = memchr(text, '.', len);
	if (dot)
		len = dot - text;
	if (len == 1 && text[0] == '0')
		len = 0;
	memset(task->wait, 0, sizeof(task->wait));
	memcpy(task->wait, text, len);
	return 0;
}

static bool is_text(const char *field, size_t size)
{
	return memchr(field, 0, size);
}

static bool is_task(const struct procstate_task *task)
{
	return is_text(task->name, sizeof(task->name)) && is_text(task->wait, sizeof(task->wait)) &&
	       is_text(task->file, sizeof(task->file)) &&
	       is_symbol(task->wait, strlen(task->wait)) &&
	       (!task->tid || state_word(task->state)) &&
	       task->syscall >= PROCSTATE_SYSCALL_UNKNOWN && task->syscall <= UINT16_MAX;
}

bool procstate__valid(const struct procstate *state)
{
	return state->main.tid && is_task(&state->main) && is_task(&state->caller) &&
	       (!state->stop_signal || is_stop_signal(state->stop_signal)) &&
	       state->n_uninterruptible <= PROCSTATE_MAX_THREADS && state->is_frozen <= 1;
}

/* Linux's freezer holds it here, or, by a cgroup of version 1, wherever it waits (since 6.1). */
static bool is_frozen(const struct procstate *state, const struct procstate_task *task)
{
	return state->is_frozen || !strcmp(task->wait, "do_freezer_trap") ||
	       !strcmp(task->wait, "__refrigerator");
}

const char *procstate_task__word(const struct procstate *state, const struct procstate_task *task)
{
	const char *word = task->tid ? state_word(task->state) : NULL;

	return !word ? "unknown" : is_frozen(state, task) ? "frozen" : word;
}

static const char *stop_name(uint32_t number)
{
	return number == SIGSTOP   ? "SIGSTOP"
	       : number == SIGTSTP ? "SIGTSTP"
	       : number == SIGTTIN ? "SIGTTIN"
				   : "SIGTTOU";
}

static void describe_wait(const struct procstate_task *task, char *buf, size_t size)
{
	const char *name = procstate__syscall_name(task->syscall);
	char number[32] = "", file[128], wait[64] = "";

	if (!name && task->syscall >= 0) {
		snprintf(number, sizeof(number), "system call %d", task->syscall);
		name = number;
	}
	if (task->wait[0])
		snprintf(wait, sizeof(wait), " (%s)", task->wait);
	snprintf(buf, size, "%s%s%s%s%s", name ? " in " : "", name ?: "",
		 task->file[0] ? " of " : "", sanitize__text(task->file, file, sizeof(file)), wait);
}

const char *procstate_task__describe(const struct procstate *state,
				     const struct procstate_task *task, char buf[PROCSTATE_TEXT])
{
	const char *word = procstate_task__word(state, task);
	char more[PROCSTATE_TEXT - 32] = "";

	if (!task->tid)
		; /* nothing is known */
	else if (is_frozen(state, task))
		snprintf(more, sizeof(more), " by its cgroup or a suspend");
	else if (task->state == 'T' && state->stop_signal)
		snprintf(more, sizeof(more), " (%s)", stop_name(state->stop_signal));
	else if (task->state == 't' && state->tracer_pid)
		snprintf(more, sizeof(more), " by process %u", state->tracer_pid);
	else if (task->state == 'S' || task->state == 'D')
		describe_wait(task, more, sizeof(more));
	snprintf(buf, PROCSTATE_TEXT, "%s%s", word, more);
	return buf;
}
