/* recipe.c: recipes as things that are compared, judged and promoted.
 *
 * A recipe is the text that a session reads, nothing else: no header, no name inside, no version. So what was measured is the
 * file, and the hash that names it in a journal can be had from the file alone. The hash is of what is said, not of how:
 * comments, spaces and where a word stands in a line make no difference, the order of gates does (the later wins).
 *
 * Lint refuses what a session takes without a word: a gate that a later one makes void, a kernel that this build does not have,
 * a fusion that is off and told to decline. To a session these are no errors, since gates from three sources are meant to
 * override one another; within one file they are a misunderstanding, and whoever reads the result believes in a gate that never
 * worked. */
#include "lab/recipe.h"

#include "backends/backend.h"
#include "engine/kv.h"
#include "formats/formats.h"
#include "graph/fuse.h"
#include "lab/identity.h"

#include "base/mmap.h"
#include "model/utf8.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECIPE_LIMIT = 1 << 20 };

static int no_memory(struct hone_error *e)
{
    return err_set(e, HONE_ERESOURCE, "no memory for a recipe");
}

/* ---- reading */

/* The gates of text, line by line, so that each has its line. text is cut at its newlines. */
static int read_gates(struct recipe *r, char *text, struct hone_error *e)
{
    int line = 1, cap = 0;
    for (char *p = text; p; line++) {
        char *end = strchr(p, '\n'), source[4200];
        if (end)
            *end = 0;
        snprintf(source, sizeof source, "%s:%d", r->path, line);
        int before = r->gates.n;
        if (gates_parse(&r->gates, p, source, e))
            return e->code = HONE_EINPUT;
        if (r->gates.n > cap) {
            cap = 2 * r->gates.n;
            int *lines = reallocarray(r->lines, (size_t)cap, sizeof *lines);
            if (!lines)
                return no_memory(e);
            r->lines = lines;
        }
        for (int i = before; i < r->gates.n; i++)
            r->lines[i] = line;
        p = end ? end + 1 : NULL;
    }
    return 0;
}

/* As lab/identity.h has it: the gates of skip=a,b share one text. */
static int make_content(struct recipe *r, struct hone_error *e)
{
    json_t *texts = json_array();
    r->content = json_pack("{s:o}", "gates", texts);
    bool failed = !r->content;
    for (int i = 0; i < r->gates.n && !failed; i++)
        if (i == 0 || strcmp(r->gates.list[i].text, r->gates.list[i - 1].text) != 0) {
            json_t *one = json_string(r->gates.list[i].text);
            if (!one)
                return err_set(e, HONE_EINPUT, "%s:%d: the gate is no UTF-8", r->path, r->lines[i]);
            failed = json_array_append_new(texts, one);
        }
    if (!failed && r->settings.type_k[0])
        failed = json_object_set_new(r->content, "type_k", json_string(r->settings.type_k));
    if (!failed && r->settings.type_v[0])
        failed = json_object_set_new(r->content, "type_v", json_string(r->settings.type_v));
    if (!failed && r->settings.n_threads)
        failed = json_object_set_new(r->content, "threads", json_integer(r->settings.n_threads));
    json_t *plugins = r->settings.n_plugins ? json_array() : NULL;
    for (int i = 0; i < r->settings.n_plugins && !failed; i++)
        failed = json_array_append_new(plugins, json_string(r->settings.plugins[i]));
    if (plugins && !failed)
        failed = json_object_set(r->content, "plugins", plugins);
    json_decref(plugins);
    return failed ? no_memory(e) : identity_hash(r->content, r->hash, e);
}

/* What is no UTF-8 could be neither recorded nor printed. */
static int check_utf8(const char *text, const char *path, struct hone_error *e)
{
    size_t n = strlen(text), fault = utf8_fault(text, n);
    int line = 1;
    for (size_t i = 0; i < fault; i++)
        line += text[i] == '\n';
    return fault == n ? 0 : err_set(e, HONE_EINPUT, "%s:%d: no UTF-8: the byte %02x", path, line, (unsigned char)text[fault]);
}

int recipe_parse(struct recipe *r, const char *text, const char *path, struct hone_error *e)
{
    struct hone_error own = {0};
    *r = (struct recipe){.path = strdup(path), .text = strdup(text)};
    char *words = strdup(text);
    int rc = r->path && r->text && words ? 0 : no_memory(&own);
    rc = rc ? rc : check_utf8(text, path, &own);
    rc = rc ? rc : settings_take(&r->settings, words, path, &own);
    rc = rc ? rc : read_gates(r, words, &own);
    rc = rc ? rc : make_content(r, &own);
    free(words);
    if (rc && e)
        *e = own;
    return rc;
}

/* malloc'd. */
static int read_text(char **to, const char *path, struct hone_error *e)
{
    struct mapping m;
    *to = NULL;
    int rc = mapping_open(&m, path, e);
    if (rc)
        return rc;
    char *text = m.size <= RECIPE_LIMIT ? malloc(m.size + 1) : NULL;
    if (!text) {
        rc = err_set(e, HONE_EINPUT, "%s: %zu bytes is no recipe", path, m.size);
    } else {
        if (m.size)
            memcpy(text, m.data, m.size);
        text[m.size] = 0;
        rc = strlen(text) == m.size ? 0 : err_set(e, HONE_EINPUT, "%s: a NUL at offset %zu", path, strlen(text));
    }
    mapping_close(&m);
    if (rc)
        free(text);
    else
        *to = text;
    return rc;
}

int recipe_read(struct recipe *r, const char *path, struct hone_error *e)
{
    char *text;
    *r = (struct recipe){0};
    int rc = read_text(&text, path, e);
    rc = rc ? rc : recipe_parse(r, text, path, e);
    free(text);
    return rc;
}

void recipe_free(struct recipe *r)
{
    gates_free(&r->gates);
    json_decref(r->content);
    free(r->lines);
    free(r->path);
    free(r->text);
    *r = (struct recipe){0};
}

/* ---- lint */

int recipe_find(struct recipe_findings *f, int line, bool error, struct hone_error *e, const char *format, ...)
{
    if (f->n == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : 8;
        struct recipe_finding *list = reallocarray(f->list, cap, sizeof *list);
        if (!list)
            return no_memory(e);
        f->list = list;
        f->cap = cap;
    }
    struct recipe_finding *one = &f->list[f->n++];
    char text[sizeof one->text];
    va_list ap;
    one->line = line;
    one->error = error;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    utf8_shown(text, one->text, sizeof one->text); /* words of a file that may be cut, or no text at all */
    return 0;
}

void recipe_findings_free(struct recipe_findings *f)
{
    free(f->list);
    *f = (struct recipe_findings){0};
}

/* ---- what cannot be read, word by word */

/* The message of an error without the place that it begins with. */
static const char *without_place(const char *message, const char *place)
{
    size_t n = strlen(place);
    return !strncmp(message, place, n) ? message + n : message;
}

/* One word for itself, without white space. *whole: the settings of the words before. */
static int word_fault(char *word, int line, struct settings *whole, struct recipe_findings *out, struct hone_error *e)
{
    struct settings own;
    struct gates g = {0};
    struct hone_error why = {0};
    size_t n = strlen(word);
    int rc = 0;
    if (utf8_fault(word, n) < n)
        return recipe_find(out, line, true, e, "no UTF-8: the byte %02x", (unsigned char)word[utf8_fault(word, n)]);
    if (settings_take(&own, word, "", &why))
        return recipe_find(out, line, true, e, "%s", without_place(why.message, ":1: "));
    bool twice =
        (own.type_k[0] && whole->type_k[0]) || (own.type_v[0] && whole->type_v[0]) || (own.n_threads && whole->n_threads);
    if (twice)
        rc = recipe_find(out, line, true, e, "the setting stands twice in the recipe");
    if (own.type_k[0])
        whole->type_k[0] = 'x';
    if (own.type_v[0])
        whole->type_v[0] = 'x';
    whole->n_threads += own.n_threads;
    whole->n_plugins += own.n_plugins;
    if (!rc && whole->n_plugins == SETTINGS_MAX_PLUGINS + 1)
        rc = recipe_find(out, line, true, e, "a recipe names at most %d plug-ins", SETTINGS_MAX_PLUGINS);
    if (!rc && gates_parse(&g, word, "", &why))
        rc = recipe_find(out, line, true, e, "%s", without_place(why.message, ": "));
    gates_free(&g);
    return rc;
}

int recipe_faults(const char *path, struct recipe_findings *out, struct hone_error *e)
{
    struct hone_error why = {0};
    struct settings whole = {0};
    char *text, place[4200];
    int line = 1;
    *out = (struct recipe_findings){0};
    snprintf(place, sizeof place, "%s: ", path);
    int rc = read_text(&text, path, &why);
    if (rc)
        return rc == HONE_ERESOURCE ? err_set(e, rc, "%s", why.message)
                                    : recipe_find(out, 0, true, e, "%s", without_place(why.message, place));
    for (char *p = text; *p && !rc;) {
        size_t n = *p == '#' ? strcspn(p, "\n") : strcspn(p, " \t\r\n\f\v;");
        if (!n) {
            line += *p++ == '\n';
            continue;
        }
        char *word = strndup(p, n);
        if (!word)
            rc = no_memory(e);
        else if (*p != '#')
            rc = word_fault(word, line, &whole, out, e);
        else if (utf8_fault(p, n) < n)
            rc = recipe_find(out, line, true, e, "no UTF-8: the byte %02x", (unsigned char)p[utf8_fault(p, n)]);
        free(word);
        p += n;
    }
    free(text);
    return rc;
}

static bool same_word(const char *a, const char *b)
{
    return a && b && !strcmp(a, b);
}

bool gate_covers(const struct gate *a, const struct gate *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == GATE_FUSE || a->kind == GATE_DECLINE)
        return a->fusion < 0 || a->fusion == b->fusion;
    return a->kind != GATE_KERNEL || ((a->op < 0 || a->op == b->op) && (!a->backend || same_word(a->backend, b->backend)) &&
                                      (a->format < 0 || a->format == b->format) && (!a->glob || same_word(a->glob, b->glob)));
}

bool gate_overlaps(const struct gate *a, const struct gate *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == GATE_FUSE || a->kind == GATE_DECLINE)
        return a->fusion < 0 || b->fusion < 0 || a->fusion == b->fusion;
    return a->kind != GATE_KERNEL ||
           ((a->op < 0 || b->op < 0 || a->op == b->op) && (!a->backend || !b->backend || same_word(a->backend, b->backend)) &&
            (a->format < 0 || b->format < 0 || a->format == b->format));
}

int recipe_overridden(const struct recipe *r, int i)
{
    for (int k = i + 1; k < r->gates.n; k++)
        if (gate_covers(&r->gates.list[k], &r->gates.list[i]))
            return k;
    return -1;
}

/* The kernel that a gate names, in this process; NULL: there is none. */
static const struct kernel *kernel_of(const struct gate *g)
{
    int n_backends, n;
    const struct backend *const *all = backend_list(&n_backends);
    for (int b = 0; b < n_backends; b++) {
        if (g->backend && strcmp(g->backend, all[b]->name) != 0)
            continue;
        const struct kernel *const *kernels = all[b]->kernels(&n);
        for (int i = 0; i < n; i++)
            if ((g->op < 0 || (int)kernels[i]->op == g->op) && !strcmp(kernels[i]->variant, g->variant))
                return kernels[i];
    }
    return NULL;
}

static bool has_kernel(const struct gate *g)
{
    return kernel_of(g) || !strcmp(g->variant, "ref");
}

static bool names_plugin(const struct recipe *r, const char *sha256)
{
    for (int i = 0; i < r->settings.n_plugins; i++)
        if (!strcmp(r->settings.plugins[i], sha256))
            return true;
    return false;
}

/* A kernel's name says nothing of the file that it came from. */
static int lint_origin(const struct recipe *r, int i, struct recipe_findings *f, struct hone_error *e)
{
    const struct gate *g = &r->gates.list[i];
    const struct kernel *k = g->kind == GATE_KERNEL && strcmp(g->variant, "ref") != 0 ? kernel_of(g) : NULL;
    if (!k || !k->origin || names_plugin(r, k->origin))
        return 0;
    return recipe_find(f, r->lines[i], false, e, "'%s' is a plug-in's kernel: without plugin=%s this is no recipe to promote",
                       g->text, k->origin);
}

static int lint_gate(const struct recipe *r, int i, struct recipe_findings *f, struct hone_error *e)
{
    const struct gate *g = &r->gates.list[i];
    int over = recipe_overridden(r, i);
    if (over >= 0)
        return recipe_find(f, r->lines[i], true, e, "'%s' has no effect: '%s' in line %d is about all that it is about",
                           g->text, r->gates.list[over].text, r->lines[over]);
    if (g->kind == GATE_KERNEL && g->op >= 0 && !has_kernel(g))
        return recipe_find(f, r->lines[i], true, e,
                           "'%s': this build has no such kernel for %s (one from outside? give --plugin)", g->text,
                           op_get((enum op)g->op)->name);
    if (g->kind == GATE_SKIP_ALL_REDUCE && !strcmp(g->variant, "on"))
        return recipe_find(f, r->lines[i], false, e, "'%s' gives wrong output: a diagnostic, no recipe to promote", g->text);
    if (g->kind == GATE_GUARD && strcmp(g->variant, "none") != 0)
        return recipe_find(f, r->lines[i], false, e,
                           "'%s' makes fused collectives decline every step: a diagnostic, no recipe to promote", g->text);
    if (g->kind == GATE_SPIN)
        return recipe_find(f, r->lines[i], false, e, "'%s' slows every step down: a diagnostic, no recipe to promote", g->text);
    if (g->kind == GATE_KERNEL)
        return lint_origin(r, i, f, e);
    if (g->kind != GATE_DECLINE || strcmp(g->variant, "on") != 0)
        return 0;
    if (g->fusion >= 0 && !gates_fusion(&r->gates, GATE_FUSE, g->fusion, fusion_get((enum fusion_id)g->fusion)->on))
        return recipe_find(f, r->lines[i], true, e, "'%s' cannot work: the fusion is off, so nothing is there to decline",
                           g->text);
    return recipe_find(f, r->lines[i], false, e, "'%s' makes the fusion decline every step: a diagnostic, no recipe to promote",
                       g->text);
}

/* The line of a setting in the text; the first that has the word. */
static int line_of(const struct recipe *r, const char *word)
{
    int line = 1;
    const char *at = strstr(r->text, word);
    for (const char *p = r->text; at && p < at; p++)
        line += *p == '\n';
    return line;
}

static int lint_type(const struct recipe *r, const char *type, const char *word, struct recipe_findings *f,
                     struct hone_error *e)
{
    enum format_id id;
    struct hone_error why = {0};
    if (!*type || !kv_format(type, word, &id, &why))
        return 0;
    return recipe_find(f, line_of(r, word), true, e, "%s", why.message);
}

int recipe_lint(const struct recipe *r, struct recipe_findings *out, struct hone_error *e)
{
    int rc = 0;
    *out = (struct recipe_findings){0};
    for (int i = 0; i < r->gates.n && !rc; i++)
        if (i == 0 || r->gates.list[i].text == NULL || strcmp(r->gates.list[i].text, r->gates.list[i - 1].text) != 0 ||
            r->lines[i] != r->lines[i - 1])
            rc = lint_gate(r, i, out, e);
    for (int i = 0; i < r->settings.n_plugins && !rc; i++)
        if (!backend_has_origin(r->settings.plugins[i]))
            rc = recipe_find(out, line_of(r, r->settings.plugins[i]), true, e,
                             "plugin=%.16s... is not loaded: give it by --plugin", r->settings.plugins[i]);
    rc = rc ? rc : lint_type(r, r->settings.type_k, "type_k=", out, e);
    return rc ? rc : lint_type(r, r->settings.type_v, "type_v=", out, e);
}

/* ---- two recipes */

/* What a word says, by what it is about: {"kernel.mul_mat": "ref"}; of words about the same thing the last. */
static json_t *said(const struct recipe *r)
{
    json_t *o = json_object();
    for (int i = 0; i < r->gates.n && o; i++) {
        const struct gate *g = &r->gates.list[i];
        char name[400];
        if (!strncmp(g->text, "skip=", 5))
            snprintf(name, sizeof name, "kernel.%s", op_get((enum op)g->op)->name);
        else
            snprintf(name, sizeof name, "%.*s", (int)(strcspn(g->text, "=") < 399 ? strcspn(g->text, "=") : 399), g->text);
        json_object_set_new(o, name, json_string(g->variant));
    }
    if (r->settings.type_k[0])
        json_object_set_new(o, "type_k", json_string(r->settings.type_k));
    if (r->settings.type_v[0])
        json_object_set_new(o, "type_v", json_string(r->settings.type_v));
    if (r->settings.n_threads)
        json_object_set_new(o, "threads", json_sprintf("%d", r->settings.n_threads));
    for (int i = 0; i < r->settings.n_plugins; i++) {
        char name[32];
        snprintf(name, sizeof name, "plugin %.12s...", r->settings.plugins[i]);
        json_object_set_new(o, name, json_string("named"));
    }
    return o;
}

json_t *recipe_diff(const struct recipe *a, const struct recipe *b)
{
    json_t *list = json_array(), *x = said(a), *y = said(b), *value;
    const char *what;
    json_object_foreach(x, what, value)
    {
        json_t *other = json_object_get(y, what);
        if (!other || !json_equal(value, other))
            json_array_append_new(list, json_pack("{s:s, s:O, s:O?}", "what", what, "a", value, "b", other));
    }
    json_object_foreach(y, what, value)
    {
        if (!json_object_get(x, what))
            json_array_append_new(list, json_pack("{s:s, s:n, s:O}", "what", what, "a", "b", value));
    }
    json_decref(x);
    json_decref(y);
    return list;
}

/* ---- in a journal */

/* An arm that is measured within a process says "default". */
static bool same_type(const char *own, const json_t *theirs)
{
    const char *t = json_string_value(theirs);
    enum format_id a = FORMAT_F16, b = FORMAT_F16;
    bool said = t && strcmp(t, "default") != 0;
    return !(*own && format_by_name(own, &a)) && !(said && format_by_name(t, &b)) && a == b;
}

/* Whether a run had the plug-ins that the recipe names. It may have had more, since nothing of a plug-in runs without a gate;
 * so a gate for a kernel that is not hone's wants at least one to be named (lint says which). */
static bool had_plugins(const struct recipe *r, const json_t *theirs)
{
    for (int i = 0; i < r->settings.n_plugins; i++) {
        bool had = false;
        for (size_t k = 0; k < json_array_size(theirs) && !had; k++) {
            const char *sha256 = json_string_value(json_object_get(json_array_get(theirs, k), "sha256"));
            had = sha256 && !strcmp(sha256, r->settings.plugins[i]);
        }
        if (!had)
            return false;
    }
    for (int i = 0; i < r->gates.n && !r->settings.n_plugins && json_array_size(theirs); i++) {
        const struct gate *g = &r->gates.list[i];
        const struct kernel *k = g->kind == GATE_KERNEL ? kernel_of(g) : NULL;
        if (g->kind == GATE_KERNEL && strcmp(g->variant, "ref") != 0 && (!k || k->origin))
            return false;
    }
    return true;
}

bool recipe_is(const struct recipe *r, const json_t *identity)
{
    return json_equal(json_object_get(r->content, "gates"), json_object_get(identity, "gates")) &&
           had_plugins(r, json_object_get(identity, "plugins")) &&
           same_type(r->settings.type_k, json_object_get(identity, "type_k")) &&
           same_type(r->settings.type_v, json_object_get(identity, "type_v")) &&
           r->settings.n_threads == json_integer_value(json_object_get(identity, "threads"));
}

int recipe_best(struct journal *j, const char *tier, const char *model, json_t **decision, struct hone_error *e)
{
    struct journal_filter f = {.kind = "tier", .model = model};
    json_t *runs = NULL, *run, *found = NULL;
    size_t i;
    *decision = NULL;
    int rc = journal_list(j, &f, &runs, e);
    json_array_foreach(runs, i, run)
    {
        json_t *records = NULL;
        if (rc || found)
            break;
        rc = journal_records(j, json_integer_value(json_object_get(run, "id")), "decision", &records, e);
        for (size_t k = json_array_size(records); k-- > 0 && !found && !rc;) {
            json_t *body = json_object_get(json_array_get(records, k), "body");
            const char *word = json_string_value(json_object_get(body, "decision")),
                       *of = json_string_value(json_object_get(body, "tier"));
            if (word && of && !strcmp(word, "promoted") && (!tier || !strcmp(tier, of))) {
                found = json_deep_copy(body);
                json_object_set(found, "run", json_object_get(run, "id"));
                json_object_set(found, "at", json_object_get(run, "at"));
                json_object_set(found, "model", json_object_get(json_object_get(run, "model"), "name"));
            }
        }
        json_decref(records);
    }
    json_decref(runs);
    if (rc)
        json_decref(found);
    else
        *decision = found;
    return rc;
}
