/* chat.h: messages to a prompt, by the family of the file's chat template, or else by running the template (jinja.h).
 *
 * A family is recognised by the markers that its templates contain. What is of no family and cannot be run is HONE_EINPUT with line
 * and column that offers --chat-template and --raw; there is no default. */
#ifndef MODEL_CHAT_H
#define MODEL_CHAT_H

#include "model/tokenizer.h"

#include <jansson.h>

struct chat_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
};

/* What a conversation is rendered with, beside its messages. */
struct chat_template {
    const char *text;      /* the template; NULL: none, a family's own rules alone */
    const char *eos_token; /* the end token's text, for templates that are run; NULL: none, and one that asks for it is refused */
    const json_t *tools;   /* an array that chat_tools_check takes; NULL: none */
    const char *path;      /* of the file that the user gave it by: it is run whatever family it looks like; NULL: the model's own */
};

struct chat_format; /* a family: chatml, llama3, gemma; or the file's own template */

/* By name (chat_format_names lists them), or, name NULL, by the template text (may be NULL: then an error). With tools, and where the user
 * gave the template, it is always the template that is run: the families' rules have no tools, and who gives a template wants what stands
 * in it. With tools one that never names them is HONE_EINPUT, a family by name HONE_EUSAGE. */
int chat_format_find(const struct chat_format **out, const char *name, const struct chat_template *t, struct hone_error *e);
const char *chat_format_name(const struct chat_format *f);
/* "chatml, gemma, llama3" */
const char *chat_format_names(void);
/* Appends the text of the messages from `first` on, and the opening of an assistant's turn if asked, as the family writes it
 * (with its default system prompt only where the template itself has one). To be encoded with TOKENIZE_SPECIAL; it never holds a bos
 * token, so the first part of a conversation wants TOKENIZE_BOS too. Where message first - 1 is an assistant's, the end of its turn
 * comes first: a model wrote its content, and its end token was not fed. So the parts of a conversation, with the model's answers
 * between them, add up to the whole. Tools that the template does not write are an error. */
int chat_render(const struct chat_format *f, const struct chat_template *t, const struct chat_message *messages, size_t n, size_t first,
                bool assistant_turn, struct text *out, struct hone_error *e);

/* Tools as templates expect them, the form of OpenAI's chat completions: an array of {"type": "function", "function": {"name",
 * "description", "parameters"}}, the last two optional, parameters a JSON schema of an object. HONE_EINPUT says which tool and what. */
int chat_tools_check(const json_t *tools, struct hone_error *e);

/* chat_template.c: the same by the interpreter, and whether it can parse a template. */
int chat_template_check(const char *template_text, struct hone_error *e);
int chat_template_render(const struct chat_template *t, const struct chat_message *messages, size_t n, size_t first, bool assistant_turn,
                         struct text *out, struct hone_error *e);

#endif
