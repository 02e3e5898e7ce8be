/* bench_row.c: figures to fields. Every field of bench_fields.def is there in each row, in that order; what a failed test has
 * no value for is null.
 *
 * avg_ts and stddev_ts are llama-bench's: the mean and deviation of the samples' rates. Beside them stands total_ts, tokens
 * over time for the whole, which is what a user waits for: of one sample at 200 and one at 50 tokens a second the mean of rates
 * says 125, the clock 80. */
#include "lab/bench.h"
#include "lab/bench_format.h"
#include "lab/bench_model.h"
#include "lab/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Paths and messages may hold any bytes; JSON is UTF-8. */
static json_t *text_json(const char *text)
{
    json_t *j = json_string(text);
    if (j)
        return j;
    char *copy = strdup(text);
    for (char *p = copy; p && *p; p++)
        if (*p & 0x80)
            *p = '?';
    j = json_string(copy ? copy : "");
    free(copy);
    return j;
}

static void set(json_t *row, const char *name, json_t *v)
{
    json_object_set_new(row, name, v ? v : json_null());
}

static const struct bench_value *value(const struct bench_result *r, enum bench_param p)
{
    return r->config->values[p];
}

static void set_text(json_t *row, const char *name, const struct bench_result *r, enum bench_param p)
{
    set(row, name, text_json(value(r, p)->text));
}

static void set_number(json_t *row, const char *name, const struct bench_result *r, enum bench_param p)
{
    set(row, name, json_integer(value(r, p)->number));
}

static void set_flag(json_t *row, const char *name, const struct bench_result *r, enum bench_param p)
{
    set(row, name, json_boolean(value(r, p)->number));
}

static double tokens(const struct bench_result *r)
{
    return (double)r->config->n_prompt + r->config->n_gen;
}

/* build_commit as llama-bench has it: a plain hash, by which scripts find the commit; `build` has the rest. */
static json_t *commit_json(const struct bench_result *r)
{
    const char *commit = json_string_value(json_object_get(r->build, "commit"));
    return json_stringn(commit ? commit : "", commit ? strcspn(commit, "-") : 0);
}

/* Whether layers went to a GPU, as the parameters say. */
static bool on_gpu(const struct bench_result *r)
{
    const char *devices = r->config->values[BENCH_DEVICES]->text;
    return r->config->values[BENCH_N_GPU_LAYERS]->number && strcmp(devices, "none") != 0 && strcmp(devices, "cpu") != 0 &&
           bench_gpus(NULL, 0);
}

/* A failed test ran on no backend, and the moment makes it unique: no script joins it with another file's row (a field of CSV
 * cannot be null). */
static json_t *backends_json(const struct bench_result *r)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return r->error[0] ? json_sprintf("none: failed at %lld.%09ld", (long long)now.tv_sec, now.tv_nsec)
                       : json_string(on_gpu(r) ? "CUDA,CPU" : "CPU");
}

static void set_subject(json_t *row, const struct bench_result *r)
{
    struct bench_model m = {"", 0, 0};
    const char *cpu = json_string_value(json_object_get(r->machine, "cpu"));
    if (r->model)
        bench_model_of(&m, r->model);
    set(row, "build_commit", commit_json(r));
    set(row, "build_number", json_integer(build_number()));
    set(row, "cpu_info", json_string(cpu ? cpu : ""));
    char gpu[128] = "";
    if (on_gpu(r))
        bench_gpus(gpu, sizeof gpu);
    set(row, "gpu_info", json_string(gpu));
    set(row, "backends", backends_json(r));
    set_text(row, "model_filename", r, BENCH_MODEL);
    set(row, "model_type", text_json(m.type));
    set(row, "model_size", json_integer(m.size));
    set(row, "model_n_params", json_integer(m.params));
}

static void set_parameters(json_t *row, const struct bench_result *r)
{
    set_number(row, "n_batch", r, BENCH_N_BATCH);
    set_number(row, "n_ubatch", r, BENCH_N_UBATCH);
    set(row, "n_threads", json_integer(r->n_threads));
    set_text(row, "cpu_mask", r, BENCH_CPU_MASK);
    set_flag(row, "cpu_strict", r, BENCH_CPU_STRICT);
    set_number(row, "poll", r, BENCH_POLL);
    set_text(row, "type_k", r, BENCH_TYPE_K);
    set_text(row, "type_v", r, BENCH_TYPE_V);
    set_number(row, "n_gpu_layers", r, BENCH_N_GPU_LAYERS);
    set_number(row, "n_cpu_moe", r, BENCH_N_CPU_MOE);
    set_text(row, "split_mode", r, BENCH_SPLIT_MODE);
    set_number(row, "main_gpu", r, BENCH_MAIN_GPU);
    set_flag(row, "no_kv_offload", r, BENCH_NO_KV_OFFLOAD);
    set_number(row, "flash_attn", r, BENCH_FLASH_ATTN);
    set_text(row, "devices", r, BENCH_DEVICES);
    set_text(row, "tensor_split", r, BENCH_TENSOR_SPLIT);
    set_text(row, "tensor_buft_overrides", r, BENCH_OVERRIDES);
    set_text(row, "load_mode", r, BENCH_LOAD_MODE);
    set_text(row, "lazy_mode", r, BENCH_LAZY_MODE);
    set_flag(row, "embeddings", r, BENCH_EMBEDDINGS);
    set_number(row, "no_op_offload", r, BENCH_NO_OP_OFFLOAD);
    set_flag(row, "no_host", r, BENCH_NO_HOST);
    set_flag(row, "repack", r, BENCH_REPACK);
    set_number(row, "fit_target", r, BENCH_FIT_TARGET);
    set_number(row, "fit_min_ctx", r, BENCH_FIT_MIN_CTX);
    set(row, "n_prompt", json_integer(r->config->n_prompt));
    set(row, "n_gen", json_integer(r->config->n_gen));
    set_number(row, "n_depth", r, BENCH_N_DEPTH);
    set(row, "test_time", json_string(r->time));
}

struct spread {
    double sum, mean, deviation;
};

static struct spread spread_of(const double *x, size_t n)
{
    struct spread s = {0};
    double squares = 0;
    for (size_t i = 0; i < n; i++)
        s.sum += x[i];
    s.mean = n ? s.sum / (double)n : 0;
    for (size_t i = 0; i < n; i++)
        squares += (x[i] - s.mean) * (x[i] - s.mean);
    s.deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
    return s;
}

static json_t *list_json(const double *x, size_t n, bool whole)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, whole ? json_integer((json_int_t)x[i]) : json_real(x[i]));
    return list;
}

static json_t *quantiles_json(const double *sorted, size_t n)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "min", stats_quantile(sorted, n, 0), "p25",
                     stats_quantile(sorted, n, 0.25), "p50", stats_quantile(sorted, n, 0.5), "p75",
                     stats_quantile(sorted, n, 0.75), "p90", stats_quantile(sorted, n, 0.9), "p99",
                     stats_quantile(sorted, n, 0.99), "max", stats_quantile(sorted, n, 1));
}

/* columns: five rows of n doubles. */
static void set_times(json_t *row, const struct bench_result *r, double *columns)
{
    size_t n = r->n;
    double *ns = columns, *ts = ns + n, *first = ts + n, *prompt = first + n, *sorted = prompt + n;
    for (size_t i = 0; i < n; i++) {
        ns[i] = sorted[i] = (double)r->samples[i].ns;
        ts[i] = 1e9 * tokens(r) / ns[i];
        first[i] = (double)r->samples[i].first_ns;
        prompt[i] = (double)r->samples[i].prompt_ns;
    }
    struct spread time = spread_of(ns, n), rate = spread_of(ts, n);
    double median = stats_median(sorted, n);
    set(row, "avg_ns", json_integer((json_int_t)time.mean));
    set(row, "stddev_ns", json_integer((json_int_t)time.deviation));
    set(row, "avg_ts", json_real(rate.mean));
    set(row, "stddev_ts", json_real(rate.deviation));
    set(row, "samples_ns", list_json(ns, n, true));
    set(row, "samples_ts", list_json(ts, n, false));
    set(row, "total_ts", json_real(1e9 * tokens(r) * (double)n / time.sum));
    set(row, "median_ns", json_real(median));
    set(row, "median_ts", json_real(1e9 * tokens(r) / median));
    set(row, "quantiles_ns", quantiles_json(sorted, n));
    set(row, "samples_ttft_ns", list_json(first, n, true));
    set(row, "samples_prompt_ns", list_json(prompt, n, true));
    set(row, "ttft_ns", json_real(stats_median(first, n)));
}

static json_t *warmup_json(const struct bench_result *r)
{
    if (!r->warmed)
        return NULL;
    return json_pack("{s:i, s:b, s:f, s:I}", "rounds", r->warmth.rounds, "stable", r->warmth.stable, "gap", r->warmth.gap, "ns",
                     (json_int_t)r->warmth.ns);
}

static void set_bytes(json_t *row, const struct bench_result *r)
{
    double bytes = r->work.weights + r->work.kv + r->work.state,
           rate = bytes * json_number_value(json_object_get(row, "total_ts")), roof = 0;
    set(row, "warmup", warmup_json(r));
    set(row, "bytes_per_token", json_real(bytes));
    set(row, "bytes", json_pack("{s:f, s:f, s:f}", "weights", r->work.weights, "kv", r->work.kv, "state", r->work.state));
    set(row, "read_bytes_per_second", json_real(rate));
    set(row, "samples_roof", list_json(r->roofs, r->n_roofs, true));
    if (r->n_roofs)
        roof = stats_median(r->roofs, r->n_roofs);
    set(row, "roof_bytes_per_second", roof > 0 ? json_real(roof) : NULL);
    set(row, "roof_share", roof > 0 ? json_real(rate / roof) : NULL);
    set(row, "peak_memory", json_pack("{s:I}", "cpu", (json_int_t)r->peak));
    set(row, "kernels", json_incref(r->work.kernels));
    set(row, "fallbacks", json_incref(r->work.fallbacks));
    set(row, "declines", json_incref(r->declines));
    set(row, "gates_unfit", json_integer(r->work.gates_unfit));
}

static void set_devices(json_t *row, const struct bench_result *r)
{
    double rate = json_number_value(json_object_get(row, "total_ts"));
    set(row, "n_devices", json_integer(r->config->n_devices));
    set(row, "one_device", json_boolean(r->config->alone));
    set(row, "times_one_device", r->one_ts > 0 && rate > 0 ? json_real(rate / r->one_ts) : NULL);
    set(row, "collectives", json_incref(r->collectives));
}

static void set_output(json_t *row, const struct bench_result *r)
{
    if (r->hashed) {
        set(row, "output_hash", json_string(r->output.output.hex));
        set(row, "tokens_hash", json_string(r->output.tokens.hex));
        set(row, "output_positions", json_integer((json_int_t)r->output.n));
        set(row, "deterministic", r->warmed ? json_boolean(r->same) : NULL); /* without warm-up the hashed run came last */
    }
    set(row, "verdict", json_string(r->right ? compare_class_name(r->right->verdict) : "unverified"));
    set(row, "correctness", r->right ? comparison_json(r->right) : json_pack("{s:o}", "reason", text_json(r->unverified)));
}

json_t *bench_row(const struct bench_result *r)
{
    char test[64];
    int n_fields;
    const struct bench_field *fields = bench_fields(&n_fields);
    double *columns = calloc(r->n * 5 + 1, sizeof *columns);
    json_t *row = json_object();
    if (!columns || !row) {
        free(columns);
        json_decref(row);
        return NULL;
    }
    for (int i = 0; i < n_fields; i++) /* the order; values in place of null keep it */
        json_object_set_new(row, fields[i].name, json_null());
    set_subject(row, r);
    set_parameters(row, r);
    set(row, "schema_version", json_integer(1));
    set(row, "test",
        json_string(bench_test_name(r->config->n_prompt, r->config->n_gen, (int32_t)value(r, BENCH_N_DEPTH)->number, test,
                                    sizeof test)));
    set(row, "status", json_string(r->error[0] ? "failed" : "done"));
    set(row, "samples_ns", json_array());
    set(row, "samples_ts", json_array());
    if (r->error[0]) {
        set(row, "error", text_json(r->error));
    } else if (r->n) {
        set_times(row, r, columns);
        set_bytes(row, r);
        set_output(row, r);
        set(row, "machine_state", machine_change_json(&r->change));
    }
    set_devices(row, r);
    set(row, "build", json_incref(r->build));
    set(row, "recipe", json_incref(r->recipe));
    set(row, "recipe_hash", json_string(r->recipe_hash));
    set(row, "machine", json_incref(r->machine));
    set(row, "warnings", json_incref(r->warnings));
    free(columns);
    return row;
}
