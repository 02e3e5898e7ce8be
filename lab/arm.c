/* arm.c: reading what is said of an arm, and what becomes of it.
 *
 * An arm says in what it differs and nothing else: all else comes from the common settings, so that two arms cannot differ by
 * an oversight. Two full command lines, one an arm, were the alternative; there every forgotten flag is a difference that
 * nobody declared. */
#include "lab/arm.h"

#include "engine/settings.h"
#include "graph/gates.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int no_memory(struct hone_error *e)
{
    return err_set(e, HONE_ERESOURCE, "no memory for an arm");
}

/* The common gates stay below the arm's own. */
static int add_gate(struct arm *a, const char *word, struct hone_error *e)
{
    struct gates g = {0};
    int rc = gates_parse(&g, word, "arm", e);
    gates_free(&g);
    if (rc)
        return rc;
    size_t had = a->set.gates ? strlen(a->set.gates) : 0, n = strlen(word);
    char *joined = arena_alloc(&a->memory, had + n + 2);
    if (!joined)
        return no_memory(e);
    snprintf(joined, had + n + 2, "%s%s\n", a->set.gates ? a->set.gates : "", word);
    a->set.gates = joined;
    a->declared |= ARM_GATES;
    return 0;
}

static int add_variable(struct arm *a, const char *text, struct hone_error *e)
{
    int n = 0;
    while (a->env && a->env[n])
        n++;
    const char **env = arena_array(&a->memory, (size_t)n + 2, sizeof *env);
    if (!env)
        return no_memory(e);
    for (int i = 0; i < n; i++)
        env[i] = a->env[i];
    env[n] = text;
    a->env = env;
    a->declared |= ARM_ENVIRONMENT | (strncmp(text, "HONE_SET=", 9) ? 0u : ARM_GATES);
    return 0;
}

static int take_number(int *to, const char *word, const char *value, long lo, long hi, struct hone_error *e)
{
    char *end;
    errno = 0;
    long x = strtol(value, &end, 10);
    if (errno || end == value || *end || x < lo || x > hi)
        return err_set(e, HONE_EUSAGE, "arm: %s: a number from %ld to %ld is needed", word, lo, hi);
    *to = (int)x;
    return 0;
}

static int take_text(struct arm *a, const char **to, unsigned declared, const char *value)
{
    *to = value;
    a->declared |= declared;
    return 0;
}

/* What a recipe says beside its gates is declared with it. */
static int take_recipe(struct arm *a, const char *path, struct hone_error *e)
{
    struct settings said;
    int rc = settings_of_file(&said, path, e);
    char *type_k = rc || !said.type_k[0] ? NULL : arena_strdup(&a->memory, said.type_k);
    char *type_v = rc || !said.type_v[0] ? NULL : arena_strdup(&a->memory, said.type_v);
    if (rc)
        return rc;
    if ((said.type_k[0] && !type_k) || (said.type_v[0] && !type_v))
        return no_memory(e);
    if (type_k)
        take_text(a, &a->set.type_k, ARM_TYPE_K, type_k);
    if (type_v)
        take_text(a, &a->set.type_v, ARM_TYPE_V, type_v);
    if (said.n_threads) {
        a->set.n_threads = said.n_threads;
        a->declared |= ARM_THREADS;
    }
    return take_text(a, &a->set.recipe, ARM_GATES, path);
}

/* name=value; name is cut off at the sign. */
static int take_pair(struct arm *a, const char *word, const char *name, const char *value, struct hone_error *e)
{
    struct arm_settings *s = &a->set;
    if (!strncmp(name, "env.", 4) && name[4])
        return add_variable(a, word + 4, e);
    if (!strcmp(name, "recipe"))
        return take_recipe(a, value, e);
    if (!strcmp(name, "model"))
        return take_text(a, &s->model, ARM_MODEL, value);
    if (!strcmp(name, "bin"))
        return take_text(a, &a->binary, ARM_BINARY, value);
    if (!strcmp(name, "git"))
        return take_text(a, &a->commit, ARM_COMMIT, value);
    if (!strcmp(name, "-ctk"))
        return take_text(a, &s->type_k, ARM_TYPE_K, value);
    if (!strcmp(name, "-ctv"))
        return take_text(a, &s->type_v, ARM_TYPE_V, value);
    if (!strcmp(name, "-ngl")) {
        int layers;
        int rc = take_number(&layers, word, value, -1, 1 << 20, e);
        return rc ? rc : take_text(a, &s->n_gpu_layers, ARM_LAYERS, value);
    }
    if (!strcmp(name, "--mask"))
        return take_text(a, &s->mask, ARM_MASK, value);
    if (!strcmp(name, "-sm"))
        return take_text(a, &s->split_mode, ARM_SPLIT, value);
    if (!strcmp(name, "-ts"))
        return take_text(a, &s->tensor_split, ARM_SHARES, value);
    if (!strcmp(name, "-dev"))
        return take_text(a, &s->devices, ARM_DEVICES, value);
    if (!strcmp(name, "-t")) {
        a->declared |= ARM_THREADS;
        return take_number(&s->n_threads, word, value, 1, 1024, e);
    }
    if (!strcmp(name, "-ub")) {
        a->declared |= ARM_BATCH;
        return take_number(&s->n_batch, word, value, 1, 65536, e);
    }
    if (!strcmp(name, "--poll")) {
        a->declared |= ARM_POLL;
        return take_number(&s->poll, word, value, 0, 100, e);
    }
    if (*name == '-')
        return err_set(e, HONE_EUSAGE, "arm: %s: an arm may set -t, -ub, --poll, -ctk, -ctv, -ngl, -sm, -ts, -dev and --mask",
                       word);
    return add_gate(a, word, e);
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* By its first bytes. */
static int take_file(struct arm *a, const char *path, struct hone_error *e)
{
    char head[4] = "";
    FILE *f = fopen(path, "rbe");
    if (!f)
        return err_set(e, HONE_EINPUT, "%s: %s", path, strerror(errno));
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    bool whole = n == sizeof head;
    if (whole && !memcmp(head, "GGUF", 4))
        return take_text(a, &a->set.model, ARM_MODEL, path);
    if (whole && (!memcmp(head, "\177ELF", 4) || !memcmp(head, "#!", 2)))
        return take_text(a, &a->binary, ARM_BINARY, path);
    return take_text(a, &a->set.recipe, ARM_GATES, path);
}

static int take_any(struct arm *a, char *word, struct hone_error *e)
{
    char *sign = strchr(word, '=');
    if (sign && sign > word && !is_file(word)) {
        char *name = arena_strndup(&a->memory, word, (size_t)(sign - word));
        if (!name)
            return no_memory(e);
        if (!sign[1])
            return err_set(e, HONE_EUSAGE, "arm: nothing behind '%s'", word);
        return take_pair(a, word, name, sign + 1, e);
    }
    if (is_file(word))
        return take_file(a, word, e);
    if (strchr(word, '/') || *word == '-')
        return err_set(e, HONE_EINPUT, "arm: %s: no such file, and no name=value", word);
    return take_text(a, &a->commit, ARM_COMMIT, word);
}

static int take_word(struct arm *a, char *word, struct hone_error *e)
{
    unsigned before = a->declared;
    const char *recipe = a->set.recipe;
    if (!strcmp(word, "base"))
        return 0;
    a->declared = 0;
    int rc = take_any(a, word, e);
    if (a->set.recipe == recipe)
        a->said |= a->declared;
    a->declared |= before;
    return rc;
}

/* The next word, unquoted in place; NULL at the end. */
static char *next_word(char **rest, bool *open_quote)
{
    char *p = *rest + strspn(*rest, " \t\r\n"), *word = p, *to = p;
    bool quoted = false;
    if (!*p)
        return NULL;
    for (; *p && (quoted || !isspace((unsigned char)*p)); p++)
        if (*p == '"')
            quoted = !quoted;
        else
            *to++ = *p;
    *open_quote = quoted;
    *rest = *p ? p + 1 : p;
    *to = 0;
    return word;
}

int arm_parse(struct arm *a, const char *spec, const struct arm_settings *common, struct hone_error *e)
{
    *a = (struct arm){.file = -1, .set = *common};
    a->spec = arena_strdup(&a->memory, *spec ? spec : "base");
    char *rest = arena_strdup(&a->memory, spec);
    if (!a->spec || !rest)
        return no_memory(e);
    if (is_file(spec)) /* also one with spaces in its name */
        return take_word(a, rest, e);
    int rc = 0;
    bool open_quote = false;
    for (char *word; !rc && (word = next_word(&rest, &open_quote));)
        rc = open_quote ? err_set(e, HONE_EUSAGE, "arm: a quote is not closed: %s", spec) : take_word(a, word, e);
    if (!rc && a->binary && a->commit)
        rc = err_set(e, HONE_EUSAGE, "arm: %s and the commit %s are two programs", a->binary, a->commit);
    return rc;
}

void arm_free(struct arm *a)
{
    if (a->file >= 0)
        close(a->file);
    json_decref(a->identity);
    arena_free(&a->memory);
    *a = (struct arm){.file = -1};
}

int arm_fits_process(const struct arm *a, struct hone_error *e)
{
    const char *what = a->binary                 ? "another binary"
                       : a->commit               ? "a commit"
                       : a->env                  ? "an environment of its own"
                       : a->declared & ARM_MODEL ? "a model of its own"
                       : a->declared & ARM_MASK  ? "a mask of processor features"
                                                 : NULL;
    return what ? err_set(e, HONE_EUSAGE, "arm '%s': %s needs fresh processes; leave out --in-process", a->spec, what) : 0;
}

struct hone_session_params arm_params(const struct arm *a, int n_ctx)
{
    struct hone_session_params p = hone_session_defaults();
    p.n_ctx = n_ctx;
    p.n_threads = a->set.n_threads;
    if (a->set.n_batch)
        p.n_batch = a->set.n_batch;
    if (a->set.poll >= 0)
        p.poll = a->set.poll;
    p.type_k = a->set.type_k;
    p.type_v = a->set.type_v;
    p.split_mode = a->set.split_mode;
    p.tensor_split = a->set.tensor_split;
    p.n_gpu_layers = a->set.n_gpu_layers ? (int32_t)strtol(a->set.n_gpu_layers, NULL, 10) : -1;
    p.devices = a->set.devices;
    p.recipe = a->set.recipe;
    p.gates = a->set.gates;
    p.strict = a->set.strict;
    return p;
}
