/* denylist.c: what nobody should have to find out twice.
 *
 * A text file, so that it is reviewed and kept with the code like code. Each line names the evidence: the hash of the record of
 * a run in the journal, by which anyone can look at what happened. A table within the journal lost: there it could be neither
 * reviewed nor read beside the recipes, and journals are one a machine.
 *
 * A denial speaks of what is in effect, not of what is written: fusions are on unless a gate turns them off, keys and values
 * are f16, and a gate that a later one makes void is not there. Where a gate of the recipe may be about the same node as one of
 * the denial, with the same kernel, it counts: a list of the unsafe errs on the side of refusing. */
#include "lab/denylist.h"

#include "base/mmap.h"
#include "formats/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DENYLIST_LIMIT = 4 << 20 };

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    for (size_t n = strlen(text); n && strchr(" \t\r", text[n - 1]); n--)
        text[n - 1] = 0;
    return text;
}

/* One line without its comment; text is cut up. */
static int add_line(struct denylist *d, char *text, int line, struct hone_error *e)
{
    char *rest = text, source[4200];
    char *words = strsep(&rest, "|"), *record = strsep(&rest, "|"), *why = rest;
    if (!record || !why || !*trim(why))
        return err_set(e, HONE_EINPUT, "%s:%d: a denial is WORD [WORD ...] | RECORD | WHY", d->path, line);
    words = trim(words);
    record = trim(record);
    if (!*words)
        return err_set(e, HONE_EINPUT, "%s:%d: nothing is denied", d->path, line);
    if (strlen(record) != 64 || strspn(record, "0123456789abcdef") != 64)
        return err_set(e, HONE_EINPUT, "%s:%d: '%.80s' is no SHA-256 of a record; `hone journal show ID` says it as record",
                       d->path, line, record);
    if (d->n == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 16;
        struct denial *list = reallocarray(d->list, cap, sizeof *list);
        if (!list)
            return err_set(e, HONE_ERESOURCE, "no memory for a denylist");
        d->list = list;
        d->cap = cap;
    }
    struct denial *one = &d->list[d->n++];
    *one = (struct denial){.line = line, .why = strdup(trim(why))};
    memcpy(one->record, record, 65);
    snprintf(source, sizeof source, "%s:%d", d->path, line);
    return one->why ? recipe_parse(&one->words, words, source, e) : err_set(e, HONE_ERESOURCE, "no memory for a denylist");
}

int denylist_read(struct denylist *d, const char *path, struct hone_error *e)
{
    struct mapping m;
    *d = (struct denylist){.path = strdup(path)};
    if (!d->path)
        return err_set(e, HONE_ERESOURCE, "no memory for a denylist");
    int rc = mapping_open(&m, path, e), line = 1;
    if (rc)
        return rc;
    char *text = m.size <= DENYLIST_LIMIT ? strndup(m.size ? (const char *)m.data : "", m.size) : NULL;
    if (!text)
        rc = err_set(e, HONE_EINPUT, "%s: %zu bytes is no denylist", path, m.size);
    for (char *p = text, *end; p && !rc; p = end, line++) {
        if ((end = strchr(p, '\n')))
            *end++ = 0;
        p[strcspn(p, "#")] = 0;
        if (*trim(p))
            rc = add_line(d, p, line, e);
    }
    free(text);
    mapping_close(&m);
    return rc;
}

void denylist_free(struct denylist *d)
{
    for (size_t i = 0; i < d->n; i++) {
        recipe_free(&d->list[i].words);
        free(d->list[i].why);
    }
    free(d->list);
    free(d->path);
    *d = (struct denylist){0};
}

/* Whether what the gate of a denial says is so under the recipe. *line: of the gate that makes it so; 0: by default. */
static bool in_effect(const struct recipe *r, const struct gate *denied, int *line)
{
    bool settled = false;
    *line = 0;
    for (int i = r->gates.n; i-- > 0;) {
        const struct gate *g = &r->gates.list[i];
        if (!gate_overlaps(g, denied) || recipe_overridden(r, i) >= 0)
            continue;
        if (!strcmp(g->variant, denied->variant)) {
            *line = r->lines[i];
            return true;
        }
        settled = settled || gate_covers(g, denied);
        if (settled)
            break;
    }
    return !settled && denied->kind == GATE_FUSE && !strcmp(denied->variant, "on");
}

static bool type_in_effect(const char *denied, const char *own)
{
    enum format_id a = FORMAT_F16, b = FORMAT_F16;
    return !*denied || (!format_by_name(denied, &a) && !(*own && format_by_name(own, &b)) && a == b);
}

static bool names_plugin(const struct recipe *r, const char *sha256)
{
    for (int i = 0; i < r->settings.n_plugins; i++)
        if (!strcmp(r->settings.plugins[i], sha256))
            return true;
    return false;
}

static bool is_denied(const struct denial *d, const struct recipe *r, int *line)
{
    const struct settings *s = &d->words.settings;
    bool all = type_in_effect(s->type_k, r->settings.type_k) && type_in_effect(s->type_v, r->settings.type_v) &&
               (!s->n_threads || s->n_threads == r->settings.n_threads);
    for (int i = 0; i < s->n_plugins && all; i++)
        all = names_plugin(r, s->plugins[i]);
    *line = 0;
    for (int i = 0; i < d->words.gates.n && all; i++) {
        int at;
        all = in_effect(r, &d->words.gates.list[i], &at);
        *line = at > *line ? at : *line;
    }
    return all;
}

int denylist_check(const struct denylist *d, const struct recipe *r, struct journal *j, struct recipe_findings *out,
                   struct hone_error *e)
{
    int rc = 0;
    for (size_t i = 0; i < d->n && !rc; i++) {
        const struct denial *one = &d->list[i];
        bool has = true;
        int line;
        if (!is_denied(one, r, &line))
            continue;
        rc = recipe_find(out, line, true, e, "denied by %s:%d: '%s' is unsafe: %s (record %.12s)", d->path, one->line,
                         one->words.text, one->why, one->record);
        if (!rc && j && !(rc = journal_has(j, one->record, &has, e)) && !has)
            rc = recipe_find(out, line, false, e, "%s:%d names a record that this journal does not have: %.12s", d->path,
                             one->line, one->record);
    }
    return rc;
}
