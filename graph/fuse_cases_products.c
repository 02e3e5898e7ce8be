/* fuse_cases_products.c: matrix products of one activation: groups, residuals, gated units, whole blocks, and those behind a norm. See fuse_parts.h. */
#include "graph/fuse_parts.h"

#include "ops/glu.h"
#include "ops/rms_norm.h"

#include <stdio.h>

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
    return graph_op(&c->graph, OP_MUL_MAT, NULL, case_leaf(c, TENSOR_WEIGHT, name, w), x);
}

static void build_group_case(struct fuse_case *c, const void *spec)
{
    const struct product_case *s = spec;
    struct tensor *x = LEAF(INPUT, "x", FORMAT_F32, NORMAL, 0, s->k, s->n), *y[4] = {NULL};
    for (int i = 0; i < 4 && s->m[i]; i++)
        y[i] = product(c, s, i, x);
    for (int i = 0; i < 4 && y[i]; i++)
        case_read(c, y[i]);
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
        case_read(c, y);
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
        case_quantized(c, y, FORMAT_A8);
    if (s->read)
        case_read(c, s->quantize ? y : first);
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
    struct tensor *y = case_quantized(c, glu, FORMAT_A8);
    struct case_src down = {s->format[2], {s->m[0], s->m[2]}, FILL_NORMAL, STRIDES_PLAIN, 0};
    struct tensor *out = graph_op(g, OP_MUL_MAT, NULL, case_leaf(c, TENSOR_WEIGHT, "down.weight", down), y);
    if (s->residual)
        graph_op(g, OP_ADD, NULL, LEAF(INPUT, "residual", FORMAT_F32, NORMAL, 0, s->m[2], s->n), out);
    if (s->read)
        case_read(c, s->residual ? out : glu);
}

static void build_linear_case(struct fuse_case *c, const void *spec)
{
    const struct product_case *s = spec;
    struct tensor *x = LEAF(INPUT, "x", FORMAT_F32, NORMAL, 0, s->k, s->n);
    struct tensor *y = product(c, s, 0, case_quantized(c, x, FORMAT_A8));
    if (s->residual)
        graph_op(&c->graph, OP_ADD, NULL, y, LEAF(INPUT, "residual", FORMAT_F32, NORMAL, 0, s->m[0], s->n));
    if (s->read)
        case_read(c, y);
}

/* The quantised norm of x, under m[i] products, or a pair and its glu. */
static struct tensor *quantized_norm(struct fuse_case *c, const struct product_case *s)
{
    struct graph *g = &c->graph;
    struct tensor *x = LEAF(INPUT, "x", FORMAT_F32, NORMAL, 0, s->k, s->n), *w = LEAF(WEIGHT, "norm.weight", FORMAT_F32, NORMAL, 0, s->k);
    struct tensor *norm = graph_op(g, OP_RMS_NORM, (&(struct rms_norm_params){1e-5f}), x);
    return case_quantized(c, graph_op(g, OP_MUL, NULL, norm, w), FORMAT_A8);
}

static void build_norm_group_case(struct fuse_case *c, const void *spec)
{
    const struct product_case *s = spec;
    struct tensor *x = quantized_norm(c, s), *y[4] = {NULL};
    for (int i = 0; i < 4 && s->m[i]; i++)
        y[i] = product(c, s, i, x);
    for (int i = 0; i < 4 && y[i]; i++)
        case_read(c, y[i]);
    if (s->residual)
        case_read(c, x->producer->src[0]);
}

static void build_norm_gate_up_case(struct fuse_case *c, const void *spec)
{
    const struct product_case *s = spec;
    struct tensor *x = quantized_norm(c, s), *gate = product(c, s, 0, x), *up = product(c, s, 1, x);
    struct glu_params params = {.kind = (int32_t)s->kind};
    struct tensor *y = graph_op(&c->graph, OP_GLU, &params, gate, up);
    case_quantized(c, y, FORMAT_A8);
    if (s->read)
        case_read(c, y);
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

FUSE_CASES(gate_up_glu, build_glu_case, gate_up_glu_cases);
FUSE_CASES(mul_mat_group, build_group_case, mul_mat_group_cases);
FUSE_CASES(mul_mat_add, build_mul_mat_add_case, mul_mat_add_cases);
FUSE_CASES(gate_up_glu_quantize, build_glu_case, gate_up_glu_quantize_cases);
FUSE_CASES(mlp, build_mlp_case, mlp_cases);
FUSE_CASES(linear, build_linear_case, linear_cases);
FUSE_CASES(norm_group, build_norm_group_case, norm_group_cases);
FUSE_CASES(norm_gate_up, build_norm_gate_up_case, norm_gate_up_cases);
