/* mul_mat_id.c: out[i, j, t] = sum over k of W[k, i, ids[j, t]] X[k, j', t] + bias[i, ids[j, t]]: each token's products with the few
 * experts that it was sent to.
 *
 * src[0] W [k, m, n_expert] in any format and layout; src[1] X [k, 1 or n_used, n_tokens] f32 or a quantised activation: one row that
 * all of a token's experts read, or a row each; src[2] ids i32 [n_used, n_tokens]; src[3], optional, bias f32 [m, n_expert]. out f32
 * [m, n_used, n_tokens]. An id that is no expert gives a row of zeros.
 *
 * The reference takes one expert after the other, so that a row of W is unpacked once for all tokens that were sent there
 * (dot.h, as in mul_mat.c). Workers share the rows of W. */
#include "ops/dot.h"
#include "ops/ops.h"

#include <string.h>

enum { CHUNK = 16 }; /* tokens of one expert at a time */

static int mul_mat_id_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    for (int i = 0; i < 2 && !rc; i++)
        rc = op_check_float(n, i, e);
    if (!rc)
        rc = op_check_format(n, 2, FORMAT_I32, e);
    const struct tensor *w = n->src[0], *x = n->src[1], *ids = n->src[2], *bias = n->n_src > 3 ? n->src[3] : NULL;
    if (!rc && bias)
        rc = op_check_format(n, 3, FORMAT_F32, e);
    if (rc)
        return rc;
    char a[128], b[128];
    if (w->ne[0] != x->ne[0])
        return op_refuse(n, e, "rows of W %s and X %s differ in length", tensor_describe(w, a, sizeof a), tensor_describe(x, b, sizeof b));
    if (w->ne[3] != 1 || x->ne[3] != 1 || ids->ne[2] != 1 || ids->ne[3] != 1 || x->ne[2] != ids->ne[1] ||
        (x->ne[1] != 1 && x->ne[1] != ids->ne[0]))
        return op_refuse(n, e, "X %s has neither one row nor one an expert for each token of ids %s", tensor_describe(x, a, sizeof a),
                         tensor_describe(ids, b, sizeof b));
    if (bias && (bias->ne[0] != w->ne[1] || bias->ne[1] != w->ne[2] || bias->ne[2] != 1 || bias->ne[3] != 1))
        return op_refuse(n, e, "the bias %s is not one of W %s", tensor_describe(bias, a, sizeof a), tensor_describe(w, b, sizeof b));
    return op_set_out(n, FORMAT_F32, (const int64_t[MAX_DIMS]){w->ne[1], ids->ne[0], ids->ne[1], 1}, e);
}

static size_t mul_mat_id_scratch(const struct node *n)
{
    size_t k = (size_t)n->src[0]->ne[0];
    return CHUNK * (k + DOT_ROWS) * sizeof(double) + (DOT_ROWS + 1) * k * sizeof(float);
}

static void put(const struct tensor *out, int64_t i, int64_t j, int64_t t, float value)
{
    memcpy((char *)tensor_row(out, 0, 0, 0) + (size_t)i * out->nb[0] + (size_t)j * out->nb[1] + (size_t)t * out->nb[2], &value, sizeof value);
}

static float bias_of(const struct node *n, int64_t i, int64_t expert)
{
    const struct tensor *bias = n->n_src > 3 ? n->src[3] : NULL;
    float value = 0;
    if (bias)
        memcpy(&value, (const char *)tensor_row(bias, expert, 0, 0) + (size_t)i * bias->nb[0], sizeof value);
    return value;
}

/* Rows lo to hi of one expert times `count` tokens, numbers of (j, t) in list. */
static void expert_part(const struct node *n, int64_t expert, const int64_t *list, int64_t count, int64_t lo, int64_t hi, void *scratch)
{
    const struct tensor *w = n->src[0], *x = n->src[1], *out = n->out;
    const struct dot *dot = dot_best();
    int64_t k = w->ne[0], used = out->ne[1];
    double *block = scratch, *sums = block + CHUNK * k;
    float *room = (float *)(sums + CHUNK * DOT_ROWS), *x_room = room + DOT_ROWS * k;
    const float *rows[DOT_ROWS];
    for (int64_t c = 0; c < count; c++) {
        const float *values = tensor_read_row(x, x->ne[1] == 1 ? 0 : list[c] % used, list[c] / used, 0, x_room);
        for (int64_t i = 0; i < k; i++)
            block[c * k + i] = (double)values[i];
    }
    for (int64_t i = lo; i < hi; i += DOT_ROWS) {
        int n_rows = hi - i < DOT_ROWS ? (int)(hi - i) : DOT_ROWS;
        for (int r = 0; r < n_rows; r++)
            rows[r] = tensor_read_row(w, i + r, expert, 0, room + r * k);
        dot->block(rows, n_rows, block, k, count, k, sums);
        for (int64_t c = 0; c < count; c++)
            for (int r = 0; r < n_rows; r++)
                put(out, i + r, list[c] % used, list[c] / used, (float)(sums[c * DOT_ROWS + r] + (double)bias_of(n, i + r, expert)));
    }
}

static void mul_mat_id_reference(const struct node *n, const struct worker *w)
{
    const struct tensor *out = n->out, *ids = n->src[2];
    int64_t lo, hi, pairs = out->ne[1] * out->ne[2], list[CHUNK];
    worker_range(w, out->ne[0], DOT_ROWS, &lo, &hi);
    if (lo == hi)
        return;
    for (int64_t p = 0; p < pairs; p++) {
        int64_t id = tensor_read_index(ids, p % out->ne[1], p / out->ne[1]);
        if (id < 0 || id >= n->src[0]->ne[2])
            for (int64_t i = lo; i < hi; i++)
                put(out, i, p % out->ne[1], p / out->ne[1], 0);
    }
    for (int64_t expert = 0; expert < n->src[0]->ne[2]; expert++) {
        int64_t count = 0;
        for (int64_t p = 0; p < pairs; p++) {
            if (tensor_read_index(ids, p % out->ne[1], p / out->ne[1]) == expert)
                list[count++] = p;
            if (count == CHUNK || (count && p + 1 == pairs)) {
                expert_part(n, expert, list, count, lo, hi, w->scratch);
                count = 0;
            }
        }
    }
}

/* The experts that can be read at most: no more than there are, no more than tokens were sent to. */
static struct cost mul_mat_id_cost(const struct node *n)
{
    double experts = (double)n->src[0]->ne[2], pairs = (double)(n->out->ne[1] * n->out->ne[2]);
    double share = experts > 0 ? (pairs < experts ? pairs : experts) / experts : 0;
    struct cost c = {.read = op_stored_bytes(n->src[1]) + op_stored_bytes(n->src[2]), .written = op_stored_bytes(n->out)};
    c.read += share * (op_stored_bytes(n->src[0]) + (n->n_src > 3 && n->src[3] ? op_stored_bytes(n->src[3]) : 0));
    c.flops = 2 * (double)n->src[0]->ne[0] * (double)tensor_elements(n->out);
    return c;
}

#define W(fmt, k, m, e)    {FORMAT_##fmt, {k, m, e}, FILL_NORMAL}
#define X(k, rows, t)      {FORMAT_F32, {k, rows, t}, FILL_NORMAL}
#define IDS(used, t, e)    {FORMAT_I32, {used, t}, FILL_INDEX, STRIDES_PLAIN, e}
#define BIAS(m, e)         {FORMAT_F32, {m, e}, FILL_NORMAL}
#define WEIGHT(NAME)       (FORMAT_##NAME == FORMAT_I32 ? FORMAT_F32 : FORMAT_##NAME)
#define FORMAT(NAME, name)                                                                                                     \
    {"decode_" #name, {{WEIGHT(NAME), {256, 48, 5}, FILL_NORMAL}, X(256, 1, 1), IDS(2, 1, 5)}, NULL},                            \
        {"batch_" #name, {{WEIGHT(NAME), {256, 32, 5}, FILL_NORMAL}, X(256, 2, 9), IDS(2, 9, 5)}, NULL},

static const struct op_case cases[] = {
#include "formats/formats.def"
    {"one", {W(F32, 1, 1, 1), X(1, 1, 1), IDS(1, 1, 1)}, NULL},
    {"odd", {W(F32, 77, 13, 3), X(77, 1, 5), IDS(2, 5, 3)}, NULL},
    {"odd_rows_q8_0", {W(Q8_0, 64, 19, 4), X(64, 3, 5), IDS(3, 5, 4)}, NULL},
    {"bias", {W(Q8_0, 96, 32, 4), X(96, 1, 5), IDS(2, 5, 4), BIAS(32, 4)}, NULL},
    {"bias_mxfp4", {W(MXFP4, 96, 48, 4), X(96, 2, 1), IDS(2, 1, 4), BIAS(48, 4)}, NULL},
    {"bias_f32", {W(F32, 40, 9, 4), X(40, 1, 3), IDS(2, 3, 4), BIAS(9, 4)}, NULL},
    {"same_expert", {W(Q4_0, 64, 32, 1), X(64, 1, 40), IDS(2, 40, 1)}, NULL},
    {"many_tokens", {W(Q4_K, 256, 64, 3), X(256, 1, 100), IDS(2, 100, 3)}, NULL},
    {"many_experts", {W(Q4_0, 64, 32, 128), X(64, 1, 7), IDS(8, 7, 128)}, NULL},
    {"beyond", {W(Q4_0, 64, 32, 4), X(64, 1, 9), IDS(2, 9, 6)}, NULL},
    {"no_tokens", {W(F32, 64, 13, 2), X(64, 1, -1), IDS(2, -1, 2)}, NULL},
    {"hostile", {{FORMAT_Q8_0, {128, 32, 3}, FILL_HOSTILE}, {FORMAT_F32, {128, 1, 9}, FILL_HOSTILE}, IDS(2, 9, 3)}, NULL},
    {"padded", {{FORMAT_F32, {40, 9, 3}, FILL_NORMAL, STRIDES_PADDED}, {FORMAT_F32, {40, 2, 5}, FILL_NORMAL, STRIDES_PADDED}, IDS(2, 5, 3)}, NULL},
    {"permuted", {{FORMAT_F32, {40, 9, 3}, FILL_NORMAL, STRIDES_PERMUTED}, {FORMAT_F32, {40, 2, 5}, FILL_NORMAL, STRIDES_PERMUTED}, IDS(2, 5, 3)}, NULL},
};
#undef FORMAT
#undef X
#undef W

const struct op_desc op_mul_mat_id = {
    .name = "mul_mat_id",
    .min_src = 3,
    .max_src = 4,
    .shape = mul_mat_id_shape,
    .reference = mul_mat_id_reference,
    .scratch = mul_mat_id_scratch,
    .cost = mul_mat_id_cost,
    .tolerance = 1e-10, /* that of mul_mat */
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
