/* tier.c: the text of tiers. One statement a line, words that say what they mean; no nesting, no variables, no arithmetic: a
 * rule that needs those is one that nobody checks by eye, and a tier is what people trust without looking. */
#include "lab/tier.h"

#include "base/mmap.h"
#include "model/utf8.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIERS_LIMIT = 1 << 20 };

struct reading {
    struct tiers *tiers;
    int line;
    struct hone_error *e;
};

static int bad(struct reading *r, const char *what)
{
    return err_set(r->e, HONE_EINPUT, "%s:%d: %s", r->tiers->path, r->line, what);
}

static int no_memory(struct reading *r)
{
    return err_set(r->e, HONE_ERESOURCE, "no memory for tiers");
}

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    for (size_t n = strlen(text); n && strchr(" \t\r", text[n - 1]); n--)
        text[n - 1] = 0;
    return text;
}

/* The last word of text, cut off it. */
static char *last_word(char *text)
{
    char *space = strpbrk(text, " \t") ? text + strlen(text) : NULL;
    while (space && space > text && !strchr(" \t", space[-1]))
        space--;
    if (!space || space == text)
        return NULL;
    space[-1] = 0;
    trim(text);
    return space;
}

static const char *const ops[] = {">=", ">", "<=", "<"};

char *tier_bench_text(const struct tier_bench *b, char *text, size_t size)
{
    char quantile[16];
    snprintf(quantile, sizeof quantile, "p%.0f", 100 * b->quantile);
    const char *name = b->quantile <= 0 ? "min" : b->quantile >= 1 ? "max" : !strcmp(quantile, "p50") ? "median" : quantile;
    snprintf(text, size, "bench %.80s %s %s %.15g", b->series, name, ops[b->op], b->bound);
    return text;
}

static int read_quantile(const char *word, double *q)
{
    char *end;
    if (!strcmp(word, "median"))
        *q = 0.5;
    else if (!strcmp(word, "min"))
        *q = 0;
    else if (!strcmp(word, "max"))
        *q = 1;
    else if (*word == 'p' && isdigit((unsigned char)word[1])) {
        long x = strtol(word + 1, &end, 10);
        if (*end || x < 1 || x > 99)
            return -1;
        *q = (double)x / 100;
    } else {
        return -1;
    }
    return 0;
}

/* SERIES STATISTIC OP NUMBER; the series has spaces, the operator has them or not. */
static int read_bench(struct reading *r, struct tier *t, char *text)
{
    char *sign = text + strlen(text), *end;
    struct tier_bench b = {.line = r->line};
    while (sign > text && (!*sign || !strchr("<>", *sign)))
        sign--;
    if (sign == text)
        return bad(r, "bench SERIES median|min|max|pN >=|>|<=|< NUMBER");
    size_t n = sign[1] == '=' ? 2 : 1;
    char *number = trim(sign + n);
    while (strncmp(sign, ops[b.op], n) != 0 || ops[b.op][n])
        b.op++;
    *sign = 0;
    text = trim(text);
    if (*text && strchr("=<>", text[strlen(text) - 1]))
        return bad(r, "bench: >=, >, <= and < are possible");
    b.bound = strtod(number, &end);
    if (end == number || *end || !isfinite(b.bound))
        return bad(r, *number == '>' || *number == '<' || *number == '=' ? "bench: >=, >, <= and < are possible"
                                                                         : "bench: the bound is no number");
    char *statistic = last_word(text);
    if (!statistic || !*text)
        return bad(r, "bench SERIES median|min|max|pN >=|>|<=|< NUMBER");
    if (read_quantile(statistic, &b.quantile))
        return bad(r, "bench: median, min, max and p1 to p99 are possible");
    struct tier_bench *list = reallocarray(t->benches, (size_t)t->n_benches + 1, sizeof *list);
    if (!list)
        return no_memory(r);
    t->benches = list;
    b.series = strdup(text);
    list[t->n_benches++] = b;
    return b.series ? 0 : no_memory(r);
}

/* All but bench are said once. */
static bool stands_already(const struct tier *t, const char *word)
{
    return !strcmp(word, "model")       ? t->model != NULL
           : !strcmp(word, "verify")    ? t->has_verify
           : !strcmp(word, "ab")        ? t->has_ab
           : !strcmp(word, "base")      ? t->base != NULL
           : !strcmp(word, "fallbacks") ? t->no_fallbacks
                                        : !strcmp(word, "weights") && t->weights_may_change;
}

/* A recipe in the tier's own text: what the first has to beat must not hang on a file that anybody may edit. */
static int read_base(struct reading *r, struct tier *t, const char *words)
{
    struct recipe base;
    struct hone_error why = {0};
    int rc = recipe_parse(&base, words, "base", &why);
    recipe_free(&base);
    if (rc)
        return bad(r, why.message);
    return (t->base = strdup(words)) ? 0 : no_memory(r);
}

static int read_statement(struct reading *r, struct tier *t, const char *word, char *rest)
{
    char text[80];
    snprintf(text, sizeof text, "%.20s stands twice in this tier", word);
    if (stands_already(t, word))
        return bad(r, text);
    if (!strcmp(word, "model") && *rest)
        return (t->model = strdup(rest)) ? 0 : no_memory(r);
    if (!strcmp(word, "bench"))
        return read_bench(r, t, rest);
    if (!strcmp(word, "base") && *rest)
        return read_base(r, t, rest);
    if (!strcmp(word, "verify") && !verify_class_find(rest, &t->least) && t->least < VERIFY_DIFFERENT) {
        t->has_verify = true;
        return 0;
    }
    if (!strcmp(word, "ab") && (!strcmp(rest, "win") || !strcmp(rest, "no-loss"))) {
        t->has_ab = true;
        t->ab_win = !strcmp(rest, "win");
        return 0;
    }
    if (!strcmp(word, "fallbacks") && !strcmp(rest, "0")) {
        t->no_fallbacks = true;
        return 0;
    }
    if (!strcmp(word, "weights") && !strcmp(rest, "may-change")) {
        t->weights_may_change = true;
        return 0;
    }
    return bad(r, "a statement is tier NAME, model TEXT, bench SERIES STATISTIC OP NUMBER, verify CLASS, ab win|no-loss, "
                  "fallbacks 0, weights may-change or base WORDS, each but bench once");
}

static int begin_tier(struct reading *r, const char *name)
{
    struct tiers *t = r->tiers;
    if (!*name || strpbrk(name, " \t") || strlen(name) > 60)
        return bad(r, "a tier has a name of one word");
    if (tiers_find(t, name))
        return bad(r, "a tier of this name stands above");
    struct tier *list = reallocarray(t->list, (size_t)t->n + 1, sizeof *list);
    if (!list)
        return no_memory(r);
    t->list = list;
    list[t->n] = (struct tier){.name = strdup(name), .line = r->line};
    return list[t->n++].name ? 0 : no_memory(r);
}

static int end_tier(struct reading *r)
{
    const struct tier *t = r->tiers->n ? &r->tiers->list[r->tiers->n - 1] : NULL;
    if (!t || t->n_benches || t->has_verify || t->has_ab || t->no_fallbacks)
        return 0;
    return err_set(r->e, HONE_EINPUT, "%s:%d: tier %s asks for nothing, so everything would pass", r->tiers->path, t->line,
                   t->name);
}

int tiers_parse(struct tiers *t, const char *text, const char *path, struct hone_error *e)
{
    *t = (struct tiers){.path = strdup(path)};
    struct reading r = {t, 1, e};
    char *own = strdup(text);
    int rc = own && t->path ? 0 : no_memory(&r);
    for (char *p = own, *end; p && !rc; p = end, r.line++) {
        if ((end = strchr(p, '\n')))
            *end++ = 0;
        if (utf8_fault(p, strlen(p)) < strlen(p)) {
            rc = bad(&r, "no UTF-8");
            break;
        }
        p[strcspn(p, "#")] = 0;
        char *word = trim(p), *rest = word + strcspn(word, " \t");
        if (!*word)
            continue;
        if (*rest)
            *rest++ = 0;
        rest = trim(rest);
        if (!strcmp(word, "tier")) {
            rc = end_tier(&r);
            rc = rc ? rc : begin_tier(&r, rest);
        } else {
            rc = t->n ? read_statement(&r, &t->list[t->n - 1], word, rest) : bad(&r, "the first statement is tier NAME");
        }
    }
    free(own);
    return rc ? rc : end_tier(&r);
}

int tiers_read(struct tiers *t, const char *path, struct hone_error *e)
{
    struct mapping m;
    *t = (struct tiers){0};
    int rc = mapping_open(&m, path, e);
    if (rc)
        return rc;
    char *text = m.size <= TIERS_LIMIT ? strndup(m.size ? (const char *)m.data : "", m.size) : NULL;
    rc = text ? tiers_parse(t, text, path, e) : err_set(e, HONE_EINPUT, "%s: %zu bytes is no file of tiers", path, m.size);
    free(text);
    mapping_close(&m);
    return rc;
}

void tiers_free(struct tiers *t)
{
    for (int i = 0; i < t->n; i++) {
        for (int k = 0; k < t->list[i].n_benches; k++)
            free(t->list[i].benches[k].series);
        free(t->list[i].benches);
        free(t->list[i].name);
        free(t->list[i].model);
        free(t->list[i].base);
    }
    free(t->list);
    free(t->path);
    *t = (struct tiers){0};
}

const struct tier *tiers_find(const struct tiers *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->list[i].name, name))
            return &t->list[i];
    return NULL;
}
