/* fuse_cases.c: the graphs behind fuse_cases.h. One builder for each kind of graph (norms, products, ropes) and a table of rows
 * for it: shapes of real models, odd tails, one token and several, values that others read too, each weight format.
 *
 * Cases as data, in the manner of an op's, were the alternative; but a fused node is what the pattern makes of its parts, with
 * sources in an order and readers outside, and the honest way to get one is to let the fusion fire. */
#include "graph/fuse_cases.h"

#include "ops/attention.h"
#include "ops/gated_delta_rule.h"
#include "ops/glu.h"
#include "ops/l2_norm.h"
#include "ops/quantize.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/scale.h"
#include "ops/view.h"

#include <stdio.h>
#include <string.h>

static struct tensor *leaf(struct fuse_case *c, enum tensor_kind kind, const char *name, struct case_src spec)
{
    struct graph *g = &c->graph;
    for (int i = 0; i < MAX_DIMS; i++)
        spec.ne[i] += spec.ne[i] == 0;
    struct tensor *t = graph_input(g, name, spec.format, MAX_DIMS, spec.ne);
    if (!t)
        return NULL;
    INVARIANT(c->n_leaves < FUSE_MAX_LEAVES);
    t->kind = kind;
    c->leaves[c->n_leaves++] = (struct fuse_leaf){t, spec};
    return t;
}

#define LEAF(kind, name, format, fill, limit, ...)                                                                             \
    leaf(c, TENSOR_##kind, name, (struct case_src){format, {__VA_ARGS__}, FILL_##fill, STRIDES_PLAIN, limit})

/* A reader outside of the match, behind it. */
static void read_elsewhere(struct fuse_case *c, struct tensor *t)
{
    graph_op(&c->graph, OP_SCALE, (&(struct scale_params){.scale = 2}), t);
}

static struct tensor *quantized(struct fuse_case *c, struct tensor *t, enum format_id format)
{
    return graph_op(&c->graph, OP_QUANTIZE, (&(struct quantize_params){.format = (int32_t)format}), t);
}

/* ---- norms */

struct norm_case {
    const char *name;
    int64_t width, rows, more;
    float eps;
    enum fill fill;
    bool add, sum_read, product_read, norm_read;
    bool collective; /* x is a sum over the ranks */
    enum format_id format; /* F32: not quantised */
};

static void build_norm_case(struct fuse_case *c, const void *spec)
{
    const struct norm_case *s = spec;
    struct graph *g = &c->graph;
    struct case_src x = {FORMAT_F32, {s->width, s->rows, s->more}, s->fill, STRIDES_PLAIN, 0};
    struct tensor *a = leaf(c, TENSOR_INPUT, "x", x), *b = s->add ? leaf(c, TENSOR_INPUT, "residual", x) : NULL;
    struct tensor *w = LEAF(WEIGHT, "norm.weight", FORMAT_F32, NORMAL, 0, s->width);
    a = s->collective ? graph_op(g, OP_ALL_REDUCE, NULL, a) : a;
    struct tensor *sum = s->add ? graph_op(g, OP_ADD, NULL, a, b) : a;
    struct tensor *norm = graph_op(g, OP_RMS_NORM, (&(struct rms_norm_params){s->eps}), sum);
    struct tensor *product = graph_op(g, OP_MUL, NULL, norm, w);
    if (s->format != FORMAT_F32)
        quantized(c, product, s->format);
    if (s->sum_read)
        read_elsewhere(c, sum);
    if (s->norm_read)
        read_elsewhere(c, norm);
    if (s->product_read)
        read_elsewhere(c, product);
}

static const struct norm_case rms_norm_mul_cases[] = {
    {"one", 1, 1, 1, 1e-5f, FILL_NORMAL},
    {"decode_576", 576, 1, 1, 1e-5f, FILL_NORMAL},
    {"decode_5120", 5120, 1, 1, 1e-6f, FILL_NORMAL},
    {"batch_640", 640, 7, 1, 1e-6f, FILL_NORMAL},
    {"heads_256", 256, 4, 5, 1e-6f, FILL_NORMAL},
    {"heads_64", 64, 9, 3, 1e-6f, FILL_NORMAL},
    {"odd_tail", 1001, 3, 1, 1e-5f, FILL_NORMAL},
    {"narrow", 5, 4, 1, 1e-5f, FILL_NORMAL},
    {"norm_read_too", 77, 3, 1, 1e-5f, FILL_NORMAL, .norm_read = true},
    {"zeros", 96, 2, 1, 1e-6f, FILL_ZERO},
    {"hostile", 300, 9, 1, 1e-5f, FILL_HOSTILE},
};

static const struct norm_case add_rms_norm_mul_cases[] = {
    {"one", 1, 1, 1, 1e-5f, FILL_NORMAL, .add = true},
    {"decode_576", 576, 1, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true},
    {"decode_2048", 2048, 1, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true},
    {"batch_576", 576, 7, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true},
    {"sum_not_read", 640, 3, 1, 1e-6f, FILL_NORMAL, .add = true},
    {"all_read", 130, 3, 1, 1e-6f, FILL_NORMAL, .add = true, .sum_read = true, .norm_read = true},
    {"odd_tail", 1001, 3, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true},
    {"hostile", 300, 9, 1, 1e-5f, FILL_HOSTILE, .add = true, .sum_read = true},
};

static const struct norm_case norm_quantize_cases[] = {
    {"decode_576_a8", 576, 1, 1, 1e-5f, FILL_NORMAL, .format = FORMAT_A8},
    {"batch_576_a8", 576, 7, 1, 1e-5f, FILL_NORMAL, .format = FORMAT_A8},
    {"one_block_a8", 32, 3, 1, 1e-5f, FILL_NORMAL, .format = FORMAT_A8},
    {"product_read_a8", 640, 3, 1, 1e-6f, FILL_NORMAL, .product_read = true, .format = FORMAT_A8},
    {"zeros_a8", 96, 2, 1, 1e-6f, FILL_ZERO, .format = FORMAT_A8},
    {"hostile_a8", 320, 9, 1, 1e-5f, FILL_HOSTILE, .format = FORMAT_A8},
    {"batch_q8_0", 160, 5, 1, 1e-5f, FILL_NORMAL, .format = FORMAT_Q8_0},
    {"batch_bf16", 77, 5, 1, 1e-5f, FILL_NORMAL, .format = FORMAT_BF16},
    {"add_decode_576_a8", 576, 1, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true, .format = FORMAT_A8},
    {"add_decode_2048_a8", 2048, 1, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true, .format = FORMAT_A8},
    {"add_batch_2048_a8", 2048, 5, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true, .format = FORMAT_A8},
    {"add_sum_not_read_a8", 96, 3, 1, 1e-5f, FILL_NORMAL, .add = true, .format = FORMAT_A8},
    {"add_all_read_a8", 96, 3, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true, .product_read = true, .norm_read = true,
     .format = FORMAT_A8},
    {"ranks_decode_576_a8", 576, 1, 1, 1e-5f, FILL_NORMAL, .collective = true, .add = true, .sum_read = true, .format = FORMAT_A8},
    {"ranks_batch_2048_a8", 2048, 5, 1, 1e-5f, FILL_NORMAL, .collective = true, .add = true, .sum_read = true, .format = FORMAT_A8},
    {"ranks_sum_not_read_a8", 96, 3, 1, 1e-5f, FILL_NORMAL, .collective = true, .add = true, .format = FORMAT_A8},
    {"ranks_all_read_q8_0", 320, 3, 1, 1e-5f, FILL_HOSTILE, .collective = true, .add = true, .sum_read = true, .product_read = true, .format = FORMAT_Q8_0},
    {"add_batch_q8_0", 160, 5, 1, 1e-5f, FILL_NORMAL, .add = true, .sum_read = true, .format = FORMAT_Q8_0},
};

/* ---- products of one activation */

struct product_case {
    const char *name;
    enum format_id format[4]; /* of the weights */
    int64_t k, m[4], n;       /* rows of the weights, tokens; m[i] 0: no further weight */
    enum unary_kind kind;
    bool read; /* the first product, or the sum, is read elsewhere too */
    bool up_first, quantize;
    bool residual; /* of mlp and linear: an add follows; of products of a norm: the norm is read elsewhere too */
};

static struct tensor *product(struct fuse_case *c, const struct product_case *s, int i, struct tensor *x)
{
    char name[24];
    snprintf(name, sizeof name, "w%d.weight", i);
    struct case_src w = {s->format[i], {s->k, s->m[i]}, FILL_NORMAL, STRIDES_PLAIN, 0};
    return graph_op(&c->graph, OP_MUL_MAT, NULL, leaf(c, TENSOR_WEIGHT, name, w), x);
}

static void build_group_case(struct fuse_case *c, const void *spec)
{
    const struct product_case *s = spec;
    struct tensor *x = LEAF(INPUT, "x", FORMAT_F32, NORMAL, 0, s->k, s->n), *y[4] = {NULL};
    for (int i = 0; i < 4 && s->m[i]; i++)
        y[i] = product(c, s, i, x);
    for (int i = 0; i < 4 && y[i]; i++)
        read_elsewhere(c, y[i]);
}

static void build_mul_mat_add_case(struct fuse_case *c, const void *spec)
{
    const struct product_case *s = spec;
    struct graph *g = &c->graph;
    struct tensor *x = LEAF(INPUT, "x", FORMAT_F32, NORMAL, 0, s->k, s->n);
    struct tensor *residual = LEAF(INPUT, "residual", FORMAT_F32, NORMAL, 0, s->m[0], s->n), *y = product(c, s, 0, x);
    if (s->up_first)
        graph_op(g, OP_ADD, NULL, residual, y);
    else
        graph_op(g, OP_ADD, NULL, y, residual);
    if (s->read)
        read_elsewhere(c, y);
}

static void build_glu_case(struct fuse_case *c, const void *spec)
{
    const struct product_case *s = spec;
    struct graph *g = &c->graph;
    struct tensor *x = LEAF(INPUT, "x", FORMAT_F32, NORMAL, 0, s->k, s->n);
    struct tensor *first = product(c, s, 0, x), *second = product(c, s, 1, x);
    struct glu_params params = {.kind = (int32_t)s->kind};
    struct tensor *y = graph_op(g, OP_GLU, &params, s->up_first ? second : first, s->up_first ? first : second);
    if (s->quantize)
        quantized(c, y, FORMAT_A8);
    if (s->read)
        read_elsewhere(c, s->quantize ? y : first);
}

/* Every format that a file can hold, one token and several; k is a multiple of every block. */
#define IS_WEIGHT(NAME) (FORMAT_##NAME != FORMAT_I32 && FORMAT_##NAME != FORMAT_A8)
#define WEIGHT(NAME)    (IS_WEIGHT(NAME) ? FORMAT_##NAME : FORMAT_F32)

static const struct product_case mul_mat_group_cases[] = {
#define FORMAT(NAME, name)                                                                                                     \
    {                                                                                                                          \
        "three_decode_" #name,                                                                                                 \
        {WEIGHT(NAME), WEIGHT(NAME), WEIGHT(NAME)},                                                                            \
        256,                                                                                                                   \
        {48, 16, 16},                                                                                                          \
        1,                                                                                                                     \
        UNARY_SILU,                                                                                                            \
        false,                                                                                                                 \
        false,                                                                                                                 \
        false},                                                                                                                \
        {"two_batch_" #name, {WEIGHT(NAME), WEIGHT(NAME)}, 256, {35, 19}, 5, UNARY_SILU, false, false, false},
#include "formats/formats.def"
#undef FORMAT
    {"mixed_decode", {FORMAT_Q4_K, FORMAT_Q4_K, FORMAT_Q6_K}, 512, {64, 32, 32}, 1, UNARY_SILU, false, false, false},
    {"mixed_batch", {FORMAT_Q4_0, FORMAT_Q8_0, FORMAT_Q4_0}, 512, {64, 32, 32}, 9, UNARY_SILU, false, false, false},
    {"four_decode", {FORMAT_Q4_0, FORMAT_Q4_0, FORMAT_Q4_0, FORMAT_Q4_0}, 512, {96, 48, 6, 6}, 1, UNARY_SILU, false, false, false},
    {"four_batch", {FORMAT_Q4_K, FORMAT_Q6_K, FORMAT_Q8_0, FORMAT_Q4_K}, 256, {96, 48, 16, 16}, 5, UNARY_SILU, false, false, false},
    {"prompt", {FORMAT_Q4_0, FORMAT_Q4_0, FORMAT_Q4_0}, 1280, {200, 64, 48}, 70, UNARY_SILU, false, false, false},
    {"mixed_prompt", {FORMAT_Q4_K, FORMAT_Q4_K, FORMAT_Q6_K}, 512, {140, 32, 32}, 40, UNARY_SILU, false, false, false},
    {"one_row_each", {FORMAT_Q4_0, FORMAT_Q4_0, FORMAT_Q4_0}, 64, {1, 1, 1}, 1, UNARY_SILU, false, false, false},
};

static const struct product_case mul_mat_add_cases[] = {
#define FORMAT(NAME, name)                                                                                                     \
    {"decode_" #name, {WEIGHT(NAME)}, 512, {48}, 1, UNARY_SILU, false, false, false},                                          \
        {"batch_" #name, {WEIGHT(NAME)}, 256, {35}, 5, UNARY_SILU, false, true, false},
#include "formats/formats.def"
#undef FORMAT
    {"one_row", {FORMAT_Q4_0}, 64, {1}, 1, UNARY_SILU, false, false, false},
    {"product_read", {FORMAT_Q4_0}, 96, {17}, 3, UNARY_SILU, true, false, false},
    {"prompt", {FORMAT_Q4_1}, 1024, {150}, 45, UNARY_SILU, false, false, false},
    {"prompt_product_read", {FORMAT_Q6_K}, 512, {130}, 33, UNARY_SILU, true, true, false},
};

static const struct product_case gate_up_glu_cases[] = {
#define FORMAT(NAME, name)                                                                                                     \
    {"decode_" #name, {WEIGHT(NAME), WEIGHT(NAME)}, 512, {48, 48}, 1, UNARY_SILU, false, false, false},                        \
        {"batch_" #name, {WEIGHT(NAME), WEIGHT(NAME)}, 256, {35, 35}, 5, UNARY_GELU, false, true, false},
#include "formats/formats.def"
#undef FORMAT
#define X(NAME, name) {"kind_" #name, {FORMAT_Q4_0, FORMAT_Q4_0}, 64, {32, 32}, 2, UNARY_##NAME, false, false, false},
    UNARY_KINDS(X)
#undef X
        {"mixed", {FORMAT_Q4_K, FORMAT_Q6_K}, 256, {32, 32}, 2, UNARY_SILU, false, false, false},
    {"gate_read", {FORMAT_Q4_0, FORMAT_Q4_0}, 64, {24, 24}, 2, UNARY_SILU, true, false, false},
    {"prompt", {FORMAT_Q4_0, FORMAT_Q4_0}, 1280, {150, 150}, 45, UNARY_SILU, false, true, false},
    {"mixed_prompt", {FORMAT_Q4_K, FORMAT_Q6_K}, 512, {96, 96}, 40, UNARY_SILU, false, false, false},
    {"prompt_gate_read", {FORMAT_Q5_K, FORMAT_Q5_K}, 512, {70, 70}, 40, UNARY_GELU, true, false, false},
};

static const struct product_case gate_up_glu_quantize_cases[] = {
#define FORMAT(NAME, name)                                                                                                     \
    {"decode_" #name, {WEIGHT(NAME), WEIGHT(NAME)}, 512, {96, 96}, 1, UNARY_SILU, false, false, true},                         \
        {"batch_" #name, {WEIGHT(NAME), WEIGHT(NAME)}, 256, {32, 32}, 5, UNARY_GELU, false, true, true},
#include "formats/formats.def"
#undef FORMAT
    {"result_read", {FORMAT_Q4_0, FORMAT_Q4_0}, 64, {64, 64}, 2, UNARY_SILU, true, false, true},
    {"prompt", {FORMAT_Q4_0, FORMAT_Q4_0}, 1280, {160, 160}, 45, UNARY_SILU, false, false, true},
    {"mixed_prompt", {FORMAT_Q4_K, FORMAT_Q6_K}, 512, {96, 96}, 40, UNARY_SILU, false, true, true},
    {"prompt_result_read", {FORMAT_Q4_K, FORMAT_Q4_K}, 768, {192, 192}, 150, UNARY_SILU, true, false, true},
};

/* Formats in the order gate, up, down, whose rows are m[2]; read: the last product, or without a residual the glu, is read elsewhere too. */
static void build_mlp_case(struct fuse_case *c, const void *spec)
{
    const struct product_case *s = spec;
    struct graph *g = &c->graph;
    struct tensor *x = LEAF(INPUT, "x", FORMAT_F32, NORMAL, 0, s->k, s->n);
    struct tensor *first = product(c, s, 0, x), *second = product(c, s, 1, x);
    struct glu_params params = {.kind = (int32_t)s->kind};
    struct tensor *glu = graph_op(g, OP_GLU, &params, s->up_first ? second : first, s->up_first ? first : second);
    struct tensor *y = quantized(c, glu, FORMAT_A8);
    struct case_src down = {s->format[2], {s->m[0], s->m[2]}, FILL_NORMAL, STRIDES_PLAIN, 0};
    struct tensor *out = graph_op(g, OP_MUL_MAT, NULL, leaf(c, TENSOR_WEIGHT, "down.weight", down), y);
    if (s->residual)
        graph_op(g, OP_ADD, NULL, LEAF(INPUT, "residual", FORMAT_F32, NORMAL, 0, s->m[2], s->n), out);
    if (s->read)
        read_elsewhere(c, s->residual ? out : glu);
}

static void build_linear_case(struct fuse_case *c, const void *spec)
{
    const struct product_case *s = spec;
    struct tensor *x = LEAF(INPUT, "x", FORMAT_F32, NORMAL, 0, s->k, s->n);
    struct tensor *y = product(c, s, 0, quantized(c, x, FORMAT_A8));
    if (s->residual)
        graph_op(&c->graph, OP_ADD, NULL, y, LEAF(INPUT, "residual", FORMAT_F32, NORMAL, 0, s->m[0], s->n));
    if (s->read)
        read_elsewhere(c, y);
}

/* The quantised norm of x, under m[i] products, or a pair and its glu. */
static struct tensor *quantized_norm(struct fuse_case *c, const struct product_case *s)
{
    struct graph *g = &c->graph;
    struct tensor *x = LEAF(INPUT, "x", FORMAT_F32, NORMAL, 0, s->k, s->n), *w = LEAF(WEIGHT, "norm.weight", FORMAT_F32, NORMAL, 0, s->k);
    struct tensor *norm = graph_op(g, OP_RMS_NORM, (&(struct rms_norm_params){1e-5f}), x);
    return quantized(c, graph_op(g, OP_MUL, NULL, norm, w), FORMAT_A8);
}

static void build_norm_group_case(struct fuse_case *c, const void *spec)
{
    const struct product_case *s = spec;
    struct tensor *x = quantized_norm(c, s), *y[4] = {NULL};
    for (int i = 0; i < 4 && s->m[i]; i++)
        y[i] = product(c, s, i, x);
    for (int i = 0; i < 4 && y[i]; i++)
        read_elsewhere(c, y[i]);
    if (s->residual)
        read_elsewhere(c, x->producer->src[0]);
}

static void build_norm_gate_up_case(struct fuse_case *c, const void *spec)
{
    const struct product_case *s = spec;
    struct tensor *x = quantized_norm(c, s), *gate = product(c, s, 0, x), *up = product(c, s, 1, x);
    struct glu_params params = {.kind = (int32_t)s->kind};
    struct tensor *y = graph_op(&c->graph, OP_GLU, &params, gate, up);
    quantized(c, y, FORMAT_A8);
    if (s->read)
        read_elsewhere(c, y);
}

static const struct product_case norm_group_cases[] = {
#define FORMAT(NAME, name)                                                                                                     \
    {"decode_" #name, {WEIGHT(NAME), WEIGHT(NAME), WEIGHT(NAME)}, 512, {48, 16, 16}, 1, UNARY_SILU},
#include "formats/formats.def"
#undef FORMAT
    {"mixed", {FORMAT_Q4_K, FORMAT_Q4_K, FORMAT_Q6_K}, 512, {64, 32, 32}, 1, UNARY_SILU},
    {"four", {FORMAT_Q4_0, FORMAT_Q4_0, FORMAT_Q4_0, FORMAT_Q4_0}, 5120, {96, 48, 6, 6}, 1, UNARY_SILU},
    {"one_block", {FORMAT_Q4_0, FORMAT_Q8_0}, 32, {3, 3}, 1, UNARY_SILU},
    {"batch", {FORMAT_Q4_0, FORMAT_Q4_0}, 64, {32, 32}, 5, UNARY_SILU},
    {"norm_read", {FORMAT_Q4_0, FORMAT_Q4_0}, 64, {32, 32}, 1, UNARY_SILU, .residual = true},
};

static const struct product_case norm_gate_up_cases[] = {
#define FORMAT(NAME, name) {"decode_" #name, {WEIGHT(NAME), WEIGHT(NAME)}, 512, {96, 96}, 1, UNARY_SILU},
#include "formats/formats.def"
#undef FORMAT
    {"wide", {FORMAT_Q4_0, FORMAT_Q4_0}, 5120, {320, 320}, 1, UNARY_SILU},
    {"gelu", {FORMAT_Q4_K, FORMAT_Q4_K}, 2048, {64, 64}, 1, UNARY_GELU},
    {"mixed", {FORMAT_Q4_K, FORMAT_Q6_K}, 256, {32, 32}, 1, UNARY_SILU},
    {"batch", {FORMAT_Q4_0, FORMAT_Q4_0}, 64, {32, 32}, 5, UNARY_SILU},
    {"glu_read", {FORMAT_Q4_0, FORMAT_Q4_0}, 64, {96, 96}, 1, UNARY_SILU, .read = true},
};

static const struct product_case mlp_cases[] = {
#define FORMAT(NAME, name)                                                                                                     \
    {"decode_" #name, {WEIGHT(NAME), WEIGHT(NAME), WEIGHT(NAME)}, 512, {256, 256, 96}, 1, UNARY_SILU, .residual = true},         \
        {"batch_" #name, {WEIGHT(NAME), WEIGHT(NAME), WEIGHT(NAME)}, 256, {512, 512, 35}, 5, UNARY_GELU, .up_first = true},
#include "formats/formats.def"
#undef FORMAT
    {"mixed", {FORMAT_Q4_K, FORMAT_Q4_K, FORMAT_Q6_K}, 256, {256, 256, 64}, 7, UNARY_SILU, .residual = true},
    {"one_row", {FORMAT_Q4_0, FORMAT_Q4_0, FORMAT_Q4_0}, 32, {32, 32, 1}, 1, UNARY_SILU, .residual = true},
    {"product_read", {FORMAT_Q4_0, FORMAT_Q4_0, FORMAT_Q8_0}, 64, {96, 96, 17}, 3, UNARY_SILU, .read = true, .residual = true},
    {"glu_read", {FORMAT_Q4_0, FORMAT_Q4_0, FORMAT_Q8_0}, 64, {96, 96, 17}, 3, UNARY_SILU, .read = true},
};

static const struct product_case linear_cases[] = {
#define FORMAT(NAME, name)                                                                                                     \
    {"decode_" #name, {WEIGHT(NAME)}, 512, {96}, 1, UNARY_SILU, .residual = true},                                             \
        {"batch_" #name, {WEIGHT(NAME)}, 256, {35}, 5, UNARY_SILU},
#include "formats/formats.def"
#undef FORMAT
    {"one_row", {FORMAT_Q4_0}, 64, {1}, 1, UNARY_SILU, .residual = true},
    {"one_block", {FORMAT_Q8_0}, 32, {40}, 1, UNARY_SILU},
    {"prompt", {FORMAT_Q4_0}, 1280, {150}, 45, UNARY_SILU, .residual = true},
    {"prompt_product_read", {FORMAT_Q8_0}, 512, {70}, 40, UNARY_SILU, .read = true, .residual = true},
    {"product_read", {FORMAT_Q4_0}, 96, {17}, 3, UNARY_SILU, .read = true, .residual = true},
};

/* ---- rope and the writes into the cache */

struct rope_case {
    const char *name;
    int64_t head_dim, head_dim_v, n_head, n_kv_head, n_tokens, n_cells, from;
    enum format_id k, v;
    struct rope_params rope;
    bool factors, window_of_one; /* q, k and v are windows of one tensor of all heads */
    enum fill cells;
};

/* Heads [first, first + n) of rows that hold all of them. */
static struct tensor *heads_window(struct graph *g, struct tensor *all, int64_t head_dim, int64_t first, int64_t n)
{
    struct view_params p = {.ne = {(int32_t)head_dim, (int32_t)n}, .nb = {sizeof(float)}};
    if (!all)
        return NULL;
    p.ne[2] = (int32_t)all->ne[1];
    p.nb[1] = (uint64_t)head_dim * sizeof(float);
    p.nb[2] = p.nb[3] = all->nb[1];
    p.offset = (uint64_t)first * p.nb[1];
    return graph_op(g, OP_VIEW, &p, all);
}

static void build_rope_case(struct fuse_case *c, const void *spec)
{
    const struct rope_case *s = spec;
    struct graph *g = &c->graph;
    int64_t n = s->n_tokens, heads = s->n_head + 2 * s->n_kv_head, coordinates = s->rope.mode >= ROPE_SECTIONS ? 4 : 1;
    struct tensor *q, *k, *v;
    if (s->window_of_one) {
        struct tensor *all = LEAF(INPUT, "qkv", FORMAT_F32, NORMAL, 0, s->head_dim * heads, n);
        q = heads_window(g, all, s->head_dim, 0, s->n_head);
        k = heads_window(g, all, s->head_dim, s->n_head, s->n_kv_head);
        v = heads_window(g, all, s->head_dim, s->n_head + s->n_kv_head, s->n_kv_head);
    } else {
        q = LEAF(INPUT, "q", FORMAT_F32, NORMAL, 0, s->head_dim, s->n_head, n);
        k = LEAF(INPUT, "k", FORMAT_F32, NORMAL, 0, s->head_dim, s->n_kv_head, n);
        v = LEAF(INPUT, "v", FORMAT_F32, NORMAL, 0, s->head_dim_v, s->n_kv_head, n);
    }
    struct tensor *positions = LEAF(INPUT, "positions", FORMAT_I32, ASCENDING, s->from, n * coordinates);
    struct tensor *attended = LEAF(INPUT, "attended", FORMAT_I32, ZERO, 0, n);
    struct tensor *cells =
        leaf(c, TENSOR_INPUT, "cells", (struct case_src){FORMAT_I32, {n}, s->cells, STRIDES_PLAIN, s->n_cells});
    struct tensor *sequences = LEAF(INPUT, "sequences", FORMAT_I32, ZERO, 0, n);
    struct tensor *map = LEAF(STATE, "map", FORMAT_I32, IDENTITY, 0, s->n_cells);
    struct tensor *k_cache = LEAF(STATE, "k_cache", s->k, NORMAL, 0, s->head_dim, s->n_cells, s->n_kv_head);
    struct tensor *v_cache = LEAF(STATE, "v_cache", s->v, NORMAL, 0, s->head_dim_v, s->n_cells, s->n_kv_head);
    struct tensor *factors = s->factors ? LEAF(WEIGHT, "rope_freqs", FORMAT_F32, NORMAL, 0, s->rope.n_dims / 2) : NULL;
    q = graph_op(g, OP_ROPE, &s->rope, q, positions, factors);
    k = graph_op(g, OP_ROPE, &s->rope, k, positions, factors);
    k = graph_op(g, OP_KV_WRITE, NULL, k, k_cache, cells);
    v = graph_op(g, OP_KV_WRITE, NULL, v, v_cache, cells);
    graph_op(g, OP_ATTENTION, (&(struct attention_params){.scale = 1}), q, k, v, attended, sequences, map);
}

#define PLAIN(mode, n_dims, base)                                                                                              \
    {                                                                                                                          \
        mode, n_dims, base, 1, 0, 1, 32, 1, 0,                                                                                 \
        {                                                                                                                      \
            0                                                                                                                  \
        }                                                                                                                      \
    }
/* Each pair of formats that a cache may have. */
#define PAIR(K, k, V, v)                                                                                                       \
    {                                                                                                                          \
        "pair_" k "_" v, 64, 64, 4, 2, 5, 20, 5, FORMAT_##K, FORMAT_##V, PLAIN(ROPE_NORM, 64, 10000), .cells = FILL_DISTINCT   \
    }
#define PAIRS_OF(K, k)                                                                                                         \
    PAIR(K, k, F32, "f32"), PAIR(K, k, F16, "f16"), PAIR(K, k, BF16, "bf16"), PAIR(K, k, Q8_0, "q8_0"),                         \
        PAIR(K, k, Q5_1, "q5_1"), PAIR(K, k, Q5_0, "q5_0"), PAIR(K, k, Q4_1, "q4_1"), PAIR(K, k, Q4_0, "q4_0")

static const struct rope_case rope_kv_cases[] = {
    {"decode_f16", 64, 64, 9, 3, 1, 40, 17, FORMAT_F16, FORMAT_F16, PLAIN(ROPE_NORM, 64, 100000), .cells = FILL_INDEX},
    {"decode_neox", 128, 128, 8, 2, 1, 40, 900, FORMAT_F16, FORMAT_F16, PLAIN(ROPE_NEOX, 128, 1e6f), .cells = FILL_INDEX},
    {"batch_f16", 64, 64, 9, 3, 17, 40, 100, FORMAT_F16, FORMAT_F16, PLAIN(ROPE_NORM, 64, 10000), .cells = FILL_DISTINCT},
    {"batch_f32", 64, 64, 4, 2, 7, 20, 0, FORMAT_F32, FORMAT_F32, PLAIN(ROPE_NORM, 64, 10000), .cells = FILL_DISTINCT},
    {"batch_bf16", 96, 96, 4, 4, 7, 20, 5, FORMAT_BF16, FORMAT_BF16, PLAIN(ROPE_NEOX, 96, 10000), .cells = FILL_DISTINCT},
    {"batch_q8_0", 64, 64, 4, 2, 7, 20, 5, FORMAT_Q8_0, FORMAT_Q8_0, PLAIN(ROPE_NORM, 64, 10000), .cells = FILL_DISTINCT},
    {"batch_q4_0", 64, 64, 4, 2, 7, 20, 5, FORMAT_Q4_0, FORMAT_Q4_0, PLAIN(ROPE_NEOX, 64, 10000), .cells = FILL_DISTINCT},
    PAIRS_OF(F32, "f32"),
    PAIRS_OF(F16, "f16"),
    PAIRS_OF(BF16, "bf16"),
    PAIRS_OF(Q8_0, "q8_0"),
    PAIRS_OF(Q5_1, "q5_1"),
    PAIRS_OF(Q5_0, "q5_0"),
    PAIRS_OF(Q4_1, "q4_1"),
    PAIRS_OF(Q4_0, "q4_0"),
    {"mixed", 128, 64, 4, 1, 5, 20, 5, FORMAT_Q8_0, FORMAT_F16, PLAIN(ROPE_NEOX, 128, 10000), .cells = FILL_DISTINCT},
    {"odd_part", 77, 77, 3, 3, 3, 9, 5, FORMAT_F16, FORMAT_F16, PLAIN(ROPE_NORM, 22, 10000), .cells = FILL_DISTINCT},
    {"factors", 64, 64, 6, 2, 3, 9, 60, FORMAT_F16, FORMAT_F16, PLAIN(ROPE_NORM, 64, 500000), .factors = true,
     .cells = FILL_DISTINCT},
    {"yarn",
     64,
     64,
     6,
     2,
     3,
     9,
     60,
     FORMAT_F16,
     FORMAT_F16,
     {ROPE_NEOX, 48, 10000, 0.25f, 1, 1.2f, 32, 1, 4096, {0}},
     .cells = FILL_DISTINCT},
    {"interleaved",
     256,
     256,
     4,
     1,
     3,
     9,
     60,
     FORMAT_F16,
     FORMAT_F16,
     {ROPE_SECTIONS_INTERLEAVED, 64, 1e7f, 1, 0, 1, 32, 1, 0, {11, 11, 10, 0}},
     .cells = FILL_DISTINCT},
    {"windows_of_one", 64, 64, 4, 2, 5, 9, 7, FORMAT_F16, FORMAT_F16, PLAIN(ROPE_NORM, 64, 10000), .window_of_one = true,
     .cells = FILL_DISTINCT},
    {"far", 64, 64, 4, 2, 3, 9, 130000, FORMAT_F32, FORMAT_F32, PLAIN(ROPE_NORM, 64, 500000), .cells = FILL_DISTINCT},
};

/* ---- rope, cache and attention in one */

struct step_case {
    const char *name;
    int64_t head_dim, n_head, n_kv_head, n_ctx, position; /* of the one token; its cell has the same number */
    enum format_id cache;
    struct rope_params rope;
    struct attention_params attention;
    bool norms, gate, quantize, read, factors;
    int64_t n_tokens; /* 0: one */
};

static struct tensor *normed(struct fuse_case *c, struct tensor *x, const char *name)
{
    struct tensor *w = LEAF(WEIGHT, name, FORMAT_F32, NORMAL, 0, x ? x->ne[0] : 1);
    x = graph_op(&c->graph, OP_RMS_NORM, (&(struct rms_norm_params){1e-6f}), x);
    return graph_op(&c->graph, OP_MUL, NULL, x, w);
}

static void build_step_case(struct fuse_case *c, const void *spec)
{
    const struct step_case *s = spec;
    struct graph *g = &c->graph;
    int64_t d = s->head_dim, n = s->n_tokens ? s->n_tokens : 1;
    struct tensor *q, *k = LEAF(INPUT, "k", FORMAT_F32, NORMAL, 0, d, s->n_kv_head, n), *v = LEAF(INPUT, "v", FORMAT_F32, NORMAL, 0, d, s->n_kv_head, n);
    struct tensor *gate = NULL, *positions = LEAF(INPUT, "positions", FORMAT_I32, ASCENDING, s->position, n);
    if (s->gate) { /* comes with the query */
        struct tensor *both = LEAF(INPUT, "q_full", FORMAT_F32, NORMAL, 0, 2 * d, s->n_head, n);
        gate = graph_slice(g, both, d, d);
        q = graph_slice(g, both, 0, d);
    } else {
        q = LEAF(INPUT, "q", FORMAT_F32, NORMAL, 0, d, s->n_head, n);
    }
    struct tensor *cells = LEAF(INPUT, "cells", FORMAT_I32, ASCENDING, s->position, n), *sequences = LEAF(INPUT, "sequences", FORMAT_I32, ZERO, 0, n);
    struct tensor *map = LEAF(STATE, "map", FORMAT_I32, IDENTITY, 0, s->n_ctx);
    struct tensor *k_cache = LEAF(STATE, "k_cache", s->cache, NORMAL, 0, d, s->n_ctx, s->n_kv_head);
    struct tensor *v_cache = LEAF(STATE, "v_cache", s->cache, NORMAL, 0, d, s->n_ctx, s->n_kv_head);
    struct tensor *factors = s->factors ? LEAF(WEIGHT, "rope_freqs", FORMAT_F32, NORMAL, 0, s->rope.n_dims / 2) : NULL;
    if (s->norms) {
        q = normed(c, q, "attn_q_norm.weight");
        k = normed(c, k, "attn_k_norm.weight");
    }
    q = graph_op(g, OP_ROPE, &s->rope, q, positions, factors);
    k = graph_op(g, OP_ROPE, &s->rope, k, positions, factors);
    k = graph_op(g, OP_KV_WRITE, NULL, k, k_cache, cells);
    v = graph_op(g, OP_KV_WRITE, NULL, v, v_cache, cells);
    struct tensor *x = graph_op(g, OP_ATTENTION, &s->attention, q, k, v, positions, sequences, map);
    if (gate)
        x = graph_op(g, OP_GLU, (&(struct glu_params){.kind = UNARY_SIGMOID}), gate, x);
    if (s->quantize)
        quantized(c, graph_reshape(g, x, d * s->n_head, n, 0, 0), FORMAT_A8);
    if (s->read)
        read_elsewhere(c, x);
}

#define STEP(d, h, kv, n_ctx, position, cache) d, h, kv, n_ctx, position, FORMAT_##cache
#define NEOX(d)                                PLAIN(ROPE_NEOX, d, 10000)

static const struct step_case rope_kv_attention_cases[] = {
    {"first_64", STEP(64, 4, 2, 40, 0, F16), PLAIN(ROPE_NORM, 64, 10000), {.scale = 0.125f}},
    {"short_64", STEP(64, 9, 3, 40, 21, F16), PLAIN(ROPE_NORM, 64, 500000), {.scale = 0.125f}, .factors = true},
    {"some_64", STEP(64, 8, 2, 300, 170, F16), NEOX(64), {.scale = 0.125f}},
    {"long_64", STEP(64, 8, 2, 1100, 1091, F16), NEOX(64), {.scale = 0.125f}},
    {"edge_64", STEP(64, 8, 2, 512, 511, F16), NEOX(64), {.scale = 0.125f}},
    {"some_128", STEP(128, 8, 2, 200, 133, F16), NEOX(128), {.scale = 0.088f}, .norms = true},
    {"bf16_128", STEP(128, 6, 2, 200, 77, BF16), NEOX(128), {.scale = 0.088f}},
    {"q8_0_128", STEP(128, 6, 2, 200, 77, Q8_0), NEOX(128), {.scale = 0.088f}},
    {"some_256", STEP(256, 12, 2, 200, 150, F16), NEOX(64), {.scale = 0.0625f}, .norms = true},
    {"window", STEP(64, 4, 2, 300, 200, F16), NEOX(64), {.scale = 0.125f, .window = 50}},
    {"softcap", STEP(64, 4, 2, 300, 200, F16), NEOX(64), {.scale = 0.125f, .softcap = 30}},
    {"temperature", STEP(64, 4, 2, 300, 200, F16), NEOX(64), {.scale = 0.125f, .temperature = 0.1f, .temperature_period = 64}},
    {"wide_group", STEP(64, 22, 2, 100, 50, F16), NEOX(64), {.scale = 0.125f}},
    {"yarn", STEP(64, 4, 2, 100, 50, F16), {ROPE_NEOX, 48, 10000, 0.25f, 1, 1.2f, 32, 1, 4096, {0}}, {.scale = 0.125f}},
    {"batch", STEP(64, 4, 2, 100, 50, F16), NEOX(64), {.scale = 0.125f}, .n_tokens = 3},
    {"f32_cache", STEP(64, 4, 2, 100, 50, F32), NEOX(64), {.scale = 0.125f}},
    {"odd_heads", STEP(80, 4, 2, 100, 50, F16), NEOX(80), {.scale = 0.1f}},
};

static const struct step_case rope_kv_attention_glu_cases[] = {
    {"some_256", STEP(256, 12, 2, 200, 150, F16), NEOX(64), {.scale = 0.0625f}, .norms = true, .gate = true},
    {"some_64", STEP(64, 8, 2, 200, 150, F16), NEOX(64), {.scale = 0.125f}, .gate = true},
};

static const struct step_case rope_kv_attention_quantize_cases[] = {
    {"some_64", STEP(64, 8, 2, 300, 170, F16), NEOX(64), {.scale = 0.125f}, .quantize = true},
    {"some_128", STEP(128, 8, 2, 200, 133, F16), NEOX(128), {.scale = 0.088f}, .norms = true, .quantize = true},
    {"gated_256", STEP(256, 12, 2, 200, 150, F16), NEOX(64), {.scale = 0.0625f}, .norms = true, .gate = true, .quantize = true},
    {"result_read", STEP(64, 8, 2, 300, 170, F16), NEOX(64), {.scale = 0.125f}, .quantize = true, .read = true},
    {"long_256", STEP(256, 6, 1, 600, 590, BF16), NEOX(64), {.scale = 0.0625f}, .quantize = true},
};

/* ---- recurrent layers */

struct conv_case {
    const char *name;
    int64_t channels, width, n_tokens, n_seq, n_slots;
    enum fill x;
};

static void build_conv_case(struct fuse_case *c, const void *spec)
{
    const struct conv_case *s = spec;
    struct graph *g = &c->graph;
    struct case_src x_spec = {FORMAT_F32, {s->channels, s->n_tokens}, s->x, STRIDES_PLAIN, 0};
    struct tensor *x = leaf(c, TENSOR_INPUT, "qkv", x_spec);
    struct tensor *weight = LEAF(WEIGHT, "ssm_conv1d.weight", FORMAT_F32, NORMAL, 0, s->width, s->channels);
    struct tensor *state = LEAF(STATE, "conv_state", FORMAT_F32, NORMAL, 0, s->channels, s->width - 1, s->n_slots);
    struct tensor *sequences = LEAF(INPUT, "sequences", FORMAT_I32, INDEX, s->n_seq, s->n_tokens);
    struct tensor *slots = LEAF(INPUT, "slots", FORMAT_I32, DISTINCT, s->n_slots, 2, s->n_seq);
    x = graph_op(g, OP_SSM_CONV, NULL, x, weight, state, sequences, slots);
    graph_op(g, OP_UNARY, (&(struct unary_params){UNARY_SILU}), x);
}

static const struct conv_case ssm_conv_silu_cases[] = {
    {"decode", 6144, 4, 1, 1, 2, FILL_NORMAL},       {"batch", 768, 4, 17, 1, 2, FILL_NORMAL},
    {"odd_channels", 101, 4, 5, 1, 3, FILL_NORMAL},  {"width_3", 96, 3, 5, 1, 2, FILL_NORMAL},
    {"sequences", 160, 4, 19, 4, 9, FILL_NORMAL},    {"hostile", 300, 4, 9, 1, 2, FILL_HOSTILE},
};

struct net_case {
    const char *name;
    int64_t dim, n_k, n_v, n_tokens, n_seq, n_slots;
    enum delta_heads heads;
    bool joint; /* alpha and beta are windows of one product */
    enum fill x;
    int64_t taps;    /* of the convolution before it; 0: none */
    bool quantize, read; /* the result */
    enum fill slots; /* 0: distinct ones */
    int64_t first;   /* of ascending ones */
    bool stray;      /* the tokens' sequences have no slots */
};

/* Elements [first, first + dim * n) of rows of x as [dim, n, rows]. */
static struct tensor *part_of(struct graph *g, struct tensor *x, int64_t first, int64_t dim, int64_t n)
{
    if (!x)
        return NULL;
    struct view_params p = {.ne = {(int32_t)dim, (int32_t)n, (int32_t)x->ne[1]}, .nb = {sizeof(float)}};
    p.nb[1] = (uint64_t)dim * sizeof(float);
    p.nb[2] = p.nb[3] = x->nb[1];
    p.offset = (uint64_t)first * sizeof(float);
    return graph_op(g, OP_VIEW, &p, x);
}

static struct tensor *unary(struct graph *g, enum unary_kind kind, struct tensor *x)
{
    return graph_op(g, OP_UNARY, (&(struct unary_params){(int32_t)kind}), x);
}

static void build_net_case(struct fuse_case *c, const void *spec)
{
    const struct net_case *s = spec;
    struct graph *g = &c->graph;
    int64_t n = s->n_tokens, keys = s->dim * s->n_k, values = s->dim * s->n_v, each = s->n_v / s->n_k;
    struct case_src qkv_spec = {FORMAT_F32, {2 * keys + values, n}, s->x, STRIDES_PLAIN, 0};
    struct tensor *qkv = leaf(c, TENSOR_INPUT, "qkv", qkv_spec), *z = LEAF(INPUT, "z", FORMAT_F32, NORMAL, 0, values, n);
    struct tensor *dt = LEAF(WEIGHT, "ssm_dt.bias", FORMAT_F32, NORMAL, 0, s->n_v), *a = LEAF(WEIGHT, "ssm_a", FORMAT_F32, NEGATIVE, 0, s->n_v);
    struct tensor *alpha, *beta, *weight = LEAF(WEIGHT, "ssm_norm.weight", FORMAT_F32, NORMAL, 0, s->dim);
    struct tensor *state = LEAF(STATE, "delta_state", FORMAT_F32, NORMAL, 0, s->dim, s->dim, s->n_v, s->n_slots);
    struct case_src of = {FORMAT_I32, {n}, s->stray ? FILL_ASCENDING : FILL_INDEX, STRIDES_PLAIN, s->n_seq};
    struct case_src where = {FORMAT_I32, {2, s->n_seq}, s->slots ? s->slots : FILL_DISTINCT, STRIDES_PLAIN, s->slots ? s->first : s->n_slots};
    struct tensor *sequences = leaf(c, TENSOR_INPUT, "sequences", of), *slots = leaf(c, TENSOR_INPUT, "slots", where);
    if (s->taps) {
        struct tensor *taps = LEAF(WEIGHT, "ssm_conv1d.weight", FORMAT_F32, NORMAL, 0, s->taps, qkv->ne[0]);
        struct tensor *window = LEAF(STATE, "conv_state", FORMAT_F32, NORMAL, 0, qkv->ne[0], s->taps - 1, s->n_slots);
        qkv = unary(g, UNARY_SILU, graph_op(g, OP_SSM_CONV, NULL, qkv, taps, window, sequences, slots));
    }
    if (s->joint) {
        struct tensor *both = graph_reshape(g, LEAF(INPUT, "ba", FORMAT_F32, NORMAL, 0, 2 * s->n_v, n), 2 * each, s->n_k, n, 0);
        beta = graph_slice(g, both, 0, each);
        alpha = graph_slice(g, both, each, each);
        dt = graph_reshape(g, dt, each, s->n_k, 0, 0);
        a = graph_reshape(g, a, each, s->n_k, 0, 0);
    } else {
        alpha = LEAF(INPUT, "alpha", FORMAT_F32, NORMAL, 0, s->n_v, n);
        beta = LEAF(INPUT, "beta", FORMAT_F32, NORMAL, 0, s->n_v, n);
    }
    beta = graph_reshape(g, unary(g, UNARY_SIGMOID, beta), s->n_v, n, 0, 0);
    alpha = graph_op(g, OP_MUL, NULL, unary(g, UNARY_SOFTPLUS, graph_op(g, OP_ADD, NULL, alpha, dt)), a);
    alpha = graph_reshape(g, alpha, s->n_v, n, 0, 0);
    struct tensor *q = graph_op(g, OP_L2_NORM, (&(struct l2_norm_params){1e-6f}), part_of(g, qkv, 0, s->dim, s->n_k));
    struct tensor *k = graph_op(g, OP_L2_NORM, (&(struct l2_norm_params){1e-5f}), part_of(g, qkv, keys, s->dim, s->n_k));
    struct gated_delta_rule_params p = {0.125f, (int32_t)s->heads};
    struct tensor *x = graph_op(g, OP_GATED_DELTA_RULE, &p, q, k, part_of(g, qkv, 2 * keys, s->dim, s->n_v), alpha, beta, state, sequences, slots);
    x = graph_op(g, OP_MUL, NULL, graph_op(g, OP_RMS_NORM, (&(struct rms_norm_params){1e-6f}), x), weight);
    x = graph_op(g, OP_GLU, (&(struct glu_params){.kind = UNARY_SILU}), graph_reshape(g, z, s->dim, s->n_v, n, 0), x);
    if (s->quantize)
        quantized(c, graph_reshape(g, x, values, n, 0, 0), FORMAT_A8);
    if (s->read)
        read_elsewhere(c, x);
}

static const struct net_case gated_delta_net_cases[] = {
    {"decode_128", 128, 2, 6, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL},
    {"decode_64", 64, 3, 6, 1, 1, 3, DELTA_TILED, false, FILL_NORMAL},
    {"decode_grouped", 128, 2, 4, 1, 1, 2, DELTA_GROUPED, true, FILL_NORMAL},
    {"batch_128", 128, 1, 2, 9, 1, 2, DELTA_TILED, false, FILL_NORMAL},
    {"batch_grouped", 64, 2, 6, 5, 1, 2, DELTA_GROUPED, true, FILL_NORMAL},
    {"batch_joint_tiled", 64, 2, 6, 5, 1, 2, DELTA_TILED, true, FILL_NORMAL},
    {"one_key_head", 32, 1, 3, 5, 1, 2, DELTA_GROUPED, true, FILL_NORMAL},
    {"70_tokens", 64, 1, 2, 70, 1, 2, DELTA_TILED, false, FILL_NORMAL},
    {"70_tokens_128", 128, 1, 2, 70, 1, 2, DELTA_TILED, false, FILL_NORMAL},
    {"prefill_sequences", 64, 1, 2, 60, 3, 9, DELTA_TILED, false, FILL_NORMAL},
    {"odd_size", 37, 1, 3, 5, 1, 2, DELTA_TILED, false, FILL_NORMAL},
    {"sequences", 64, 1, 2, 19, 4, 9, DELTA_TILED, false, FILL_NORMAL},
    {"41_tokens_128", 128, 1, 2, 41, 1, 2, DELTA_TILED, false, FILL_NORMAL},
    {"21_tokens_odd", 37, 1, 3, 21, 1, 2, DELTA_GROUPED, true, FILL_NORMAL},
    {"long_sequences", 64, 1, 2, 60, 4, 9, DELTA_TILED, false, FILL_NORMAL},
    {"hostile", 48, 1, 2, 5, 1, 2, DELTA_TILED, false, FILL_HOSTILE},
};

static const struct net_case conv_delta_net_cases[] = {
    {"decode_128", 128, 2, 6, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4},
    {"decode_128_even", 128, 3, 3, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4},
    {"decode_64", 64, 3, 6, 1, 1, 3, DELTA_TILED, false, FILL_NORMAL, 4},
    {"decode_grouped", 128, 2, 4, 1, 1, 2, DELTA_GROUPED, true, FILL_NORMAL, 4},
    {"decode_grouped_64", 64, 2, 8, 1, 1, 2, DELTA_GROUPED, true, FILL_NORMAL, 4},
    {"decode_sequences", 128, 1, 3, 1, 4, 9, DELTA_TILED, false, FILL_NORMAL, 4},
    {"decode_40_sequences", 64, 1, 2, 1, 40, 80, DELTA_TILED, false, FILL_NORMAL, 4},
    {"same_slot", 128, 1, 3, 1, 1, 1, DELTA_TILED, false, FILL_NORMAL, 4, .slots = FILL_ZERO},
    {"begins", 128, 1, 3, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4, .slots = FILL_ASCENDING, .first = -1},
    {"leaves_none", 64, 1, 3, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4, .slots = FILL_ASCENDING, .first = 1},
    {"stray", 128, 1, 3, 1, 2, 4, DELTA_TILED, false, FILL_NORMAL, 4, .stray = true},
    {"batch_128", 128, 1, 2, 9, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4},
    {"width_3", 64, 1, 2, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 3},
    {"odd_size", 37, 1, 3, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4},
    {"hostile", 128, 1, 3, 1, 1, 2, DELTA_TILED, false, FILL_HOSTILE, 4},
};

static const struct net_case conv_delta_net_quantize_cases[] = {
    {"decode_128", 128, 2, 6, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4, true},
    {"decode_128_even", 128, 3, 3, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4, true},
    {"decode_64", 64, 3, 6, 1, 1, 3, DELTA_TILED, false, FILL_NORMAL, 4, true},
    {"decode_grouped", 128, 2, 4, 1, 1, 2, DELTA_GROUPED, true, FILL_NORMAL, 4, true},
    {"result_read", 128, 1, 3, 1, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4, true, .read = true},
    {"same_slot", 128, 1, 3, 1, 1, 1, DELTA_TILED, false, FILL_NORMAL, 4, true, .slots = FILL_ZERO},
    {"batch_64", 64, 1, 2, 9, 1, 2, DELTA_TILED, false, FILL_NORMAL, 4, true},
};

/* ---- collectives */

struct collective_case {
    const char *name;
    int64_t width, rows;
    int64_t ids;     /* of all_reduce_get_rows */
    bool reshaped;   /* a reshape stands between the collective and its reader */
    bool sum_second; /* the sum is the add's second source */
    bool sum_read;   /* the add's result is read elsewhere too, as a residual is */
    bool norm, product_read;
    enum format_id format; /* of the norm's result; F32: not quantised */
    enum fill fill;
};

static void build_collective_case(struct fuse_case *c, const void *spec)
{
    const struct collective_case *s = spec;
    struct graph *g = &c->graph;
    struct case_src x = {FORMAT_F32, {s->width, s->rows}, s->fill ? s->fill : FILL_NORMAL, STRIDES_PLAIN, 0};
    struct tensor *sum = graph_op(g, OP_ALL_REDUCE, NULL, leaf(c, TENSOR_INPUT, "partial", x));
    if (s->reshaped) { /* as of heads put side by side and apart again */
        sum = graph_reshape(g, sum, 1, s->width, s->rows, 0);
        sum = graph_reshape(g, sum, s->width, s->rows, 0, 0);
    }
    if (s->ids) {
        graph_op(g, OP_GET_ROWS, NULL, sum, LEAF(INPUT, "outputs", FORMAT_I32, INDEX, s->rows, s->ids));
        return;
    }
    struct tensor *residual = leaf(c, TENSOR_INPUT, "residual", x);
    sum = s->sum_second ? graph_op(g, OP_ADD, NULL, residual, sum) : graph_op(g, OP_ADD, NULL, sum, residual);
    if (!s->norm)
        return;
    struct tensor *w = LEAF(WEIGHT, "norm.weight", FORMAT_F32, NORMAL, 0, s->width);
    struct tensor *product = graph_op(g, OP_MUL, NULL, graph_op(g, OP_RMS_NORM, (&(struct rms_norm_params){1e-5f}), sum), w);
    if (s->format != FORMAT_F32)
        quantized(c, product, s->format);
    if (s->sum_read)
        read_elsewhere(c, sum);
    if (s->product_read)
        read_elsewhere(c, product);
}

static const struct collective_case all_reduce_add_cases[] = {
    {"one", 1, 1},
    {"decode_576", 576, 1},
    {"decode_5120", 5120, 1},
    {"batch_2048", 2048, 5},
    {"odd_tail", 1001, 3, .sum_second = true},
    {"reshaped", 576, 1, .reshaped = true},
    {"reshaped_batch", 130, 7, .reshaped = true, .sum_second = true},
    {"hostile", 300, 9, .fill = FILL_HOSTILE},
};

static const struct collective_case all_reduce_get_rows_cases[] = {
    {"one", 1, 1, .ids = 1},
    {"decode_576", 576, 1, .ids = 1},
    {"decode_5120", 5120, 1, .ids = 1},
    {"last_of_7", 2048, 7, .ids = 1},
    {"some_of_21", 1001, 21, .ids = 9},
    {"reshaped", 640, 3, .ids = 2, .reshaped = true},
    {"hostile", 300, 9, .ids = 4, .fill = FILL_HOSTILE},
};

static const struct collective_case all_reduce_add_rms_norm_cases[] = {
    {"one", 1, 1, .norm = true},
    {"decode_576", 576, 1, .norm = true, .sum_read = true},
    {"decode_5120", 5120, 1, .norm = true, .sum_read = true},
    {"batch_2048", 2048, 5, .norm = true, .sum_read = true},
    {"sum_not_read", 640, 3, .norm = true},
    {"odd_tail", 1001, 3, .norm = true, .sum_read = true, .sum_second = true},
    {"reshaped", 130, 7, .norm = true, .sum_read = true, .reshaped = true},
    {"hostile", 300, 9, .norm = true, .sum_read = true, .fill = FILL_HOSTILE},
};

/* ---- the table */

typedef void build_fn(struct fuse_case *c, const void *spec);

/* All rows begin with their name. */
#define CASES(build, rows)                                                                                                     \
    {                                                                                                                          \
        build, rows, sizeof *(rows), sizeof(rows) / sizeof *(rows)                                                             \
    }
static const struct {
    build_fn *build;
    const void *rows;
    size_t size;
    int n;
} table[N_FUSIONS] = {
    [FUSE_rope_kv] = CASES(build_rope_case, rope_kv_cases),
    [FUSE_ssm_conv_silu] = CASES(build_conv_case, ssm_conv_silu_cases),
    [FUSE_gated_delta_net] = CASES(build_net_case, gated_delta_net_cases),
    [FUSE_gate_up_glu] = CASES(build_glu_case, gate_up_glu_cases),
    [FUSE_mul_mat_group] = CASES(build_group_case, mul_mat_group_cases),
    [FUSE_mul_mat_add] = CASES(build_mul_mat_add_case, mul_mat_add_cases),
    [FUSE_all_reduce_add_rms_norm] = CASES(build_collective_case, all_reduce_add_rms_norm_cases),
    [FUSE_all_reduce_get_rows] = CASES(build_collective_case, all_reduce_get_rows_cases),
    [FUSE_all_reduce_add] = CASES(build_collective_case, all_reduce_add_cases),
    [FUSE_add_rms_norm_mul] = CASES(build_norm_case, add_rms_norm_mul_cases),
    [FUSE_rms_norm_mul] = CASES(build_norm_case, rms_norm_mul_cases),
    [FUSE_gate_up_glu_quantize] = CASES(build_glu_case, gate_up_glu_quantize_cases),
    [FUSE_norm_quantize] = CASES(build_norm_case, norm_quantize_cases),
    [FUSE_rope_kv_attention] = CASES(build_step_case, rope_kv_attention_cases),
    [FUSE_rope_kv_attention_glu] = CASES(build_step_case, rope_kv_attention_glu_cases),
    [FUSE_rope_kv_attention_quantize] = CASES(build_step_case, rope_kv_attention_quantize_cases),
    [FUSE_conv_delta_net] = CASES(build_net_case, conv_delta_net_cases),
    [FUSE_conv_delta_net_quantize] = CASES(build_net_case, conv_delta_net_quantize_cases),
    [FUSE_mlp] = CASES(build_mlp_case, mlp_cases),
    [FUSE_linear] = CASES(build_linear_case, linear_cases),
    [FUSE_norm_group] = CASES(build_norm_group_case, norm_group_cases),
    [FUSE_norm_gate_up] = CASES(build_norm_gate_up_case, norm_gate_up_cases),
};

int fuse_n_cases(enum fusion_id f)
{
    return table[f].n;
}

/* Applies fusion f wherever it fires; the last node that it made. */
static struct node *fuse_all(struct graph *g, enum fusion_id f, struct reason *r)
{
    struct node *made = NULL;
    for (int i = g->n_nodes; i-- > 0;) {
        struct reason why = {""};
        struct node *n = i < g->n_nodes ? fuse_try(g, fusion_get(f), i, &why) : NULL;
        if (n) {
            n->fusion = (int)f;
            fuse_apply(g, n);
            made = n;
        } else if (why.text[0]) {
            *r = why;
        }
    }
    return made;
}

int fuse_case_build(struct fuse_case *c, enum fusion_id f, int i, struct arena *arena, struct hone_error *e)
{
    const char *row = (const char *)table[f].rows + (size_t)i * table[f].size;
    struct reason r = {""};
    memset(c, 0, sizeof *c);
    memcpy(&c->name, row, sizeof c->name);
    graph_init(&c->graph, arena);
    table[f].build(c, row);
    if (graph_error(&c->graph, e))
        return e ? e->code : c->graph.error.code;
    if (fusion_get(f)->stage == FUSE_LATE) /* its parts are fused nodes themselves, made by those before it */
        for (int earlier = 0; earlier < (int)f; earlier++)
            if (earlier != FUSE_mul_mat_group || f == FUSE_norm_group)
                fuse_all(&c->graph, (enum fusion_id)earlier, &r);
    c->fused = fuse_all(&c->graph, f, &r);
    return c->fused
               ? 0
               : err_set(e, HONE_EFAULT, "fusion %s does not fire in its case %s: %s", fusion_get(f)->name, c->name, r.text);
}
