/* test_op_rules.c: what ops refuse and what tensors are. Shape rules over wrong sources, dimensions, formats and params; spans,
 * strides and rows of views; the addresses of alias ops; what references do with indices that no engine should send; and
 * the bits of the shared dot in every variant and for every batch. */
#include "base/rng.h"
#include "ops/attention.h"
#include "ops/cases.h"
#include "ops/copy.h"
#include "ops/dot.h"
#include "ops/gated_delta_rule.h"
#include "ops/glu.h"
#include "ops/l2_norm.h"
#include "ops/permute.h"
#include "ops/quantize.h"
#include "ops/reshape.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/softmax.h"
#include "ops/unary.h"
#include "ops/view.h"

#include "tests/golden/rope.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making nodes by hand */

static struct tensor make(enum format_id format, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3)
{
    struct tensor t = {.kind = TENSOR_INPUT};
    tensor_shape(&t, format, MAX_DIMS, (const int64_t[]){ne0, ne1, ne2, ne3});
    return t;
}

static struct tensor f32(int64_t ne0, int64_t ne1, int64_t ne2)
{
    return make(FORMAT_F32, ne0, ne1, ne2, 1);
}

static struct tensor i32(int64_t ne0)
{
    return make(FORMAT_I32, ne0, 1, 1, 1);
}

enum { SOURCES = 9 };
struct built {
    struct node node;
    struct tensor out, src[SOURCES];
};

/* Sets up a node of n sources; a source of format N_FORMATS is absent. */
static void build(struct built *b, enum op op, const void *params, size_t params_size, int n, const struct tensor *src)
{
    memset(b, 0, sizeof *b);
    b->node.op = op;
    b->node.out = &b->out;
    b->node.n_src = n;
    for (int i = 0; i < n && i < MAX_SRC; i++) {
        b->src[i] = src[i];
        b->node.src[i] = src[i].format == N_FORMATS ? NULL : &b->src[i];
    }
    if (params)
        memcpy(b->node.params, params, params_size);
}

static void accepted(enum op op, const void *params, size_t params_size, int n, const struct tensor *src)
{
    struct built b;
    struct hone_error e = {0};
    build(&b, op, params, params_size, n, src);
    if (op_get(op)->shape(&b.node, &e))
        fail_msg("refused: %s", e.message);
}

/* The rule refuses, names the op, and its sentence says `says`. */
static void refused(const char *says, enum op op, const void *params, size_t params_size, int n, const struct tensor *src)
{
    struct built b;
    struct hone_error e = {0};
    build(&b, op, params, params_size, n, src);
    if (op_get(op)->shape(&b.node, &e) != HONE_EINPUT)
        fail_msg("op %s accepts what it should refuse with '%s'", op_get(op)->name, says);
    if (!strstr(e.message, says) || !strstr(e.message, op_get(op)->name))
        fail_msg("'%s' is not in '%s'", says, e.message);
}

#define SRC(...)                                                                                                               \
    (int)(sizeof((struct tensor[]){__VA_ARGS__}) / sizeof(struct tensor)), (struct tensor[])                                   \
    {                                                                                                                          \
        __VA_ARGS__                                                                                                            \
    }
#define PARAMS(type, ...) &(const struct type){__VA_ARGS__}, sizeof(struct type)
#define NO_PARAMS         NULL, 0
#define ABSENT                                                                                                                 \
    {                                                                                                                          \
        .format = N_FORMATS                                                                                                    \
    }

static const struct tensor absent = ABSENT;

/* ---- what every rule refuses */

static void test_every_op_counts_its_sources(void **state)
{
    (void)state;
    struct tensor src[SOURCES];
    for (int i = 0; i < SOURCES; i++)
        src[i] = f32(32, 1, 1);
    for (int op = 0; op < N_OPS; op++) {
        const struct op_desc *desc = op_get((enum op)op);
        if (!desc->shape)
            continue;
        /* Params of zeros are refused by some ops for themselves; the name must be there either way. */
        refused("", (enum op)op, NO_PARAMS, 0, src);
        refused("", (enum op)op, NO_PARAMS, desc->max_src + 1, src);
        refused("", (enum op)op, NO_PARAMS, desc->max_src,
                (struct tensor[SOURCES]){ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT});
    }
    refused("3 sources, not 2 to 2", OP_ADD, NO_PARAMS, 3, src);
    refused("source 1 is absent", OP_ADD, NO_PARAMS, SRC(f32(4, 1, 1), absent));
}

static void test_broken_sources(void **state)
{
    (void)state;
    struct tensor negative = f32(4, 1, 1), wraps = f32(4, 1, 1), odd = make(FORMAT_Q8_0, 32, 2, 1, 1);
    negative.ne[2] = -1;
    wraps.ne[1] = wraps.ne[2] = (int64_t)1 << 42;
    odd.ne[0] = 33;
    refused("overflows", OP_ADD, NO_PARAMS, SRC(negative, f32(4, 1, 1)));
    refused("overflows", OP_ADD, NO_PARAMS, SRC(f32(4, 1, 1), wraps));
    refused("broken blocks", OP_GET_ROWS, NO_PARAMS, SRC(odd, i32(1)));
    struct tensor unknown = f32(4, 1, 1);
    unknown.format = N_FORMATS + 3;
    refused("unknown format", OP_ADD, NO_PARAMS, SRC(unknown, f32(4, 1, 1)));
}

/* ---- each rule */

static void test_elementwise_rules(void **state)
{
    (void)state;
    accepted(OP_ADD, NO_PARAMS, SRC(f32(8, 6, 4), f32(4, 3, 2)));
    refused("F32 [3, 6], does not repeat", OP_ADD, NO_PARAMS, SRC(f32(8, 6, 1), f32(3, 6, 1)));
    refused("does not repeat", OP_MUL, NO_PARAMS, SRC(f32(4, 3, 1), f32(8, 6, 1)));
    refused("does not repeat", OP_MUL, NO_PARAMS, SRC(f32(4, 3, 1), f32(0, 3, 1)));
    refused("not F32", OP_MUL, NO_PARAMS, SRC(make(FORMAT_F16, 8, 1, 1, 1), f32(8, 1, 1)));
    refused("not F32", OP_ADD, NO_PARAMS, SRC(f32(8, 1, 1), i32(8)));
    refused("not F32", OP_SCALE, NO_PARAMS, SRC(i32(8)));
    refused("unknown function 10", OP_UNARY, PARAMS(unary_params, N_UNARY), SRC(f32(8, 1, 1)));
    refused("unknown function -1", OP_UNARY, PARAMS(unary_params, -1), SRC(f32(8, 1, 1)));
    refused("unknown function", OP_GLU, PARAMS(glu_params, N_UNARY), SRC(f32(8, 1, 1), f32(8, 1, 1)));
    refused("differ in shape", OP_GLU, PARAMS(glu_params, UNARY_SILU), SRC(f32(8, 2, 1), f32(8, 1, 1)));
    refused("eps is -1", OP_RMS_NORM, PARAMS(rms_norm_params, -1), SRC(f32(8, 1, 1)));
    refused("eps is", OP_RMS_NORM, PARAMS(rms_norm_params, NAN), SRC(f32(8, 1, 1)));
    refused("not as wide", OP_SOFTMAX, PARAMS(softmax_params, 1), SRC(f32(8, 2, 1), f32(4, 1, 1)));
    refused("scale is", OP_SOFTMAX, PARAMS(softmax_params, INFINITY), SRC(f32(8, 2, 1)));
    accepted(OP_SOFTMAX, PARAMS(softmax_params, 1), SRC(f32(8, 2, 1), absent));
}

static void test_row_rules(void **state)
{
    (void)state;
    accepted(OP_GET_ROWS, NO_PARAMS, SRC(make(FORMAT_Q4_K, 256, 9, 1, 1), i32(3)));
    refused("not of a float format", OP_GET_ROWS, NO_PARAMS, SRC(i32(8), i32(1)));
    refused("not I32", OP_GET_ROWS, NO_PARAMS, SRC(f32(8, 4, 1), f32(1, 1, 1)));
    refused("more than one dimension", OP_GET_ROWS, NO_PARAMS, SRC(f32(8, 4, 1), make(FORMAT_I32, 2, 2, 1, 1)));
    refused("overflows", OP_GET_ROWS, NO_PARAMS, SRC(f32((int64_t)1 << 40, 1, 1), i32((int64_t)1 << 40)));
    refused("unknown format 99", OP_COPY, PARAMS(copy_params, 99), SRC(f32(8, 1, 1)));
    refused("cannot become I32", OP_COPY, PARAMS(copy_params, FORMAT_I32), SRC(f32(8, 1, 1)));
    refused("cannot become F32", OP_COPY, PARAMS(copy_params, FORMAT_F32), SRC(i32(8)));
    refused("breaks blocks", OP_COPY, PARAMS(copy_params, FORMAT_Q8_0), SRC(f32(33, 1, 1)));
    refused("unknown format", OP_QUANTIZE, PARAMS(quantize_params, -1), SRC(f32(32, 1, 1)));
    refused("cannot be written", OP_QUANTIZE, PARAMS(quantize_params, FORMAT_I32), SRC(f32(32, 1, 1)));
    refused("breaks blocks", OP_QUANTIZE, PARAMS(quantize_params, FORMAT_Q8_0), SRC(f32(48, 2, 1)));
    refused("not F32", OP_QUANTIZE, PARAMS(quantize_params, FORMAT_Q8_0), SRC(make(FORMAT_F16, 32, 1, 1, 1)));
}

static void test_mul_mat_rules(void **state)
{
    (void)state;
    accepted(OP_MUL_MAT, NO_PARAMS, SRC(make(FORMAT_F16, 64, 9, 2, 1), make(FORMAT_F32, 64, 5, 6, 3)));
    accepted(OP_MUL_MAT, NO_PARAMS, SRC(make(FORMAT_Q4_0, 64, 9, 1, 1), make(FORMAT_Q8_0, 64, 5, 1, 1)));
    refused("W F32 [64, 9] and X F32 [63, 5] differ in length", OP_MUL_MAT, NO_PARAMS, SRC(f32(64, 9, 1), f32(63, 5, 1)));
    refused("do not divide", OP_MUL_MAT, NO_PARAMS, SRC(f32(64, 9, 2), f32(64, 5, 3)));
    refused("do not divide", OP_MUL_MAT, NO_PARAMS, SRC(f32(64, 9, 0), f32(64, 5, 3)));
    refused("not of a float format", OP_MUL_MAT, NO_PARAMS, SRC(i32(64), f32(64, 5, 1)));
    refused("not of a float format", OP_MUL_MAT, NO_PARAMS, SRC(f32(64, 9, 1), i32(64)));
    refused("overflows", OP_MUL_MAT, NO_PARAMS, SRC(f32(1, (int64_t)1 << 40, 1), f32(1, (int64_t)1 << 40, 1)));
}

static void test_rope_rules(void **state)
{
    (void)state;
#define ROPE(mode, n_dims, ...) PARAMS(rope_params, mode, n_dims, 1e4f, 1, 0, 1, 32, 1, 0, {__VA_ARGS__})
    accepted(OP_ROPE, ROPE(ROPE_NEOX, 8, 0), SRC(f32(8, 2, 3), i32(3), f32(4, 1, 1)));
    accepted(OP_ROPE, ROPE(ROPE_SECTIONS, 8, 2, 1, 1, 0), SRC(f32(8, 2, 3), i32(12)));
    refused("7 rotated", OP_ROPE, ROPE(ROPE_NEOX, 7, 0), SRC(f32(8, 2, 3), i32(3)));
    refused("10 rotated", OP_ROPE, ROPE(ROPE_NEOX, 10, 0), SRC(f32(8, 2, 3), i32(3)));
    refused("0 rotated", OP_ROPE, ROPE(ROPE_NEOX, 0, 0), SRC(f32(8, 2, 3), i32(3)));
    refused("unknown mode 4", OP_ROPE, ROPE(4, 8, 0), SRC(f32(8, 2, 3), i32(3)));
    refused("one a token", OP_ROPE, ROPE(ROPE_NEOX, 8, 0), SRC(f32(8, 2, 3), i32(12)));
    refused("four a token", OP_ROPE, ROPE(ROPE_SECTIONS, 8, 4, 0, 0, 0), SRC(f32(8, 2, 3), i32(3)));
    refused("sections are empty", OP_ROPE, ROPE(ROPE_SECTIONS, 8, 0), SRC(f32(8, 2, 3), i32(12)));
    refused("section 1 is -1", OP_ROPE, ROPE(ROPE_SECTIONS_INTERLEAVED, 8, 4, -1, 0, 0), SRC(f32(8, 2, 3), i32(12)));
    accepted(OP_ROPE, ROPE(ROPE_SECTIONS, 8, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX), SRC(f32(8, 2, 3), i32(12)));
    refused("factors F32 [3]", OP_ROPE, ROPE(ROPE_NEOX, 8, 0), SRC(f32(8, 2, 3), i32(3), f32(3, 1, 1)));
    refused("not I32", OP_ROPE, ROPE(ROPE_NEOX, 8, 0), SRC(f32(8, 2, 3), f32(3, 1, 1)));
    refused("base -1", OP_ROPE, PARAMS(rope_params, ROPE_NEOX, 8, -1, 1, 0, 1, 32, 1, 0, {0}), SRC(f32(8, 2, 3), i32(3)));
    refused("freq_scale 0", OP_ROPE, PARAMS(rope_params, ROPE_NEOX, 8, 1e4f, 0, 0, 1, 32, 1, 0, {0}),
            SRC(f32(8, 2, 3), i32(3)));
    refused("n_ctx_orig 0", OP_ROPE, PARAMS(rope_params, ROPE_NEOX, 8, 1e4f, 1, 1, 1, 32, 1, 0, {0}),
            SRC(f32(8, 2, 3), i32(3)));
    refused("beta_slow 0", OP_ROPE, PARAMS(rope_params, ROPE_NEOX, 8, 1e4f, 1, 1, 1, 32, 0, 4096, {0}),
            SRC(f32(8, 2, 3), i32(3)));
#undef ROPE
}

static void test_cache_rules(void **state)
{
    (void)state;
    accepted(OP_KV_WRITE, NO_PARAMS, SRC(f32(64, 2, 5), make(FORMAT_F16, 64, 9, 2, 1), i32(5)));
    refused("do not fit", OP_KV_WRITE, NO_PARAMS, SRC(f32(64, 2, 5), make(FORMAT_F16, 64, 9, 3, 1), i32(5)));
    refused("do not fit", OP_KV_WRITE, NO_PARAMS, SRC(f32(64, 2, 5), make(FORMAT_F16, 32, 9, 2, 1), i32(5)));
    refused("do not fit", OP_KV_WRITE, NO_PARAMS, SRC(f32(64, 2, 5), make(FORMAT_F16, 64, 9, 2, 1), i32(4)));
    refused("cannot be written", OP_KV_WRITE, NO_PARAMS, SRC(f32(64, 2, 5), make(FORMAT_I32, 64, 9, 2, 1), i32(5)));

#define ATTENTION(...) OP_ATTENTION, PARAMS(attention_params, __VA_ARGS__)
#define Q              f32(64, 4, 5)
#define KV             make(FORMAT_F16, 64, 9, 2, 1)
#define MAP            make(FORMAT_I32, 9, 2, 1, 1)
    accepted(ATTENTION(1, 0, 0), SRC(Q, KV, KV, i32(5), i32(5), MAP));
    accepted(ATTENTION(1, 0, 0), SRC(Q, KV, KV, i32(5), i32(5), MAP, f32(4, 1, 1)));
    refused("do not fit", ATTENTION(1, 0, 0), SRC(f32(32, 4, 5), KV, KV, i32(5), i32(5), MAP));
    refused("do not fit", ATTENTION(1, 0, 0), SRC(Q, KV, make(FORMAT_F16, 64, 8, 2, 1), i32(5), i32(5), MAP));
    refused("no multiple", ATTENTION(1, 0, 0), SRC(f32(64, 3, 5), KV, KV, i32(5), i32(5), MAP));
    refused("no multiple", ATTENTION(1, 0, 0),
            SRC(Q, make(FORMAT_F16, 64, 9, 0, 1), make(FORMAT_F16, 64, 9, 0, 1), i32(5), i32(5), MAP));
    refused("positions I32 [4]", ATTENTION(1, 0, 0), SRC(Q, KV, KV, i32(4), i32(5), MAP));
    refused("sequences I32 [6]", ATTENTION(1, 0, 0), SRC(Q, KV, KV, i32(5), i32(6), MAP));
    refused("map I32 [9, 2, 2]", ATTENTION(1, 0, 0), SRC(Q, KV, KV, i32(5), i32(5), make(FORMAT_I32, 9, 2, 2, 1)));
    refused("sinks F32 [5]", ATTENTION(1, 0, 0), SRC(Q, KV, KV, i32(5), i32(5), MAP, f32(5, 1, 1)));
    refused("not I32", ATTENTION(1, 0, 0), SRC(Q, KV, KV, f32(5, 1, 1), i32(5), MAP));
    refused("window -1", ATTENTION(1, 0, -1), SRC(Q, KV, KV, i32(5), i32(5), MAP));
    refused("softcap -1", ATTENTION(1, -1, 0), SRC(Q, KV, KV, i32(5), i32(5), MAP));
    accepted(ATTENTION(1, 0, 0, 0.5f, 1), SRC(Q, KV, KV, i32(5), i32(5), MAP));
    refused("temperature 0.5 each 0 positions", ATTENTION(1, 0, 0, 0.5f, 0), SRC(Q, KV, KV, i32(5), i32(5), MAP));
    refused("temperature inf", ATTENTION(1, 0, 0, INFINITY, 4), SRC(Q, KV, KV, i32(5), i32(5), MAP));
    refused("scale nan", ATTENTION(fabsf(NAN), 0, 0), SRC(Q, KV, KV, i32(5), i32(5), MAP));
#undef ATTENTION
#undef Q
#undef KV
#undef MAP
}

static void test_recurrent_rules(void **state)
{
    (void)state;
#define CONV         OP_SSM_CONV, NO_PARAMS
#define SLOTS        make(FORMAT_I32, 2, 3, 1, 1)
#define WINDOW(c, w) f32(c, w, 4)
    accepted(CONV, SRC(f32(8, 5, 1), f32(4, 8, 1), WINDOW(8, 3), i32(5), SLOTS));
    accepted(CONV, SRC(f32(8, 5, 1), f32(1, 8, 1), WINDOW(8, 0), i32(5), SLOTS));
    refused("do not fit", CONV, SRC(f32(8, 5, 1), f32(4, 9, 1), WINDOW(8, 3), i32(5), SLOTS));
    refused("do not fit", CONV, SRC(f32(8, 5, 1), f32(4, 8, 1), WINDOW(8, 4), i32(5), SLOTS));
    refused("do not fit", CONV, SRC(f32(8, 5, 1), f32(4, 8, 1), WINDOW(7, 3), i32(5), SLOTS));
    refused("do not fit", CONV, SRC(f32(8, 5, 2), f32(4, 8, 1), WINDOW(8, 3), i32(5), SLOTS));
    refused("do not fit", CONV, SRC(f32(8, 5, 1), f32(0, 8, 1), WINDOW(8, 3), i32(5), SLOTS));
    refused("sequences I32 [4]", CONV, SRC(f32(8, 5, 1), f32(4, 8, 1), WINDOW(8, 3), i32(4), SLOTS));
    refused("slots I32 [3, 3]", CONV, SRC(f32(8, 5, 1), f32(4, 8, 1), WINDOW(8, 3), i32(5), make(FORMAT_I32, 3, 3, 1, 1)));
    refused("more than 3", CONV, SRC(f32(8, 5, 1), f32(4, 8, 1), make(FORMAT_F32, 8, 3, 4, 2), i32(5), SLOTS));
    refused("not F32", CONV, SRC(f32(8, 5, 1), f32(4, 8, 1), make(FORMAT_F16, 8, 3, 4, 1), i32(5), SLOTS));
    refused("not I32", CONV, SRC(f32(8, 5, 1), f32(4, 8, 1), WINDOW(8, 3), f32(5, 1, 1), SLOTS));
#undef CONV
#undef WINDOW

#define RULE(...)                      OP_GATED_DELTA_RULE, PARAMS(gated_delta_rule_params, __VA_ARGS__)
#define STATE(d_v, d_k, n_v)           make(FORMAT_F32, d_v, d_k, n_v, 4)
#define GIVEN(q, k, v, g, beta, state) SRC(q, k, v, g, beta, state, i32(5), SLOTS)
    const struct tensor q = f32(8, 2, 5), v = f32(16, 4, 5), g = f32(4, 5, 1), s = STATE(16, 8, 4);
    accepted(RULE(1, DELTA_TILED), GIVEN(q, q, v, g, g, s));
    refused("do not fit", RULE(1, DELTA_TILED), GIVEN(q, f32(8, 4, 5), v, g, g, s));
    refused("do not fit", RULE(1, DELTA_TILED), GIVEN(q, q, f32(16, 3, 5), f32(3, 5, 1), f32(3, 5, 1), STATE(16, 8, 3)));
    refused("do not fit", RULE(1, DELTA_TILED), GIVEN(f32(8, 0, 5), f32(8, 0, 5), v, g, g, s));
    refused("g F32 [4, 4]", RULE(1, DELTA_TILED), GIVEN(q, q, v, f32(4, 4, 1), g, s));
    refused("beta F32 [3, 5]", RULE(1, DELTA_TILED), GIVEN(q, q, v, g, f32(3, 5, 1), s));
    refused("state F32 [8, 16, 4, 4]", RULE(1, DELTA_TILED), GIVEN(q, q, v, g, g, STATE(8, 16, 4)));
    refused("sequences I32 [6]", RULE(1, DELTA_TILED), SRC(q, q, v, g, g, s, i32(6), SLOTS));
    refused("heads 2", RULE(1, 2), GIVEN(q, q, v, g, g, s));
    refused("scale nan", RULE(fabsf(NAN), DELTA_TILED), GIVEN(q, q, v, g, g, s));
    refused("eps is 0", OP_L2_NORM, PARAMS(l2_norm_params, 0), SRC(f32(8, 2, 1)));
    refused("eps is nan", OP_L2_NORM, PARAMS(l2_norm_params, fabsf(NAN)), SRC(f32(8, 2, 1)));
#undef RULE
#undef STATE
#undef GIVEN
#undef SLOTS
}

/* ---- alias ops */

static void test_alias_rules(void **state)
{
    (void)state;
#define VIEW(...) OP_VIEW, PARAMS(view_params, __VA_ARGS__)
    accepted(VIEW({4, 2}, {4, 32, 64, 64}, 16), SRC(f32(8, 2, 1)));
    refused("reaches outside", VIEW({4, 2}, {4, 32, 64, 64}, 20), SRC(f32(8, 2, 1)));
    refused("reaches outside", VIEW({8, 3}, {4, 32, 64, 64}, 0), SRC(f32(8, 2, 1)));
    refused("reaches outside", VIEW({8, 2}, {4, UINT64_MAX - 3, 64, 64}, 0), SRC(f32(8, 2, 1)));
    refused("reaches outside", VIEW({8, 5}, {4, (uint64_t)1 << 62, 64, 64}, 0), SRC(f32(8, 2, 1)));
    refused("reaches outside", VIEW({8, 2}, {0}, UINT64_MAX), SRC(f32(8, 2, 1)));
    refused("between blocks", VIEW({4}, {6, 32, 64, 64}, 0), SRC(f32(8, 2, 1)));
    refused("between blocks", VIEW({64}, {68, 68, 68, 68}, 0), SRC(make(FORMAT_Q8_0, 64, 2, 1, 1)));
    refused("breaks blocks", VIEW({16}, {0}, 0), SRC(make(FORMAT_Q8_0, 64, 2, 1, 1)));
    refused("overflows", VIEW({8, -2}, {0}, 0), SRC(f32(8, 2, 1)));
#undef VIEW
#define RESHAPE(...) OP_RESHAPE, PARAMS(reshape_params, {__VA_ARGS__})
    refused("does not hold the elements", RESHAPE(8, 3), SRC(f32(8, 2, 1)));
    refused("breaks blocks", RESHAPE(16, 8), SRC(make(FORMAT_Q8_0, 64, 2, 1, 1)));
    refused("overflows", RESHAPE((int64_t)1 << 62, 4), SRC(f32(8, 2, 1)));
    refused("overflows", RESHAPE(-8, -2), SRC(f32(8, 2, 1)));
    struct tensor gaps = f32(8, 2, 1);
    gaps.nb[1] += 4;
    refused("not contiguous", RESHAPE(16), SRC(gaps));
#undef RESHAPE
#define PERMUTE(...) OP_PERMUTE, PARAMS(permute_params, {__VA_ARGS__})
    refused("no permutation", PERMUTE(0, 1, 1, 3), SRC(f32(8, 2, 1)));
    refused("no permutation", PERMUTE(0, 1, 2, 4), SRC(f32(8, 2, 1)));
    refused("no permutation", PERMUTE(-1, 1, 2, 3), SRC(f32(8, 2, 1)));
    refused("has blocks", PERMUTE(1, 0, 2, 3), SRC(make(FORMAT_Q8_0, 64, 2, 1, 1)));
#undef PERMUTE
}

/* A view of a permuted view of a view: base is the memory's owner, and elements are where the chain says. */
static void test_alias_chain(void **state)
{
    (void)state;
    float memory[60];
    for (int i = 0; i < 60; i++)
        memory[i] = (float)i;
    struct tensor owner = f32(5, 4, 3);
    owner.data = memory;
    struct built window, turned, column;
    build(&window, OP_VIEW, PARAMS(view_params, {3, 4, 2}, {4, 20, 80, 160}, 80 + 4), 1, &owner);
    window.node.src[0] = &owner;
    assert_int_equal(op_get(OP_VIEW)->shape(&window.node, NULL), 0);
    build(&turned, OP_PERMUTE, PARAMS(permute_params, {2, 0, 1, 3}), 1, &owner);
    turned.node.src[0] = &window.out;
    assert_int_equal(op_get(OP_PERMUTE)->shape(&turned.node, NULL), 0); /* [4, 2, 3] */
    build(&column, OP_VIEW, PARAMS(view_params, {1, 2, 3}, {20, 80, 4, 4}, 20), 1, &owner);
    column.node.src[0] = &turned.out;
    assert_int_equal(op_get(OP_VIEW)->shape(&column.node, NULL), 0);

    assert_ptr_equal(window.out.base, &owner);
    assert_ptr_equal(turned.out.base, &owner);
    assert_ptr_equal(column.out.base, &owner);
    assert_int_equal(column.out.offset, 80 + 4 + 20);
    assert_int_equal(turned.out.ne[0], 4);
    assert_int_equal(turned.out.ne[1], 2);
    assert_int_equal(turned.out.ne[2], 3);
    /* turned(a, b, c) is window(c, a, b) is owner(c + 1, a, b + 1). */
    turned.out.data = (char *)memory + turned.out.offset;
    float row[4];
    for (int64_t b = 0; b < 2; b++)
        for (int64_t c = 0; c < 3; c++) {
            const float *values = tensor_read_row(&turned.out, b, c, 0, row);
            for (int64_t a = 0; a < 4; a++)
                assert_true(values[a] == (float)(c + 1 + 5 * a + 20 * (b + 1)));
        }
    assert_int_equal(tensor_nbytes(&window.out), (2 + 15 + 20) * 4 + 4);
    assert_int_equal(tensor_nbytes(&turned.out), tensor_nbytes(&window.out));
    assert_false(tensor_contiguous(&window.out));
    assert_true(tensor_rows_contiguous(&window.out));
    assert_false(tensor_rows_contiguous(&turned.out));
}

/* An in-place op on a view of the cache: out lies where the cache lies. */
static void test_kv_write_of_a_view(void **state)
{
    (void)state;
    struct tensor owner = make(FORMAT_F16, 64, 9, 4, 1);
    struct built view, write;
    build(&view, OP_VIEW, PARAMS(view_params, {64, 9, 2}, {0}, 2 * 64 * 9 * 2), 1, &owner);
    view.node.src[0] = &owner;
    assert_int_equal(op_get(OP_VIEW)->shape(&view.node, NULL), 0);
    build(&write, OP_KV_WRITE, NO_PARAMS, SRC(f32(64, 2, 5), owner, i32(5)));
    write.node.src[1] = &view.out;
    assert_int_equal(op_get(OP_KV_WRITE)->shape(&write.node, NULL), 0);
    assert_ptr_equal(write.out.base, &owner);
    assert_int_equal(write.out.offset, 2 * 64 * 9 * 2);
    assert_true(tensor_same_shape(&write.out, &view.out));
}

/* ---- tensors */

static void test_tensor_shapes(void **state)
{
    (void)state;
    char text[64];
    struct tensor t = make(FORMAT_Q4_0, 64, 3, 2, 1), scalar = f32(1, 1, 1), empty = f32(4, 0, 2);
    assert_string_equal(tensor_describe(&t, text, sizeof text), "Q4_0 [64, 3, 2]");
    assert_string_equal(tensor_describe(&scalar, text, sizeof text), "F32 [1]");
    assert_string_equal(tensor_describe(&t, text, 9), "Q4_0 [64");
    assert_int_equal(tensor_nbytes(&t), 2 * 18 * 6);
    assert_int_equal(t.nb[0], 18);
    assert_int_equal(t.nb[1], 36);
    assert_int_equal(t.nb[2], 108);
    assert_int_equal(tensor_nbytes(&empty), 0);
    assert_int_equal(tensor_elements(&empty), 0);
    assert_true(tensor_contiguous(&t));
    t.nb[3] = 1; /* of a dimension of one: never used */
    assert_true(tensor_contiguous(&t));
    t.nb[2] = 144;
    assert_false(tensor_contiguous(&t));
    assert_int_equal(tensor_nbytes(&t), 144 + 108);
    assert_true(tensor_shape_fits(FORMAT_F32, (const int64_t[]){0, 1, 1, 1}));
    assert_false(tensor_shape_fits(FORMAT_F32, (const int64_t[]){INT64_MAX, 1, 1, 1}));
    assert_false(tensor_shape_fits(FORMAT_F32, (const int64_t[]){(int64_t)1 << 31, (int64_t)1 << 31, 1, 1}));
    assert_false(
        tensor_shape_fits(FORMAT_F32, (const int64_t[]){0, (int64_t)1 << 42, (int64_t)1 << 42, 1})); /* wraps though empty */
    assert_false(tensor_shape_fits(FORMAT_Q4_K, (const int64_t[]){128, 1, 1, 1}));
}

/* A weight in a file may begin at any byte. */
static void test_rows_at_odd_addresses(void **state)
{
    (void)state;
    unsigned char bytes[64];
    float values[3] = {1.5f, -2, 3}, room[3], back[3];
    struct tensor t = f32(3, 1, 1);
    t.data = bytes + 1;
    tensor_write_row(&t, 0, 0, 0, values);
    memcpy(back, bytes + 1, sizeof back);
    assert_memory_equal(back, values, sizeof values);
    const float *row = tensor_read_row(&t, 0, 0, 0, room);
    assert_ptr_equal(row, room);
    assert_memory_equal(row, values, sizeof values);
    t.data = values;
    assert_ptr_equal(tensor_read_row(&t, 0, 0, 0, room), values); /* in place where it can be */
    t = i32(2);
    t.data = bytes + 3;
    memcpy(bytes + 3, (const int32_t[]){-7, 8}, 8);
    assert_int_equal(tensor_read_index(&t, 0, 0), -7);
    assert_int_equal(tensor_read_index(&t, 1, 0), 8);
}

static void test_names(void **state)
{
    (void)state;
    enum op op;
    for (int i = 0; i < N_OPS; i++) {
        assert_int_equal(op_by_name(op_get((enum op)i)->name, &op), 0);
        assert_int_equal(op, i);
    }
    assert_int_equal(op_by_name("mulmat", &op), -1);
}

/* A captured case and a plug-in know of parameters what their list says: it names every byte of the struct. */
static void test_params_are_listed(void **state)
{
    (void)state;
    for (int i = 0; i < N_OPS; i++) {
        const struct op_desc *d = op_get((enum op)i);
        unsigned char named[256] = {0};
        if (d->alias)
            continue;
        assert_true(d->params_size <= sizeof named);
        for (const struct op_param *p = d->params; p && p->name; p++) {
            assert_true(p->offset + 4 <= d->params_size);
            memset(named + p->offset, 1, 4);
        }
        for (size_t k = 0; k < d->params_size; k++)
            if (!named[k])
                fail_msg("%s: byte %zu of its %zu bytes of parameters has no name", d->name, k, d->params_size);
    }
}

/* ---- references on what no engine should send */

static void run(const struct node *n, int n_threads)
{
    struct case_run c = {.node = *n};
    struct pool *pool = pool_create(n_threads, 0, NULL);
    assert_int_equal(case_reference(&c, pool, NULL), 0);
    pool_free(pool);
}

static void test_masked_softmax(void **state)
{
    (void)state;
    float x[6] = {1, 2, 3, 1, 2, 3}, mask[6] = {0, -INFINITY, 0, -INFINITY, -INFINITY, -INFINITY}, y[6];
    struct built b;
    build(&b, OP_SOFTMAX, PARAMS(softmax_params, 1), SRC(f32(3, 2, 1), f32(3, 2, 1)));
    assert_int_equal(op_get(OP_SOFTMAX)->shape(&b.node, NULL), 0);
    b.src[0].data = x;
    b.src[1].data = mask;
    b.out.data = y;
    run(&b.node, 1);
    assert_true(fabs((double)y[0] - 1 / (1 + exp(2))) < 1e-7 && y[1] == 0 && fabsf(y[0] + y[2] - 1) < 1e-6f);
    assert_true(y[3] == 0 && y[4] == 0 && y[5] == 0); /* nothing left: zeros, not NaN */
}

/* Two tokens in one cell: the later one stays, however many threads there are. */
static void test_kv_write_twice(void **state)
{
    (void)state;
    float rows[2 * 3 * 4], cache[2 * 5 * 3];
    int32_t cells[4] = {2, 4, 2, INT32_MIN};
    for (int n_threads = 1; n_threads <= 7; n_threads++) {
        struct built b;
        build(&b, OP_KV_WRITE, NO_PARAMS, SRC(f32(2, 3, 4), f32(2, 5, 3), i32(4)));
        assert_int_equal(op_get(OP_KV_WRITE)->shape(&b.node, NULL), 0);
        for (int i = 0; i < 24; i++)
            rows[i] = (float)i;
        memset(cache, 0, sizeof cache);
        b.src[0].data = rows;
        b.src[1].data = b.out.data = cache;
        b.src[2].data = cells;
        run(&b.node, n_threads);
        for (int head = 0; head < 3; head++)
            for (int cell = 0; cell < 5; cell++) {
                int token = cell == 2 ? 2 : cell == 4 ? 1 : -1;
                for (int i = 0; i < 2; i++)
                    assert_true(cache[(head * 5 + cell) * 2 + i] == (token < 0 ? 0 : rows[(token * 3 + head) * 2 + i]));
            }
    }
}

/* Positions, sequences and cells outside of everything: zeros, or the cell left out, and no read elsewhere. */
static void test_attention_with_a_broken_map(void **state)
{
    (void)state;
    enum { D = 4, CELLS = 3, CTX = 4, TOKENS = 7 };
    float q[D * TOKENS], k[D * CELLS], v[D * CELLS], y[D * TOKENS];
    int32_t positions[TOKENS] = {0, 3, CTX, INT32_MAX, INT32_MIN, 2, 2}, sequences[TOKENS] = {0, 0, 0, 0, 0, 1, -1};
    int32_t map[CTX] = {0, INT32_MAX, -1, 2};
    struct built b;
    for (int i = 0; i < D * TOKENS; i++)
        q[i] = (float)(i % 3);
    for (int i = 0; i < D * CELLS; i++)
        k[i] = 0, v[i] = (float)i;
    build(&b, OP_ATTENTION, PARAMS(attention_params, 1, 0, 0),
          SRC(f32(D, 1, TOKENS), f32(D, CELLS, 1), f32(D, CELLS, 1), i32(TOKENS), i32(TOKENS), i32(CTX)));
    assert_int_equal(op_get(OP_ATTENTION)->shape(&b.node, NULL), 0);
    void *data[] = {q, k, v, positions, sequences, map};
    for (int i = 0; i < 6; i++)
        b.src[i].data = data[i];
    b.out.data = y;
    run(&b.node, 2);
    for (int i = 0; i < D; i++) {
        assert_true(y[i] == v[i]);                          /* token 0 sees cell 0 */
        assert_true(y[D + i] == (v[i] + v[2 * D + i]) / 2); /* token 1 sees cells 0 and 2, the others are none */
        for (int t = 2; t < TOKENS; t++)
            assert_true(y[t * D + i] == 0);
    }
}

/* ---- golden values */

/* ggml computes angles in f32, so it agrees to some units of 1e-7 at these positions, times the size of the values. */
static void test_rope_as_ggml(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_rope / sizeof *golden_rope; i++) {
        const struct golden_rope *g = &golden_rope[i];
        static float x[128], y[128], factors[8];
        static int32_t positions[16];
        int n = g->head_dim * g->n_head * g->n_tokens, n_positions = g->n_tokens * (g->params.mode >= ROPE_SECTIONS ? 4 : 1);
        for (int j = 0; j < n; j++)
            x[j] = (float)(7919 * j % 1001 - 500) / 256;
        memcpy(factors, g->factors, sizeof factors);
        memcpy(positions, g->positions, sizeof positions);
        struct built b;
        build(&b, OP_ROPE, &g->params, sizeof g->params,
              SRC(f32(g->head_dim, g->n_head, g->n_tokens), i32(n_positions), g->n_factors ? f32(g->n_factors, 1, 1) : absent));
        assert_int_equal(op_get(OP_ROPE)->shape(&b.node, NULL), 0);
        b.src[0].data = x;
        b.src[1].data = positions;
        b.src[2].data = factors;
        b.out.data = y;
        run(&b.node, 2);
        for (int j = 0; j < n; j++)
            if (!(fabsf(y[j] - g->out[j]) < 2e-5f))
                fail_msg("rope %s: element %d is %.9g, ggml gives %.9g", g->name, j, (double)y[j], (double)g->out[j]);
    }
}

/* ---- the same bits */

/* The order that dot.h promises, written out. */
static double dot_in_order(const float *a, const double *b, int64_t n)
{
    double lanes[DOT_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lanes[i % DOT_LANES] += (double)a[i] * b[i];
    for (int half = DOT_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

static void test_dot_variants(void **state)
{
    (void)state;
    enum { N = 700, COLUMNS = 13 };
    static float a[DOT_ROWS][N], x[N];
    static double b[COLUMNS][N];
    const int64_t lengths[] = {0, 1, 7, 8, 9, 15, 16, 63, 64, 65, 576, 577, N};
    struct rng r = rng_seed(7);
    for (int i = 0; i < N; i++) {
        for (int row = 0; row < DOT_ROWS; row++)
            a[row][i] = (float)(rng_normal(&r) * exp(3 * rng_normal(&r)));
        for (int c = 0; c < COLUMNS; c++)
            b[c][i] = rng_normal(&r) * exp(3 * rng_normal(&r));
        x[i] = (float)rng_normal(&r);
    }
    const struct dot *dot;
    int n_variants = 0;
    for (; (dot = dot_variant(n_variants)); n_variants++) {
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (int rows = 1; rows <= DOT_ROWS; rows++)
                for (int columns = 0; columns <= COLUMNS; columns += columns < 5 ? 1 : 4) {
                    const float *pointers[DOT_ROWS] = {a[0], a[1], a[2], a[3]};
                    double out[COLUMNS * DOT_ROWS];
                    dot->block(pointers, rows, b[0], N, columns, lengths[l], out);
                    for (int c = 0; c < columns; c++)
                        for (int row = 0; row < rows; row++) {
                            double expected = dot_in_order(a[row], b[c], lengths[l]);
                            if (memcmp(&expected, &out[c * DOT_ROWS + row], sizeof expected) != 0)
                                fail_msg("variant %s, n %lld, row %d of %d, column %d of %d: %.17g, not %.17g", dot->name,
                                         (long long)lengths[l], row, rows, c, columns, out[c * DOT_ROWS + row], expected);
                        }
                }
        double y[N], expected[N];
        for (int i = 0; i < N; i++) {
            y[i] = b[0][i];
            expected[i] = b[0][i] + 0.3 * (double)x[i];
        }
        dot->accumulate(0.3, x, y, N - 1);
        expected[N - 1] = b[0][N - 1];
        assert_memory_equal(y, expected, sizeof y);
    }
    printf("dot: %d variants run here, the best is %s\n", n_variants, dot_best()->name);
    assert_ptr_equal(dot_best(), dot_variant(n_variants - 1));
}

/* One token alone, or among others in any batch: the same bits. */
static void test_mul_mat_batches(void **state)
{
    (void)state;
    enum { K = 576, M = 37, N = 130 };
    static float w[K * M], x[K * N], y[M * N], one[M];
    struct rng r = rng_seed(8);
    for (int i = 0; i < K * M; i++)
        w[i] = (float)rng_normal(&r);
    for (int i = 0; i < K * N; i++)
        x[i] = (float)rng_normal(&r);
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct built b;
        build(&b, OP_MUL_MAT, NO_PARAMS, SRC(f32(K, M, 1), f32(K, N, 1)));
        assert_int_equal(op_get(OP_MUL_MAT)->shape(&b.node, NULL), 0);
        b.src[0].data = w;
        b.src[1].data = x;
        b.out.data = y;
        run(&b.node, n_threads);
        for (int t = 0; t < N; t += 13) {
            build(&b, OP_MUL_MAT, NO_PARAMS, SRC(f32(K, M, 1), f32(K, 1, 1)));
            assert_int_equal(op_get(OP_MUL_MAT)->shape(&b.node, NULL), 0);
            b.src[0].data = w;
            b.src[1].data = x + t * K;
            b.out.data = one;
            run(&b.node, 1);
            assert_memory_equal(one, y + t * M, sizeof one);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_counts_its_sources),
        cmocka_unit_test(test_broken_sources),
        cmocka_unit_test(test_elementwise_rules),
        cmocka_unit_test(test_row_rules),
        cmocka_unit_test(test_mul_mat_rules),
        cmocka_unit_test(test_rope_rules),
        cmocka_unit_test(test_cache_rules),
        cmocka_unit_test(test_recurrent_rules),
        cmocka_unit_test(test_alias_rules),
        cmocka_unit_test(test_alias_chain),
        cmocka_unit_test(test_kv_write_of_a_view),
        cmocka_unit_test(test_tensor_shapes),
        cmocka_unit_test(test_rows_at_odd_addresses),
        cmocka_unit_test(test_names), cmocka_unit_test(test_params_are_listed),
        cmocka_unit_test(test_masked_softmax),
        cmocka_unit_test(test_kv_write_twice),
        cmocka_unit_test(test_attention_with_a_broken_map),
        cmocka_unit_test(test_rope_as_ggml),
        cmocka_unit_test(test_dot_variants),
        cmocka_unit_test(test_mul_mat_batches),
    };
    return cmocka_run_group_tests_name("op_rules", tests, NULL, NULL);
}
