/* ssm_conv.c: causal depthwise convolution over the tokens of each sequence, whose past is a state: the short convolution
 * before a state-space or delta-rule layer (Gu and Dao, arXiv 2312.00752).
 *
 * src[0] x f32 [channels, n_tokens]; src[1] weight f32 [width, channels]; src[2] state f32 [channels, width - 1, n_slots], the
 * last inputs of a sequence, the latest last; src[3] sequences i32 [n_tokens]; src[4] slots i32 [2, n_seq] (recurrent.h). The
 * state is written in place. out f32 [channels, n_tokens]: out[c, t] = sum over j < width of weight[j, c] x[c, t - (width - 1)
 * + j], counted over the tokens of t's sequence, and before its first token in the step come the rows of its state.
 *
 * The window lies as rows of channels, as inputs come, and not, as files of others have it, as a few taps of each channel: then
 * writing it is a copy of rows, and a kernel's vectors run over channels. A worker owns a span of channels through all tokens,
 * so reading and writing one slot needs no meeting. */
#include "ops/recurrent.h"

#include <string.h>

static int ssm_conv_shape(struct node *n, struct hone_error *e)
{
    int rc = op_check(n, e);
    for (int i = 0; i < 2 && !rc; i++)
        rc = op_check_format(n, i, FORMAT_F32, e);
    if (!rc)
        rc = op_check_unpacked(n, 1, e);
    if (!rc)
        rc = recurrent_shape(n, 2, 3, 3, 4, n->src[0]->ne[1], e);
    if (rc)
        return rc;
    const struct tensor *x = n->src[0], *weight = n->src[1], *state = n->src[2];
    char a[128], b[128], c[128];
    if (x->ne[2] != 1 || x->ne[3] != 1 || weight->ne[2] != 1 || weight->ne[3] != 1 || weight->ne[0] < 1 ||
        weight->ne[1] != x->ne[0] || state->ne[0] != x->ne[0] || state->ne[1] != weight->ne[0] - 1)
        return op_refuse(
            n, e,
            "x %s, weight %s and state %s do not fit as [channels, t], [width, channels] and [channels, width - 1, slots]",
            tensor_describe(x, a, sizeof a), tensor_describe(weight, b, sizeof b), tensor_describe(state, c, sizeof c));
    return op_set_out(n, FORMAT_F32, x->ne, e);
}

/* The list of tokens; a row. */
static size_t ssm_conv_scratch(const struct node *n)
{
    return sizeof(int32_t) * (size_t)n->src[0]->ne[1] + sizeof(float) * (size_t)(n->src[1]->ne[0] + 1);
}

/* Single elements, at any alignment. */
static float get(const struct tensor *t, int64_t i0, int64_t i1, int64_t i2)
{
    float x;
    memcpy(&x, (const char *)tensor_row(t, i1, i2, 0) + (size_t)i0 * t->nb[0], sizeof x);
    return x;
}

static void put(const struct tensor *t, int64_t i0, int64_t i1, int64_t i2, float x)
{
    memcpy((char *)tensor_row(t, i1, i2, 0) + (size_t)i0 * t->nb[0], &x, sizeof x);
}

/* Input number t of the sequence, counted from its first token in the step; negative: from its state. */
static double input(const struct node *n, const int32_t *tokens, int64_t slot, int64_t c, int64_t t)
{
    const struct tensor *state = n->src[2];
    if (t >= 0)
        return (double)get(n->src[0], c, tokens[t], 0);
    return slot < 0 ? 0 : (double)get(state, c, state->ne[1] + t, slot);
}

/* One channel of one sequence. The new window waits in `next`, for it may go where the old one is. */
static void convolve(const struct node *n, int64_t seq, const int32_t *tokens, int64_t n_tokens, int64_t c, float *next)
{
    const struct tensor *state = n->src[2];
    int64_t width = n->src[1]->ne[0], from = recurrent_slot(n->src[4], seq, false, state->ne[2]);
    int64_t to = recurrent_slot(n->src[4], seq, true, state->ne[2]);
    for (int64_t t = 0; t < n_tokens; t++) {
        double sum = 0;
        for (int64_t j = 0; j < width; j++)
            sum += (double)get(n->src[1], j, c, 0) * input(n, tokens, from, c, t - (width - 1) + j);
        put(n->out, c, tokens[t], 0, (float)sum);
    }
    for (int64_t j = 0; j < width - 1; j++)
        next[j] = (float)input(n, tokens, from, c, n_tokens - (width - 1) + j);
    for (int64_t j = 0; j < width - 1 && to >= 0; j++)
        put(state, c, j, to, next[j]);
}

static void ssm_conv_reference(const struct node *n, const struct worker *w)
{
    int32_t *tokens = w->scratch;
    float *next = (float *)(void *)(tokens + n->src[0]->ne[1]);
    int64_t lo, hi, n_stray = recurrent_strays(n->src[3], n->src[4], tokens);
    worker_range(w, n->out->ne[0], 1, &lo, &hi);
    for (int64_t t = 0; t < n_stray; t++)
        for (int64_t c = lo; c < hi; c++)
            put(n->out, c, tokens[t], 0, 0);
    for (int64_t seq = 0; seq < n->src[4]->ne[1]; seq++) {
        int64_t n_tokens = recurrent_tokens(n->src[3], seq, tokens);
        for (int64_t c = lo; c < hi && n_tokens; c++)
            convolve(n, seq, tokens, n_tokens, c, next);
    }
}

/* One window read and one written; more where a step has several sequences, which shapes do not say. */
static struct cost ssm_conv_cost(const struct node *n)
{
    const struct tensor *x = n->src[0], *weight = n->src[1];
    double window = sizeof(float) * (double)x->ne[0] * (double)(weight->ne[0] - 1);
    return (struct cost){op_stored_bytes(x) + op_stored_bytes(weight) + op_stored_bytes(n->src[3]) + window,
                         op_stored_bytes(n->out) + window, 2 * (double)weight->ne[0] * (double)tensor_elements(x)};
}

#define X(c, t)                                                                                                                \
    {                                                                                                                          \
        FORMAT_F32, {c, t}, FILL_NORMAL                                                                                        \
    }
#define STATE(c, rows, n)                                                                                                      \
    {                                                                                                                          \
        FORMAT_F32, {c, rows, n}, FILL_NORMAL                                                                                  \
    }
#define OF_ONE(t)                                                                                                              \
    {                                                                                                                          \
        FORMAT_I32, {t}, FILL_ZERO                                                                                             \
    }
#define OF(t, n)                                                                                                               \
    {                                                                                                                          \
        FORMAT_I32, {t}, FILL_INDEX, STRIDES_PLAIN, n                                                                          \
    }
#define SLOTS(n_seq, n_slots)                                                                                                  \
    {                                                                                                                          \
        FORMAT_I32, {2, n_seq}, FILL_DISTINCT, STRIDES_PLAIN, n_slots                                                          \
    }
/* Every sequence reads slot `first` and writes the one behind it. */
#define FROM(n_seq, first)                                                                                                     \
    {                                                                                                                          \
        FORMAT_I32, {2, n_seq}, FILL_ASCENDING, STRIDES_PLAIN, first                                                           \
    }

static const struct op_case cases[] = {
    {"one", {X(1, 1), X(2, 1), STATE(1, 1, 2), OF_ONE(1), SLOTS(1, 2)}, NULL},
    {"decode", {X(6144, 1), X(4, 6144), STATE(6144, 3, 3), OF_ONE(1), SLOTS(1, 3)}, NULL},
    {"batch", {X(768, 17), X(4, 768), STATE(768, 3, 2), OF_ONE(17), SLOTS(1, 2)}, NULL},
    {"two_tokens", {X(96, 2), X(4, 96), STATE(96, 3, 2), OF_ONE(2), SLOTS(1, 2)}, NULL},
    {"odd_channels", {X(101, 5), X(4, 101), STATE(101, 3, 2), OF_ONE(5), SLOTS(1, 2)}, NULL},
    {"width_1", {X(40, 3), X(1, 40), {FORMAT_F32, {40, -1, 2}, FILL_NORMAL}, OF_ONE(3), SLOTS(1, 2)}, NULL},
    {"width_2", {X(40, 3), X(2, 40), STATE(40, 1, 2), OF_ONE(3), SLOTS(1, 2)}, NULL},
    {"width_3", {X(40, 5), X(3, 40), STATE(40, 2, 2), OF_ONE(5), SLOTS(1, 2)}, NULL},
    {"width_7", {X(50, 4), X(7, 50), STATE(50, 6, 2), OF_ONE(4), SLOTS(1, 2)}, NULL},
    {"begins", {X(128, 5), X(4, 128), STATE(128, 3, 2), OF_ONE(5), FROM(1, -1)}, NULL},
    {"begins_decode", {X(128, 1), X(4, 128), STATE(128, 3, 2), OF_ONE(1), FROM(1, -1)}, NULL},
    {"leaves_none", {X(128, 5), X(4, 128), STATE(128, 3, 2), OF_ONE(5), FROM(1, 1)}, NULL},
    {"same_slot", {X(72, 5), X(4, 72), STATE(72, 3, 1), OF_ONE(5), {FORMAT_I32, {2, 1}, FILL_ZERO}}, NULL},
    {"same_slot_decode", {X(72, 1), X(4, 72), STATE(72, 3, 1), OF_ONE(1), {FORMAT_I32, {2, 1}, FILL_ZERO}}, NULL},
    {"sequences", {X(96, 19), X(4, 96), STATE(96, 3, 9), OF(19, 4), SLOTS(4, 9)}, NULL},
    {"some_without_tokens", {X(96, 3), X(4, 96), STATE(96, 3, 16), OF(3, 8), SLOTS(8, 16)}, NULL},
    {"stray_sequences", {X(96, 9), X(4, 96), STATE(96, 3, 9), OF(9, 6), SLOTS(3, 9)}, NULL},
    {"no_tokens", {X(64, -1), X(4, 64), STATE(64, 3, 2), OF_ONE(-1), SLOTS(1, 2)}, NULL},
    {"padded", {{FORMAT_F32, {64, 5}, FILL_NORMAL, STRIDES_PADDED}, X(4, 64), STATE(64, 3, 2), OF_ONE(5), SLOTS(1, 2)}, NULL},
    {"padded_state", {X(64, 5), X(4, 64), {FORMAT_F32, {64, 3, 2}, FILL_NORMAL, STRIDES_PADDED}, OF_ONE(5), SLOTS(1, 2)}, NULL},
    {"transposed",
     {{FORMAT_F32, {33, 5}, FILL_NORMAL, STRIDES_TRANSPOSED},
      {FORMAT_F32, {4, 33}, FILL_NORMAL, STRIDES_TRANSPOSED},
      {FORMAT_F32, {33, 3, 2}, FILL_NORMAL, STRIDES_TRANSPOSED},
      OF_ONE(5),
      SLOTS(1, 2)},
     NULL},
    {"hostile",
     {{FORMAT_F32, {300, 9}, FILL_HOSTILE}, X(4, 300), {FORMAT_F32, {300, 3, 2}, FILL_HOSTILE}, OF_ONE(9), SLOTS(1, 2)},
     NULL},
};

const struct op_desc op_ssm_conv = {
    .name = "ssm_conv",
    .min_src = 5,
    .max_src = 5,
    .updates = 3,
    .shape = ssm_conv_shape,
    .reference = ssm_conv_reference,
    .scratch = ssm_conv_scratch,
    .cost = ssm_conv_cost,
    /* A sum of a few products in f32, each rounding 6e-8 of the largest of them: squared 4e-15 a product where nothing cancels;
     * the window is copied. */
    .tolerance = 1e-12,
    .cases = cases,
    .n_cases = sizeof cases / sizeof *cases,
};
