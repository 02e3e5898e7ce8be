/* quantize.c: out = src[0], f32, packed row by row into another format. A node and not a cache in the kernels that read
 * it (rule 1): three matvecs on one activation are three readers of one node. The reference is the format's own pack, so
 * a kernel may differ from it only where a value lies on the border of two steps. */
#include "ops/quantize.h"
#include "ops/ops.h"

static int quantize_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    if (!rc)
        rc = op_check_format(n, 0, FORMAT_F32, e);
    if (rc)
        return rc;
    int32_t id = node_params(n, struct quantize_params)->format;
    if (id < 0 || id >= N_FORMATS)
        return op_refuse(n, e, "unknown format %d", id);
    if (!format_get((enum format_id)id)->pack)
        return op_refuse(n, e, "%s cannot be written", format_get((enum format_id)id)->name);
    return op_set_out(n, (enum format_id)id, n->src[0]->ne, e);
}

static size_t quantize_scratch(const struct node *n)
{
    return sizeof(float) * (size_t)n->out->ne[0];
}

static void quantize_reference(const struct node *n, const struct worker *w)
{
    int64_t lo, hi, i[3];
    worker_range(w, tensor_rows(n->out), 1, &lo, &hi);
    for (int64_t row = lo; row < hi; row++) {
        tensor_row_index(n->out, row, i);
        tensor_write_row(n->out, i[0], i[1], i[2], tensor_read_row(n->src[0], i[0], i[1], i[2], w->scratch));
    }
}

static struct cost quantize_cost(const struct node *n)
{
    return cost_elementwise(n, 4);
}

static const struct op_case cases[] = {
    {"q8_0_one_row", {{FORMAT_F32, {576}, FILL_NORMAL}}, &(const struct quantize_params){FORMAT_Q8_0}},
    {"q8_0_one_block", {{FORMAT_F32, {32}, FILL_NORMAL}}, &(const struct quantize_params){FORMAT_Q8_0}},
    {"q8_0_rows", {{FORMAT_F32, {1536, 7}, FILL_NORMAL}}, &(const struct quantize_params){FORMAT_Q8_0}},
    {"q8_0_zeros", {{FORMAT_F32, {64, 3}, FILL_ZERO}}, &(const struct quantize_params){FORMAT_Q8_0}},
    {"q8_0_hostile", {{FORMAT_F32, {320, 9}, FILL_HOSTILE}}, &(const struct quantize_params){FORMAT_Q8_0}},
    {"q8_0_padded", {{FORMAT_F32, {96, 4}, FILL_NORMAL, STRIDES_PADDED}}, &(const struct quantize_params){FORMAT_Q8_0}},
    {"q8_0_permuted", {{FORMAT_F32, {64, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}}, &(const struct quantize_params){FORMAT_Q8_0}},
    {"q8_0_transposed", {{FORMAT_F32, {64, 5}, FILL_NORMAL, STRIDES_TRANSPOSED}}, &(const struct quantize_params){FORMAT_Q8_0}},
    {"q8_0_no_rows", {{FORMAT_F32, {64, -1}, FILL_NORMAL}}, &(const struct quantize_params){FORMAT_Q8_0}},
    {"a8_one_row", {{FORMAT_F32, {576}, FILL_NORMAL}}, &(const struct quantize_params){FORMAT_A8}},
    {"a8_one_block", {{FORMAT_F32, {32}, FILL_NORMAL}}, &(const struct quantize_params){FORMAT_A8}},
    {"a8_rows", {{FORMAT_F32, {1536, 7}, FILL_NORMAL}}, &(const struct quantize_params){FORMAT_A8}},
    {"a8_zeros", {{FORMAT_F32, {64, 3}, FILL_ZERO}}, &(const struct quantize_params){FORMAT_A8}},
    {"a8_hostile", {{FORMAT_F32, {320, 9}, FILL_HOSTILE}}, &(const struct quantize_params){FORMAT_A8}},
    {"a8_padded", {{FORMAT_F32, {96, 4}, FILL_NORMAL, STRIDES_PADDED}}, &(const struct quantize_params){FORMAT_A8}},
    {"a8_permuted", {{FORMAT_F32, {64, 3, 5}, FILL_NORMAL, STRIDES_PERMUTED}}, &(const struct quantize_params){FORMAT_A8}},
    {"a8_transposed", {{FORMAT_F32, {64, 6}, FILL_NORMAL, STRIDES_TRANSPOSED}}, &(const struct quantize_params){FORMAT_A8}},
    {"bf16_odd_tail", {{FORMAT_F32, {77, 3}, FILL_NORMAL}}, &(const struct quantize_params){FORMAT_BF16}},
    {"bf16_hostile", {{FORMAT_F32, {300, 3}, FILL_HOSTILE}}, &(const struct quantize_params){FORMAT_BF16}},
    {"f16_odd_tail", {{FORMAT_F32, {77, 3}, FILL_NORMAL}}, &(const struct quantize_params){FORMAT_F16}},
    {"q4_0_rows", {{FORMAT_F32, {160, 5}, FILL_NORMAL}}, &(const struct quantize_params){FORMAT_Q4_0}},
};

static const struct op_param params[] = {{OP_WORD(struct quantize_params, format, format_word)}, {NULL}};

const struct op_desc op_quantize = {
    .name = "quantize",
    .min_src = 1,
    .max_src = 1,
    .params_size = sizeof(struct quantize_params),
    .params = params,
    .shape = quantize_shape,
    .reference = quantize_reference,
    .scratch = quantize_scratch,
    .cost = quantize_cost,
    /* A step of q8_0 is 1/127 of the block's largest value. One value in ten thousand that falls on the other side of a border
     * is 6e-8; a rounding that is wrong on principle (truncation, a scale of 1/128) is 1e-5 and more. */
    .tolerance = 1e-7,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
