/* record.c: how a command keeps what it finds in the journal: opens it, says who is measured and what is asked before anything
 * is, and says at the end how it ended. A command has two lines for it, and what it measures between them.
 *
 * A journal that cannot be opened ends the command before it measures: what would be lost is not worth the time. Silence would
 * be worse, and --no-journal is there for who wants none. */
#include "cmd/cmd.h"

#include "engine/engine.h"
#include "lab/identity.h"
#include "lab/machine.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct journal_args journal_args;

/* Makes the folders of a path, each that is missing. */
static void make_folders(char *path)
{
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            mkdir(path, 0777);
            *p = '/';
        }
}

const char *cmd_cache_folder(char *path, size_t size)
{
    const char *cache = getenv("HONE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache)
        snprintf(path, size, "%s", cache);
    else if (xdg && *xdg)
        snprintf(path, size, "%s/hone", xdg);
    else if (home && *home)
        snprintf(path, size, "%s/.cache/hone", home);
    else
        return NULL;
    make_folders(path);
    return mkdir(path, 0777) == 0 || errno == EEXIST ? path : NULL;
}

const char *cmd_journal_path(char *path, size_t size, bool make)
{
    const char *named = journal_args.path ? journal_args.path : getenv("HONE_JOURNAL");
    const char *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (named && *named) {
        snprintf(path, size, "%s", named);
        return path;
    }
    if (xdg && *xdg)
        snprintf(path, size, "%s/hone/journal.db", xdg);
    else if (home && *home)
        snprintf(path, size, "%s/.local/share/hone/journal.db", home);
    else
        return NULL;
    if (make)
        make_folders(path);
    return path;
}

static int open_journal(struct journal **j)
{
    char path[4096];
    struct hone_error e = {0};
    if (!cmd_journal_path(path, sizeof path, true))
        return cmd_refuse(
            HONE_ERESOURCE,
            "neither HONE_JOURNAL, XDG_DATA_HOME nor HOME says where the journal is: give --journal FILE or --no-journal");
    if (journal_open(j, path, JOURNAL_WRITE, &e)) {
        int rc = cmd_fail(&e);
        fprintf(stderr, "hone: the journal keeps what is measured; --journal FILE names another, --no-journal does without\n");
        return rc;
    }
    return 0;
}

static int show_hashing(void *user, float done)
{
    (void)user;
    return progress_show("hashing the model", done);
}

/* Who takes part, into r. */
static int identify(struct journal_run *r, const struct hone_model *m, struct hone_error *e)
{
    char cache[4096];
    if (!(r->build = identity_build(model_args.plugins, e)) || !(r->machine = identity_machine(e)))
        return e->code;
    if (m && !(r->model = identity_model(m->model, cmd_cache_folder(cache, sizeof cache), show_hashing, NULL, e)))
        return e->code;
    progress_end();
    r->recipe = identity_recipe(model_args.recipe, model_args.set, model_args.type_k, model_args.type_v, model_args.plugins, e);
    return r->recipe ? 0 : e->code;
}

void cmd_warn_busy(const struct machine_state *since, const char *when)
{
    struct machine_state now;
    machine_look(&now, "");
    struct machine_change c = machine_between(since, &now);
    json_t *list = machine_change_warnings(&c), *w;
    size_t i;
    progress_end();
    json_array_foreach(list, i, w) fprintf(stderr, "hone: warning: %s %s\n", json_string_value(w), when);
    json_decref(list);
}

static json_t *state_now(void)
{
    struct machine_state s;
    machine_look(&s, "");
    return json_pack("{s:f, s:I, s:I}", "load", s.load, "memory_available", (json_int_t)s.memory_available, "binary_written",
                     (json_int_t)identity_binary_written());
}

/* Whose task a run is part of, for `hone queue brief`: a note, since the same run without a task belongs to the same history. */
static int note_task(struct journal *j, int64_t run, struct hone_error *e)
{
    const char *task = getenv("HONE_TASK");
    char *end;
    long long id = task ? strtoll(task, &end, 10) : 0;
    if (id < 1 || *end)
        return 0;
    json_t *body = json_pack("{s:I}", "task", (json_int_t)id);
    int rc = body ? journal_record(j, run, "note", body, NULL, e) : err_set(e, HONE_ERESOURCE, "no memory for a note");
    json_decref(body);
    return rc;
}

int cmd_journal_begin(struct recording *rec, const char *kind, const struct hone_model *m, json_t *config)
{
    struct journal_run r = {.kind = kind, .config = config, .hypothesis = journal_args.hypothesis, .expected_gain = NAN};
    struct hone_error e = {0};
    char *end, *command = NULL;
    *rec = (struct recording){0};
    int rc = 0;
    if (journal_args.expect) {
        r.expected_gain = strtod(journal_args.expect, &end) / 100;
        if (end == journal_args.expect || (*end && strcmp(end, "%") != 0) || !isfinite(r.expected_gain))
            rc = cmd_refuse(HONE_EUSAGE, "--expect %s: a gain in percent, such as 3 or -0.5", journal_args.expect);
    }
    if (!rc && !journal_args.off && !(rc = open_journal(&rec->journal))) {
        r.command = command = identity_command();
        r.state = state_now();
        if (identify(&r, m, &e) || journal_run_begin(rec->journal, &r, &rec->run, &e) || note_task(rec->journal, rec->run, &e))
            rc = cmd_fail(&e);
    }
    json_decref(r.build);
    json_decref(r.machine);
    json_decref(r.model);
    json_decref(r.recipe);
    json_decref(r.state);
    json_decref(config);
    free(command);
    if (rc) {
        journal_close(rec->journal);
        *rec = (struct recording){0};
    }
    return rc;
}

int cmd_journal_end(struct recording *rec, int rc, json_t *outcome)
{
    struct hone_error e = {0};
    static const char *const words[] = {"done", "failed", "usage", "bad input", "no resources", "fault"};
    if (rec->journal) {
        const char *status = rc == EXIT_INTERRUPTED ? "interrupted" : rc >= 0 && rc < 6 ? words[rc] : "failed";
        json_t *o = json_pack("{s:s, s:i}", "status", status, "exit_code", rc);
        if (outcome)
            json_object_update(o, outcome);
        if (!o)
            rc = rc ? rc : cmd_refuse(HONE_ERESOURCE, "no memory for the journal");
        else if (journal_run_end(rec->journal, rec->run, o, &e))
            rc = rc ? (cmd_fail(&e), rc) : cmd_fail(&e);
        json_decref(o);
        journal_close(rec->journal);
    }
    json_decref(outcome);
    *rec = (struct recording){0};
    return rc;
}
