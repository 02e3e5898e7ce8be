/* fuse_cases_attention.c: rope and the writes into the cache, alone and with the attention of a step behind them. See fuse_parts.h. */
#include "graph/fuse_parts.h"

#include "ops/attention.h"
#include "ops/glu.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/view.h"

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
        case_leaf(c, TENSOR_INPUT, "cells", (struct case_src){FORMAT_I32, {n}, s->cells, STRIDES_PLAIN, s->n_cells});
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
        case_quantized(c, graph_reshape(g, x, d * s->n_head, n, 0, 0), FORMAT_A8);
    if (s->read)
        case_read(c, x);
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

FUSE_CASES(rope_kv, build_rope_case, rope_kv_cases);
FUSE_CASES(rope_kv_attention, build_step_case, rope_kv_attention_cases);
FUSE_CASES(rope_kv_attention_glu, build_step_case, rope_kv_attention_glu_cases);
FUSE_CASES(rope_kv_attention_quantize, build_step_case, rope_kv_attention_quantize_cases);
