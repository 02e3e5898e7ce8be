/* chat.h: messages to a prompt, by the family of the file's chat template, or else by running the template (jinja.h).
 *
 * A family is recognised by the markers that its templates contain. What is of no family and cannot be run is HONE_EINPUT with line
 * and column that offers --chat-template and --raw; there is no default. */
#ifndef MODEL_CHAT_H
#define MODEL_CHAT_H

#include "model/tokenizer.h"

struct chat_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
};

struct chat_format; /* a family: chatml, llama3, gemma; or the file's own template */

/* By name (chat_format_names lists them), or, name NULL, by the template text (may be NULL: then an error). */
int chat_format_find(const struct chat_format **out, const char *name, const char *template_text, struct hone_error *e);
const char *chat_format_name(const struct chat_format *f);
/* "chatml, gemma, llama3" */
const char *chat_format_names(void);
/* Appends the text of the messages from `first` on, and the opening of an assistant's turn if asked, as the family writes it
 * (with its default system prompt only where the template itself has one: pass template_text, which may be NULL). To be encoded
 * with TOKENIZE_SPECIAL; it never holds a bos token, so the first part of a conversation wants TOKENIZE_BOS too. Where message
 * first - 1 is an assistant's, the end of its turn comes first: a model wrote its content, and its end token was not fed. So
 * the parts of a conversation, with the model's answers between them, add up to the whole. eos_token: the end token's text, for
 * templates that are run (NULL: none, and a template that asks for it is refused). */
int chat_render(const struct chat_format *f, const char *template_text, const char *eos_token, const struct chat_message *messages, size_t n,
                size_t first, bool assistant_turn, struct text *out, struct hone_error *e);

/* chat_template.c: the same by the interpreter, and whether it can parse a template. */
int chat_template_check(const char *template_text, struct hone_error *e);
int chat_template_render(const char *template_text, const char *eos_token, const struct chat_message *messages, size_t n, size_t first,
                         bool assistant_turn, struct text *out, struct hone_error *e);

#endif
