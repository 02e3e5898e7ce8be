/* copy.c: src[0] in another format or order; out is contiguous. What moves data between formats, out of views and, between
 * backends, across devices. Float formats convert into each other through f32; i32 copies only into i32, since a token id in
 * f32 would be a fault that nobody meant. */
#include "ops/copy.h"
#include "ops/ops.h"

#include <string.h>

static int copy_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    if (rc)
        return rc;
    int32_t id = node_params(n, struct copy_params)->format;
    char text[128];
    if (id < 0 || id >= N_FORMATS)
        return op_refuse(n, e, "unknown format %d", id);
    const struct format *to = format_get((enum format_id)id);
    if (n->src[0]->format == FORMAT_I32 ? id != FORMAT_I32 || n->src[0]->layout : !to->pack)
        return op_refuse(n, e, "%s cannot become %s", tensor_describe(n->src[0], text, sizeof text), to->name);
    return op_set_out(n, (enum format_id)id, n->src[0]->ne, e);
}

static size_t copy_scratch(const struct node *n)
{
    return sizeof(float) * (size_t)n->out->ne[0];
}

static void copy_indices(const struct tensor *src, const struct tensor *out, const int64_t i[3])
{
    const char *from = tensor_row(src, i[0], i[1], i[2]);
    char *to = tensor_row(out, i[0], i[1], i[2]);
    for (int64_t j = 0; j < out->ne[0]; j++)
        memcpy(to + (size_t)j * out->nb[0], from + (size_t)j * src->nb[0], sizeof(int32_t));
}

static void copy_reference(const struct node *n, const struct worker *w)
{
    const struct tensor *src = n->src[0], *out = n->out;
    int64_t lo, hi, i[3];
    worker_range(w, tensor_rows(out), 1, &lo, &hi);
    for (int64_t row = lo; row < hi; row++) {
        tensor_row_index(out, row, i);
        if (src->format == FORMAT_I32)
            copy_indices(src, out, i);
        else
            tensor_write_row(out, i[0], i[1], i[2], tensor_read_row(src, i[0], i[1], i[2], w->scratch));
    }
}

static struct cost copy_cost(const struct node *n)
{
    return cost_elementwise(n, 0);
}

static const struct op_case cases[] = {
    {"f32_one", {{FORMAT_F32, {1}, FILL_NORMAL}}, &(const struct copy_params){FORMAT_F32}},
    {"f32_odd_tail", {{FORMAT_F32, {77, 3}, FILL_NORMAL}}, &(const struct copy_params){FORMAT_F32}},
    {"f32_permuted", {{FORMAT_F32, {16, 3, 5, 2}, FILL_NORMAL, STRIDES_PERMUTED}}, &(const struct copy_params){FORMAT_F32}},
    {"f32_transposed", {{FORMAT_F32, {16, 5, 3}, FILL_NORMAL, STRIDES_TRANSPOSED}}, &(const struct copy_params){FORMAT_F32}},
    {"f16_from_f32_transposed",
     {{FORMAT_F32, {16, 5, 3}, FILL_NORMAL, STRIDES_TRANSPOSED}},
     &(const struct copy_params){FORMAT_F16}},
    {"i32_transposed", {{FORMAT_I32, {5, 3}, FILL_INDEX, STRIDES_TRANSPOSED, 99}}, &(const struct copy_params){FORMAT_I32}},
    {"f32_padded", {{FORMAT_F32, {50, 4}, FILL_NORMAL, STRIDES_PADDED}}, &(const struct copy_params){FORMAT_F32}},
    {"f32_no_rows", {{FORMAT_F32, {64, -1}, FILL_NORMAL}}, &(const struct copy_params){FORMAT_F32}},
    {"f16_from_f32", {{FORMAT_F32, {131, 3}, FILL_NORMAL}}, &(const struct copy_params){FORMAT_F16}},
    {"f16_from_f32_hostile", {{FORMAT_F32, {300, 3}, FILL_HOSTILE}}, &(const struct copy_params){FORMAT_F16}},
    {"f16_from_f32_permuted",
     {{FORMAT_F32, {33, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}},
     &(const struct copy_params){FORMAT_F16}},
    {"bf16_from_f32", {{FORMAT_F32, {131, 3}, FILL_HOSTILE}}, &(const struct copy_params){FORMAT_BF16}},
    {"f32_from_f16", {{FORMAT_F16, {131, 3}, FILL_NORMAL}}, &(const struct copy_params){FORMAT_F32}},
    {"f32_from_bf16", {{FORMAT_BF16, {131, 3}, FILL_NORMAL, STRIDES_PADDED}}, &(const struct copy_params){FORMAT_F32}},
    {"f32_from_q8_0", {{FORMAT_Q8_0, {96, 5}, FILL_NORMAL}}, &(const struct copy_params){FORMAT_F32}},
    {"f32_from_q4_K", {{FORMAT_Q4_K, {512, 3}, FILL_NORMAL}}, &(const struct copy_params){FORMAT_F32}},
    {"q8_0_from_f32", {{FORMAT_F32, {96, 5}, FILL_NORMAL}}, &(const struct copy_params){FORMAT_Q8_0}},
    {"i32", {{FORMAT_I32, {13, 3}, FILL_INDEX, STRIDES_PLAIN, 1000}}, &(const struct copy_params){FORMAT_I32}},
    {"i32_permuted", {{FORMAT_I32, {5, 3, 4}, FILL_INDEX, STRIDES_PERMUTED, 1000}}, &(const struct copy_params){FORMAT_I32}},
};

static const struct op_param params[] = {{OP_WORD(struct copy_params, format, format_word)}, {NULL}};

const struct op_desc op_copy = {
    .name = "copy",
    .min_src = 1,
    .max_src = 1,
    .params_size = sizeof(struct copy_params),
    .params = params,
    .shape = copy_shape,
    .reference = copy_reference,
    .scratch = copy_scratch,
    .cost = copy_cost,
    /* Rounding to nearest even has one right answer, and a block format's is its own pack: a copy is exact. */
    .tolerance = 0,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
