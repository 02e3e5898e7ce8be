/* plan.c: hone plan: how fast a decode step would be on several devices, before there are several. */
#include "cmd/cmd.h"

#include "base/cpu.h"
#include "engine/cuts.h"
#include "engine/session_file.h"
#include "lab/cost_model.h"
#include "lab/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int asked = 16, repeats = 11, depth, most; /* most: of the devices that are asked for, over as many as the model can be split */
static const char *link_text, *trace_path;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        SESSION_OPTIONS,
        {"--devices", OPTION_INT, &asked, "N", "predict for up to N devices", 1, COST_MAX_DEVICES},
        {"--link", OPTION_TEXT, &link_text, "LATENCY,BANDWIDTH",
         "of the link between devices, as 3us,12GB/s (default: measured, between two threads here or the processes that mpirun started)", 0, 0},
        {"--trace", OPTION_INPUT, &trace_path, "FILE", "times of one device from `hone trace -o json` instead of tracing here",
         0, 0},
        {"-d, --n-depth", OPTION_INT, &depth, "N", "positions in the context before the step", 0, 1 << 30},
        {"-r, --repetitions", OPTION_INT, &repeats, "N", "steps that are measured", 1, 100000},
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* A trace has been made already: what says how to make one would be ignored. */
static int check_trace_words(void)
{
    const char *word = depth ? "-d" : model_args.n_threads ? "-t" : model_args.set ? "--set" : model_args.recipe ? "--recipe" : repeats != 11 ? "-r" : NULL;
    return trace_path && word ? cmd_refuse(HONE_EUSAGE, "plan: --trace has times that were measured; %s has no place here", word) : 0;
}

/* Of devices over which something of the model can be split. */
static int most_splittable(const struct model *m)
{
    int good = 1, bad = asked + 1;
    for (int n = asked; bad - good > 1; n = (good + bad) / 2) {
        struct shard_params p = {.mode = SHARD_TENSOR, .n_ranks = n, .gather_logits = true};
        struct cut *c;
        struct hone_error ignored = {0};
        int *end = n < 2 || !cut_get(&c, m, &p, &ignored) ? &good : &bad;
        if (end == &good && n > 1)
            cut_put(c);
        *end = n;
    }
    return good;
}

static int trace_read(json_t **trace, const struct model *m, struct hone_error *e)
{
    char *text;
    size_t size;
    json_error_t error;
    int rc = file_read(&text, &size, trace_path, e);
    if (rc)
        return rc;
    *trace = json_loadb(text, size, 0, &error);
    free(text);
    if (!*trace)
        return err_set(e, HONE_EINPUT, "%s:%d: %s", trace_path, error.line, error.text);
    char id[20];
    const char *theirs = json_string_value(json_object_get(*trace, "model_id")), *name = json_string_value(json_object_get(*trace, "model"));
    snprintf(id, sizeof id, "%016llx", (unsigned long long)session_model_id(m));
    return theirs && strcmp(theirs, id) != 0 ? err_set(e, HONE_EINPUT, "%s: a trace of another model: %.200s", trace_path, name ? name : "?") : 0;
}

static int trace_measure(json_t **trace, const struct hone_model *m, struct hone_session *s, struct hone_error *e)
{
    struct trace t = {0};
    struct trace_options o = {.n_tokens = 1,
                              .depth = depth,
                              .repeats = repeats,
                              .n_threads = model_args.n_threads ? model_args.n_threads : cpu_cores()};
    interrupt_session(s);
    int rc = trace_run(&t, s, m, &o, e);
    if (!rc && !(*trace = trace_json(&t)))
        rc = err_set(e, HONE_ERESOURCE, "no memory for a trace");
    trace_free(&t);
    interrupt_session(NULL);
    return rc;
}

/* s: NULL where the times come from a file. */
static int model_make(struct cost_model *c, const struct hone_model *m, struct hone_session *s, struct hone_error *e)
{
    json_t *trace = NULL;
    double latency = 0, rate = 0;
    int rc = link_text ? cost_link_parse(link_text, &latency, &rate, e) : 0;
    if (!rc)
        rc = s ? trace_measure(&trace, m, s, e) : trace_read(&trace, m->model, e);
    if (!rc)
        rc = cost_model_from_trace(c, trace, m->model, e);
    if (!rc && !link_text)
        rc = cost_link_measure(&latency, &rate, e);
    c->latency_ns = latency;
    c->bytes_per_s = rate;
    json_decref(trace);
    return rc;
}

/* 1, 2, 3, 4, 6, 8, 12, 16, ... and the last. */
static int next_count(int n)
{
    if (n >= most)
        return most + 1;
    int next = n < 3 ? n + 1 : (n & (n - 1)) == 0 ? n + n / 2 : n / 3 * 4;
    return n < most && next > most ? most : next;
}

static json_t *row_json(const struct cost_model *c, int n)
{
    struct cost_step s = cost_model_step(c, n);
    double one = cost_model_step(c, 1).ns;
    return json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "devices", n, "step_ns", s.ns, "tokens_per_second",
                     1e9 / s.ns, "speedup", one / s.ns, "efficiency", one / s.ns / n, "compute_ns", s.compute_ns, "sums_ns",
                     s.sums_ns, "gather_ns", s.gather_ns, "two_step_ns", s.two_step_ns);
}

static int print_json(const struct cost_model *c, int enough)
{
    json_t *rows = json_array(), *assumptions = json_array();
    for (int n = 1; n <= most; n = next_count(n))
        json_array_append_new(rows, row_json(c, n));
    for (int i = 0; cost_model_assumption(i); i++)
        json_array_append_new(assumptions, json_string(cost_model_assumption(i)));
    return output_print(json_pack("{s:f, s:f, s:i, s:f, s:f, s:i, s:b, s:i, s:o, s:o}", "latency_ns", c->latency_ns,
                                  "bytes_per_second", c->bytes_per_s, "sums", c->n_sums, "sum_bytes", c->sum_bytes, "floor_ns",
                                  c->floor_ns, "enough", enough, "more_stop_paying", enough < most, "most_splittable", most, "rows", rows, "assumptions",
                                  assumptions));
}

static int print_text(const struct cost_model *c, int enough)
{
    double one = cost_model_step(c, 1).ns;
    bool slow = c->latency_ns >= 1e6, narrow = c->bytes_per_s < 1e8;
    printf("one device: %.3f ms a token; link: %.2f %s and %.2f %s; %d sums of %.0f bytes a token\n\n", one / 1e6,
           c->latency_ns / (slow ? 1e6 : 1e3), slow ? "ms" : "us", c->bytes_per_s / (narrow ? 1e6 : 1e9), narrow ? "MB/s" : "GB/s", c->n_sums,
           c->sum_bytes);
    printf("%8s %10s %10s %8s %8s %11s %10s %10s\n", "devices", "ms/token", "tokens/s", "speedup", "% each", "compute ms",
           "sums ms", "gather ms");
    for (int n = 1; n <= most; n = next_count(n)) {
        struct cost_step s = cost_model_step(c, n);
        printf("%8d %10.3f %10.1f %8.2f %8.0f %11.3f %10.3f %10.3f\n", n, s.ns / 1e6, 1e9 / s.ns, one / s.ns,
               100 * one / s.ns / n, s.compute_ns / 1e6, s.sums_ns / 1e6, s.gather_ns / 1e6);
    }
    struct cost_step last = cost_model_step(c, most);
    if (enough < most)
        printf("\nmore than %d device%s stop paying: no number up to %d is 1 %% faster\n", enough, enough == 1 ? "" : "s", most);
    else
        printf("\nup to %d devices each one still pays\n", most);
    if (most < asked)
        printf("nothing of this model can be split over more than %d devices\n", most);
    if (last.two_step_ns < last.ns)
        printf("with %d devices sums in two steps would take the step to %.3f ms; hone's are one-shot\n", most,
               last.two_step_ns / 1e6);
    printf("\nassumed:\n");
    for (int i = 0; cost_model_assumption(i); i++)
        printf("  - %s\n", cost_model_assumption(i));
    return output_flush();
}

static int run(int n_args, char **args)
{
    struct hone_model *m = NULL;
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    struct cost_model c = {0};
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "plan: '%s' is no option", args[0]);
    int rc = cmd_refuse_split("plan", "it measures one device and predicts several");
    if (!rc)
        rc = check_trace_words();
    if (!rc)
        rc = cmd_open_model(&m);
    if (!rc)
        most = most_splittable(m->model);
    if (!rc && !trace_path)
        rc = cmd_open_session(&s, m, NULL);
    if (!rc && model_make(&c, m, s, &e))
        rc = cmd_fail(&e);
    if (!rc) {
        int enough = cost_model_enough(&c, most, 0.01);
        rc = output_json() ? print_json(&c, enough) : print_text(&c, enough);
    }
    cost_model_free(&c);
    hone_session_free(s);
    hone_model_close(m);
    return rc;
}

const struct command command_plan = {
    .name = "plan",
    .summary = "predicted decode over N devices, from the times of one and a link",
    .usage = "",
    .example = "hone plan -m model.gguf --devices 8 --link 3us,12GB/s\n  hone plan -m model.gguf --devices 256 --link "
               "40us,10Gb/s --trace trace.json",
    .options = options,
    .run = run,
};
