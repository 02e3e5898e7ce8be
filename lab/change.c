/* change.c: a task's text as a change.
 *
 * A task has one text, and what it is shows in its form: a patch and a script begin as patches and scripts always do, and
 * recipe words are the words that recipes have. A field that says which would be one more thing to get wrong when a task is
 * added.
 *
 * Words are laid over a recipe, not joined to its end: the base may have become another one since the task was written, and a
 * word that a later one makes void is an error in a recipe (recipe.c), so it has to go. */
#include "lab/change.h"

#include "base/hash.h"
#include "lab/recipe.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char space[] = " \t\r\n\f\v;";

static int no_memory(struct hone_error *e)
{
    return err_set(e, HONE_ERESOURCE, "no memory for a change");
}

/* ---- its form */

/* The first line that opens a patch; NULL: none. */
static const char *find_patch(const char *work)
{
    for (const char *p = work; *p; p += strcspn(p, "\n"), p += *p == '\n')
        if (!strncmp(p, "diff --git ", 11) || (!strncmp(p, "--- ", 4) && strstr(p, "\n+++ ")))
            return p;
    return NULL;
}

/* The first n bytes without comments. */
static char *without_comments(const char *text, size_t n)
{
    char *own = strndup(text, n);
    for (char *p = own; p && *p; p++)
        if (*p == '#')
            for (; *p && *p != '\n'; p++)
                *p = ' ';
    return own;
}

static bool is_recipe(const char *words)
{
    const char *first = words + strspn(words, space);
    size_t n = strcspn(first, space);
    return n > 1 && (*first == '-' || memchr(first + 1, '=', n - 1));
}

int change_read(struct change *c, const char *work, struct hone_error *e)
{
    *c = (struct change){.kind = CHANGE_WORDS, .patch = strncmp(work, "#!", 2) ? find_patch(work) : NULL};
    c->words = without_comments(work, c->patch ? (size_t)(c->patch - work) : strlen(work));
    if (!c->words)
        return no_memory(e);
    if (!strncmp(work, "#!", 2))
        c->kind = CHANGE_COMMAND;
    else if (c->patch)
        c->kind = CHANGE_PATCH;
    else if (is_recipe(c->words))
        c->kind = CHANGE_RECIPE;
    if (c->kind == CHANGE_COMMAND || c->kind == CHANGE_WORDS || (c->patch && !is_recipe(c->words)))
        c->words[0] = 0; /* before a patch may stand the head of a mail */
    return 0;
}

void change_free(struct change *c)
{
    free(c->words);
    *c = (struct change){0};
}

/* ---- over a recipe */

struct laying {
    FILE *to;
    struct recipe base, over;
    char *out; /* names that are taken out, parted by spaces */
};

/* The word `text` of a recipe has this name. */
static bool has_name(const char *text, const char *name, size_t n)
{
    return strlen(text) > n && !strncmp(text, name, n) && text[n] == '=';
}

static bool is_taken_out(const struct laying *l, const char *text)
{
    for (const char *p = l->out; p && *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        if (has_name(text, p, n))
            return true;
        p += n;
    }
    return false;
}

/* Whether the change is about all that the gate is about. */
static bool is_covered(const struct laying *l, const struct gate *g)
{
    for (int i = 0; i < l->over.gates.n; i++)
        if (gate_covers(&l->over.gates.list[i], g))
            return true;
    return false;
}

/* The gates of one text go together; of a list (skip=a,b) that the change is partly about, the rest stays, one by one. */
static void put_base_gates(struct laying *l)
{
    const struct gates *g = &l->base.gates;
    for (int i = 0, end; i < g->n; i = end) {
        int covered = 0;
        for (end = i; end < g->n && !strcmp(g->list[end].text, g->list[i].text); end++)
            covered += is_covered(l, &g->list[end]);
        if (covered == end - i || is_taken_out(l, g->list[i].text))
            continue;
        if (!covered)
            fprintf(l->to, "%s\n", g->list[i].text);
        for (int k = i; k < end && covered; k++)
            if (!is_covered(l, &g->list[k]))
                fprintf(l->to, "kernel.%s=ref\n", op_get((enum op)g->list[k].op)->name);
    }
}

static void put_change_gates(const struct laying *l)
{
    const struct gates *g = &l->over.gates;
    for (int i = 0; i < g->n; i++)
        if (i == 0 || strcmp(g->list[i].text, g->list[i - 1].text) != 0)
            fprintf(l->to, "%s\n", g->list[i].text);
}

static void put_setting(const struct laying *l, const char *name, const char *base, const char *over)
{
    char text[100];
    snprintf(text, sizeof text, "%s=%s", name, *over ? over : base);
    if (*over || (*base && !is_taken_out(l, text)))
        fprintf(l->to, "%s\n", text);
}

static void put_settings(const struct laying *l)
{
    const struct settings *a = &l->base.settings, *b = &l->over.settings;
    char threads[2][12] = {"", ""};
    if (a->n_threads)
        snprintf(threads[0], sizeof threads[0], "%d", a->n_threads);
    if (b->n_threads)
        snprintf(threads[1], sizeof threads[1], "%d", b->n_threads);
    put_setting(l, "type_k", a->type_k, b->type_k);
    put_setting(l, "type_v", a->type_v, b->type_v);
    put_setting(l, "threads", threads[0], threads[1]);
    for (int i = 0; i < a->n_plugins; i++)
        put_setting(l, "plugin", a->plugins[i], "");
    for (int i = 0; i < b->n_plugins; i++)
        put_setting(l, "plugin", "", b->plugins[i]);
}

/* Each name that is to be taken out must be there. */
static int check_out(const struct laying *l, struct hone_error *e)
{
    for (const char *p = l->out; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        const struct settings *s = &l->base.settings;
        bool there = (n == 6 && ((s->type_k[0] && !strncmp(p, "type_k", n)) || (s->type_v[0] && !strncmp(p, "type_v", n)) ||
                                 (s->n_plugins && !strncmp(p, "plugin", n)))) ||
                     (n == 7 && s->n_threads && !strncmp(p, "threads", n));
        for (int i = 0; i < l->base.gates.n && !there; i++)
            there = has_name(l->base.gates.list[i].text, p, n);
        if (!there)
            return err_set(e, HONE_EINPUT, "-%.*s: the recipe that it starts from has no such word", (int)n, p);
        p += n;
    }
    return 0;
}

/* Parts the words: *added as a recipe, l->out as names. */
static int part_words(struct laying *l, const char *words, char **added, struct hone_error *e)
{
    size_t size, n;
    FILE *in = open_memstream(added, &size), *out = open_memstream(&l->out, &size);
    for (const char *p = words; in && out && *(p += strspn(p, space)); p += n) {
        n = strcspn(p, space);
        if (*p == '-')
            fprintf(out, "%.*s ", (int)n - 1, p + 1);
        else
            fprintf(in, "%.*s\n", (int)n, p);
    }
    bool failed = !in || !out;
    failed = (in && fclose(in)) || failed;
    failed = (out && fclose(out)) || failed;
    return failed || !*added || !l->out ? no_memory(e) : 0;
}

int change_lay_over(const char *base, const char *words, char **text, struct hone_error *e)
{
    struct laying l = {0};
    char *added = NULL;
    size_t size;
    *text = NULL;
    int rc = part_words(&l, words, &added, e);
    rc = rc ? rc : recipe_parse(&l.base, base, "the base", e);
    rc = rc ? rc : recipe_parse(&l.over, added, "the change", e);
    rc = rc ? rc : check_out(&l, e);
    if (!rc && !(l.to = open_memstream(text, &size)))
        rc = no_memory(e);
    if (!rc) {
        put_base_gates(&l);
        put_change_gates(&l);
        put_settings(&l);
        rc = fclose(l.to) ? no_memory(e) : 0;
    }
    recipe_free(&l.base);
    recipe_free(&l.over);
    free(l.out);
    free(added);
    return rc;
}

/* ---- plug-ins */

static int copy_file(const char *from, const char *to, struct hone_error *e)
{
    char partial[4600], data[1 << 16];
    snprintf(partial, sizeof partial, "%.4500s.%ld", to, (long)getpid());
    FILE *in = fopen(from, "rbe"), *out = in ? fopen(partial, "wbe") : NULL;
    size_t n;
    bool ok = out != NULL;
    while (ok && (n = fread(data, 1, sizeof data, in)) > 0)
        ok = fwrite(data, 1, n, out) == n;
    ok = ok && !ferror(in);
    if (in)
        fclose(in);
    if (out)
        ok = fclose(out) == 0 && ok;
    ok = ok && rename(partial, to) == 0;
    return ok ? 0 : err_set(e, HONE_ERESOURCE, "%s: %s", to, strerror(errno));
}

static int keep_plugin(const char *path, const char *folder, struct sha256 *sum, struct hone_error *e)
{
    char to[4400];
    int rc = hash_sha256_file(sum, path, NULL, NULL, e);
    if (rc)
        return rc;
    if (mkdir(folder, 0777) && errno != EEXIST)
        return err_set(e, HONE_ERESOURCE, "%s: %s", folder, strerror(errno));
    snprintf(to, sizeof to, "%.4200s/%s.so", folder, sum->hex);
    return access(to, R_OK) == 0 ? 0 : copy_file(path, to, e);
}

static bool is_hash(const char *word, size_t n)
{
    return n == 64 && strspn(word, "0123456789abcdef") >= 64;
}

int change_keep_plugins(char **text, const char *folder, struct hone_error *e)
{
    char *done = NULL, path[4096];
    size_t size;
    FILE *to = open_memstream(&done, &size);
    int rc = to ? 0 : no_memory(e);
    for (const char *p = *text; !rc && *p;) {
        size_t n = *p == '#' ? strcspn(p, "\n") : strcspn(p, space);
        const char *value = p + 7;
        struct sha256 sum;
        bool by_path = n > 7 && !strncmp(p, "plugin=", 7) && !is_hash(value, n - 7);
        if (by_path) {
            snprintf(path, sizeof path, "%.*s", (int)(n - 7), value);
            if (!(rc = keep_plugin(path, folder, &sum, e)))
                fprintf(to, "plugin=%s", sum.hex);
        } else {
            fwrite(p, 1, n, to);
        }
        p += n;
        if (*p)
            fputc(*p++, to);
    }
    if (to && fclose(to) && !rc)
        rc = no_memory(e);
    if (rc) {
        free(done);
        return rc;
    }
    free(*text);
    *text = done;
    return 0;
}

int change_find_plugins(const char *text, const char *folder, char **paths, struct hone_error *e)
{
    struct recipe r;
    size_t size;
    *paths = NULL;
    int rc = recipe_parse(&r, text, "recipe", e);
    FILE *to = rc ? NULL : open_memstream(paths, &size);
    if (!rc && !to)
        rc = no_memory(e);
    for (int i = 0; !rc && i < r.settings.n_plugins; i++) {
        char path[4400];
        snprintf(path, sizeof path, "%.4200s/%s.so", folder, r.settings.plugins[i]);
        if (access(path, R_OK))
            rc = err_set(e, HONE_EINPUT,
                         "%s: the plug-in that the recipe names is not there; give plugin=PATH in place of its hash", path);
        fprintf(to, "%s\n", path);
    }
    if (to && fclose(to) && !rc)
        rc = no_memory(e);
    recipe_free(&r);
    if (rc) {
        free(*paths);
        *paths = NULL;
    }
    return rc;
}
