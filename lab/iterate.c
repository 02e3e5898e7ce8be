/* iterate.c: the order of things, and how a task is handed in.
 *
 * A decision is no failure: an idea that was tried and gave nothing is done, and its record keeps the next person from trying
 * it again. Failed is a task that got no answer. Whatever becomes of it, what was begun is taken back: the scratch tree goes, a
 * patch that lost has no name, and the best recipe is the one in the journal, which only a promotion changes.
 *
 * A script around the commands was what this began as. It cannot keep a lease while a command runs, nor end what a program of
 * somebody else has started, nor tell a measurement that failed from one that found nothing. */
#include "lab/iterate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *iteration_json(const struct iteration *it)
{
    json_t *o = json_pack("{s:I, s:O?, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:O?}", "task", (json_int_t)it->id, "title",
                          json_object_get(it->task, "title"), "decision", decision_word(it->decision), "why", it->why, "output",
                          it->output, "outcome", it->outcome, "gain", number(it->gain), "lo", number(it->lo), "hi",
                          number(it->hi), "folder", it->folder, "runs", it->runs);
    if (o && it->recipe.hash[0] && it->decision >= DECISION_WRONG) {
        json_object_set_new(o, "recipe", json_string(it->candidate));
        json_object_set_new(o, "recipe_hash", json_string(it->recipe.hash));
    }
    if (o && it->commit[0])
        json_object_set_new(o, "commit", json_string(it->commit));
    return o;
}

void iteration_free(struct iteration *it)
{
    patch_tree_close(&it->tree);
    recipe_free(&it->recipe);
    change_free(&it->change);
    machine_lock_drop(&it->machine);
    free(it->base_text);
    free(it->start_text);
    free(it->plugins);
    json_decref(it->runs);
    json_decref(it->task);
    arena_free(&it->memory);
    *it = (struct iteration){0};
}

/* ---- promote or take back */

/* A name for changed sources that won, so that git keeps them. */
static int keep_commit(struct iteration *it, struct hone_error *e)
{
    char name[40];
    snprintf(name, sizeof name, "task-%lld", (long long)it->id);
    return it->commit[0] && it->decision == DECISION_PASSED ? patch_keep(&it->source, name, it->commit, e) : 0;
}

static int promote(struct iteration *it, struct hone_error *e)
{
    struct call l = {0}, model = {0};
    char id[24], said[400], gain[sizeof it->why];
    int exit_code;
    snprintf(id, sizeof id, "%lld", (long long)it->id);
    call_add(it, &l, "hone");
    call_add(it, &l, "tier");
    call_add(it, &l, "promote");
    call_add(it, &l, it->tier->name);
    call_add(it, &l, it->candidate);
    call_pair(it, &l, "--task", id);
    call_pair(it, &l, "--as", "supervisor");
    call_pair(it, &l, "--worker", it->o->reviewer);
    call_pair(it, &l, "--tiers", it->o->tiers_path);
    call_pair(it, &l, "--queue", it->o->queue_path);
    call_pair(it, &l, "--journal", it->o->journal_path);
    call_pair(it, &l, "--denylist", it->o->denylist);
    call_pair(it, &l, "--commit", it->commit);
    call_model(it, &model);
    for (int i = 0; i + 1 < model.n; i += 2)
        if (!strcmp(model.list[i], "--plugin"))
            call_pair(it, &l, "--plugin", model.list[i + 1]);
    it->stop[0] = 0;
    memcpy(gain, it->why, sizeof gain);
    int rc = iterate_hone(it, ITERATE_promote, &l, NULL, &exit_code, said, e);
    if (rc)
        return rc;
    return exit_code ? iterate_decide(it, DECISION_REFUSED, "%.200s, but %s", gain, said)
                     : iterate_decide(it, DECISION_PROMOTED, "%s", gain);
}

/* The supervisor's word, where this run has it to give. */
static int review(struct iteration *it, struct hone_error *e)
{
    bool passed = it->decision == DECISION_PASSED;
    struct hone_error why = {0};
    char gain[sizeof it->why];
    if (!it->o->supervisor || !it->tier || it->decision == DECISION_NOTED)
        return 0;
    int rc = queue_review(it->queue, it->id, passed, it->o->reviewer, it->why, &why);
    if (rc) {
        memcpy(gain, it->why, sizeof gain);
        iterate_decide(it, it->decision, "%.250s; no word on it: %.250s", gain, why.message);
        return 0;
    }
    if (!passed || (it->commit[0] && it->same_recipe))
        return 0;
    rc = promote(it, e);
    return rc == ITERATE_DECIDED ? 0 : rc;
}

/* ---- handing in */

/* What became of what was expected, beside the comparison that says so, and beside the task's own run. */
static int record_outcome(struct iteration *it, struct hone_error *e)
{
    static const char *const words[N_DECISIONS] = {
        [DECISION_FAILED] = "inconclusive", [DECISION_NOTED] = "noted",   [DECISION_WRONG] = "lost",
        [DECISION_SLOWER] = "lost",         [DECISION_NO_GAIN] = "lost",  [DECISION_REFUSED] = "lost",
        [DECISION_PASSED] = "kept",         [DECISION_PROMOTED] = "kept", [DECISION_UNCLEAR] = "inconclusive"};
    const char *word = words[it->decision];
    char text[900];
    json_t *run = NULL, *decision = iteration_json(it);
    snprintf(text, sizeof text, "task %lld: %s: %s", (long long)it->id, decision_word(it->decision), it->why);
    json_t *outcome = json_pack("{s:s, s:s}", "outcome", word, "text", text);
    int rc = decision && outcome ? 0 : err_set(e, HONE_ERESOURCE, "no memory for a decision");
    rc = rc ? rc : journal_record(it->journal, it->run, "decision", decision, NULL, e);
    rc = rc ? rc : journal_record(it->journal, it->run, "outcome", outcome, NULL, e);
    if (!rc && it->outcome[0])
        rc = iterate_newest(it, "ab", &run, e);
    if (!rc && run)
        rc = journal_record(it->journal, json_integer_value(json_object_get(run, "id")), "outcome", outcome, NULL, e);
    json_decref(run);
    json_decref(decision);
    json_decref(outcome);
    return rc;
}

static int hand_in(struct iteration *it, struct hone_error *e)
{
    bool again;
    if (it->lost)
        return 0;
    if (it->decision == DECISION_FAILED)
        return queue_fail(it->queue, it->id, it->token, it->why, false, &again, e);
    json_t *result = iteration_json(it);
    int rc = result ? keep_commit(it, e) : err_set(e, HONE_ERESOURCE, "no memory for a result");
    rc = rc ? rc : queue_done(it->queue, it->id, it->token, result, &again, e);
    json_decref(result);
    return rc ? rc : review(it, e);
}

/* Ready for the next, unless somebody has it already. */
static void give_up(struct iteration *it, const char *why)
{
    struct hone_error ignored = {0};
    bool again;
    if (it->token && !it->lost)
        queue_fail(it->queue, it->id, it->token, why, true, &again, &ignored);
}

int iterate_task(struct iteration *it, struct hone_error *e)
{
    struct hone_error own = {0};
    it->gain = it->lo = it->hi = NAN;
    int rc = iterate_prepare(it, &own);
    rc = rc ? rc : iterate_apply(it, &own);
    rc = rc ? rc : iterate_measure(it, &own);
    rc = rc ? rc : iterate_judge(it, &own);
    patch_tree_close(&it->tree);
    /* What a program has done to the files of its task is no reason for the next one to meet it again, and so on for ever. */
    if (rc && rc != ITERATE_DECIDED && rc != HONE_ECANCELED && it->worked)
        rc = iterate_decide(it, DECISION_FAILED, "after its program: %.500s", own.message);
    if (rc == ITERATE_DECIDED) {
        own.code = 0;
        rc = hand_in(it, &own);
        if (rc == HONE_ECHECK) { /* somebody else has the task */
            iterate_decide(it, DECISION_FAILED, "it cannot be handed in: %.400s", own.message);
            rc = own.code = 0;
        }
        rc = rc ? rc : record_outcome(it, &own);
    } else if (rc) {
        give_up(it, rc == HONE_ECANCELED ? "interrupted" : own.message);
    }
    if (rc && e)
        *e = own;
    return rc;
}
