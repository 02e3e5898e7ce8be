/* mul_mat.c: out[i, t] = sum over k of W[k, i] X[k, t]: the op in which a model spends its time.
 *
 * src[0] W [k, m, b2, b3] in any format and layout; src[1] X [k, n, c2, c3] f32 or a quantised activation; c2 and c3 are
 * multiples of b2 and b3, and batch (t2, t3) reads W's (t2 / (c2 / b2), t3 / (c3 / b3)): neighbours share a matrix, as query
 * heads share a KV head. out f32 [m, n, c2, c3].
 *
 * The reference is also the engine's plain path, so it is written to be quick without ceasing to be plain: a block of tokens is
 * widened to double in scratch, small enough to stay in the second-level cache; rows of W, DOT_ROWS at a time, are unpacked
 * once for the block and multiplied with all its tokens (dot.h). Workers share the rows of W, or the tokens where W has few
 * rows. Each output is one sum in a fixed order whatever the shares and blocks are, so bits depend on neither the threads nor
 * the batch. */
#include "ops/dot.h"
#include "ops/ops.h"

#include <string.h>

/* Widened tokens in a block: to stay in a second-level cache. Half of it cost 7 % of a prefill, by unpacking more often. */
enum { BLOCK_BYTES = 512 << 10 };
enum {
    MIN_TOKENS = 8, /* a block, however long a row is: a multiple of what dot.c takes at once */
    ROW_GRAIN = 16, /* rows of W that stay together: a cache line of the output */
};

/* Tokens a block: at least a few, so that a long row of W is not unpacked for each single one. */
static int64_t block_tokens(const struct node *n)
{
    int64_t k = n->src[0]->ne[0] > 0 ? n->src[0]->ne[0] : 1, tokens = BLOCK_BYTES / (int64_t)sizeof(double) / k;
    tokens = tokens < MIN_TOKENS ? MIN_TOKENS : tokens / MIN_TOKENS * MIN_TOKENS;
    return tokens < n->out->ne[1] ? tokens : n->out->ne[1];
}

static int mul_mat_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    if (!rc)
        rc = op_check_float(n, 0, e);
    if (!rc)
        rc = op_check_float(n, 1, e);
    if (rc)
        return rc;
    const struct tensor *w = n->src[0], *x = n->src[1];
    char a[128], b[128];
    if (w->ne[0] != x->ne[0])
        return op_refuse(n, e, "rows of W %s and X %s differ in length", tensor_describe(w, a, sizeof a),
                         tensor_describe(x, b, sizeof b));
    for (int i = 2; i < MAX_DIMS; i++)
        if (w->ne[i] == 0 ? x->ne[i] != 0 : x->ne[i] % w->ne[i] != 0)
            return op_refuse(n, e, "batches of W %s do not divide those of X %s", tensor_describe(w, a, sizeof a),
                             tensor_describe(x, b, sizeof b));
    return op_set_out(n, FORMAT_F32, (const int64_t[MAX_DIMS]){w->ne[1], x->ne[1], x->ne[2], x->ne[3]}, e);
}

/* A block of tokens and its sums as double; rows of W, or one of X, as f32. */
static size_t mul_mat_scratch(const struct node *n)
{
    size_t k = (size_t)n->src[0]->ne[0], tokens = (size_t)block_tokens(n);
    return tokens * (k + DOT_ROWS) * sizeof(double) + DOT_ROWS * k * sizeof(float);
}

/* Tokens [first, first + count) of X, widened. */
static void widen_tokens(const struct tensor *x, int64_t first, int64_t count, int64_t i2, int64_t i3, double *block,
                         float *room)
{
    int64_t k = x->ne[0];
    for (int64_t t = 0; t < count; t++) {
        const float *values = tensor_read_row(x, first + t, i2, i3, room);
        for (int64_t i = 0; i < k; i++)
            block[t * k + i] = (double)values[i];
    }
}

/* Rows range[0] to range[1] of W times tokens range[2] to range[3] of X, in batch (i2, i3) of the output. */
static void mul_mat_part(const struct node *n, void *scratch, const int64_t range[4], int64_t i2, int64_t i3)
{
    const struct tensor *w = n->src[0], *x = n->src[1], *out = n->out;
    const struct dot *dot = dot_best();
    int64_t k = w->ne[0], tokens = block_tokens(n), w2 = i2 / (x->ne[2] / w->ne[2]), w3 = i3 / (x->ne[3] / w->ne[3]);
    double *block = scratch, *sums = block + tokens * k;
    float *room = (float *)(sums + tokens * DOT_ROWS);
    const float *rows[DOT_ROWS];
    for (int64_t first = range[2]; first < range[3]; first += tokens) {
        int64_t count = range[3] - first < tokens ? range[3] - first : tokens;
        widen_tokens(x, first, count, i2, i3, block, room);
        for (int64_t i = range[0]; i < range[1]; i += DOT_ROWS) {
            int n_rows = range[1] - i < DOT_ROWS ? (int)(range[1] - i) : DOT_ROWS;
            for (int r = 0; r < n_rows; r++)
                rows[r] = tensor_read_row(w, i + r, w2, w3, room + r * k);
            dot->block(rows, n_rows, block, k, count, k, sums);
            for (int64_t t = 0; t < count; t++)
                for (int r = 0; r < n_rows; r++) {
                    float value = (float)sums[t * DOT_ROWS + r];
                    char *row = tensor_row(out, first + t, i2, i3);
                    memcpy(row + (size_t)(i + r) * out->nb[0], &value, sizeof value);
                }
        }
    }
}

static void mul_mat_reference(const struct node *n, const struct worker *w)
{
    const struct tensor *out = n->out;
    if (tensor_elements(out) == 0)
        return;
    int64_t range[4] = {0, out->ne[0], 0, out->ne[1]};
    if (out->ne[0] >= (int64_t)ROW_GRAIN * w->nth)
        worker_range(w, out->ne[0], ROW_GRAIN, &range[0], &range[1]);
    else if (out->ne[0] >= out->ne[1])
        worker_range(w, out->ne[0], 1, &range[0], &range[1]);
    else
        worker_range(w, out->ne[1], 1, &range[2], &range[3]);
    if (range[0] == range[1] || range[2] == range[3])
        return;
    for (int64_t i3 = 0; i3 < out->ne[3]; i3++)
        for (int64_t i2 = 0; i2 < out->ne[2]; i2++)
            mul_mat_part(n, w->scratch, range, i2, i3);
}

static struct cost mul_mat_cost(const struct node *n)
{
    return cost_elementwise(n, 2 * (double)n->src[0]->ne[0]);
}

/* The row of i32, a format that no weight has, becomes one more of f32. 512 is a multiple of every block. */
#define WEIGHT(NAME) (FORMAT_##NAME == FORMAT_I32 ? FORMAT_F32 : FORMAT_##NAME)
#define FORMAT(NAME, name)                                                                                                     \
    {"decode_" #name, {{WEIGHT(NAME), {512, 37}, FILL_NORMAL}, {FORMAT_F32, {512, 1}, FILL_NORMAL}}, NULL},                    \
        {"batch_" #name, {{WEIGHT(NAME), {512, 35}, FILL_NORMAL}, {FORMAT_F32, {512, 7}, FILL_NORMAL}}, NULL},                 \
        {"wide_" #name, {{WEIGHT(NAME), {2560, 64}, FILL_NORMAL}, {FORMAT_F32, {2560, 2}, FILL_NORMAL}}, NULL},                \
        {"one_row_" #name, {{WEIGHT(NAME), {256, 1}, FILL_NORMAL}, {FORMAT_F32, {256, 3}, FILL_NORMAL}}, NULL},                \
        {"padded_" #name,                                                                                                      \
         {{WEIGHT(NAME), {256, 19}, FILL_NORMAL, STRIDES_PADDED}, {FORMAT_F32, {256, 5}, FILL_NORMAL, STRIDES_PADDED}},        \
         NULL},                                                                                                                \
        {"hostile_" #name, {{WEIGHT(NAME), {512, 33}, FILL_HOSTILE}, {FORMAT_F32, {512, 4}, FILL_HOSTILE}}, NULL},             \
        {"prompt_" #name, {{WEIGHT(NAME), {512, 130}, FILL_NORMAL}, {FORMAT_F32, {512, 40}, FILL_NORMAL}}, NULL},

static const struct op_case cases[] = {
#include "formats/formats.def"
    {"one", {{FORMAT_F32, {1, 1}, FILL_NORMAL}, {FORMAT_F32, {1, 1}, FILL_NORMAL}}, NULL},
    {"odd_tail", {{FORMAT_F32, {77, 13}, FILL_NORMAL}, {FORMAT_F32, {77, 5}, FILL_NORMAL}}, NULL},
    {"odd_tail_f16", {{FORMAT_F16, {333, 13}, FILL_NORMAL}, {FORMAT_F32, {333, 5}, FILL_NORMAL}}, NULL},
    {"odd_tail_bf16", {{FORMAT_BF16, {45, 3}, FILL_NORMAL}, {FORMAT_F32, {45, 1}, FILL_NORMAL}}, NULL},
    {"odd_blocks_q8_0", {{FORMAT_Q8_0, {32 * 7, 13}, FILL_NORMAL}, {FORMAT_F32, {32 * 7, 5}, FILL_NORMAL}}, NULL},
    {"odd_blocks_q4_1", {{FORMAT_Q4_1, {576, 9}, FILL_NORMAL}, {FORMAT_F32, {576, 3}, FILL_NORMAL}}, NULL},
    {"one_block_q4_0", {{FORMAT_Q4_0, {32, 9}, FILL_NORMAL}, {FORMAT_F32, {32, 3}, FILL_NORMAL}}, NULL},
    {"no_tokens", {{FORMAT_F32, {64, 13}, FILL_NORMAL}, {FORMAT_F32, {64, -1}, FILL_NORMAL}}, NULL},
    {"few_rows", {{FORMAT_F32, {96, 5}, FILL_NORMAL}, {FORMAT_F32, {96, 130}, FILL_NORMAL}}, NULL},
    {"many_tokens", {{FORMAT_Q8_0, {576, 40}, FILL_NORMAL}, {FORMAT_F32, {576, 129}, FILL_NORMAL}}, NULL},
    {"long_prompt_q4_0", {{FORMAT_Q4_0, {2560, 300}, FILL_NORMAL}, {FORMAT_F32, {2560, 150}, FILL_NORMAL}}, NULL},
    {"long_prompt_q4_K", {{FORMAT_Q4_K, {2048, 70}, FILL_NORMAL}, {FORMAT_F32, {2048, 260}, FILL_NORMAL}}, NULL},
    {"long_prompt_q6_K", {{FORMAT_Q6_K, {1792, 257}, FILL_NORMAL}, {FORMAT_F32, {1792, 97}, FILL_NORMAL}}, NULL},
    {"hostile_prompt_q4_0", {{FORMAT_Q4_0, {512, 33}, FILL_HOSTILE}, {FORMAT_F32, {512, 64}, FILL_HOSTILE}}, NULL},
    {"hostile_prompt_q5_K", {{FORMAT_Q5_K, {512, 33}, FILL_HOSTILE}, {FORMAT_F32, {512, 64}, FILL_HOSTILE}}, NULL},
    {"prompt_of_one_row", {{FORMAT_Q8_0, {512, 1}, FILL_NORMAL}, {FORMAT_F32, {512, 64}, FILL_NORMAL}}, NULL},
    {"long_row", {{FORMAT_F32, {20011, 3}, FILL_NORMAL}, {FORMAT_F32, {20011, 11}, FILL_NORMAL}}, NULL},
    {"batches", {{FORMAT_F32, {40, 6, 3, 2}, FILL_NORMAL}, {FORMAT_F32, {40, 5, 3, 2}, FILL_NORMAL}}, NULL},
    {"shared_batches", {{FORMAT_F16, {40, 6, 2}, FILL_NORMAL}, {FORMAT_F32, {40, 5, 6, 2}, FILL_NORMAL}}, NULL},
    {"transposed",
     {{FORMAT_F32, {45, 19}, FILL_NORMAL, STRIDES_TRANSPOSED}, {FORMAT_F32, {45, 6}, FILL_NORMAL, STRIDES_TRANSPOSED}},
     NULL},
    {"transposed_f16", {{FORMAT_F16, {64, 19}, FILL_NORMAL, STRIDES_TRANSPOSED}, {FORMAT_F32, {64, 3}, FILL_NORMAL}}, NULL},
    {"permuted",
     {{FORMAT_F32, {48, 6, 3}, FILL_NORMAL, STRIDES_PERMUTED}, {FORMAT_F32, {48, 5, 3}, FILL_NORMAL, STRIDES_PERMUTED}},
     NULL},
    {"activation_q8_0", {{FORMAT_Q4_0, {512, 37}, FILL_NORMAL}, {FORMAT_Q8_0, {512, 3}, FILL_NORMAL}}, NULL},
    {"activation_bf16", {{FORMAT_BF16, {320, 37}, FILL_NORMAL}, {FORMAT_BF16, {320, 3}, FILL_NORMAL}}, NULL},
};
#undef FORMAT

const struct op_desc op_mul_mat = {
    .name = "mul_mat",
    .min_src = 2,
    .max_src = 2,
    .shape = mul_mat_shape,
    .reference = mul_mat_reference,
    .scratch = mul_mat_scratch,
    .cost = mul_mat_cost,
    /* Of k products summed in f32 in one lane, the partial sums' roundings are a random walk: k/2 steps of 3e-8 of the sum,
     * squared 1e-11 for k = 20,000; several lanes err less. A product left out of 4,096 is 2e-4. */
    .tolerance = 1e-10,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
