/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Splits a script into words, braces and ends of instructions. */
#ifndef SIM_TOKEN_H
#define SIM_TOKEN_H

#define TOKEN_WORD_SIZE 512

enum token { TOKEN_START, TOKEN_WORD, TOKEN_OPEN, TOKEN_CLOSE, TOKEN_END, TOKEN_EOF };

struct tokens {
	const char *at; /* behind the current token */
	const char *begin; /* of the current token */
	int line; /* of the current token */
	enum token token;
	char word[TOKEN_WORD_SIZE]; /* its text, or its name when it has none to show */
	const char *error;
};

/* To the next token. -EINVAL with error set when there is none. */
int tokens_next(struct tokens *tokens);

#endif
