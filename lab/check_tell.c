/* check_tell.c: what a check found, as JSON and as the line that repeats a job. Nothing is decided here: a job's record has all
 * that its fault was judged by, so that whoever reads it elsewhere need not run it again to know. */
#include "lab/check.h"

#include <stdio.h>

char *check_replay(const struct check *c, const struct check_job *j, char *text, size_t size)
{
    char from[300] = "";
    if (c->options.case_file)
        snprintf(from, sizeof from, "--case-file '%.200s'", c->options.case_file);
    else
        snprintf(from, sizeof from, "--op %s --case %s --seed %llu", op_get(c->cases[j->tried].op)->name,
                 c->cases[j->tried].name, (unsigned long long)c->options.seed);
    snprintf(text, size, "hone check --kernel %s --mask %s %s%s%s", c->kernels[j->kernel].name, c->masks[j->mask].name, from,
             c->options.replay ? " " : "", c->options.replay ? c->options.replay : "");
    return text;
}

static const char *status_word(enum trial_status s)
{
    static const char *const words[] = {"not_run", "ok", "unfit", "fault"};
    return words[s];
}

/* JSON has no NaN; one is told as text. */
static json_t *number(double x)
{
    char text[32];
    if (x - x == 0)
        return json_real(x);
    snprintf(text, sizeof text, "%g", x);
    return json_string(text);
}

static void add_perf(json_t *o, const struct check *c, const struct perf_result *p)
{
    double bytes = p->cost.read + p->cost.written, rate = bytes / p->cold_ns * 1e9;
    json_object_set_new(o, "perf",
                        json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "threads", p->threads, "samples", p->samples,
                                  "cold_ns", p->cold_ns, "warm_ns", p->warm_ns, "bytes", bytes, "flops", p->cost.flops,
                                  "bytes_per_second", rate, "share_of_roof", c->roof > 0 ? rate / c->roof : 0,
                                  "flops_per_second", p->cost.flops / p->cold_ns * 1e9));
}

json_t *check_job_json(const struct check *c, const struct check_job *j)
{
    const struct trial_result *r = &j->result;
    const struct check_case *k = &c->cases[j->tried];
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s}", "op", op_get(k->op)->name, "kernel", c->kernels[j->kernel].name, "case",
                          k->name, "mask", c->masks[j->mask].name, "status", status_word(r->status));
    if (r->status == TRIAL_UNFIT || r->status == TRIAL_NOT_RUN)
        json_object_set_new(o, "reason", json_string(r->message));
    if (r->status == TRIAL_OK) {
        json_object_set_new(o, "nmse", number(r->nmse));
        json_object_set_new(o, "tolerance", json_real(r->tolerance));
    }
    if (r->status == TRIAL_FAULT) {
        char replay[512];
        json_object_update_new(o, json_pack("{s:s, s:s, s:i, s:i, s:i, s:s, s:s, s:[I,I,I], s:I, s:o, s:o, s:o, s:f, s:s}",
                                            "fault", fault_word(r->fault), "message", r->message, "threads", r->threads, "call",
                                            r->call, "data", r->data, "layout", r->layout, "tensor", r->tensor, "row",
                                            (json_int_t)r->row[0], (json_int_t)r->row[1], (json_int_t)r->row[2], "column",
                                            (json_int_t)r->column, "got", number(r->got), "want", number(r->want), "nmse",
                                            number(r->nmse), "tolerance", r->tolerance, "replay",
                                            check_replay(c, j, replay, sizeof replay)));
    }
    if (j->perf.samples)
        add_perf(o, c, &j->perf);
    return o;
}

json_t *check_summary_json(const struct check *c)
{
    json_t *masks = json_array(), *untested = json_array();
    for (int m = 0; m < c->n_masks; m++)
        json_array_append_new(masks, json_string(c->masks[m].name));
    for (int k = 0; k < c->n_kernels; k++)
        if (check_untested(c, k))
            json_array_append_new(untested, json_string(c->kernels[k].name));
    char seed[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)c->options.seed); /* a u64 need not fit JSON's integers */
    return json_pack("{s:i, s:s, s:o, s:[i,i,i,i], s:i, s:i, s:i, s:i, s:i, s:o, s:f}", "schema_version", 1, "seed", seed,
                     "masks", masks, "threads", 1, 2, 3, 7, "kernels", c->n_kernels, "ok", c->n_ok, "faults", c->n_faults,
                     "unfit", c->n_unfit, "not_run", c->n_not_run, "untested", untested, "read_roof", c->roof);
}

json_t *check_json(const struct check *c)
{
    json_t *o = check_summary_json(c), *results = json_array();
    for (int i = 0; i < c->n_jobs; i++)
        json_array_append_new(results, check_job_json(c, &c->jobs[i]));
    json_object_set_new(o, "results", results);
    return o;
}
