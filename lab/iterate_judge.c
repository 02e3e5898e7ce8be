/* iterate_judge.c: the steps that measure, in the order of their price, and what follows from what they recorded.
 *
 * What is wrong is not measured further: a speed of wrong output is no figure (unless --measure-wrong wants to see it). The
 * verdict of `ab` is derived from its samples, as everywhere. `verify` compares with the best of the tier or, before there is
 * one, with what hone does by itself; `bench` with the reference: a long line of small steps, each equal to the one before,
 * cannot drift away unseen. The recipe that a task starts from is anybody's, so no tier takes it for a reference.
 *
 * Changed sources without a change of the recipe are compared as two programs. Such a change has no control of the same build,
 * so no tier can promote it; it is kept as a commit, and to merge it is a person's work. */
#include "lab/iterate.h"

#include "lab/journal_judge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* ---- what was recorded */

static bool is_of_task(struct iteration *it, int64_t run, int *rc, struct hone_error *e)
{
    json_t *notes = NULL, *note;
    size_t i;
    bool found = false;
    *rc = journal_records(it->journal, run, "note", &notes, e);
    json_array_foreach(notes, i, note) found =
        found || json_integer_value(json_object_get(json_object_get(note, "body"), "task")) == it->id;
    json_decref(notes);
    return found;
}

int iterate_newest(struct iteration *it, const char *kind, json_t **run, struct hone_error *e)
{
    struct journal_filter f = {.kind = kind, .since = it->began, .limit = 1000};
    json_t *runs = NULL, *one;
    size_t i;
    *run = NULL;
    int rc = journal_list(it->journal, &f, &runs, e);
    json_array_foreach(runs, i, one)
    {
        if (rc || *run)
            break;
        int64_t id = json_integer_value(json_object_get(one, "id"));
        if (!strcmp(text_of(one, "kind"), "iterate") || !json_object_get(one, "end") || !is_of_task(it, id, &rc, e))
            continue;
        *run = json_incref(one);
    }
    json_decref(runs);
    return rc;
}

/* The run of a step that has just ended; one that left none has failed. */
static int run_of(struct iteration *it, enum iterate_step s, json_t **run, struct hone_error *e)
{
    const char *name = iterate_step_name(s);
    int rc = iterate_newest(it, name, run, e);
    if (!rc && !*run)
        return iterate_decide(it, DECISION_FAILED, "%s: it left no record in the journal", name);
    if (!rc)
        json_array_append(it->runs, json_object_get(*run, "id"));
    return rc;
}

/* ---- lint and check */

static int run_lint(struct iteration *it, struct hone_error *e)
{
    struct call l = {0}, paths = {0};
    char said[400];
    int exit_code;
    call_add(it, &l, "hone");
    call_add(it, &l, "recipe");
    call_add(it, &l, "lint");
    call_add(it, &l, it->candidate);
    call_pair(it, &l, "--journal", it->o->journal_path);
    call_pair(it, &l, "--denylist", it->o->denylist);
    call_model(it, &paths); /* of which lint takes the plug-ins alone */
    for (int i = 0; i + 1 < paths.n; i += 2)
        if (!strcmp(paths.list[i], "--plugin"))
            call_pair(it, &l, "--plugin", paths.list[i + 1]);
    return iterate_hone(it, ITERATE_lint, &l, NULL, &exit_code, said, e);
}

/* The candidate's gates for kernels that the base does not have, each once. */
static int check_kernels(struct iteration *it, struct hone_error *e)
{
    struct recipe base;
    int rc = recipe_parse(&base, it->base_text, "base", e);
    for (int i = 0; i < it->recipe.gates.n && !rc; i++) {
        const struct gate *g = &it->recipe.gates.list[i];
        bool known = g->kind != GATE_KERNEL || g->op < 0 || !strcmp(g->variant, "ref");
        for (int k = 0; k < base.gates.n && !known; k++)
            known = base.gates.list[k].op == g->op && !strcmp(base.gates.list[k].variant, g->variant);
        for (int k = 0; k < i && !known; k++)
            known = it->recipe.gates.list[k].op == g->op && !strcmp(it->recipe.gates.list[k].variant, g->variant);
        if (known)
            continue;
        struct call l = {0}, model = {0};
        char said[400];
        int exit_code;
        call_add(it, &l, "hone");
        call_add(it, &l, "check");
        call_pair(it, &l, "--op", op_get((enum op)g->op)->name);
        call_pair(it, &l, "--kernel", g->variant);
        call_model(it, &model);
        for (int k = 0; k + 1 < model.n; k += 2)
            if (strcmp(model.list[k], "-m") != 0)
                call_pair(it, &l, model.list[k], model.list[k + 1]);
        rc = iterate_hone(it, ITERATE_check, &l, NULL, &exit_code, said, e);
        if (!rc && exit_code) {
            it->wrong = true;
            snprintf(it->why, sizeof it->why, "check: %.100s has faults: %.300s", g->text, said);
        }
    }
    recipe_free(&base);
    return rc;
}

/* On the tensors of the running graph. */
static int check_shadow(struct iteration *it, struct hone_error *e)
{
    struct call l = {0};
    char said[400];
    int exit_code;
    call_add(it, &l, "hone");
    call_add(it, &l, "check");
    call_add(it, &l, "--shadow");
    call_model(it, &l);
    call_pair(it, &l, "--recipe", it->candidate);
    call_words(it, &l, it->o->words[ITERATE_check]);
    int rc = iterate_hone(it, ITERATE_check, &l, NULL, &exit_code, said, e);
    if (rc || !exit_code)
        return rc;
    if (!it->wrong)
        snprintf(it->why, sizeof it->why, "check: in the running graph, %.400s", said);
    it->wrong = true;
    return 0;
}

static int run_check(struct iteration *it, struct hone_error *e)
{
    json_t *run = NULL;
    int rc = check_kernels(it, e);
    rc = rc ? rc : check_shadow(it, e);
    rc = rc ? rc : run_of(it, ITERATE_check, &run, e);
    json_decref(run);
    return rc;
}

/* ---- verify, bench */

/* The arm of the base: its recipe, and its program where the candidate's is another and the recipes are the same. */
static const char *base_arm(struct iteration *it)
{
    bool two = it->commit[0] && it->same_recipe;
    size_t n = strlen(it->base) + strlen(it->o->binary) + 40;
    char *text = arena_alloc(&it->memory, n);
    if (text)
        snprintf(text, n, two ? "\"recipe=%s\" \"bin=%s\"" : "%s%.0s", it->base, it->o->binary);
    return text ? text : it->base;
}

/* What the output is held to. Never the candidate itself. */
static const char *reference_arm(struct iteration *it)
{
    bool two = it->commit[0] && it->same_recipe;
    if (!it->tier || it->from_best || two)
        return base_arm(it);
    return json_array_size(json_object_get(it->recipe.content, "gates")) ? "base" : "kernel=ref";
}

static int run_verify(struct iteration *it, struct hone_error *e)
{
    enum verify_class least = it->tier && it->tier->has_verify ? it->tier->least : VERIFY_QUALITY_EQUAL;
    char class[32], said[400];
    struct call l = {0};
    json_t *run = NULL;
    int exit_code;
    snprintf(class, sizeof class, "%s", verify_class_name(least));
    for (char *p = class; *p; p++)
        *p = *p == ' ' ? '-' : *p;
    call_add(it, &l, "hone");
    call_add(it, &l, "verify");
    call_model(it, &l);
    call_pair(it, &l, "--a", reference_arm(it));
    call_pair(it, &l, "--b", it->candidate);
    call_pair(it, &l, "--require", class);
    call_words(it, &l, it->o->words[ITERATE_verify]);
    int rc = iterate_hone(it, ITERATE_verify, &l, NULL, &exit_code, said, e);
    rc = rc ? rc : run_of(it, ITERATE_verify, &run, e);
    if (rc)
        return rc;
    const json_t *verdict = json_object_get(run, "verdict");
    const char *reason = json_string_value(json_array_get(json_object_get(verdict, "reasons"), 0));
    snprintf(it->output, sizeof it->output, "%s", text_of(verdict, "verdict"));
    if (!it->output[0])
        rc = iterate_decide(it, DECISION_FAILED, "verify: it came to no verdict: %.300s", said);
    else if (exit_code && !it->wrong)
        snprintf(it->why, sizeof it->why, "verify: %s%s%.400s", it->output, reason ? ": " : "", reason ? reason : "");
    it->wrong = it->wrong || exit_code;
    json_decref(run);
    return rc;
}

static int run_bench(struct iteration *it, struct hone_error *e)
{
    struct call l = {0};
    json_t *run = NULL;
    char said[400];
    int exit_code;
    call_add(it, &l, "hone");
    call_add(it, &l, "bench");
    call_model(it, &l);
    call_pair(it, &l, "--recipe", it->candidate);
    call_words(it, &l, it->o->words[ITERATE_bench] ? it->o->words[ITERATE_bench] : "-p 0 -n 64");
    int rc = iterate_hone(it, ITERATE_bench, &l, NULL, &exit_code, said, e);
    rc = rc ? rc : run_of(it, ITERATE_bench, &run, e);
    if (rc || !exit_code)
        goto done;
    const json_t *row = json_object_get(json_object_get(run, "end"), "row");
    const char *error = json_string_value(json_object_get(row, "error")),
               *reason = text_of(json_object_get(row, "correctness"), "reason");
    if (error)
        rc = iterate_decide(it, DECISION_FAILED, "bench: %.400s", error);
    else if (!it->wrong)
        snprintf(it->why, sizeof it->why, "bench: beside the reference, the output is %s%s%.300s", text_of(row, "verdict"),
                 *reason ? ": " : "", reason);
    it->wrong = true;
done:
    json_decref(run);
    return rc;
}

/* ---- ab */

static double number_of(const json_t *o, const char *key)
{
    const json_t *x = json_object_get(o, key);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

/* The interval is the one that decided: of a comparison that ended early, the sequence's. */
static void read_standing(struct iteration *it, const json_t *verdict)
{
    const json_t *standing = json_array_get(json_object_get(verdict, "standings"), 0),
                 *result = json_object_get(standing, "result"), *gain = json_object_get(result, "gain");
    const json_t *decided = json_is_true(json_object_get(result, "early")) ? json_object_get(result, "sequence") : gain;
    snprintf(it->outcome, sizeof it->outcome, "%s", text_of(standing, "outcome"));
    it->gain = number_of(gain, "centre");
    it->lo = number_of(decided, "lo");
    it->hi = number_of(decided, "hi");
}

static int run_ab(struct iteration *it, struct hone_error *e)
{
    struct call l = {0};
    json_t *run = NULL, *verdict = NULL;
    bool two = it->commit[0] && it->same_recipe, agrees;
    char said[400];
    int exit_code;
    call_add(it, &l, "hone");
    call_add(it, &l, "ab");
    call_model(it, &l);
    call_pair(it, &l, "--a", base_arm(it));
    call_pair(it, &l, "--b", it->candidate);
    if (!two)
        call_add(it, &l, "--in-process");
    call_words(it, &l, it->o->words[ITERATE_ab]);
    int rc = iterate_hone(it, ITERATE_ab, &l, NULL, &exit_code, said, e);
    rc = rc ? rc : run_of(it, ITERATE_ab, &run, e);
    rc = rc ? rc : journal_rederive(it->journal, run, &verdict, &agrees, e);
    if (!rc)
        read_standing(it, verdict);
    if (!rc && !it->wrong && (exit_code || !it->outcome[0]))
        rc = iterate_decide(it, DECISION_FAILED, "ab: its result is not to be trusted: %.400s", said);
    json_decref(verdict);
    json_decref(run);
    return rc;
}

int iterate_measure(struct iteration *it, struct hone_error *e)
{
    int rc = run_lint(it, e);
    static int (*const steps[])(struct iteration * it, struct hone_error * e) = {run_check, run_verify, run_bench, run_ab};
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !rc && (!it->wrong || it->o->measure_wrong); i++)
        rc = steps[i](it, e);
    return rc;
}

/* ---- the decision */

/* The first rule of the tier that is not met. */
static int run_tier(struct iteration *it, bool *passes, char why[400], struct hone_error *e)
{
    struct call l = {0};
    char path[4400], said[400];
    int exit_code;
    call_add(it, &l, "hone");
    call_add(it, &l, "tier");
    call_add(it, &l, "check");
    call_add(it, &l, it->tier->name);
    call_add(it, &l, it->candidate);
    call_add(it, &l, "--promotable");
    call_pair(it, &l, "--tiers", it->o->tiers_path);
    call_pair(it, &l, "--journal", it->o->journal_path);
    call_pair(it, &l, "--denylist", it->o->denylist);
    call_pair(it, &l, "--commit", it->commit);
    call_pair(it, &l, "-o", "json");
    struct call model = {0};
    call_model(it, &model);
    for (int i = 0; i + 1 < model.n; i += 2)
        if (!strcmp(model.list[i], "--plugin"))
            call_pair(it, &l, "--plugin", model.list[i + 1]);
    int rc = iterate_hone(it, ITERATE_tier, &l, "tier.json", &exit_code, said, e);
    *passes = !rc && !exit_code;
    snprintf(why, 400, "%s", said);
    if (rc || !exit_code)
        return rc;
    snprintf(path, sizeof path, "%s/tier.json", it->folder);
    json_t *result = json_load_file(path, 0, NULL), *rule;
    size_t i;
    json_array_foreach(json_object_get(result, "rules"), i, rule)
    {
        if (!strcmp(text_of(rule, "answer"), "pass"))
            continue;
        snprintf(why, 400, "%.100s: %.280s", text_of(rule, "rule"), text_of(rule, "why"));
        break;
    }
    json_decref(result);
    return 0;
}

/* A gain as `ab` measured it, with its interval, which may be open at an end. */
static const char *gain_text(const struct iteration *it, char text[120])
{
    text[0] = 0;
    if (!isfinite(it->gain))
        return text;
    int n = snprintf(text, 120, "%+.1f %%", 100 * it->gain);
    if (isfinite(it->lo) && isfinite(it->hi))
        snprintf(text + n, 120 - (size_t)n, " (%+.1f to %+.1f)", 100 * it->lo, 100 * it->hi);
    else if (isfinite(it->lo) || isfinite(it->hi))
        snprintf(text + n, 120 - (size_t)n, " (at %s %+.1f)", isfinite(it->lo) ? "least" : "most",
                 100 * (isfinite(it->lo) ? it->lo : it->hi));
    return text;
}

int iterate_judge(struct iteration *it, struct hone_error *e)
{
    char gain[120], why[400] = "", reason[sizeof it->why];
    bool passes = !strcmp(it->outcome, "win"), win = passes, two = it->commit[0] && it->same_recipe;
    gain_text(it, gain);
    if (it->wrong) {
        memcpy(reason, it->why, sizeof reason);
        return iterate_decide(it, DECISION_WRONG, "%.480s%s%s", reason, *gain ? "; speed: " : "", gain);
    }
    int rc = it->tier && !two ? run_tier(it, &passes, why, e) : 0;
    if (rc)
        return rc;
    if (passes)
        return iterate_decide(it, DECISION_PASSED, "%s, %s%s", gain, it->output,
                              two ? "; two programs: to be merged by hand" : "");
    if (!strcmp(it->outcome, "loss"))
        return iterate_decide(it, DECISION_SLOWER, "%s", gain);
    if (!strcmp(it->outcome, "unclear"))
        return iterate_decide(it, DECISION_UNCLEAR, "%s: more blocks would tell, of `hone ab` or by --ab '--blocks N'", gain);
    if (!win)
        return iterate_decide(it, DECISION_NO_GAIN, "%s: %s", it->outcome, gain);
    return iterate_decide(it, DECISION_REFUSED, "%s, but %s", gain, why);
}
