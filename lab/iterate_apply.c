/* iterate_apply.c: from a task's text to something that can be run: a base recipe and a candidate, and a program where the
 * sources were changed.
 *
 * The base is what has to be beaten: the best recipe of the task's tier; before there is one what the tier says (its `base`, or
 * hone by itself); without a tier, the recipe that the task starts from. A task's change is laid over the best, or over the
 * recipe that it starts from, when it is taken, not when it is added, so two changes that win one after the other add up.
 *
 * A program gets all that it needs by file and environment, and a folder of sources of its own, so that several work on one
 * machine. Its answer is its exit code, the candidate's recipe, the sources, and what it recorded. It never holds the lease: a
 * program that dies, or lies, can neither keep a task nor approve one. */
#include "lab/iterate.h"

#include "lab/brief.h"
#include "lab/journal_judge.h"
#include "lab/worktree.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int no_memory(struct hone_error *e)
{
    return err_set(e, HONE_ERESOURCE, "no memory for a task");
}

static const char *field(const struct iteration *it, const char *key)
{
    const char *s = json_string_value(json_object_get(it->task, key));
    return s ? s : "";
}

/* ---- files */

static int write_file(const char *path, const char *text, struct hone_error *e)
{
    FILE *f = fopen(path, "we");
    bool ok = f && fputs(text, f) >= 0;
    if (f)
        ok = fclose(f) == 0 && ok;
    return ok ? 0 : err_set(e, HONE_ERESOURCE, "%s: %s", path, strerror(errno));
}

static char *read_file(const char *path, struct hone_error *e)
{
    enum { LIMIT = 1 << 20 };
    struct stat st = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* it may be a pipe that nobody writes to, or a folder */
    FILE *f = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    char *text = f ? calloc(1, LIMIT + 1) : NULL;
    size_t n = text ? fread(text, 1, LIMIT + 1, f) : 0;
    if (!f || !text || n > LIMIT || strlen(text) != n) {
        err_set(e, HONE_EINPUT, "%s: %s", path, fd < 0 ? strerror(errno) : !f ? "no regular file" : "no text of at most a MiB");
        free(text);
        text = NULL;
    }
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    return text;
}

/* A folder for this try. */
static int make_folder(struct iteration *it, struct hone_error *e)
{
    long long attempt = json_integer_value(json_object_get(it->task, "attempts"));
    if (mkdir(it->o->logs, 0777) && errno != EEXIST)
        return err_set(e, HONE_ERESOURCE, "%s: %s", it->o->logs, strerror(errno));
    for (int i = 0; i < 1000; i++) {
        char more[16] = "";
        if (i)
            snprintf(more, sizeof more, "-%d", i);
        snprintf(it->folder, sizeof it->folder, "%.4000s/task-%lld-%lld%s", it->o->logs, (long long)it->id, attempt, more);
        if (!mkdir(it->folder, 0777))
            return 0;
        if (errno != EEXIST)
            break;
    }
    return err_set(e, HONE_ERESOURCE, "%s: %s", it->folder, strerror(errno));
}

static int write_brief(struct iteration *it, struct hone_error *e)
{
    json_t *brief = NULL;
    char path[4300];
    int rc = brief_make(it->queue, it->journal, it->id, it->o->tiers, &brief, e);
    snprintf(path, sizeof path, "%s/brief.json", it->folder);
    if (!rc && json_dump_file(brief, path, JSON_INDENT(2)))
        rc = err_set(e, HONE_ERESOURCE, "%s: it cannot be written", path);
    snprintf(path, sizeof path, "%s/brief.txt", it->folder);
    FILE *f = rc ? NULL : fopen(path, "we");
    if (f)
        brief_write(brief, f);
    if (!rc && (!f || fclose(f)))
        rc = err_set(e, HONE_ERESOURCE, "%s: %s", path, strerror(errno));
    json_decref(brief);
    snprintf(path, sizeof path, "%s/work", it->folder);
    return rc ? rc : write_file(path, field(it, "work"), e);
}

/* ---- base */

/* What the candidate begins as: the best where there is one, else the task's own recipe, else the base. */
static int find_start(struct iteration *it, const char *best, struct hone_error *e)
{
    struct hone_error why = {0};
    const char *own = field(it, "recipe");
    if (best || !*own)
        it->start_text = strdup(best ? best : it->tier && it->tier->base ? it->tier->base : "");
    else if (!(it->start_text = read_file(own, &why)))
        return iterate_decide(it, DECISION_FAILED, "the recipe that it starts from: %s", why.message);
    return it->start_text ? 0 : no_memory(e);
}

static int find_base(struct iteration *it, struct hone_error *e)
{
    json_t *best = NULL;
    struct hone_error why = {0};
    int rc = it->tier ? recipe_best(it->journal, it->tier->name, it->tier->model, &best, e) : 0;
    const char *text = json_string_value(json_object_get(best, "text"));
    it->from_best = text;
    rc = rc ? rc : find_start(it, text, e);
    if (!rc && !(it->base_text = strdup(text || !it->tier ? it->start_text : it->tier->base ? it->tier->base : "")))
        rc = no_memory(e);
    json_decref(best);
    if (!rc && (change_keep_plugins(&it->start_text, it->kept, &why) || change_keep_plugins(&it->base_text, it->kept, &why)))
        rc = iterate_decide(it, DECISION_FAILED, "the recipe that it starts from: %s", why.message);
    rc = rc ? rc : write_file(it->base, it->base_text, e);
    return rc ? rc : write_file(it->candidate, it->start_text, e);
}

int iterate_prepare(struct iteration *it, struct hone_error *e)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    it->id = json_integer_value(json_object_get(it->task, "id"));
    it->token = field(it, "token");
    it->began = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    it->renewed = clock_ns();
    it->lease_until = it->renewed + it->o->lease_s * 1000000000;
    it->runs = json_array();
    it->binary = it->o->binary;
    const char *tier = field(it, "tier");
    int rc = it->runs ? make_folder(it, e) : no_memory(e);
    snprintf(it->base, sizeof it->base, "%s/base.recipe", it->folder);
    snprintf(it->candidate, sizeof it->candidate, "%s/candidate.recipe", it->folder);
    snprintf(it->kept, sizeof it->kept, "%.4000s/plugins", it->o->logs);
    rc = rc ? rc : write_brief(it, e);
    if (!rc && *tier && !(it->tier = it->o->tiers ? tiers_find(it->o->tiers, tier) : NULL))
        rc = iterate_decide(it, DECISION_FAILED, "there is no tier %.100s", tier);
    return rc ? rc : find_base(it, e);
}

/* ---- the program of a task */

static int find_source(struct iteration *it, bool must, struct hone_error *e)
{
    struct hone_error why = {0};
    if (!patch_base_find(&it->source, it->o->revision, &why) && patch_base_is_hone(&it->source))
        return 0;
    bool found = it->source.date[0];
    it->source = (struct patch_base){0};
    (void)e;
    if (!must)
        return 0;
    return iterate_decide(it, DECISION_FAILED, "%s", found ? "the repository here does not hold hone's sources" : why.message);
}

static const char *variable(struct iteration *it, const char *name, const char *value)
{
    size_t n = strlen(name) + strlen(value) + 2;
    char *text = arena_alloc(&it->memory, n);
    if (text)
        snprintf(text, n, "%s=%s", name, value);
    return text ? text : "HONE_NOTHING";
}

static const char *in_folder(struct iteration *it, const char *name)
{
    size_t n = strlen(it->folder) + strlen(name) + 2;
    char *text = arena_alloc(&it->memory, n);
    if (text)
        snprintf(text, n, "%s/%s", it->folder, name);
    return text ? text : "";
}

/* What docs/iterate.md promises. */
static int run_program(struct iteration *it, struct hone_error *e)
{
    const struct iterate_options *o = it->o;
    struct call l = {0};
    char said[400];
    int exit_code = 0;
    const char *env[] = {variable(it, "HONE", o->binary),
                         variable(it, "HONE_TASK_TEXT", in_folder(it, "work")),
                         variable(it, "HONE_TASK_BRIEF", in_folder(it, "brief.txt")),
                         variable(it, "HONE_TASK_JSON", in_folder(it, "brief.json")),
                         variable(it, "HONE_MODEL", o->model),
                         variable(it, "HONE_BASE", it->base),
                         variable(it, "HONE_CANDIDATE", it->candidate),
                         variable(it, "HONE_TREE", it->tree.path),
                         variable(it, "HONE_JOURNAL", o->journal_path),
                         variable(it, "HONE_QUEUE", o->queue_path),
                         "HONE_ROLE=worker",
                         "HONE_TOKEN",
                         NULL};
    if (it->change.kind == CHANGE_COMMAND) {
        call_add(it, &l, in_folder(it, "work"));
    } else {
        call_add(it, &l, "sh");
        call_add(it, &l, "-c");
        call_add(it, &l, o->program);
    }
    it->worked = true;
    int rc =
        iterate_run(it, ITERATE_work, &l, NULL, env, it->tree.path[0] ? it->tree.path : it->folder, NULL, &exit_code, said, e);
    if (!rc && exit_code)
        rc = iterate_decide(it, DECISION_FAILED, "work: exit code %d%s%.300s", exit_code, said[0] ? ": " : "", said);
    return rc;
}

/* What it left. */
static int take_in(struct iteration *it, struct hone_error *e)
{
    struct hone_error why = {0};
    int rc = 0;
    char *text = read_file(it->candidate, &why);
    if (!text || change_keep_plugins(&text, it->kept, &why))
        rc = iterate_decide(it, DECISION_FAILED, "the candidate that it left: %s", why.message);
    rc = rc ? rc : write_file(it->candidate, text, e);
    free(text);
    if (!rc && it->tree.path[0] && patch_tree_commit(&it->tree, field(it, "title"), it->commit, &why))
        rc = iterate_decide(it, DECISION_FAILED, "the sources that it left: %s", why.message);
    if (!rc && !strcmp(it->commit, it->source.commit))
        it->commit[0] = 0;
    return rc;
}

static int apply_program(struct iteration *it, struct hone_error *e)
{
    struct hone_error why = {0};
    if (it->change.kind == CHANGE_WORDS && !it->o->program)
        return iterate_decide(it, DECISION_FAILED, "its text is for a person, or for a program that --program names");
    if (it->change.kind == CHANGE_COMMAND && chmod(in_folder(it, "work"), 0777))
        return err_set(e, HONE_ERESOURCE, "%s: %s", in_folder(it, "work"), strerror(errno));
    int rc = find_source(it, false, e);
    if (!rc && it->source.commit[0] && patch_tree_open(&it->tree, &it->source, it->o->cache, &why))
        rc = iterate_decide(it, DECISION_FAILED, "a copy of the sources: %s", why.message);
    rc = rc ? rc : run_program(it, e);
    rc = rc ? rc : take_in(it, e);
    patch_tree_close(&it->tree);
    return rc;
}

/* ---- what needs no program */

static int apply_words(struct iteration *it, struct hone_error *e)
{
    struct hone_error why = {0};
    char *text = NULL;
    int rc = 0;
    if (change_keep_plugins(&it->change.words, it->kept, &why) ||
        change_lay_over(it->start_text, it->change.words, &text, &why))
        rc = iterate_decide(it, DECISION_FAILED, "apply: %s", why.message);
    rc = rc ? rc : write_file(it->candidate, text, e);
    free(text);
    return rc;
}

static int apply_patch(struct iteration *it, struct hone_error *e)
{
    struct hone_error why = {0};
    char path[4300];
    snprintf(path, sizeof path, "%s/change.patch", it->folder);
    int rc = find_source(it, true, e);
    rc = rc ? rc : write_file(path, it->change.patch, e);
    if (!rc && patch_apply(&it->source, path, field(it, "title"), it->folder, it->commit, &why))
        rc = iterate_decide(it, DECISION_FAILED, "apply: %s", why.message);
    return rc;
}

/* ---- build */

struct building {
    struct iteration *it;
    int64_t until;
};

static int build_tick(void *user)
{
    struct building *b = user;
    int asked = iterate_tick(b->it);
    return asked ? asked : clock_ns() > b->until;
}

static int build(struct iteration *it, struct hone_error *e)
{
    struct building b = {.it = it};
    struct hone_error why = {0};
    char log[4300];
    snprintf(log, sizeof log, "%s/build.log", it->folder);
    struct worktree_build w = {.revision = it->commit, .cache = it->o->cache, .cancelled = build_tick, .user = &b, .log = log};
    int rc = iterate_take_machine(it, ITERATE_build, e);
    if (rc)
        return rc;
    int64_t start = clock_ns();
    b.until = start + (int64_t)(1e9 * iterate_limit(it, ITERATE_build));
    rc = worktree_build(&w, &why);
    machine_lock_drop(&it->machine);
    if (it->o->tell)
        it->o->tell(it->o->user, it->id, "build", (double)(clock_ns() - start) / 1e9, rc ? why.message : "");
    if (!rc)
        return (it->binary = arena_strdup(&it->memory, w.binary)) ? 0 : no_memory(e);
    if (!strcmp(it->stop, "interrupted"))
        return err_set(e, HONE_ECANCELED, "cancelled");
    if (rc == HONE_ECANCELED)
        return iterate_decide(it, DECISION_FAILED, "build: %s", it->stop[0] ? it->stop : "was not done in its time");
    return iterate_decide(it, DECISION_FAILED, "build: %s", why.message);
}

/* ---- */

/* The candidate as a recipe, and what it and the base need of plug-ins. */
static int read_candidate(struct iteration *it, struct hone_error *e)
{
    struct recipe base = {0};
    struct hone_error why = {0};
    char *of_base = NULL, *own = NULL;
    size_t size;
    int rc = recipe_read(&it->recipe, it->candidate, &why) || recipe_parse(&base, it->base_text, it->base, &why) ||
                     change_find_plugins(it->base_text, it->kept, &of_base, &why) ||
                     change_find_plugins(it->recipe.text, it->kept, &own, &why)
                 ? iterate_decide(it, DECISION_FAILED, "apply: %s", why.message)
                 : 0;
    it->same_recipe = !rc && !strcmp(base.hash, it->recipe.hash);
    FILE *f = rc ? NULL : open_memstream(&it->plugins, &size);
    for (const char *p = own; f && *p; p += strcspn(p, "\n") + 1) { /* all of the base's, and of the candidate's the others */
        size_t n = strcspn(p, "\n") + 1;
        char *line = strndup(p, n);
        if (line && !strstr(of_base, line))
            fputs(line, f);
        free(line);
    }
    if (f)
        fputs(of_base, f);
    if (!rc && (!f || fclose(f)))
        rc = no_memory(e);
    free(of_base);
    free(own);
    recipe_free(&base);
    return rc;
}

/* A program that changed nothing has only its records to show. */
static int only_a_record(struct iteration *it, struct hone_error *e)
{
    json_t *run = NULL, *derived = NULL;
    bool agrees;
    int rc = iterate_newest(it, NULL, &run, e);
    if (!rc && !run)
        return iterate_decide(it, DECISION_FAILED, "work: it left no candidate, no change of the sources and no record");
    rc = rc ? rc : journal_rederive(it->journal, run, &derived, &agrees, e);
    const json_t *found = derived ? derived : json_object_get(run, "verdict");
    const char *verdict = json_string_value(json_object_get(found, "verdict")),
               *kind = json_string_value(json_object_get(run, "kind"));
    if (!rc) {
        json_array_append(it->runs, json_object_get(run, "id"));
        rc = iterate_decide(it, DECISION_NOTED, "run %lld, %s%s%s", (long long)json_integer_value(json_object_get(run, "id")),
                            kind ? kind : "?", verdict ? ": " : "", verdict ? verdict : "");
    }
    json_decref(derived);
    json_decref(run);
    return rc;
}

int iterate_apply(struct iteration *it, struct hone_error *e)
{
    int rc = change_read(&it->change, field(it, "work"), e);
    bool program = it->change.kind == CHANGE_COMMAND || it->change.kind == CHANGE_WORDS;
    if (!rc && program)
        rc = apply_program(it, e);
    if (!rc && it->change.words[0])
        rc = apply_words(it, e);
    if (!rc && it->change.kind == CHANGE_PATCH)
        rc = apply_patch(it, e);
    rc = rc ? rc : read_candidate(it, e);
    if (!rc && it->same_recipe && !it->commit[0])
        rc = program ? only_a_record(it, e)
                     : iterate_decide(it, DECISION_FAILED, "apply: it changes nothing of the recipe to beat");
    return rc || !it->commit[0] ? rc : build(it, e);
}
