/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the parser's files share. Functions return 0, or -EINVAL with the error noted. */
#ifndef SIM_PARSE_H
#define SIM_PARSE_H

#include "script.h"
#include "token.h"

struct parser {
	struct script *script;
	struct script_error *error;
	struct tokens tokens;
	int depth;
	bool in_group, in_threads;
};

/* parse.c */
int parse_fail(struct parser *p, const char *why);
int parse_next(struct parser *p);
bool parse_at(const struct parser *p, const char *word);
int parse_need(struct parser *p, const char *why);
int parse_number(struct parser *p, uint64_t max, uint64_t *ret_value);
int parse_old_comm(struct parser *p, int *ret_comm);
int parse_span(struct parser *p, struct instruction *i);

/* parse_operation.c: what follows the first word. */
int parse_operation(struct parser *p, struct instruction *i);
int parse_stream(struct parser *p, struct instruction *i);
int parse_compute(struct parser *p, struct instruction *i);
int parse_gpu(struct parser *p, struct instruction *i);
int parse_graph(struct parser *p, struct instruction *i);
int parse_replay(struct parser *p, struct instruction *i);

#endif
