/* iterate.c: hone iterate: options, roles, one task or all that are ready, and a table of what became of them. The loop itself
 * is lab/iterate.h.
 *
 * A run is a worker's unless it is told otherwise (--as supervisor, HONE_ROLE): it hands in and promotes nothing. As supervisor
 * it approves by the rules of the tier what it measured itself; whoever starts it so has read those rules and trusts them.
 *
 * Exit codes: 0 every task got an answer, whichever; 1 one of them failed, or there was none to take (without --all). */
#include "cmd/loop.h"

#include "cmd/journal.h"

#include "engine/engine.h"
#include "lab/change.h"
#include "lab/denylist.h"
#include "lab/identity.h"
#include "lab/iterate.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *queue_path, *tiers_path, *logs_path, *as, *worker, *role, *program, *revision, *words[ITERATE_N_STEPS];
static const char head[] = "HEAD";
static char *limits;
static bool all, measure_wrong;
static int lease = 120;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        MODEL_OPTION,
        {"--all", OPTION_FLAG, &all, NULL, "go on until no task is ready", 0, 0},
        {"--as", OPTION_TEXT, &as, "ROLE",
         "worker: hand in; supervisor: also approve and promote what passes (default HONE_ROLE, or worker)", 0, 0},
        {"--program", OPTION_TEXT, &program, "COMMAND", "what works on tasks in words: a shell command", 0, 0},
        {"--check", OPTION_TEXT, &words[ITERATE_check], "OPTIONS", "more options of hone check --shadow", 0, 0},
        {"--verify", OPTION_TEXT, &words[ITERATE_verify], "OPTIONS", "more options of hone verify", 0, 0},
        {"--bench", OPTION_TEXT, &words[ITERATE_bench], "OPTIONS", "options of hone bench (otherwise -p 0 -n 64)", 0, 0},
        {"--ab", OPTION_TEXT, &words[ITERATE_ab], "OPTIONS", "more options of hone ab", 0, 0},
        {"--limit", OPTION_APPEND, &limits, "STEP=SECONDS",
         "of work, build, lint, check, verify, bench, ab, tier or promote (repeatable)", 0, 0},
        {"--measure-wrong", OPTION_FLAG, &measure_wrong, NULL, "compare also the speed of what was found wrong", 0, 0},
        {"--commit", OPTION_TEXT, &revision, "REV", "what patches are applied to, of the repository here (default HEAD)", 0, 0},
        {"--lease", OPTION_INT, &lease, "SECONDS", "how long a task is ours when we die; renewed meanwhile", 3, 31536000},
        {"--role", OPTION_TEXT, &role, "NAME", "take tasks of this role, and of none", 0, 0},
        {"--worker", OPTION_TEXT, &worker, "NAME", "who takes tasks (default HONE_WORKER, or user@host:process)", 0, 0},
        {"--logs", OPTION_TEXT, &logs_path, "FOLDER",
         "a folder a task below it (default HONE_LOGS, or logs beside the journal)", 0, 0},
        {"--queue", OPTION_INPUT, &queue_path, "FILE", "the queue (default HONE_QUEUE, or queue.db beside the journal)", 0, 0},
        {"--tiers", OPTION_INPUT, &tiers_path, "FILE", "the tiers (default HONE_TIERS, or tiers beside the journal)", 0, 0},
        DENYLIST_OPTION,
        LOCK_OPTION,
        PLUGIN_OPTION,
        JOURNAL_OPTION,
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* ---- what is given */

static int stopped(void *user)
{
    (void)user;
    return interrupts();
}

static void tell(void *user, int64_t task, const char *step, double seconds, const char *what)
{
    (void)user;
    progress_end();
    fprintf(stderr, "hone: task %lld: %-7s %6.1f s  ", (long long)task, step, seconds);
    for (const unsigned char *p = (const unsigned char *)(*what ? what : "done"); *p; p++)
        fputc(*p < 0x20 || *p == 0x7f ? '?' : *p, stderr);
    fputc('\n', stderr);
}

static int read_limits(struct iterate_options *o)
{
    for (enum iterate_step s = 0; s < ITERATE_N_STEPS; s++)
        o->limits[s] = iterate_step_limit(s);
    for (const char *p = limits; p && *p; p += strcspn(p, "\n") + 1) {
        enum iterate_step s;
        size_t n = strcspn(p, "=\n"), line = strcspn(p, "\n");
        char *end = NULL;
        double x = p[n] == '=' ? strtod(p + n + 1, &end) : NAN;
        if (iterate_step_find(p, n, &s) || !(x > 0) || end != p + line || !isfinite(x))
            return cmd_refuse(HONE_EUSAGE, "--limit %.*s: a step, '=' and seconds", (int)line, p);
        o->limits[s] = x;
    }
    return 0;
}

struct running {
    struct iterate_options o;
    struct queue *queue;
    struct tiers tiers;
    json_t *results;
    char binary[4096], tiers_file[4200], queue_file[4200], journal_file[4096], logs[4200], cache[4096], name[200],
        reviewer[200];
    char model[PATH_MAX];
    json_t *identity, *left; /* of the model, once a task names one; tasks that were left alone, by number */
    bool failed;
};

static const char *user_name(void)
{
    const char *user = getenv("USER");
    return user && *user ? user : "user";
}

/* Who takes; and in whose name a supervisor's run approves, which cannot be the same. */
static void names(struct running *r)
{
    const char *named = worker ? worker : getenv("HONE_WORKER");
    char host[100] = "";
    gethostname(host, sizeof host - 1);
    if (named && *named)
        snprintf(r->name, sizeof r->name, "%.180s", named);
    else
        snprintf(r->name, sizeof r->name, "%.60s@%.80s:%ld", user_name(), host, (long)getpid());
    snprintf(r->reviewer, sizeof r->reviewer, "%.100s, by hone iterate --as supervisor", user_name());
}

/* The tiers' file need not be there for tasks without one. */
static int read_tiers(struct running *r)
{
    struct hone_error e = {0};
    if (!cmd_beside_journal(r->tiers_file, sizeof r->tiers_file, tiers_path, "HONE_TIERS", "tiers") ||
        (!tiers_path && access(r->tiers_file, F_OK)))
        return 0;
    if (tiers_read(&r->tiers, r->tiers_file, &e))
        return cmd_fail(&e);
    r->o.tiers = &r->tiers;
    r->o.tiers_path = r->tiers_file;
    return 0;
}

static int read_paths(struct running *r)
{
    const char *deny = denylist_path ? denylist_path : getenv("HONE_DENYLIST");
    ssize_t n = readlink("/proc/self/exe", r->binary, sizeof r->binary - 1);
    if (n < 0)
        return cmd_refuse(HONE_ERESOURCE, "/proc/self/exe: %s", strerror(errno));
    r->binary[n] = 0;
    if (!cmd_journal_path(r->journal_file, sizeof r->journal_file, true) ||
        !cmd_beside_journal(r->queue_file, sizeof r->queue_file, queue_path, "HONE_QUEUE", "queue.db") ||
        !cmd_beside_journal(r->logs, sizeof r->logs, logs_path, "HONE_LOGS", "logs"))
        return cmd_refuse(HONE_ERESOURCE,
                          "neither HONE_JOURNAL, XDG_DATA_HOME nor HOME says where the journal is: give --journal FILE");
    if (!model_args.model)
        return cmd_refuse(HONE_EUSAGE, "which model? give -m FILE");
    if (!realpath(model_args.model, r->model)) /* programs of tasks run in another folder */
        return cmd_refuse(HONE_EINPUT, "%s: %s", model_args.model, strerror(errno));
    char *const paths[] = {r->journal_file, r->queue_file, r->logs};
    static const size_t sizes[] = {sizeof r->journal_file, sizeof r->queue_file, sizeof r->logs};
    char here[4000];
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (paths[i][0] == '/')
            continue;
        char *relative = strdup(paths[i]);
        if (!relative || !getcwd(here, sizeof here) ||
            (size_t)snprintf(paths[i], sizes[i], "%s/%s", here, relative) >= sizes[i]) {
            free(relative);
            return cmd_refuse(HONE_ERESOURCE, "%s: no absolute path for it", paths[i]);
        }
        free(relative);
    }
    r->o.denylist = deny && *deny ? deny : NULL;
    r->o.binary = r->binary;
    r->o.model = r->model;
    r->o.journal_path = r->journal_file;
    r->o.queue_path = r->queue_file;
    r->o.logs = r->logs;
    r->o.cache = cmd_cache_folder(r->cache, sizeof r->cache);
    return 0;
}

/* ---- what must be right before a task is taken, for a task that fails for want of a folder is a try lost */

static int check_journal(const struct running *r)
{
    struct hone_error e = {0};
    struct journal *j;
    if (access(r->journal_file, F_OK)) /* it is made with the first task; that it can be is checked as for any file */
        return whole_check(r->journal_file, &e) ? (err_prefix(&e, "--journal"), cmd_fail(&e)) : 0;
    if (journal_open(&j, r->journal_file, JOURNAL_WRITE, &e))
        return cmd_fail(&e);
    journal_close(j);
    return 0;
}

/* The folder of logs, made if need be, takes files. */
static int check_logs(const struct running *r)
{
    char probe[sizeof r->logs + 8];
    struct hone_error e = {0};
    if (mkdir(r->logs, 0777) && errno != EEXIST)
        return cmd_refuse(HONE_ERESOURCE, "--logs %s: %s", r->logs, strerror(errno));
    snprintf(probe, sizeof probe, "%s/probe", r->logs);
    return whole_check(probe, &e) ? (err_prefix(&e, "--logs"), cmd_fail(&e)) : 0;
}

static int check_denylist(void)
{
    const char *variable = getenv("HONE_DENYLIST");
    bool named = denylist_path || (variable && *variable);
    struct hone_error e = {0};
    struct denylist d = {0};
    char path[4200];
    if (!cmd_beside_journal(path, sizeof path, denylist_path, "HONE_DENYLIST", "denylist") || (!named && access(path, F_OK)))
        return 0;
    int rc = denylist_read(&d, path, &e) ? cmd_fail(&e) : 0;
    denylist_free(&d);
    return rc;
}

/* Plug-ins are loaded by the steps; here it is enough that they are there. */
static int check_plugins(void)
{
    int rc = 0;
    for (char *path = model_args.plugins, *end; path && *path && !rc; path = end) {
        end = strchr(path, '\n') + 1;
        end[-1] = 0;
        rc = access(path, R_OK) ? cmd_refuse(HONE_EINPUT, "--plugin %s: %s", path, strerror(errno)) : 0;
        end[-1] = '\n';
    }
    return rc;
}

/* Words for other commands, which would be found out with a task taken. */
static int check_options(void)
{
    int rc = 0;
    for (enum iterate_step s = 0; s < ITERATE_N_STEPS && !rc; s++) {
        char from[20];
        snprintf(from, sizeof from, "--%s", iterate_step_name(s));
        rc = words[s] ? options_try(command_find(iterate_step_name(s)), words[s], from) : 0;
    }
    return rc;
}

static int check_all(const struct running *r)
{
    struct hone_error e = {0};
    struct hone_model *m = NULL;
    struct patch_base base;
    if (hone_model_open(&m, r->o.model, &e))
        return cmd_fail(&e);
    hone_model_close(m);
    if (revision && patch_base_find(&base, revision, &e)) {
        err_prefix(&e, "--commit %.80s", revision);
        return cmd_fail(&e);
    }
    if (revision && !patch_base_is_hone(&base))
        return cmd_refuse(HONE_EINPUT, "--commit %.80s: the repository here does not hold hone's sources", revision);
    int rc = check_journal(r);
    rc = rc ? rc : check_logs(r);
    rc = rc ? rc : check_denylist();
    return rc ? rc : check_plugins();
}

/* ---- one task */

/* The run of the journal that this task's way is, with hypothesis and expectation before anything is measured. */
static int begin(struct running *r, const json_t *task, struct recording *rec)
{
    static char percent[32], id[24];
    struct hone_model *m = NULL;
    struct hone_error e = {0};
    const json_t *gain = json_object_get(task, "expected_gain");
    snprintf(id, sizeof id, "%lld", (long long)json_integer_value(json_object_get(task, "id")));
    snprintf(percent, sizeof percent, "%g", 100 * json_number_value(gain));
    setenv("HONE_TASK", id, 1);
    journal_args.path = r->journal_file;
    journal_args.hypothesis = json_string_value(json_object_get(task, "hypothesis"));
    journal_args.expect = json_is_number(gain) ? percent : NULL;
    if (hone_model_open(&m, r->o.model, &e))
        return cmd_fail(&e);
    int rc = cmd_journal_begin(rec, "iterate", m,
                               json_pack("{s:O, s:O, s:O?, s:O?, s:s}", "task", json_object_get(task, "id"), "title",
                                         json_object_get(task, "title"), "tier", json_object_get(task, "tier"), "work",
                                         json_object_get(task, "work"), "as", r->o.supervisor ? "supervisor" : "worker"));
    hone_model_close(m);
    return rc;
}

static int one_task(struct running *r, json_t *task)
{
    struct iteration it = {.o = &r->o, .queue = r->queue, .task = task};
    struct recording rec = {0};
    struct hone_error e = {0};
    bool again;
    int64_t id = json_integer_value(json_object_get(task, "id"));
    int rc = begin(r, task, &rec);
    if (rc) {
        queue_fail(r->queue, id, json_string_value(json_object_get(task, "token")), "its run could not be recorded", true,
                   &again, &e);
    } else {
        it.journal = rec.journal;
        it.run = rec.run;
        rc = iterate_task(&it, &e) ? cmd_fail(&e) : 0;
        json_t *result = rc ? NULL : iteration_json(&it);
        if (result)
            json_array_append(r->results, result);
        r->failed = r->failed || it.decision == DECISION_FAILED;
        rc = cmd_journal_end(&rec, rc, result);
    }
    iteration_free(&it);
    return rc;
}

/* ---- what became of them */

static void print_results(const json_t *results)
{
    size_t i;
    json_t *one;
    printf("%5s  %-9s %-36s %s\n", "task", "decision", "title", "why");
    json_array_foreach(results, i, one)
    {
        printf("%5lld  %-9s ", (long long)json_integer_value(json_object_get(one, "task")),
               journal_word(one, "decision", NULL));
        journal_put(journal_word(one, "title", NULL), 36, true);
        putchar(' ');
        journal_put(journal_word(one, "why", NULL), 160, false);
        putchar('\n');
    }
}

/* ---- which tasks are this run's to do */

/* By what the journal knows it as, and by its file. */
static int is_of_model(struct running *r, const char *wanted, bool *is, struct hone_error *e)
{
    const char *slash = strrchr(r->model, '/');
    struct hone_model *m = NULL;
    *is = true;
    if (!*wanted || strcasestr(slash ? slash + 1 : r->model, wanted))
        return 0;
    int rc = r->identity ? 0 : hone_model_open(&m, r->model, e);
    if (!rc && !r->identity && !(r->identity = identity_model(m->model, r->o.cache, NULL, NULL, e)))
        rc = e->code;
    hone_model_close(m);
    if (!rc)
        *is = strcasestr(journal_word(r->identity, "name", NULL), wanted) ||
              !strcasecmp(journal_word(r->identity, "arch", NULL), wanted) ||
              !strncmp(journal_word(r->identity, "sha256", NULL), wanted, strlen(wanted));
    return rc;
}

/* Why this run leaves a task to others, in `why`; "": it does not. */
static int not_ours(struct running *r, const json_t *task, char why[400], struct hone_error *e)
{
    struct change c = {0};
    bool is = true;
    const char *model = json_string_value(json_object_get(task, "model")),
               *work = json_string_value(json_object_get(task, "work"));
    why[0] = 0;
    int rc = change_read(&c, work ? work : "", e);
    bool in_words = !rc && c.kind == CHANGE_WORDS;
    change_free(&c);
    rc = rc ? rc : is_of_model(r, model ? model : "", &is, e);
    if (!is)
        snprintf(why, 400, "it is about the model %.100s, and this is %.200s", model, r->model);
    else if (in_words && !program)
        snprintf(why, 400, "its text is for a person, or for a program that --program names");
    return rc;
}

/* Said once of a task. */
static void leave(struct running *r, int64_t id, const char *why)
{
    char key[24];
    snprintf(key, sizeof key, "%lld", (long long)id);
    if (json_object_get(r->left, key))
        return;
    json_object_set_new(r->left, key, json_true());
    tell(NULL, id, "left", 0, why);
}

/* Task `id`, or (0) the next one that is ours; *task NULL: there is none. */
static int take(struct running *r, int64_t id, json_t **task)
{
    struct hone_error e = {0};
    json_t *list = NULL, *one;
    char why[400];
    size_t i;
    int rc;
    *task = NULL;
    if (id) {
        rc = queue_get(r->queue, id, &list, &e);
        rc = rc ? rc : not_ours(r, list, why, &e);
        if (!rc && why[0])
            rc = err_set(&e, HONE_ECHECK, "task %lld is left alone: %s", (long long)id, why);
        rc = rc ? rc : queue_take(r->queue, r->name, role, id, lease, "", task, &e);
        json_decref(list);
        return rc ? cmd_fail(&e) : 0;
    }
    rc = queue_list(r->queue, "ready", &list, &e);
    json_array_foreach(list, i, one)
    {
        int64_t number = json_integer_value(json_object_get(one, "id"));
        if (rc || *task)
            break;
        rc = not_ours(r, one, why, &e);
        if (!rc && why[0])
            leave(r, number, why);
        else if (!rc && (rc = queue_take(r->queue, r->name, role, number, lease, "", task, &e)) == HONE_ECHECK)
            rc = e.code = 0; /* another took it, or it is of another role */
    }
    json_decref(list);
    return rc ? cmd_fail(&e) : 0;
}

static int work_off(struct running *r, int64_t id)
{
    json_t *task;
    int rc = 0;
    do {
        rc = take(r, id, &task);
        if (rc)
            return rc;
        if (task)
            rc = one_task(r, task);
        else if (!all && !json_array_size(r->results))
            return cmd_refuse(HONE_ECHECK, "no task is ready");
    } while (task && all && !id && !rc && !interrupted());
    return rc ? rc : interrupted() ? EXIT_INTERRUPTED : 0;
}

static int open_and_work(struct running *r, int64_t id)
{
    struct hone_error e = {0};
    if (queue_open(&r->queue, r->queue_file, &e))
        return cmd_fail(&e);
    int rc = work_off(r, id);
    queue_close(r->queue);
    int printed = 0;
    if (output_json())
        printed = output_print(json_incref(r->results));
    else if (json_array_size(r->results)) {
        print_results(r->results);
        printed = output_flush();
    }
    return rc ? rc : printed ? printed : r->failed ? -HONE_ECHECK : 0;
}

static int run(int n_args, char **args)
{
    bool is_worker;
    int64_t id = 0;
    if (n_args > 1 || (n_args && all))
        return cmd_refuse(HONE_EUSAGE, "iterate: one task, or --all; see hone iterate --help");
    int refused = cmd_role("iterate", as, true, &is_worker);
    if (refused)
        return refused;
    if (cmd_alone("iterate", "run the loop without mpirun"))
        return -HONE_EUSAGE;
    struct running *r = calloc(1, sizeof *r);
    if (!r || !(r->results = json_array()) || !(r->left = json_object())) {
        if (r)
            json_decref(r->results);
        free(r);
        return cmd_refuse(HONE_ERESOURCE, "no memory to iterate");
    }
    r->o = (struct iterate_options){.plugins = model_args.plugins,
                                    .program = program,
                                    .revision = revision ? revision : head,
                                    .lease_s = lease,
                                    .supervisor = !is_worker,
                                    .measure_wrong = measure_wrong,
                                    .no_lock = no_lock,
                                    .reviewer = r->reviewer,
                                    .cancelled = stopped,
                                    .tell = tell};
    memcpy(r->o.words, words, sizeof words);
    int rc = n_args ? cmd_parse_id("iterate", args[0], &id) : 0;
    rc = rc ? rc : read_limits(&r->o);
    rc = rc ? rc : check_options();
    rc = rc ? rc : read_paths(r);
    rc = rc ? rc : read_tiers(r);
    names(r);
    interrupt_patience(2); /* a task that somebody has taken is given back */
    interrupt_session(NULL);
    rc = rc ? rc : check_all(r);
    rc = rc ? rc : open_and_work(r, id);
    tiers_free(&r->tiers);
    json_decref(r->results);
    json_decref(r->identity);
    json_decref(r->left);
    free(r);
    return rc;
}

const struct command command_iterate = {
    "iterate",
    "one task of the queue, or all: apply, build, check, verify, bench, ab against the best, tier, promote or take back",
    "[TASK]",
    "hone iterate -m model.gguf\n  hone iterate -m model.gguf --all --as supervisor --ab '--blocks 24 -d 256'\n"
    "  hone iterate -m model.gguf 7 --program './my-worker.sh' --limit work=7200",
    options,
    run,
    NULL,
};
