/* submit.c: what is published is what was recorded. Nobody types a figure in: the speed is computed from the samples in the
 * journal, the quality is the bench run's own verdict against the reference, and the payload carries both with the record's
 * hash, so that whoever has the journal can hold one to the other. The recipe is in it as text: a file's name in the command
 * says nothing to anybody else. The same checks (submit_check.c) run on what is made here and on what others made. Nothing is
 * sent. */
#include "lab/submit.h"

#include "lab/identity.h"

#include <stdio.h>
#include <string.h>

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* ---- making */

struct gathering {
    json_t *samples, *prompts; /* ns of the whole, and of its prompt */
    const char *series;
};

static int gather(void *user, const struct journal_sample *s)
{
    struct gathering *g = user;
    json_t *ns = json_object_get(s->more, "ns"), *prompt = json_object_get(s->more, "prompt_ns");
    if (strcmp(s->series, g->series) != 0 || !json_is_number(ns))
        return 0;
    return json_array_append(g->samples, ns) |
           json_array_append_new(g->prompts, json_is_number(prompt) ? json_incref(prompt) : json_integer(0));
}

/* Those that were named ("CUDA0/CUDA1"), else one. */
static int count_gpus(const json_t *row)
{
    const char *named = text_of(row, "devices");
    int n = *text_of(row, "gpu_info") != 0;
    for (const char *p = named; n && (p = strchr(p, '/')); p++)
        n++;
    return n;
}

static json_int_t whole(const json_t *o, const char *key)
{
    return (json_int_t)json_number_value(json_object_get(o, key));
}

static json_t *make_parts(const json_t *run, const json_t *row, const struct gathering *g, const char *notes)
{
    const json_t *config = json_object_get(run, "config"), *model = json_object_get(run, "model"),
                 *machine = json_object_get(run, "machine");
    const json_t *build = json_object_get(run, "build"), *right = json_object_get(row, "correctness");
    json_int_t prompt = whole(config, "n_prompt"), output = whole(config, "n_gen"), depth = whole(config, "n_depth");
    double total = submit_speed(g->samples, NULL, (double)(prompt + output)),
           decode = submit_speed(g->samples, g->prompts, (double)output);
    const char *gpu = text_of(row, "gpu_info");
    const json_t *recipe = json_object_get(run, "recipe"), *plugins = json_object_get(recipe, "plugins");
    json_t *p = json_pack(
        "{s:i, s:{s:s, s:s, s:O?, s:s, s:O?}, s:{s:s, s:s, s:s, s:i, s:O?}, s:{s:s, s:s, s:s, s:s}}", "schema_version",
        SUBMIT_SCHEMA, "model", "id", text_of(model, "name"), "revision", text_of(model, "sha256"), "parameters",
        json_object_get(model, "parameters"), "quantisation", submit_quantisation(json_object_get(model, "bytes")), "bytes",
        json_object_get(model, "bytes"), "hardware", "class", *gpu ? "gpu" : "cpu", "cpu", text_of(machine, "cpu"), "gpu_name",
        gpu, "gpu_count", count_gpus(row), "memory", json_object_get(machine, "memory_total"), "engine", "name", "hone",
        "version", text_of(build, "version"), "commit", text_of(build, "commit"), "binary", text_of(build, "binary"));
    json_t *rest = json_pack(
        "{s:I, s:I, s:I, s:I, s:O?, s:f, s:f, s:O, s:O, s:s, s:s, s:O, s:o, s:O?, s:{s:s, s:O?, s:s, s:s}, s:{s:O, s:O}}",
        "depth_tokens", depth, "prompt_tokens", prompt, "output_tokens", output, "context", depth + prompt + output, "batch",
        json_object_get(row, "n_batch"), "decode_tokens_per_second", decode, "total_tokens_per_second", total, "samples_ns",
        g->samples, "samples_prompt_ns", g->prompts, "notes", notes ? notes : "", "flags", text_of(run, "command"), "gates",
        json_object_get(recipe, "gates"), "plugins", plugins ? json_incref((json_t *)plugins) : json_array(), "threads",
        json_object_get(row, "n_threads"), "quality", "verdict", text_of(row, "verdict"), "kl_mean",
        json_object_get(right, "kl_mean"), "type_k", text_of(config, "type_k"), "type_v", text_of(config, "type_v"), "journal",
        "run", json_object_get(run, "id"), "record", json_object_get(run, "record"));
    if (!p || !rest || json_object_update(p, rest)) {
        json_decref(p);
        p = NULL;
    }
    json_decref(rest);
    return p;
}

static int refuse(struct hone_error *e, int64_t run, const char *why, const char *more)
{
    return err_set(e, HONE_ECHECK, "run %lld cannot be submitted: %s%s%.300s", (long long)run, why, *more ? ": " : "", more);
}

/* What keeps a run from being one to submit, whatever it holds. */
static int check_run(const json_t *run, int64_t id, struct hone_error *e)
{
    const json_t *end = json_object_get(run, "end"), *row = json_object_get(end, "row");
    const char *diagnostic = identity_diagnostic(json_object_get(json_object_get(run, "recipe"), "gates"));
    if (strcmp(text_of(run, "kind"), "bench") != 0)
        return refuse(e, id, "it is no bench run", "");
    if (!json_is_object(row))
        return refuse(e, id, "it did not come to its end", text_of(end, "error"));
    if (*text_of(row, "error"))
        return refuse(e, id, "it failed", text_of(row, "error"));
    if (!strcmp(text_of(row, "verdict"), "different"))
        return refuse(e, id, "its output is wrong, the verdict is different",
                      text_of(json_object_get(row, "correctness"), "reason"));
    if (json_is_false(json_object_get(row, "deterministic")))
        return refuse(e, id, "two runs of it gave two outputs", "");
    if (strcmp(text_of(run, "status"), "done") != 0)
        return refuse(e, id, "it did not come to its end", text_of(run, "status"));
    if (whole(json_object_get(run, "config"), "n_gen") < 1)
        return refuse(e, id, "it generates nothing, so it has no decode speed", "");
    if (diagnostic)
        return refuse(e, id, "its gates are diagnostics: no speed with them is a result", diagnostic);
    return 0;
}

int submit_make(struct journal *j, int64_t run, const char *notes, json_t **payload, struct hone_error *e)
{
    struct hone_error own = {0};
    struct journal_checked checked;
    json_t *r = NULL, *found = NULL;
    char series[128];
    struct gathering g = {.samples = json_array(), .prompts = json_array(), .series = series};
    *payload = NULL;
    int rc = journal_verify(j, &checked, &own);
    rc = rc ? rc : journal_get(j, run, &r, &own);
    const json_t *row = json_object_get(json_object_get(r, "end"), "row"), *config = json_object_get(r, "config");
    snprintf(series, sizeof series, "%.100s t/s", text_of(config, "test"));
    rc = rc ? rc : check_run(r, run, &own);
    if (!rc && journal_each_sample(j, run, gather, &g, &own))
        rc = own.code ? own.code : err_set(&own, HONE_ERESOURCE, "no memory for samples");
    if (!rc && (!(*payload = make_parts(r, row, &g, notes)) || !(found = submit_check(*payload))))
        rc = err_set(&own, HONE_ERESOURCE, "no memory for a payload");
    if (!rc && json_array_size(found))
        rc = refuse(&own, run, json_string_value(json_array_get(found, 0)), "");
    json_decref(found);
    json_decref(g.samples);
    json_decref(g.prompts);
    json_decref(r);
    if (rc) {
        json_decref(*payload);
        *payload = NULL;
        if (e)
            *e = own;
    }
    return rc;
}
