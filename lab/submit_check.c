/* submit_check.c: what a payload must hold. A payload comes from anybody, so nothing in it is believed that can be worked out:
 * speeds are those of the samples, the context is the sum of its parts, the type is the one that most bytes are in, a class of
 * hardware has the devices of that class, a verdict has a divergence that it allows. What is left has a type and a range, and
 * what is none of a payload's fields is wrong: a figure that nobody checks is one that somebody will quote.
 *
 * What it cannot tell is whether the samples were measured at all. For that there is the hash of the record, for whoever has
 * the journal. */
#include "lab/submit.h"

#include "formats/formats.h"
#include "graph/gates.h"
#include "lab/bench.h"
#include "lab/compare.h"
#include "lab/identity.h"
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

static double number_of(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void wrong(json_t *list, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void wrong(json_t *list, const char *format, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    json_t *one = json_string(text);
    json_array_append_new(list, one ? one : json_string("a text that is no UTF-8")); /* cut within a letter */
}

/* ---- fields */

enum kind { TEXT, ANY_TEXT, HASH, INTEGER, NUMBER, LIST, OBJECT };
static const char *const kind_names[] = {"text", "text", "SHA-256", "whole number", "number", "list", "object"};
static const struct field {
    const char *object, *key;
    enum kind kind;
    double lo, hi; /* of numbers; of texts, lists and objects: how long */
} fields[] = {{NULL, "schema_version", INTEGER, SUBMIT_SCHEMA, SUBMIT_SCHEMA},
              {NULL, "model", OBJECT, 0, 100},
              {"model", "id", TEXT, 1, 300},
              {"model", "revision", HASH, 64, 64},
              {"model", "parameters", INTEGER, 1, 1e15},
              {"model", "quantisation", TEXT, 1, 40},
              {"model", "bytes", OBJECT, 1, 100},
              {NULL, "hardware", OBJECT, 0, 100},
              {"hardware", "class", TEXT, 1, 10},
              {"hardware", "cpu", TEXT, 1, 300},
              {"hardware", "gpu_name", ANY_TEXT, 0, 300},
              {"hardware", "gpu_count", INTEGER, 0, 1 << 20},
              {"hardware", "memory", INTEGER, 1 << 20, 1e18},
              {NULL, "engine", OBJECT, 0, 100},
              {"engine", "name", TEXT, 1, 100},
              {"engine", "version", TEXT, 1, 100},
              {"engine", "commit", ANY_TEXT, 0, 100},
              {"engine", "binary", HASH, 64, 64},
              {NULL, "depth_tokens", INTEGER, 0, 1e9},
              {NULL, "prompt_tokens", INTEGER, 0, 1e9},
              {NULL, "output_tokens", INTEGER, 1, 1e9},
              {NULL, "context", INTEGER, 1, 3e9},
              {NULL, "batch", INTEGER, 1, 1 << 24},
              {NULL, "threads", INTEGER, 1, 1 << 16},
              {NULL, "decode_tokens_per_second", NUMBER, 0, 1e12},
              {NULL, "total_tokens_per_second", NUMBER, 0, 1e12},
              {NULL, "samples_ns", LIST, 0, 1e6},
              {NULL, "samples_prompt_ns", LIST, 0, 1e6},
              {NULL, "notes", ANY_TEXT, 0, 10000},
              {NULL, "flags", TEXT, 1, 10000},
              {NULL, "gates", LIST, 0, 10000},
              {NULL, "plugins", LIST, 0, 1000},
              {NULL, "quality", OBJECT, 0, 100},
              {"quality", "verdict", TEXT, 1, 40},
              {"quality", "kl_mean", NUMBER, 0, 1e6},
              {"quality", "type_k", TEXT, 1, 20},
              {"quality", "type_v", TEXT, 1, 20},
              {NULL, "journal", OBJECT, 0, 100},
              {"journal", "run", INTEGER, 1, 9e15},
              {"journal", "record", HASH, 64, 64}};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static bool is_hash(const json_t *v)
{
    const char *s = json_string_value(v);
    return s && strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

static bool is_kind(const json_t *v, enum kind k)
{
    switch (k) {
    case INTEGER:
        return json_is_integer(v);
    case NUMBER:
        return json_is_number(v);
    case LIST:
        return json_is_array(v);
    case OBJECT:
        return json_is_object(v);
    case HASH:
        return is_hash(v);
    default:
        return json_is_string(v);
    }
}

static double size_of(const json_t *v, enum kind k)
{
    return k == INTEGER || k == NUMBER ? json_number_value(v)
           : k == LIST                 ? (double)json_array_size(v)
           : k == OBJECT               ? (double)json_object_size(v)
                                       : (double)json_string_length(v);
}

static void check_field(const json_t *p, const struct field *f, json_t *list)
{
    char name[80];
    const json_t *v = json_object_get(f->object ? json_object_get(p, f->object) : p, f->key);
    snprintf(name, sizeof name, "%s%s%s", f->object ? f->object : "", f->object ? "." : "", f->key);
    if (!is_kind(v, f->kind))
        wrong(list, "%s is missing, or no %s", name, kind_names[f->kind]);
    else if (f->kind == TEXT && !*json_string_value(v))
        wrong(list, "%s is missing: its text is empty", name);
    else if (!(size_of(v, f->kind) >= f->lo && size_of(v, f->kind) <= f->hi))
        wrong(list,
              f->kind == INTEGER || f->kind == NUMBER ? "%s is %.6g, and from %.6g to %.6g is possible"
                                                      : "%s has a length of %.0f, and from %.0f to %.0f is possible",
              name, size_of(v, f->kind), f->lo, f->hi);
}

static void check_names(const json_t *in, const char *object, json_t *list)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)in, key, v)
    {
        bool known = false;
        for (int i = 0; i < N_FIELDS && !known; i++)
            known = !strcmp(fields[i].key, key) &&
                    (object ? fields[i].object && !strcmp(fields[i].object, object) : !fields[i].object);
        if (!known)
            wrong(list, "%s%s%.80s is no field of a payload", object ? object : "", object ? "." : "", key);
    }
}

static void check_fields(const json_t *p, json_t *list)
{
    check_names(p, NULL, list);
    for (int i = 0; i < N_FIELDS; i++) {
        check_field(p, &fields[i], list);
        if (fields[i].kind == OBJECT && strcmp(fields[i].key, "bytes") != 0)
            check_names(json_object_get(p, fields[i].key), fields[i].key, list);
    }
}

/* ---- what follows from other fields */

const char *submit_quantisation(const json_t *bytes)
{
    const char *type, *most = "";
    json_t *n;
    double largest = 0;
    json_object_foreach((json_t *)bytes, type, n)
    {
        if (json_number_value(n) > largest) {
            largest = json_number_value(n);
            most = type;
        }
    }
    return most;
}

static void check_model(const json_t *p, json_t *list)
{
    const json_t *model = json_object_get(p, "model"), *bytes = json_object_get(model, "bytes");
    const char *type, *is = submit_quantisation(bytes);
    json_t *n;
    json_object_foreach((json_t *)bytes, type, n)
    {
        enum format_id id;
        if (format_by_name(type, &id))
            wrong(list, "model.bytes has %.40s, which is no type of weights", type);
        if (!json_is_integer(n) || json_integer_value(n) < 1)
            wrong(list, "model.bytes.%.40s is no number of bytes", type);
    }
    if (strcmp(is, text_of(model, "quantisation")) != 0)
        wrong(list, "model.quantisation is %.40s, and most bytes are in %.40s", text_of(model, "quantisation"), is);
}

static void check_hardware(const json_t *p, json_t *list)
{
    const json_t *h = json_object_get(p, "hardware");
    const char *class = text_of(h, "class");
    bool gpu = !strcmp(class, "gpu"), named = *text_of(h, "gpu_name"), counted = number_of(h, "gpu_count") >= 1;
    if (!gpu && strcmp(class, "cpu") != 0)
        wrong(list, "hardware.class is %.20s; cpu and gpu are possible", class);
    else if (named != gpu || counted != gpu)
        wrong(list, gpu ? "hardware.class is gpu, and no GPU is named or counted"
                        : "hardware.class is cpu, and gpu_name or gpu_count speak of a GPU");
}

static bool is_exact_cache(const char *type)
{
    return !strcmp(type, "f16") || !strcmp(type, "f32") || !strcmp(type, "default");
}

static void check_quality(const json_t *p, json_t *list)
{
    const json_t *q = json_object_get(p, "quality");
    const char *verdict = text_of(q, "verdict"), *types[] = {text_of(q, "type_k"), text_of(q, "type_v")};
    double kl = number_of(q, "kl_mean");
    enum format_id id;
    int is = CLASS_BIT_IDENTICAL;
    while (is < CLASS_DIFFERENT && strcmp(verdict, compare_class_name((enum compare_class)is)) != 0)
        is++;
    double bound = is == CLASS_BIT_IDENTICAL ? 0 : BENCH_KL_BOUND;
    if (*verdict && is == CLASS_DIFFERENT)
        wrong(list, "not verified as right: the verdict is %.60s", verdict);
    else if (*verdict && !(kl <= bound))
        wrong(list, "quality.kl_mean is %.3g, and %s allows %.3g", kl, verdict, bound);
    for (int i = 0; i < 2; i++)
        if (*types[i] && strcmp(types[i], "default") != 0 && format_by_name(types[i], &id))
            wrong(list, "quality.type_%c is %.20s, which is no type", "kv"[i], types[i]);
    if ((!is_exact_cache(types[0]) || !is_exact_cache(types[1])) && !*text_of(p, "notes"))
        wrong(list, "keys or values are cached as %.20s/%.20s, which changes quality, and the notes do not say so", types[0],
              types[1]);
}

double submit_speed(const json_t *samples, const json_t *prompts, double tokens)
{
    size_t n = json_array_size(samples);
    double *x = calloc(n + 1, sizeof *x), speed = 0;
    bool good = x && n && (!prompts || json_array_size(prompts) == n);
    for (size_t i = 0; i < n && good; i++) {
        double prompt = prompts ? json_number_value(json_array_get(prompts, i)) : 0;
        x[i] = json_number_value(json_array_get(samples, i)) - prompt;
        good = x[i] > 0 && x[i] < 1e18 && prompt >= 0;
    }
    if (good)
        speed = 1e9 * tokens / stats_median(x, n);
    free(x);
    return speed;
}

static void check_speed(const json_t *p, const char *key, double is, json_t *list)
{
    double said = number_of(p, key);
    if (is > 0 && !(fabs(said / is - 1) < 1e-6))
        wrong(list, "%s is %.9g, and the median of the samples is %.9g", key, said, is);
}

/* The figures are those of the samples. */
static void check_samples(const json_t *p, json_t *list)
{
    const json_t *samples = json_object_get(p, "samples_ns"), *prompts = json_object_get(p, "samples_prompt_ns");
    size_t n = json_array_size(samples);
    double prompt = number_of(p, "prompt_tokens"), output = number_of(p, "output_tokens");
    if (n < SUBMIT_LEAST_SAMPLES)
        wrong(list, "%zu raw samples; at least %d are needed", n, SUBMIT_LEAST_SAMPLES);
    if (json_array_size(prompts) != n)
        wrong(list, "samples_prompt_ns has %zu times for %zu samples", json_array_size(prompts), n);
    bool times = true, fits = true;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(samples, i), *before = json_array_get(prompts, i);
        times = times && json_is_integer(one) && json_integer_value(one) > 0 && json_is_integer(before);
        fits = fits && (prompt > 0 ? json_integer_value(before) > 0 : json_integer_value(before) == 0);
    }
    if (n && (!times || !(submit_speed(samples, prompts, 1) > 0)))
        wrong(list, "a sample is no time, or no longer than its prompt");
    else if (n && !fits)
        wrong(list, "samples_prompt_ns does not fit %.0f prompt tokens", prompt);
    if (number_of(p, "context") < number_of(p, "depth_tokens") + prompt + output ||
        number_of(p, "context") > number_of(p, "depth_tokens") + prompt + output)
        wrong(list, "context is %.0f, and depth, prompt and output together are %.0f", number_of(p, "context"),
              number_of(p, "depth_tokens") + prompt + output);
    check_speed(p, "total_tokens_per_second", submit_speed(samples, NULL, prompt + output), list);
    check_speed(p, "decode_tokens_per_second", submit_speed(samples, prompts, output), list);
}

/* ---- the recipe */

/* One gate, or what is short for several. */
static void check_gate(const json_t *gate, size_t i, json_t *list)
{
    struct gates g = {0};
    struct hone_error e = {0};
    const char *text = json_string_value(gate);
    bool ok = text && !gates_parse(&g, text, "gates", &e) && g.n > 0;
    for (int k = 0; k < g.n && ok; k++)
        ok = !strcmp(g.list[k].text, text);
    if (!ok)
        wrong(list, "gates[%zu] is no gate: %.200s", i, e.code ? e.message : text ? text : "no text");
    gates_free(&g);
}

/* A gate of this kind among the words of a command line: not the name of a file that has the letters in it. */
static bool has_gate(const char *flags, const char *kind)
{
    for (const char *at = flags; (at = strstr(at, kind)); at++)
        if (at == flags || strchr(" '\"=;,", at[-1]))
            return true;
    return false;
}

static void check_gates(const json_t *p, json_t *list)
{
    const json_t *gates = json_object_get(p, "gates");
    const char *diagnostic = identity_diagnostic(gates), *flags = text_of(p, "flags");
    json_t *one;
    size_t i;
    json_array_foreach(gates, i, one) check_gate(one, i, list);
    if (diagnostic || has_gate(flags, "debug.") || has_gate(flags, "decline."))
        wrong(list, "diagnostics among its gates (%.60s): no speed with them is a result",
              diagnostic ? diagnostic : "in flags");
    json_array_foreach(json_object_get(p, "plugins"), i, one)
    {
        if (!json_is_object(one) || !*text_of(one, "file") || !is_hash(json_object_get(one, "sha256")) ||
            json_object_size(one) != 2)
            wrong(list, "plugins[%zu] is no file with its SHA-256", i);
    }
}

json_t *submit_check(const json_t *payload)
{
    json_t *list = json_array();
    if (!list)
        return NULL;
    if (!json_is_object(payload) || json_integer_value(json_object_get(payload, "schema_version")) != SUBMIT_SCHEMA) {
        wrong(list, "no payload of schema_version %d", SUBMIT_SCHEMA);
        return list;
    }
    check_quality(payload, list); /* first what matters most: the first one is the reason of a refusal */
    check_samples(payload, list);
    check_gates(payload, list);
    check_fields(payload, list);
    check_model(payload, list);
    check_hardware(payload, list);
    return list;
}
