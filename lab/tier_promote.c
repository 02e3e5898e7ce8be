/* tier_promote.c: a promotion is a record, with the text of the recipe in it: the file that was promoted may be edited
 * tomorrow. It is a run of its own, of the model, machine and build of the runs that it rests on, so that lists and filters
 * find it like any other. */
#include "lab/tier.h"

#include <math.h>
#include <string.h>

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
