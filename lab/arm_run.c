/* arm_run.c: an arm as a fresh process, and who it says that it is.
 *
 * A process a sample costs its start (a third of a second for SmolLM2) and buys what a single process cannot have: memory is
 * laid out anew each time, so one lucky placement is noise instead of an effect (Mytkowicz and others 2009, "Producing wrong
 * data without doing anything obviously wrong!"), and nothing of one arm is left in the other's caches, pools or layouts.
 *
 * The program is opened once and run by its open file: a build in the middle of the comparison then makes a new file and
 * changes nothing. Who it is comes out of its own mouth (the row's build: SHA-256 of binary and libraries), each time, since a
 * library can be replaced as well. */
#include "lab/arm.h"

#include "base/hash.h"
#include "lab/child.h"
#include "lab/worktree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

int arm_build(struct arm *a, const char *cache, int (*cancelled)(void *), void *user, struct hone_error *e)
{
    struct worktree_build b = {.revision = a->commit, .cache = cache, .cancelled = cancelled, .user = user};
    int rc = a->commit ? worktree_build(&b, e) : 0;
    if (rc || !a->commit)
        return rc;
    a->binary = arena_strdup(&a->memory, b.binary);
    a->commit = arena_strdup(&a->memory, b.commit);
    return a->binary && a->commit ? 0 : err_set(e, HONE_ERESOURCE, "no memory for an arm");
}

/* An older program does not know the word, and has no such row. */
static int ask_beside(struct arm *a, struct hone_error *e)
{
    static const char *const help[] = {"--help", NULL};
    struct child_output o;
    a->knows_beside = !a->binary;
    if (!a->binary || !a->set.split_mode)
        return 0;
    int rc = arm_command(a, "bench", false, help, &o, NULL, NULL, e);
    if (!rc) {
        a->knows_beside = o.out && strstr(o.out, "--no-one-device");
        child_output_free(&o);
    }
    return rc;
}

int arm_open(struct arm *a, struct hone_error *e)
{
    const char *path = a->binary ? a->binary : "/proc/self/exe";
    char head[2] = "";
    a->file = open(path, O_RDONLY | O_CLOEXEC);
    if (a->file < 0)
        return err_set(e, HONE_EINPUT, "%s: %s", path, strerror(errno));
    if (a->binary && access(path, X_OK))
        return err_set(e, HONE_EINPUT, "%s: %s", path, strerror(errno));
    if (pread(a->file, head, sizeof head, 0) == sizeof head && !memcmp(head, "#!", 2)) {
        close(a->file); /* its interpreter wants a name */
        a->file = -1;
    }
    return ask_beside(a, e);
}

/* ---- the command line */

enum { MAX_WORDS = 2000 };

struct words {
    struct arena memory;
    const char *list[MAX_WORDS];
    int n;
    bool full;
};

static void add(struct words *w, const char *word)
{
    if (w->n + 1 < MAX_WORDS && word)
        w->list[w->n++] = word;
    else
        w->full = true;
}

static void add_text(struct words *w, const char *flag, const char *value)
{
    if (!value)
        return;
    add(w, flag);
    add(w, value);
}

static void add_number(struct words *w, const char *flag, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    add(w, flag);
    add(w, arena_strdup(&w->memory, text));
}

static void add_lines(struct words *w, const char *flag, const char *lines)
{
    for (const char *p = lines; p && *p;) {
        size_t n = strcspn(p, "\n");
        if (n)
            add_text(w, flag, arena_strndup(&w->memory, p, n));
        p += n + (p[n] == '\n');
    }
}

static void add_test(struct words *w, const struct arm_test *t)
{
    char pair[40];
    bool both = t->n_prompt && t->n_gen;
    add_number(w, "-p", both ? 0 : t->n_prompt);
    add_number(w, "-n", both ? 0 : t->n_gen);
    snprintf(pair, sizeof pair, "%d,%d", t->n_prompt, t->n_gen);
    if (both)
        add_text(w, "-pg", arena_strdup(&w->memory, pair));
    add_number(w, "-d", t->n_depth);
    add_number(w, "-r", t->repeats);
}

/* A list of devices or shares in bench's form: a comma parts configurations there. */
static void add_list(struct words *w, const char *flag, const char *value)
{
    char *text = value ? arena_strdup(&w->memory, value) : NULL;
    for (char *p = text; p && *p; p++)
        *p = *p == ',' ? '/' : *p;
    if (value)
        add_text(w, flag, text ? text : value);
}

/* All that a session is made of is said, also what is the default: defaults change from build to build. */
static void add_settings(struct words *w, const struct arm_settings *s)
{
    add_text(w, "-m", s->model);
    add_number(w, "-t", s->n_threads);
    if (s->n_batch)
        add_number(w, "-ub", s->n_batch);
    if (s->poll >= 0)
        add_number(w, "--poll", s->poll);
    add_text(w, "-ctk", s->type_k);
    add_text(w, "-ctv", s->type_v);
    add_text(w, "-sm", s->split_mode);
    add_list(w, "-ts", s->tensor_split);
    add_text(w, "-ngl", s->n_gpu_layers);
    add_list(w, "-dev", s->devices);
    add_text(w, "--recipe", s->recipe);
    add_lines(w, "--set", s->gates);
    add_lines(w, "--plugin", s->plugins);
    add_text(w, "--mask", s->mask);
    if (s->strict)
        add(w, "--strict");
}

/* Runs what w holds, and frees it. */
static int run_words(const struct arm *a, struct words *w, double limit_s, struct child_output *o, int (*cancelled)(void *),
                     void *user, struct hone_error *e)
{
    w->list[w->n] = NULL;
    struct child c = {
        .argv = w->list, .binary = a->file, .env = a->env, .limit_s = limit_s, .cancelled = cancelled, .user = user};
    int rc =
        w->full ? err_set(e, HONE_EUSAGE, "arm '%s': too many words for a command line", a->spec) : child_run(o, &c, true, e);
    arena_free(&w->memory);
    free(w);
    return rc;
}

int arm_command(const struct arm *a, const char *command, bool settings, const char *const *more, struct child_output *o,
                int (*cancelled)(void *), void *user, struct hone_error *e)
{
    struct words *w = calloc(1, sizeof *w);
    *o = (struct child_output){0};
    if (!w)
        return err_set(e, HONE_ERESOURCE, "no memory for a command line");
    add(w, a->binary ? a->binary : "hone");
    add(w, command);
    if (settings)
        add_settings(w, &a->set);
    for (; more && *more; more++)
        add(w, *more);
    return run_words(a, w, 0, o, cancelled, user, e);
}

/* The row of the arm's own test: not that of one device beside it. */
static bool own_row(const json_t *row)
{
    return json_is_object(row) && !json_is_true(json_object_get(row, "one_device"));
}

/* The line that is such a row. */
static int read_row(const struct arm *a, const struct child_output *o, json_t **row, struct hone_error *e)
{
    json_error_t why = {0};
    *row = NULL;
    for (char *line = o->out, *rest = o->out; rest && *line && !own_row(*row); line = rest) {
        strsep(&rest, "\n");
        json_decref(*row);
        *row = json_loads(line, 0, &why);
        if (!rest)
            break;
    }
    if (!own_row(*row)) {
        json_decref(*row);
        *row = NULL;
        return err_set(e, o->exit_code > 0 && o->exit_code < 6 ? -o->exit_code : HONE_EINPUT,
                       "arm '%s': no row of `bench` (exit code %d): %s", a->spec, o->exit_code,
                       o->said[0] ? o->said : why.text);
    }
    const char *error = json_string_value(json_object_get(*row, "error"));
    if (!error && json_array_size(json_object_get(*row, "samples_ns")) > 0)
        return 0;
    err_set(e, HONE_EINPUT, "arm '%s': %s", a->spec, error ? error : "a row without samples");
    json_decref(*row);
    *row = NULL;
    return e->code;
}

int arm_run(struct arm *a, const struct arm_test *t, int (*cancelled)(void *), void *user, json_t **row, struct hone_error *e)
{
    static const char *const last[] = {"--no-verify", "--no-roof", "--no-journal", "-o", "jsonl"};
    struct words *w = calloc(1, sizeof *w);
    struct child_output o;
    *row = NULL;
    if (!w)
        return err_set(e, HONE_ERESOURCE, "no memory for a command line");
    add(w, a->binary ? a->binary : "hone");
    add(w, "bench");
    add_test(w, t);
    add_settings(w, &a->set);
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        add(w, last[i]);
    if (a->knows_beside)
        add(w, "--no-one-device");
    int rc = run_words(a, w, a->limit_s, &o, cancelled, user, e);
    if (!rc) {
        rc = read_row(a, &o, row, e);
        child_output_free(&o);
    }
    return rc;
}

/* ---- who it is */

/* Of a row: what must not differ unless it is declared, and what follows from the rest. */
static const char *const fields[] = {"build",      "recipe",   "machine",       "model_type", "model_size",   "model_n_params",
                                     "backends",   "gpu_info", "n_batch",       "n_ubatch",   "n_threads",    "cpu_mask",
                                     "cpu_strict", "poll",     "type_k",        "type_v",     "n_gpu_layers", "n_cpu_moe",
                                     "split_mode", "main_gpu", "no_kv_offload", "flash_attn", "devices",      "tensor_split",
                                     "load_mode",  "repack",   "kernels",       "fallbacks",  "declines",     "gates_unfit"};
static const char *const following[] = {"kernels", "fallbacks", "declines", "gates_unfit", "backends", "gpu_info"};
/* The compiler and its flags should be the same. */
static const char *const of_commit[] = {"build.binary", "build.version", "build.hash"};

static bool starts_with(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

static void flatten(json_t *flat, const char *name, const json_t *value)
{
    char path[300];
    const char *key;
    json_t *inner;
    if (json_is_object(value)) {
        json_object_foreach((json_t *)value, key, inner)
        {
            snprintf(path, sizeof path, "%s.%s", name, key);
            flatten(flat, starts_with(path, "build.libraries.") ? path + strlen("build.") : path, inner);
        }
    } else if (json_is_string(value)) {
        json_object_set(flat, name, (json_t *)value);
    } else {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
        json_object_set_new(flat, name, json_string(text ? text : ""));
        free(text);
    }
}

/* What changes a program's speed or result without standing on its command line. */
static bool matters(const char *variable)
{
    static const char *const families[] = {"HONE_SET=", "LD_",   "GLIBC_TUNABLES=", "MALLOC_", "OMP_",  "GOMP_", "KMP_",
                                           "MKL_",      "CUDA_", "NCCL_",           "HIP_",    "ROCR_", "UCX_",  "OPENBLAS_"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (starts_with(variable, families[i]))
            return true;
    return false;
}

static void add_environment(json_t *flat, const char *const *list, bool all)
{
    for (; list && *list; list++) {
        char name[200];
        size_t n = strcspn(*list, "=");
        if ((!all && !matters(*list)) || !(*list)[n])
            continue;
        snprintf(name, sizeof name, "environment.%.*s", (int)(n < 150 ? n : 150), *list);
        json_object_set_new(flat, name, json_string(*list + n + 1));
    }
}

json_t *arm_identity(const struct arm *a, const json_t *row)
{
    json_t *flat = json_object();
    for (size_t i = 0; i < sizeof fields / sizeof *fields && flat; i++) {
        json_t *value = json_object_get(row, fields[i]);
        if (value && !json_is_null(value))
            flatten(flat, fields[i], value);
    }
    json_object_del(flat, "recipe.type_k"); /* a second name of type_k */
    json_object_del(flat, "recipe.type_v");
    add_environment(flat, (const char *const *)environ, false);
    add_environment(flat, a->env, true);
    return flat;
}

/* What ldd does: asked so, the loader of glibc lists what it would load, and runs nothing. */
int arm_identify_libraries(struct arm *a, struct hone_error *e)
{
    const char *env[50] = {"LD_TRACE_LOADED_OBJECTS=1"};
    if (a->file < 0) /* a script: they would be its interpreter's */
        return 0;
    for (int i = 0; a->env && a->env[i] && i < 48; i++)
        env[i + 1] = a->env[i];
    struct child_output o;
    struct child c = {
        .argv = (const char *const[]){a->binary ? a->binary : "hone", NULL}, .binary = a->file, .env = env, .limit_s = 10};
    int rc = child_run(&o, &c, true, e);
    for (char *line = rc ? NULL : strtok(o.out, "\n"); line && !rc; line = strtok(NULL, "\n")) {
        char *path = strstr(line, "=> /"), name[300];
        struct sha256 sum;
        if (!path)
            continue;
        path += 3;
        path[strcspn(path, " ")] = 0;
        rc = hash_sha256_file(&sum, path, NULL, NULL, e);
        const char *slash = strrchr(path, '/');
        snprintf(name, sizeof name, "libraries.%.200s", slash + 1);
        if (!rc)
            json_object_set_new(a->identity, name, json_string(sum.hex));
    }
    child_output_free(&o);
    return rc;
}

static const char *const prefixes[] = {
#define X(bit, prefix) prefix,
    ARM_WORDS(X)
#undef X
};

json_t *arm_said(const struct arm *a)
{
    json_t *list = json_array();
    for (int i = 0; i < ARM_N_WORDS && list; i++)
        if ((a->said & ~(unsigned)ARM_GATES) >> i & 1 && json_array_append_new(list, json_string(prefixes[i]))) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

static bool is_declared(const char *what, unsigned declared)
{
    for (int i = 0; i < ARM_N_WORDS; i++)
        if (declared >> i & 1 && starts_with(what, prefixes[i]))
            return true;
    return false;
}

static const char *status_of(const char *what, unsigned declared)
{
    if (is_declared(what, declared))
        return "declared";
    for (size_t i = 0; i < sizeof following / sizeof *following; i++)
        if (declared && !strcmp(what, following[i]))
            return "follows";
    if (declared & (ARM_DEVICES | ARM_SPLIT) && !strcmp(what, "n_threads")) /* groups of threads have theirs */
        return "follows";
    for (size_t i = 0; i < sizeof of_commit / sizeof *of_commit; i++)
        if (declared & ARM_COMMIT && !strcmp(what, of_commit[i]))
            return "follows";
    return "undeclared";
}

json_t *arm_differences(const struct arm *a, const struct arm *b, int *undeclared)
{
    json_t *list = json_array(), *both = json_copy(a->identity), *value;
    const char *what;
    bool listed = arm_count_equal(a, a, "libraries.") && arm_count_equal(b, b, "libraries.");
    *undeclared = 0;
    if (!list || !both || json_object_update(both, b->identity)) {
        json_decref(list);
        json_decref(both);
        return NULL;
    }
    json_object_foreach(both, what, value)
    {
        const json_t *in_a = json_object_get(a->identity, what), *in_b = json_object_get(b->identity, what);
        if (in_a && in_b && json_equal(in_a, in_b))
            continue;
        if (listed ? !strcmp(what, "build.hash") : starts_with(what, "libraries.")) /* one by one, or the hash of all */
            continue;
        const char *status = status_of(what, a->declared | b->declared);
        *undeclared += !strcmp(status, "undeclared");
        json_array_append_new(list, json_pack("{s:s, s:O?, s:O?, s:s}", "what", what, "a", in_a, "b", in_b, "status", status));
    }
    json_decref(both);
    return list;
}

int arm_count_equal(const struct arm *a, const struct arm *b, const char *prefix)
{
    int n = 0;
    const char *what;
    json_t *value;
    json_object_foreach(a->identity, what, value) n +=
        starts_with(what, prefix) && json_equal(value, json_object_get(b->identity, what));
    return n;
}
