/* tier.c: hone tier: the rules, a recipe against them, and its promotion, which is a supervisor's. Here are the questions that
 * lab/ cannot answer: what the repository says of a commit, who asks, and whether the task was approved. */
#include "cmd/loop.h"

#include "cmd/journal.h"

#include "lab/child.h"
#include "lab/queue.h"
#include "lab/tier.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *tiers_path, *commit, *queue_path, *as, *worker;
static int task;
static bool promotable;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        {"--tiers", OPTION_INPUT, &tiers_path, "FILE", "the tiers (default HONE_TIERS, or tiers beside the journal)", 0, 0},
        {"--commit", OPTION_TEXT, &commit, "REV", "the builds must be of this commit of the repository here, without changes",
         0, 0},
        {"--promotable", OPTION_FLAG, &promotable, NULL, "check: also what a promotion asks for", 0, 0},
        {"--task", OPTION_INT, &task, "ID", "promote: the task of the queue, which must be approved", 1, 1 << 30},
        {"--queue", OPTION_INPUT, &queue_path, "FILE", "the queue (default HONE_QUEUE, or queue.db beside the journal)", 0, 0},
        {"--as", OPTION_TEXT, &as, "ROLE", "supervisor or worker (default HONE_ROLE, or supervisor)", 0, 0},
        {"--worker", OPTION_TEXT, &worker, "NAME", "promote: who does it (default HONE_WORKER, or USER)", 0, 0},
        DENYLIST_OPTION,
        PLUGIN_OPTION,
        JOURNAL_OPTION,
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* ---- the repository */

/* The first line of what git prints; -1: it fails, or there is none. */
static int git(const char *const *argv, char *line, size_t size)
{
    struct child_output o = {0};
    struct hone_error ignored = {0};
    struct child c = {.argv = argv, .binary = -1, .limit_s = 20};
    if (child_run(&o, &c, true, &ignored))
        return -1;
    snprintf(line, size, "%.*s", (int)strcspn(o.out, "\n"), o.out);
    int rc = o.exit_code || !*line ? -1 : 0;
    child_output_free(&o);
    return rc;
}

static int commit_time(void *user, const char *revision, int64_t *at)
{
    char line[100], *end;
    (void)user;
    if (!*revision ||
        git((const char *const[]){"git", "log", "-1", "--format=%ct", "--end-of-options", revision, NULL}, line, sizeof line))
        return -1;
    errno = 0;
    *at = strtoll(line, &end, 10);
    return end == line || *end || errno ? -1 : 0;
}

static int commit_hash(const char *revision, char full[100])
{
    char text[300];
    snprintf(text, sizeof text, "%.250s^{commit}", revision);
    return git((const char *const[]){"git", "rev-parse", "--verify", "--quiet", "--end-of-options", text, NULL}, full, 100);
}

/* ---- list and show */

static void print_tier(const struct tier *t)
{
    char text[160];
    printf("tier %s\n", t->name);
    if (t->model)
        printf("    model %s\n", t->model);
    for (int i = 0; i < t->n_benches; i++)
        printf("    %s\n", tier_bench_text(&t->benches[i], text, sizeof text));
    if (t->has_verify)
        printf("    verify %s\n", verify_class_name(t->least));
    if (t->has_ab)
        printf("    ab %s\n", t->ab_win ? "win" : "no-loss");
    if (t->no_fallbacks)
        printf("    fallbacks 0\n");
    if (t->weights_may_change)
        printf("    weights may-change\n");
    if (t->base)
        printf("    base %s\n", t->base);
}

static int list(const struct tiers *t)
{
    json_t *all = json_array();
    for (int i = 0; i < t->n; i++)
        if (output_json())
            json_array_append_new(all, json_pack("{s:s, s:s?, s:i, s:i, s:s?}", "name", t->list[i].name, "model",
                                                 t->list[i].model, "line", t->list[i].line, "bench_rules", t->list[i].n_benches,
                                                 "base", t->list[i].base));
        else
            print_tier(&t->list[i]);
    if (output_json())
        return output_print(all);
    json_decref(all);
    return output_flush();
}

/* ---- check and promote */

static void print_result(const struct tier *t, const struct tier_result *r)
{
    for (int i = 0; i < r->n; i++) {
        printf("%-10s", tier_answer_name(r->rules[i].answer));
        journal_put(r->rules[i].rule, 44, true);
        if (r->rules[i].run)
            printf(" run %-6lld ", (long long)r->rules[i].run);
        else
            printf("            ");
        journal_put(r->rules[i].why, 300, false);
        putchar('\n');
    }
    printf("tier %s: %s\n", t->name, r->passes ? "pass" : "fail");
}

/* The reasons of a refusal, on stderr: what is not promoted, or whom stdout's JSON tells nothing in its log. */
static int refuse(const struct tier *t, const struct tier_result *r, bool promote)
{
    for (int i = 0; i < r->n; i++) {
        const struct tier_rule *rule = &r->rules[i];
        char run[32] = "";
        if (rule->run)
            snprintf(run, sizeof run, "run %lld: ", (long long)rule->run);
        if (rule->answer != TIER_PASS)
            fprintf(stderr, "hone: not %s %s: %s: %s%s\n", promote ? "promoted to" : "in", t->name, rule->rule, run, rule->why);
    }
    return -HONE_ECHECK;
}

/* What was approved is what was handed in: a run of this recipe among it. */
static int check_handed_in(const json_t *handed, const struct recipe *r, struct journal *j)
{
    struct hone_error e = {0};
    bool is = false;
    int rc = 0;
    size_t i;
    json_t *run;
    json_array_foreach(json_object_get(json_object_get(handed, "result"), "runs"), i, run)
    {
        if (!rc && !is && tier_run_is_of(j, r, json_integer_value(run), &is, &e))
            rc = cmd_fail(&e);
    }
    if (rc || is)
        return rc;
    return cmd_refuse(HONE_ECHECK, "not promoted: no run of %s was handed in with task %d, so it is not what was approved",
                      r->path, task);
}

static int check_task(const struct tier *t, const struct recipe *r, struct journal *j)
{
    char path[4200];
    struct hone_error e = {0};
    struct queue *q;
    json_t *one = NULL;
    if (!task)
        return 0;
    if (!cmd_beside_journal(path, sizeof path, queue_path, "HONE_QUEUE", "queue.db"))
        return cmd_refuse(HONE_ERESOURCE, "nothing says where the queue is: give --queue FILE");
    if (queue_open(&q, path, &e))
        return cmd_fail(&e);
    int rc = queue_get(q, task, &one, &e) ? cmd_fail(&e) : 0;
    const char *decides = journal_word(one, "tier", NULL);
    if (!rc && strcmp(journal_word(one, "review", NULL), "approved") != 0)
        rc = cmd_refuse(HONE_ECHECK, "not promoted: task %d is not approved; `hone queue approve %d` does that", task, task);
    if (!rc && strcmp(decides, t->name) != 0)
        rc = cmd_refuse(HONE_ECHECK, "not promoted: task %d is for tier %s, not for %s", task, decides, t->name);
    rc = rc ? rc : check_handed_in(one, r, j);
    json_decref(one);
    queue_close(q);
    return rc;
}

/* *run: that made this recipe the best; 0: another is, or none. */
static int find_promoted(const struct tier *t, const struct recipe *r, struct journal *j, int64_t *run)
{
    struct hone_error e = {0};
    json_t *best = NULL;
    *run = 0;
    if (recipe_best(j, t->name, t->model, &best, &e))
        return cmd_fail(&e);
    if (!strcmp(journal_word(best, "recipe", NULL), r->hash))
        *run = json_integer_value(json_object_get(best, "run"));
    json_decref(best);
    return 0;
}

static int say_promoted(const struct tier *t, const struct recipe *r, int64_t run)
{
    if (output_json())
        return output_print(
            json_pack("{s:s, s:s, s:I, s:b}", "tier", t->name, "recipe", r->hash, "promoted", (json_int_t)run, "again", 1));
    printf("%s is the best of %s already (run %lld)\n", r->path, t->name, (long long)run);
    return output_flush();
}

/* Findings of lint that are errors, or that a promotion does not want. */
static int lint(const struct recipe *r, struct journal *j)
{
    struct recipe_findings f = {0};
    int rc = cmd_lint_recipe(r, j, &f);
    for (size_t i = 0; i < f.n && !rc; i++)
        if (f.list[i].error || strstr(f.list[i].text, "no recipe to promote"))
            rc = cmd_refuse(HONE_ECHECK, "not to be promoted: %s:%d: %s", r->path, f.list[i].line, f.list[i].text);
    recipe_findings_free(&f);
    return rc;
}

static int judge(const struct tier *t, const struct recipe *r, struct journal *j, bool promote)
{
    char full[100];
    struct hone_error e = {0};
    struct tier_result result;
    struct tier_claim claim = {.promote = promote || promotable, .commit_time = commit_time};
    int64_t run = 0;
    if (commit && commit_hash(commit, full))
        return cmd_refuse(HONE_EUSAGE, "--commit %s: no commit of the repository here", commit);
    claim.commit = commit ? full : NULL;
    int rc = claim.promote ? lint(r, j) : 0;
    rc = rc || !promote ? rc : check_task(t, r, j);
    rc = rc || !promote ? rc : find_promoted(t, r, j, &run);
    if (!rc && run)
        return say_promoted(t, r, run);
    if (rc)
        return rc;
    if (tier_check(&result, t, r, j, &claim, &e)) {
        tier_result_free(&result);
        return cmd_fail(&e);
    }
    const char *named = worker ? worker : getenv("HONE_WORKER"), *user = getenv("USER");
    if (promote && result.passes && tier_promote(j, t, r, &result, named ? named : user ? user : "supervisor", task, &run, &e))
        rc = cmd_fail(&e);
    if (output_json() && !rc) {
        json_t *o = tier_result_json(&result);
        json_object_set_new(o, "tier", json_string(t->name));
        json_object_set_new(o, "recipe", json_string(r->hash));
        if (run)
            json_object_set_new(o, "promoted", json_integer((json_int_t)run));
        rc = output_print(o);
    } else if (!rc) {
        print_result(t, &result);
        if (run)
            printf("promoted: %s is the best of %s (run %lld)\n", r->path, t->name, (long long)run);
        rc = output_flush();
    }
    if (!rc && !result.passes)
        rc = promote || output_json() ? refuse(t, &result, promote) : -HONE_ECHECK;
    tier_result_free(&result);
    return rc;
}

static int run_recipe(const struct tiers *all, const char *name, const char *path, bool promote)
{
    const struct tier *t = tiers_find(all, name);
    struct recipe r = {0};
    struct hone_error e = {0};
    struct journal *j = NULL;
    if (!t)
        return cmd_refuse(HONE_EINPUT, "%s: there is no tier %s", all->path, name);
    int rc = cmd_load_plugins();
    if (!rc && recipe_read(&r, path, &e))
        rc = cmd_fail(&e);
    rc = rc ? rc : cmd_open_journal(&j, promote ? JOURNAL_WRITE : JOURNAL_READ, true);
    rc = rc ? rc : judge(t, &r, j, promote);
    journal_close(j);
    recipe_free(&r);
    return rc;
}

static int run(int n_args, char **args)
{
    struct tiers t = {0};
    struct hone_error e = {0};
    char path[4200];
    const char *what = n_args ? args[0] : "";
    bool is_worker, is_list = !strcmp(what, "list"), promote = !strcmp(what, "promote");
    if (!is_list && !promote && strcmp(what, "check") != 0)
        return cmd_refuse(HONE_EUSAGE, "tier: list, check and promote are possible");
    if (n_args != (is_list ? 1 : 3))
        return cmd_refuse(HONE_EUSAGE, "tier %s: %s; see hone tier --help", what,
                          is_list ? "it takes nothing" : "a tier and a recipe");
    int rc = cmd_role("tier", as, false, &is_worker);
    if (!rc && promote && is_worker)
        rc = cmd_refuse(HONE_ECHECK, "tier promote is the supervisor's");
    if (rc)
        return rc;
    if (!cmd_beside_journal(path, sizeof path, tiers_path, "HONE_TIERS", "tiers"))
        return cmd_refuse(
            HONE_ERESOURCE,
            "neither HONE_TIERS, HONE_JOURNAL, XDG_DATA_HOME nor HOME says where the tiers are: give --tiers FILE");
    rc = tiers_read(&t, path, &e) ? cmd_fail(&e) : 0;
    if (!rc)
        rc = is_list ? list(&t) : run_recipe(&t, args[1], args[2], promote);
    tiers_free(&t);
    return rc;
}

const struct command command_tier = {
    "tier",
    "named rules over the journal: does a recipe meet them, and is it to be the best from now on? list, check, promote",
    "list | check TIER RECIPE | promote TIER RECIPE",
    "hone tier list\n  hone tier check decode my.recipe\n  hone tier promote decode my.recipe --commit HEAD --task 7",
    options,
    run,
    NULL,
};
