/* tier_promote.c: a promotion is a record, with the text of the recipe in it: the file that was promoted may be edited
 * tomorrow. It is a run of its own, of the model, machine and build of the runs that it rests on, so that lists and filters
 * find it like any other. What was looked at and what came of it stands there as JSON, as `tier check -o json` prints it. */
#include "lab/tier.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void tier_result_free(struct tier_result *r)
{
    free(r->rules);
    *r = (struct tier_result){0};
}

json_t *tier_result_json(const struct tier_result *r)
{
    static const char *const kinds[] = {"bench", "verify", "ab"};
    json_t *rules = json_array(), *runs = json_object();
    for (int i = 0; i < r->n; i++)
        json_array_append_new(rules, json_pack("{s:s, s:s, s:o, s:s}", "rule", r->rules[i].rule, "answer",
                                               tier_answer_name(r->rules[i].answer), "run",
                                               r->rules[i].run ? json_integer((json_int_t)r->rules[i].run) : json_null(), "why",
                                               r->rules[i].why));
    for (int k = 0; k < 3; k++)
        if (r->runs[k])
            json_object_set_new(runs, kinds[k], json_integer((json_int_t)r->runs[k]));
    return json_pack("{s:b, s:o, s:o, s:s, s:s}", "passes", r->passes, "rules", rules, "runs", runs, "model", r->model,
                     "binary", r->binary);
}

/* ---- the record */

/* What took part in a run, as it was stored: without the hash that reading adds. */
static json_t *stored(const json_t *run, const char *key)
{
    json_t *o = json_copy(json_object_get(run, key));
    json_object_del(o, "hash");
    return o;
}

static json_t *decision_json(const struct tier *t, const struct recipe *r, const struct tier_result *result, const char *who,
                             int64_t task)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:O, s:s, s:o}", "decision", "promoted", "tier", t->name, "recipe", r->hash,
                          "text", r->text, "content", r->content, "by", who, "result", tier_result_json(result));
    if (o && task)
        json_object_set_new(o, "task", json_integer((json_int_t)task));
    return o;
}

int tier_promote(struct journal *j, const struct tier *t, const struct recipe *r, const struct tier_result *result,
                 const char *who, int64_t task, int64_t *run, struct hone_error *e)
{
    json_t *source = NULL;
    int64_t from = result->runs[2] ? result->runs[2] : result->runs[0];
    if (!result->passes || !from)
        return err_set(e, HONE_ECHECK, "%s did not pass tier %s", r->path, t->name);
    int rc = journal_get(j, from, &source, e);
    if (rc)
        return rc;
    json_t *body = decision_json(t, r, result, who, task), *outcome = json_pack("{s:s}", "status", "done");
    struct journal_run to = {.kind = "tier",
                             .build = stored(source, "build"),
                             .machine = stored(source, "machine"),
                             .model = stored(source, "model"),
                             .recipe = json_pack("{s:O}", "gates", json_object_get(r->content, "gates")),
                             .config = json_pack("{s:s}", "tier", t->name),
                             .expected_gain = NAN};
    rc = body && outcome && to.recipe && to.config ? journal_run_begin(j, &to, run, e)
                                                   : err_set(e, HONE_ERESOURCE, "no memory for a promotion");
    rc = rc ? rc : journal_record(j, *run, "decision", body, NULL, e);
    rc = rc ? rc : journal_run_end(j, *run, outcome, e);
    json_decref(to.build);
    json_decref(to.machine);
    json_decref(to.model);
    json_decref(to.recipe);
    json_decref(to.config);
    json_decref(body);
    json_decref(outcome);
    json_decref(source);
    return rc;
}
