/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "token.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool is_word(char c)
{
	return isgraph((unsigned char)c) && !strchr(";{}#", c);
}

static int fail(struct tokens *tokens, const char *error)
{
	tokens->error = error;
	return -EINVAL;
}

static int take_word(struct tokens *tokens)
{
	size_t n = 0;

	while (is_word(tokens->at[n]))
		n++;
	tokens->token = TOKEN_WORD;
	tokens->at += n;
	if (n >= TOKEN_WORD_SIZE)
		n = TOKEN_WORD_SIZE - 1;
	memcpy(tokens->word, tokens->begin, n);
	tokens->word[n] = '\0';
	return tokens->begin[n] && is_word(tokens->begin[n]) ? fail(tokens, "word is too long") : 0;
}

static void set(struct tokens *tokens, enum token token, const char *name)
{
	tokens->token = token;
	snprintf(tokens->word, sizeof(tokens->word), "%s", name);
	tokens->at += token != TOKEN_EOF;
}

int tokens_next(struct tokens *tokens)
{
	/* counted here, so that an error at the end of a line names that line */
	if (tokens->token == TOKEN_END && *tokens->begin == '\n')
		tokens->line++;
	tokens->at += strspn(tokens->at, " \t\r");
	if (*tokens->at == '#')
		tokens->at += strcspn(tokens->at, "\n");
	tokens->begin = tokens->at;
	if (is_word(*tokens->at))
		return take_word(tokens);
	switch (*tokens->at) {
	case '\0':
		set(tokens, TOKEN_EOF, "end of script");
		return 0;
	case '{':
		set(tokens, TOKEN_OPEN, "{");
		return 0;
	case '}':
		set(tokens, TOKEN_CLOSE, "}");
		return 0;
	case ';':
		set(tokens, TOKEN_END, ";");
		return 0;
	case '\n':
		set(tokens, TOKEN_END, "end of line");
		return 0;
	}
	snprintf(tokens->word, sizeof(tokens->word), "\\x%02x", (unsigned char)*tokens->at);
	return fail(tokens, "unexpected character");
}
