/* tier_judge.c: whether what a journal holds of a recipe meets a tier.
 *
 * The journal is looked at whole first: a chain that does not hold proves nothing about any record in it. Then one run of each
 * kind is chosen, the newest of this recipe, and all must be of one program file: figures of one build, checked on another, are
 * of no build at all. A comparison's verdict is derived again from its samples. That of `verify` cannot be, so it is believed
 * as far as the chain is.
 *
 * The newest run counts, also when it is worse than an older one: choosing among runs is how noise becomes a record. */
#include "lab/tier_judging.h"

#include "lab/journal_judge.h"
#include "lab/stats.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The widest margin within which slower is no loss, the lowest level of an interval that decides. */
#define MOST_MARGIN 0.02
#define LEAST_LEVEL 0.99
#define ROUNDED     (1 + 1e-6) /* options are floats */
static const char *const kinds[N_KINDS] = {"bench", "verify", "ab"};

const char *tier_answer_name(enum tier_answer a)
{
    static const char *const names[] = {"pass", "fail", "no record"};
    return names[a];
}

static int64_t id_of(const json_t *run)
{
    return json_integer_value(json_object_get(run, "id"));
}

int tier_say(struct judging *g, enum tier_answer answer, const json_t *run, const char *rule, const char *format, ...)
{
    struct tier_result *o = g->out;
    if (o->n == o->cap) {
        int cap = o->cap ? 2 * o->cap : 8;
        struct tier_rule *list = reallocarray(o->rules, (size_t)cap, sizeof *list);
        if (!list)
            return err_set(g->e, HONE_ERESOURCE, "no memory for a tier");
        o->rules = list;
        o->cap = cap;
    }
    struct tier_rule *r = &o->rules[o->n++];
    va_list ap;
    *r = (struct tier_rule){.answer = answer, .run = run ? id_of(run) : 0};
    snprintf(r->rule, sizeof r->rule, "%s", rule);
    va_start(ap, format);
    vsnprintf(r->why, sizeof r->why, format, ap);
    va_end(ap);
    o->passes = o->passes && answer == TIER_PASS;
    return 0;
}

/* ---- choosing runs */

/* A list within the run's notes: "sides" of verify, "identities" of ab. New reference or NULL. */
int tier_noted(struct judging *g, const json_t *run, const char *key, json_t **list)
{
    json_t *notes = NULL, *note;
    size_t i;
    *list = NULL;
    int rc = journal_records(g->j, id_of(run), "note", &notes, g->e);
    json_array_foreach(notes, i, note)
    {
        json_t *found = json_object_get(json_object_get(note, "body"), key);
        if (json_is_array(found) && !*list)
            *list = json_incref(found);
    }
    json_decref(notes);
    return rc;
}

/* An arm of a comparison has its identity as names and texts (lab/arm.h). */
static bool arm_is(const struct recipe *r, const json_t *arm)
{
    json_t *gates = json_loads(text_of(arm, "recipe.gates"), 0, NULL), *identity = json_object();
    json_t *plugins = json_loads(text_of(arm, "recipe.plugins"), 0, NULL);
    if (gates && identity) {
        json_object_set(identity, "gates", gates);
        json_object_set(identity, "type_k", json_object_get(arm, "type_k"));
        json_object_set(identity, "type_v", json_object_get(arm, "type_v"));
        json_object_set_new(identity, "threads", json_integer(strtol(text_of(arm, "recipe.threads"), NULL, 10)));
        if (plugins)
            json_object_set(identity, "plugins", plugins);
    }
    bool is = gates && recipe_is(r, identity);
    json_decref(gates);
    json_decref(plugins);
    json_decref(identity);
    return is;
}

static int is_of_recipe(struct judging *g, int kind, const json_t *run, bool *is)
{
    json_t *list = NULL;
    *is = kind == BENCH && recipe_is(g->recipe, json_object_get(run, "recipe"));
    int rc = kind == BENCH ? 0 : tier_noted(g, run, kind == VERIFY ? "sides" : "identities", &list);
    if (kind == VERIFY)
        *is = recipe_is(g->recipe, json_object_get(json_array_get(list, 1), "recipe"));
    for (size_t i = 1; kind == AB && i < json_array_size(list) && !*is; i++)
        if (arm_is(g->recipe, json_array_get(list, i))) {
            *is = true;
            g->candidate = (int)i;
            json_decref(g->arms);
            g->arms = json_incref(list);
        }
    json_decref(list);
    return rc;
}

int tier_run_is_of(struct journal *j, const struct recipe *r, int64_t run, bool *is, struct hone_error *e)
{
    struct judging g = {.recipe = r, .j = j, .e = e};
    json_t *one = NULL;
    *is = false;
    int rc = journal_get(j, run, &one, e);
    for (int k = 0; k < N_KINDS && !rc && !*is; k++)
        if (!strcmp(text_of(one, "kind"), kinds[k]))
            rc = is_of_recipe(&g, k, one, is);
    json_decref(one);
    json_decref(g.arms);
    return rc;
}

static int choose(struct judging *g, int kind)
{
    struct journal_filter f = {.kind = kinds[kind], .model = g->tier->model};
    json_t *runs = NULL, *run;
    size_t i;
    int rc = journal_list(g->j, &f, &runs, g->e);
    json_array_foreach(runs, i, run)
    {
        bool is = false;
        if (rc || g->runs[kind])
            break;
        if (!json_object_get(run, "end") || !strcmp(text_of(run, "status"), "interrupted"))
            continue;
        rc = is_of_recipe(g, kind, run, &is);
        if (is)
            g->runs[kind] = json_incref(run);
    }
    json_decref(runs);
    if (g->runs[kind])
        g->out->runs[kind] = id_of(g->runs[kind]);
    return rc;
}

/* ---- rules */

static int check_bench(struct judging *g, const struct tier_bench *b)
{
    const json_t *run = g->runs[BENCH];
    struct journal_series_list l = {0};
    const struct journal_series *found = NULL;
    char rule[160];
    tier_bench_text(b, rule, sizeof rule);
    if (!run)
        return tier_say(g, TIER_NONE, NULL, rule, "no bench run of this recipe");
    int rc = journal_series(g->j, id_of(run), &l, g->e);
    for (size_t i = 0; i < l.n && !found; i++)
        if (fnmatch(b->series, l.list[i].name, 0) == 0)
            found = &l.list[i];
    if (!rc && !found)
        rc = tier_say(g, TIER_NONE, run, rule, "the run has no such series");
    if (!rc && found) {
        stats_sort(found->values, found->n);
        double x = stats_quantile(found->values, found->n, b->quantile);
        bool meets = b->op == TIER_GE   ? x >= b->bound
                     : b->op == TIER_GT ? x > b->bound
                     : b->op == TIER_LE ? x <= b->bound
                                        : x < b->bound;
        rc = tier_say(g, meets ? TIER_PASS : TIER_FAIL, run, rule, "%.6g of %zu samples", x, found->n);
    }
    journal_series_free(&l);
    return rc;
}

static int check_fallbacks(struct judging *g)
{
    const json_t *run = g->runs[BENCH],
                 *list = json_object_get(json_object_get(json_object_get(run, "end"), "row"), "fallbacks");
    if (!json_is_array(list))
        return tier_say(g, TIER_NONE, run, "fallbacks 0", run ? "the run does not say" : "no bench run of this recipe");
    size_t n = json_array_size(list);
    return tier_say(g, n ? TIER_FAIL : TIER_PASS, run, "fallbacks 0", "%zu ops on their reference", n);
}

/* The run's own word on what it measured: it held the output to the reference's. */
static int check_bench_output(struct judging *g)
{
    static const char rule[] = "bench output";
    const json_t *run = g->runs[BENCH], *row = json_object_get(json_object_get(run, "end"), "row");
    const char *is = text_of(row, "verdict"), *reason = text_of(json_object_get(row, "correctness"), "reason");
    if (!run)
        return 0;
    if (!strcmp(is, "different"))
        return tier_say(g, TIER_FAIL, run, rule, "wrong, however fast: beside the reference, the output is different%s%.250s",
                        *reason ? ": " : "", reason);
    if (json_is_false(json_object_get(row, "deterministic")))
        return tier_say(g, TIER_FAIL, run, rule, "two runs of it gave two outputs");
    if (*text_of(row, "error"))
        return tier_say(g, TIER_FAIL, run, rule, "it failed: %.250s", text_of(row, "error"));
    if (!*is || !strcmp(is, "unverified"))
        return g->claim->promote ? tier_say(g, TIER_NONE, run, rule, "a speed without a verdict: it was not verified") : 0;
    return tier_say(g, TIER_PASS, run, rule, "%.60s", is);
}

/* ---- more rules */

static double weights_of(const json_t *verdict, const char *side)
{
    return json_number_value(json_object_get(json_object_get(json_object_get(verdict, side), "weights_per_token"), "bytes"));
}

static int check_verify(struct judging *g, bool must, enum verify_class least)
{
    const json_t *run = g->runs[VERIFY], *verdict = json_object_get(run, "verdict");
    enum verify_class is;
    char rule[160];
    snprintf(rule, sizeof rule, "verify %s", verify_class_name(least));
    if (!must)
        return 0;
    if (!run)
        return tier_say(g, TIER_NONE, NULL, rule,
                        "no verify run with this recipe as its candidate: the output is not verified");
    if (verify_class_find(text_of(verdict, "verdict"), &is))
        return tier_say(g, TIER_NONE, run, rule, "the run came to no verdict");
    const json_t *bounds = json_object_get(verdict, "bounds");
    double kl = json_number_value(json_object_get(bounds, "kl")), loss = json_number_value(json_object_get(bounds, "loss"));
    if (is == VERIFY_QUALITY_EQUAL && !(kl <= VERIFY_KL_BOUND * ROUNDED && loss <= VERIFY_LOSS_BOUND * ROUNDED))
        return tier_say(g, TIER_FAIL, run, rule,
                        "its bounds were widened: %.3g nats and %.3g of loss, where %.3g and %.3g are equal", kl, loss,
                        VERIFY_KL_BOUND, VERIFY_LOSS_BOUND);
    if (is > least) {
        const char *reason = json_string_value(json_array_get(json_object_get(verdict, "reasons"), 0));
        return tier_say(g, TIER_FAIL, run, rule, "wrong, however fast: the output is %s%s%.250s", verify_class_name(is),
                        reason ? ": " : "", reason ? reason : "");
    }
    return tier_say(g, TIER_PASS, run, rule, "%s", verify_class_name(is));
}

/* Fewer bytes of weights are another model; so a gain by them is none of the recipe's. */
static int check_weights(struct judging *g)
{
    const json_t *verdict = json_object_get(g->runs[VERIFY], "verdict");
    double a = weights_of(verdict, "a"), b = weights_of(verdict, "b");
    if (!g->runs[VERIFY] || g->tier->weights_may_change)
        return 0;
    if (!(a > 0) || !(b > 0))
        return tier_say(g, TIER_NONE, g->runs[VERIFY], "weights the same", "the run does not say how many bytes are read");
    bool same = a <= b && a >= b;
    return tier_say(g, same ? TIER_PASS : TIER_FAIL, g->runs[VERIFY], "weights the same",
                    "%.0f bytes a token in the reference, %.0f here%s", a, b,
                    same ? "" : ": the weights themselves were changed");
}

/* Whoever compares says how sure a verdict must be and what does not matter; a tier takes no word for more than it says. */
static int check_words(struct judging *g, const json_t *run, const char *rule, bool *told)
{
    json_t *notes = NULL, *note;
    size_t i;
    int rc = journal_records(g->j, id_of(run), "note", &notes, g->e);
    json_array_foreach(notes, i, note)
    {
        const json_t *rules = json_object_get(json_object_get(note, "body"), "rules");
        double margin = json_number_value(json_object_get(rules, "margin")),
               level = json_number_value(json_object_get(rules, "level"));
        if (rc || *told || !rules || (margin <= MOST_MARGIN * ROUNDED && level * ROUNDED >= LEAST_LEVEL))
            continue;
        *told = true;
        rc = tier_say(g, TIER_FAIL, run, rule,
                      "decided at %.4g %% with a margin of %.3g %%; at least %.3g %% and at most %.3g %% are asked",
                      100 * level, 100 * margin, 100 * LEAST_LEVEL, 100 * MOST_MARGIN);
    }
    json_decref(notes);
    return rc;
}

static int check_ab(struct judging *g, bool must, bool win)
{
    const json_t *run = g->runs[AB];
    json_t *verdict = NULL;
    bool agrees = true, told = false;
    const char *rule = win ? "ab win" : "ab no-loss";
    if (!must)
        return 0;
    if (!run)
        return tier_say(g, TIER_NONE, NULL, rule, "no comparison with this recipe as a candidate: there is no control");
    int rc = check_words(g, run, rule, &told);
    if (rc || told)
        return rc;
    rc = journal_rederive(g->j, run, &verdict, &agrees, g->e);
    if (!rc) {
        const json_t *standing = json_array_get(json_object_get(verdict, "standings"), (size_t)(g->candidate - 1));
        const char *outcome = text_of(standing, "outcome");
        bool meets = !strcmp(outcome, "win") || (!win && !strcmp(outcome, "no difference"));
        double gain =
            json_number_value(json_object_get(json_object_get(json_object_get(standing, "result"), "gain"), "centre"));
        rc = !agrees     ? tier_say(g, TIER_FAIL, run, rule, "the verdict that was recorded is not what its samples say")
             : !*outcome ? tier_say(g, TIER_NONE, run, rule, "the comparison came to no end")
                         : tier_say(g, meets ? TIER_PASS : TIER_FAIL, run, rule, "%s (%+.2f %%)", outcome, 100 * gain);
    }
    json_decref(verdict);
    return rc;
}

/* The recipe that is the best of the tier so far. */
static int find_best(struct judging *g)
{
    int rc = recipe_best(g->j, g->tier->name, g->tier->model, &g->best, g->e);
    return !rc && g->best ? recipe_parse(&g->best_recipe, text_of(g->best, "text"), "best", g->e) : rc;
}

/* Whoever is to replace the best must have been compared with it; the first, with what the tier says. The base of a comparison
 * is nobody's choice: over one that is slow enough anything wins. */
static int check_against_best(struct judging *g)
{
    const json_t *run = g->runs[AB], *arm = json_array_get(g->arms, 0);
    const char *words = g->tier->base ? g->tier->base : "";
    struct recipe base = {0};
    if (!g->claim->promote || !run || (g->best && !strcmp(g->best_recipe.hash, g->recipe->hash)))
        return 0;
    if (g->best) {
        bool against = arm_is(&g->best_recipe, arm);
        return tier_say(g, against ? TIER_PASS : TIER_FAIL, run, "against the best",
                        "the comparison's base is %sthe recipe that run %lld promoted", against ? "" : "not ",
                        (long long)json_integer_value(json_object_get(g->best, "run")));
    }
    int rc = recipe_parse(&base, words, "base", g->e);
    bool against = !rc && arm_is(&base, arm);
    recipe_free(&base);
    return rc        ? rc
           : against ? tier_say(g, TIER_PASS, run, "against the base", "the comparison's base is %s",
                                *words ? "the tier's" : "hone by itself")
                     : tier_say(g, TIER_FAIL, run, "against the base",
                                "nothing was promoted yet, and the comparison's base is not %s%.200s: give ab %s",
                                *words ? "the tier's, " : "what hone does by itself", words,
                                *words ? "those words as --a" : "no --a, or state a `base` in the tier");
}

/* ---- the build */

static const char *binary_of(const json_t *run)
{
    return text_of(json_object_get(run, "build"), "binary");
}

/* The comparison's two arms are one program file, and all other runs are of that one too. */
static int check_builds(struct judging *g)
{
    const json_t *first = NULL;
    const char *binary = "";
    if (g->runs[AB]) {
        const char *a = text_of(json_array_get(g->arms, 0), "build.binary");
        binary = text_of(json_array_get(g->arms, (size_t)g->candidate), "build.binary");
        if (!*a || strcmp(a, binary) != 0)
            return tier_say(g, TIER_FAIL, g->runs[AB], "same-build control",
                            "the comparison's base is another program (%.12s, not %.12s): no control", a, binary);
        first = g->runs[AB];
    } else if (g->claim->promote) {
        return tier_say(g, TIER_NONE, NULL, "same-build control", "no comparison with this recipe as a candidate");
    }
    for (int k = 0; k < N_KINDS; k++) {
        if (!g->runs[k])
            continue;
        if (!first) {
            first = g->runs[k];
            binary = binary_of(first);
        }
        if (strcmp(binary_of(g->runs[k]), binary) != 0)
            return tier_say(g, TIER_FAIL, g->runs[k], "one build", "its program is another (%.12s, not %.12s of run %lld)",
                            binary_of(g->runs[k]), binary, (long long)id_of(first));
    }
    json_t *sides = NULL;
    int rc = g->runs[VERIFY] ? tier_noted(g, g->runs[VERIFY], "sides", &sides) : 0;
    bool own = !sides || json_is_true(json_object_get(json_array_get(sides, 1), "this_build"));
    json_decref(sides);
    snprintf(g->out->binary, sizeof g->out->binary, "%s", binary);
    if (!rc && !own)
        return tier_say(g, TIER_FAIL, g->runs[VERIFY], "one build",
                        "what was verified is another program than the one that was measured");
    return rc      ? rc
           : first ? tier_say(g, TIER_PASS, first, g->runs[AB] ? "same-build control" : "one build", "program %.12s", binary)
                   : 0;
}

/* All runs are of one model file, and of one machine as it was set up: what wins without wide vectors need not win with them.
 */
static int check_place(struct judging *g)
{
    const json_t *first = NULL;
    const char *machine = "";
    for (int k = 0; k < N_KINDS; k++) {
        const json_t *run = g->runs[k];
        const char *hash = text_of(json_object_get(run, "model"), "sha256"),
                   *on = text_of(json_object_get(run, "machine"), "hash");
        if (!run)
            continue;
        if (!first) {
            first = run;
            machine = on;
            snprintf(g->out->model, sizeof g->out->model, "%s", hash);
        }
        if (strcmp(hash, g->out->model) != 0)
            return tier_say(g, TIER_FAIL, run, "one model", "its model is another than that of run %lld",
                            (long long)id_of(first));
        if (strcmp(on, machine) != 0)
            return tier_say(g, TIER_FAIL, run, "one machine",
                            "its machine is another, or set up otherwise, than that of run %lld", (long long)id_of(first));
    }
    return 0;
}

/* "2026-11-30T12:00:00.123Z" in seconds. */
static int64_t seconds_of(const char *iso)
{
    struct tm t = {0};
    return strptime(iso, "%Y-%m-%dT%H:%M:%S", &t) ? (int64_t)timegm(&t) : 0;
}

/* A build is what it says: of the commit that is claimed, and not older than it. */
static int check_age(struct judging *g, int kind)
{
    const json_t *run = g->runs[kind];
    char commit[80];
    int64_t made;
    if (!run)
        return 0;
    snprintf(commit, sizeof commit, "%.64s", text_of(json_object_get(run, "build"), "commit"));
    char *dirty = strstr(commit, "-dirty");
    if (dirty)
        *dirty = 0;
    if (g->claim->commit && (strlen(commit) < 7 || strncmp(commit, g->claim->commit, strlen(commit)) != 0))
        return tier_say(g, TIER_FAIL, run, "build", "stale: its program was built from %s, not from %.12s",
                        *commit ? commit : "an unknown commit", g->claim->commit);
    if (dirty && g->claim->commit)
        return tier_say(g, TIER_FAIL, run, "build", "its program has changes that are not in %.12s", g->claim->commit);
    if (!g->claim->commit_time || g->claim->commit_time(g->claim->user, g->claim->commit ? g->claim->commit : commit, &made))
        return 0;
    if (seconds_of(text_of(run, "at")) < made)
        return tier_say(g, TIER_FAIL, run, "build", "stale: it ran before the commit %.12s that it claims was made", commit);
    int64_t written = json_integer_value(json_object_get(json_object_get(run, "state"), "binary_written"));
    if (written > 0 && written / 1000 < made) {
        char at[32];
        journal_time(written, at);
        return tier_say(g, TIER_FAIL, run, "build",
                        "stale: its program file is of %.19s, older than the commit %.12s that it claims", at, commit);
    }
    return 0;
}

/* ---- all of it */

static int judge(struct judging *g)
{
    const struct tier *t = g->tier;
    bool promote = g->claim->promote;
    int rc = find_best(g);
    for (int k = 0; k < N_KINDS && !rc; k++)
        rc = choose(g, k);
    for (int i = 0; i < t->n_benches && !rc; i++)
        rc = check_bench(g, &t->benches[i]);
    if (!rc && t->no_fallbacks)
        rc = check_fallbacks(g);
    rc = rc ? rc : check_bench_output(g);
    rc = rc ? rc : check_verify(g, t->has_verify || promote, t->has_verify ? t->least : VERIFY_QUALITY_EQUAL);
    rc = rc ? rc : tier_check_sides(g);
    rc = rc ? rc : check_weights(g);
    rc = rc ? rc : check_ab(g, t->has_ab || promote, t->has_ab && t->ab_win);
    rc = rc ? rc : tier_check_arms(g);
    rc = rc ? rc : check_against_best(g);
    rc = rc ? rc : check_builds(g);
    rc = rc ? rc : check_place(g);
    for (int k = 0; k < N_KINDS && !rc; k++)
        rc = check_age(g, k);
    return rc;
}

int tier_check(struct tier_result *out, const struct tier *t, const struct recipe *r, struct journal *j,
               const struct tier_claim *claim, struct hone_error *e)
{
    struct hone_error own = {0};
    struct journal_checked checked;
    struct judging g = {.out = out, .tier = t, .recipe = r, .j = j, .claim = claim, .e = &own};
    *out = (struct tier_result){.passes = true};
    int rc = journal_verify(j, &checked, &own);
    rc = rc ? rc : judge(&g);
    for (int k = 0; k < N_KINDS; k++)
        json_decref(g.runs[k]);
    json_decref(g.arms);
    json_decref(g.best);
    recipe_free(&g.best_recipe);
    if (rc) {
        out->passes = false;
        if (e)
            *e = own;
    }
    return rc;
}
