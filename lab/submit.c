/* submit.c: what is published is what was recorded. Nobody types a figure in: the speed is computed from the samples in the
 * journal, the quality is the bench run's own verdict against the reference, and the payload carries both with the record's
 * hash, so that whoever has the journal can hold one to the other. The same checks run on what is made here and on what others
 * made. Nothing is sent. */
#include "lab/submit.h"

#include "lab/stats.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static bool is_exact_cache(const char *type)
{
    return !strcmp(type, "f16") || !strcmp(type, "f32") || !strcmp(type, "default");
}

/* ---- checking */

static void wrong(json_t *list, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void wrong(json_t *list, const char *format, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    json_array_append_new(list, json_string(text));
}

static void check_fields(const json_t *p, json_t *list)
{
    static const struct {
        const char *object, *key;
        bool number;
    } fields[] = {{"model", "id", false},
                  {"model", "revision", false},
                  {"model", "quantisation", false},
                  {"hardware", "class", false},
                  {"hardware", "memory", true},
                  {"hardware", "gpu_count", true},
                  {"engine", "name", false},
                  {"engine", "version", false},
                  {NULL, "prompt_tokens", true},
                  {NULL, "output_tokens", true},
                  {NULL, "context", true},
                  {NULL, "batch", true},
                  {NULL, "decode_tokens_per_second", true},
                  {NULL, "total_tokens_per_second", true},
                  {NULL, "flags", false},
                  {"quality", "verdict", false},
                  {"quality", "type_k", false},
                  {"quality", "type_v", false}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *in = fields[i].object ? json_object_get(p, fields[i].object) : p, *v = json_object_get(in, fields[i].key);
        bool ok =
            fields[i].number ? json_is_number(v) && json_number_value(v) >= 0 : json_is_string(v) && *json_string_value(v);
        if (!ok)
            wrong(list, "%s%s%s is missing, or no %s", fields[i].object ? fields[i].object : "", fields[i].object ? "." : "",
                  fields[i].key, fields[i].number ? "number" : "text");
    }
}

static void check_quality(const json_t *p, json_t *list)
{
    static const char *const right[] = {"bit-identical", "within tolerance", "token-identical", "quality-equal"};
    const json_t *q = json_object_get(p, "quality");
    const char *verdict = text_of(q, "verdict");
    bool ok = false;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        ok = ok || !strcmp(verdict, right[i]);
    if (*verdict && !ok)
        wrong(list, "not verified as right: the verdict is %.60s", verdict);
    if (*verdict && !json_is_number(json_object_get(q, "kl_mean")))
        wrong(list, "quality.kl_mean is missing: how far the output is from the reference's must be said");
    if ((!is_exact_cache(text_of(q, "type_k")) || !is_exact_cache(text_of(q, "type_v"))) && !*text_of(p, "notes"))
        wrong(list, "keys or values are cached as %.20s/%.20s, which changes quality, and the notes do not say so",
              text_of(q, "type_k"), text_of(q, "type_v"));
}

/* The figures are those of the samples. */
static void check_samples(const json_t *p, json_t *list)
{
    const json_t *samples = json_object_get(p, "samples_ns");
    size_t n = json_array_size(samples);
    double tokens =
        json_number_value(json_object_get(p, "prompt_tokens")) + json_number_value(json_object_get(p, "output_tokens"));
    double said = json_number_value(json_object_get(p, "total_tokens_per_second")), *x = calloc(n + 1, sizeof *x);
    if (n < SUBMIT_LEAST_SAMPLES)
        wrong(list, "%zu raw samples; at least %d are needed", n, SUBMIT_LEAST_SAMPLES);
    bool positive = x != NULL;
    for (size_t i = 0; i < n && positive; i++) {
        x[i] = json_number_value(json_array_get(samples, i));
        positive = x[i] > 0;
    }
    if (n && !positive)
        wrong(list, "a sample is no time");
    if (n && positive) {
        double is = 1e9 * tokens / stats_median(x, n);
        if (!(fabs(said / is - 1) < 1e-3))
            wrong(list, "total_tokens_per_second is %.6g, and the median of the samples is %.6g", said, is);
    }
    free(x);
}

json_t *submit_check(const json_t *payload)
{
    json_t *list = json_array();
    if (!list)
        return NULL;
    if (!json_is_object(payload) || json_integer_value(json_object_get(payload, "schema_version")) != 1) {
        wrong(list, "no payload of schema_version 1");
        return list;
    }
    check_fields(payload, list);
    check_quality(payload, list);
    check_samples(payload, list);
    return list;
}

/* ---- making */

struct gathering {
    json_t *samples;
    const char *series;
    json_t *decode; /* ns behind the prompt */
};

static int gather(void *user, const struct journal_sample *s)
{
    struct gathering *g = user;
    json_t *ns = json_object_get(s->more, "ns"), *prompt = json_object_get(s->more, "prompt_ns");
    if (strcmp(s->series, g->series) != 0 || !json_is_number(ns))
        return 0;
    double rest = json_number_value(ns) - json_number_value(prompt);
    return json_array_append(g->samples, ns) |
           json_array_append_new(g->decode, json_real(rest > 0 ? rest : json_number_value(ns)));
}

static double median_of(const json_t *list)
{
    size_t n = json_array_size(list);
    double *x = calloc(n + 1, sizeof *x), m = 0;
    for (size_t i = 0; i < n && x; i++)
        x[i] = json_number_value(json_array_get(list, i));
    if (n && x)
        m = stats_median(x, n);
    free(x);
    return m;
}

/* The type that most of the weights' bytes are in. */
static const char *quantisation(const json_t *model)
{
    const char *type, *most = "";
    json_t *bytes;
    double largest = 0;
    json_object_foreach(json_object_get(model, "bytes"), type, bytes)
    {
        if (json_number_value(bytes) > largest) {
            largest = json_number_value(bytes);
            most = type;
        }
    }
    return most;
}

static json_t *make_parts(const json_t *run, const json_t *row, const struct gathering *g, const char *notes)
{
    const json_t *config = json_object_get(run, "config"), *model = json_object_get(run, "model"),
                 *machine = json_object_get(run, "machine");
    const json_t *build = json_object_get(run, "build"), *right = json_object_get(row, "correctness");
    double prompt = json_number_value(json_object_get(config, "n_prompt")),
           output = json_number_value(json_object_get(config, "n_gen"));
    double whole = median_of(g->samples), decode = median_of(g->decode);
    const char *gpu = text_of(row, "gpu_info");
    json_t *p = json_pack("{s:i, s:{s:s, s:s, s:O?, s:s, s:O?}, s:{s:s, s:s, s:s, s:i, s:O?}, s:{s:s, s:s, s:s, s:s}}",
                          "schema_version", 1, "model", "id", text_of(model, "name"), "revision", text_of(model, "sha256"),
                          "parameters", json_object_get(model, "parameters"), "quantisation", quantisation(model), "bytes",
                          json_object_get(model, "bytes"), "hardware", "class", *gpu ? "gpu" : "cpu", "cpu",
                          text_of(machine, "cpu"), "gpu_name", gpu, "gpu_count", *gpu ? 1 : 0, "memory",
                          json_object_get(machine, "memory_total"), "engine", "name", "hone", "version",
                          text_of(build, "version"), "commit", text_of(build, "commit"), "binary", text_of(build, "binary"));
    json_t *rest = json_pack(
        "{s:f, s:f, s:f, s:O?, s:f, s:f, s:O, s:s, s:s, s:{s:s, s:O?, s:s, s:s}, s:{s:O, s:O}}", "prompt_tokens", prompt,
        "output_tokens", output, "context", json_number_value(json_object_get(config, "n_depth")) + prompt + output, "batch",
        json_object_get(row, "n_batch"), "decode_tokens_per_second", decode > 0 ? 1e9 * output / decode : 0,
        "total_tokens_per_second", whole > 0 ? 1e9 * (prompt + output) / whole : 0, "samples_ns", g->samples, "notes",
        notes ? notes : "", "flags", text_of(run, "command"), "quality", "verdict", text_of(row, "verdict"), "kl_mean",
        json_object_get(right, "kl_mean"), "type_k", text_of(config, "type_k"), "type_v", text_of(config, "type_v"), "journal",
        "run", json_object_get(run, "id"), "record", json_object_get(run, "record"));
    if (!p || !rest || json_object_update(p, rest)) {
        json_decref(p);
        p = NULL;
    }
    json_decref(rest);
    return p;
}

/* Gates that make speeds that are none. */
static bool has_diagnostics(const json_t *run)
{
    json_t *gate;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(run, "recipe"), "gates"), i, gate)
    {
        const char *text = json_string_value(gate);
        if (text && (!strncmp(text, "debug.", 6) || !strncmp(text, "decline.", 8)))
            return true;
    }
    return false;
}

static int refuse(struct hone_error *e, int64_t run, const char *why)
{
    return err_set(e, HONE_ECHECK, "run %lld cannot be submitted: %s", (long long)run, why);
}

int submit_make(struct journal *j, int64_t run, const char *notes, json_t **payload, struct hone_error *e)
{
    struct hone_error own = {0};
    struct journal_checked checked;
    json_t *r = NULL, *found = NULL;
    char series[128];
    struct gathering g = {.samples = json_array(), .decode = json_array(), .series = series};
    *payload = NULL;
    int rc = journal_verify(j, &checked, &own);
    rc = rc ? rc : journal_get(j, run, &r, &own);
    const json_t *row = json_object_get(json_object_get(r, "end"), "row"), *config = json_object_get(r, "config");
    snprintf(series, sizeof series, "%.100s t/s", text_of(config, "test"));
    if (!rc && strcmp(text_of(r, "kind"), "bench") != 0)
        rc = refuse(&own, run, "it is no bench run");
    if (!rc && (!json_is_object(row) || strcmp(text_of(r, "status"), "done") != 0))
        rc = refuse(&own, run, "it did not come to its end");
    if (!rc && json_number_value(json_object_get(config, "n_gen")) < 1)
        rc = refuse(&own, run, "it generates nothing, so it has no decode speed");
    if (!rc && has_diagnostics(r))
        rc = refuse(&own, run, "its gates are diagnostics: no speed with them is a result");
    if (!rc && journal_each_sample(j, run, gather, &g, &own))
        rc = own.code ? own.code : err_set(&own, HONE_ERESOURCE, "no memory for samples");
    if (!rc && (!(*payload = make_parts(r, row, &g, notes)) || !(found = submit_check(*payload))))
        rc = err_set(&own, HONE_ERESOURCE, "no memory for a payload");
    if (!rc && json_array_size(found))
        rc = refuse(&own, run, json_string_value(json_array_get(found, 0)));
    json_decref(found);
    json_decref(g.samples);
    json_decref(g.decode);
    json_decref(r);
    if (rc) {
        json_decref(*payload);
        *payload = NULL;
        if (e)
            *e = own;
    }
    return rc;
}
