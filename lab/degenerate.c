/* degenerate.c: three rules, each with its reason.
 *
 * Ends early: an end token within the first quarter. What comes behind it is the model talking past its end.
 * Short loop: from within the first quarter on, every token is the one `period` before it, period at most 8. A loop that begins
 * later has text before it that proves something; longer loops (a sentence again and again) are what small models do greedily,
 * and each round of one runs over another cache, in which a fault shows. One character: one code point in a row makes up more
 * than half of the text, spaces and all. Different tokens may stand for one run ("!!",
 * "!!!!"), so ids alone do not show it. */
#include "lab/degenerate.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PERIOD = 8 };

static size_t code_point(const char *text, size_t rest)
{
    unsigned char c = (unsigned char)*text;
    size_t n = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    return n < rest ? n : rest;
}

/* The longest run of one code point, in code points, of how many. */
static void longest_run(const struct text *x, size_t *run, size_t *all)
{
    size_t now = 0, before = 0, before_n = 0;
    *run = *all = 0;
    for (size_t at = 0, n; at < x->n; at += n) {
        n = code_point(x->data + at, x->n - at);
        bool same = *all && n == before_n && !memcmp(x->data + at, x->data + before, n);
        now = same ? now + 1 : 1;
        *run = now > *run ? now : *run;
        before = at;
        before_n = n;
        ++*all;
    }
}

/* The first token from which on all repeat with this period. */
static size_t loop_start(const int32_t *ids, size_t n, size_t period)
{
    size_t i = n;
    while (i > period && ids[i - 1] == ids[i - 1 - period])
        i--;
    return i - period;
}

static int find_character(struct degenerate *d, const struct tokenizer *t, const int32_t *ids, size_t n, struct hone_error *e)
{
    struct text x = {0};
    size_t run, all;
    int rc = tokenizer_size(t) ? tokenizer_decode(t, ids, n, true, &x, e) : 0;
    longest_run(&x, &run, &all);
    if (!rc && all >= 8 && 2 * run > all)
        *d = (struct degenerate){.kind = ONE_CHARACTER};
    text_free(&x);
    return rc;
}

int degenerate_find(struct degenerate *d, const struct tokenizer *t, const int32_t *ids, size_t n, struct hone_error *e)
{
    *d = (struct degenerate){0};
    for (size_t i = 0; i < n / 4; i++)
        if (tokenizer_is_end(t, ids[i])) {
            *d = (struct degenerate){.kind = ENDS_EARLY, .at = i};
            return 0;
        }
    for (size_t p = 1; p <= MAX_PERIOD && 2 * p <= n; p++) {
        size_t at = loop_start(ids, n, p);
        if (4 * at < n && at + 2 * p <= n) {
            *d = (struct degenerate){.kind = SHORT_LOOP, .at = at, .period = p};
            break;
        }
    }
    struct degenerate character = {0};
    int rc = find_character(&character, t, ids, n, e);
    if (character.kind)
        *d = character;
    return rc;
}

char *degenerate_text(const struct degenerate *d, char *text, size_t size)
{
    text[0] = 0;
    if (d->kind == ENDS_EARLY)
        snprintf(text, size, "ends at token %zu", d->at);
    else if (d->kind == ONE_CHARACTER)
        snprintf(text, size, "is one character for more than half of it");
    else if (d->kind == SHORT_LOOP)
        snprintf(text, size, "repeats %zu token%s from token %zu on", d->period, d->period == 1 ? "" : "s", d->at);
    return text;
}
