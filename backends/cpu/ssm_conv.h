/* ssm_conv.h: the body of ssm_conv, and of ssm_conv_silu: a causal convolution over the tokens of each sequence.
 *
 * A worker has a span of channels through all tokens and sequences, so old and new window may lie in one slot and nobody waits.
 * The taps are turned once a call, [tap][channel] in scratch; then each token is a sum of a few rows, `width` loads and
 * multiply-adds a vector, all of them consecutive. Running down the tokens with the window in registers was the alternative:
 * fewer loads, but each of them in another page, 24 KB from the last.
 *
 * Bound by the first-level cache in prefill; a decode step by reading weights and window once: (2 width + 1) x 4 bytes a
 * channel. */
#ifndef BACKENDS_CPU_SSM_CONV_H
#define BACKENDS_CPU_SSM_CONV_H

#include "backends/cpu/floats_math.h"
#include "backends/cpu/rows.h"
#include "ops/recurrent.h"

enum { CONV_GRAIN = 64, CONV_MAX_WIDTH = 16 };

struct conv {
    const struct tensor *x, *weight, *state, *sequences, *slots, *out;
    int64_t lo, hi, width;
    bool silu;
    float *taps;        /* [width][hi - lo] */
    const float *zeros; /* [hi - lo]: the past of a sequence that begins */
    int32_t *tokens;
};

static inline bool conv_fits(const struct node *n, struct reason *r)
{
    const struct tensor *rows[] = {n->src[0], n->src[1], n->src[2], n->out};
    for (int i = 0; i < 4; i++)
        if (rows[i]->nb[0] != sizeof(float))
            return fits_not(r, "the elements of a row of %.60s do not lie one behind the other", rows[i]->name);
    if (n->src[1]->ne[0] > CONV_MAX_WIDTH)
        return fits_not(r, "%lld taps, more than %d", (long long)n->src[1]->ne[0], CONV_MAX_WIDTH);
    if (n->n_also)
        return fits_not(r, "%.60s is read by others", n->also[0]->name);
    return true;
}

static inline size_t conv_scratch(const struct node *n)
{
    size_t channels = (size_t)n->out->ne[0];
    return sizeof(float) * ((size_t)n->src[1]->ne[0] + 1) * channels + sizeof(int32_t) * (size_t)n->out->ne[1] + 64;
}

/* A constant choice of lanes: of each quad, here of V / 4 channels' taps a vector, number j. */
#define CONV_HALF(a, b, j)                                                                                                     \
    __builtin_shufflevector(a, b, j, 4 + j, 8 + j, 12 + j, 16 + j, 20 + j, 24 + j, 28 + j, -1, -1, -1, -1, -1, -1, -1, -1)

/* to[j][0 .. V) = tap j of V channels, four taps each, one behind the other. */
INLINE void conv_turn_4(const float *from, float *to, int64_t row)
{
#ifdef __AVX512F__
    vf a = v_load(from), b = v_load(from + 16), c = v_load(from + 32), d = v_load(from + 48);
#define CONV_TURN(j)                                                                                                           \
    v_store(to + j * row, __builtin_shufflevector(CONV_HALF(a, b, j), CONV_HALF(c, d, j), 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18,  \
                                                  19, 20, 21, 22, 23))
#else
    vf a = v_load(from), b = v_load(from + 8), c = v_load(from + 16), d = v_load(from + 24);
#define CONV_TURN(j)                                                                                                           \
    v_store(to + j * row, __builtin_shufflevector(__builtin_shufflevector(a, b, j, 4 + j, 8 + j, 12 + j, -1, -1, -1, -1),      \
                                                  __builtin_shufflevector(c, d, j, 4 + j, 8 + j, 12 + j, -1, -1, -1, -1), 0,   \
                                                  1, 2, 3, 8, 9, 10, 11))
#endif
    CONV_TURN(0);
    CONV_TURN(1);
    CONV_TURN(2);
    CONV_TURN(3);
#undef CONV_TURN
}

static inline void conv_turn(const struct conv *c)
{
    int64_t n = c->hi - c->lo, i = 0;
    const char *from = (const char *)c->weight->data + (size_t)c->lo * c->weight->nb[1];
    if (c->width == 4 && c->weight->nb[1] == 4 * sizeof(float))
        for (; i + V <= n; i += V)
            conv_turn_4((const float *)(const void *)(from + (size_t)i * c->weight->nb[1]), c->taps + i, n);
    for (; i < n; i++) {
        float taps[CONV_MAX_WIDTH];
        memcpy(taps, from + (size_t)i * c->weight->nb[1], sizeof *taps * (size_t)c->width);
        for (int64_t j = 0; j < c->width; j++)
            c->taps[j * n + i] = taps[j];
    }
}

/* n <= V channels from i on. */
INLINE vf conv_sum(const struct conv *c, const float *const *rows, int64_t width, int64_t i, int64_t n)
{
    int64_t all = c->hi - c->lo;
    vf sum = v_load_up_to(c->taps + i, n) * v_load_up_to(rows[0] + i, n);
    for (int64_t j = 1; j < width; j++)
        sum = v_fma(v_load_up_to(c->taps + j * all + i, n), v_load_up_to(rows[j] + i, n), sum);
    return sum;
}

/* One token: rows[j] is what tap j meets. */
INLINE void conv_token(const struct conv *c, const float *const *rows, int64_t width, bool silu, float *y)
{
    int64_t n = c->hi - c->lo, i = 0;
    for (; i + V <= n; i += V) {
        vf sum = conv_sum(c, rows, width, i, V);
        v_store(y + i, silu ? v_unary(UNARY_SILU, sum) : sum);
    }
    if (i < n) {
        vf sum = conv_sum(c, rows, width, i, n - i);
        v_store_first(y + i, silu ? v_unary(UNARY_SILU, sum) : sum, n - i);
    }
}

INLINE float *conv_row(const struct conv *c, const struct tensor *t, int64_t row, int64_t slot)
{
    return (float *)tensor_row(t, row, slot, 0) + c->lo;
}

/* Input number t of the sequence at hand, the first of the step being 0. */
static inline const float *conv_input(const struct conv *c, int64_t from, int64_t t)
{
    if (t >= 0)
        return conv_row(c, c->x, c->tokens[t], 0);
    return from < 0 ? c->zeros : conv_row(c, c->state, c->width - 1 + t, from);
}

static inline void conv_sequence(const struct conv *c, int64_t seq, int64_t n_tokens)
{
    int64_t from = recurrent_slot(c->slots, seq, false, c->state->ne[2]),
            to = recurrent_slot(c->slots, seq, true, c->state->ne[2]);
    const float *rows[CONV_MAX_WIDTH];
    for (int64_t t = 0; t < n_tokens; t++) {
        float *y = conv_row(c, c->out, c->tokens[t], 0);
        for (int64_t j = 0; j < c->width; j++)
            rows[j] = conv_input(c, from, t - (c->width - 1) + j);
        if (c->width == 4 && c->silu)
            conv_token(c, rows, 4, true, y);
        else if (c->width == 4)
            conv_token(c, rows, 4, false, y);
        else
            conv_token(c, rows, c->width, c->silu, y);
    }
    /* Each row comes from a later one, so a window may move within its slot. */
    for (int64_t j = 0; j < c->width - 1 && to >= 0; j++)
        memmove(conv_row(c, c->state, j, to), conv_input(c, from, n_tokens - (c->width - 1) + j),
                sizeof(float) * (size_t)(c->hi - c->lo));
}

static inline int conv_run(const struct exec *x, const struct node *n)
{
    struct conv c = {.x = n->src[0],
                     .weight = n->src[1],
                     .state = n->src[2],
                     .sequences = n->src[3],
                     .slots = n->src[4],
                     .out = n->out,
                     .width = n->src[1]->ne[0],
                     .silu = n->n_parts > 0,
                     .taps = x->worker.scratch};
    worker_range(&x->worker, n->out->ne[0], CONV_GRAIN, &c.lo, &c.hi);
    int64_t span = c.hi - c.lo, n_tokens;
    if (!span)
        return 0;
    c.zeros = c.taps + c.width * span;
    memset(c.taps + c.width * span, 0, sizeof(float) * (size_t)span);
    c.tokens = (int32_t *)(void *)(c.taps + (c.width + 1) * span);
    conv_turn(&c);
    n_tokens = recurrent_strays(c.sequences, c.slots, c.tokens);
    for (int64_t t = 0; t < n_tokens; t++)
        memset(conv_row(&c, c.out, c.tokens[t], 0), 0, sizeof(float) * (size_t)span);
    for (int64_t seq = 0; seq < c.slots->ne[1]; seq++)
        if ((n_tokens = recurrent_tokens(c.sequences, seq, c.tokens)) > 0)
            conv_sequence(&c, seq, n_tokens);
    return 0;
}

/* Defines cpu_<op>_<isa>. */
#define CONV_KERNEL(OP, name)                                                                                                  \
    const struct kernel CPU_KERNEL_NAME(name) = {.op = OP_##OP,                                                                \
                                                 .variant = FLOATS_VARIANT,                                                    \
                                                 .needs = FLOATS_NEEDS,                                                        \
                                                 .fits = conv_fits,                                                            \
                                                 .scratch = conv_scratch,                                                      \
                                                 .run = conv_run}

#endif
