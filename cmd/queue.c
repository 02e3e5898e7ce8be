/* queue.c: hone queue: tasks for a supervisor and workers. Who may do what: HONE_ROLE=worker, or --as worker, takes, renews and
 * hands in; all else is for the supervisor, who is anyone that is not told otherwise. What HONE_ROLE says of a worker, --as
 * does not take back. That keeps a worker's script from approving its own work; it is no lock against someone who can write the
 * file.
 *
 * What takes a task out of somebody's hands, or makes another of it (release, cancel, edit), stands in the journal too, as a
 * run of kind "queue" of that task: a queue's file may be made anew, and the journal must still say why a task has no result.
 */
#include "cmd/loop.h"

#include "cmd/journal.h"

#include "lab/brief.h"
#include "lab/tier.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *queue_path, *tiers_path, *as, *worker, *role, *token, *work, *work_file, *recipe, *model, *series,
    *hypothesis, *expect, *tier, *title, *status;
static char *after, *run_ids;
static int priority, budget, tries, lease = 600, parent;
static bool backlog, retry, priority_given, budget_given, tries_given;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        {"--queue", OPTION_INPUT, &queue_path, "FILE", "the queue (default HONE_QUEUE, or queue.db beside the journal)", 0, 0},
        {"--tiers", OPTION_INPUT, &tiers_path, "FILE", "the tiers (default HONE_TIERS, or tiers beside the journal)", 0, 0},
        {"--as", OPTION_TEXT, &as, "ROLE", "supervisor or worker (default HONE_ROLE, or supervisor)", 0, 0},
        {"--title", OPTION_TEXT, &title, "TEXT", "edit: what it is called; with '' an option of edit takes away what was said",
         0, 0},
        {"--priority", OPTION_INT, &priority, "N", "add, edit: larger ones are taken first", -1000000, 1000000,
         &priority_given},
        {"--hypothesis", OPTION_TEXT, &hypothesis, "TEXT", "add, edit: why it should help", 0, 0},
        {"--expect", OPTION_TEXT, &expect, "PERCENT", "add, edit: the gain that is expected", 0, 0},
        {"--work", OPTION_TEXT, &work, "TEXT", "add, edit: what to do: a patch, a recipe, a command, words", 0, 0},
        {"--work-file", OPTION_INPUT, &work_file, "FILE", "add, edit: the same from a file (-: stdin)", 0, 0},
        {"--recipe", OPTION_INPUT, &recipe, "FILE", "add, edit: the recipe that it starts from", 0, 0},
        {"--model", OPTION_TEXT, &model, "TEXT", "add, edit: a part of the name of the model that it is about", 0, 0},
        {"--series", OPTION_TEXT, &series, "GLOB", "add, edit: the series that it is about: 'tg* t/s'", 0, 0},
        {"--tier", OPTION_TEXT, &tier, "NAME", "add, edit: the tier that decides; what is handed in waits for approval", 0, 0},
        {"--after", OPTION_APPEND, &after, "ID",
         "add, edit: a task that must be done, and approved, before (repeatable; 0: none)", 0, 0},
        {"--parent", OPTION_INT, &parent, "ID", "add: the task that it is a part of", 0, 1 << 30},
        {"--budget", OPTION_INT, &budget, "SECONDS", "add, edit: a lease never goes beyond it (0: no limit)", 0, 31536000,
         &budget_given},
        {"--tries", OPTION_INT, &tries, "N", "add, edit: leases that may run out before it has failed (0: any number)", 0,
         1000000, &tries_given},
        {"--backlog", OPTION_FLAG, &backlog, NULL, "add: put it aside; `queue ready` brings it out", 0, 0},
        {"--role", OPTION_TEXT, &role, "NAME", "add, edit: who may take it; take: tasks of this role, and of none", 0, 0},
        {"--worker", OPTION_TEXT, &worker, "NAME",
         "who takes or judges (default HONE_WORKER, or user@host:process of the caller)", 0, 0},
        {"--lease", OPTION_INT, &lease, "SECONDS", "take, renew: how long it is yours", 1, 31536000},
        {"--token", OPTION_TEXT, &token, "TOKEN",
         "of the lease; take: one of your own, so that asking again gives the same task", 0, 0},
        {"--run", OPTION_APPEND, &run_ids, "ID", "done: a run of the journal that shows it (repeatable)", 0, 0},
        {"--retry", OPTION_FLAG, &retry, NULL, "fail: ready for another try", 0, 0},
        {"--status", OPTION_TEXT, &status, "WORD", "list: backlog, ready, leased, done, failed or blocked", 0, 0},
        JOURNAL_OPTION,
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* ---- what is given */

static const char *token_given(void)
{
    return token ? token : getenv("HONE_TOKEN");
}

static const char *who(char *text, size_t size)
{
    const char *named = worker ? worker : getenv("HONE_WORKER"), *user = getenv("USER");
    char host[100] = "";
    if (named && *named)
        return named;
    gethostname(host, sizeof host - 1);
    snprintf(text, size, "%.60s@%s:%ld", user && *user ? user : "user", host, (long)getppid());
    return text;
}

/* Ids, a line each. 0, or the exit code. */
static int ids_of(const char *lines, int64_t *ids, int room, int *n)
{
    int rc = 0;
    *n = 0;
    for (const char *p = lines; p && *p && !rc; p += strcspn(p, "\n") + 1) {
        char one[24];
        size_t k = strcspn(p, "\n");
        if (*n == room || k >= sizeof one)
            return cmd_refuse(HONE_EUSAGE, "queue: at most %d numbers", room);
        memcpy(one, p, k);
        one[k] = 0;
        rc = cmd_parse_id("queue", one, &ids[(*n)++]);
    }
    return rc;
}

/* ---- add and edit */

/* The whole path of --recipe, for whoever takes the task may stand elsewhere. What it says is read then, for it may name
 * plug-ins by their paths. */
static int recipe_path(char whole[PATH_MAX], const char **path)
{
    struct stat st;
    if (!recipe || !*recipe)
        return 0;
    if (!realpath(recipe, whole) || stat(whole, &st) || access(whole, R_OK))
        return cmd_refuse(HONE_EINPUT, "--recipe %s: %s", recipe, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return cmd_refuse(HONE_EINPUT, "--recipe %s: no regular file", recipe);
    *path = whole;
    return 0;
}

static int read_tiers(struct tiers *t, bool must)
{
    char path[4200];
    struct hone_error e = {0};
    *t = (struct tiers){0};
    if (!cmd_beside_journal(path, sizeof path, tiers_path, "HONE_TIERS", "tiers"))
        return must ? cmd_refuse(HONE_ERESOURCE, "nothing says where the tiers are: give --tiers FILE") : 0;
    if (!must && access(path, F_OK))
        return 0;
    return tiers_read(t, path, &e) ? cmd_fail(&e) : 0;
}

/* A tier that there is none of would be found out when all the work is done. */
static int check_tier(void)
{
    struct tiers t = {0};
    if (!tier || !*tier)
        return 0;
    int rc = read_tiers(&t, true);
    if (!rc && !tiers_find(&t, tier))
        rc = cmd_refuse(HONE_EINPUT, "--tier %s: there is no such tier in %s", tier, t.path);
    tiers_free(&t);
    return rc;
}

/* *gain NAN: none is said. */
static int read_gain(double *gain)
{
    enum { MOST = 100000 };
    char *end;
    *gain = NAN;
    if (!expect || !*expect)
        return 0;
    *gain = strtod(expect, &end) / 100;
    if (end == expect || (*end && strcmp(end, "%") != 0) || !(*gain > -1 && *gain <= MOST / 100))
        return cmd_refuse(HONE_EUSAGE, "--expect %s: a gain in percent, such as 3 or -0.5; above -100, and at most %d", expect,
                          MOST);
    return 0;
}

/* What the options give to both: everything is looked at before the queue is changed. Returned texts are to be freed. */
struct given {
    int64_t after[64];
    int n_after;
    char whole[PATH_MAX], *text;
    const char *recipe, *work;
    double gain;
};

static int read_given(struct given *g)
{
    struct hone_error e = {0};
    size_t size;
    *g = (struct given){.recipe = recipe, .work = work};
    if (work && work_file)
        return cmd_refuse(HONE_EUSAGE, "queue: --work and --work-file are two");
    int rc = after && !strcmp(after, "0\n") ? 0 : ids_of(after, g->after, 64, &g->n_after);
    rc = rc ? rc : read_gain(&g->gain);
    rc = rc ? rc : recipe_path(g->whole, &g->recipe);
    rc = rc ? rc : check_tier();
    if (!rc && work_file && file_read(&g->text, &size, work_file, &e))
        rc = cmd_fail(&e);
    if (!rc && g->text)
        g->work = g->text;
    return rc;
}

static int add(struct queue *q, const char *name)
{
    struct hone_error e = {0};
    int64_t id;
    struct given g;
    int rc = read_given(&g);
    struct queue_task t = {.title = name,
                           .role = role,
                           .work = g.work,
                           .recipe = g.recipe,
                           .model = model,
                           .series = series,
                           .hypothesis = hypothesis,
                           .tier = tier,
                           .expected_gain = g.gain,
                           .priority = priority,
                           .budget_s = budget,
                           .tries = tries,
                           .parent = parent,
                           .after = g.after,
                           .n_after = g.n_after,
                           .backlog = backlog};
    if (!rc && queue_add(q, &t, &id, &e))
        rc = cmd_fail(&e);
    free(g.text);
    if (rc)
        return rc;
    if (output_json())
        return output_print(json_pack("{s:I}", "id", (json_int_t)id));
    printf("task %lld\n", (long long)id);
    return output_flush();
}

/* Only what was given. */
static int edit(struct queue *q, int64_t id, const char *by)
{
    struct hone_error e = {0};
    struct given g;
    int rc = read_given(&g);
    struct queue_value values[12];
    struct queue_edit d = {values, 0, g.after, after ? g.n_after : -1};
    const struct queue_value texts[] = {
        {"title", title, 0},   {"role", role, 0}, {"recipe", g.recipe, 0}, {"model", model, 0},
        {"series", series, 0}, {"tier", tier, 0}, {"work", g.work, 0},     {"hypothesis", hypothesis, 0}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].text)
            values[d.n_values++] = texts[i];
    if (expect)
        values[d.n_values++] = (struct queue_value){"expected_gain", NULL, g.gain};
    if (priority_given)
        values[d.n_values++] = (struct queue_value){"priority", NULL, priority};
    if (budget_given)
        values[d.n_values++] = (struct queue_value){"budget", NULL, budget};
    if (tries_given)
        values[d.n_values++] = (struct queue_value){"tries", NULL, tries};
    if (!rc && !d.n_values && d.n_after < 0)
        rc = cmd_refuse(HONE_EUSAGE,
                        "queue edit: what shall be another? --title, --work, --recipe, --model, --series, --hypothesis, "
                        "--expect, --tier, --role, --after, --priority, --budget and --tries are possible");
    if (!rc && queue_edit(q, id, &d, by, &e))
        rc = cmd_fail(&e);
    free(g.text);
    return rc;
}

/* ---- list and show */

static void print_line(const json_t *t)
{
    printf("%6lld  ", (long long)json_integer_value(json_object_get(t, "id")));
    journal_put(journal_word(t, "status", NULL), 8, true);
    printf(" %8lld  ", (long long)json_integer_value(json_object_get(t, "priority")));
    journal_put(journal_word(t, "title", NULL), 50, true);
    putchar(' ');
    journal_put(journal_word(t, "worker", NULL), 24, true);
    putchar(' ');
    const char *review = journal_word(t, "review", NULL), *reason = journal_word(t, "reason", NULL);
    printf("%s%s%s", review, *review && !strcmp(review, "waiting") ? " for approval" : "", *review && *reason ? ": " : "");
    journal_put(reason, 80, false);
    putchar('\n');
}

static int list(struct queue *q)
{
    struct hone_error e = {0};
    json_t *tasks, *one;
    size_t i;
    int rc = 0;
    if (status && !queue_is_status(status))
        return cmd_refuse(HONE_EUSAGE, "--status %s: backlog, ready, leased, done, failed and blocked are possible", status);
    if (queue_list(q, status, &tasks, &e))
        return cmd_fail(&e);
    if (!strcmp(output_format, "json"))
        return output_print(tasks);
    if (!output_json() && json_array_size(tasks))
        printf("%6s  %-8s %8s  %-50s %-24s %s\n", "id", "status", "priority", "title", "worker", "reason");
    json_array_foreach(tasks, i, one)
    {
        if (output_json() && (rc = output_print(json_incref(one))))
            break;
        if (!output_json())
            print_line(one);
    }
    if (!json_array_size(tasks))
        fprintf(stderr, "hone: no such task\n");
    json_decref(tasks);
    return rc ? rc : output_flush();
}

static void print_task(const json_t *t)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)t, key, value)
    {
        printf("%-14s", key);
        journal_put_json(value, 2000);
        putchar('\n');
    }
}

static int show(struct queue *q, int64_t id)
{
    struct hone_error e = {0};
    json_t *task = NULL, *events = NULL, *one;
    size_t i;
    int rc = queue_get(q, id, &task, &e) || queue_events(q, id, &events, &e) ? cmd_fail(&e) : 0;
    if (!rc && output_json()) {
        json_object_set(task, "events", events);
        rc = output_print(json_incref(task));
    } else if (!rc) {
        print_task(task);
        json_array_foreach(events, i, one)
        {
            printf("  ");
            journal_put_time(journal_word(one, "at", NULL));
            printf("  %-9s ", journal_word(one, "what", NULL));
            journal_put(journal_word(one, "who", NULL), 24, true);
            putchar(' ');
            journal_put(journal_word(one, "detail", NULL), 200, false);
            putchar('\n');
        }
        rc = output_flush();
    }
    json_decref(task);
    json_decref(events);
    return rc;
}

/* ---- the worker's */

static int take(struct queue *q, int64_t id)
{
    struct hone_error e = {0};
    char name[200];
    json_t *task;
    if (queue_take(q, who(name, sizeof name), role, id, lease, token_given(), &task, &e))
        return cmd_fail(&e);
    if (!task)
        return cmd_refuse(HONE_ECHECK, "no task is ready");
    if (output_json())
        return output_print(task);
    print_task(task);
    json_decref(task);
    return output_flush();
}

static int say(int64_t id, const char *what, bool again)
{
    if (output_json())
        return output_print(json_pack("{s:I, s:s, s:b}", "id", (json_int_t)id, "now", what, "again", again));
    printf("task %lld: %s%s\n", (long long)id, what, again ? " (it was already)" : "");
    return output_flush();
}

/* What a task is now: one that was made ready may still wait for another. */
static int say_standing(struct queue *q, int64_t id)
{
    struct hone_error e = {0};
    json_t *task;
    char text[500];
    if (queue_get(q, id, &task, &e))
        return cmd_fail(&e);
    const char *reason = json_string_value(json_object_get(task, "reason"));
    bool blocked = !strcmp(json_string_value(json_object_get(task, "status")), "blocked"),
         why = blocked && reason && !output_json();
    snprintf(text, sizeof text, "%s%s%s", blocked ? "blocked" : "ready", why ? ": it " : "", why ? reason : "");
    json_decref(task);
    return say(id, text, false);
}

/* What is handed in as shown is there to be looked at. */
static int check_runs(const int64_t *runs, int n)
{
    struct hone_error e = {0};
    struct journal *j = NULL;
    int rc = n ? cmd_open_journal(&j, JOURNAL_READ, true) : 0;
    for (int i = 0; i < n && !rc; i++) {
        json_t *run = NULL;
        if (journal_get(j, runs[i], &run, &e))
            rc = cmd_fail(&e);
        json_decref(run);
    }
    journal_close(j);
    return rc;
}

static int done(struct queue *q, int64_t id, const char *text)
{
    struct hone_error e = {0};
    int64_t runs[64];
    int n;
    bool again;
    int rc = ids_of(run_ids, runs, 64, &n);
    rc = rc ? rc : check_runs(runs, n);
    if (rc)
        return rc;
    json_t *list_of = json_array(), *result = json_pack("{s:o}", "runs", list_of);
    for (int i = 0; i < n; i++)
        json_array_append_new(list_of, json_integer((json_int_t)runs[i]));
    if (text && json_object_set_new(result, "text", json_string(text)))
        rc = cmd_refuse(HONE_EUSAGE, "queue done: a text that is no UTF-8");
    if (!rc && queue_done(q, id, token_given(), result, &again, &e))
        rc = cmd_fail(&e);
    json_decref(result);
    return rc ? rc : say(id, "done", again);
}

static int brief(struct queue *q, int64_t id)
{
    struct hone_error e = {0};
    struct journal *j = NULL;
    struct tiers t = {0};
    json_t *b = NULL;
    int rc = cmd_open_journal(&j, JOURNAL_READ, false);
    rc = rc ? rc : read_tiers(&t, false);
    if (!rc && brief_make(q, j, id, &t, &b, &e))
        rc = cmd_fail(&e);
    tiers_free(&t);
    journal_close(j);
    if (rc || output_json())
        return rc ? rc : output_print(b);
    brief_write(b, stdout);
    json_decref(b);
    return output_flush();
}

/* ---- against mistakes */

/* The trace in the journal of what was done to a task from above: a run of the task, with who and why. The queue has been
 * changed by then, and says the same among its events. */
static int record(int64_t id, const char *what, const char *by, const char *why)
{
    struct recording rec = {0};
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)id);
    setenv("HONE_TASK", number, 1);
    int rc = cmd_journal_begin(&rec, "queue", NULL,
                               json_pack("{s:I, s:s, s:s, s:s}", "task", (json_int_t)id, "what", what, "by", by, "why", why));
    return cmd_journal_end(&rec, rc, NULL);
}

static int say_changed(int64_t id, const char *what, const char *by, const char *why)
{
    int rc = record(id, what, by, why);
    return rc ? rc : say(id, what, false);
}

/* With what was and what is, as the newest event has it. */
static int say_edited(struct queue *q, int64_t id, const char *by)
{
    struct hone_error e = {0};
    json_t *events;
    if (queue_events(q, id, &events, &e))
        return cmd_fail(&e);
    const json_t *last = json_array_get(events, json_array_size(events) - 1);
    int rc = strcmp(journal_word(last, "what", NULL), "edited")
                 ? say(id, "edited", true)
                 : say_changed(id, "edited", by, journal_word(last, "detail", NULL));
    json_decref(events);
    return rc;
}

/* ---- */

enum sub { ADD, LIST, SHOW, TAKE, RENEW, DONE, FAIL, BLOCK, BRIEF, READY, APPROVE, REJECT, RELEASE, CANCEL, EDIT, N_SUBS };
static const struct {
    const char *name;
    int least, most; /* arguments; the first is an id, but of add */
    bool workers;    /* a worker may */
} subs[N_SUBS] = {{"add", 1, 1, false},     {"list", 0, 0, true},    {"show", 1, 1, true},     {"take", 0, 1, true},
                  {"renew", 1, 1, true},    {"done", 1, 2, true},    {"fail", 2, 2, true},     {"block", 2, 2, true},
                  {"brief", 1, 1, true},    {"ready", 1, 1, false},  {"approve", 1, 2, false}, {"reject", 2, 2, false},
                  {"release", 2, 2, false}, {"cancel", 2, 2, false}, {"edit", 1, 1, false}};

static int act(enum sub s, struct queue *q, int64_t id, const char *first, const char *text)
{
    struct hone_error e = {0};
    char name[200];
    bool again = false;
    int rc = 0;
    switch (s) {
    case ADD:
        return add(q, first);
    case LIST:
        return list(q);
    case SHOW:
        return show(q, id);
    case TAKE:
        return take(q, id);
    case DONE:
        return done(q, id, text);
    case BRIEF:
        return brief(q, id);
    case RENEW:
        rc = queue_renew(q, id, token_given(), lease, &e);
        return rc ? cmd_fail(&e) : say(id, "renewed", false);
    case FAIL:
        rc = queue_fail(q, id, token_given(), text, retry, &again, &e);
        return rc ? cmd_fail(&e) : say(id, retry ? "ready" : "failed", again);
    case BLOCK:
        rc = queue_block(q, id, token_given(), text, &e);
        return rc ? cmd_fail(&e) : say(id, "blocked", false);
    case READY:
        rc = queue_ready(q, id, who(name, sizeof name), &e);
        return rc ? cmd_fail(&e) : say_standing(q, id);
    case RELEASE:
        rc = queue_release(q, id, who(name, sizeof name), text, &e);
        return rc ? cmd_fail(&e) : say_changed(id, "released", who(name, sizeof name), text);
    case CANCEL:
        rc = queue_cancel(q, id, who(name, sizeof name), text, &e);
        return rc ? cmd_fail(&e) : say_changed(id, "cancelled", who(name, sizeof name), text);
    case EDIT:
        rc = edit(q, id, who(name, sizeof name));
        return rc ? rc : say_edited(q, id, who(name, sizeof name));
    default:
        rc = queue_review(q, id, s == APPROVE, who(name, sizeof name), text, &e);
        return rc ? cmd_fail(&e) : say(id, s == APPROVE ? "approved" : "rejected", false);
    }
}

static int run(int n_args, char **args)
{
    struct hone_error e = {0};
    struct queue *q;
    char path[4200];
    int64_t id = 0;
    int s = 0, n = n_args - 1;
    bool is_worker;
    while (n_args && s < N_SUBS && strcmp(args[0], subs[s].name) != 0)
        s++;
    if (!n_args || s == N_SUBS)
        return cmd_refuse(HONE_EUSAGE,
                          "queue: %s%s%sadd, list, show, take, renew, done, fail, block, brief, ready, approve, reject, "
                          "release, cancel and edit are "
                          "possible",
                          n_args ? "no '" : "", n_args ? args[0] : "", n_args ? "'; " : "");
    if (n < subs[s].least || n > subs[s].most)
        return cmd_refuse(HONE_EUSAGE, "queue %s: %d argument%s, not %d; see hone queue --help", subs[s].name,
                          n < subs[s].least ? subs[s].least : subs[s].most, subs[s].most == 1 ? "" : "s", n);
    int rc = cmd_role("queue", as, false, &is_worker);
    if (rc)
        return rc;
    if (is_worker && !subs[s].workers)
        return cmd_refuse(HONE_ECHECK, "queue %s is the supervisor's", subs[s].name);
    rc = n && s != ADD ? cmd_parse_id("queue", args[1], &id) : 0;
    if (rc)
        return rc;
    if (!cmd_beside_journal(path, sizeof path, queue_path, "HONE_QUEUE", "queue.db"))
        return cmd_refuse(
            HONE_ERESOURCE,
            "neither HONE_QUEUE, HONE_JOURNAL, XDG_DATA_HOME nor HOME says where the queue is: give --queue FILE");
    if (queue_open(&q, path, &e))
        return cmd_fail(&e);
    rc = act((enum sub)s, q, id, n ? args[1] : NULL, n > 1 ? args[2] : NULL);
    queue_close(q);
    return rc;
}

const struct command command_queue = {
    "queue",
    "tasks for a supervisor and workers: add, list, show, take, renew, done, fail, block, brief, ready, approve, reject, "
    "release, "
    "cancel, edit",
    "add TITLE | list | show ID | take [ID] | renew ID | done ID [TEXT] | fail ID WHY | block ID WHY | brief ID | ready ID | "
    "approve ID [TEXT] | reject ID WHY | release ID WHY | cancel ID WHY | edit ID",
    "hone queue add 'a fused MLP for q8_0' --model smollm2 --series 'tg* t/s' --hypothesis 'one read less' --expect 3 --tier "
    "decode\n"
    "  hone queue take --worker w1 --lease 900 -o json\n  hone queue brief 7\n  hone queue renew 7 --token $TOKEN --lease 900\n"
    "  hone queue done 7 --token $TOKEN --run 31 'two percent'\n  hone queue approve 7\n"
    "  hone queue release 7 'its worker is gone'\n  hone queue edit 7 --tier decode --priority 2",
    options,
    run,
    NULL,
};
