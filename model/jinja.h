/* jinja.h: chat templates as programs: the subset of Jinja that published templates use, as Hugging Face runs it (trim_blocks,
 * lstrip_blocks, break and continue, generation blocks, tojson without HTML escapes, an immutable sandbox).
 *
 * Strict: what it does not know, and what Python would raise, is HONE_EINPUT with line and column; nothing is guessed. */
#ifndef MODEL_JINJA_H
#define MODEL_JINJA_H

#include "model/tokenizer.h"

#include <jansson.h>

struct jinja;

/* What a rendering may use at most; 0: the default. */
struct jinja_limits {
    uint64_t steps; /* nodes evaluated, and bytes handled by the 64; 20 million */
    size_t memory;  /* bytes of values; 256 MiB */
    size_t output;  /* bytes of text; 64 MiB */
    int depth;      /* of statements, expressions and values within each other; 1000 */
};

/* Parses n bytes (copied; UTF-8). Nothing is run. To be freed with jinja_free. */
int jinja_parse(struct jinja **out, const char *text, size_t n, struct hone_error *e);
void jinja_free(struct jinja *j);

/* Appends the rendering to *out. `context` is an object: its keys are the template's variables. `now` (seconds since 1970, in
 * local time) is what strftime_now tells; negative: the template is told that there is no such function. On failure *out holds
 * what it held. A parsed template may be rendered again, but not by two threads at once. limits may be NULL. */
int jinja_render(const struct jinja *j, const json_t *context, int64_t now, const struct jinja_limits *limits, struct text *out,
                 struct hone_error *e);

#endif
