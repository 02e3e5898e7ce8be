/* pretokenizer.c: patterns over UTF-8, run by PCRE2 with its JIT.
 *
 * The patterns of a row work like a chain of sieves: a piece that the first one leaves, matched or not, is the whole subject of
 * the next, so that a lookahead cannot see past it. The chain is walked depth first, which yields the words in order with no
 * list of pieces in between.
 *
 * PCRE2 wants valid UTF-8. A text with invalid bytes is matched through a shadow in which each of them stands as U+FFFD; two
 * cursors that walk both texts together turn the shadow's words back into the text's. PCRE2 can skip over invalid bytes itself
 * (MATCH_INVALID_UTF), but then they are no character at all, and a lookahead at one fails both ways.
 *
 * Under UCP, \s takes in U+180E, which has not been White_Space since Unicode 6.3; so \s and \S become \p{White_Space} and
 * \P{White_Space} before compiling. The tables are those of the PCRE2 that is linked (10.42: Unicode 14), so letters newer than
 * it count as no letters.
 *
 * Hand-written scanners for the common rows, as other programs have, were not needed: see the figures in tokenizer.c. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/pretokenizer.h"

#include "model/tokenizer_parts.h"
#include "model/utf8.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATTERNS = 6, MAX_PATTERN_SIZE = 4096 };
enum { IGNORE_MERGES = 1, ADD_BOS = 2 };

static const struct row {
    const char *name;
    unsigned flags;
    const char *patterns[MAX_PATTERNS + 1]; /* ends with NULL */
} rows[] = {
#define PRETOKENIZER(name, flags, ...) {name, flags, {__VA_ARGS__}},
#include "model/pretokenizers.def"
#undef PRETOKENIZER
};
enum { N_ROWS = sizeof rows / sizeof *rows };

struct pretokenizer {
    const struct row *row;
    pcre2_code *codes[MAX_PATTERNS];
    int n;
    pcre2_match_context *limits;
};

struct split {
    const struct pretokenizer *p;
    pcre2_match_data *match;
    const char *subject; /* the text or its shadow */
    bool shadow;
    const char *text;
    size_t n;                   /* bytes of text */
    size_t subject_at, text_at; /* how far the two cursors are; the same without a shadow */
    pretokenizer_word_fn *word;
    void *context;
    struct hone_error *e;
};

static int unknown_name(const char *name, size_t size, struct hone_error *e)
{
    char known[400] = "", shown[40];
    size_t used = 0;
    for (int i = 0; i < N_ROWS && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, i ? " %s" : "%s", rows[i].name);
    return err_set(e, HONE_EINPUT, "unknown pre-tokenizer \"%s\"; known: %s", printable(name, size, shown, sizeof shown),
                   known);
}

/* The pattern with \s and \S spelled out. */
static bool expand(const char *pattern, char *out, size_t room)
{
    size_t n = 0;
    for (const char *p = pattern; *p; p++) {
        char piece[24] = {*p};
        if (*p == '\\') {
            p++;
            if (*p == 's' || *p == 'S')
                snprintf(piece, sizeof piece, "\\%c{White_Space}", *p == 's' ? 'p' : 'P');
            else
                piece[1] = *p;
        }
        size_t size = strlen(piece);
        if (n + size >= room)
            return false;
        memcpy(out + n, piece, size + 1);
        n += size;
    }
    return true;
}

static int compile(struct pretokenizer *p, const char *pattern, struct hone_error *e)
{
    char expanded[MAX_PATTERN_SIZE];
    INVARIANT(expand(pattern, expanded, sizeof expanded));
    int code;
    PCRE2_SIZE at;
    pcre2_code *c = pcre2_compile((PCRE2_SPTR)expanded, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (!c) {
        char why[120] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(e, HONE_EFAULT, "pre-tokenizer %s: PCRE2 refuses its pattern %d at %zu: %s", p->row->name, p->n, at,
                       why);
    }
    /* Where the system forbids JIT, PCRE2 interprets: slower, the same matches. */
    pcre2_jit_compile(c, PCRE2_JIT_COMPLETE);
    p->codes[p->n++] = c;
    return 0;
}

int pretokenizer_open(struct pretokenizer **out, const char *name, size_t size, struct hone_error *e)
{
    const struct row *row = NULL;
    for (int i = 0; i < N_ROWS && !row; i++)
        if (strlen(rows[i].name) == size && !memcmp(rows[i].name, name, size))
            row = &rows[i];
    if (!row)
        return unknown_name(name, size, e);
    struct pretokenizer *p = calloc(1, sizeof *p);
    if (!p || !(p->limits = pcre2_match_context_create(NULL))) {
        free(p);
        return err_set(e, HONE_ERESOURCE, "out of memory for a pre-tokenizer");
    }
    p->row = row;
    /* The interpreter's default limit on steps would fail on a long run of spaces; every pattern is linear, so none is needed.
     */
    pcre2_set_match_limit(p->limits, UINT32_MAX);
    int rc = 0;
    for (int i = 0; row->patterns[i] && !rc; i++)
        rc = compile(p, row->patterns[i], e);
    if (rc) {
        pretokenizer_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

void pretokenizer_close(struct pretokenizer *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n; i++)
        pcre2_code_free(p->codes[i]);
    pcre2_match_context_free(p->limits);
    free(p);
}

const char *pretokenizer_name(int i)
{
    return i >= 0 && i < N_ROWS ? rows[i].name : NULL;
}

bool pretokenizer_ignores_merges(const struct pretokenizer *p)
{
    return p->row->flags & IGNORE_MERGES;
}

bool pretokenizer_adds_bos(const struct pretokenizer *p)
{
    return p->row->flags & ADD_BOS;
}

/* The subject up to `end` is a word. */
static int emit(struct split *s, size_t end)
{
    size_t begin = s->text_at;
    if (!s->shadow) {
        s->subject_at = s->text_at = end;
    } else {
        while (s->subject_at < end) {
            size_t size = utf8_sequence(s->text + s->text_at, s->n - s->text_at);
            s->subject_at += size ? size : 3;
            s->text_at += size ? size : 1;
        }
    }
    return s->word(s->context, begin, s->text_at);
}

/* Cuts subject[begin, end) by the patterns from `level` on. Recurses at most MAX_PATTERNS deep. */
static int sieve(struct split *s, int level, size_t begin, size_t end)
{
    if (level == s->p->n)
        return emit(s, end);
    PCRE2_SPTR piece = (PCRE2_SPTR)s->subject + begin;
    size_t n = end - begin, done = 0, from = 0;
    while (from < n) {
        int found = pcre2_match(s->p->codes[level], piece, n, from, PCRE2_NO_UTF_CHECK, s->match, s->p->limits);
        if (found == PCRE2_ERROR_JIT_STACKLIMIT)
            found = pcre2_match(s->p->codes[level], piece, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match, s->p->limits);
        if (found == PCRE2_ERROR_NOMATCH)
            break;
        if (found < 0)
            return err_set(s->e, found == PCRE2_ERROR_NOMEMORY ? HONE_ERESOURCE : HONE_EFAULT,
                           "pre-tokenizer %s: PCRE2 fails with %d at byte %zu", s->p->row->name, found, begin + from);
        /* Read before the deeper levels overwrite it. */
        size_t at = pcre2_get_ovector_pointer(s->match)[0], to = pcre2_get_ovector_pointer(s->match)[1];
        INVARIANT(at < to && at >= done && to <= n);
        int rc = at > done ? sieve(s, level + 1, begin + done, begin + at) : 0;
        if (!rc)
            rc = sieve(s, level + 1, begin + at, begin + to);
        if (rc)
            return rc;
        done = from = to;
    }
    return done < n ? sieve(s, level + 1, begin + done, end) : 0;
}

/* Bytes of the shadow of a text; equal to n when it needs none. */
static size_t shadow_size(const char *text, size_t n)
{
    size_t size = n;
    for (size_t i = 0, step; i < n; i += step) {
        step = (unsigned char)text[i] < 0x80 ? 1 : utf8_sequence(text + i, n - i);
        if (!step) {
            size += 2;
            step = 1;
        }
    }
    return size;
}

static void fill_shadow(char *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t step = utf8_sequence(text + i, n - i);
        memcpy(out, step ? text + i : "\xef\xbf\xbd", step ? step : 3);
        out += step ? step : 3;
        i += step ? step : 1;
    }
}

int pretokenizer_split(const struct pretokenizer *p, const char *text, size_t n, pretokenizer_word_fn *word, void *context,
                       struct hone_error *e)
{
    INVARIANT(n <= SIZE_MAX / 4);
    struct split s = {.p = p, .text = text, .subject = text, .n = n, .word = word, .context = context, .e = e};
    size_t size = shadow_size(text, n);
    char *shadow = NULL;
    int rc = HONE_ERESOURCE;
    if (size != n) {
        shadow = malloc(size);
        if (!shadow)
            goto done;
        fill_shadow(shadow, text, n);
        s.subject = shadow;
        s.shadow = true;
    }
    s.match = pcre2_match_data_create(1, NULL);
    if (s.match)
        rc = sieve(&s, 0, 0, size);
done:
    if (rc == HONE_ERESOURCE)
        err_set(e, rc, "out of memory for a text of %zu bytes", n);
    pcre2_match_data_free(s.match);
    free(shadow);
    return rc;
}
