/* outline.c: a dry session's decode plan, summed by op, format and kernel. */
#include "lab/outline.h"

#include <string.h>

static json_t *row_of(json_t *rows, const char *kernel, const char *format)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        if (!strcmp(json_string_value(json_object_get(row, "kernel")), kernel) &&
            !strcmp(json_string_value(json_object_get(row, "format")), format))
            return row;
    }
    return NULL;
}

static void add_step(json_t *rows, const struct step *s)
{
    char kernel[128];
    kernel_name(s->backend, s->kernel, kernel, sizeof kernel);
    const char *format = format_get(s->node->src[0]->format)->name;
    json_t *row = row_of(rows, kernel, format);
    if (row) {
        json_object_set_new(row, "nodes", json_integer(json_integer_value(json_object_get(row, "nodes")) + 1));
        return;
    }
    json_t *passed = json_array();
    for (int i = 0; i < s->n_passed; i++)
        json_array_append_new(passed, json_pack("{s:s, s:s}", "variant", s->passed[i].kernel->variant, "reason", s->passed[i].reason.text));
    json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:i, s:s, s:o}", "op", op_get(s->node->op)->name, "format", format, "kernel", kernel,
                                          "nodes", 1, "reason", s->gate ? s->gate->text : "the fastest that fits", "passed_over", passed));
}

json_t *outline(const struct hone_model *m, struct hone_error *e)
{
    struct hone_session *s;
    struct hone_session_params p = hone_session_defaults();
    const struct plan *plan;
    p.n_ctx = m->model->n_ctx_train < 256 ? m->model->n_ctx_train : 256;
    p.n_threads = 1;
    if (hone_session_create(&s, m, &p, e))
        return NULL;
    session_set_dry(s);
    json_t *rows = NULL;
    if (!session_plan(s, 1, 1, &plan, e)) {
        rows = json_array();
        for (int i = 0; i < plan->n_steps; i++)
            add_step(rows, &plan->steps[i]);
    }
    hone_session_free(s);
    return rows ? json_pack("{s:o}", "decode", rows) : NULL;
}
