/* settings.c: the words of a recipe that are no gates.
 *
 * A recipe that wins with 8-bit keys is no recipe without them, so they belong into its file. They are not gates: a gate chooses among
 * kernels within a graph, and may be set many times, the last one winning; a setting shapes the session and is said once. Reading them
 * here, before the gates are read, keeps one grammar for both (white space, ';', '#') and one file for both. A section of its own in the
 * file lost: old recipes would need a new form, and people would ask in which section a word belongs. */
#include "engine/settings.h"

#include "base/mmap.h"
#include "formats/formats.h"
#include "graph/gates.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { RECIPE_LIMIT = 1 << 20 };

static int bad(struct hone_error *e, const char *source, int line, const char *word, size_t n, const char *what)
{
    return err_set(e, HONE_EINPUT, "%s:%d: '%.*s': %s", source, line, n > 80 ? 80 : (int)n, word, what);
}

/* A word "name=value" whose name is `name`: its value, else NULL. */
static const char *value_of(const char *word, size_t n, const char *name)
{
    size_t k = strlen(name);
    return n > k && !strncmp(word, name, k) && word[k] == '=' ? word + k + 1 : NULL;
}

static int take_type(char to[16], const char *value, size_t n, const char *source, int line, struct hone_error *e)
{
    char name[16];
    enum format_id format;
    if (n >= sizeof name)
        return bad(e, source, line, value, n, "no such format");
    memcpy(name, value, n);
    name[n] = 0;
    if (format_by_name(name, &format))
        return bad(e, source, line, value, n, "no such format");
    if (*to)
        return bad(e, source, line, value, n, "the setting stands twice in the recipe");
    memcpy(to, name, n + 1);
    return 0;
}

static int take_threads(int *to, const char *value, size_t n, const char *source, int line, struct hone_error *e)
{
    char text[8], *end;
    if (*to)
        return bad(e, source, line, value, n, "the setting stands twice in the recipe");
    if (!n || n >= sizeof text || !isdigit((unsigned char)*value))
        return bad(e, source, line, value, n, "threads are a number from 1 to 1024");
    memcpy(text, value, n);
    text[n] = 0;
    long x = strtol(text, &end, 10);
    if (*end || x < 1 || x > 1024)
        return bad(e, source, line, value, n, "threads are a number from 1 to 1024");
    *to = (int)x;
    return 0;
}

/* Kept in order, so that the order in which they stand makes no difference to what the recipe is. */
static int take_plugin(struct settings *s, const char *value, size_t n, const char *source, int line, struct hone_error *e)
{
    char hex[65];
    int at = 0;
    if (n != 64 || strspn(value, "0123456789abcdef") < 64)
        return bad(e, source, line, value, n, "a plug-in is named by the SHA-256 of its file, 64 hex digits");
    memcpy(hex, value, 64);
    hex[64] = 0;
    while (at < s->n_plugins && strcmp(s->plugins[at], hex) < 0)
        at++;
    if (at < s->n_plugins && !strcmp(s->plugins[at], hex))
        return 0;
    if (s->n_plugins == SETTINGS_MAX_PLUGINS)
        return bad(e, source, line, value, n, "a recipe names at most 8 plug-ins");
    memmove(s->plugins[at + 1], s->plugins[at], (size_t)(s->n_plugins - at) * sizeof *s->plugins);
    memcpy(s->plugins[at], hex, sizeof hex);
    s->n_plugins++;
    return 0;
}

int settings_take(struct settings *s, char *text, const char *source, struct hone_error *e)
{
    int line = 1, rc = 0;
    *s = (struct settings){0};
    for (char *p = text; *p && !rc;) {
        if (*p == '#') {
            p += strcspn(p, "\n");
            continue;
        }
        if (isspace((unsigned char)*p) || *p == ';') {
            line += *p++ == '\n';
            continue;
        }
        size_t n = strcspn(p, " \t\r\n\f\v;");
        const char *value;
        bool taken = true;
        if ((value = value_of(p, n, "type_k")))
            rc = take_type(s->type_k, value, (size_t)(p + n - value), source, line, e);
        else if ((value = value_of(p, n, "type_v")))
            rc = take_type(s->type_v, value, (size_t)(p + n - value), source, line, e);
        else if ((value = value_of(p, n, "threads")))
            rc = take_threads(&s->n_threads, value, (size_t)(p + n - value), source, line, e);
        else if ((value = value_of(p, n, "plugin")))
            rc = take_plugin(s, value, (size_t)(p + n - value), source, line, e);
        else
            taken = false;
        if (taken && !rc)
            memset(p, ' ', n);
        p += n;
    }
    return rc;
}

/* The text of a recipe file: malloc'd. */
static int recipe_text(char **text, const char *path, struct hone_error *e)
{
    struct mapping m;
    int rc = mapping_open(&m, path, e);
    if (rc)
        return rc;
    char *copy = m.size <= RECIPE_LIMIT ? malloc(m.size + 1) : NULL;
    if (!copy) {
        rc = err_set(e, HONE_EINPUT, "%s: %zu bytes is no recipe", path, m.size);
    } else {
        if (m.size)
            memcpy(copy, m.data, m.size);
        copy[m.size] = 0;
        if (strlen(copy) != m.size)
            rc = err_set(e, HONE_EINPUT, "%s: a NUL at offset %zu", path, strlen(copy));
    }
    mapping_close(&m);
    if (rc)
        free(copy);
    else
        *text = copy;
    return rc;
}

int settings_of_file(struct settings *s, const char *path, struct hone_error *e)
{
    char *text = NULL;
    *s = (struct settings){0};
    int rc = recipe_text(&text, path, e);
    if (!rc)
        rc = settings_take(s, text, path, e);
    free(text);
    return rc;
}

int settings_and_gates(struct settings *s, struct gates *g, const char *path, struct hone_error *e)
{
    char *text = NULL;
    *s = (struct settings){0};
    int rc = recipe_text(&text, path, e);
    if (!rc)
        rc = settings_take(s, text, path, e);
    if (!rc && gates_parse(g, text, path, e))
        rc = e->code = HONE_EINPUT;
    free(text);
    return rc;
}
