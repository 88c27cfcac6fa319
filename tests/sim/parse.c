/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The parser of scripts: recursive descent, one token of look-ahead. */
#include "script.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

#define MAX_DEPTH 16
#define MAX_THREADS 64
#define MAX_PAUSE_MS 86400e3
#define NS_PER_MS 1e6
#define NS_PER_S 1e9

int parse_fail(struct parser *p, const char *why)
{
	if (p->error->why)
		return -EINVAL;
	p->error->line = p->tokens.line;
	p->error->why = why;
	snprintf(p->error->word, sizeof(p->error->word), "%.63s", p->tokens.word);
	return -EINVAL;
}

int parse_next(struct parser *p)
{
	return tokens_next(&p->tokens) ? parse_fail(p, p->tokens.error) : 0;
}

bool parse_at(const struct parser *p, const char *word)
{
	return p->tokens.token == TOKEN_WORD && !strcmp(p->tokens.word, word);
}

int parse_need(struct parser *p, const char *why)
{
	return p->tokens.token == TOKEN_WORD ? 0 : parse_fail(p, why);
}

int parse_number(struct parser *p, uint64_t max, uint64_t *ret_value)
{
	if (p->tokens.token != TOKEN_WORD || !parse_u64(p->tokens.word, max, ret_value))
		return parse_fail(p, "not a whole number in range");
	return parse_next(p);
}

static int find_comm(const struct parser *p)
{
	for (int i = 0; i < p->script->n_comms; i++)
		if (!strcmp(p->script->comm_name[i], p->tokens.word))
			return i;
	return SCRIPT_NULL_COMM;
}

int parse_old_comm(struct parser *p, int *ret_comm)
{
	if (parse_need(p, "name of a communicator missing"))
		return -EINVAL;
	*ret_comm = find_comm(p);
	if (*ret_comm == SCRIPT_NULL_COMM && strcmp(p->tokens.word, "null"))
		return parse_fail(p, "no communicator of this name was made before");
	return parse_next(p);
}

static bool is_name(const char *word)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
				      "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

	return strcmp(word, "null") && strlen(word) < SCRIPT_NAME_SIZE &&
	       !word[strspn(word, allowed)];
}

static int take_new_comm(struct parser *p, int *ret_comm)
{
	struct script *script = p->script;

	if (parse_need(p, "name of a communicator missing"))
		return -EINVAL;
	if (!is_name(p->tokens.word))
		return parse_fail(p, "not a name for a communicator");
	*ret_comm = find_comm(p);
	if (*ret_comm == SCRIPT_NULL_COMM) {
		if (script->n_comms == SCRIPT_MAX_COMMS)
			return parse_fail(p, "too many names of communicators");
		*ret_comm = script->n_comms++;
		memcpy(script->comm_name[*ret_comm], p->tokens.word, SCRIPT_NAME_SIZE - 1);
	}
	return parse_next(p);
}

static int take_comm(struct parser *p, struct instruction *i)
{
	if (take_new_comm(p, &i->comm))
		return -EINVAL;
	if (p->tokens.token != TOKEN_WORD)
		return 0;
	if (parse_at(p, "config"))
		i->init = INIT_CONFIG;
	else if (parse_at(p, "scalable"))
		i->init = INIT_SCALABLE;
	else
		return parse_fail(p, "neither config nor scalable");
	return parse_next(p);
}

static int take_split(struct parser *p, struct instruction *i)
{
	char new_name[sizeof(p->tokens.word)];

	memcpy(new_name, p->tokens.word, sizeof(new_name));
	if (take_new_comm(p, &i->comm))
		return -EINVAL;
	if (parse_at(p, new_name))
		return parse_fail(p, "a communicator cannot be its own parent");
	if (parse_at(p, "null"))
		return parse_fail(p, "needs a parent");
	if (parse_old_comm(p, &i->parent))
		return -EINVAL;
	if (p->tokens.token != TOKEN_WORD || !parse_u64(p->tokens.word, INT_MAX, &i->times) ||
	    !i->times)
		return parse_fail(p, "the divisor must be a number of at least 1");
	return parse_next(p);
}

static int take_duration(struct parser *p, struct instruction *i)
{
	double value;

	if (p->tokens.token != TOKEN_WORD || !parse_positive(p->tokens.word, MAX_PAUSE_MS, &value))
		return parse_fail(p, "not a positive number in range");
	i->ns = (int64_t)(i->kind == DO_RATE ? NS_PER_S / value : value * NS_PER_MS);
	return parse_next(p);
}

/* MS, or the least and the most of them */
int parse_span(struct parser *p, struct instruction *i)
{
	double most;

	if (take_duration(p, i))
		return -EINVAL;
	if (p->tokens.token != TOKEN_WORD || !isdigit((unsigned char)p->tokens.word[0]))
		return 0;
	if (!parse_positive(p->tokens.word, MAX_PAUSE_MS, &most) ||
	    (int64_t)(most * NS_PER_MS) < i->ns)
		return parse_fail(p, "not a number of milliseconds, at least the first one");
	i->more_ns = (int64_t)(most * NS_PER_MS) - i->ns;
	return parse_next(p);
}

static int take_text(struct parser *p, struct instruction *i)
{
	const char *start = p->tokens.begin;
	size_t n;

	if (parse_need(p, "text missing"))
		return -EINVAL;
	n = strcspn(start, ";\n");
	i->text = strndup(start, n);
	p->tokens.at = start + n;
	return i->text ? parse_next(p) : -ENOMEM;
}

static int take_block(struct parser *p, struct instruction **ret_first,
		      const struct rank_set *ranks);

static int take_body(struct parser *p, struct instruction *i)
{
	bool in_group = p->in_group, in_threads = p->in_threads;
	int err;

	if (p->tokens.token != TOKEN_OPEN)
		return parse_fail(p, "{ missing");
	if (++p->depth > MAX_DEPTH)
		return parse_fail(p, "nested too deep");
	p->in_group |= i->kind == DO_GROUP;
	p->in_threads |= i->kind == DO_THREADS;
	err = parse_next(p);
	if (!err)
		err = take_block(p, &i->body, &i->ranks);
	if (!err && p->tokens.token != TOKEN_CLOSE)
		err = parse_fail(p, "} missing");
	p->in_group = in_group;
	p->in_threads = in_threads;
	p->depth--;
	return err ? err : parse_next(p);
}

static int take_counted_body(struct parser *p, struct instruction *i)
{
	uint64_t max = i->kind == DO_THREADS ? MAX_THREADS : UINT64_MAX - 1;

	if (i->kind == DO_LOOP && parse_at(p, "forever")) {
		i->times = SCRIPT_FOREVER;
		if (parse_next(p))
			return -EINVAL;
	} else if (parse_number(p, max, &i->times)) {
		return -EINVAL;
	}
	return take_body(p, i);
}

static int take_capture(struct parser *p, struct instruction *i)
{
	return parse_graph(p, i) ? -EINVAL : take_body(p, i);
}

static int take_one_comm(struct parser *p, struct instruction *i)
{
	return parse_old_comm(p, &i->comm);
}

/* NAME RESULT */
static int take_error(struct parser *p, struct instruction *i)
{
	if (parse_old_comm(p, &i->comm))
		return -EINVAL;
	if (i->comm == SCRIPT_NULL_COMM)
		return parse_fail(p, "needs a communicator");
	if (parse_need(p, "result missing"))
		return -EINVAL;
	i->result = result_find(p->tokens.word);
	return i->result < 0 ? parse_fail(p, "not an asynchronous error") : parse_next(p);
}

static int take_nothing(struct parser *p, struct instruction *i)
{
	p->script->has_wait |= i->kind == DO_WAIT;
	return 0;
}

static const struct {
	const char *word;
	enum instruction_kind kind;
	bool group_ok, threads_ok;
	int (*take)(struct parser *p, struct instruction *i);
} words[] = {
	{ "comm", DO_COMM, true, false, take_comm },
	{ "split", DO_SPLIT, true, false, take_split },
	{ "destroy", DO_DESTROY, false, false, take_one_comm },
	{ "abort", DO_ABORT, false, false, take_one_comm },
	{ "finalize", DO_FINALIZE, false, false, take_one_comm },
	{ "group", DO_GROUP, true, true, take_body },
	{ "loop", DO_LOOP, true, true, take_counted_body },
	{ "threads", DO_THREADS, false, false, take_counted_body },
	{ "pause", DO_PAUSE, true, true, parse_span },
	{ "rate", DO_RATE, true, true, take_duration },
	{ "print", DO_PRINT, true, true, take_text },
	{ "stamp", DO_STAMP, true, true, take_text },
	{ "barrier", DO_BARRIER, true, false, take_nothing },
	{ "stop", DO_STOP, true, false, take_nothing },
	{ "kill", DO_KILL, true, false, take_nothing },
	{ "exit", DO_EXIT, true, false, take_nothing },
	{ "wait", DO_WAIT, true, false, take_nothing },
	{ "load", DO_LOAD, false, false, take_text },
	{ "error", DO_ERROR, false, false, take_error },
	{ "env", DO_ENV, false, false, take_text },
	{ "synchronize", DO_SYNCHRONIZE, false, true, parse_stream },
	{ "compute", DO_COMPUTE, true, true, parse_compute },
	{ "gpu", DO_GPU, true, false, parse_gpu },
	{ "capture", DO_CAPTURE, false, false, take_capture },
	{ "replay", DO_REPLAY, false, false, parse_replay },
	{ "drop", DO_DROP, false, false, parse_graph },
};

static int take_ranks(struct parser *p, struct rank_set *ranks)
{
	struct rank_set own;

	if (!parse_ranks(p->tokens.word + 1, p->script->n_ranks, &own))
		return parse_fail(p, "not a list of ranks of this job");
	for (size_t i = 0; i < sizeof(own.bits) / sizeof(own.bits[0]); i++)
		ranks->bits[i] &= own.bits[i];
	if (!rank_set_count(ranks))
		return parse_fail(p, "none of these ranks comes here");
	return parse_next(p) ? -EINVAL : parse_need(p, "instruction missing");
}

static int take_instruction(struct parser *p, struct instruction *i)
{
	int operation = operation_find(p->tokens.word);

	if (operation >= 0) {
		i->kind = DO_OPERATION;
		i->operation = operation;
		return parse_next(p) ? -EINVAL : parse_operation(p, i);
	}
	for (size_t n = 0; n < sizeof(words) / sizeof(words[0]); n++) {
		if (strcmp(p->tokens.word, words[n].word))
			continue;
		if (p->in_group && !words[n].group_ok)
			return parse_fail(p, "not allowed inside a group");
		if (p->in_threads && !words[n].threads_ok)
			return parse_fail(p, "not allowed inside threads");
		i->kind = words[n].kind;
		return parse_next(p) ? -EINVAL : words[n].take(p, i);
	}
	return parse_fail(p, "unknown instruction");
}

static int take_block(struct parser *p, struct instruction **ret_first,
		      const struct rank_set *ranks)
{
	struct instruction **tail = ret_first, *i;
	int err = 0;

	while (!err) {
		while (p->tokens.token == TOKEN_END)
			if (parse_next(p))
				return -EINVAL;
		if (p->tokens.token != TOKEN_WORD)
			return 0;
		if (p->script->n_instructions == SCRIPT_MAX_INSTRUCTIONS)
			return parse_fail(p, "too many instructions");
		i = calloc(1, sizeof(*i));
		if (!i)
			return -ENOMEM;
		*tail = i;
		tail = &i->next;
		i->line = p->tokens.line;
		i->index = p->script->n_instructions++;
		i->ranks = *ranks;
		if (p->tokens.word[0] == '@')
			err = take_ranks(p, &i->ranks);
		if (!err)
			err = take_instruction(p, i);
		if (!err && (p->tokens.token == TOKEN_WORD || p->tokens.token == TOKEN_OPEN))
			err = parse_fail(p, "unexpected");
	}
	return err;
}

int script_parse(struct script *script, const char *text, int n_ranks,
		 struct script_error *ret_error)
{
	struct parser p = { .script = script, .error = ret_error,
			    .tokens = { .at = text, .begin = text, .line = 1 } };
	struct rank_set all = { 0 };
	int err;

	memset(ret_error, 0, sizeof(*ret_error));
	script->n_ranks = n_ranks;
	for (int i = 0; i < n_ranks; i++)
		all.bits[i / 64] |= UINT64_C(1) << (i % 64);
	err = parse_next(&p);
	if (!err)
		err = take_block(&p, &script->first, &all);
	if (!err && p.tokens.token != TOKEN_EOF)
		err = parse_fail(&p, "unexpected");
	return err;
}

static void free_list(struct instruction *i)
{
	while (i) {
		struct instruction *following = i->next;

		free_list(i->body);
		free(i->text);
		free(i);
		i = following;
	}
}

void script_free(struct script *script)
{
	free_list(script->first);
	script->first = NULL;
}
