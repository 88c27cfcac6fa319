/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Operations of NCCL, and what is done to the simulated GPU. */
#include "parse.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FACTOR 1e6
#define PERMILLE 1000

/* One of op=, root=, peer=, stream= and `x TIMES`. */
static int take_option(struct parser *p, struct instruction *i)
{
	uint64_t number = 0;
	bool ok;

	if (parse_at(p, "x"))
		return parse_next(p) || parse_number(p, UINT64_MAX - 1, &i->times) ? -EINVAL : 0;
	if (!strncmp(p->tokens.word, "op=", 3)) {
		i->redop = redop_find(p->tokens.word + 3);
		ok = i->redop >= 0;
	} else if (!strncmp(p->tokens.word, "root=", 5)) {
		ok = parse_u64(p->tokens.word + 5, INT_MAX, &number);
		i->root = (int)number;
	} else if (!strncmp(p->tokens.word, "peer=", 5)) {
		ok = parse_u64(p->tokens.word + 5, INT_MAX, &number);
		i->peer = (int)number;
	} else if (!strncmp(p->tokens.word, "stream=", 7)) {
		ok = parse_u64(p->tokens.word + 7, SCRIPT_MAX_STREAMS - 1, &number);
		i->stream = (int)number;
	} else {
		return parse_fail(p, "none of op=, root=, peer=, stream=, x TIMES");
	}
	return ok ? parse_next(p) : parse_fail(p, "bad value");
}

int parse_operation(struct parser *p, struct instruction *i)
{
	i->peer = -1;
	i->times = 1;
	if (parse_old_comm(p, &i->comm) || parse_number(p, UINT64_MAX, &i->count))
		return -EINVAL;
	if (parse_need(p, "type missing"))
		return -EINVAL;
	i->datatype = datatype_find(p->tokens.word);
	if (i->datatype < 0)
		return parse_fail(p, "not a type");
	if (parse_next(p))
		return -EINVAL;
	while (p->tokens.token == TOKEN_WORD)
		if (take_option(p, i))
			return -EINVAL;
	return 0;
}

/* [stream=N] */
int parse_stream(struct parser *p, struct instruction *i)
{
	uint64_t number;

	if (p->tokens.token != TOKEN_WORD)
		return 0;
	if (strncmp(p->tokens.word, "stream=", 7) ||
	    !parse_u64(p->tokens.word + 7, SCRIPT_MAX_STREAMS - 1, &number))
		return parse_fail(p, "not stream=N of this job");
	i->stream = (int)number;
	return parse_next(p);
}

int parse_compute(struct parser *p, struct instruction *i)
{
	int error = 0;

	if (parse_at(p, "forever")) {
		i->ns = COMPUTE_FOREVER;
		error = parse_next(p);
	} else {
		error = parse_span(p, i);
	}
	return error ? error : parse_stream(p, i);
}

static bool take_factor(const char *text, uint32_t *ret_permille)
{
	double factor;

	if (!parse_positive(text, MAX_FACTOR, &factor))
		return false;
	*ret_permille = (uint32_t)(factor * PERMILLE + 0.5);
	return true;
}

int parse_gpu(struct parser *p, struct instruction *i)
{
	bool ok = true;

	if (parse_at(p, "ok"))
		i->fault = FAULT_NONE;
	else if (parse_at(p, "hang"))
		i->fault = FAULT_HANG;
	else if (p->tokens.token == TOKEN_WORD && !strncmp(p->tokens.word, "slow=", 5))
		i->fault = FAULT_SLOW, ok = take_factor(p->tokens.word + 5, &i->permille);
	else if (p->tokens.token == TOKEN_WORD && !strncmp(p->tokens.word, "link=", 5))
		i->fault = FAULT_LINK, ok = take_factor(p->tokens.word + 5, &i->permille);
	else
		ok = false;
	return ok ? parse_next(p) : parse_fail(p, "none of ok, hang, slow=FACTOR, link=FACTOR");
}

int parse_graph(struct parser *p, struct instruction *i)
{
	struct script *script = p->script;

	if (parse_need(p, "name of a graph missing"))
		return -EINVAL;
	for (i->graph = 0; i->graph < script->n_graphs; i->graph++)
		if (!strcmp(script->graph_name[i->graph], p->tokens.word))
			return parse_next(p);
	if (i->kind != DO_CAPTURE)
		return parse_fail(p, "no graph of this name was captured before");
	if (script->n_graphs == SCRIPT_MAX_GRAPHS || strlen(p->tokens.word) >= SCRIPT_NAME_SIZE)
		return parse_fail(p, "too many graphs, or too long a name");
	snprintf(script->graph_name[script->n_graphs++], SCRIPT_NAME_SIZE, "%.*s",
		 SCRIPT_NAME_SIZE - 1, p->tokens.word);
	return parse_next(p);
}

/* NAME [stream=N] [x TIMES] */
int parse_replay(struct parser *p, struct instruction *i)
{
	i->times = 1;
	if (parse_graph(p, i))
		return -EINVAL;
	if (!parse_at(p, "x") && parse_stream(p, i))
		return -EINVAL;
	if (!parse_at(p, "x"))
		return 0;
	return parse_next(p) || parse_number(p, UINT64_MAX - 1, &i->times) ? -EINVAL : 0;
}
