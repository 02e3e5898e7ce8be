/* outline.c: a dry session's decode plan, summed by op, format and kernel. */
#include "lab/outline.h"

#include "engine/kv.h"

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

/* Bytes of the weights that the step reads, each once; of a table whose rows are looked up, the rows. */
static double weight_bytes(const struct plan *plan, const struct model *m)
{
    double bytes = 0;
    for (int i = 0; i < m->n_weights; i++) {
        const struct tensor *w = m->weights[i];
        double most = 0;
        for (int j = 0; j < plan->n_steps; j++) {
            const struct node *n = plan->steps[j].node;
            for (int k = 0; k < n->n_src; k++) {
                if (!n->src[k] || (n->src[k] != w && n->src[k]->base != w))
                    continue;
                double read = n->op == OP_GET_ROWS ? op_stored_bytes(w) / (double)tensor_rows(w) * (double)n->out->ne[1] : op_stored_bytes(w);
                most = read > most ? read : most;
            }
        }
        bytes += most;
    }
    return bytes;
}

static json_t *sizes(const struct plan *plan, const struct model *m)
{
    double conv = 0, delta = 0;
    for (int i = 0; i < m->n_layer; i++) {
        const struct layer_memory *y = &m->memory[i];
        conv += 4.0 * y->conv_rows * y->conv_channels;
        delta += 4.0 * y->n_state_head * y->state_dim_k * y->state_dim_v;
    }
    return json_pack("{s:I, s:I, s:s, s:I, s:I}", "weight_bytes_per_token", (json_int_t)weight_bytes(plan, m), "kv_bytes_per_position",
                     (json_int_t)kv_bytes(m, FORMAT_F16, FORMAT_F16, 1), "kv_format", "f16", "delta_state_bytes", (json_int_t)delta,
                     "conv_state_bytes", (json_int_t)conv);
}

json_t *outline(const struct hone_model *m, struct hone_error *e)
{
    struct hone_session *s;
    struct hone_session_params p = hone_session_defaults();
    const struct plan *plan;
    p.n_ctx = m->model->n_ctx_train < 256 ? m->model->n_ctx_train : 256;
    p.n_threads = 1;
    p.n_snapshots = 1;
    if (hone_session_create(&s, m, &p, e))
        return NULL;
    session_set_dry(s);
    json_t *rows = NULL, *memory = NULL;
    if (!session_plan(s, 1, 1, &plan, e)) {
        rows = json_array();
        for (int i = 0; i < plan->n_steps; i++)
            add_step(rows, &plan->steps[i]);
        memory = sizes(plan, m->model);
    }
    hone_session_free(s);
    return rows ? json_pack("{s:o, s:o, s:s}", "decode", rows, "sizes", memory, "left_out", m->model->left_out) : NULL;
}
